/* SPDX-License-Identifier: Apache-2.0 */
/* partition.c: contiguous layers onto stages, exactly, by dynamic programming from the
 * back.
 *
 * best[k][i] is the least worst time of stages k … for layers i …. In a stage's end the
 * stage's own time grows and what is left falls, so the best end is found by bisection:
 * O(p L log L). */
#include <math.h>
#include <stdlib.h>
#include "tensorutils/sched/split.h"

struct dp {
    const struct tu_partition *q;
    int64_t *sum, *mem; /* [layers+1]: prefix sums */
    double *best;       /* [stages+1][layers+1] */
    bool empty;         /* stages may be without layers */
};

static double time_of(const struct dp *d, size_t k, size_t i, size_t j)
{
    const struct tu_partition *q = d->q;
    int64_t c = d->sum[j] - d->sum[i] + (k == 0 ? q->first : 0) +
                (k + 1 == q->stages ? q->last : 0);
    return q->speed ? (double)c / q->speed[k] : (double)c;
}

/* The furthest end of stage k from layer i that memory allows and that leaves a layer for
 * each stage after it, unless those may be empty; may be below i. */
static size_t furthest(const struct dp *d, size_t k, size_t i)
{
    const struct tu_partition *q = d->q;
    size_t after = q->stages - 1 - k;
    size_t end = d->empty ? q->layers : q->layers - after;
    if (!d->mem)
        return end;
    size_t lo = i, hi = end;
    while (lo < hi) {
        size_t mid = (lo + hi + 1) / 2;
        if (d->mem[mid] - d->mem[i] <= q->cap[k])
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static size_t nearest(const struct dp *d, size_t i)
{
    return i + (d->empty ? 0 : 1);
}

/* Least over j of max(time of k over [i,j), best[k+1][j]). */
static double least(const struct dp *d, size_t k, size_t i)
{
    size_t width = d->q->layers + 1, lo = nearest(d, i), hi = furthest(d, k, i);
    const double *next = d->best + (k + 1) * width;
    if (lo > hi || i > d->q->layers)
        return INFINITY;
    size_t a = lo, b = hi;
    while (a < b) { /* first j whose own time is at least what is left */
        size_t mid = (a + b) / 2;
        if (time_of(d, k, i, mid) >= next[mid])
            b = mid;
        else
            a = mid + 1;
    }
    double best = fmax(time_of(d, k, i, a), next[a]);
    if (a > lo)
        best = fmin(best, fmax(time_of(d, k, i, a - 1), next[a - 1]));
    return best;
}

/* The first stage that cannot hold what is left for it, filling greedily. */
static int complain(const struct dp *d, struct tu_err *err)
{
    size_t i = 0;
    for (size_t k = 0; k < d->q->stages; k++) {
        size_t j = furthest(d, k, i);
        if (j < nearest(d, i))
            return tu_fail(
                err, TU_EUSAGE,
                "partition: stage %zu: layer %zu alone needs %lld of memory, the cap "
                "is %lld",
                k, i, (long long)(d->mem[i + 1] - d->mem[i]), (long long)d->q->cap[k]);
        i = j;
    }
    return tu_fail(
        err, TU_EUSAGE,
        "partition: stage %zu: %zu layers are left over when every stage is full",
        d->q->stages - 1, d->q->layers - i);
}

static int sums(struct dp *d, struct tu_err *err)
{
    const struct tu_partition *q = d->q;
    d->sum = tu_calloc(q->layers + 1, sizeof *d->sum, err);
    d->mem = q->memory ? tu_calloc(q->layers + 1, sizeof *d->mem, err) : NULL;
    d->best = tu_alloc(q->stages + 1, (q->layers + 1) * sizeof *d->best, err);
    if (!d->sum || !d->best || (q->memory && !d->mem))
        return TU_ENOMEM;
    for (size_t i = 0; i < q->layers; i++) {
        if (q->cost[i] < 0 ||
            __builtin_add_overflow(d->sum[i], q->cost[i], &d->sum[i + 1]))
            return tu_fail(err, TU_EUSAGE,
                           "partition: layer %zu: a cost that is negative or "
                           "too large",
                           i);
        if (d->mem && (q->memory[i] < 0 || __builtin_add_overflow(d->mem[i], q->memory[i],
                                                                  &d->mem[i + 1])))
            return tu_fail(err, TU_EUSAGE,
                           "partition: layer %zu: a size that is negative or too large", i);
    }
    int64_t most = d->sum[q->layers];
    if (q->first < 0 || q->last < 0 || __builtin_add_overflow(most, q->first, &most) ||
        __builtin_add_overflow(most, q->last, &most))
        return tu_fail(err, TU_EUSAGE,
                       "partition: costs are negative, or too large to be added");
    return 0;
}

static int check(const struct tu_partition *q, struct tu_err *err)
{
    if (!q->stages || !q->layers || q->stages > 65535 || q->layers > 1000000 ||
        q->stages * q->layers > 50000000)
        return tu_fail(err, TU_EUSAGE,
                       "partition: %zu layers in %zu stages: not between 1 and "
                       "the limit",
                       q->layers, q->stages);
    for (size_t k = 0; q->speed && k < q->stages; k++)
        if (!(q->speed[k] > 0) || !isfinite(q->speed[k]))
            return tu_fail(err, TU_EUSAGE,
                           "partition: stage %zu: its speed must be positive", k);
    return 0;
}

/* Fill best[][]; the least worst time of all, INFINITY when nothing fits. */
static double solve(struct dp *d, bool empty)
{
    size_t layers = d->q->layers, width = layers + 1;
    d->empty = empty;
    for (size_t j = 0; j <= layers; j++)
        d->best[d->q->stages * width + j] = j == layers ? 0 : INFINITY;
    for (size_t k = d->q->stages; k-- > 0;)
        for (size_t j = 0; j <= layers; j++)
            d->best[k * width + j] = least(d, k, j);
    return d->best[0];
}

/* The lexicographically least counts that reach `worst`. */
static void choose(const struct dp *d, double worst, size_t *count)
{
    size_t i = 0, width = d->q->layers + 1;
    for (size_t k = 0; k < d->q->stages; k++) {
        size_t lo = nearest(d, i), hi = furthest(d, k, i);
        while (lo < hi &&
               fmax(time_of(d, k, i, lo), d->best[(k + 1) * width + lo]) > worst)
            lo++;
        count[k] = lo - i;
        i = lo;
    }
}

int tu_partition_find(const struct tu_partition *q, size_t *count, double *worst,
                      struct tu_err *err)
{
    struct dp d = {.q = q};
    bool few = q->layers < q->stages;
    int rc = check(q, err);
    if (!rc)
        rc = sums(&d, err);
    if (!rc) {
        *worst = solve(&d, few);
        if (q->empty && !few) {
            double with = solve(&d, true);
            if (with < *worst)
                *worst = with;
            else
                solve(&d, false);
        }
        if (isfinite(*worst))
            choose(&d, *worst, count);
        else
            rc = complain(&d, err);
    }
    tu_free(d.sum);
    tu_free(d.mem);
    tu_free(d.best);
    return rc;
}
