/* SPDX-License-Identifier: Apache-2.0 */
/* opts.c: steps that the subcommands of pipe-sched share: reading, writing, simulating. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "pipe-sched/pipe.h"

struct pipe_input pipe_input;
uint64_t pipe_width;

static const char *schedule_row(size_t i, const char **help)
{
    *help = tu_schedules[i] ? tu_schedules[i]->help : NULL;
    return tu_schedules[i] ? tu_schedules[i]->name : NULL;
}

static const char *schedule_key(size_t i, size_t k)
{
    const char *const *key = tu_schedules[i]->key;
    for (; key && *key && k; k--)
        key++;
    return key ? *key : NULL;
}

static const char *form_row(size_t i, const char **help)
{
    if (i && !tu_sched_forms[i - 1])
        return NULL;
    if (!tu_sched_forms[i]) {
        *help = "a tensor stream: META sched, sched.ops, sched.times";
        return "tns";
    }
    *help = tu_sched_forms[i] ? tu_sched_forms[i]->help : NULL;
    return tu_sched_forms[i] ? tu_sched_forms[i]->name : NULL;
}

const struct tu_listing pipe_listings[] = {
    {"schedules", "schedules that gen makes", schedule_row, schedule_key},
    {"forms", "forms of a schedule that are read or written", form_row, NULL},
    {0},
};

int pipe_row(const struct tu_schedule **row, const char *name, struct tu_err *err)
{
    *row = tu_schedule_find(name);
    return *row ? 0
                : tu_fail(err, TU_EUSAGE,
                          "no schedule is called '%.40s'; --list=schedules names them", name);
}

int pipe_sizes(struct tu_ctx *ctx, uint64_t p, uint64_t m, uint64_t chunks)
{
    const char *name = ctx->cmd->name;
    if (!p || !m)
        return tu_usage(ctx, "%s: %s%s%s needed, at least 1", name, p ? "" : "-p",
                        p || m ? "" : " and ", m ? " is" : p ? "-m is" : "-m are");
    if (!chunks)
        return tu_usage(ctx, "%s: -c 0: a rank has at least one chunk", name);
    return 0;
}

/* The form whose files end so; NULL: none. */
static const char *form_of(const char *suffix)
{
    for (size_t i = 0; tu_sched_forms[i]; i++)
        if (tu_sched_forms[i]->suffix && !strcmp(suffix, tu_sched_forms[i]->suffix))
            return tu_sched_forms[i]->name;
    return strcmp(suffix, "tns") ? NULL : "tns";
}

int pipe_form(const char **form, const struct tu_ctx *ctx, const char *given,
              const char *fallback, struct tu_err *err)
{
    const char *slash = strrchr(ctx->output, '/');
    const char *name = slash ? slash + 1 : ctx->output;
    const char *dot = *name ? strrchr(name + 1, '.') : NULL;
    const char *found = dot ? form_of(dot + 1) : NULL;
    *form = given ? given : found ? found : fallback;
    if (given || found || !dot || ctx->cmd != &pipe_draw)
        return 0;
    char known[80] = "";
    for (size_t i = 0, n = 0; tu_sched_forms[i]; i++)
        if (tu_sched_forms[i]->suffix)
            n += (size_t)snprintf(known + n, sizeof known - n, " .%s",
                                  tu_sched_forms[i]->suffix);
    return tu_fail(err, TU_EUSAGE, "-o %.200s: forms are known by%s .tns; --to says another",
                   ctx->output, known);
}

size_t pipe_line_width(void)
{
    struct winsize w;
    if (pipe_width)
        return (size_t)pipe_width;
    return isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col
               ? w.ws_col
               : 100;
}

static int slurp(struct tu_in *in, struct tu_buf *out, struct tu_err *err)
{
    size_t got = 1;
    int rc = 0;
    while (!rc && got) {
        void *p = tu_buf_room(out, TU_IO_CHUNK, err);
        rc = p ? tu_in_read(in, p, TU_IO_CHUNK, &got, err) : TU_ENOMEM;
        out->n += rc ? 0 : got;
    }
    if (!rc && out->data)
        out->data[out->n] = 0;
    return rc;
}

int pipe_slurp(const char *path, struct tu_buf *out, struct tu_err *err)
{
    struct tu_in *in;
    int rc = tu_in_open(&in, path, err);
    if (rc)
        return rc;
    rc = slurp(in, out, err);
    tu_in_close(in);
    return rc;
}

static int to_stream(struct tu_ctx *ctx, const struct tu_sched *s,
                     const struct tu_cost *c, const struct tu_sim *sim,
                     struct tu_err *err)
{
    struct tu_out *out;
    struct tu_writer *w;
    int rc = tu_ctx_output(ctx, &out, err);
    if (!rc)
        rc = tu_writer_new(&w, out, err);
    if (rc)
        return rc;
    rc = tu_sched_to_stream(w, s, c, sim, err);
    if (rc) {
        tu_writer_abort(w);
        return rc;
    }
    return tu_writer_close(w, false, err);
}

/* Takes `in` over. */
static int from_stream(struct tu_sched **s, struct tu_cost *c, struct tu_in *in,
                       struct tu_err *err)
{
    struct tu_reader *r;
    int rc = tu_reader_new(&r, in, 0, NULL, err);
    if (rc)
        return rc;
    rc = tu_sched_from_stream(s, c, r, err);
    tu_reader_free(r);
    return rc;
}

static int from_text(struct tu_sched **s, struct tu_cost *c, struct tu_in *in,
                     const struct tu_sched_form *f, const struct tu_sched_hint *hint,
                     struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = slurp(in, &text, err);
    if (!rc)
        rc = tu_sched_read(s, c, text.data ? text.data : "", text.n, f, hint, err);
    if (rc)
        tu_err_prefix(err, "%s", tu_in_name(in));
    tu_in_close(in);
    tu_buf_release(&text);
    return rc;
}

int pipe_read(struct tu_ctx *ctx, const char *path, const char *form,
              const struct tu_sched_hint *hint, struct tu_sched **s, struct tu_cost *c,
              struct tu_err *err)
{
    const struct tu_sched_form *f = form ? tu_sched_form_find(form) : NULL;
    struct tu_in *in;
    char magic[8];
    size_t got = 0;
    (void)ctx;
    *s = NULL;
    tu_cost_init(c);
    if (form && strcmp(form, "tns") && (!f || !f->read))
        return tu_fail(err, TU_EUSAGE,
                       "--from %s: cannot be read; --list=forms names the forms", form);
    int rc = tu_in_open(&in, path ? path : "-", err);
    if (!rc)
        rc = tu_in_peek(in, magic, sizeof magic, &got, err);
    bool stream = got == sizeof magic && !memcmp(magic, TU_STREAM_MAGIC, sizeof magic);
    if (!rc)
        rc = stream ? from_stream(s, c, in, err) : from_text(s, c, in, f, hint, err);
    if (!rc)
        rc = pipe_cost_over(c,
                            &(struct pipe_shape){(*s)->ranks, tu_sched_chunks(*s), 1,
                                                 (*s)->pipelines},
                            err);
    if (!rc)
        rc = pipe_times_fit(c, *s, err);
    if (rc) {
        tu_sched_free(*s);
        tu_cost_release(c);
        *s = NULL;
    }
    return rc;
}

/* Sizes that were given are those that the schedule has. */
static int as_given(const struct tu_sched *s, struct tu_err *err)
{
    const struct pipe_input *o = &pipe_input;
    const struct {
        const char *name;
        uint64_t given;
        uint32_t has;
    } size[] = {{"ranks", o->ranks, s->ranks},
                {"stages", o->stages, s->stages},
                {"microbatches", o->m, s->microbatches},
                {"pipelines", o->pipelines, s->pipelines}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].given && size[i].given != size[i].has)
            return tu_fail(err, TU_EUSAGE, "--%s %llu: the schedule has %u", size[i].name,
                           (unsigned long long)size[i].given, size[i].has);
    return 0;
}

int pipe_load(struct tu_ctx *ctx, int argc, char **argv, struct tu_sched **s,
              struct tu_cost *c, struct tu_err *err)
{
    const struct pipe_input *o = &pipe_input;
    struct tu_sched_hint hint = {.ranks = (uint32_t)tu_min(o->ranks, TU_SCHED_MAX),
                                 .stages = (uint32_t)tu_min(o->stages, TU_SCHED_MAX),
                                 .microbatches = (uint32_t)tu_min(o->m, TU_SCHED_MAX),
                                 .pipelines = (uint32_t)tu_min(o->pipelines, 9),
                                 .old_b = o->old};
    int rc = pipe_read(ctx, argc ? argv[0] : "-", o->from, &hint, s, c, err);
    if (rc || !(rc = as_given(*s, err)))
        return rc;
    tu_sched_free(*s);
    tu_cost_release(c);
    return rc;
}

int pipe_bytes(struct tu_ctx *ctx, const struct tu_buf *b, struct tu_err *err)
{
    struct tu_out *out;
    int rc = tu_ctx_output(ctx, &out, err);
    if (rc)
        return rc;
    rc = tu_out_write(out, b->data ? b->data : "", b->n, err);
    if (rc) {
        tu_out_abort(out);
        return rc;
    }
    return tu_out_commit(out, false, err);
}

/* The faults of a schedule, one message each. */
static void complain(struct tu_ctx *ctx, struct tu_buf *report)
{
    char *line = report->data, *end;
    for (; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = 0;
        tu_errorf(ctx, TU_OK, "%s", line);
    }
}

int pipe_simulate(struct tu_ctx *ctx, const struct tu_sched *s, const struct tu_cost *c,
                  struct tu_sim *sim, int *status, struct tu_err *err)
{
    struct tu_buf report = {0};
    size_t faults = 0;
    int rc = tu_sim_run(sim, s, c, &report, &faults, err);
    *status = rc || faults ? TU_STATUS_NO : TU_STATUS_YES;
    if (!rc && faults)
        complain(ctx, &report);
    if (!rc && !faults && ctx->cmd != &pipe_diff && ctx->cmd != &pipe_optimize)
        pipe_cost_idle(ctx, &s, 1, true);
    tu_buf_release(&report);
    return rc;
}

int pipe_write(struct tu_ctx *ctx, const struct tu_sched *s, const struct tu_cost *c,
               const char *form, struct tu_err *err)
{
    const struct tu_sched_form *f = tu_sched_form_find(form);
    struct tu_buf text = {0};
    struct tu_sim sim = {0};
    int status = TU_STATUS_YES, rc = 0;
    bool stream = !strcmp(form, "tns");
    if (!stream && (!f || !f->write))
        return tu_fail(err, TU_EUSAGE,
                       "--to %s: cannot be written; --list=forms names the forms", form);
    if (stream || f->needs_sim)
        rc = pipe_simulate(ctx, s, c, &sim, &status, err);
    else if (ctx->cmd != &pipe_optimize)
        pipe_cost_idle(ctx, &s, 1, false);
    if (!rc && status != TU_STATUS_YES)
        ctx->status = ctx->status > status ? ctx->status : status;
    else if (!rc && stream)
        rc = to_stream(ctx, s, c, &sim, err);
    else if (!rc) {
        rc = !strcmp(form, "text") ? tu_sched_grid(&text, s, &sim, ctx->color,
                                                 pipe_line_width(), err)
                                   : f->write(&text, s, c, &sim, err);
        if (!rc)
            rc = pipe_bytes(ctx, &text, err);
    }
    tu_sim_release(&sim);
    tu_buf_release(&text);
    return rc;
}
