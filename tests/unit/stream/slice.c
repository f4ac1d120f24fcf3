/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c: slices against the definition, element by element, in chunks of every size. */
#include <stdlib.h>
#include <tensorutils/stream.h>
#include "../tap.h"

/* Python's slice of one dimension: which indexes are taken, in order. */
static unsigned taken(const struct tu_cut *c, int64_t size, int64_t *out)
{
    unsigned n = 0;
    if (c->index) {
        out[n++] = c->begin < 0 ? c->begin + size : c->begin;
        return n;
    }
    int64_t begin = c->has_begin ? c->begin : 0, end = c->has_end ? c->end : size;
    begin = begin < 0 ? begin + size : begin;
    end = end < 0 ? end + size : end;
    for (int64_t i = begin < 0 ? 0 : begin; i < end && i < size; i++)
        out[n++] = i;
    return n;
}

/* The slice of the ramp 0, 1, 2 … of shape dim, by its definition. */
static size_t by_definition(const struct tu_cut *cut, unsigned cuts, const uint64_t *dim,
                            unsigned rank, uint16_t *out)
{
    int64_t index[3][8] = {{0}};
    unsigned count[3] = {1, 1, 1};
    uint64_t size[3] = {1, 1, 1};
    static const struct tu_cut whole = {0};
    for (unsigned i = 0; i < rank; i++) {
        size[i] = dim[i];
        count[i] = taken(i < cuts ? &cut[i] : &whole, (int64_t)dim[i], index[i]);
    }
    size_t n = 0;
    for (unsigned a = 0; a < count[0]; a++)
        for (unsigned b = 0; b < count[1]; b++)
            for (unsigned c = 0; c < count[2]; c++)
                out[n++] =
                    (uint16_t)(((uint64_t)index[0][a] * size[1] + (uint64_t)index[1][b]) *
                                   size[2] +
                               (uint64_t)index[2][c]);
    return n;
}

static unsigned seed = 1;
static unsigned below(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % n;
}

/* A random part that is legal for the size. */
static void random_cut(char *out, uint64_t size)
{
    const int s = (int)size;
    if (s && below(4) == 0) {
        sprintf(out, "%d", (int)below(2 * size) - s);
        return;
    }
    char begin[16] = "", end[16] = "";
    if (below(3))
        sprintf(begin, "%d", (int)below(2 * size + 4) - s - 2);
    if (below(3))
        sprintf(end, "%d", (int)below(2 * size + 4) - s - 2);
    sprintf(out, "%s:%s", begin, end);
}

static bool one(unsigned round)
{
    uint64_t dim[3];
    uint16_t ramp[7 * 7 * 7], want[7 * 7 * 7], got[7 * 7 * 7];
    char text[128] = "", part[40];
    struct tu_cut cut[TU_RANK_MAX];
    struct tu_slice s;
    struct tu_err err;
    const unsigned rank = 1 + below(3), parts = 1 + below(rank);
    unsigned cuts;
    size_t n = 1, kept = 0;
    for (unsigned i = 0; i < rank; i++) {
        dim[i] = below(8) ? 1 + below(6) : 0;
        n *= (size_t)dim[i];
        if (i < parts) {
            random_cut(part, dim[i]);
            strcat(text, i ? "," : "");
            strcat(text, part);
        }
    }
    for (size_t i = 0; i < n; i++)
        ramp[i] = (uint16_t)i;
    const struct tu_tensor t = {"t", TU_U16, rank, dim, 2 * n, NULL};
    if (tu_cut_parse(text, cut, &cuts, &err) || tu_slice_plan(&s, cut, cuts, &t, &err)) {
        printf("# round %u: '%s': %s\n", round, text, err.msg);
        return false;
    }
    const size_t wanted = by_definition(cut, cuts, dim, rank, want);
    const size_t chunk = 1 + below(11);
    for (size_t at = 0; at < 2 * n; at += chunk) {
        unsigned char piece[16];
        const size_t m = 2 * n - at < chunk ? 2 * n - at : chunk;
        memcpy(piece, (char *)ramp + at, m);
        const size_t k = tu_slice_keep(&s, at, piece, m);
        memcpy((char *)got + kept, piece, k);
        kept += k;
    }
    if (kept == 2 * wanted && s.out_bytes == kept && !memcmp(got, want, kept))
        return true;
    printf("# round %u: '%s' kept %zu bytes of %zu\n", round, text, kept, 2 * wanted);
    return false;
}

static void test_refusals(void)
{
    static const char *const bad[] = {"",     "x",   "1:2:3",
                                      "1,,2", "1.5", "99999999999999999999"};
    struct tu_cut cut[TU_RANK_MAX];
    struct tu_slice s;
    struct tu_err err;
    unsigned n;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        eq_int(tu_cut_parse(bad[i], cut, &n, &err), TU_EUSAGE, "'%s' is no slice",
               bad[i]);
    const uint64_t dim[] = {3, 4};
    const struct tu_tensor i4 = {"t", TU_I4, 2, dim, 6, NULL};
    char many[200] = "";
    for (int i = 0; i < 65; i++)
        strcat(many, i ? ",:" : ":");
    eq_int(tu_cut_parse(many, cut, &n, &err), TU_EUSAGE, "65 dimensions");
    eq_int(tu_cut_parse("x", cut, &n, NULL), TU_EUSAGE, "without an err");
    memset(many, '1', sizeof many - 1);
    eq_int(tu_cut_parse(many, cut, &n, &err), TU_EUSAGE, "a number of 199 digits");
    const struct tu_tensor odd = {"t", 0x7ffe, 2, (const uint64_t[]){3, 4}, 12, NULL};
    const struct tu_tensor scalar = {"t", TU_I32, 0, NULL, 4, NULL};
    eq_int(tu_slice_plan(&s, cut, 0, &odd, &err), TU_EUNSUP, "an unknown dtype");
    unsigned char four[4] = {1, 2, 3, 4};
    ok(!tu_slice_plan(&s, cut, 0, &scalar, &err) && s.out_bytes == 4 &&
           tu_slice_keep(&s, 0, four, 4) == 4 && four[3] == 4, "a scalar is whole");
    ok(!tu_cut_parse("-9:", cut, &n, &err) && cut[0].begin == -9, "an end before the start");
    const struct tu_tensor three = {"t", TU_U8, 1, (const uint64_t[]){3}, 3, NULL};
    ok(!tu_slice_plan(&s, cut, n, &three, &err) && s.out_bytes == 3, "is cut to it");
    ok(!tu_cut_parse("3", cut, &n, &err), "an index");
    eq_int(tu_slice_plan(&s, cut, n, &i4, &err), TU_EUSAGE, "past the end");
    ok(!tu_cut_parse("-4", cut, &n, &err), "an index from the end");
    eq_int(tu_slice_plan(&s, cut, n, &i4, &err), TU_EUSAGE, "before the start");
    ok(!tu_cut_parse(":,:,:", cut, &n, &err), "three dimensions");
    eq_int(tu_slice_plan(&s, cut, n, &i4, &err), TU_EUSAGE, "of a matrix");
    ok(!tu_cut_parse(":,1:3", cut, &n, &err), "inside a byte");
    eq_int(tu_slice_plan(&s, cut, n, &i4, &err), TU_EUNSUP, "is refused for i4");
    ok(!tu_cut_parse("1:,2:", cut, &n, &err), "whole bytes");
    eq_int(tu_slice_plan(&s, cut, n, &i4, &err), 0, "are not");
    eq_u64(s.out_bytes, 2, "two rows of one byte");
}

int main(void)
{
    unsigned good = 0;
    for (unsigned round = 0; round < 20000; round++)
        good += one(round);
    eq_u64(good, 20000, "random slices of random shapes");
    test_refusals();
    return tap_done();
}
