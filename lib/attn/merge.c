/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c: the one way partial results become one: (O, LSE) with (O, LSE).
 *
 * O is normalised, LSE the natural logarithm of the sum behind it. Associative up to
 * rounding, so the order is fixed: a balanced tree over the parts. */
#include <math.h>
#include "tensorutils/attn.h"

/* b joins a. */
static void merge_row(float *oa, float *la, const float *ob, float lb, uint64_t dim)
{
    float m = *la > lb ? *la : lb;
    if (isnan(*la) || isnan(lb))
        m = NAN;
    if (m == -INFINITY || lb == -INFINITY)
        return; /* the identity is (0, -inf) */
    float wa = expf(*la - m), wb = expf(lb - m), sum = wa + wb;
    for (uint64_t t = 0; t < dim; t++)
        oa[t] = (wa * oa[t] + wb * ob[t]) / sum;
    *la = m + logf(sum);
}

void tu_attn_merge(float *const *o, float *const *lse, size_t n, uint64_t rows,
                   uint64_t dim)
{
    for (size_t step = 1; step < n; step *= 2)
        for (size_t p = 0; p + step < n; p += 2 * step)
            for (uint64_t r = 0; r < rows; r++)
                merge_row(o[p] + r * dim, lse[p] + r, o[p + step] + r * dim,
                          lse[p + step][r], dim);
}

void tu_attn_sink(float *o, float *lse, uint64_t rows, uint64_t dim, float sink)
{
    for (uint64_t r = 0; r < rows; r++) {
        float m = lse[r] > sink || isnan(lse[r]) ? lse[r] : sink;
        float w = expf(lse[r] - m), sum = w + expf(sink - m);
        for (uint64_t t = 0; t < dim; t++)
            o[r * dim + t] *= w / sum;
        lse[r] = m + logf(sum);
    }
}
