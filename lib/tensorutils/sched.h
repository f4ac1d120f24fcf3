/* SPDX-License-Identifier: Apache-2.0 */
/* sched.h: pipeline schedules: made, simulated, verified, improved, drawn.
 *
 * A schedule is, for each rank, a sequence of operations (forward, backward, input gradient, weight
 * gradient, transfers, …) on (stage, micro-batch) in the order in which the rank runs them. Times are
 * int64 in one unit chosen by the caller; the simulator is exact. May change before 1.0. */
#ifndef TENSORUTILS_SCHED_H
#define TENSORUTILS_SCHED_H

#include "core.h"
#include "draw.h"

TU_BEGIN

/* X(NAME, "letters in files", "what it is") */
#define TU_OP_TABLE(X)                                                                      \
    X(F, "F", "forward") X(B, "B", "full backward") X(I, "I", "input gradient")             \
    X(W, "W", "weight gradient") X(SEND_F, "SEND_F", "send activation")                     \
    X(RECV_F, "RECV_F", "receive activation") X(SEND_B, "SEND_B", "send gradient")          \
    X(RECV_B, "RECV_B", "receive gradient") X(UNSHARD, "UNSHARD", "gather parameters")      \
    X(RESHARD, "RESHARD", "free gathered parameters")                                       \
    X(REDUCE, "REDUCE_GRAD", "reduce gradients") X(R, "R", "recompute forward")             \
    X(OFFLOAD, "OFF", "activation to host") X(FETCH, "FET", "activation from host")         \
    X(OPT, "OPT", "optimizer step")
enum tu_op_kind {
#define TU_OP_CODE(NAME, text, help) TU_OP_##NAME,
    TU_OP_TABLE(TU_OP_CODE)
#undef TU_OP_CODE
    TU_OP_KINDS
};

struct tu_op {
    uint8_t kind;   /* enum tu_op_kind */
    uint8_t flags;
    uint16_t slice; /* sequence slice (Seq-1F1B), else 0 */
    uint32_t stage; /* of the model, 0 … stages-1 */
    uint32_t mb;    /* micro-batch */
};
#define TU_OP_PAIRED 1 /* runs overlapped with the next operation of its rank (DualPipe) */
#define TU_OP_REVERSE 2 /* of the pipeline that runs the other way (Chimera, DualPipe) */

struct tu_sched {
    uint32_t ranks, stages, microbatches, slices;
    uint32_t *place;      /* [pipelines][stages]: rank of each stage */
    uint32_t pipelines;   /* 1, or 2 for bidirectional schedules */
    struct tu_op **op;    /* [ranks] */
    size_t *n;            /* [ranks] */
    struct tu_arena *arena;
};

struct tu_cost;     /* times, memory and links: lib/sched */
struct tu_sim;      /* result of a simulation: lib/sched */

struct tu_sched_params {
    uint32_t p, m, v;          /* ranks, micro-batches, chunks per rank */
    const struct tu_spec *spec;/* the schedule's own keys */
    const struct tu_cost *cost;
    double memory_cap;         /* in activations of one stage; 0: none */
};

/* A row: a schedule is this and one file of its family. */
struct tu_schedule {
    const char *name, *help;
    const char *source;        /* paper, year */
    const char *const *key;    /* keys of its spec, NULL-ended */
    /* Are these parameters legal? TU_EUSAGE with the legal values otherwise. */
    int (*legal)(const struct tu_sched_params *q, struct tu_err *err);
    int (*make)(struct tu_sched **out, const struct tu_sched_params *q, struct tu_err *err);
};
TU_API extern const struct tu_schedule *const tu_schedules[];
TU_API const struct tu_schedule *tu_schedule_find(const char *name);

TU_API void tu_sched_free(struct tu_sched *s);

TU_END

#endif
