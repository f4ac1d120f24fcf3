/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h: the subcommands of allreduce-bench and what they share. */
#ifndef ALLREDUCE_BENCH_H
#define ALLREDUCE_BENCH_H

#include <tensorutils/coll.h>
#include "common/main.h"

extern const struct tu_cmd bench_run, bench_reduce, bench_sim, bench_diagnose,
    bench_compare, bench_squeeze, bench_pairs;
/* Names of the collectives, TU_NOBODY-ended choices as text. */
int bench_collective(const char *name, enum tu_collective *out, struct tu_err *err);
/* Index of `name` in a NULL-ended list of names, -1 if it is none of them. */
int bench_index(const char *const *names, const char *name);

/* Fill g->rank and g->size; rank UINT64_MAX: as mpirun or srun says. */
int bench_launched(struct tu_group *g, uint64_t rank, uint64_t size, struct tu_err *err);

/* pattern.c: a training step, replayed in a rank (rank 0 posts the result) and shown. */
int bench_pattern_rank(struct tu_rank *r, const struct tu_tasks *t, uint64_t steps,
                       uint64_t seed, struct tu_err *err);
void bench_pattern_head(struct tu_ctx *ctx);
void bench_pattern_row(struct tu_ctx *ctx, const char *name, uint32_t ranks,
                       const struct tu_replay_result *r);

/* What was measured, and how. */
struct bench_facts {
    const char *transport, *op, *clock, *reduce_order;
    uint64_t iters, warmup, check, min, max, factor, step;
    bool each, cold, private_buffers, out_only;
    uint32_t ranks, root;
};
/* sizes.c: min to max bytes by factor, or by step where there is one; *out, [*n], belongs
 * to the caller, after an error too. */
int bench_sizes(const struct bench_facts *f, uint64_t **out, size_t *n,
                struct tu_err *err);
/* format.c: a measured row in the form that --format asks for. */
void bench_head(struct tu_ctx *ctx, const struct bench_facts *f);
void bench_row(struct tu_ctx *ctx, const struct bench_facts *f,
               const struct tu_bench_row *row, bool first);
/* failure: why there are no more rows, or NULL. */
void bench_foot(struct tu_ctx *ctx, const struct bench_facts *f, double busbw_mean,
                uint64_t wrong, double floor, const char *failure);
/* A number as nccl-tests fits it into a column: decimals while they fit. out[32]. */
const char *bench_fit(double v, int width, char out[32]);
const char *bench_nccl_type(uint32_t dtype);

/* nccl_json.c: the pieces of one object. */
void bench_nccl_head(struct tu_ctx *ctx, const struct bench_facts *f);
void bench_nccl_row(struct tu_ctx *ctx, const struct bench_facts *f,
                    const struct tu_bench_row *r, bool first);
void bench_nccl_foot(struct tu_ctx *ctx, double busbw_mean, uint64_t wrong, double floor,
                     const char *failure);

#endif
