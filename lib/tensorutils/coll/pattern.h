/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.h: training patterns: collectives among gaps of computation.
 *
 * A step is a list of tasks in an order in which they can run. Computations follow each
 * other on a device that is not ours: a clock. Operations follow each other on the wire.
 * A task waits for one earlier task besides, usually of the other kind. What the step
 * takes beyond its computations is exposed communication. Part of coll.h. */
#ifndef TENSORUTILS_COLL_PATTERN_H
#define TENSORUTILS_COLL_PATTERN_H

#include "../coll.h"

TU_BEGIN

struct tu_task {
    double seconds; /* a computation; -1: an operation */
    enum tu_collective coll;
    uint64_t bytes; /* as section 1 of the specification counts them */
    uint32_t after; /* index of an earlier task, or TU_NOBODY */
};
struct tu_tasks {
    struct tu_task *task;
    size_t n, cap;
};
TU_API void tu_tasks_release(struct tu_tasks *t);

struct tu_pattern {
    const char *name, *help, *source;
    const char *const *key;
    int (*build)(struct tu_tasks *out, const struct tu_spec *s, uint32_t ranks,
                 struct tu_err *err);
};
TU_API extern const struct tu_pattern *const tu_patterns[]; /* NULL-ended */
/* NAME[:KEY=VALUE,…]; *out is empty or ends with tu_tasks_release. Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_tasks_make(struct tu_tasks *out, const char *text, uint32_t ranks,
                                 struct tu_err *err);

struct tu_step_cost {
    double seconds, compute, comm; /* the whole; all computations; all operations */
    double exposed;                /* seconds - compute */
    uint64_t operations, bytes;    /* bytes of all operations together */
};
/* One step over clocks; cost is asked how long each operation takes. */
TU_API TU_MUST int tu_tasks_predict(const struct tu_tasks *t,
                                    int (*cost)(void *ctx, const struct tu_task *t,
                                                double *seconds, struct tu_err *err),
                                    void *ctx, struct tu_step_cost *out,
                                    struct tu_err *err);

struct tu_replay_result {
    struct tu_step_cost step;       /* mean of the steps, of this rank */
    uint64_t steps, sent, messages; /* by this rank in one step */
    uint64_t wrong; /* elements, in a first step that is verified and not timed */
};
/* Replay at a rank: algorithm "auto", f32 sums. What is wrong is counted of all ranks.
 * *out is filled at every rank. */
TU_API TU_MUST int tu_tasks_run(struct tu_rank *r, const struct tu_tasks *t,
                                uint64_t steps, uint64_t seed,
                                struct tu_replay_result *out, struct tu_err *err);

/* Steps between synchronisations by the quadratic rule: max(base, floor((alpha/eta)^2)).
 * Source: X. Gu et al., "A Quadratic Synchronization Rule", arXiv 2310.14423. */
TU_API uint64_t tu_qsr_period(double alpha, double eta, uint64_t base);

TU_END

#endif
