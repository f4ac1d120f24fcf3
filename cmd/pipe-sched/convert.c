/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: pipe-sched convert, draw and lower: a schedule in, the same schedule out in
 * another form, as a picture, or with its communication written down. */
#include <unistd.h>
#include <string.h>
#include "pipe-sched/pipe.h"

static struct {
    const char *from, *to;
    uint64_t pipelines, stages, m, depth;
    bool old, strip, merge, recompute, offload, compute;
    int recv;
} opt = {.depth = 3};

static const char *const recvs[] = {"asap", "late", NULL};

#define INPUT                                                                            \
    {                                                                                    \
        0,                                                                               \
        "from",                                                                          \
        "FORM",                                                                          \
        "form of the input; default: by its looks",                                      \
        TU_OPT_STRING,                                                                   \
        &opt.from,                                                                       \
        NULL,                                                                            \
        0},                                                                              \
        {0,          "stages",    "N",  "stages of a pipeline, if not those that occur", \
         TU_OPT_U64, &opt.stages, NULL, 0},                                              \
        {'m',        "microbatches", "N",  "micro-batches, if not those that occur",     \
         TU_OPT_U64, &opt.m,         NULL, 0},                                           \
        {0,          "pipelines",                                                        \
         "N",        "2: the upper half of the stages is a second pipeline",             \
         TU_OPT_U64, &opt.pipelines,                                                     \
         NULL,       0},                                                                 \
        {0,           "old-b",                                                           \
         NULL,        "B is the input gradient where a W exists (torch before 2.6)",     \
         TU_OPT_FLAG, &opt.old,                                                          \
         NULL,        0},                                                                \
    {                                                                                    \
        0, "to", "FORM", "what is written; --list=forms names the forms", TU_OPT_STRING, \
            &opt.to, NULL, 0                                                             \
    }

static const struct tu_opt convert_options[] = {
    INPUT,
    {0, "strip", NULL, "leave communication out", TU_OPT_FLAG, &opt.strip, NULL, 0},
    {0},
};
static const struct tu_opt draw_options[] = {INPUT, {0}};
static const struct tu_opt lower_options[] = {
    INPUT,
    {0, "prefetch", "N", "stages gathered ahead of use; 0: parameters are not gathered",
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

static int load(struct tu_ctx *ctx, int argc, char **argv, struct tu_sched **s,
                struct tu_cost *c, struct tu_err *err)
{
    struct tu_sched_hint hint = {.stages = (uint32_t)tu_min(opt.stages, TU_SCHED_MAX),
                                 .microbatches = (uint32_t)tu_min(opt.m, TU_SCHED_MAX),
                                 .pipelines = (uint32_t)tu_min(opt.pipelines, 9),
                                 .old_b = opt.old};
    return pipe_read(ctx, argc ? argv[0] : "-", opt.from, &hint, s, c, err);
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

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_cost c;
    struct tu_sched *s;
    struct tu_lower how = {.depth = (uint32_t)tu_min(opt.depth, 4096),
                           .recompute = opt.recompute,
                           .offload = opt.offload,
                           .merge = opt.merge,
                           .transfers = !opt.compute,
                           .late = opt.recv};
    bool lower = ctx->cmd == &pipe_lower, draw = ctx->cmd == &pipe_draw;
    const char *to = opt.to ? opt.to : "json";
    if (!opt.to && draw)
        to = !strcmp(ctx->output, "-") && isatty(STDOUT_FILENO) ? "text" : "svg";
    int rc = load(ctx, argc, argv, &s, &c, &err);
    if (rc)
        return tu_error(ctx, &err);
    if (lower || opt.strip)
        rc = change(&s, lower ? &how : NULL, &err);
    if (!rc)
        rc = pipe_write(ctx, s, &c, to, &err);
    tu_sched_free(s);
    tu_cost_release(&c);
    return rc ? tu_error(ctx, &err) : ctx->status;
}

static const char *const usage[] = {"[option ...] [file]", NULL};

#define FLAGS                                                                            \
    (TU_CMD_STDIN | TU_CMD_NO_REPORT | TU_CMD_NO_FORCE | TU_CMD_NO_THREADS |             \
     TU_CMD_NO_PROGRESS | TU_CMD_NO_SEED | TU_CMD_NO_DEVICE)

const struct tu_cmd pipe_convert = {
    .name = "convert",
    .summary = "write a schedule in another form",
    .usage = usage,
    .opts = convert_options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = FLAGS,
    .max = 1,
    .run = run,
};

const struct tu_cmd pipe_draw = {
    .name = "draw",
    .summary = "draw a schedule: SVG, or text on a terminal",
    .usage = usage,
    .opts = draw_options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = FLAGS,
    .max = 1,
    .run = run,
};

const struct tu_cmd pipe_lower = {
    .name = "lower",
    .summary = "write the communication of a schedule down",
    .usage = usage,
    .opts = lower_options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = FLAGS,
    .max = 1,
    .run = run,
};
