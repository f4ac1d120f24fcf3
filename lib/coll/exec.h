/* SPDX-License-Identifier: Apache-2.0 */
/* exec.h: a plan that runs at a rank, as the executor and the shared-memory algorithms
 * see it. */
#ifndef TENSORUTILS_COLL_EXEC_H
#define TENSORUTILS_COLL_EXEC_H

#include "plan.h"
#include "world.h"

struct tu_exec {
    struct tu_rank *rank;
    struct tu_plan plan;
    uint32_t dtype;
    size_t size;         /* bytes of an element */
    enum tu_op op, fold; /* as asked; as the kernels do it (avg and mulsum fold as sum) */
    enum tu_order order;
    double premul;
    bool native; /* the transport does the whole of it */
    tu_reduce_fn fn;                             /* NULL where nothing is reduced */
    unsigned char *work, *scaled, *pack, *stage; /* stage, pack: one message each */
    const void **src;                            /* [ranks], for folds of all inputs */
};

int tui_fused_run(struct tu_exec *x, const void *in, void *out, struct tu_err *err);

#endif
