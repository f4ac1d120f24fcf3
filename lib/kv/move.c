/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: rows of tokens into an array of any layout, and back.
 *
 * Three shapes of the innermost copy serve all layouts: runs of columns (or of whole
 * tokens where those lie together), pieces of x columns, and tiles that are turned where
 * tokens are innermost. */
#include <string.h>
#include <tensorutils/kv.h>
#include "turn.h"

struct move {
    const struct tu_kv_place *p;
    unsigned char *pool, *rows; /* of one page's first token and the row that goes there */
    uint64_t n;                 /* tokens */
    bool put;
};

static inline void copy(const struct move *m, unsigned char *pool, unsigned char *rows,
                        size_t n)
{
    memcpy(m->put ? pool : rows, m->put ? rows : pool, n);
}

/* Heads of a token lie apart. What is written is written in its order. */
static inline void heads_of(const struct move *m, size_t head)
{
    const struct tu_kv_place *p = m->p;
    size_t e = p->of.elem, row = (size_t)p->of.heads * head;
    size_t next = (size_t)p->head * e, step = (size_t)p->token * e;
    if (m->put)
        for (uint64_t h = 0; h < p->of.heads; h++)
            for (uint64_t t = 0; t < m->n; t++)
                memcpy(m->pool + h * next + t * step, m->rows + t * row + h * head, head);
    else
        for (uint64_t t = 0; t < m->n; t++)
            for (uint64_t h = 0; h < p->of.heads; h++)
                memcpy(m->rows + t * row + h * head, m->pool + h * next + t * step, head);
}

/* Columns of a head lie together. The usual sizes are known to the compiler, so that a
 * copy is no call. */
static void runs(const struct move *m)
{
    const struct tu_kv_place *p = m->p;
    size_t e = p->of.elem, head = (size_t)p->of.dim * e, row = (size_t)p->of.heads * head;
    if (p->head == p->of.dim || p->of.heads == 1) { /* and heads of a token */
        if (p->token * e == row)
            copy(m, m->pool, m->rows, m->n * row);
        else
            for (uint64_t t = 0; t < m->n; t++)
                copy(m, m->pool + t * p->token * e, m->rows + t * row, row);
        return;
    }
    if (head == 256)
        heads_of(m, 256);
    else if (head == 128)
        heads_of(m, 128);
    else
        heads_of(m, head);
}

/* Pieces of x columns of consecutive tokens lie together: 16 bytes each. What is written
 * is written in its order. */
static inline void pieces_of(const struct move *m, size_t piece)
{
    const struct tu_kv_place *p = m->p;
    size_t e = p->of.elem, head = (size_t)p->of.dim * e, row = (size_t)p->of.heads * head;
    size_t step = (size_t)p->token * e, col = (size_t)p->col * e;
    uint64_t cols = p->of.dim / p->x;
    for (uint64_t h = 0; h < p->of.heads; h++) {
        unsigned char *a = m->pool + h * p->head * e, *b = m->rows + h * head;
        if (m->put)
            for (uint64_t d = 0; d < cols; d++)
                for (uint64_t t = 0; t < m->n; t++)
                    memcpy(a + d * col + t * step, b + t * row + d * piece, piece);
        else
            for (uint64_t t = 0; t < m->n; t++)
                for (uint64_t d = 0; d < cols; d++)
                    memcpy(b + t * row + d * piece, a + d * col + t * step, piece);
    }
}

static void pieces(const struct move *m)
{
    if (m->p->x * m->p->of.elem == 16)
        pieces_of(m, 16);
    else
        pieces_of(m, (size_t)m->p->x * m->p->of.elem);
}

static inline void each(const unsigned char *from, size_t from_row, unsigned char *to,
                        size_t to_row, uint64_t rows, uint64_t cols, size_t e)
{
    for (uint64_t c = 0; c < cols; c++)
        for (uint64_t r = 0; r < rows; r++)
            memcpy(to + c * to_row + r * e, from + r * from_row + c * e, e);
}

static void turn(const unsigned char *from, size_t from_row, unsigned char *to,
                 size_t to_row, uint64_t rows, uint64_t cols, size_t e)
{
    if (e == 2)
        ((tui_turn_fn *)tu_kernel_pick(tui_turn_kernels, tu_cpu_bits())->fn)(
            from, from_row, to, to_row, rows, cols);
    else if (e == 4)
        each(from, from_row, to, to_row, rows, cols, 4);
    else if (e == 1)
        each(from, from_row, to, to_row, rows, cols, 1);
    else
        each(from, from_row, to, to_row, rows, cols, e);
}

/* Rows of one head of all tokens are pieces far apart, which no machine foresees: ask for
 * those of the next head, or of the next page. */
static inline void ask(const struct move *m, uint64_t head, size_t bytes, size_t row)
{
    for (uint64_t t = 0; t < m->n; t++)
        for (size_t k = 0; k < bytes; k += 64)
            __builtin_prefetch(m->rows + t * row + head * bytes + k, 1);
}

/* Tokens are innermost: columns of a head are rows of the array. */
static void turned(const struct move *m)
{
    const struct tu_kv_place *p = m->p;
    size_t e = p->of.elem, head = (size_t)p->of.dim * e, row = (size_t)p->of.heads * head;
    for (uint64_t h = 0; h < p->of.heads; h++) {
        unsigned char *a = m->pool + h * p->head * e, *b = m->rows + h * head;
        if (h + 1 < p->of.heads)
            ask(m, h + 1, head, row);
        if (m->put)
            turn(b, row, a, (size_t)p->col * e, m->n, p->of.dim, e);
        else
            turn(a, (size_t)p->col * e, b, row, p->of.dim, m->n, e);
    }
}

static void each_page(const struct tu_kv_place *p, unsigned char *pool,
                      const int32_t *table, uint64_t first, uint64_t n,
                      unsigned char *rows, bool put)
{
    size_t e = p->of.elem;
    for (uint64_t done = 0; done < n;) {
        uint64_t at = first + done, in = at % p->of.block, page = at / p->of.block;
        struct move m = {.p = p, .put = put};
        m.n = tu_min(n - done, p->of.block - in);
        page = table ? (uint64_t)table[page] : page;
        m.pool = pool + (page * p->page + in * p->token) * e;
        m.rows = rows + done * p->of.heads * p->of.dim * e;
        if (p->x > 1)
            pieces(&m);
        else if (p->col == 1)
            runs(&m);
        else
            turned(&m);
        done += m.n;
    }
}

void tu_kv_put(const struct tu_kv_place *p, void *pool, uint64_t layer, uint64_t side,
               const int32_t *table, uint64_t first, uint64_t n, const void *rows)
{
    unsigned char *at = (unsigned char *)pool +
                        (layer * p->layer + side * p->side) * p->of.elem;
    each_page(p, at, table, first, n, (unsigned char *)(uintptr_t)rows, true);
}

void tu_kv_get(const struct tu_kv_place *p, const void *pool, uint64_t layer,
               uint64_t side, const int32_t *table, uint64_t first, uint64_t n,
               void *rows)
{
    const unsigned char *at = (const unsigned char *)pool +
                              (layer * p->layer + side * p->side) * p->of.elem;
    each_page(p, (unsigned char *)(uintptr_t)at, table, first, n, rows, false);
}
