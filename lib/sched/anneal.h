/* SPDX-License-Identifier: Apache-2.0 */
/* anneal.h: local search over whole orders. */
#ifndef TUI_SCHED_ANNEAL_H
#define TUI_SCHED_ANNEAL_H

#include "sched/problem.h"

struct tui_moves {
    uint64_t tries; /* moves, at most */
    int64_t target; /* a lower bound: stop there */
    uint64_t seed;
    const struct tui_pace *pace; /* NULL: nobody wants to know */
};
/* Improve o, whose value must be finite. The same seed gives the same order. */
TU_MUST int tui_anneal(const struct tui_problem *x, struct tui_order *o,
                       const struct tui_moves *how, struct tu_err *err);

#endif
