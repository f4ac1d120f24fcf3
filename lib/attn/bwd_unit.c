/* SPDX-License-Identifier: Apache-2.0 */
/* bwd_unit.c: one tile of keys against all queries that see it. */
#include <math.h>
#include <string.h>
#include "attn/bwd.h"

/* Keys and values of a tile as A operands, and the keys turned. */
static int load_tile(struct tui_back *p, struct tui_back_work *w,
                     const struct tui_block *t, uint64_t j0, uint64_t nj,
                     struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    const struct tui_ops *ops = p->ops;
    int code = tui_load_keys(a, &a->k, t, j0, nj, w->rows, a->d, err);
    if (code || (code = tui_load_keys(a, &a->v, t, j0, nj, w->other, a->dv, err)))
        return code;
    if (!ops->finite(w->rows, nj * a->d) || !ops->finite(w->other, nj * a->dv))
        atomic_store(&p->odd, true);
    float *turned = ops->pack_a ? w->turned : w->kta;
    for (uint64_t j = 0; j < nj; j++)
        for (uint64_t x = 0; x < a->d; x++)
            turned[x * p->bc + j] = w->rows[j * a->d + x];
    if (ops->pack_a) {
        ops->pack_a(w->ka, p->dk, w->rows, a->d, nj, a->d);
        ops->pack_a(w->va, p->dvk, w->other, a->dv, nj, a->dv);
        ops->pack_a(w->kta, p->bc, turned, p->bc, a->d, nj);
    } else {
        memcpy(w->ka, w->rows, nj * a->d * sizeof(float));
        memcpy(w->va, w->other, nj * a->dv * sizeof(float));
    }
    return 0;
}

/* Keep factors of a tile: 0 or 1/(1-p), element (query r, key c) at keep[c · br + r]. */
static void load_keep(const struct tui_back *p, struct tui_back_work *w,
                      const struct tui_block *t, uint64_t j0, uint64_t nj)
{
    float kept = (float)(1 / (1 - p->a->opt.dropout));
    for (uint64_t r = 0; r < t->ni; r++) {
        tui_keep_row(p->a, t->b, t->h0, t->i0 + r, j0, nj, w->bits);
        for (uint64_t c = 0; c < nj; c++)
            w->keep[c * p->br + r] = w->bits[c] ? kept : 0;
    }
}

/* S', P', dP', dS' of one tile of queries. */
static void gradient_tile(struct tui_back *p, struct tui_back_work *w,
                          const struct tui_block *t, uint64_t at, uint64_t j0,
                          uint64_t nj, bool edge)
{
    const struct tu_attn *a = p->a;
    const unsigned char *q = p->packed + at * p->tile_bytes;
    bool cap = a->opt.softcap > 0, drop = a->opt.dropout > 0;
    p->ops->gemm(w->s, p->br, w->ka, p->dk, q, nj, p->br, p->dk, false);
    p->ops->gemm(w->dp, p->br, w->va, p->dvk, q + p->qt_bytes + p->qn_bytes, nj, p->br,
                 p->dvk, false);
    if (p->logits)
        tui_logits(a, t, 0, t->ni, j0, nj, w->s, 1, p->br, cap ? w->chain : NULL);
    if (edge)
        tui_hide(a, t, 0, t->ni, j0, nj, w->s, 1, p->br);
    if (drop)
        load_keep(p, w, t, j0, nj);
    struct tui_grad x = {w->s,
                         w->dp,
                         p->br,
                         nj,
                         p->br,
                         (float)(p->logits ? LOG2E : LOG2E * a->scale),
                         p->lse2 + at * p->br,
                         p->delta + at * p->br,
                         drop ? w->keep : NULL,
                         cap ? w->chain : NULL};
    p->ops->grad(&x);
}

/* dV += P' dO, dK += dS' Q, dQ' += K' dS'. */
static void products(struct tui_back *p, struct tui_back_work *w, uint64_t at,
                     uint64_t nj, float *dq)
{
    const struct tui_ops *ops = p->ops;
    const unsigned char *q = p->packed + at * p->tile_bytes;
    const unsigned char *qn = q + p->qt_bytes, *on = qn + p->qn_bytes + p->ot_bytes;
    const void *pa = w->s, *dsa = w->dp;
    if (ops->pack_a) {
        ops->pack_a(w->pa, p->br, w->s, p->br, nj, p->br);
        ops->pack_a(w->dsa, p->br, w->dp, p->br, nj, p->br);
        pa = w->pa;
        dsa = w->dsa;
    }
    ops->gemm(w->dv, p->dvn, pa, p->br, on, nj, p->dvn, p->br, true);
    ops->gemm(w->dk, p->dn, dsa, p->br, qn, nj, p->dn, p->br, true);
    ops->pack_b(w->dsb, w->dp, p->br, nj, p->br);
    ops->gemm(dq, p->br, w->kta, p->bc, w->dsb, p->a->d, p->br, tui_pad(nj, ops->kpad),
              true);
}

static int store_tile(const struct tui_back *p, struct tui_back_work *w,
                      const struct tui_block *t, uint64_t j0, uint64_t nj,
                      struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    const struct tu_attn_seq *s = &a->seq[t->b];
    int code = 0;
    for (uint64_t j = 0; !code && j < nj; j++) {
        float *row = w->dk + j * p->dn;
        for (uint64_t x = 0; x < a->d; x++)
            row[x] *= (float)a->scale;
        if (a->dk.data)
            code = tu_cast(a->dk.dtype, tui_k_row(a, &a->dk, s, j0 + j, t->hkv), TU_F32,
                           row, a->d, err);
        if (!code && a->dv_.data)
            code = tu_cast(a->dv_.dtype, tui_k_row(a, &a->dv_, s, j0 + j, t->hkv), TU_F32,
                           w->dv + j * p->dvn, a->dv, err);
    }
    return code;
}

int tui_back_keys(struct tui_back *p, struct tui_back_work *w, uint64_t pair,
                  uint64_t tile, float *dq, struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    struct tui_block t = tui_back_pair(p, pair);
    const struct tu_attn_seq *s = &a->seq[t.b];
    uint64_t j0 = tile * p->bc, nj = tu_min(p->bc, s->sk - j0), g = a->hq / a->hkv;
    uint64_t per_head = tu_max(1, tu_ceil_div(a->sq_max, p->br));
    int code = load_tile(p, w, &t, j0, nj, err);
    if (code)
        return code;
    memset(w->dk, 0, tui_pad(nj, p->ops->mpad) * p->dn * sizeof *w->dk);
    memset(w->dv, 0, tui_pad(nj, p->ops->mpad) * p->dvn * sizeof *w->dv);
    for (uint64_t x = 0; x < p->q_tiles; x++) {
        t.h0 = t.hkv * g + x / per_head;
        t.i0 = x % per_head * p->br;
        if (t.i0 >= s->sq)
            continue;
        t.ni = tu_min(p->br, s->sq - t.i0);
        enum tui_tile kind = tui_tile(a, &t, j0, nj);
        if (kind == TUI_EMPTY)
            continue;
        gradient_tile(p, w, &t, pair * p->q_tiles + x, j0, nj, kind == TUI_EDGE);
        products(p, w, pair * p->q_tiles + x, nj, dq + x * p->dm * p->br);
    }
    return store_tile(p, w, &t, j0, nj, err);
}
