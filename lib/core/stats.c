/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c: order statistics of samples.
 *
 * The interval of the median makes no assumption about the distribution: between the kth
 * smallest and the kth largest of n lies the median unless fewer than k samples fell on
 * one side of it, which is a binomial event. Source: W. Conover, "Practical Nonparametric
 * Statistics", 3.2. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "tensorutils/core/stats.h"

/* Ascending, NaN last. */
static int compare(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

/* v is sorted, n > 0, 0 <= q <= 1. */
static double quantile(const double *v, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? v[i] + (v[i + 1] - v[i]) * (at - (double)i) : v[n - 1];
}

/* Largest k >= 1 with 2 P(Binomial(n, 1/2) < k) <= 5 %, or 1 where there is none. */
static size_t interval_rank(size_t n)
{
    if (n > 1000) {
        double k = floor(0.5 * (double)n - 0.98 * sqrt((double)n));
        return (size_t)k;
    }
    double term = ldexp(1, -(int)n), sum = term; /* P(0), P(< 1) */
    size_t k = 1;
    for (; k < n / 2; k++) {
        term *= (double)(n - k + 1) / (double)k;
        sum += term;
        if (2 * sum > 0.05)
            break;
    }
    return k;
}

void tu_stats_of(double *v, size_t n, struct tu_stats *out)
{
    if (n == 0) {
        *out = (struct tu_stats){0, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
        return;
    }
    qsort(v, n, sizeof *v, compare);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    size_t k = interval_rank(n);
    *out = (struct tu_stats){
        .n = n,
        .min = v[0],
        .max = v[n - 1],
        .mean = mean,
        .median = quantile(v, n, 0.5),
        .p5 = quantile(v, n, 0.05),
        .p95 = quantile(v, n, 0.95),
        .stddev = n > 1 ? sqrt(squares / (double)(n - 1)) : 0,
        .ci_lo = v[k - 1],
        .ci_hi = v[n - k],
    };
}

double tu_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
