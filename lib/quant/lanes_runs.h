/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_runs.h: what the kernels of runs under a scale share, over either kind of lanes:
 * the extremes of groups, and asking for the next values while these are coded. */
#ifndef TENSORUTILS_QUANT_LANES_RUNS_H
#define TENSORUTILS_QUANT_LANES_RUNS_H

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

#endif
