/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c: descriptions, and tu_gather against a walk by single elements. */
#include <tensorutils/core.h>
#include "../tap.h"

/* The definition: element k of the C order. */
static void walk(unsigned char *dst, const unsigned char *base, const uint64_t *dim,
                 const int64_t *stride, unsigned rank, size_t elem, uint64_t first,
                 uint64_t n)
{
    for (uint64_t k = first; k < first + n; k++, dst += elem) {
        int64_t at = 0;
        uint64_t rest = k;
        for (unsigned i = rank; i-- > 0; rest /= dim[i])
            at += (int64_t)(rest % dim[i]) * stride[i];
        memcpy(dst, base + at * (int64_t)elem, elem);
    }
}

static const struct {
    unsigned rank;
    uint64_t dim[4];
    int64_t stride[4];
    int64_t start;
} views[] = {
    {0, {0}, {0}, 0},
    {1, {7}, {1}, 0},
    {1, {7}, {3}, 0},
    {1, {7}, {-2}, 14},
    {1, {5}, {0}, 3},
    {2, {5, 7}, {7, 1}, 0},          /* dense */
    {2, {5, 7}, {10, 1}, 0},         /* rows of a wider matrix */
    {2, {70, 45}, {1, 70}, 0},       /* transposed, larger than a tile */
    {2, {5, 7}, {-7, 1}, 28},        /* rows backwards */
    {2, {5, 7}, {7, -1}, 6},         /* columns backwards */
    {2, {33, 40}, {0, 1}, 0},        /* one row repeated */
    {2, {33, 40}, {1, 0}, 0},        /* one column repeated */
    {3, {2, 3, 4}, {12, 4, 1}, 0},
    {3, {2, 37, 35}, {37 * 35, 1, 37}, 0},
    {3, {4, 3, 2}, {1, 4, 12}, 0},
    {3, {3, 1, 4}, {4, 99, 1}, 0},   /* a dimension of one */
    {4, {2, 3, 4, 5}, {60, 5, 15, 1}, 0}, /* axes 1 and 2 exchanged */
    {4, {3, 2, 4, 5}, {1, 60, 15, 3}, 0},
    {1, {1}, {5}, 2},
};

enum { ELEMENTS = 4000, ELEM_MOST = 16 };

static void gathers(void)
{
    static const size_t sizes[] = {1, 2, 3, 4, 8, 16};
    static unsigned char source[ELEMENTS * ELEM_MOST], got[ELEMENTS * ELEM_MOST + 1];
    static unsigned char want[ELEMENTS * ELEM_MOST];
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t v = 0; v < sizeof views / sizeof *views; v++) {
        uint64_t n = 1;
        bool same = true;
        for (unsigned i = 0; i < views[v].rank; i++)
            n *= views[v].dim[i];
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t elem = sizes[s];
            const unsigned char *base = source + views[v].start * (int64_t)elem;
            uint64_t step = n / 11 + 1;
            for (uint64_t first = 0; first < n; first += step) {
                for (uint64_t count = n - first;; count = count / 3) {
                    memset(got, 0xa5, count * elem + 1);
                    tu_gather(got, base, views[v].dim, views[v].stride, views[v].rank,
                              elem, first, count);
                    walk(want, base, views[v].dim, views[v].stride, views[v].rank, elem,
                         first, count);
                    same &= !memcmp(got, want, count * elem) && got[count * elem] == 0xa5;
                    if (!count)
                        break;
                }
            }
        }
        ok(same, "view %zu", v);
    }
}

int main(void)
{
    struct tu_err err;
    struct tu_tensor t;
    struct tu_arena *a = tu_arena_new(&err);
    uint64_t dim[] = {2, 3, 4};
    char name[70000];
    ok(a && !tu_tensor_make(&t, a, "w", TU_BF16, dim, 3, "{\"a\":1}", &err),
       "a description");
    dim[0] = 99;
    ok(t.dim[0] == 2 && t.rank == 3 && t.bytes == 48 && t.dtype == TU_BF16,
       "owns its dimensions");
    eq_str(t.name, "w", "its name");
    eq_str(t.meta, "{\"a\":1}", "its metadata");
    uint64_t rows, cols;
    tu_tensor_matrix(&t, &rows, &cols);
    ok(rows == 2 && cols == 12, "as a matrix");
    ok(!tu_tensor_make(&t, a, "s", TU_F32, NULL, 0, NULL, &err) && t.bytes == 4 &&
           !t.meta,
       "a scalar");
    tu_tensor_matrix(&t, &rows, &cols);
    ok(rows == 1 && cols == 1, "as a matrix");

    eq_int(tu_tensor_make(&t, a, "", TU_F32, dim, 1, NULL, &err), TU_ENAME, "no name");
    eq_int(tu_tensor_make(&t, a, "a\nb", TU_F32, dim, 1, NULL, &err), TU_ENAME,
           "a control byte");
    eq_str(err.msg, "tensor name 'a?b': byte 1 is a control byte or no UTF-8",
           "is named");
    eq_int(tu_tensor_make(&t, a, "a\xff", TU_F32, dim, 1, NULL, &err), TU_ENAME,
           "no UTF-8");
    memset(name, 'n', sizeof name);
    name[65535] = '\0';
    eq_int(tu_tensor_make(&t, a, name, TU_F32, dim, 1, NULL, &err), 0,
           "65535 bytes of name");
    name[65535] = 'n';
    name[65536] = '\0';
    eq_int(tu_tensor_make(&t, a, name, TU_F32, dim, 1, NULL, &err), TU_ENAME,
           "65536 bytes of name");
    eq_int(tu_tensor_make(&t, a, "w", 0x1234, dim, 1, NULL, &err), TU_EDTYPE,
           "an unknown dtype");
    dim[0] = UINT64_C(1) << 63;
    eq_int(tu_tensor_make(&t, a, "w", TU_F32, dim, 1, NULL, &err), TU_ELIMIT,
           "a dimension of 2^63");
    eq_str(err.msg, "tensor 'w': dimension 0 is 9223372036854775808, not below 2^63",
           "says so");
    tu_arena_free(a);
    gathers();
    return tap_done();
}
