/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics against values from numpy and from tables of the median's interval. */
#include <math.h>
#include "../tap.h"
#include "tensorutils/core/stats.h"

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

static void test_small(void)
{
    struct tu_stats s;
    tu_stats_of(NULL, 0, &s);
    ok(s.n == 0 && isnan(s.median) && isnan(s.ci_lo) && isnan(s.stddev),
       "nothing is NaN");
    double one[] = {4};
    tu_stats_of(one, 1, &s);
    ok(s.min == 4 && s.max == 4 && s.median == 4 && s.p5 == 4, "one sample");
    ok(s.ci_lo == 4 && s.ci_hi == 4, "one sample is its interval");
    ok(s.stddev == 0, "one sample has no deviation");
    /* numpy.percentile([3,1,4,1,5], [5,50,95]) is 1, 3, 4.8, and its deviation with
     * ddof=1 is 1.7888543819998317. */
    double pi[] = {3, 1, 4, 1, 5};
    tu_stats_of(pi, 5, &s);
    ok(near(s.p5, 1) && near(s.median, 3) && near(s.p95, 4.8), "percentiles %g %g %g",
       s.p5, s.median, s.p95);
    ok(near(s.mean, 2.8) && near(s.stddev, 1.7888543819998317), "mean, deviation %.17g",
       s.stddev);
    ok(pi[0] == 1 && pi[4] == 5, "sorted in place");
}

/* Ranks of the 95 % interval of the median (J.-Y. Le Boudec, "Performance Evaluation of
 * Computer and Communication Systems", table A.1). */
static void test_interval(void)
{
    static const struct {
        size_t n, lo, hi;
    } row[] = {
        {6, 1, 6}, {7, 1, 7}, {8, 1, 8}, {9, 2, 8}, {10, 2, 9}, {12, 3, 10}, {15, 4, 12},
        {20, 6, 15}, {25, 8, 18}, {30, 10, 21}, {50, 18, 33}, {70, 27, 44},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        double v[100];
        struct tu_stats s;
        for (size_t k = 0; k < row[i].n; k++)
            v[k] = (double)(row[i].n - k);
        tu_stats_of(v, row[i].n, &s);
        ok(s.ci_lo == (double)row[i].lo && s.ci_hi == (double)row[i].hi,
           "interval of %zu samples is ranks %g to %g", row[i].n, s.ci_lo, s.ci_hi);
    }
    static double many[5000];
    struct tu_stats s;
    for (size_t k = 0; k < 5000; k++)
        many[k] = (double)k;
    tu_stats_of(many, 5000, &s);
    ok(s.ci_lo > 2425 && s.ci_lo < 2435 && s.ci_hi > 2564 && s.ci_hi < 2574,
       "interval of 5000 samples: %g to %g", s.ci_lo, s.ci_hi);
}

int main(void)
{
    test_small();
    test_interval();
    double before = tu_clock(), after = tu_clock();
    ok(after >= before && before > 0, "the clock goes forward");
    return tap_done();
}
