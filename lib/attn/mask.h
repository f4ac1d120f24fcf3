/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h: which keys a tile of queries sees, by intervals.
 *
 * Causality, windows, chunks and sink tokens all make a row's visible keys [0, head) and
 * [lo, hi) in key positions, and the three bounds never fall as the position rises: the
 * first and the last row of a tile tell whether it is empty, full or at an edge. The
 * reference (ref.c) asks the definitions instead, key by key. */
#ifndef ATTN_MASK_H
#define ATTN_MASK_H

#include "attn/problem.h"

struct tui_span {
    int64_t head, lo, hi;
};

enum tui_tile { TUI_EMPTY, TUI_EDGE, TUI_FULL };

/* Rows of a tile: head h0 + r / ni, query i0 + r % ni. */
struct tui_block {
    uint64_t b, hkv; /* sequence, KV head */
    uint64_t h0, nh; /* query heads */
    uint64_t i0, ni; /* queries */
};

static inline uint64_t tui_row_head(const struct tui_block *t, uint64_t r)
{
    return t->h0 + r / t->ni;
}

static inline uint64_t tui_row_query(const struct tui_block *t, uint64_t r)
{
    return t->i0 + r % t->ni;
}

struct tui_span tui_span(const struct tu_attn *a, const struct tu_attn_seq *s,
                         int64_t pos);
/* Queries [i0, i0+ni) against keys [j0, j0+nj) of a sequence, heads h0 … h0+nh-1. */
enum tui_tile tui_tile(const struct tu_attn *a, const struct tui_block *t, uint64_t j0,
                       uint64_t nj);
/* True when logits need more than q·k: softcap, bias, slopes. */
bool tui_has_logits(const struct tu_attn *a);
/* Turn q·k of rows [r0, r1) into final logits before the mask. Element of row r and
 * column c is at x[(r - r0) * rs + c * cs]. chain (may be NULL) receives the derivative
 * of the cap, same places. */
void tui_logits(const struct tu_attn *a, const struct tui_block *t, uint64_t r0,
                uint64_t r1, uint64_t j0, uint64_t nj, float *x, size_t rs, size_t cs,
                float *chain);
/* -inf where a key is invisible. */
void tui_hide(const struct tu_attn *a, const struct tui_block *t, uint64_t r0,
              uint64_t r1, uint64_t j0, uint64_t nj, float *x, size_t rs, size_t cs);
/* Visible keys of one row, counted. */
uint64_t tui_visible(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i);
/* Is P of this element kept? Counters are global indices, so tiles do not matter. */
bool tui_keep(const struct tu_attn *a, uint64_t b, uint64_t h, int64_t i, int64_t j);
/* The keep factors of a row's columns [j0, j0+nj), 0 or 1. */
void tui_keep_row(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i,
                  uint64_t j0, uint64_t nj, unsigned char *keep);

#endif
