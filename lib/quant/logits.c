/* SPDX-License-Identifier: Apache-2.0 */
/* logits.c: distributions of the next token, before and after.
 *
 * A row is one thread's, in the order of the vocabulary, and rows are summed in order: the
 * digits do not depend on the pool. */
#include "tensorutils/quant/logits.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

const double tu_spread_at[TU_SPREAD_QUANTILES] = {0.001, 0.01, 0.05, 0.1, 0.5,
                                                  0.9,   0.95, 0.99, 0.999};

/* log p of token i is logit i less `norm`. */
struct softmax {
    double norm;
    uint64_t top;
};

static int softmax_of(struct softmax *s, const float *v, uint64_t n, struct tu_err *err)
{
    double sum = 0;
    s->top = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(v[i]) || v[i] == INFINITY)
            return tu_fail(err, TU_EUNSUP, "column %" PRIu64 ": %s", i,
                           isnan(v[i]) ? "NaN" : "Inf");
        if (v[i] > v[s->top])
            s->top = i;
    }
    if (!n || v[s->top] == -INFINITY)
        return tu_fail(err, TU_EUNSUP, "no token has a probability");
    for (uint64_t i = 0; i < n; i++)
        sum += exp((double)v[i] - (double)v[s->top]);
    s->norm = (double)v[s->top] + log(sum);
    return 0;
}

static double divergence(const struct softmax *p, const float *base, const struct softmax *q,
                         const float *other, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double log_p = (double)base[i] - p->norm;
        if (base[i] != -INFINITY)
            sum += exp(log_p) * (log_p - ((double)other[i] - q->norm));
    }
    return fmax(sum, 0); /* what is below is rounding */
}

struct rows {
    const float *base, *other;
    const int64_t *next;
    uint64_t first, vocab;
    struct tu_logits_row *out;
};

static int compare_row(void *ctx, uint64_t i, unsigned worker, struct tu_err *err)
{
    const struct rows *r = ctx;
    const float *base = r->base + i * r->vocab, *other = r->other + i * r->vocab;
    struct softmax p, q;
    (void)worker;
    int rc = softmax_of(&p, base, r->vocab, err);
    if (!rc)
        rc = softmax_of(&q, other, r->vocab, err);
    if (!rc && r->next && (r->next[i] < 0 || (uint64_t)r->next[i] >= r->vocab))
        rc = tu_fail(err, TU_EUSAGE, "token %" PRId64 " of %" PRIu64, r->next[i], r->vocab);
    if (rc) {
        tu_err_prefix(err, "row %" PRIu64, r->first + i);
        return rc;
    }
    r->out[i] = (struct tu_logits_row){
        .kl = divergence(&p, base, &q, other, r->vocab),
        .same_top = p.top == q.top,
        .base_nll = r->next ? p.norm - (double)base[r->next[i]] : NAN,
        .nll = r->next ? q.norm - (double)other[r->next[i]] : NAN,
    };
    return 0;
}

int tu_logits_compare(const float *base, const float *other, const int64_t *next, uint64_t first,
                      uint64_t rows, uint64_t vocab, struct tu_logits_row *out,
                      struct tu_pool *pool, struct tu_err *err)
{
    struct rows r = {base, other, next, first, vocab, out};
    return tu_pool_run(pool, rows, compare_row, &r, err);
}

/* Sums ------------------------------------------------------------------------------------ */

/* Mean and its standard error. */
struct mean {
    double mean, error;
};

static struct mean mean_of(const double *v, uint64_t n)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i];
    const double mean = sum / (double)n;
    for (uint64_t i = 0; i < n; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    return (struct mean){mean, n > 1 ? sqrt(squares / (double)n / (double)(n - 1)) : 0};
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v. */
static void spread_of(struct tu_spread *s, double *v, uint64_t n)
{
    const struct mean m = mean_of(v, n);
    qsort(v, (size_t)n, sizeof *v, by_value);
    *s = (struct tu_spread){.mean = m.mean, .error = m.error, .min = v[0], .max = v[n - 1]};
    for (unsigned k = 0; k < TU_SPREAD_QUANTILES; k++) {
        const double at = tu_spread_at[k] * (double)(n - 1);
        const uint64_t i = (uint64_t)at, next = tu_min(i + 1, n - 1);
        const double part = at - (double)i;
        /* An end that is not finite stays out where it has no part. */
        s->quantile[k] = part > 0 ? (1 - part) * v[i] + part * v[next] : v[i];
    }
}

static double correlation(const struct tu_logits_row *row, uint64_t n, double base, double other)
{
    double xy = 0, x2 = 0, y2 = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double x = row[i].base_nll - base, y = row[i].nll - other;
        xy += x * y;
        x2 += x * x;
        y2 += y * y;
    }
    return xy / sqrt(x2 * y2);
}

static void sum_tokens(struct tu_logits_sum *out, const struct tu_logits_row *row, uint64_t n,
                       double *v)
{
    double squares = 0;
    for (uint64_t i = 0; i < n; i++)
        v[i] = row[i].base_nll;
    const double base = mean_of(v, n).mean;
    for (uint64_t i = 0; i < n; i++)
        v[i] = row[i].nll;
    const double other = mean_of(v, n).mean;
    for (uint64_t i = 0; i < n; i++)
        v[i] = row[i].nll - row[i].base_nll;
    const struct mean ratio = mean_of(v, n);
    for (uint64_t i = 0; i < n; i++) {
        v[i] = exp(-row[i].nll) - exp(-row[i].base_nll);
        squares += v[i] * v[i];
    }
    out->base_ppl = exp(base);
    out->ppl = exp(other);
    out->log_ratio = ratio.mean;
    out->log_ratio_error = ratio.error;
    out->correlation = correlation(row, n, base, other);
    out->change_rms = sqrt(squares / (double)n);
    spread_of(&out->change, v, n);
}

int tu_logits_sum(const struct tu_logits_row *row, uint64_t rows, struct tu_logits_sum *out,
                  struct tu_err *err)
{
    uint64_t same = 0;
    *out = (struct tu_logits_sum){.rows = rows, .known = true};
    if (!rows || rows >= TU_SIZE_MAX)
        return tu_fail(err, TU_EUSAGE, "%" PRIu64 " rows of logits", rows);
    double *v = tu_alloc((size_t)rows, sizeof *v, err);
    if (!v)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < rows; i++) {
        v[i] = row[i].kl;
        same += row[i].same_top;
        out->known &= !isnan(row[i].nll);
    }
    spread_of(&out->kl, v, rows);
    out->same_top = (double)same / (double)rows;
    if (rows > 1)
        out->same_top_error =
            sqrt(out->same_top * (1 - out->same_top) / (double)(rows - 1));
    if (out->known)
        sum_tokens(out, row, rows, v);
    tu_free(v);
    return 0;
}
