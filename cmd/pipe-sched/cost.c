/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c: times and memory of pipe-sched's subcommands, by the same options everywhere. */
#include <stdio.h>
#include <string.h>
#include "pipe-sched/pipe.h"

struct pipe_cost pipe_cost;

static const char *const releases[] = {"w", "split", NULL};
static const char *const syncs[] = {"bypass", "barrier", NULL};

const struct tu_opt pipe_cost_options[] = {
    {0, "cost", "KEY=TIME,...", "times: F I W B FB R C CF CB OPT, and unit=ns|us|ms|s",
     TU_OPT_STRING, &pipe_cost.cost, NULL, 0},
    {0, "share", NULL, "the times are of a rank's share: divide them among its chunks",
     TU_OPT_FLAG, &pipe_cost.share, NULL, 0},
    {0, "times", "FILE",
     "times of single stages, links, micro-batches (CSV), or a Chrome trace",
     TU_OPT_FILE_IN, &pipe_cost.times, NULL, 0},
    {0, "memory", "KEY=SIZE,...", "activation memory of a rank's share: B W CKPT",
     TU_OPT_STRING, &pipe_cost.memory, NULL, 0},
    {0, "release", NULL, "free activations at W, or partly at I", TU_OPT_CHOICE,
     &pipe_cost.release, releases, 0},
    {0, "sync", NULL, "ranks go on alone into the next step, or line up", TU_OPT_CHOICE,
     &pipe_cost.sync, syncs, 0},
    {0, "contend", NULL, "transfers over one link follow one another", TU_OPT_FLAG,
     &pipe_cost.contend, NULL, 0},
    {0, "blocking", NULL, "a rank is busy while it sends", TU_OPT_FLAG,
     &pipe_cost.blocking, NULL, 0},
    {0},
};

/* The text of --times: read once, for a pipe has it only once and several schedules may
 * ask for their times. */
static int times_text(const struct tu_buf **text, struct tu_err *err)
{
    static struct tu_buf kept;
    static bool read;
    int rc = read ? 0 : pipe_slurp(pipe_cost.times, &kept, err);
    read = read || !rc;
    *text = &kept;
    return rc;
}

/* --times: lines or a trace; with --share of the stages of the model. */
static int times_over(struct tu_cost *c, const struct pipe_shape *s, struct tu_err *err)
{
    const struct pipe_cost *o = &pipe_cost;
    const struct tu_buf *text;
    int rc = times_text(&text, err);
    if (!rc && o->share && c->stages)
        rc = tu_fail(err, TU_EUSAGE, "--share: the schedule has times of its own stages");
    if (!rc && !text->n)
        rc = tu_fail(err, TU_EFORMAT, "is empty: lines KIND,STAGE,TIME are expected");
    bool trace = text->n && (text->data[0] == '{' || text->data[0] == '[');
    if (!rc)
        rc = trace ? tu_cost_trace(c, text->data, text->n, err)
                   : tu_cost_times(c, text->data ? text->data : "", text->n, err);
    if (!rc && o->share)
        rc = tu_cost_spread(c, s->ranks, s->chunks, s->slices, s->pipelines, err);
    if (rc)
        tu_err_prefix(err, "%s", o->times);
    return rc;
}

int pipe_cost_over(struct tu_cost *c, const struct pipe_shape *s, struct tu_err *err)
{
    const struct pipe_cost *o = &pipe_cost;
    uint32_t parts = s->chunks * s->slices;
    int rc = o->cost ? tu_cost_parse(c, o->cost, o->share ? parts : 1, err) : 0;
    if (rc)
        tu_err_prefix(err, "--cost %s", o->cost);
    if (!rc && o->times)
        rc = times_over(c, s, err);
    if (!rc && o->memory)
        if ((rc = tu_cost_memory(c, o->memory, s->chunks, err)))
            tu_err_prefix(err, "--memory %s", o->memory);
    if (o->release)
        c->release = TU_MEM_SPLIT;
    c->contend = c->contend || o->contend;
    c->blocking = c->blocking || o->blocking;
    c->barrier = c->barrier || o->sync;
    return rc;
}

int pipe_cost_get(struct tu_cost *c, const struct pipe_shape *s, struct tu_err *err)
{
    tu_cost_init(c);
    int rc = pipe_cost.share ? tu_cost_share(c, s->chunks * s->slices, err) : 0;
    if (!rc)
        rc = pipe_cost_over(c, s, err);
    if (rc)
        tu_cost_release(c);
    return rc;
}

int pipe_cost_lost(const struct tu_ctx *ctx, const char *form, struct tu_err *err)
{
    const struct pipe_cost *o = &pipe_cost;
    const struct tu_sched_form *f = tu_sched_form_find(form);
    const struct {
        bool given;
        const char *name;
    } option[] = {{o->cost, "cost"},       {o->times, "times"},       {o->memory, "memory"},
                  {o->share, "share"},     {o->release, "release"},   {o->sync, "sync"},
                  {o->contend, "contend"}, {o->blocking, "blocking"}};
    char holds[96] = "";
    for (size_t i = 0, n = 0; tu_sched_forms[i]; i++)
        if (tu_sched_forms[i]->write && !tu_sched_forms[i]->order_only)
            n += (size_t)snprintf(holds + n, sizeof holds - n, " %s", tu_sched_forms[i]->name);
    for (size_t i = 0; f && f->order_only && i < sizeof option / sizeof *option; i++)
        if (option[i].given)
            return tu_fail(err, TU_EUSAGE,
                           "%s --to %s: an order alone, without --%s; these hold or show it:%s tns",
                           ctx->cmd->name, form, option[i].name, holds);
    return 0;
}

int pipe_times_fit(const struct tu_cost *c, const struct tu_sched *s, struct tu_err *err)
{
    if (!pipe_cost.times || !tu_cost_fits(c, s, err))
        return 0;
    tu_err_prefix(err, "%s", pipe_cost.times);
    return err->code = TU_EUSAGE;
}

int pipe_times_fit_sizes(const struct tu_cost *c, uint32_t ranks, uint32_t stages,
                         uint32_t microbatches, struct tu_err *err)
{
    const struct tu_sched sizes = {
        .ranks = ranks, .stages = stages, .pipelines = 1, .microbatches = microbatches};
    return pipe_times_fit(c, &sizes, err);
}

void pipe_cost_idle(struct tu_ctx *ctx, const struct tu_sched *const *s, size_t n,
                    bool whole)
{
    struct tu_spec spec = {0};
    struct tu_buf text = {0};
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || s[i];
    if (!pipe_cost.cost || !any ||
        tu_buf_printf(&text, NULL, "cost:%s", pipe_cost.cost) ||
        tu_spec_parse(&spec, text.data, NULL))
        spec.n = 0;
    for (size_t k = 0; k < spec.n; k++) {
        bool matters = !whole && strcmp(spec.key[k].key, "OPT");
        int64_t value, scale;
        if (strchr("FBIW", *spec.key[k].key) && !spec.key[k].key[1] &&
            !tu_decimal(spec.key[k].value, &value, &scale, NULL) && !value)
            tu_warn(ctx, "--cost %s=%s: operations that take no time", spec.key[k].key,
                    spec.key[k].value);
        for (size_t i = 0; i < n && !matters; i++)
            matters = s[i] && tu_cost_matters(s[i], spec.key[k].key);
        if (!matters)
            tu_warn(ctx, "--cost %s=%s: nothing here takes that time", spec.key[k].key,
                    spec.key[k].value);
    }
    tu_spec_release(&spec);
    tu_buf_release(&text);
}

int pipe_cap(const struct tu_cost *c, uint32_t chunks, int64_t *cap, struct tu_err *err)
{
    int64_t value, scale, unit = tu_cost_unit(c, chunks);
    *cap = 0;
    if (!pipe_cost.cap)
        return 0;
    if (tu_decimal(pipe_cost.cap, &value, &scale, err))
        return tu_fail(err, TU_EUSAGE,
                       "--memory-cap %.40s: a number of activations is expected; for a cap "
                       "in GB say how large one is, in GB too: --memory B=1.5 --memory-cap 40",
                       pipe_cost.cap);
    if (value > INT64_MAX / unit)
        return tu_fail(err, TU_EUSAGE, "--memory-cap %.40s: too large", pipe_cost.cap);
    *cap = value * unit / scale;
    return *cap > 0 ? 0
                    : tu_fail(err, TU_EUSAGE, "--memory-cap %.40s: nothing fits in that",
                              pipe_cost.cap);
}
