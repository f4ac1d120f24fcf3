/* SPDX-License-Identifier: Apache-2.0 */
/* scored.c: see scored.h. */
#include "scored.h"
#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const struct tui_scored *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_score(const void *a, const void *b)
{
    const struct tui_scored *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : by_place(a, b);
}

void tui_scored_sort(struct tui_scored *v, size_t n)
{
    qsort(v, n, sizeof *v, by_score);
}

void tui_scored_keep(struct tui_scored *v, size_t n, size_t keep)
{
    tui_scored_sort(v, n);
    qsort(v, keep, sizeof *v, by_place);
}
