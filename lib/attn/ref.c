/* SPDX-License-Identifier: Apache-2.0 */
/* ref.c: softmax attention in float64, forward and backward, as the formulas stand.
 *
 * The oracle of every kernel, so it shares nothing with them but where rows are:
 * visibility is asked key by key, softmax makes two passes. Not for speed. Source:
 * Vaswani et al., "Attention Is All You Need", 2017; gradients as in Dao,
 * "FlashAttention-2", 2023, section 3.1.2. */
#include <math.h>
#include <string.h>
#include "attn/mask.h"
#include "attn/scratch.h"

/* The definitions of the masks, one after the other, in global indices. */
static bool sees(const struct tu_attn *a, uint64_t b, uint64_t h, int64_t i, int64_t j)
{
    const struct tu_attn_opts *o = &a->opt;
    const struct tu_attn_seq *s = &a->seq[b];
    int64_t p = i + s->off, c = (int64_t)o->chunk;
    bool left = o->left < 0 || j >= p - o->left,
         right = o->right < 0 || j <= p + o->right;
    if (o->causal == TU_CAUSAL_BR || o->causal == TU_CAUSAL_TL)
        right = right && j <= p;
    if (o->chunk) {
        int64_t start = (int64_t)floor((double)p / (double)c) * c;
        left = left && j >= start;
        right = right && j < start + c && j <= p;
    }
    bool yes = (left && right) || (j < (int64_t)o->sink_tokens && right) ||
               j < (int64_t)s->prefix;
    if (yes && a->blocks)
        yes = a->blocks[(int64_t)b * a->blocks_at[0] + (int64_t)h * a->blocks_at[1] +
                        i / (int64_t)o->mask_q * a->blocks_at[2] +
                        j / (int64_t)o->mask_k * a->blocks_at[3]];
    if (yes && a->mask)
        yes = a->mask[(int64_t)b * a->mask_at[0] + (int64_t)h * a->mask_at[1] +
                      i * a->mask_at[2] + j * a->mask_at[3]];
    if (yes && a->docs)
        yes =
            p >= 0 && p < (int64_t)a->docs_n &&
            a->docs[b * a->docs_n + (uint64_t)p] == a->docs[b * a->docs_n + (uint64_t)j];
    return yes;
}

/* Memory of one task: a KV head of a sequence. */
struct scratch {
    double *k, *v;             /* [sk, d], [sk, dv] */
    double *dk, *dv;           /* the same, backward only */
    double *q, *o, *dout, *dq; /* one row */
    double *x, *p, *slow;      /* [sk]: logit, probability, derivative of the cap */
    struct tu_arena *arena;
};

static int scratch_init(struct scratch *w, const struct tu_attn *a, struct tu_err *err)
{
    const uint64_t n = tu_max(1, a->sk_max);
    const size_t e = sizeof(double);
    const struct tui_part part[] = {
        {&w->k, n * a->d, e},  {&w->v, n * a->dv, e},  {&w->dk, n * a->d, e},
        {&w->dv, n * a->dv, e}, {&w->q, a->d, e},       {&w->o, a->dv, e},
        {&w->dout, a->dv, e},  {&w->dq, a->d, e},      {&w->x, n, e},
        {&w->p, n, e},         {&w->slow, n, e},
    };
    return TUI_SCRATCH(&w->arena, part, err);
}

static int load(const struct tu_rows *r, const unsigned char *row, double factor,
                double *out, struct tu_err *err)
{
    int code = tu_to_double(r->dtype, row, out, r->dim, err);
    for (uint64_t t = 0; t < r->dim; t++)
        out[t] *= factor;
    return code;
}

static int store(const struct tu_rows *r, unsigned char *row, const double *v,
                 struct tu_err *err)
{
    return r->data ? tu_cast(r->dtype, row, TU_F64, v, r->dim, err) : 0;
}

static int load_keys(const struct tu_attn *a, uint64_t b, uint64_t hkv, struct scratch *w,
                     struct tu_err *err)
{
    const struct tu_attn_seq *s = &a->seq[b];
    double fk = tui_factor(a->k_scale, a, b, hkv), fv = tui_factor(a->v_scale, a, b, hkv);
    for (uint64_t j = 0; j < s->sk; j++) {
        int code = load(&a->k, tui_k_row(a, &a->k, s, j, hkv), fk, w->k + j * a->d, err);
        if (code || (code = load(&a->v, tui_k_row(a, &a->v, s, j, hkv), fv,
                                 w->v + j * a->dv, err)))
            return code;
    }
    return 0;
}

/* Final logits of a row into x, -inf where masked; slow receives 1 - tanh². */
static void logits(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t row,
                   struct scratch *w)
{
    const struct tu_attn_seq *s = &a->seq[b];
    int64_t i = tui_at(a->q_at, row), p = i + s->off;
    double cap = a->opt.softcap;
    for (uint64_t c = 0; c < s->sk; c++) {
        int64_t j = tui_at(a->k_at, c);
        double x = 0;
        w->slow[c] = 1;
        w->x[c] = -INFINITY;
        if (!sees(a, b, h, i, j))
            continue;
        for (uint64_t t = 0; t < a->d; t++)
            x += w->q[t] * w->k[c * a->d + t];
        x *= a->scale;
        if (cap > 0) {
            double y = tanh(x / cap);
            x = cap * y;
            w->slow[c] = 1 - y * y;
        }
        if (a->bias)
            x += (double)a->bias[(int64_t)b * a->bias_at[0] + (int64_t)h * a->bias_at[1] +
                                 i * a->bias_at[2] + j * a->bias_at[3]];
        if (a->slopes)
            x -= (double)a->slopes[b * a->slopes_batch + h] * fabs((double)(p - j));
        w->x[c] = x;
    }
}

/* 0 where dropped, 1/(1-p) where kept. */
static double keep(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i,
                   uint64_t c)
{
    if (a->opt.dropout == 0)
        return 1;
    return tui_keep(a, b, h, tui_at(a->q_at, i), tui_at(a->k_at, c)) /
           (1 - a->opt.dropout);
}

/* O and LSE of the row whose logits are in x; NaN among them makes all NaN. */
static double forward_row(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i,
                          struct scratch *w)
{
    uint64_t sk = a->seq[b].sk;
    double m = a->sinks ? (double)a->sinks[h] : -INFINITY, l = 0;
    for (uint64_t c = 0; c < sk; c++)
        m = isnan(w->x[c]) || w->x[c] > m ? w->x[c] : m;
    memset(w->o, 0, a->dv * sizeof *w->o);
    if (m == -INFINITY)
        return -INFINITY;
    if (a->sinks)
        l = exp((double)a->sinks[h] - m);
    for (uint64_t c = 0; c < sk; c++) {
        if (w->x[c] == -INFINITY)
            continue;
        double p = exp(w->x[c] - m), z = keep(a, b, h, i, c);
        l += p;
        for (uint64_t t = 0; t < a->dv; t++)
            if (z != 0)
                w->o[t] += p * z * w->v[c * a->dv + t];
    }
    for (uint64_t t = 0; t < a->dv; t++)
        w->o[t] /= l;
    return m + log(l);
}

static void put_lse(const struct tu_attn *a, uint64_t at, double v)
{
    if (a->lse && a->lse_dtype == TU_F64)
        ((double *)a->lse)[at] = v;
    else if (a->lse)
        ((float *)a->lse)[at] = (float)v;
}

static double get_lse(const struct tu_attn *a, uint64_t at)
{
    return a->lse_dtype == TU_F64 ? ((const double *)a->lse)[at]
                                  : (double)((const float *)a->lse)[at];
}

int tui_forward_ref_head(const struct tu_attn *a, uint64_t b, uint64_t hkv,
                         struct tu_err *err)
{
    uint64_t g = a->hq / a->hkv;
    const struct tu_attn_seq *s = &a->seq[b];
    struct scratch w;
    int code = scratch_init(&w, a, err);
    if (code || (code = load_keys(a, b, hkv, &w, err)))
        goto out;
    double fq = tui_factor(a->q_scale, a, b, hkv);
    for (uint64_t h = hkv * g; h < (hkv + 1) * g; h++)
        for (uint64_t i = 0; i < s->sq; i++) {
            if ((code = load(&a->q, tui_q_row(&a->q, s, i, h), fq, w.q, err)))
                goto out;
            logits(a, b, h, i, &w);
            put_lse(a, tui_lse_at(a, s, i, h), forward_row(a, b, h, i, &w));
            if ((code = store(&a->o, tui_q_row(&a->o, s, i, h), w.o, err)))
                goto out;
        }
out:
    tu_arena_free(w.arena);
    return code;
}

static int forward_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    const struct tu_attn *a = ctx;
    (void)worker;
    return tui_forward_ref_head(a, task / a->hkv, task % a->hkv, err);
}

int tu_attn_forward_ref(const struct tu_attn *a, const struct tu_job *job,
                        struct tu_err *err)
{
    return tu_pool_run(job ? job->pool : NULL, a->batch * a->hkv, forward_task, (void *)a,
                       err);
}

/* The gradient of every final logit of a row, and what hangs on it. */
static void backward_row(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i,
                         struct scratch *w)
{
    const struct tu_attn_seq *s = &a->seq[b];
    uint64_t at = tui_lse_at(a, s, i, h);
    double lse = get_lse(a, at), dlse = a->dlse ? (double)a->dlse[at] : 0, delta = 0;
    int64_t gi = tui_at(a->q_at, i), pos = gi + s->off;
    memset(w->dq, 0, a->d * sizeof *w->dq);
    if (lse == -INFINITY)
        return;
    for (uint64_t t = 0; t < a->dv; t++)
        delta += w->dout[t] * w->o[t];
    if (a->dsink && a->sinks)
        a->dsink[h] += (float)(exp((double)a->sinks[h] - lse) * (dlse - delta));
    for (uint64_t c = 0; c < s->sk; c++) {
        if (w->x[c] == -INFINITY)
            continue;
        double p = exp(w->x[c] - lse), z = keep(a, b, h, i, c), dp = 0;
        for (uint64_t t = 0; t < a->dv; t++) {
            w->dv[c * a->dv + t] += p * z * w->dout[t];
            dp += w->dout[t] * w->v[c * a->dv + t];
        }
        double dx = p * (z * dp - delta + dlse), ds = dx * w->slow[c] * a->scale;
        int64_t j = tui_at(a->k_at, c);
        if (a->dbias)
            a->dbias[(int64_t)b * a->bias_at[0] + (int64_t)h * a->bias_at[1] +
                     gi * a->bias_at[2] + j * a->bias_at[3]] += (float)dx;
        if (a->dslope)
            a->dslope[b * a->slopes_batch + h] -= (float)(dx * fabs((double)(pos - j)));
        for (uint64_t t = 0; t < a->d; t++) {
            w->dq[t] += ds * w->k[c * a->d + t];
            w->dk[c * a->d + t] += ds * w->q[t];
        }
    }
}

static int store_keys(const struct tu_attn *a, uint64_t b, uint64_t hkv,
                      struct scratch *w, struct tu_err *err)
{
    const struct tu_attn_seq *s = &a->seq[b];
    int code = 0;
    for (uint64_t j = 0; !code && j < s->sk; j++) {
        code = store(&a->dk, tui_k_row(a, &a->dk, s, j, hkv), w->dk + j * a->d, err);
        if (!code)
            code =
                store(&a->dv_, tui_k_row(a, &a->dv_, s, j, hkv), w->dv + j * a->dv, err);
    }
    return code;
}

static int backward_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    const struct tu_attn *a = ctx;
    uint64_t b = task / a->hkv, hkv = task % a->hkv, g = a->hq / a->hkv;
    const struct tu_attn_seq *s = &a->seq[b];
    struct scratch w;
    (void)worker;
    int code = scratch_init(&w, a, err);
    if (code || (code = load_keys(a, b, hkv, &w, err)))
        goto out;
    double fq = tui_factor(a->q_scale, a, b, hkv);
    for (uint64_t h = hkv * g; h < (hkv + 1) * g; h++)
        for (uint64_t i = 0; i < s->sq; i++) {
            if ((code = load(&a->q, tui_q_row(&a->q, s, i, h), fq, w.q, err)) ||
                (code = load(&a->o, tui_q_row(&a->o, s, i, h), 1, w.o, err)) ||
                (code = load(&a->dout, tui_q_row(&a->dout, s, i, h), 1, w.dout, err)))
                goto out;
            logits(a, b, h, i, &w);
            backward_row(a, b, h, i, &w);
            if ((code = store(&a->dq, tui_q_row(&a->dq, s, i, h), w.dq, err)))
                goto out;
        }
    code = store_keys(a, b, hkv, &w, err);
out:
    tu_arena_free(w.arena);
    return code;
}

int tu_attn_backward_ref(const struct tu_attn *a, const struct tu_job *job,
                         struct tu_err *err)
{
    /* Gradients of shared parameters are summed in one order: alone. */
    bool shared = a->dbias || a->dsink || a->dslope;
    return tu_pool_run(job && !shared ? job->pool : NULL, a->batch * a->hkv,
                       backward_task, (void *)a, err);
}
