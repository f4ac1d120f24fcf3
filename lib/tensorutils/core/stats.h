/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h: what a benchmark reports of its samples. */
#ifndef TENSORUTILS_CORE_STATS_H
#define TENSORUTILS_CORE_STATS_H

#include <stddef.h>
#include "attr.h"

TU_BEGIN

struct tu_stats {
    size_t n;
    double min, max, mean, median, p5, p95;
    double stddev; /* sample deviation (n-1), 0 for one sample */
    double ci_lo, ci_hi; /* 95 % interval of the median, from order statistics */
};

/* Sorts v[n] in place; n = 0 gives NaN everywhere. Percentiles interpolate linearly between
 * closest ranks (Hyndman and Fan 1996, type 7, numpy's default). */
TU_API void tu_stats_of(double *v, size_t n, struct tu_stats *out);
/* Seconds from a clock that only goes forward. */
TU_API double tu_clock(void);

TU_END

#endif
