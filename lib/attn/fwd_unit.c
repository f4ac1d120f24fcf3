/* SPDX-License-Identifier: Apache-2.0 */
/* fwd_unit.c: a tile of queries passes over its keys, in FlashAttention-2's order.
 *
 * Two kinds: over tiles that were packed once and are read by many units, and over keys
 * as they lie in memory, for so few queries that every key is read once. Source: Dao,
 * "FlashAttention-2", 2023, algorithm 1. */
#include <math.h>
#include <string.h>
#include "attn/fwd.h"

enum { PIECE = 64 }; /* rows whose logits stay in the first-level cache */

int tui_load_keys(const struct tu_attn *a, const struct tu_rows *r,
                  const struct tui_block *t, uint64_t j0, uint64_t n, float *out,
                  size_t ld, struct tu_err *err)
{
    const struct tu_attn_seq *s = &a->seq[t->b];
    if (!s->page && ld == r->dim && r->token == (int64_t)r->dim)
        return tu_to_float(r->dtype, tui_k_row(a, r, s, j0, t->hkv), out, n * ld, err);
    int code = 0;
    for (uint64_t j = 0; !code && j < n; j++)
        code = tu_to_float(r->dtype, tui_k_row(a, r, s, j0 + j, t->hkv), out + j * ld,
                           r->dim, err);
    return code;
}

int tui_load_queries(const struct tu_attn *a, const struct tu_rows *r,
                     const struct tui_block *t, float *out, size_t ld, struct tu_err *err)
{
    const struct tu_attn_seq *s = &a->seq[t->b];
    int code = 0;
    for (uint64_t x = 0; !code && x < t->nh * t->ni; x++)
        code = tu_to_float(r->dtype,
                           tui_q_row(r, s, tui_row_query(t, x), tui_row_head(t, x)),
                           out + x * ld, r->dim, err);
    return code;
}

void tui_drop(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
              uint64_t r0, uint64_t r1, uint64_t j0, uint64_t nj, void *prob, size_t ld,
              size_t elem)
{
    for (uint64_t r = r0; r < r1; r++) {
        unsigned char *row = (unsigned char *)prob + (r - r0) * ld * elem;
        tui_keep_row(p->a, u->rows.b, tui_row_head(&u->rows, r),
                     tui_row_query(&u->rows, r), j0, nj, w->keep);
        for (uint64_t c = 0; c < nj; c++)
            if (!w->keep[c])
                memset(row + c * elem, 0, elem);
    }
}

static int finish_row(const struct tui_plan *p, const struct tui_unit *u,
                      struct tui_work *w, uint64_t r, struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    const struct tui_block *t = &u->rows;
    const struct tu_attn_seq *s = &a->seq[t->b];
    uint64_t h = tui_row_head(t, r), i = tui_row_query(t, r);
    float *acc = w->acc + r * p->dvn;
    double l = (double)w->l[r], c = (double)w->c[r], join = 1;
    if (a->sinks && p->splits == 1 && !a->opt.deterministic) {
        double sink = (double)a->sinks[h] * LOG2E, top = c > sink ? c : sink;
        join = exp2(c - top);
        l = l * join + exp2(sink - top);
        c = top;
    }
    double f = l == 0 ? 0
                      : join / l / (1 - a->opt.dropout) *
                            tui_factor(a->v_scale, a, t->b, t->hkv);
    for (uint64_t x = 0; x < a->dv; x++)
        acc[x] *= (float)f;
    double lse = l == 0 ? -INFINITY : (c + log2(l)) * LN2;
    if (p->splits > 1) {
        memcpy(p->part_o + (u->part * p->br + r) * a->dv, acc, a->dv * sizeof *acc);
        p->part_lse[u->part * p->br + r] = (float)lse;
        return 0;
    }
    if (a->sinks && a->opt.deterministic) { /* as after a merge, for the same bits */
        float l32 = (float)lse;
        tu_attn_sink(acc, &l32, 1, a->dv, a->sinks[h]);
        lse = (double)l32;
    }
    uint64_t at = tui_lse_at(a, s, i, h);
    if (a->lse && a->lse_dtype == TU_F64)
        ((double *)a->lse)[at] = lse;
    else if (a->lse)
        ((float *)a->lse)[at] = (float)lse;
    return tu_cast(a->o.dtype, tui_q_row(&a->o, s, i, h), TU_F32, acc, a->dv, err);
}

int tui_finish(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
               struct tu_err *err)
{
    int code = 0;
    for (uint64_t r = 0; !code && r < u->rows.nh * u->rows.ni; r++)
        code = finish_row(p, u, w, r, err);
    return code;
}

static void start_rows(const struct tui_plan *p, struct tui_work *w, uint64_t rows)
{
    for (uint64_t r = 0; r < rows; r++) {
        w->c[r] = -INFINITY;
        w->l[r] = 0;
    }
    memset(w->acc, 0, tui_pad(rows, p->ops->mpad) * p->dvn * sizeof *w->acc);
}

/* What q·k still lacks to be a power of two. */
static float multiplier(const struct tui_plan *p, const struct tui_unit *u)
{
    return (float)(p->logits ? LOG2E : LOG2E * tui_scale(p->a, u->rows.b, u->rows.hkv));
}

/* Rows [r0, r1) of the unit against one key tile. */
static void piece(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
                  uint64_t r0, uint64_t r1, uint64_t tile, bool edge)
{
    const struct tui_ops *ops = p->ops;
    uint64_t j0 = tile * p->bc, nj = tu_min(p->bc, p->a->seq[u->rows.b].sk - j0);
    size_t n = tui_pad(nj, 32), m = r1 - r0, lda = p->dk;
    const unsigned char *k =
        p->packed + (u->pair * p->tiles_max + tile) * (p->k_bytes + p->v_bytes);
    const unsigned char *q = ops->pack_a ? w->qa : w->q;
    void *prob = ops->pack_a ? w->p : w->s;
    ops->gemm(w->s, p->bc, q + r0 * lda * ops->elem, lda, k, m, n, p->dk, false);
    if (p->logits)
        tui_logits(p->a, &u->rows, r0, r1, j0, nj, w->s, p->bc, 1, NULL);
    if (edge)
        tui_hide(p->a, &u->rows, r0, r1, j0, nj, w->s, p->bc, 1);
    for (size_t r = 0; n > nj && r < m; r++)
        for (size_t c = nj; c < n; c++)
            w->s[r * p->bc + c] = -INFINITY;
    struct tui_softmax x = {w->s,      p->bc,     m,        n,    multiplier(p, u),
                            w->c + r0, w->l + r0, w->alpha, prob, p->bc};
    ops->softmax(&x);
    if (p->a->opt.dropout > 0)
        tui_drop(p, u, w, r0, r1, j0, nj, prob, p->bc, ops->elem);
    ops->rescale(w->acc + r0 * p->dvn, p->dvn, m, p->dvn, w->alpha);
    ops->gemm(w->acc + r0 * p->dvn, p->dvn, prob, p->bc, k + p->k_bytes, m, p->dvn, n,
              true);
}

int tui_unit_tiles(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
                   struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    uint64_t rows = u->rows.nh * u->rows.ni, sk = a->seq[u->rows.b].sk;
    int code = tui_load_queries(a, &a->q, &u->rows, w->q, p->dk, err);
    if (code)
        return code;
    if (p->ops->pack_a)
        p->ops->pack_a(w->qa, p->dk, w->q, p->dk, rows, a->d);
    start_rows(p, w, rows);
    p->ops->begin();
    for (uint64_t t = u->t0; t < u->t1; t++) {
        enum tui_tile kind =
            tui_tile(a, &u->rows, t * p->bc, tu_min(p->bc, sk - t * p->bc));
        for (uint64_t r = 0; kind != TUI_EMPTY && r < rows; r += PIECE)
            piece(p, u, w, r, tu_min(rows, r + PIECE), t, kind == TUI_EDGE);
    }
    p->ops->end();
    return tui_finish(p, u, w, err);
}

int tui_unit_few(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
                 struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    const struct tui_ops *ops = p->ops;
    uint64_t rows = u->rows.nh * u->rows.ni, sk = a->seq[u->rows.b].sk;
    int code = tui_load_queries(a, &a->q, &u->rows, w->q, p->dn, err);
    start_rows(p, w, rows);
    for (uint64_t t = u->t0; !code && t < u->t1; t++) {
        uint64_t j0 = t * p->bc, nj = tu_min(p->bc, sk - j0);
        enum tui_tile kind = tui_tile(a, &u->rows, j0, nj);
        if (kind == TUI_EMPTY)
            continue;
        if ((code = tui_load_keys(a, &a->k, &u->rows, j0, nj, w->rows, p->dn, err)))
            break;
        size_t n = tui_pad(nj, 32);
        ops->dots(w->s, p->bc, w->q, p->dn, w->rows, p->dn, rows, n, p->dn);
        if (p->logits)
            tui_logits(a, &u->rows, 0, rows, j0, nj, w->s, p->bc, 1, NULL);
        if (kind == TUI_EDGE)
            tui_hide(a, &u->rows, 0, rows, j0, nj, w->s, p->bc, 1);
        for (uint64_t r = 0; r < rows; r++)
            for (size_t c = nj; c < n; c++)
                w->s[r * p->bc + c] = -INFINITY;
        struct tui_softmax x = {w->s, p->bc, rows,     n,    multiplier(p, u),
                                w->c, w->l,  w->alpha, w->s, p->bc};
        ops->softmax(&x);
        if (a->opt.dropout > 0)
            tui_drop(p, u, w, 0, rows, j0, nj, w->s, p->bc, sizeof(float));
        ops->rescale(w->acc, p->dvn, rows, p->dvn, w->alpha);
        if ((code = tui_load_keys(a, &a->v, &u->rows, j0, nj, w->vals, p->dvn, err)))
            break;
        memset(w->vals + nj * p->dvn, 0, (n - nj) * p->dvn * sizeof *w->vals);
        if (!ops->finite(w->vals, nj * p->dvn))
            p->odd[u->pair] = 1;
        ops->sums(w->acc, p->dvn, w->s, p->bc, w->vals, p->dvn, rows, n, p->dvn);
    }
    return code ? code : tui_finish(p, u, w, err);
}
