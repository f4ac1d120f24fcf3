/* SPDX-License-Identifier: Apache-2.0 */
/* keep.c: which tokens of a cache stay: what the methods look at, gathered. */
#include <inttypes.h>
#include <string.h>
#include "kv-pack/pack.h"

/* The keys of all layers side by side, [T, columns of all], or the attention records
 * attn.N summed over layers and heads, [queries, T]. */
static int gather_keys(struct tu_kv *kv, float **out, uint64_t *cols, struct tu_err *err)
{
    uint64_t all = 0, at = 0, heads, dim;
    for (uint64_t l = 0; l < kv->info.layers; l++)
        if (kv->layer[l].k != TU_KV_NONE && kv->tensor[kv->layer[l].k].dim[0] == kv->tokens) {
            tu_kv_dims(kv, kv->layer[l].k, &heads, &dim);
            all += heads * dim;
        }
    *cols = all;
    int rc = (*out = tu_alloc((size_t)(kv->tokens * all), sizeof **out, err)) ? 0 : TU_ENOMEM;
    for (uint64_t l = 0; !rc && l < kv->info.layers; l++) {
        size_t i = kv->layer[l].k;
        void *x;
        if (i == TU_KV_NONE || kv->tensor[i].dim[0] != kv->tokens)
            continue;
        tu_kv_dims(kv, i, &heads, &dim);
        uint64_t n = heads * dim;
        float *f = tu_alloc((size_t)(kv->tokens * n), sizeof *f, err);
        rc = f ? tu_kv_load(kv, i, &x, err) : TU_ENOMEM;
        if (!rc) {
            rc = tu_kv_to_float(kv->tensor[i].dtype, x, f, kv->tokens * n, dim, err);
            tu_free(x);
        }
        for (uint64_t t = 0; !rc && t < kv->tokens; t++)
            memcpy(*out + t * all + at, f + t * n, (size_t)n * sizeof *f);
        at += n;
        tu_free(f);
    }
    return rc;
}

static int gather_attention(struct tu_kv *kv, float **out, uint64_t *queries,
                            struct tu_err *err)
{
    *out = NULL;
    *queries = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < kv->n; i++) {
        const struct tu_tensor *t = &kv->tensor[i];
        if (strncmp(t->name, "attn.", 5) != 0 || t->rank < 2 || t->rank > 3 ||
            t->dim[t->rank - 1] != kv->tokens)
            continue;
        uint64_t nq = t->dim[t->rank - 2], heads = t->rank == 3 ? t->dim[0] : 1;
        uint64_t n = nq * kv->tokens;
        void *x = NULL;
        float *f = tu_alloc((size_t)(n * heads), sizeof *f, err);
        if (!*out && f) {
            *out = tu_calloc((size_t)n, sizeof **out, err);
            *queries = nq;
        }
        rc = f && *out ? tu_kv_load(kv, i, &x, err) : TU_ENOMEM;
        if (!rc && *queries != nq)
            rc = tu_fail(err, TU_ESIZE, "'%s' has %" PRIu64 " queries, others %" PRIu64,
                         t->name, nq, *queries);
        if (!rc)
            rc = tu_to_float(t->dtype, x, f, (size_t)(n * heads), err);
        for (uint64_t k = 0; !rc && k < n * heads; k++)
            (*out)[k % n] += f[k];
        tu_free(x);
        tu_free(f);
    }
    return rc;
}

int kv_choose_tokens(struct tu_kv *kv, const char *method, uint64_t kept, uint64_t **keep,
                     struct tu_err *err)
{
    struct tu_spec spec;
    float *k = NULL, *attn = NULL;
    uint64_t cols = 0, queries = 0, T = kv->tokens;
    *keep = NULL;
    for (uint64_t l = 0; l < kv->info.layers; l++) {
        size_t i = kv->layer[l].k;
        if (i != TU_KV_NONE && kv->tensor[i].dim[0] != T)
            return tu_fail(err, TU_EUNSUP,
                           "'%s' has a window's last tokens alone: the same ones cannot be "
                           "left out everywhere",
                           kv->tensor[i].name);
    }
    int rc = tu_spec_parse(&spec, method, err);
    if (rc)
        return rc;
    rc = gather_keys(kv, &k, &cols, err);
    if (!rc)
        rc = gather_attention(kv, &attn, &queries, err);
    if (!rc && !(*keep = tu_alloc((size_t)T, sizeof **keep, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = tu_kv_keep(&spec, T, kept, k, 1, cols, attn, queries, *keep, err);
    tu_spec_release(&spec);
    tu_free(k);
    tu_free(attn);
    return rc;
}
