/* SPDX-License-Identifier: Apache-2.0 */
/* gen.c: pipe-sched gen: a schedule by name. */
#include "pipe-sched/pipe.h"

static struct {
    struct tu_spec schedule;
    uint64_t p, m, chunks;
    const char *to;
} opt = {.chunks = UINT64_MAX};

static const struct tu_opt options[] = {
    {'s', "schedule", "SCHEDULE[:KEY=VALUE,...]", "which one; --list=schedules names them",
     TU_OPT_SPEC, &opt.schedule, NULL, 0},
    {'p', "ranks", "N", "pipeline ranks", TU_OPT_U64, &opt.p, NULL, 0},
    {'m', "microbatches", "N", "micro-batches of a step", TU_OPT_U64, &opt.m, NULL, 0},
    {'c', "chunks", "N", "chunks (stages) of a rank; default: the schedule's own",
     TU_OPT_U64, &opt.chunks, NULL, 0},
    PIPE_TO_OPTION(&opt.to, "json"),
    PIPE_CAP_OPTION,
    {0},
};

static uint32_t clamp(uint64_t v)
{
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* A group that is smaller than the pipeline comes back before its gradients do. */
static void advise(struct tu_ctx *ctx, const struct tu_schedule *row,
                   const struct tu_sched_params *q)
{
    uint64_t group;
    if (row->grouped && q->v > 1 && !tu_spec_u64(q->spec, "group", q->p, &group, NULL) &&
        group < q->p && group < q->m)
        tu_warn(ctx,
                "%s: groups of %llu micro-batches are fewer than p = %u: the ranks wait for "
                "one another; Megatron refuses such groups",
                row->name, (unsigned long long)group, q->p);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_cost cost;
    struct tu_sched *s = NULL;
    (void)argc;
    (void)argv;
    if (!opt.schedule.name)
        return tu_usage(ctx, "gen: --schedule is needed; --list=schedules names them");
    const struct tu_schedule *row;
    const char *to;
    if (pipe_form(&to, ctx, opt.to, "json", &err))
        return tu_error(ctx, &err);
    if (pipe_row(&row, opt.schedule.name, &err))
        return tu_error(ctx, &err);
    if (!row->caps && !row->timed && pipe_cost_lost(ctx, to, &err))
        return tu_error(ctx, &err);
    if (pipe_cost.cap && !row->caps)
        return tu_usage(ctx, "gen: %s does not look for a schedule: no --memory-cap",
                        row->name);
    int rc = pipe_sizes(ctx, opt.p, opt.m, opt.chunks);
    if (rc)
        return rc;
    struct tu_sched_params q = {.p = clamp(opt.p),
                                .m = clamp(opt.m),
                                .v = opt.chunks == UINT64_MAX ? 0 : clamp(opt.chunks),
                                .spec = &opt.schedule,
                                .cost = &cost};
    rc = tu_schedule_chunks(&q.v, row, &q, &err);
    if (!rc)
        rc = pipe_cost_get(&cost, &(struct pipe_shape){q.p, q.v, 1, 1}, &err);
    if (rc)
        return tu_error(ctx, &err);
    rc = pipe_cap(&cost, q.v, &q.cap, &err);
    if (!rc)
        rc = tu_schedule_make(&s, row, &q, &err);
    if (!rc)
        advise(ctx, row, &q);
    if (!rc && s->pipelines > 1) { /* stages of both have times */
        tu_cost_release(&cost);
        rc = pipe_cost_get(&cost, &(struct pipe_shape){q.p, q.v, 1, s->pipelines}, &err);
    }
    if (!rc)
        rc = pipe_times_fit(&cost, s, &err);
    if (!rc)
        rc = pipe_write(ctx, s, &cost, to, &err);
    tu_sched_free(s);
    tu_cost_release(&cost);
    return rc ? tu_error(ctx, &err) : ctx->status;
}

static const char *const usage[] = {"-s schedule -p ranks -m microbatches [option ...]",
                                    NULL};

const struct tu_cmd pipe_gen = {
    .name = "gen",
    .example = "pipe-sched gen -s 1f1b -p 4 -m 8 --cost B=2",
    .summary = "write a schedule by name",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_DOCUMENT,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .run = run,
};
