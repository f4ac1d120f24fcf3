/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: rows of tokens into an array of any layout, and back.
 *
 * Three shapes of the innermost copy serve all layouts: runs of columns (or of whole
 * tokens where those lie together), pieces of x columns, and tiles that are turned where
 * tokens are innermost. */
#include <string.h>
#include <tensorutils/kv.h>

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

/* Columns of a head lie together. */
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
    for (uint64_t h = 0; h < p->of.heads; h++) {
        unsigned char *a = m->pool + h * p->head * e, *b = m->rows + h * head;
        for (uint64_t t = 0; t < m->n; t++)
            copy(m, a + t * p->token * e, b + t * row, head);
    }
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

/* Turn 8 × 8 elements of 16 bits: the vectors are those of the compiler, so that every
 * machine has them. */
typedef uint16_t v8 __attribute__((vector_size(16)));

static inline v8 load8(const unsigned char *p)
{
    v8 v;
    memcpy(&v, p, 16);
    return v;
}

static inline void turn8(const unsigned char *from, size_t from_row, unsigned char *to,
                         size_t to_row)
{
#define LO(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HI(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
/* Rows i and i+4 interleaved, three times. */
#define ROUND(to, from)                                                                  \
    v8 to##0 = LO(from##0, from##4), to##1 = HI(from##0, from##4);                       \
    v8 to##2 = LO(from##1, from##5), to##3 = HI(from##1, from##5);                       \
    v8 to##4 = LO(from##2, from##6), to##5 = HI(from##2, from##6);                       \
    v8 to##6 = LO(from##3, from##7), to##7 = HI(from##3, from##7);
    v8 a0 = load8(from), a1 = load8(from + from_row), a2 = load8(from + 2 * from_row);
    v8 a3 = load8(from + 3 * from_row), a4 = load8(from + 4 * from_row);
    v8 a5 = load8(from + 5 * from_row), a6 = load8(from + 6 * from_row);
    v8 a7 = load8(from + 7 * from_row);
    ROUND(b, a)
    ROUND(c, b)
    ROUND(d, c)
    memcpy(to, &d0, 16);
    memcpy(to + to_row, &d1, 16);
    memcpy(to + 2 * to_row, &d2, 16);
    memcpy(to + 3 * to_row, &d3, 16);
    memcpy(to + 4 * to_row, &d4, 16);
    memcpy(to + 5 * to_row, &d5, 16);
    memcpy(to + 6 * to_row, &d6, 16);
    memcpy(to + 7 * to_row, &d7, 16);
#undef LO
#undef HI
#undef ROUND
}

static inline void turn_plain(const unsigned char *from, size_t from_row, unsigned char *to,
                              size_t to_row, uint64_t rows, uint64_t cols, size_t e)
{
    for (uint64_t c = 0; c < cols; c++)
        for (uint64_t r = 0; r < rows; r++)
            memcpy(to + c * to_row + r * e, from + r * from_row + c * e, e);
}

/* rows × cols elements; each row of the result is written to its end before the next. */
static void turn(const unsigned char *from, size_t from_row, unsigned char *to,
                 size_t to_row, uint64_t rows, uint64_t cols, size_t e)
{
    if (e == 2) {
        uint64_t r8 = rows & ~(uint64_t)7, c8 = cols & ~(uint64_t)7;
        for (uint64_t c = 0; c < c8; c += 8)
            for (uint64_t r = 0; r < r8; r += 8)
                turn8(from + r * from_row + c * 2, from_row, to + c * to_row + r * 2,
                      to_row);
        turn_plain(from + r8 * from_row, from_row, to + r8 * 2, to_row, rows - r8, c8, 2);
        turn_plain(from + c8 * 2, from_row, to + c8 * to_row, to_row, rows, cols - c8, 2);
    } else if (e == 4) {
        turn_plain(from, from_row, to, to_row, rows, cols, 4);
    } else if (e == 1) {
        turn_plain(from, from_row, to, to_row, rows, cols, 1);
    } else {
        turn_plain(from, from_row, to, to_row, rows, cols, e);
    }
}

/* Tokens are innermost: columns of a head are rows of the array. */
static void turned(const struct move *m)
{
    const struct tu_kv_place *p = m->p;
    size_t e = p->of.elem, head = (size_t)p->of.dim * e, row = (size_t)p->of.heads * head;
    for (uint64_t h = 0; h < p->of.heads; h++) {
        unsigned char *a = m->pool + h * p->head * e, *b = m->rows + h * head;
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
