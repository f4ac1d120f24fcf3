/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c: what stands out in a matrix of costs; every pair is measured once in each
 * direction. */
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

#define N 6

static void fill(double *m)
{
    for (uint32_t i = 0; i < N * N; i++)
        m[i] = 1 + 0.05 * ((i * 7) % 5);
}

static struct tu_diagnosis judge(const double *m, uint32_t n)
{
    struct tu_diagnosis d;
    if (tu_pairs_judge(m, n, &d, NULL))
        abort();
    return d;
}

static unsigned seen[5][5];

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct tu_pair pair;
    (void)ctx;
    memcpy(&pair, p, n);
    if (pair.from == rank && pair.to < 5 && pair.latency > 0 && pair.rate > 0)
        seen[pair.from][pair.to]++;
}

static int in_rank(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    (void)ctx;
    return tu_pairs_run(r, 10000, 2, err);
}

int main(void)
{
    double m[N * N];
    struct tu_diagnosis d;
    fill(m);
    d = judge(m, N);
    ok(d.kind == TU_FINE, "nothing: %s", d.text);
    m[2 * N + 4] *= 3;
    d = judge(m, N);
    ok(d.kind == TU_SLOW_LINK && d.rank == 2 && d.peer == 4, "a cell: %s", d.text);
    fill(m);
    for (uint32_t i = 0; i < N; i++)
        m[3 * N + i] *= 2;
    d = judge(m, N);
    ok(d.kind == TU_SLOW_RANK && d.rank == 3 && strstr(d.text, "sends"), "a row: %s",
       d.text);
    fill(m);
    for (uint32_t i = 0; i < N; i++)
        m[i * N + 1] *= 2;
    d = judge(m, N);
    ok(d.kind == TU_SLOW_RANK && d.rank == 1 && strstr(d.text, "receives"),
       "a column: %s", d.text);
    d = judge(m, 2);
    ok(d.kind == TU_FINE, "two ranks have nothing to compare with");
    struct tu_group g = {
        .transport = "threads", .size = 5, .fn = in_rank, .post = posted};
    ok(!tu_group_run(&g, NULL), "five ranks");
    unsigned bad = 0;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++)
            bad += seen[i][k] != (i != k);
    eq_u64(bad, 0, "every pair once in each direction");
    return tap_done();
}
