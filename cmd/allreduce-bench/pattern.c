/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: allreduce-bench run --pattern: a training step replayed, and what of its
 * communication the computation does not hide. */
#include "allreduce-bench/bench.h"

static const struct tu_column columns[] = {
    {"pattern", "PATTERN", TU_COL_TEXT, 24},
    {"ranks", "RANKS", TU_COL_U64, 5},
    {"steps", "STEPS", TU_COL_U64, 6},
    {"time_us", "STEP_US", TU_COL_REAL, 11},
    {"compute_us", "COMPUTE_US", TU_COL_REAL, 11},
    {"comm_us", "COMM_US", TU_COL_REAL, 11},
    {"exposed_us", "EXPOSED_US", TU_COL_REAL, 11},
    {"operations", "OPS", TU_COL_U64, 5},
    {"bytes", NULL, TU_COL_U64, 0},
    {"sent_bytes", "SENT_BYTES", TU_COL_U64, 12},
    {"messages", NULL, TU_COL_U64, 0},
    {"wrong", "WRONG", TU_COL_U64, 5},
    {NULL, NULL, TU_COL_TEXT, 0},
};

int bench_pattern_rank(struct tu_rank *r, const struct tu_tasks *t, uint64_t steps,
                       uint64_t seed, struct tu_err *err)
{
    struct tu_replay_result res;
    unsigned char post[4 + sizeof res];
    int code = tu_tasks_run(r, t, steps, seed, &res, err);
    if (code || tu_rank_id(r))
        return code;
    tu_put32(post, TU_BENCH_ROW);
    memcpy(post + 4, &res, sizeof res);
    return tu_rank_post(r, post, sizeof post, err);
}

void bench_pattern_head(struct tu_ctx *ctx)
{
    tu_rows_begin(ctx, columns);
}

void bench_pattern_row(struct tu_ctx *ctx, const char *name, uint32_t ranks,
                       const struct tu_replay_result *r)
{
    const struct tu_cell cells[] = {
        {.s = name},
        {.u = ranks},
        {.u = r->steps},
        {.f = r->step.seconds * 1e6},
        {.f = r->step.compute * 1e6},
        {.f = r->step.comm * 1e6},
        {.f = r->step.exposed * 1e6},
        {.u = r->step.operations},
        {.u = r->step.bytes},
        {.u = r->sent},
        {.u = r->messages},
        {.u = r->wrong},
    };
    tu_row(ctx, cells);
}
