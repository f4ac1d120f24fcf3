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

/* Pieces of x columns of consecutive tokens lie together: 16 bytes each. */
static void pieces(const struct move *m)
{
    const struct tu_kv_place *p = m->p;
    size_t e = p->of.elem, head = (size_t)p->of.dim * e, row = (size_t)p->of.heads * head;
    size_t piece = (size_t)p->x * e, step = (size_t)p->token * e;
    for (uint64_t h = 0; h < p->of.heads; h++)
        for (uint64_t d = 0; d < p->of.dim / p->x; d++) {
            unsigned char *a = m->pool + (h * p->head + d * p->col) * e;
            unsigned char *b = m->rows + h * head + d * piece;
            if (piece == 16)
                for (uint64_t t = 0; t < m->n; t++)
                    copy(m, a + t * step, b + t * row, 16);
            else
                for (uint64_t t = 0; t < m->n; t++)
                    copy(m, a + t * step, b + t * row, piece);
        }
}

/* Turn n tokens × d columns of 16-bit elements, 8 × 8 at a time: the vectors are those of
 * the compiler, so that every machine has them. */
typedef uint16_t v8 __attribute__((vector_size(16)));

static inline void turn8(const unsigned char *from, size_t from_row, unsigned char *to,
                         size_t to_row)
{
    v8 r[8], s[8];
    for (int i = 0; i < 8; i++)
        memcpy(&r[i], from + (size_t)i * from_row, 16);
#define LO(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HI(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
    for (int k = 0; k < 3; k++) { /* three rounds of interleaving rows i and i+4 */
        for (int i = 0; i < 4; i++) {
            s[2 * i] = LO(r[i], r[i + 4]);
            s[2 * i + 1] = HI(r[i], r[i + 4]);
        }
        memcpy(r, s, sizeof r);
    }
#undef LO
#undef HI
    for (int i = 0; i < 8; i++)
        memcpy(to + (size_t)i * to_row, &r[i], 16);
}

static void turn(const unsigned char *from, size_t from_row, unsigned char *to,
                 size_t to_row, uint64_t rows, uint64_t cols, size_t e)
{
    uint64_t r = 0;
    if (e == 2)
        for (; r + 8 <= rows; r += 8) {
            uint64_t c = 0;
            for (; c + 8 <= cols; c += 8)
                turn8(from + r * from_row + c * 2, from_row, to + c * to_row + r * 2,
                      to_row);
            for (; c < cols; c++)
                for (uint64_t i = r; i < r + 8; i++)
                    memcpy(to + c * to_row + i * 2, from + i * from_row + c * 2, 2);
        }
    for (; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            memcpy(to + c * to_row + r * e, from + r * from_row + c * e, e);
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
