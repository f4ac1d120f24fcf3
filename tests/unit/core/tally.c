/* SPDX-License-Identifier: Apache-2.0 */
/* tally.c: known values, the same bits for any number of threads. */
#include <math.h>
#include <tensorutils/core.h>
#include "../tap.h"

#define N (3 * TU_TALLY_BLOCK + 17)
static float v[N];

int main(void)
{
    struct tu_err err;
    struct tu_tally a = {0}, b = {0}, c = {0};
    const float few[] = {NAN, 3, -1, 0, INFINITY, 2, -INFINITY, -0.0f};
    eq_int(tu_tally_add(&a, TU_F32, few, 8, NULL, &err), 0, "few values");
    eq_u64(a.n, 8, "n");
    eq_u64(a.nans, 1, "NaN");
    eq_u64(a.infs, 2, "Inf");
    eq_u64(a.zeros, 2, "zeros, the negative one too");
    ok(a.min == -1 && a.max == 3, "range of the finite values");
    ok(a.mean == 0.8, "mean 4 / 5");
    ok(fabs(tu_tally_deviation(&a) - sqrt(10.8 / 5)) < 1e-15,
       "deviation: sqrt(14/5 - 0.64)");

    /* 0 … n-1: mean (n-1)/2, variance (n²-1)/12 (exact sums of integers). */
    for (size_t i = 0; i < N; i++)
        v[i] = (float)i;
    struct tu_pool *pool = tu_pool_new(3, &err);
    ok(pool != NULL, "a pool");
    eq_int(tu_tally_add(&b, TU_F32, v, N, NULL, &err), 0, "alone");
    eq_int(tu_tally_add(&c, TU_F32, v, 2 * TU_TALLY_BLOCK, pool, &err), 0,
           "in a pool, first part");
    eq_int(tu_tally_add(&c, TU_F32, v + 2 * TU_TALLY_BLOCK, N - 2 * TU_TALLY_BLOCK, pool,
                        &err),
           0, "in a pool, second part");
    eq_mem(&b, &c, sizeof b, "the same bits");
    const double n = N;
    ok(fabs(b.mean - (n - 1) / 2) < 1e-9 * n, "mean of a ramp");
    ok(fabs(tu_tally_deviation(&b) / sqrt((n * n - 1) / 12) - 1) < 1e-12,
       "deviation of a ramp");
    tu_pool_free(pool);

    const unsigned char i4[] = {0xE1, 0x07};
    a = (struct tu_tally){0};
    eq_int(tu_tally_add(&a, TU_I4, i4, 3, NULL, &err), 0, "i4 1 -2 7");
    ok(a.min == -2 && a.max == 7 && a.mean == 2 && a.n == 3, "packed elements");
    a = (struct tu_tally){0};
    const float z[] = {1, -1, 3, 5};
    eq_int(tu_tally_add(&a, TU_C64, z, 2, NULL, &err), 0, "two complex numbers");
    ok(a.n == 4 && a.mean == 2 && a.max == 5, "are four values");
    eq_int(tu_tally_add(&a, TU_Q4_0, z, 1, NULL, &err), TU_EDTYPE,
           "block formats are refused");
    a = (struct tu_tally){0};
    eq_int(tu_tally_add(&a, TU_F32, z, 0, NULL, &err), 0, "nothing");
    ok(a.n == 0 && a.mean == 0 && tu_tally_deviation(&a) == 0, "is zero");
    return tap_done();
}
