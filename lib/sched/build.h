/* SPDX-License-Identifier: Apache-2.0 */
/* build.h: how schedules are put together; for the families and the readers of this room.
 *
 * A builder remembers its first failure, so a family reads as a list of operations. */
#ifndef TUI_SCHED_BUILD_H
#define TUI_SCHED_BUILD_H

#include "tensorutils/sched.h"

struct tui_build {
    struct tu_sched *s;
    struct tu_err *err;
    int code;
};

/* An empty schedule; place is zero until a tui_place_… call. */
void tui_build_begin(struct tui_build *b, uint32_t ranks, uint32_t stages,
                     uint32_t pipelines, uint32_t mbs, struct tu_err *err);
/* Stage s on rank s mod p: linear when there are p stages, else a loop. */
void tui_place_loop(struct tui_build *b);
/* Snake: down the ranks and back again; a V when there are 2p stages. The second pipeline
 * of a bidirectional schedule runs the other way. */
void tui_place_snake(struct tui_build *b);
void tui_add(struct tui_build *b, uint32_t rank, enum tu_op_kind kind, uint32_t stage,
             uint32_t mb);
void tui_add_slice(struct tui_build *b, uint32_t rank, enum tu_op_kind kind,
                   uint32_t stage, uint32_t mb, uint32_t slice);
void tui_add_pair(struct tui_build *b, uint32_t rank, uint32_t f_stage, uint32_t f_mb,
                  uint32_t b_stage, uint32_t b_mb);
/* Append a whole operation. */
void tui_add_op(struct tui_build *b, uint32_t rank, const struct tu_op *op);
/* Hand the schedule over, or free it and return the failure. */
int tui_build_end(struct tui_build *b, struct tu_sched **out);

/* Value of a row's key, its fallback when the spec lacks it; failure sticks in *code. */
uint64_t tui_key(const struct tu_sched_params *q, const char *key, uint64_t fallback,
                 int *code, struct tu_err *err);
/* Value as a text, fallback when absent. */
const char *tui_key_text(const struct tu_sched_params *q, const char *key,
                         const char *fallback);

/* Pipeline of a stage, and the stage within it; there are at most two. */
static inline uint32_t tui_pipe(const struct tu_sched *s, uint32_t stage)
{
    return stage >= s->stages;
}
static inline uint32_t tui_within(const struct tu_sched *s, uint32_t stage)
{
    return stage < s->stages ? stage : stage - s->stages;
}

/* Ranks of a schedule in which all wait for all. */
#define TUI_RANKS_ALL 15u

/* Must the forward of this stage (of one pipeline) and micro-batch occur? */
bool tui_due(const struct tu_sched *s, uint32_t stage, uint32_t mb);

/* Take a schedule of F and I only and put each W into the first wait of its rank that is
 * long enough, or at the end of its block of `block` micro-batches (0: of the step). */
int tui_fill_w(struct tu_sched **out, const struct tu_sched *base,
               const struct tu_cost *c, uint32_t block, struct tu_err *err);
/* Add UNSHARD, RESHARD and REDUCE_GRAD, keeping `depth` stages gathered ahead; with a block of
 * micro-batches each stage once for each, until the block has done with it. */
int tui_add_fsdp(struct tu_sched **out, const struct tu_sched *base, uint32_t depth,
                 uint32_t block, struct tu_err *err);

#endif
