/* SPDX-License-Identifier: Apache-2.0 */
/* beam.h: states of the beam search, and the lower bounds of them. */
#ifndef TUI_SCHED_BEAM_H
#define TUI_SCHED_BEAM_H

#include "sched/problem.h"

/* A state as it is stored: a header and its times. */
struct tui_state {
    int64_t *clock;         /* [p] */
    int64_t *f_end, *i_end; /* [stages][m] */
    uint16_t *n;            /* [stages][3]: F, I, W done */
    uint8_t *wait; /* [stages]: this forward is not the next thing its rank does */
};

/* The problem, which stages a rank has, and room for a bound. */
struct tui_beam_problem {
    const struct tui_problem *x;
    size_t stride;      /* int64 words of a state */
    uint32_t (*of)[64]; /* [p]: stages of a rank, the lowest first */
    uint32_t *of_n;
    int64_t *est;   /* scratch: [2][stages][m] */
    int64_t *chain; /* scratch: [2][p] */
};
TU_MUST int tui_beam_open(struct tui_beam_problem *g, const struct tui_problem *x,
                          struct tu_err *err);
void tui_beam_close(struct tui_beam_problem *g);

/* The state stored at `at`. */
struct tui_state tui_state_view(const struct tui_beam_problem *g, int64_t *at);
/* No order that begins so is shorter: each rank alone, and the last gradient's way back
 * through all. spread: sum of the ranks' bounds. */
int64_t tui_state_bound(const struct tui_beam_problem *g, const struct tui_state *s,
                        int64_t *spread);

#endif
