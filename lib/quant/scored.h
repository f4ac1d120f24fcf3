/* SPDX-License-Identifier: Apache-2.0 */
/* scored.h: places in the order of their scores: what column orders and the choice of
 * groups and blocks share. */
#ifndef TENSORUTILS_QUANT_SCORED_H
#define TENSORUTILS_QUANT_SCORED_H

#include <stddef.h>
#include <stdint.h>

struct tui_scored {
    double score; /* no NaN */
    uint64_t at;
};

/* The largest score first, of equal ones the first place. */
void tui_scored_sort(struct tui_scored *v, size_t n);
/* The same, then the first `keep` of them in the order of their places. */
void tui_scored_keep(struct tui_scored *v, size_t n, size_t keep);

#endif
