/* SPDX-License-Identifier: Apache-2.0 */
/* powersgd.c: low-rank factors of gradients, by one step of the power method. Source: T.
 * Vogels et al., "PowerSGD", 2019. */
#include <math.h>
#include "tensorutils/quant/gradient.h"

void tu_powersgd_start(uint64_t seed, uint64_t stream, uint64_t cols, unsigned rank,
                       float *q)
{
    const struct tu_rng rng = {seed, stream};
    tu_rng_normal(&rng, 0, q, (size_t)(cols * rank));
}

void tu_powersgd_p(const float *m, const float *q, uint64_t rows, uint64_t cols,
                   unsigned rank, float *p)
{
    for (uint64_t i = 0; i < rows; i++)
        for (unsigned r = 0; r < rank; r++) {
            double sum = 0;
            for (uint64_t j = 0; j < cols; j++)
                sum += (double)m[i * cols + j] * q[j * rank + r];
            p[i * rank + r] = (float)sum;
        }
}

/* Gram-Schmidt, twice over; a column that depends on those before becomes zero. */
static void orthonormalise(float *p, uint64_t rows, unsigned rank)
{
    for (unsigned r = 0; r < rank; r++) {
        double before = 0, after = 0;
        for (uint64_t i = 0; i < rows; i++)
            before += (double)p[i * rank + r] * p[i * rank + r];
        for (unsigned k = 0; k < 2 * r; k++) {
            double dot = 0;
            for (uint64_t i = 0; i < rows; i++)
                dot += (double)p[i * rank + r] * p[i * rank + k % r];
            for (uint64_t i = 0; i < rows; i++)
                p[i * rank + r] -= (float)(dot * p[i * rank + k % r]);
        }
        for (uint64_t i = 0; i < rows; i++)
            after += (double)p[i * rank + r] * p[i * rank + r];
        double unit = after > 1e-12 * before && after > 0 ? 1 / sqrt(after) : 0;
        for (uint64_t i = 0; i < rows; i++)
            p[i * rank + r] = (float)(p[i * rank + r] * unit);
    }
}

void tu_powersgd_q(const float *m, float *p, uint64_t rows, uint64_t cols, unsigned rank,
                   float *q)
{
    orthonormalise(p, rows, rank);
    for (uint64_t j = 0; j < cols; j++)
        for (unsigned r = 0; r < rank; r++) {
            double sum = 0;
            for (uint64_t i = 0; i < rows; i++)
                sum += (double)m[i * cols + j] * p[i * rank + r];
            q[j * rank + r] = (float)sum;
        }
}

void tu_powersgd_decode(const float *p, const float *q, uint64_t rows, uint64_t cols,
                        unsigned rank, float *m)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (unsigned r = 0; r < rank; r++)
                sum += (double)p[i * rank + r] * q[j * rank + r];
            m[i * cols + j] = (float)sum;
        }
}
