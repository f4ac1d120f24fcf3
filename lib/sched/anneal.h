/* SPDX-License-Identifier: Apache-2.0 */
/* anneal.h: local search over whole orders. */
#ifndef TUI_SCHED_ANNEAL_H
#define TUI_SCHED_ANNEAL_H

#include "sched/problem.h"

/* Improve o, whose value must be finite, by at most `tries` moves; stops at `target` (a
 * lower bound). The same seed gives the same order. */
TU_MUST int tui_anneal(const struct tui_problem *x, struct tui_order *o, uint64_t tries,
                       int64_t target, uint64_t seed, struct tu_err *err);

#endif
