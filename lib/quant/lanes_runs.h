/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_runs.h: what the kernels of runs under a scale share, over either kind of lanes:
 * the extremes of groups, asking for the next values while these are coded, quotients. */
#ifndef TENSORUTILS_QUANT_LANES_RUNS_H
#define TENSORUTILS_QUANT_LANES_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For what is to be compiled once for each of its constants. */
#define ALWAYS static inline __attribute__((always_inline))

/* What is coded has just been looked through, and the next values will be: n of them are
 * asked for meanwhile, whether they are there or not. */
ALWAYS void ask(const float *x, size_t n)
{
    enum { AHEAD = 2048 };
    const uintptr_t p = (uintptr_t)x + AHEAD * sizeof *x;
    for (size_t k = 0; k < n * sizeof *x; k += 64)
        __builtin_prefetch((const void *)(p + k), 0, 3);
}

/* The most of each of LANES rows of LANES floats, a row's in its lane. */
static inline vf most_of_rows(const float *row)
{
    float t[LANES * LANES];
    v_transpose(row, LANES, t);
    vf a = v_load(t);
    for (size_t i = LANES; i < LANES * LANES; i += LANES)
        a = v_max(a, v_load(t + i));
    return a;
}

/* Quotients that are further above 0 than any code are as good as this. */
#define FAR 0x1p22f

/* x / unit, rounded once. CORRECTED (up to FAR; what is far below 0, or NaN, is neither
 * more than the least integer): the estimate is within a few units of the last place, and
 * two corrections with an inverse that is itself rounded once leave none (Markstein,
 * 1990). A unit within 2^±60 keeps the products from overflow, and what underflows from
 * counting. */
struct divisor {
    vf unit, inverse, most;
};

enum how { PRODUCT, CORRECTED, DIVIDED };

ALWAYS bool is_corrected(float unit)
{
    return unit >= 0x1p-60f && unit <= 0x1p60f;
}

ALWAYS struct divisor divisor_of(float unit)
{
    return (struct divisor){v_set(unit), v_set(1 / unit), v_set(FAR * unit)};
}

ALWAYS vf quotient(const struct divisor *d, enum how how, vf x)
{
    if (how != CORRECTED)
        return how == PRODUCT ? v_mul(x, d->unit) : v_div(x, d->unit);
    x = v_min(d->most, x); /* the second where it is NaN */
    vf q = v_mul(x, d->inverse);
    q = v_fma(v_nfma(q, d->unit, x), d->inverse, q);
    return v_fma(v_nfma(q, d->unit, x), d->inverse, q);
}

#endif
