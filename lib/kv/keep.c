/* SPDX-License-Identifier: Apache-2.0 */
/* keep.c: which tokens stay when a cache is cut down. A method scores tokens; the highest
 * stay, the lower index first among equals. Sources: StreamingLLM, arXiv 2309.17453;
 * knorm, arXiv 2406.11430; keydiff, arXiv 2504.15364; H2O, arXiv 2306.14048; SnapKV,
 * arXiv 2404.14469. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/kv/codec.h>

struct work {
    uint64_t T, kept, cols, queries;
    const float *k, *attn;
    const struct tu_spec *spec;
    double *score; /* [T] */
};

static int streaming(struct work *w, struct tu_err *err)
{
    uint64_t sinks;
    int rc = tu_spec_u64(w->spec, "sinks", 4, &sinks, err);
    for (uint64_t t = 0; !rc && t < w->T; t++)
        w->score[t] = t < sinks ? INFINITY : (double)t;
    return rc;
}

static double norm_of(const struct work *w, uint64_t t)
{
    double sum = 0;
    for (uint64_t c = 0; c < w->cols; c++)
        sum += (double)w->k[t * w->cols + c] * (double)w->k[t * w->cols + c];
    return sqrt(sum);
}

static int knorm(struct work *w, struct tu_err *err)
{
    (void)err;
    for (uint64_t t = 0; t < w->T; t++)
        w->score[t] = -norm_of(w, t);
    return 0;
}

static int keydiff(struct work *w, struct tu_err *err)
{
    double *mean = tu_calloc((size_t)w->cols, sizeof *mean, err), length = 0;
    if (!mean)
        return TU_ENOMEM;
    for (uint64_t t = 0; t < w->T; t++) {
        double n = norm_of(w, t);
        for (uint64_t c = 0; n > 0 && c < w->cols; c++)
            mean[c] += (double)w->k[t * w->cols + c] / n;
    }
    for (uint64_t c = 0; c < w->cols; c++)
        length += mean[c] * mean[c];
    for (uint64_t t = 0; t < w->T; t++) {
        double dot = 0, n = norm_of(w, t) * sqrt(length);
        for (uint64_t c = 0; c < w->cols; c++)
            dot += (double)w->k[t * w->cols + c] * mean[c];
        w->score[t] = n > 0 ? -dot / n : 0;
    }
    tu_free(mean);
    return 0;
}

/* Attention that a token got, over the queries that could see it when `mean`. */
static int h2o(struct work *w, struct tu_err *err)
{
    (void)err;
    bool mean = tu_spec_get(w->spec, "mean") != NULL;
    for (uint64_t t = 0; t < w->T; t++) {
        double sum = 0;
        for (uint64_t i = 0; i < w->queries; i++)
            sum += (double)w->attn[i * w->T + t];
        uint64_t see = w->queries + t > w->T ? w->T - t : w->queries;
        w->score[t] = mean ? sum / (double)tu_max(tu_min(see, w->queries), 1) : sum;
    }
    return 0;
}

/* The last queries' attention to what is before them, averaged over neighbours. */
static int snapkv(struct work *w, struct tu_err *err)
{
    uint64_t window, pool;
    int rc = tu_spec_u64(w->spec, "window", 64, &window, err);
    if (!rc)
        rc = tu_spec_u64(w->spec, "pool", 5, &pool, err);
    if (rc)
        return rc;
    window = tu_min(window, tu_min(w->T, w->queries));
    if (!pool || pool % 2 == 0)
        return tu_fail(err, TU_EUSAGE, "snapkv: pool=%" PRIu64 " is not odd", pool);
    uint64_t before = w->T - window;
    double *mean = tu_calloc((size_t)w->T, sizeof *mean, err);
    if (!mean)
        return TU_ENOMEM;
    for (uint64_t t = 0; t < before; t++)
        for (uint64_t i = w->queries - window; i < w->queries; i++)
            mean[t] += (double)w->attn[i * w->T + t] / (double)window;
    for (uint64_t t = 0; t < w->T; t++) {
        double sum = 0;
        for (uint64_t j = 0; j < pool; j++)
            if (t + j >= pool / 2 && t + j - pool / 2 < before)
                sum += mean[t + j - pool / 2];
        w->score[t] = t < before ? sum / (double)pool : INFINITY;
    }
    tu_free(mean);
    return 0;
}

static const struct method {
    const char *name, *help;
    const char *const *key;
    bool attention;
    int (*score)(struct work *w, struct tu_err *err);
} methods[] = {
    {"streaming", "the first tokens and the last; sinks=",
     (const char *const[]){"sinks", NULL}, false, streaming},
    {"knorm", "the smallest keys", NULL, false, knorm},
    {"keydiff", "the keys least like the mean of all", NULL, false, keydiff},
    {"h2o", "those with the most attention (record attn.N); mean",
     (const char *const[]){"mean", NULL}, true, h2o},
    {"snapkv", "those that the last queries look at (record attn.N); window= pool=",
     (const char *const[]){"window", "pool", NULL}, true, snapkv},
};

const char *tu_kv_keep_list(size_t i, const char **help)
{
    if (i >= sizeof methods / sizeof *methods)
        return NULL;
    *help = methods[i].help;
    return methods[i].name;
}

struct ranked {
    double score;
    uint64_t at;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int tu_kv_keep(const struct tu_spec *method, uint64_t T, uint64_t kept, const float *k,
               uint64_t heads, uint64_t dim, const float *attn, uint64_t queries,
               uint64_t *keep, struct tu_err *err)
{
    static const char *const none[] = {NULL};
    const struct method *m = NULL;
    char text[88];
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i].name, method->name))
            m = &methods[i];
    if (!m)
        return tu_fail(err, TU_EUSAGE, "keep '%s': unknown (see --list=keep)",
                       tu_text_short(method->name, strlen(method->name), text));
    int rc = tu_spec_check(method, m->key ? m->key : none, err);
    if (!rc && m->attention && (!attn || !queries))
        rc = tu_fail(err, TU_EUSAGE,
                     "keep '%s' goes by attention: a record attn.N [heads, queries, T] or "
                     "[queries, T] is needed", m->name);
    if (rc)
        return rc;
    struct work w = {.T = T, .kept = kept, .cols = heads * dim, .queries = queries, .k = k,
                     .attn = attn, .spec = method};
    struct ranked *r = tu_alloc((size_t)T, sizeof *r, err);
    w.score = r ? tu_alloc((size_t)T, sizeof *w.score, err) : NULL;
    rc = w.score ? m->score(&w, err) : TU_ENOMEM;
    for (uint64_t t = 0; !rc && t < T; t++)
        r[t] = (struct ranked){w.score[t], t};
    if (!rc) {
        qsort(r, (size_t)T, sizeof *r, by_score);
        for (uint64_t i = 0; i < tu_min(kept, T); i++)
            keep[i] = r[i].at;
        qsort(keep, (size_t)tu_min(kept, T), sizeof *keep, by_place);
    }
    tu_free(w.score);
    tu_free(r);
    return rc;
}

/* Loss ----------------------------------------------------------------------------------- */

static void distance(const float *a, const float *b, uint64_t n, double *rel, double *most)
{
    double dd = 0, aa = 0;
    *most = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)b[i] - (double)a[i];
        dd += d * d;
        aa += (double)a[i] * (double)a[i];
        *most = fmax(*most, fabs(d));
    }
    *rel = aa > 0 ? sqrt(dd / aa) : dd > 0 ? INFINITY : 0;
}

/* Weights of one query; returns the largest's index. */
static uint64_t weights(double *p, const float *q, const float *k, uint64_t T, uint64_t dk,
                        double scale)
{
    double top = -INFINITY, sum = 0;
    uint64_t best = 0;
    for (uint64_t t = 0; t < T; t++) {
        double s = 0;
        for (uint64_t c = 0; c < dk; c++)
            s += (double)q[c] * (double)k[t * dk + c];
        p[t] = s * scale;
        if (p[t] > top) {
            top = p[t];
            best = t;
        }
    }
    for (uint64_t t = 0; t < T; t++)
        sum += p[t] = exp(p[t] - top);
    for (uint64_t t = 0; t < T; t++)
        p[t] /= sum;
    return best;
}

int tu_kv_loss(struct tu_kv_loss *out, uint64_t T, uint64_t dk, uint64_t dv, const float *k,
               const float *v, const float *k2, const float *v2, const float *q, uint64_t nq,
               double scale, struct tu_err *err)
{
    double *p = tu_alloc((size_t)T, 2 * sizeof *p, err), dd = 0, oo = 0;
    *out = (struct tu_kv_loss){0};
    if (!p)
        return TU_ENOMEM;
    double *p2 = p + T;
    distance(k, k2, T * dk, &out->k_rel, &out->k_max);
    distance(v, v2, T * dv, &out->v_rel, &out->v_max);
    for (uint64_t i = 0; i < nq; i++) {
        uint64_t a = weights(p, q + i * dk, k, T, dk, scale);
        uint64_t b = weights(p2, q + i * dk, k2, T, dk, scale);
        out->top1 += a == b;
        for (uint64_t t = 0; t < T; t++)
            if (p[t] > 0)
                out->kl += p[t] * log(p[t] / fmax(p2[t], 1e-300));
        for (uint64_t c = 0; c < dv; c++) {
            double x = 0, y = 0;
            for (uint64_t t = 0; t < T; t++) {
                x += p[t] * (double)v[t * dv + c];
                y += p2[t] * (double)v2[t * dv + c];
            }
            dd += (y - x) * (y - x);
            oo += x * x;
        }
    }
    out->out_rel = oo > 0 ? sqrt(dd / oo) : dd > 0 ? INFINITY : 0;
    out->kl = nq ? fmax(out->kl / (double)nq, 0) : 0;
    out->top1 = nq ? out->top1 / (double)nq : 1;
    tu_free(p);
    return 0;
}
