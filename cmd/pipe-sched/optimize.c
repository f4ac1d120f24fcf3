/* SPDX-License-Identifier: Apache-2.0 */
/* optimize.c: pipe-sched optimize: the best schedule for the user's times, with a
 * certificate. */
#include <inttypes.h>
#include <string.h>
#include "pipe-sched/pipe.h"

static struct {
    uint64_t p, m, chunks, effort;
    const char *time_cap, *to, *read_sol;
    int place;
    bool lp;
} opt = {.effort = 200000, .to = "json"};

static const char *const places[] = {"linear", "v", "loop", NULL};

static const struct tu_opt options[] = {
    {'p', "ranks", "N", "pipeline ranks", TU_OPT_U64, &opt.p, NULL, 0},
    {'m', "microbatches", "N", "micro-batches of a step", TU_OPT_U64, &opt.m, NULL, 0},
    {0, "place", NULL,
     "where stages live: one on a rank, two in a V, or --chunks in a loop", TU_OPT_CHOICE,
     &opt.place, places, 0},
    {'c', "chunks", "N", "stages of a rank, with --place=loop", TU_OPT_U64, &opt.chunks,
     NULL, 0},
    {0, "time-cap", "TIME", "find the least memory that keeps to this time",
     TU_OPT_STRING, &opt.time_cap, NULL, 0},
    {0, "effort", "N", "states to look at; default 200000", TU_OPT_U64, &opt.effort, NULL,
     0},
    {0, "emit-lp", NULL, "write the integer program in LP format instead", TU_OPT_FLAG,
     &opt.lp, NULL, 0},
    {0, "read-sol", "FILE", "take the order from a solver's solution of that program",
     TU_OPT_FILE_IN, &opt.read_sol, NULL, 0},
    {0, "to", "FORM", "what is written; default json; --list=forms", TU_OPT_STRING,
     &opt.to, NULL, 0},
    PIPE_CAP_OPTION,
    {0},
};

/* What was found and how sure it is, to standard error, for the schedule has the output.
 */
static void certificate(struct tu_ctx *ctx, const struct tu_optimized *r,
                        const struct tu_cost *c, uint32_t chunks)
{
    char value[40], bound[40], cap[40];
    bool memory = opt.time_cap;
    struct tu_jw *w = tu_result_begin(ctx);
    tu_ticks_text(r->value, c->scale, value);
    tu_ticks_text(r->bound, memory ? tu_cost_unit(c, chunks) : c->scale, bound);
    tu_ticks_text(r->cap, tu_cost_unit(c, chunks), cap);
    double gap =
        r->value && !memory ? (double)(r->value - r->bound) / (double)r->value : 0;
    if (w) {
        tu_jw_raw(w, "value", value);
        tu_jw_str(w, "objective", c->barrier ? "makespan" : "span");
        tu_jw_raw(w, "bound", bound);
        tu_jw_bool(w, "optimal", r->optimal);
        tu_jw_real(w, "gap", r->optimal ? 0 : gap);
        tu_jw_raw(w, "memory_cap", cap);
        tu_jw_u64(w, "states", r->states);
        tu_jw_str(w, "method", r->method);
        tu_result_end(ctx);
    }
    if (memory)
        tu_note(ctx, 0, "least memory %s M_B for %s %s: %s", cap,
                c->barrier ? "makespan" : "span", value,
                r->optimal ? "proven" : "not proven to be the least");
    else
        tu_note(ctx, 0, "%s %s by %s: lower bound %s, %s",
                c->barrier ? "makespan" : "span", value, r->method, bound,
                r->optimal ? "optimal" : "gap");
}

static int emit(struct tu_ctx *ctx, const struct tu_optimize *how, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = tu_optimize_lp(&text, how, err);
    if (!rc)
        rc = pipe_bytes(ctx, &text, err);
    tu_buf_release(&text);
    return rc;
}

static int solve(struct tu_ctx *ctx, const struct tu_optimize *how,
                 const struct tu_cost *c, uint32_t chunks, struct tu_err *err)
{
    struct tu_optimized r = {0};
    struct tu_buf text = {0};
    int rc = opt.read_sol ? pipe_slurp(opt.read_sol, &text, err) : 0;
    if (!rc && opt.read_sol)
        rc = tu_optimize_solution(&r, how, text.data ? text.data : "", text.n, err);
    else if (!rc)
        rc = tu_sched_optimize(&r, how, err);
    if (!rc) {
        certificate(ctx, &r, c, chunks);
        rc = pipe_write(ctx, r.sched, c, opt.to, err);
    }
    tu_sched_free(r.sched);
    tu_buf_release(&text);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_cost c;
    (void)argc;
    (void)argv;
    if (!opt.p || !opt.m || opt.p > TU_SCHED_MAX || opt.m > TU_SCHED_MAX)
        return tu_usage(ctx, "optimize: -p and -m are needed, each in 1 … %u",
                        TU_SCHED_MAX);
    if (opt.chunks && opt.place != 2)
        return tu_usage(ctx, "optimize: --chunks is for --place=loop");
    if (opt.time_cap && pipe_cost.cap)
        return tu_usage(ctx, "optimize: --time-cap finds the least memory: no --memory-cap");
    if (opt.lp && opt.read_sol)
        return tu_usage(ctx, "optimize: --emit-lp or --read-sol");
    uint64_t v = opt.place == 0 ? 1 : opt.place == 1 ? 2 : opt.chunks ? opt.chunks : 2;
    if (v > 64 || opt.p * v * opt.m * 3 > 1000000)
        return tu_usage(ctx,
                        "optimize: %" PRIu64 " operations are over the limit of 1000000",
                        opt.p * v * opt.m * 3);
    struct tu_sched_params q = {
        .p = (uint32_t)opt.p, .m = (uint32_t)opt.m, .v = (uint32_t)v, .cost = &c};
    struct tu_optimize how = {
        .q = &q, .snake = opt.place == 1, .effort = opt.effort, .seed = ctx->seed};
    int rc = pipe_cost_get(&c, q.v, &err);
    if (rc)
        return tu_error(ctx, &err);
    rc = pipe_cap(&c, q.v, &q.cap, &err);
    if (!rc && opt.time_cap) {
        int64_t value, scale;
        rc = tu_decimal(opt.time_cap, &value, &scale, &err);
        how.time_cap = rc ? 0 : value * c.scale / scale;
        if (rc)
            tu_err_prefix(&err, "--time-cap");
    }
    if (!rc)
        rc = opt.lp ? emit(ctx, &how, &err) : solve(ctx, &how, &c, q.v, &err);
    tu_cost_release(&c);
    return rc ? tu_error(ctx, &err) : ctx->status;
}

static const char *const usage[] = {"-p ranks -m microbatches [option ...]", NULL};

const struct tu_cmd pipe_optimize = {
    .name = "optimize",
    .summary = "find a schedule for the times given, with a proof or a gap",
    .usage = usage,
    .opts = options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = TU_CMD_NO_FORCE | TU_CMD_NO_THREADS | TU_CMD_NO_PROGRESS | TU_CMD_NO_DEVICE,
    .run = run,
};
