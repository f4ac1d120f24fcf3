/* SPDX-License-Identifier: Apache-2.0 */
/* case.c: inputs whose result is known, and the check of an output against them.
 *
 * Nothing here knows an algorithm: what must come out follows from the definition of the
 * collective and from the inputs, which any rank can make for all others.
 * exact: integers so small that every partial sum, in any order, is exact in the dtype.
 */
#include <math.h>
#include "reduce.h"

const char *const tu_fill_names[] = {"exact", "random", "adversarial", NULL};

#define BLOCK 512

/* L: all integers up to it are exact; u: half the distance of 1 to the next number. */
static const struct {
    uint16_t dtype;
    double limit, unit;
} precision[] = {
    {TU_F64, 0x1p53, 0x1p-53},    {TU_F32, 0x1p24, 0x1p-24},   {TU_F16, 2048, 0x1p-11},
    {TU_BF16, 256, 0x1p-8},       {TU_F8_E4M3FN, 16, 0x1p-4},  {TU_F8_E5M2, 8, 0x1p-3},
    {TU_F8_E4M3FNUZ, 16, 0x1p-4}, {TU_F8_E5M2FNUZ, 8, 0x1p-3},
};

static double limit_of(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof precision / sizeof *precision; i++)
        if (precision[i].dtype == dtype)
            return precision[i].limit;
    return 0;
}

static double unit_of(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof precision / sizeof *precision; i++)
        if (precision[i].dtype == dtype)
            return precision[i].unit;
    return 0;
}

/* A number for (case, rank, index): splitmix64's mixing, twice. */
static uint64_t mix(uint64_t v)
{
    v += UINT64_C(0x9e3779b97f4a7c15);
    v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
    return v ^ v >> 31;
}

static uint64_t bits_of(const struct tu_case *c, uint32_t rank, uint64_t i)
{
    return mix(mix(c->seed * 0x10001 + c->iter * 0x1000003 + rank) + i);
}

static bool reduces(const struct tu_case *c)
{
    return tu_collective_rows[c->coll].reduces;
}

static bool is_real(uint32_t dtype)
{
    return limit_of(dtype) != 0;
}

/* An integer of magnitude at most a, never the same for all. */
static double within(uint64_t bits, double a)
{
    uint64_t span = 2 * (uint64_t)a + 1;
    return (double)(bits % span) - a;
}

static double exact_real(const struct tu_case *c, uint32_t rank, uint64_t i)
{
    double limit = limit_of(c->dtype), n = c->ranks;
    uint64_t bits = bits_of(c, rank, i), place = (i + c->iter) % c->ranks;
    if (c->op == TU_MIN || c->op == TU_MAX)
        return within(bits, limit);
    if (c->op == TU_PROD) {
        double odd = 1 + (double)(bits % 7); /* one rank; the others are signs */
        return rank == place ? odd : bits & 8 ? 1 : -1;
    }
    if (c->op == TU_PREMUL)
        limit = floor(limit / fmax(fabs(c->premul), 1));
    if (n <= limit)
        return within(bits, floor(limit / n));
    uint64_t turn =
        (rank + c->ranks - place) % c->ranks; /* only `limit` ranks, rotating */
    return turn < (uint64_t)limit ? (bits & 1 ? 1 : -1) : 0;
}

/* Cancellation, subnormal numbers, zeros of both signs, infinities, NaN, equal values. */
static double hard_real(const struct tu_case *c, uint32_t rank, uint64_t i)
{
    static const double turn[4] = {1, 1e-8, -1, 1e-8};
    double big = limit_of(c->dtype) * (c->dtype == TU_F32 ? 6 : 1);
    switch ((i + c->iter) % 8) {
    case 0: return turn[rank % 4] * big;
    case 1:
        return ldexp((double)(1 + bits_of(c, rank, i) % 3),
                     c->dtype == TU_F64                          ? -1074
                     : c->dtype == TU_F32 || c->dtype == TU_BF16 ? -133
                                                                 : -9);
    case 2: return rank % 2 ? -0.0 : 0.0;
    case 3: return rank == 0 ? INFINITY : 1;
    case 4: return rank + 1 == c->ranks ? NAN : rank;
    case 5: return rank == 0 ? INFINITY : rank == 1 ? -INFINITY : 0;
    case 6: return 1;
    default: return -0.0;
    }
}

static double real_value(const struct tu_case *c, uint32_t rank, uint64_t i)
{
    if (c->fill == TU_FILL_EXACT)
        return exact_real(c, rank, i);
    if (c->fill == TU_FILL_HARD)
        return hard_real(c, rank, i);
    /* The sum of four uniform numbers: near enough to normal. */
    uint64_t b = bits_of(c, rank, i);
    double s =
        (double)((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));
    return (s - 131070) / 37837;
}

/* n input elements of a rank from `first` on. */
static void values(const struct tu_case *c, uint32_t rank, uint64_t first, size_t n,
                   void *out)
{
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    if (!reduces(c) || !is_real(c->dtype)) {
        unsigned char *to = out;
        for (size_t i = 0; i < n; i++) {
            uint64_t b[2] = {bits_of(c, rank, first + i), 0};
            b[1] = ~b[0];
            memcpy(to + i * size, b, size);
        }
        return;
    }
    double v[BLOCK];
    float f[BLOCK];
    for (size_t i = 0; i < n; i++)
        v[i] = real_value(c, rank, first + i);
    if (c->dtype == TU_F64) {
        memcpy(out, v, n * sizeof *v);
        return;
    }
    for (size_t i = 0; i < n; i++)
        f[i] = (float)v[i];
    int code = tu_cast(c->dtype, out, TU_F32, f, n, NULL);
    (void)code; /* every real dtype converts from f32 */
}

void tu_case_input(const struct tu_case *c, uint32_t rank, void *in)
{
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    uint64_t n = c->count * (tu_collective_rows[c->coll].in == 2 ? c->ranks : 1);
    for (uint64_t i = 0; i < n; i += BLOCK)
        values(c, rank, i, (size_t)tu_min(n - i, BLOCK), (unsigned char *)in + i * size);
}

static void note(struct tu_verdict *v, uint64_t i, double got, double want)
{
    if (!v->wrong++) {
        v->first = i;
        v->got = got;
        v->want = want;
    }
}

/* One element as a double, for messages. */
static double show(uint32_t dtype, const void *p)
{
    double v[2] = {0, 0};
    return tu_to_double(dtype, p, v, 1, NULL) ? 0 : v[0];
}

static void compare(const struct tu_case *c, uint64_t at, size_t n,
                    const unsigned char *got, const unsigned char *want,
                    struct tu_verdict *v)
{
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i * size, want + i * size, size) != 0)
            note(v, at + i, show(c->dtype, got + i * size),
                 show(c->dtype, want + i * size));
}

/* Results that are defined to the bit: folds of the inputs in double, or in the integers.
 */
static int want_exact(const struct tu_case *c, uint64_t first, size_t n, void *want,
                      struct tu_err *err)
{
    unsigned char x[16 * BLOCK];
    enum tu_op fold = c->op == TU_AVG || c->op == TU_PREMUL ? TU_SUM : c->op;
    uint32_t wide = is_real(c->dtype) ? TU_F64 : c->dtype;
    unsigned char acc[16 * BLOCK];
    double next[BLOCK];
    tu_reduce_fn fn = tu_reduce_find(wide, fold);
    for (uint32_t q = 0; q < c->ranks; q++) {
        values(c, q, first, n, x);
        if (c->op == TU_PREMUL)
            tu_reduce_scale(c->dtype, x, n, c->premul);
        void *term = x;
        if (wide != c->dtype) {
            int code = tu_to_double(c->dtype, x, next, n, err);
            if (code)
                return code;
            term = next;
        }
        if (q)
            fn(acc, acc, term, n);
        else
            memcpy(acc, term, n * tu_dtype_find(wide)->block_bytes);
    }
    int code = 0;
    if (wide == c->dtype)
        memcpy(want, acc, n * tu_dtype_find(wide)->block_bytes);
    else
        code = tu_cast(c->dtype, want, TU_F64, acc, n, err);
    if (!code && c->op == TU_AVG)
        tu_reduce_scale(c->dtype, want, n, 1.0 / c->ranks);
    return code;
}

/* Sums that depend on the order: within gamma Σ|x| + u |ref|, gamma = k u / (1 - k u), k
 * = n-1. Source: N. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
 */
static int within_bound(const struct tu_case *c, uint64_t at, uint64_t first, size_t n,
                        const void *out, struct tu_verdict *v, struct tu_err *err)
{
    double sum[BLOCK] = {0}, mass[BLOCK] = {0}, x[BLOCK];
    unsigned char raw[16 * BLOCK];
    for (uint32_t q = 0; q < c->ranks; q++) {
        values(c, q, first, n, raw);
        if (c->op == TU_PREMUL)
            tu_reduce_scale(c->dtype, raw, n, c->premul);
        int code = tu_to_double(c->dtype, raw, x, n, err);
        if (code)
            return code;
        for (size_t i = 0; i < n; i++) {
            sum[i] += x[i];
            mass[i] += fabs(x[i]);
        }
    }
    int code = tu_to_double(c->dtype, out, x, n, err);
    double u = unit_of(c->dtype), k = c->ranks - 1.0,
           gamma = k * u < 1 ? k * u / (1 - k * u) : 1;
    double scale = c->op == TU_AVG ? 1.0 / c->ranks : 1;
    double tiny =
        ldexp(k + 1, c->dtype == TU_F64                                    ? -1074
                     : c->dtype == TU_F16                                  ? -24
                     : tui_is_small_float(c->dtype) && c->dtype != TU_BF16 ? -9
                                                                           : -133);
    for (size_t i = 0; i < n && !code; i++) {
        double want = sum[i] * scale;
        double bound = (gamma * mass[i] + 2 * u * fabs(sum[i])) * scale + tiny;
        double off = fabs(x[i] - want);
        bool fine = isnan(want) ? isnan(x[i]) : isinf(want) ? x[i] == want : off <= bound;
        if (isfinite(want) && bound > 0)
            v->worst = fmax(v->worst, off / bound);
        if (!fine)
            note(v, at + i, x[i], want);
    }
    return code;
}

/* What output elements at … at+n-1 (within one block) are copies of. */
static void want_copy(const struct tu_case *c, uint32_t rank, uint64_t at, size_t n,
                      void *want)
{
    uint64_t block = c->count ? at / c->count : 0,
             within_block = c->count ? at % c->count : 0;
    switch (c->coll) {
    case TU_ALLGATHER:
    case TU_GATHER: values(c, (uint32_t)block, within_block, n, want); break;
    case TU_ALLTOALL:
        values(c, (uint32_t)block, rank * c->count + within_block, n, want);
        break;
    case TU_BROADCAST: values(c, c->root, at, n, want); break;
    case TU_SCATTER: values(c, c->root, rank * c->count + at, n, want); break;
    default: values(c, (rank + c->ranks - 1) % c->ranks, at, n, want); break;
    }
}

int tu_case_check(const struct tu_case *c, uint32_t rank, const void *out,
                  struct tu_verdict *v, struct tu_err *err)
{
    const struct tu_collective_row *row = &tu_collective_rows[c->coll];
    unsigned char want[16 * BLOCK];
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    *v = (struct tu_verdict){0};
    bool elsewhere = (c->coll == TU_REDUCE || c->coll == TU_GATHER) && rank != c->root;
    if (c->coll == TU_BARRIER || elsewhere)
        return 0;
    uint64_t n = c->count * (row->out == 2 ? c->ranks : 1);
    bool bits = c->fill == TU_FILL_EXACT || !is_real(c->dtype) || c->op == TU_MIN ||
                c->op == TU_MAX;
    if (row->reduces && !bits && c->op == TU_PROD)
        return tu_fail(err, TU_EUSAGE, "prod is checked with exact data only");
    int code = 0;
    for (uint64_t at = 0; at < n && !code;) {
        size_t m = (size_t)tu_min(n - at, BLOCK);
        if (row->out == 2)
            m = (size_t)tu_min(m, c->count - at % c->count);
        const unsigned char *got = (const unsigned char *)out + at * size;
        uint64_t first = c->coll == TU_REDUCE_SCATTER ? rank * c->count + at : at;
        if (!row->reduces) {
            want_copy(c, rank, at, m, want);
            compare(c, at, m, got, want, v);
        } else if (bits) {
            code = want_exact(c, first, m, want, err);
            if (!code)
                compare(c, at, m, got, want, v);
        } else {
            code = within_bound(c, at, first, m, got, v, err);
        }
        at += m;
    }
    return code;
}
