/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c: the kernels of every instruction set against their definition, and the orders
 * of folding against the figures of the specification. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

#define N 1031

static const uint32_t dtypes[] = {TU_F32,     TU_F64, TU_F16, TU_BF16, TU_F8_E4M3FN,
                                  TU_F8_E5M2, TU_I8,  TU_U8,  TU_I16,  TU_U16,
                                  TU_I32,     TU_U32, TU_I64, TU_U64};

/* One element by definition, in double (floats) or in 64-bit integers. */
static void define(uint32_t dtype, enum tu_op op, const void *a, const void *b,
                   void *want)
{
    size_t size = tu_dtype_find(dtype)->block_bytes;
    if (tu_dtype_is_float(dtype)) {
        double x, y, z;
        if (tu_to_double(dtype, a, &x, 1, NULL) || tu_to_double(dtype, b, &y, 1, NULL))
            abort();
        switch (op) {
        case TU_SUM: z = x + y; break;
        case TU_PROD: z = x * y; break;
        case TU_MIN: z = x < y || (x == y && signbit(x)) ? x : y; break;
        default: z = x > y || (x == y && !signbit(x)) ? x : y; break;
        }
        if (op != TU_SUM && op != TU_PROD && (isnan(x) || isnan(y)))
            z = NAN;
        if (tu_cast(dtype, want, TU_F64, &z, 1, NULL))
            memset(want, 0xee, size);
        return;
    }
    bool is_signed = dtype < 0x100;
    int64_t x = 0, y = 0;
    memcpy(&x, a, size);
    memcpy(&y, b, size);
    if (is_signed) {
        x = (int64_t)((uint64_t)x << (64 - 8 * size)) >> (64 - 8 * size);
        y = (int64_t)((uint64_t)y << (64 - 8 * size)) >> (64 - 8 * size);
    }
    uint64_t z = op == TU_SUM ? (uint64_t)x + (uint64_t)y : (uint64_t)x * (uint64_t)y;
    bool less = is_signed ? x < y : (uint64_t)x < (uint64_t)y;
    if (op == TU_MIN || op == TU_MAX)
        z = (uint64_t)(less == (op == TU_MIN) ? x : y);
    memcpy(want, &z, size);
}

static bool is_nan(uint32_t dtype, const void *p)
{
    double v = 0;
    return tu_dtype_is_float(dtype) && !tu_to_double(dtype, p, &v, 1, NULL) && isnan(v);
}

static void kernels(void)
{
    static unsigned char a[8 * N], b[8 * N], d[8 * N], want[8];
    struct tu_rng rng = {.seed = 3};
    for (size_t i = 0; i < 2 * N; i++) {
        tu_put32(a + 4 * i, tu_rng_u32(&rng, i));
        tu_put32(b + 4 * i, i % 5 ? tu_rng_u32(&rng, i + 99999) : tu_rng_u32(&rng, i));
    }
    for (size_t row = 0; tu_reduce_row(row); row++) {
        const struct tu_kernel *k = tu_reduce_row(row);
        if ((k->needs & tu_cpu_bits()) != k->needs) {
            tap_skip(k->name, "this CPU lacks it");
            continue;
        }
        unsigned bad = 0, done = 0;
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
            size_t size = tu_dtype_find(dtypes[t])->block_bytes;
            for (enum tu_op op = TU_SUM; op <= TU_MAX; op++) {
                size_t n = N - (size_t)op * 5 - t; /* tails of all lengths */
                tu_reduce_in(row, dtypes[t], op)(d, a, b, n);
                for (size_t i = 0; i < n; i++, done++) {
                    define(dtypes[t], op, a + i * size, b + i * size, want);
                    bool nan = is_nan(dtypes[t], want) && is_nan(dtypes[t], d + i * size);
                    bad += !nan && memcmp(want, d + i * size, size) != 0;
                }
                memcpy(d, a, sizeof d); /* in place */
                tu_reduce_in(row, dtypes[t], op)(d, d, b, n);
                for (size_t i = 0; i < n; i++) {
                    define(dtypes[t], op, a + i * size, b + i * size, want);
                    bool nan = is_nan(dtypes[t], want) && is_nan(dtypes[t], d + i * size);
                    bad += !nan && memcmp(want, d + i * size, size) != 0;
                }
            }
        }
        eq_u64(bad, 0, "row %s: %u results by definition", k->name, done);
    }
}

/* Fold n values of `dtype`, given as floats. */
static double folded(const float *v, uint32_t n, uint32_t dtype, enum tu_order order)
{
    static unsigned char x[4096][8];
    const void *src[4096];
    double out = 0;
    unsigned char d[8];
    for (uint32_t i = 0; i < n; i++) {
        src[i] = x[i];
        if (tu_cast(dtype, x[i], TU_F32, &v[i], 1, NULL))
            return -1;
    }
    struct tu_err err = {0};
    if (tu_combine(d, src, n, 1, dtype, TU_SUM, order, &err) ||
        tu_to_double(dtype, d, &out, 1, NULL))
        return -1;
    return out;
}

static void orders(void)
{
    static float ones[1024];
    const float hard[4] = {1e8f, 1, -1e8f, 1};
    for (size_t i = 0; i < 1024; i++)
        ones[i] = 1;
    ok(folded(hard, 4, TU_F32, TU_ORDER_ANY) == 1.0,
       "1e8 + 1 - 1e8 + 1 in the order of ranks: 1");
    ok(folded(hard, 4, TU_F32, TU_ORDER_FIXED) == 0.0, "as a tree: 0");
    ok(folded(hard, 4, TU_F32, TU_ORDER_EXACT) == 2.0, "exactly: 2");
    ok(folded(ones, 1024, TU_BF16, TU_ORDER_ANY) == 256,
       "1024 ones in bf16, one by one: 256");
    ok(folded(ones, 1024, TU_BF16, TU_ORDER_FIXED) == 1024, "through f32: 1024");
    ok(folded(ones, 1024, TU_BF16, TU_ORDER_EXACT) == 1024, "exactly: 1024");
    /* Ties and sticky bits at the rounding of the exact sum. */
    const float tie[3] = {16777216, 1, 0x1p-149f}, even[2] = {16777216, 1},
                odd[2] = {16777218, 1};
    ok(folded(tie, 3, TU_F32, TU_ORDER_EXACT) == 16777218, "just over a tie goes up");
    ok(folded(even, 2, TU_F32, TU_ORDER_EXACT) == 16777216, "a tie goes to even, down");
    ok(folded(odd, 2, TU_F32, TU_ORDER_EXACT) == 16777220, "a tie goes to even, up");
    const float less[4] = {-16777216, -1, -0x1p-149f, 0},
                huge[4] = {3e38f, 3e38f, -3e38f, -3e38f};
    ok(folded(less, 4, TU_F32, TU_ORDER_EXACT) == -16777218, "the same below zero");
    ok(folded(huge, 4, TU_F32, TU_ORDER_EXACT) == 0, "no overflow on the way");
    const float inf[2] = {INFINITY, 1}, nan[2] = {INFINITY, -INFINITY};
    ok(isinf(folded(inf, 2, TU_F32, TU_ORDER_EXACT)), "infinity stays");
    ok(isnan(folded(nan, 2, TU_F32, TU_ORDER_EXACT)), "inf - inf is NaN");
    const double d64[4] = {1e300, 1, -1e300, 0x1p-1074};
    const void *src[4] = {&d64[0], &d64[1], &d64[2], &d64[3]};
    double out = 0;
    ok(!tu_combine(&out, src, 4, 1, TU_F64, TU_SUM, TU_ORDER_EXACT, NULL) && out == 1,
       "1e300 + 1 - 1e300 + tiny in f64: 1");
    ok(tu_combine(&out, src, 2, 1, TU_F64, TU_MAX, TU_ORDER_EXACT, NULL) == TU_EUSAGE,
       "exact is of sums");
    /* Against long sums of random floats in random order. */
    struct tu_rng rng = {.seed = 11};
    unsigned bad = 0;
    for (uint32_t round = 0; round < 200; round++) {
        float v[64];
        long double sum = 0; /* exact here: 24 bits over a range of 2^30 fit in 64 */
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t b = tu_rng_u32(&rng, round * 64 + i);
            v[i] = (float)ldexp((double)(int32_t)(b & 0xffffff) - 8388608,
                                (int)(b >> 27) - 16);
            sum += v[i];
        }
        bad += folded(v, 64, TU_F32, TU_ORDER_EXACT) != (double)(float)sum;
    }
    eq_u64(bad, 0, "200 exact sums of 64 floats");
}

static void rules(void)
{
    struct tu_err err;
    eq_int(tu_reduce_check(TU_I32, TU_AVG, &err), TU_EUSAGE, "avg of i32: %s", err.msg);
    eq_int(tu_reduce_check(TU_F8_E4M3FN, TU_PROD, &err), TU_EUSAGE, "prod of fp8: %s",
           err.msg);
    eq_int(tu_reduce_check(TU_Q4_K, TU_SUM, &err), TU_EUSAGE, "blocks: %s", err.msg);
    eq_int(tu_reduce_check(TU_BF16, TU_AVG, NULL), 0, "avg of bf16");
}

int main(void)
{
    kernels();
    orders();
    rules();
    return tap_done();
}
