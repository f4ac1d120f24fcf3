/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs that the published checksums of the formats belong to. */
#ifndef TESTS_UNIT_QUANT_INPUTS_H
#define TESTS_UNIT_QUANT_INPUTS_H

#include <math.h>
#include <stdint.h>

/* V1, V2, K1, K2, K3: short exact patterns. */
static inline void input_v1(float *x, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        x[i] = (float)((int)(37 * i % 64) - 32) / 16;
}

static inline void input_v2(float *x, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        x[i] = (float)((double)((int)(37 * i % 64) - 32) / 10);
}

static inline void input_k(int which, float *x, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        double v = (int)(73 * i % 256) - 128;
        x[i] = (float)(which == 1   ? v / 64
                       : which == 2 ? ldexp(v / 64 + 0.25, -(int)(i / 32))
                                    : v / 100);
    }
}

#define R_ROWS 64
#define R_COLS 1024
#define R_COUNT (R_ROWS * R_COLS)

/* R1: sums of four steps of a congruential generator; R2: R1 over 32 powers of two; R3:
 * R1 with zero, constant and positive groups and outliers. */
static inline void input_r(int which, float *x)
{
    uint32_t s = 1;
    for (unsigned i = 0; i < R_COUNT; i++) {
        int32_t sum = 0;
        for (unsigned k = 0; k < 4; k++) {
            s = 1664525 * s + 1013904223;
            sum += (int32_t)(s >> 8);
        }
        double v = ldexp((double)(sum - (1 << 25)), -24);
        unsigned g = i / 16 % 7;
        if (which == 2)
            v = ldexp((double)(float)v, (int)(i / 1024 % 32) - 24);
        if (which == 3)
            v = (g == 2 ? 0 : g == 4 ? 0.5 : g == 5 ? fabs(v) : v) * (i % 997 ? 1 : 16);
        x[i] = (float)v;
    }
}

/* The importance of the columns of the R inputs. */
static inline void input_importance(float *w)
{
    for (unsigned j = 0; j < R_COLS; j++)
        w[j] = 1 + (float)(37 * j % 101) / 16;
}

#define G_COUNT 16384

/* Inverse of the normal distribution function: bisection, then Newton's steps. */
static inline double normal_quantile(double p)
{
    double lo = -9, hi = 9;
    for (unsigned i = 0; i < 40; i++) {
        double mid = (lo + hi) / 2;
        if (0.5 * erfc(-mid * 0.70710678118654752440) < p)
            lo = mid;
        else
            hi = mid;
    }
    double x = (lo + hi) / 2;
    for (unsigned i = 0; i < 3; i++) {
        double f = 0.5 * erfc(-x * 0.70710678118654752440) - p;
        x -= f / (exp(-x * x / 2) * 0.39894228040143267794);
    }
    return x;
}

static inline void input_g(float *x)
{
    for (unsigned i = 0; i < G_COUNT; i++) {
        double p = (6151u * i % G_COUNT + 0.5) / G_COUNT;
        x[i] = (float)(p < 0.5 ? normal_quantile(p) : -normal_quantile(1 - p));
    }
}

static inline void input_t(float *x, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        x[i] = (float)(0.1 + 2 * cos((double)i));
}

#endif
