/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.c: orthogonal rotations of rows by Hadamard's matrices: outliers are spread over
 * all columns. Source: J. Tseng et al., "QuIP#", 2024; S. Ashkboos et al., "QuaRot",
 * 2024. The matrices of 12 and 20 are Paley's first construction, over 11 and 19. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "tensorutils/quant/calib.h"

/* Entry of Paley's matrix of order p + 1. */
static int paley(unsigned p, unsigned i, unsigned j)
{
    if (i == 0)
        return 1;
    if (j == 0)
        return -1;
    if (i == j)
        return 1;
    unsigned d = (i + p - j) % p;
    for (unsigned k = 1; k < p; k++)
        if (k * k % p == d)
            return 1;
    return -1;
}

/* v [order, rest]: every column times the matrix (or its transpose). */
static void small(float *v, unsigned order, uint64_t rest, bool back)
{
    float sum[20];
    for (uint64_t k = 0; k < rest; k++) {
        for (unsigned i = 0; i < order; i++) {
            sum[i] = 0;
            for (unsigned j = 0; j < order; j++)
                sum[i] +=
                    (float)(back ? paley(order - 1, j, i) : paley(order - 1, i, j)) *
                    v[j * rest + k];
        }
        for (unsigned i = 0; i < order; i++)
            v[i * rest + k] = sum[i];
    }
}

static void butterflies(float *v, uint64_t n)
{
    for (uint64_t half = 1; half < n; half *= 2)
        for (uint64_t i = 0; i < n; i += 2 * half)
            for (uint64_t j = i; j < i + half; j++) {
                float a = v[j], b = v[j + half];
                v[j] = a + b;
                v[j + half] = a - b;
            }
}

static void flip(float *v, uint64_t n, uint64_t seed)
{
    const struct tu_rng rng = {seed, tu_rng_stream("rotation")};
    for (uint64_t i = 0; i < n; i++)
        if (tu_rng_u32(&rng, i) >> 31)
            v[i] = -v[i];
}

int tu_rotate(float *x, uint64_t rows, uint64_t n, bool random, uint64_t seed, bool back,
              struct tu_err *err)
{
    uint64_t power = n;
    unsigned order = 1;
    while (power && power % 2 == 0)
        power /= 2;
    if (power == 3 && n % 12 == 0)
        order = 12;
    else if (power == 5 && n % 20 == 0)
        order = 20;
    else if (power != 1)
        return tu_fail(err, TU_EUSAGE,
                       "rotation of %" PRIu64 " columns: only 2^k, 12·2^k and "
                       "20·2^k",
                       n);
    uint64_t rest = n / order;
    float unit = (float)(1 / sqrt((double)n));
    for (uint64_t r = 0; r < rows; r++, x += n) {
        if (random && !back)
            flip(x, n, seed);
        for (unsigned k = 0; k < order; k++)
            butterflies(x + k * rest, rest);
        if (order > 1)
            small(x, order, rest, back);
        for (uint64_t i = 0; i < n; i++)
            x[i] *= unit;
        if (random && back)
            flip(x, n, seed);
    }
    return 0;
}
