/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h: what the optimiser is asked: stages on ranks, durations, memory, a cap.
 *
 * Forward, input and weight gradients of a stage each keep the order of micro-batches.
 * The objective is the longest time from a rank's first start to its last end (or, with a
 * barrier, the last end of all), every operation starting as soon as it can. */
#ifndef TUI_SCHED_PROBLEM_H
#define TUI_SCHED_PROBLEM_H

#include "sched/build.h"

struct tui_problem {
    uint32_t p, stages, m;
    uint32_t *place;        /* [stages] */
    int64_t *f, *i, *w;     /* [stages] */
    int64_t *c_fwd, *c_bwd; /* [stages]: transfer into the stage, 0 from the same rank */
    int64_t *begin; /* [p]: when the first operation of a rank starts at the earliest */
    int64_t mem_f, mem_i, mem_w, cap; /* of one chunk; cap 0: none */
    bool barrier;
};

TU_MUST int tui_problem_make(struct tui_problem *x, const uint32_t *place,
                             uint32_t stages, const struct tu_sched_params *q,
                             struct tu_err *err);
void tui_problem_release(struct tui_problem *x);

/* Lower bounds of the objective that need no search. */
int64_t tui_bound_work(const struct tui_problem *x); /* busiest rank */
int64_t tui_bound_path(const struct tui_problem *x); /* one micro-batch there and back,
                                                      * and what must stand around it */

/* An order: for each rank, operations as stage*4 + kind (enum tu_op_kind, F I W). */
struct tui_order {
    uint32_t *op; /* [p][3·m·chunks], concatenated; tu_free */
    size_t *base; /* [p+1]; tu_free */
    int64_t value;
};
void tui_order_release(struct tui_order *o);
/* The order of a schedule of F, I and W (B counts as both); *fits is false when it has
 * anything else or another placement. Release o either way. */
TU_MUST int tui_order_of(const struct tui_problem *x, const struct tu_sched *s,
                         struct tui_order *o, bool *fits, struct tu_err *err);
/* The objective of an order, INT64_MAX if it deadlocks or exceeds the cap. */
TU_MUST int tui_order_value(const struct tui_problem *x, struct tui_order *o,
                            struct tu_err *err);
TU_MUST int tui_order_sched(struct tu_sched **out, const struct tui_problem *x,
                            const struct tui_order *o, struct tu_err *err);

/* Where a search stands among all that are planned, in states and moves. */
struct tui_pace {
    const struct tu_job *job;
    uint64_t done, total;
};

/* Beam search over active schedules with dominance; exact when nothing had to be dropped.
 * Only orders better than `below` are looked for. *bound: no order is better than this
 * (at most `below`). `found` says whether best was filled. */
struct tui_beam {
    uint32_t width;  /* states kept on each level */
    uint64_t budget; /* states looked at, all levels together */
    const struct tui_pace *pace; /* NULL: nobody wants to know */
};
struct tui_beam_result {
    bool found, exact;
    uint64_t states;
};
TU_MUST int tui_beam_search(const struct tui_problem *x, const struct tui_beam *how,
                            int64_t below, struct tui_order *best,
                            struct tui_beam_result *result, struct tu_err *err);

/* The integer program in LP format, and the order in a solver's list of values (CBC,
 * GLPK). The text ends with a NUL. */
TU_MUST int tui_lp_write(struct tu_buf *out, const struct tui_problem *x,
                         struct tu_err *err);
TU_MUST int tui_lp_read(struct tui_order *o, const struct tui_problem *x,
                        const char *text, size_t n, struct tu_err *err);

#endif
