/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c: pipe-sched sim and verify: what a schedule takes, and whether it can run at all.
 */
#include <inttypes.h>
#include "pipe-sched/pipe.h"

static const struct tu_opt options[] = {PIPE_INPUT_OPTIONS, {0}};

static int run_sim(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_cost c;
    struct tu_sched *s;
    struct tu_sim sim = {0};
    int status = TU_STATUS_YES, rc = pipe_load(ctx, argc, argv, &s, &c, &err);
    if (rc)
        return tu_error(ctx, &err);
    int64_t bound = 0;
    rc = pipe_simulate(ctx, s, &c, &sim, &status, &err);
    if (!rc && status == TU_STATUS_YES)
        rc = tu_sim_bound(&bound, &sim, s, &c, &err);
    if (!rc && status == TU_STATUS_YES) {
        struct tu_jw *w = tu_result_begin(ctx);
        if (w) {
            pipe_json_sim(w, s, &c, &sim, bound);
            tu_result_end(ctx);
        }
        pipe_print_sim(ctx, s, &c, &sim, bound);
    }
    tu_sim_release(&sim);
    tu_sched_free(s);
    tu_cost_release(&c);
    return rc ? tu_error(ctx, &err) : status;
}

/* Only whether it is valid: every fault is named on standard output. */
static int run_verify(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_cost c;
    struct tu_sched *s;
    struct tu_sim sim = {0};
    struct tu_buf report = {0};
    size_t faults = 0;
    int rc = pipe_load(ctx, argc, argv, &s, &c, &err);
    if (rc)
        return tu_error(ctx, &err);
    rc = tu_sim_run(&sim, s, &c, &report, &faults, &err);
    if (!rc) {
        struct tu_jw *w = tu_result_begin(ctx);
        if (w) {
            tu_jw_bool(w, "valid", !faults);
            tu_jw_u64(w, "faults", faults);
            tu_jw_u64(w, "operations", tu_sched_ops(s));
            tu_jw_str(w, "report", report.data ? report.data : "");
            tu_result_end(ctx);
        }
        if (faults)
            tu_print(ctx, "%s", report.data ? report.data : "");
        else
            tu_print(
                ctx,
                "valid: %u ranks, %u stages (%s), %u micro-batches, %zu operations\n",
                s->ranks, s->stages * s->pipelines, tu_sched_placement(s),
                s->microbatches, sim.ops);
    }
    tu_buf_release(&report);
    tu_sim_release(&sim);
    tu_sched_free(s);
    tu_cost_release(&c);
    return rc ? tu_error(ctx, &err) : faults ? TU_STATUS_NO : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...] [file]", NULL};

const struct tu_cmd pipe_sim = {
    .name = "sim",
    .example = "pipe-sched gen -s zb-h1 -p 4 -m 8 | pipe-sched sim",
    .summary = "simulate a schedule: makespan, span, bubble, memory",
    .usage = usage,
    .opts = options,
    .shared = pipe_cost_options,
    .flags = TU_CMD_STDIN,
    .max = 1,
    .run = run_sim,
};

const struct tu_cmd pipe_verify = {
    .name = "verify",
    .example = "pipe-sched gen -s zb-h1 -p 4 -m 8 | pipe-sched verify",
    .summary = "is a schedule complete, consistent and free of deadlock",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN,
    .max = 1,
    .run = run_verify,
};
