/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h: exact decimals into a cost, for its two readers: keys (cost.c) and lines
 * (cost_times.c). */
#ifndef TUI_SCHED_COST_H
#define TUI_SCHED_COST_H

#include "tensorutils/sched.h"

/* Longest duration: a million of them still add up. */
#define TUI_TICKS_MAX ((int64_t)1 << 52)

int64_t tui_gcd(int64_t a, int64_t b);
/* A duration before the micro-batch's weight. */
int64_t tui_cost_plain(const struct tu_cost *c, unsigned kind, uint32_t stage);
/* TU_ESIZE when the times, or the memory, of so many operations may not be added up. */
TU_MUST int tui_cost_limit(const struct tu_cost *c, uint64_t ops, struct tu_err *err);
/* Multiply every time by k. Errors: TU_EUSAGE when one becomes too long. */
TU_MUST int tui_cost_rescale(struct tu_cost *c, int64_t k, struct tu_err *err);
/* *where = text / divide in ticks, after raising the scale so that it is whole. */
TU_MUST int tui_cost_set(struct tu_cost *c, int64_t *where, const char *text,
                         int64_t divide, struct tu_err *err);

#endif
