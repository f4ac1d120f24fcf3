/* SPDX-License-Identifier: Apache-2.0 */
/* tally.c: block by block, two passes over each block, blocks joined in order. */
#include "tensorutils/core/tally.h"

#include <math.h>
#include <stdbool.h>
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/dtype.h"
#include "tensorutils/core/float.h"
#include "tensorutils/core/mem.h"
#include "tensorutils/core/pool.h"

uint64_t tu_tally_finite(const struct tu_tally *t)
{
    return t->n - t->nans - t->infs;
}

double tu_tally_deviation(const struct tu_tally *t)
{
    const uint64_t n = tu_tally_finite(t);
    return n ? sqrt(t->m2 / (double)n) : 0;
}

void tu_tally_join(struct tu_tally *a, const struct tu_tally *b)
{
    const double na = (double)tu_tally_finite(a), nb = (double)tu_tally_finite(b);
    if (nb > 0) {
        const double delta = b->mean - a->mean, n = na + nb;
        a->min = na > 0 && a->min < b->min ? a->min : b->min;
        a->max = na > 0 && a->max > b->max ? a->max : b->max;
        a->m2 += b->m2 + delta * delta * (na / n * nb);
        a->mean = na > 0 ? a->mean + delta * (nb / n) : b->mean;
        if (na == 0)
            a->m2 = b->m2;
    }
    a->n += b->n;
    a->nans += b->nans;
    a->infs += b->infs;
    a->zeros += b->zeros;
}

static void tally_block(struct tu_tally *t, const double *v, size_t n)
{
    double sum = 0;
    *t = (struct tu_tally){.n = n};
    for (size_t i = 0; i < n; i++) {
        if (isnan(v[i])) {
            t->nans++;
            continue;
        }
        if (isinf(v[i])) {
            t->infs++;
            continue;
        }
        const bool first = i == t->nans + t->infs;
        t->zeros += v[i] == 0;
        t->min = first || v[i] < t->min ? v[i] : t->min;
        t->max = first || v[i] > t->max ? v[i] : t->max;
        sum += v[i];
    }
    const uint64_t finite = tu_tally_finite(t);
    t->mean = finite ? sum / (double)finite : 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i]))
            t->m2 += (v[i] - t->mean) * (v[i] - t->mean);
}

struct work {
    uint32_t dtype;
    const unsigned char *p;
    size_t n, block_bytes;
    unsigned parts;        /* doubles per element */
    struct tu_tally *out;  /* one per block */
    double *scratch;       /* one block per worker */
};

static int one_block(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    const struct work *w = ctx;
    const size_t first = (size_t)task * TU_TALLY_BLOCK;
    const size_t n = (size_t)tu_min(w->n - first, TU_TALLY_BLOCK);
    double *v = w->scratch + (size_t)worker * TU_TALLY_BLOCK * w->parts;
    int rc = tu_to_double(w->dtype, w->p + task * w->block_bytes, v, n, err);
    if (rc)
        return rc;
    tally_block(&w->out[task], v, n * w->parts);
    return 0;
}

int tu_tally_add(struct tu_tally *t, uint32_t dtype, const void *p, size_t n,
                 struct tu_pool *pool, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(dtype);
    if (!d || (d->code & TU_DTYPE_GGML))
        return tu_fail(err, TU_EDTYPE, "values of this dtype cannot be looked at");
    const size_t blocks = (size_t)tu_ceil_div(n, TU_TALLY_BLOCK);
    struct work w = {dtype, p, n, TU_TALLY_BLOCK / d->block_elems * d->block_bytes,
                     dtype == TU_C64 || dtype == TU_C128 ? 2 : 1, NULL, NULL};
    int rc = TU_ENOMEM;
    w.out = tu_alloc(blocks, sizeof *w.out, err);
    w.scratch = w.out ? tu_alloc(tu_pool_size(pool),
                                 sizeof(double) * w.parts * TU_TALLY_BLOCK, err)
                      : NULL;
    if (!w.scratch)
        goto out;
    rc = tu_pool_run(pool, blocks, one_block, &w, err);
    for (size_t i = 0; !rc && i < blocks; i++)
        tu_tally_join(t, &w.out[i]);
out:
    tu_free(w.scratch);
    tu_free(w.out);
    return rc;
}
