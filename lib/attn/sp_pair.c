/* SPDX-License-Identifier: Apache-2.0 */
/* sp_pair.c: one block of queries against one block of keys, wherever they lie in the
 * whole.
 *
 * Masks, slopes, dropout and biases are asked by global indices, so no scheme has to
 * forbid them. Sinks join later, once. */
#include <string.h>
#include "attn/sp.h"

void *tui_sp_alloc(const struct tui_shard *s, uint64_t n, size_t size, struct tu_err *err)
{
    return tu_arena_alloc(s->arena, n, size, err);
}

static struct tu_rows rows(const void *data, uint32_t dtype, size_t e, uint64_t heads,
                           uint64_t n, uint64_t dim)
{
    return (struct tu_rows){.data = (unsigned char *)data,
                            .dtype = dtype,
                            .elem = (uint32_t)e,
                            .dim = dim,
                            .batch = (int64_t)(heads * n * dim),
                            .token = (int64_t)dim,
                            .head = (int64_t)(n * dim)};
}

/* The pair as a problem of its own; seq [batch] is the caller's. */
static void problem(struct tu_attn *a, struct tu_attn_seq *seq, const struct tui_shard *s,
                    const unsigned char *q, const int64_t *q_at, uint64_t nq,
                    const unsigned char *kv, const int64_t *k_at, uint64_t nk)
{
    const struct tu_attn *all = s->all;
    *a = *all;
    a->arena = NULL;
    a->batch = s->batch;
    a->hq = s->hq;
    a->hkv = s->hkv;
    a->sq_max = nq;
    a->sk_max = nk;
    a->page = 0;
    a->q = rows(q, all->q.dtype, s->e, s->hq, nq, all->d);
    a->k = rows(kv, all->q.dtype, s->e, s->hkv, nk, all->d);
    a->v = rows(kv + s->batch * s->hkv * nk * all->d * s->e, all->q.dtype, s->e, s->hkv,
                nk, all->dv);
    a->q_at = q_at;
    a->k_at = k_at;
    a->seq = seq;
    a->lse_head = nq;
    a->lse_dtype = TU_F32;
    a->h_first = s->h0 + s->b0 * all->hq;
    a->h_all = all->hq;
    a->sinks = a->dlse = NULL;
    a->dsink = a->dbias = a->dslope = NULL;
    int64_t b0 = (int64_t)s->b0, h0 = (int64_t)s->h0;
    if (a->slopes)
        a->slopes += b0 * (int64_t)a->slopes_batch + h0;
    if (a->mask)
        a->mask += b0 * a->mask_at[0] + h0 * a->mask_at[1];
    if (a->bias)
        a->bias += b0 * a->bias_at[0] + h0 * a->bias_at[1];
    if (a->blocks)
        a->blocks += b0 * a->blocks_at[0] + h0 * a->blocks_at[1];
    if (a->docs)
        a->docs += b0 * (int64_t)a->docs_n;
    for (uint64_t b = 0; b < s->batch; b++)
        seq[b] = (struct tu_attn_seq){.q_batch = b,
                                      .sq = nq,
                                      .k_batch = b,
                                      .sk = nk,
                                      .lse_at = b * s->hq * nq,
                                      .off = all->seq[s->b0 + b].off,
                                      .prefix = all->seq[s->b0 + b].prefix};
}

int tui_sp_forward(const struct tui_shard *s, const unsigned char *q, const int64_t *q_at,
                   uint64_t nq, const unsigned char *kv, const int64_t *k_at, uint64_t nk,
                   float *o, float *lse, struct tu_err *err)
{
    struct tu_attn a;
    struct tu_attn_seq *seq = tu_alloc(s->batch, sizeof *seq, err);
    if (!seq)
        return TU_ENOMEM;
    problem(&a, seq, s, q, q_at, nq, kv, k_at, nk);
    a.o = rows(o, TU_F32, sizeof(float), s->hq, nq, a.dv);
    a.lse = lse;
    int code = tu_attn_forward(&a, NULL, err);
    tu_free(seq);
    return code;
}

int tui_sp_backward(const struct tui_shard *s, const struct tui_queries *q,
                    const unsigned char *kv, const int64_t *k_at, uint64_t nk, float *dq,
                    float *dk, float *dv, struct tu_err *err)
{
    struct tu_attn a;
    struct tu_attn_seq *seq = tu_alloc(s->batch, sizeof *seq, err);
    if (!seq)
        return TU_ENOMEM;
    problem(&a, seq, s, q->q, q->at, q->n, kv, k_at, nk);
    a.o = rows(q->o, TU_F32, sizeof(float), s->hq, q->n, a.dv);
    a.dout = rows(q->dout, a.q.dtype, s->e, s->hq, q->n, a.dv);
    a.lse = (void *)q->lse;
    a.dq = rows(dq, TU_F32, sizeof(float), s->hq, q->n, a.d);
    a.dk = rows(dk, TU_F32, sizeof(float), s->hkv, nk, a.d);
    a.dv_ = rows(dv, TU_F32, sizeof(float), s->hkv, nk, a.dv);
    int code = tu_attn_backward(&a, NULL, err);
    tu_free(seq);
    return code;
}
