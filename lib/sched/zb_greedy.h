/* SPDX-License-Identifier: Apache-2.0 */
/* zb_greedy.h: the published heuristic for one stage per rank with split backward. */
#ifndef TUI_SCHED_ZB_GREEDY_H
#define TUI_SCHED_ZB_GREEDY_H

#include "sched/build.h"

/* A pipeline of one stage per rank: durations, memory changes (F up, I and W down). */
struct tui_line {
    uint32_t p, m;
    int64_t *f, *i, *w; /* [p] */
    int64_t c_fwd, c_bwd;
    int64_t mem_f, mem_i, mem_w; /* mem_f = mem_i + mem_w */
    int64_t cap;                 /* of each rank; 0: none */
};

/* TU_EUSAGE when a rank cannot hold one activation. */
TU_MUST int tui_line_of(struct tui_line *l, const struct tu_sched_params *q,
                        struct tu_err *err);
void tui_line_release(struct tui_line *l);

/* Best of the eight variants: kind[p][3m], the order of each rank; *span INT64_MAX where none
 * keeps to the cap. */
TU_MUST int tui_zb_greedy(const struct tui_line *l, uint8_t *kind, int64_t *span,
                          struct tu_err *err);
/* Under a cap below 1F1B's memory, and where stages are uneven: replace what is longer
 * than orders that start whatever can start first. Some order is found under every cap of
 * tui_line_of. */
TU_MUST int tui_zb_lists(const struct tui_line *l, uint8_t *kind, int64_t *span,
                         struct tu_err *err);

#endif
