/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c: latency and bandwidth of every pair of ranks, and what stands out in the
 * matrix. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan.h"

#define TRIES 3
#define STANDS_OUT 1.5

/* `iters` round trips of n bytes, or n bytes one way so often and one answer; seconds. */
static int bounce(struct tu_rank *r, uint32_t peer, bool starts, bool answer_each,
                  void *buf, uint64_t n, uint64_t iters, double *seconds,
                  struct tu_err *err)
{
    double from = tu_clock();
    int code = 0;
    for (uint64_t i = 0; i < iters && !code; i++) {
        bool answer = answer_each || i + 1 == iters;
        code = starts ? tu_rank_send(r, peer, buf, n, err)
                      : tu_rank_recv(r, peer, buf, n, err);
        if (!code && answer)
            code = starts ? tu_rank_recv(r, peer, buf, 8, err)
                          : tu_rank_send(r, peer, buf, 8, err);
    }
    *seconds = tu_clock() - from;
    return code;
}

static int measure(struct tu_rank *r, uint32_t from, uint32_t to, void *buf,
                   uint64_t bytes, uint64_t iters, struct tu_err *err)
{
    bool starts = tu_rank_id(r) == from;
    uint32_t peer = starts ? to : from;
    struct tu_pair p = {.from = from, .to = to, .latency = INFINITY};
    double one_way = INFINITY, t;
    int code = tu_rank_begin(r, err);
    for (int i = 0; i < TRIES && !code; i++) {
        code = bounce(r, peer, starts, true, buf, 8, iters, &t, err);
        p.latency = fmin(p.latency, t / (2 * (double)iters));
        if (!code)
            code = bounce(r, peer, starts, false, buf, bytes, iters, &t, err);
        one_way = fmin(one_way, t / (double)iters);
    }
    p.rate = one_way > 0 ? (double)bytes / one_way : 0;
    return code || !starts ? code : tu_rank_post(r, &p, sizeof p, err);
}

int tu_pairs_run(struct tu_rank *r, uint64_t bytes, uint64_t iters, struct tu_err *err)
{
    uint32_t n = tu_rank_size(r), me = tu_rank_id(r);
    void *buf = tu_calloc(tu_max(bytes, 8), 1, err);
    int code = buf ? 0 : TU_ENOMEM;
    for (uint32_t i = 0; i < n && !code; i++)
        for (uint32_t j = 0; j < n && !code; j++) {
            if (i != j && (me == i || me == j))
                code = measure(r, i, j, buf, bytes, iters, err);
            if (i != j && !code)
                code = tu_rank_barrier(r, err);
        }
    tu_free(buf);
    return code;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of a row (step 1) or a column (step n) without the diagonal. */
static double middle(const double *cost, uint32_t n, uint32_t which, bool row, double *v)
{
    size_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (i != which)
            v[k++] = row ? cost[(size_t)which * n + i] : cost[(size_t)i * n + which];
    qsort(v, k, sizeof *v, by_value);
    return k % 2 ? v[k / 2] : (v[k / 2 - 1] + v[k / 2]) / 2;
}

int tu_pairs_judge(const double *cost, uint32_t n, struct tu_diagnosis *d,
                   struct tu_err *err)
{
    *d = (struct tu_diagnosis){.rank = TU_NOBODY, .peer = TU_NOBODY};
    snprintf(d->text, sizeof d->text, "fine: no pair stands out");
    if (n < 3)
        return 0;
    double *row = tu_alloc(4 * (size_t)n, sizeof *row, err), worst = 0;
    if (!row)
        return TU_ENOMEM;
    double *col = row + n, *v = row + 2 * (size_t)n, *sorted = row + 3 * (size_t)n;
    for (uint32_t i = 0; i < n; i++) {
        row[i] = middle(cost, n, i, true, v);
        col[i] = middle(cost, n, i, false, v);
    }
    for (int side = 0; side < 2;
         side++) { /* a rank: all that it sends, or all that it gets */
        const double *m = side ? col : row;
        memcpy(sorted, m, n * sizeof *m);
        qsort(sorted, n, sizeof *sorted, by_value);
        double usual = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
        for (uint32_t i = 0; i < n; i++) {
            if (m[i] > STANDS_OUT * usual && m[i] / usual > worst) {
                worst = m[i] / usual;
                d->kind = TU_SLOW_RANK;
                d->rank = i;
                snprintf(d->text, sizeof d->text,
                         "slow rank: rank %u %s %.2f times as slowly as "
                         "the middle rank",
                         (unsigned)i, side ? "receives" : "sends", worst);
            }
        }
    }
    double least = worst; /* a link explains more than a rank does, or it is the rank */
    worst = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            double expect = fmax(row[i], col[j]),
                   times = cost[(size_t)i * n + j] / expect;
            if (i != j && expect > 0 && times > fmax(fmax(STANDS_OUT, least), worst)) {
                worst = times;
                d->rank = i;
                d->peer = j;
            }
        }
    if (worst > 0) {
        d->kind = TU_SLOW_LINK;
        snprintf(d->text, sizeof d->text,
                 "slow link: %u to %u takes %.2f times what others of "
                 "its row and column do",
                 (unsigned)d->rank, (unsigned)d->peer, worst);
    }
    d->confidence = d->kind != TU_FINE;
    tu_free(row);
    return 0;
}
