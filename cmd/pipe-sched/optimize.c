/* SPDX-License-Identifier: Apache-2.0 */
/* optimize.c: pipe-sched optimize: the best schedule for the user's times, with a
 * certificate.
 *
 * Each placement is a problem of its own, with the same times of a rank's share. */
#include <inttypes.h>
#include <string.h>
#include "pipe-sched/pipe.h"

#define HINT_OPS 30000 /* largest problem for which other placements are looked at */

enum place { LINEAR, VEE, LOOP, ANY };

static struct {
    uint64_t p, m, chunks, effort;
    const char *time_cap, *to, *read_sol;
    int place;
    bool lp;
} opt = {.chunks = UINT64_MAX, .effort = UINT64_MAX};

static const char *const places[] = {"linear", "v", "loop", "any", NULL};
/* Among which schedules the certificate holds. */
static const char *const among[] = {"with one stage on a rank", "with two stages in a V",
                                    "with stages in a loop"};

static const struct tu_opt options[] = {
    {'p', "ranks", "N", "pipeline ranks", TU_OPT_U64, &opt.p, NULL, 0},
    {'m', "microbatches", "N", "micro-batches of a step", TU_OPT_U64, &opt.m, NULL, 0},
    {0, "place", NULL,
     "where stages live: one on a rank, two in a V, --chunks in a loop, or the best",
     TU_OPT_CHOICE, &opt.place, places, 0},
    {'c', "chunks", "N", "stages of a rank in a loop; default 2", TU_OPT_U64, &opt.chunks,
     NULL, 0},
    {0, "time-cap", "TIME", "find the least memory that keeps to this time",
     TU_OPT_STRING, &opt.time_cap, NULL, 0},
    {0, "effort", "N", "states to look at; default 200000", TU_OPT_U64, &opt.effort, NULL,
     0},
    {0, "emit-lp", NULL, "write the integer program in LP format instead", TU_OPT_FLAG,
     &opt.lp, NULL, 0},
    {0, "read-sol", "FILE", "take the order from a solver's solution of that program",
     TU_OPT_FILE_IN, &opt.read_sol, NULL, 0},
    PIPE_TO_OPTION(&opt.to, "json"),
    PIPE_CAP_OPTION,
    {0},
};

/* A placement's problem and what was found. */
struct attempt {
    enum place place;
    struct tu_cost c;
    struct tu_sched_params q;
    struct tu_optimize how;
    struct tu_optimized found; /* sched NULL: nothing */
};

static uint32_t chunks_of(enum place place)
{
    bool two = place == VEE || opt.chunks == UINT64_MAX;
    return place == LINEAR ? 1 : two ? 2 : (uint32_t)tu_min(opt.chunks, TU_SCHED_MAX);
}

static uint64_t operations(enum place place)
{
    return opt.p * chunks_of(place) * opt.m * 3;
}

static int begin(struct attempt *a, enum place place, struct tu_ctx *ctx,
                 struct tu_err *err)
{
    int64_t value, scale;
    *a = (struct attempt){.place = place};
    a->q = (struct tu_sched_params){.p = (uint32_t)opt.p,
                                    .m = (uint32_t)opt.m,
                                    .v = chunks_of(place),
                                    .cost = &a->c};
    a->how = (struct tu_optimize){.q = &a->q,
                                  .snake = place == VEE,
                                  .effort = opt.effort,
                                  .seed = ctx->seed,
                                  .job = tu_ctx_alone(ctx)};
    int rc = pipe_cost_get(&a->c, &(struct pipe_shape){a->q.p, a->q.v, 1, 1}, err);
    if (rc)
        return rc;
    rc = pipe_times_fit_sizes(&a->c, a->q.p, a->q.p * a->q.v, a->q.m, err);
    if (!rc)
        rc = pipe_cap(&a->c, a->q.v, &a->q.cap, err);
    if (!rc && opt.time_cap) {
        rc = tu_decimal(opt.time_cap, &value, &scale, err);
        if (!rc && __builtin_mul_overflow(value, a->c.scale, &value))
            rc = tu_fail(err, TU_EUSAGE, "'%.40s': too large", opt.time_cap);
        a->how.timed = true;
        a->how.time_cap = rc ? 0 : value / scale;
        if (rc)
            tu_err_prefix(err, "--time-cap");
    }
    return rc;
}

static void end(struct attempt *a)
{
    tu_sched_free(a->found.sched);
    tu_cost_release(&a->c);
    *a = (struct attempt){0};
}

/* What is made small: time, or with a time cap memory; in units that all placements have
 * in common. */
static double goal(const struct attempt *a)
{
    return opt.time_cap ? (double)a->found.cap / (double)tu_cost_unit(&a->c, a->q.v)
                        : (double)a->found.value / (double)a->c.scale;
}

/* What was found and how sure it is, to standard error, for the schedule has the output.
 * The objective's value, bound and gap are of one kind: of time, or of memory. */
static void certificate(struct tu_ctx *ctx, const struct attempt *a)
{
    char time[40], bound[40], cap[40];
    const struct tu_optimized *r = &a->found;
    const char *step = a->c.barrier ? "makespan" : "span";
    bool memory = opt.time_cap;
    int64_t unit = tu_cost_unit(&a->c, a->q.v), value = memory ? r->cap : r->value;
    struct tu_jw *w = tu_result_begin(ctx);
    tu_ticks_text(r->value, a->c.scale, time);
    tu_ticks_text(r->bound, memory ? unit : a->c.scale, bound);
    tu_ticks_text(r->cap, unit, cap);
    double gap = value ? (double)(value - r->bound) / (double)value : 0;
    if (w) {
        tu_jw_str(w, "place", places[a->place]);
        tu_jw_raw(w, "value", memory ? cap : time);
        tu_jw_str(w, "objective", memory ? "memory" : step);
        tu_jw_raw(w, "bound", bound);
        tu_jw_bool(w, "optimal", r->optimal);
        tu_jw_real(w, "gap", r->optimal ? 0 : gap);
        tu_jw_raw(w, step, time);
        tu_jw_raw(w, "memory_cap", cap);
        tu_jw_u64(w, "states", r->states);
        tu_jw_str(w, "method", r->method);
        tu_result_end(ctx);
    }
    if (memory && r->optimal)
        tu_note(ctx, 0, "least memory %s M_B for %s %s, %s: proven", cap, step, time,
                among[a->place]);
    else if (memory)
        tu_note(ctx, 0, "least memory %s M_B for %s %s, %s: lower bound %s, gap", cap, step,
                time, among[a->place], bound);
    else
        tu_note(ctx, 0, "%s %s by %s, %s: lower bound %s, %s", step, time, r->method,
                among[a->place], bound, r->optimal ? "optimal" : "gap");
}

/* Solve for one placement. TU_EUSAGE when nothing fits. */
static int solve(struct attempt *a, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = opt.read_sol ? pipe_slurp(opt.read_sol, &text, err) : 0;
    if (!rc && opt.read_sol)
        rc = tu_optimize_solution(&a->found, &a->how, text.data ? text.data : "", text.n,
                                  err);
    else if (!rc)
        rc = tu_sched_optimize(&a->found, &a->how, err);
    tu_buf_release(&text);
    return rc;
}

/* The best of all placements into *best, which holds one of them or nothing. */
static int others(struct attempt *best, struct tu_ctx *ctx, uint64_t effort,
                  struct tu_err *err)
{
    struct tu_err why;
    int rc = 0;
    for (enum place place = LINEAR; place < ANY && !rc; place++) {
        struct attempt a;
        if (best->found.sched && best->place == place)
            continue;
        rc = begin(&a, place, ctx, &why);
        a.how.effort = effort;
        rc = rc ? rc : solve(&a, &why);
        if (!rc && (!best->found.sched || goal(&a) < goal(best))) {
            struct attempt worse = *best;
            *best = a;
            best->q.cost = &best->c;
            best->how.q = &best->q;
            a = worse;
        }
        end(&a);
        if (rc == TU_EUSAGE) {
            *err = why; /* of the last, where none has a schedule */
            rc = 0;
        }
    }
    if (rc)
        *err = why;
    return rc ? rc : best->found.sched ? 0 : TU_EUSAGE;
}

/* Another placement may do better: say so where the known schedules show it. */
static void hint(struct tu_ctx *ctx, const struct attempt *a)
{
    char value[40];
    struct tu_err err;
    struct attempt best = {0};
    if (opt.read_sol || operations(LOOP) > HINT_OPS || others(&best, ctx, 0, &err)) {
        end(&best);
        return;
    }
    if (goal(&best) < goal(a)) {
        tu_ticks_text(opt.time_cap ? best.found.cap : best.found.value,
                      opt.time_cap ? tu_cost_unit(&best.c, best.q.v) : best.c.scale, value);
        tu_note(ctx, 0, "--place=%s: %s or less; --place=any tries all",
                places[best.place], value);
    }
    end(&best);
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

/* Options that contradict one another, or have no effect here. */
static int refuse(struct tu_ctx *ctx)
{
    int rc = pipe_sizes(ctx, opt.p, opt.m, opt.chunks);
    if (rc)
        return rc;
    if (opt.p > TU_SCHED_MAX || opt.m > TU_SCHED_MAX)
        return tu_usage(ctx, "optimize: -p and -m are at most %u", TU_SCHED_MAX);
    if (opt.chunks != UINT64_MAX && opt.place != LOOP && opt.place != ANY)
        return tu_usage(ctx, "optimize: --chunks is for --place=loop and --place=any");
    if (opt.time_cap && pipe_cost.cap)
        return tu_usage(ctx, "optimize: --time-cap finds the least memory: no --memory-cap");
    if (opt.lp && opt.read_sol)
        return tu_usage(ctx, "optimize: --emit-lp or --read-sol");
    if ((opt.lp || opt.read_sol) && opt.effort != UINT64_MAX)
        return tu_usage(ctx, "optimize: --effort is of the search, which is not done here");
    if ((opt.lp || opt.read_sol) && ctx->seed)
        return tu_usage(ctx, "optimize: --seed is of the search, which is not done here");
    if (opt.effort == UINT64_MAX)
        opt.effort = 200000;
    if ((opt.lp || opt.read_sol) && (opt.place == ANY || opt.time_cap))
        return tu_usage(ctx, "optimize: a program is of one placement and has no --time-cap");
    enum place largest = opt.place == ANY ? LOOP : (enum place)opt.place;
    if (chunks_of(largest) > 64 || operations(largest) > 1000000)
        return tu_usage(ctx,
                        "optimize: %" PRIu64 " operations are over the limit of 1000000",
                        operations(largest));
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct attempt a = {0};
    const char *to;
    (void)argc;
    (void)argv;
    int rc = refuse(ctx);
    if (rc)
        return rc;
    if (pipe_form(&to, ctx, opt.to, "json", &err))
        return tu_error(ctx, &err);
    pipe_cost.share = true;
    if (opt.place == ANY)
        rc = others(&a, ctx, opt.effort, &err);
    else
        rc = begin(&a, (enum place)opt.place, ctx, &err);
    if (!rc && opt.place != ANY && !opt.lp)
        rc = solve(&a, &err);
    if (!rc && opt.lp) {
        rc = emit(ctx, &a.how, &err);
    } else if (!rc) {
        pipe_cost_idle(ctx, (const struct tu_sched *[]){a.found.sched}, 1, true);
        certificate(ctx, &a);
        if (opt.place != ANY)
            hint(ctx, &a);
        rc = pipe_write(ctx, a.found.sched, &a.c, to, &err);
    }
    end(&a);
    return rc ? tu_error(ctx, &err) : ctx->status;
}

static const char *const usage[] = {"-p ranks -m microbatches [option ...]", NULL};

const struct tu_cmd pipe_optimize = {
    .name = "optimize",
    .example = "pipe-sched optimize -p 4 -m 5 --cost F=5,I=5,W=5 --memory-cap 3",
    .summary = "find a schedule for the times given, with a proof or a gap",
    .usage = usage,
    .opts = options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = TU_CMD_COUNTS,
    .run = run,
};
