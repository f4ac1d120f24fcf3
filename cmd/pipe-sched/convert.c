/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: pipe-sched convert, draw and lower: a schedule in, the same schedule out in
 * another form, as a picture, or with its communication written down. */
#include <unistd.h>
#include <string.h>
#include "pipe-sched/pipe.h"

static struct {
    const char *to, *over;
    uint64_t depth;
    bool strip, merge, recompute, offload, compute;
    int recv;
} opt = {.depth = UINT64_MAX};

#define PREFETCH 3

static const char *const recvs[] = {"asap", "late", NULL};

static const struct tu_opt convert_options[] = {
    PIPE_INPUT_OPTIONS,
    PIPE_TO_OPTION(&opt.to, "json"),
    {0, "strip", NULL, "leave communication out", TU_OPT_FLAG, &opt.strip, NULL, 0},
    {0},
};
static const struct tu_opt draw_options[] = {
    PIPE_INPUT_OPTIONS,
    PIPE_TO_OPTION(&opt.to, "svg, or text on a terminal"),
    {0, "over", "TRACE", "a measured step, drawn below the simulated one of each rank",
     TU_OPT_FILE_IN, &opt.over, NULL, 0},
    {0, "width", "N", "characters of a line of text; default: the terminal's, or 100",
     TU_OPT_U64, &pipe_width, NULL, 0},
    {0},
};
static const struct tu_opt lower_options[] = {
    PIPE_INPUT_OPTIONS,
    PIPE_TO_OPTION(&opt.to, "json"),
    {0, "prefetch", "N",
     "stages gathered ahead of use; 0: parameters are not gathered; default 3",
     TU_OPT_U64, &opt.depth, NULL, 0},
    {0, "merge", NULL, "an I directly followed by its W becomes a B first", TU_OPT_FLAG,
     &opt.merge, NULL, 0},
    {0, "recompute", NULL, "keep checkpoints, and recompute before each backward",
     TU_OPT_FLAG, &opt.recompute, NULL, 0},
    {0, "offload", NULL, "activations to the host and back", TU_OPT_FLAG, &opt.offload,
     NULL, 0},
    {0, "no-transfers", NULL, "leave SEND and RECV out", TU_OPT_FLAG, &opt.compute, NULL,
     0},
    {0, "recv", NULL, "receive as soon as it is sent, or directly before use",
     TU_OPT_CHOICE, &opt.recv, recvs, 0},
    {0},
};

/* --prefetch, or by default what is not there yet. */
static uint32_t prefetch(const struct tu_sched *s)
{
    for (uint32_t r = 0; opt.depth == UINT64_MAX && r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++)
            if (s->op[r][i].kind >= TU_OP_UNSHARD && s->op[r][i].kind <= TU_OP_REDUCE)
                return 0;
    return opt.depth == UINT64_MAX ? PREFETCH : (uint32_t)tu_min(opt.depth, 4096);
}

/* Replace *s by what `how` makes of it. */
static int change(struct tu_sched **s, const struct tu_lower *how, struct tu_err *err)
{
    struct tu_sched *t = NULL;
    int rc = how ? tu_sched_lower(&t, *s, how, err) : tu_sched_strip(&t, *s, err);
    if (rc)
        return rc;
    tu_sched_free(*s);
    *s = t;
    return 0;
}

/* What was measured is of this schedule. */
static int over_fits(const struct tu_measured *m, const struct tu_sched *s,
                     struct tu_err *err)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->op[i].stage >= s->stages * s->pipelines || m->op[i].mb >= s->microbatches)
            return tu_fail(err, TU_EUSAGE,
                           "%u%s%u: the schedule has %u stages and %u micro-batches",
                           m->op[i].stage, tu_op_name(m->op[i].kind), m->op[i].mb,
                           s->stages * s->pipelines, s->microbatches);
    return 0;
}

/* The picture with a measured step. Without other times those of its operations hold. */
static int draw_over(struct tu_ctx *ctx, const struct tu_sched *s, struct tu_cost *c,
                     struct tu_err *err)
{
    struct tu_measured m = {0};
    struct tu_sim sim = {0};
    struct tu_buf text = {0};
    int status = TU_STATUS_YES, rc = pipe_slurp(opt.over, &text, err);
    if (!rc)
        rc = tu_measured_read(&m, text.data ? text.data : "", text.n, err);
    if (!rc)
        rc = over_fits(&m, s, err);
    if (rc)
        tu_err_prefix(err, "%s", opt.over);
    text.n = 0;
    if (!rc && !*c->unit)
        rc = tu_cost_measured(c, &m, err);
    if (!rc)
        rc = pipe_simulate(ctx, s, c, &sim, &status, err);
    if (!rc && status == TU_STATUS_YES) {
        rc = tu_sched_svg(&text, s, c, &sim, &m, err);
        if (!rc)
            rc = pipe_bytes(ctx, &text, err);
    } else if (!rc) {
        ctx->status = status;
    }
    tu_sim_release(&sim);
    tu_measured_release(&m);
    tu_buf_release(&text);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_cost c;
    struct tu_sched *s;
    struct tu_lower how = {.recompute = opt.recompute,
                           .offload = opt.offload,
                           .merge = opt.merge,
                           .transfers = !opt.compute,
                           .late = opt.recv};
    bool lower = ctx->cmd == &pipe_lower, draw = ctx->cmd == &pipe_draw;
    bool shown = !strcmp(ctx->output, "-") && !opt.over && isatty(STDOUT_FILENO);
    const char *to;
    int rc = pipe_form(&to, ctx, opt.to, !draw ? "json" : shown ? "text" : "svg", &err);
    if (!rc && opt.over && strcmp(to, "svg"))
        return tu_usage(ctx, "draw: --over is drawn in SVG only");
    if (!rc && pipe_width && strcmp(to, "text"))
        return tu_usage(ctx, "draw: --width is for --to text");
    if (!rc)
        rc = pipe_cost_lost(ctx, to, &err);
    if (!rc)
        rc = pipe_load(ctx, argc, argv, &s, &c, &err);
    if (rc)
        return tu_error(ctx, &err);
    how.depth = prefetch(s);
    if (lower || opt.strip)
        rc = change(&s, lower ? &how : NULL, &err);
    if (!rc)
        rc = opt.over ? draw_over(ctx, s, &c, &err) : pipe_write(ctx, s, &c, to, &err);
    tu_sched_free(s);
    tu_cost_release(&c);
    return rc ? tu_error(ctx, &err) : ctx->status;
}

static const char *const usage[] = {"[option ...] [file]", NULL};

const struct tu_cmd pipe_convert = {
    .name = "convert",
    .example = "pipe-sched convert --to csv a.json",
    .summary = "write a schedule in another form",
    .usage = usage,
    .opts = convert_options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = TU_CMD_STDIN | TU_CMD_DOCUMENT,
    .max = 1,
    .run = run,
};

const struct tu_cmd pipe_draw = {
    .name = "draw",
    .example = "pipe-sched gen -s zb-v -p 4 -m 8 | pipe-sched draw -o zb-v.svg",
    .summary = "draw a schedule: SVG, or text on a terminal",
    .usage = usage,
    .opts = draw_options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = TU_CMD_STDIN | TU_CMD_DOCUMENT,
    .max = 1,
    .run = run,
};

const struct tu_cmd pipe_lower = {
    .name = "lower",
    .example = "pipe-sched gen -s 1f1b -p 4 -m 8 | pipe-sched lower --to csv",
    .summary = "write the communication of a schedule down",
    .usage = usage,
    .opts = lower_options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = TU_CMD_STDIN | TU_CMD_DOCUMENT,
    .max = 1,
    .run = run,
};
