/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c: descriptions of tensors, and the walk of strided views.
 *
 * A view is first made small: dimensions of one element go, neighbours that continue each
 * other become one. What is left is copied by runs: whole runs where the last dimension
 * is dense, tiles where the view is a transpose (one side of the copy would else touch a
 * cache line per element), else element by element. */
#include <tensorutils/core.h>

#include <stdbool.h>

int tu_tensor_make(struct tu_tensor *out, struct tu_arena *a, const char *name,
                   uint32_t dtype, const uint64_t *dim, unsigned rank, const char *meta,
                   struct tu_err *err)
{
    enum { NAME_MOST = 65535 };
    size_t n = strlen(name), bad = tu_name_check(name, n);
    char shown[88];
    tu_text_short(name, n, shown);
    if (!n || n > NAME_MOST)
        return tu_fail(err, TU_ENAME, "tensor name of %zu bytes, 1 to %d are allowed", n,
                       NAME_MOST);
    if (bad < n)
        return tu_fail(err, TU_ENAME,
                       "tensor name '%s': byte %zu is a control byte or no UTF-8", shown,
                       bad);
    uint64_t bytes;
    int rc = tu_tensor_bytes(dtype, dim, rank, &bytes, err);
    if (rc) {
        tu_err_prefix(err, "tensor '%s'", shown);
        return rc;
    }
    uint64_t *own_dim = tu_arena_alloc(a, rank, sizeof *own_dim, err);
    char *own_name = own_dim ? tu_arena_text(a, name, n, err) : NULL;
    char *own_meta = own_name && meta ? tu_arena_text(a, meta, strlen(meta), err) : NULL;
    if (!own_name || (meta && !own_meta))
        return TU_ENOMEM;
    if (rank)
        memcpy(own_dim, dim, rank * sizeof *dim);
    *out = (struct tu_tensor){
        .name = own_name, .dtype = dtype, .rank = rank, .dim = own_dim, .bytes = bytes,
        .meta = own_meta,
    };
    return 0;
}

void tu_tensor_matrix(const struct tu_tensor *t, uint64_t *rows, uint64_t *cols)
{
    *rows = t->rank ? t->dim[0] : 1;
    *cols = 1;
    for (unsigned i = 1; i < t->rank; i++)
        *cols *= t->dim[i]; /* tu_tensor_make has seen the product */
}

/* A view after simplification, strides in bytes; at least one dimension. */
struct view {
    unsigned rank;
    uint64_t dim[TU_RANK_MAX];
    int64_t step[TU_RANK_MAX];
};

static void simplify(struct view *v, const uint64_t *dim, const int64_t *stride,
                     unsigned rank, size_t elem)
{
    v->rank = 0;
    for (unsigned i = 0; i < rank; i++) {
        int64_t step = stride[i] * (int64_t)elem;
        if (dim[i] == 1)
            continue;
        if (v->rank && v->step[v->rank - 1] == step * (int64_t)dim[i]) {
            v->dim[v->rank - 1] *= dim[i];
            v->step[v->rank - 1] = step;
        } else {
            v->dim[v->rank] = dim[i];
            v->step[v->rank++] = step;
        }
    }
    if (!v->rank) {
        v->dim[0] = 1;
        v->step[v->rank++] = (int64_t)elem;
    }
}

/* rows × cols elements with any two strides to a dense matrix, tile by tile. */
#define TILES(N)                                                                       \
    static void tiles_##N(unsigned char *dst, const unsigned char *src, uint64_t rows, \
                          uint64_t cols, int64_t row_step, int64_t col_step)           \
    {                                                                                  \
        enum { TILE = 32 };                                                            \
        for (uint64_t r0 = 0; r0 < rows; r0 += TILE)                                   \
            for (uint64_t c0 = 0; c0 < cols; c0 += TILE)                               \
                for (uint64_t r = r0; r < tu_min(r0 + TILE, rows); r++) {              \
                    const unsigned char *from = src + (int64_t)r * row_step;           \
                    unsigned char *to = dst + r * cols * (N);                          \
                    for (uint64_t c = c0; c < tu_min(c0 + TILE, cols); c++)            \
                        memcpy(to + c * (N), from + (int64_t)c * col_step, N);         \
                }                                                                      \
    }
TILES(1)
TILES(2)
TILES(4)
TILES(8)
TILES(16)
#undef TILES

static void tiles(unsigned char *dst, const unsigned char *src, uint64_t rows,
                  uint64_t cols, int64_t row_step, int64_t col_step, size_t elem)
{
    switch (elem) {
    case 1: tiles_1(dst, src, rows, cols, row_step, col_step); return;
    case 2: tiles_2(dst, src, rows, cols, row_step, col_step); return;
    case 4: tiles_4(dst, src, rows, cols, row_step, col_step); return;
    case 8: tiles_8(dst, src, rows, cols, row_step, col_step); return;
    case 16: tiles_16(dst, src, rows, cols, row_step, col_step); return;
    }
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            memcpy(dst + (r * cols + c) * elem,
                   src + (int64_t)r * row_step + (int64_t)c * col_step, elem);
}

static bool is_transpose(const struct view *v)
{
    if (v->rank < 2)
        return false;
    int64_t outer = v->step[v->rank - 2], inner = v->step[v->rank - 1];
    return (outer < 0 ? -outer : outer) < (inner < 0 ? -inner : inner);
}

/* Add n to index[at], carrying outwards. n never passes the end of the dimension. */
static void advance(const struct view *v, uint64_t *index, unsigned at, uint64_t n)
{
    index[at] += n;
    while (at && index[at] == v->dim[at]) {
        index[at] = 0;
        index[--at]++;
    }
}

void tu_gather(void *dst, const void *base, const uint64_t *dim, const int64_t *stride,
               unsigned rank, size_t elem, uint64_t first, uint64_t n)
{
    struct view v;
    uint64_t index[TU_RANK_MAX];
    if (!n)
        return;
    simplify(&v, dim, stride, rank, elem);
    for (unsigned i = v.rank; i-- > 0; first /= v.dim[i])
        index[i] = first % v.dim[i];

    unsigned last = v.rank - 1;
    uint64_t cols = v.dim[last];
    bool dense = v.step[last] == (int64_t)elem, transpose = !dense && is_transpose(&v);
    unsigned char *to = dst;
    while (n) {
        const unsigned char *from = base;
        for (unsigned i = 0; i < v.rank; i++)
            from += (int64_t)index[i] * v.step[i];
        uint64_t rows = 1, run = tu_min(cols - index[last], n);
        if (transpose && run == cols)
            rows = tu_min(v.dim[last - 1] - index[last - 1], n / cols);
        if (dense)
            memcpy(to, from, run * elem);
        else
            tiles(to, from, rows, run, transpose ? v.step[last - 1] : 0, v.step[last],
                  elem);
        to += rows * run * elem;
        n -= rows * run;
        if (rows > 1)
            advance(&v, index, last - 1, rows);
        else
            advance(&v, index, last, run);
    }
}
