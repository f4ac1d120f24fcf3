/* SPDX-License-Identifier: Apache-2.0 */
/* bwd.c: the backward pass over tiles, transposed: rows are keys, columns queries.
 *
 * Per tile: S' = K Q', P' = exp(S' - LSE), dP' = V dO', dS' = P' (dP' - Delta), dV += P'
 * dO, dK += dS' Q, dQ' += K' dS'. With keys as rows, P' and dS' are A operands of the
 * last products as they stand, and K' and dS' give dQ' without another transposition.
 * Outer loop over keys, so dK and dV stay local; dQ' has one buffer per split of the keys
 * and is summed in order: the bits do not depend on threads. Source: Dao,
 * "FlashAttention-2", 2023, algorithm 2. What is rare (gradients of bias and slopes, NaN
 * or Inf among the inputs) goes to the reference. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "attn/bwd.h"
#include "attn/scratch.h"

enum { SPLIT_UNITS = 4, ROWS = 128, KEYS = 256 };
#define DQ_BYTES_MAX (UINT64_C(256) << 20) /* of the buffers of all splits */

static void plan_sizes(struct tui_back *p, const struct tu_attn *a)
{
    p->a = a;
    p->ops = tui_ops_pick(tui_compute(&a->opt, a->q.dtype), tu_cpu_bits());
    p->logits = tui_has_logits(a);
    size_t n = p->ops->npad, k = p->ops->kpad, e = p->ops->elem;
    /* A tile that is asked for is no larger than what there is. */
    p->br = tui_pad(a->opt.tile_q ? tu_min(a->opt.tile_q, tu_max(1, a->sq_max)) : ROWS, 32);
    p->bc = tui_pad(a->opt.tile_k ? tu_min(a->opt.tile_k, tu_max(1, a->sk_max)) : KEYS, 32);
    p->dk = tui_pad(a->d, k);
    p->dvk = tui_pad(a->dv, k);
    p->dn = tui_pad(a->d, n);
    p->dvn = tui_pad(a->dv, n);
    p->dm = tui_pad(a->d, p->ops->mpad);
    p->qt_bytes = p->dk * p->br * e;
    p->qn_bytes = p->br * p->dn * e;
    p->ot_bytes = p->dvk * p->br * e;
    p->on_bytes = p->br * p->dvn * e;
    p->tile_bytes = p->qt_bytes + p->qn_bytes + p->ot_bytes + p->on_bytes;
    p->q_tiles = tu_ceil_div(a->sq_max, p->br) * (a->hq / a->hkv);
    p->k_tiles = tu_ceil_div(a->sk_max, p->bc);
    uint64_t dq = tu_max(1, p->q_tiles * p->dm * p->br * sizeof(float));
    p->splits = tu_ceil_div(SPLIT_UNITS, tu_max(1, a->batch * a->hkv));
    p->splits = tu_min(tu_min(p->splits, p->k_tiles), DQ_BYTES_MAX / dq);
    if (a->opt.deterministic) /* by the keys alone: queries may be a part of all */
        p->splits = tu_min(p->k_tiles, 4);
    p->splits = tu_max(1, p->splits);
}

static int work_init(struct tui_back_work *w, const struct tui_back *p,
                     struct tu_err *err)
{
    size_t e = p->ops->elem, m = p->ops->mpad,
           cols = tui_pad(p->bc, tu_max(p->ops->kpad, m));
    size_t wide = tu_max(p->dk, p->dvk), rows = tu_max(p->br, cols);
    const struct tui_part part[] = {
        {&w->rows, rows * wide, sizeof(float)},
        {&w->other, rows * wide, sizeof(float)},
        {&w->turned, p->ops->pack_a ? p->dm * cols : 0, sizeof(float)},
        {&w->ka, cols * p->dk, e},
        {&w->va, cols * p->dvk, e},
        {&w->kta, p->dm * cols, e},
        {&w->s, cols * p->br, sizeof(float)},
        {&w->dp, cols * p->br, sizeof(float)},
        {&w->chain, p->a->opt.softcap > 0 ? cols * p->br : 0, sizeof(float)},
        {&w->keep, p->a->opt.dropout > 0 ? cols * p->br : 0, sizeof(float)},
        {&w->bits, p->bc, 1},
        {&w->pa, cols * p->br, e},
        {&w->dsa, cols * p->br, e},
        {&w->dsb, cols * p->br, e},
        {&w->dk, cols * p->dn, sizeof(float)},
        {&w->dv, cols * p->dvn, sizeof(float)},
    };
    return TUI_SCRATCH(&w->arena, part, err);
}

struct tui_block tui_back_pair(const struct tui_back *p, uint64_t pair)
{
    uint64_t x = p->pair0 + pair;
    return (struct tui_block){.b = x / p->a->hkv, .hkv = x % p->a->hkv, .nh = 1};
}

/* Queries of tile `tile` of a pair; ni = 0 past the end of a short sequence. */
static struct tui_block query_tile(const struct tui_back *p, uint64_t pair, uint64_t tile)
{
    const struct tu_attn *a = p->a;
    struct tui_block t = tui_back_pair(p, pair);
    uint64_t per_head = tu_max(1, tu_ceil_div(a->sq_max, p->br)), sq = a->seq[t.b].sq;
    t.h0 = t.hkv * (a->hq / a->hkv) + tile / per_head;
    t.i0 = tile % per_head * p->br;
    t.ni = t.i0 < sq ? tu_min(p->br, sq - t.i0) : 0;
    return t;
}

static double lse_at(const struct tu_attn *a, uint64_t at)
{
    return a->lse_dtype == TU_F64 ? ((const double *)a->lse)[at]
                                  : (double)((const float *)a->lse)[at];
}

/* LSE in log2 units and Delta - dLSE of the rows of a tile; o and dO are f32 rows. */
static void row_sums(const struct tui_back *p, const struct tui_block *t, const float *o,
                     const float *dout, float *lse2, float *delta)
{
    const struct tu_attn *a = p->a;
    for (uint64_t r = 0; r < p->br; r++) {
        lse2[r] = INFINITY; /* rows without keys: P = 0 */
        delta[r] = 0;
        if (r >= t->ni)
            continue;
        uint64_t at = tui_lse_at(a, &a->seq[t->b], t->i0 + r, t->h0);
        double sum = a->dlse ? -(double)a->dlse[at] : 0, lse = lse_at(a, at);
        for (uint64_t x = 0; x < a->dv; x++)
            sum += (double)o[r * a->dv + x] * (double)dout[r * a->dv + x];
        delta[r] = (float)sum;
        if (lse != -INFINITY)
            lse2[r] = (float)(lse * LOG2E);
    }
}

static int query_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct tui_back *p = ctx;
    const struct tu_attn *a = p->a;
    const struct tui_ops *ops = p->ops;
    struct tui_back_work *w = &p->work[worker];
    struct tui_block t = query_tile(p, task / p->q_tiles, task % p->q_tiles);
    unsigned char *at = p->packed + task * p->tile_bytes;
    int code;
    if (t.ni == 0)
        return 0;
    if ((code = tui_load_queries(a, &a->q, &t, w->rows, a->d, err)))
        return code;
    memset(w->rows + t.ni * a->d, 0, (p->br - t.ni) * a->d * sizeof *w->rows);
    bool good = ops->finite(w->rows, t.ni * a->d);
    ops->pack_bt(at, w->rows, a->d, p->br, a->d);
    ops->pack_b(at + p->qt_bytes, w->rows, a->d, p->br, a->d);
    at += p->qt_bytes + p->qn_bytes;
    if ((code = tui_load_queries(a, &a->dout, &t, w->rows, a->dv, err)) ||
        (code = tui_load_queries(a, &a->o, &t, w->other, a->dv, err)))
        return code;
    memset(w->rows + t.ni * a->dv, 0, (p->br - t.ni) * a->dv * sizeof *w->rows);
    good =
        good && ops->finite(w->rows, t.ni * a->dv) && ops->finite(w->other, t.ni * a->dv);
    ops->pack_bt(at, w->rows, a->dv, p->br, a->dv);
    ops->pack_b(at + p->ot_bytes, w->rows, a->dv, p->br, a->dv);
    row_sums(p, &t, w->other, w->rows, p->lse2 + task * p->br, p->delta + task * p->br);
    if (!good)
        atomic_store(&p->odd, true);
    return 0;
}

static int key_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct tui_back *p = ctx;
    uint64_t pair = task / p->splits, split = task % p->splits;
    struct tui_block t = tui_back_pair(p, pair);
    float *dq = p->dq + task * p->q_tiles * p->dm * p->br;
    memset(dq, 0, p->q_tiles * p->dm * p->br * sizeof *dq);
    uint64_t tiles = tu_ceil_div(p->a->seq[t.b].sk, p->bc);
    int code = 0;
    p->ops->begin();
    /* Every splits-th tile: under causality early keys are seen by more queries. */
    for (uint64_t tile = split; !code && tile < tiles && !atomic_load(&p->odd);
         tile += p->splits)
        code = tui_back_keys(p, &p->work[worker], pair, tile, dq, err);
    p->ops->end();
    return code;
}

/* to[r, c] = scale · from[c, r], in squares that stay in the cache. */
static void turn(float *to, const float *from, size_t ld, uint64_t rows, uint64_t cols,
                 float scale)
{
    for (uint64_t r0 = 0; r0 < rows; r0 += 16)
        for (uint64_t c0 = 0; c0 < cols; c0 += 16)
            for (uint64_t r = r0; r < tu_min(rows, r0 + 16); r++)
                for (uint64_t c = c0; c < tu_min(cols, c0 + 16); c++)
                    to[r * cols + c] = scale * from[c * ld + r];
}

/* dQ of a query tile: the splits' buffers in order, turned round. */
static int sum_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct tui_back *p = ctx;
    const struct tu_attn *a = p->a;
    uint64_t pair = task / p->q_tiles, tile = task % p->q_tiles, n = p->dm * p->br;
    struct tui_block t = query_tile(p, pair, tile);
    float *sum = p->dq + (pair * p->splits * p->q_tiles + tile) * n,
          *rows = p->work[worker].rows;
    int code = 0;
    for (uint64_t x = 1; x < p->splits; x++) {
        const float *dq = sum + x * p->q_tiles * n;
        for (uint64_t i = 0; i < n; i++)
            sum[i] += dq[i];
    }
    turn(rows, sum, p->br, t.ni, a->d, (float)a->scale);
    for (uint64_t r = 0; !code && r < t.ni; r++)
        code = tu_cast(a->dq.dtype, tui_q_row(&a->dq, &a->seq[t.b], t.i0 + r, t.h0),
                       TU_F32, rows + r * a->d, a->d, err);
    return code;
}

static int run_group(struct tui_back *p, const struct tu_job *job, struct tu_err *err)
{
    struct tu_pool *pool = job ? job->pool : NULL;
    int code = tu_pool_run(pool, p->pairs * p->q_tiles, query_task, p, err);
    if (!code && !atomic_load(&p->odd))
        code = tu_pool_run(pool, p->pairs * p->splits, key_task, p, err);
    if (!code && !atomic_load(&p->odd) && p->a->dq.data)
        code = tu_pool_run(pool, p->pairs * p->q_tiles, sum_task, p, err);
    if (!code && tu_job_cancelled(job))
        code = tu_fail(err, TU_ECANCEL, "cancelled");
    return code;
}

int tui_sink_gradient(const struct tu_attn *a, struct tu_err *err)
{
    float *row = tu_alloc(2 * a->dv, sizeof *row, err);
    int code = row ? 0 : TU_ENOMEM;
    for (uint64_t h = 0; !code && h < a->hq; h++) {
        double sum = 0;
        for (uint64_t b = 0; !code && b < a->batch; b++)
            for (uint64_t i = 0; !code && i < a->seq[b].sq; i++) {
                const struct tu_attn_seq *s = &a->seq[b];
                uint64_t at = tui_lse_at(a, s, i, h);
                double x = a->dlse ? (double)a->dlse[at] : 0;
                code =
                    tu_to_float(a->o.dtype, tui_q_row(&a->o, s, i, h), row, a->dv, err);
                if (!code)
                    code = tu_to_float(a->dout.dtype, tui_q_row(&a->dout, s, i, h),
                                       row + a->dv, a->dv, err);
                for (uint64_t t = 0; t < a->dv; t++)
                    x -= (double)row[t] * (double)row[a->dv + t];
                sum += exp((double)a->sinks[h] - lse_at(a, at)) * x;
            }
        a->dsink[h] += (float)sum;
    }
    tu_free(row);
    return code;
}

static int prepare(struct tui_back *p, uint64_t group, unsigned workers,
                   struct tu_err *err)
{
    p->packed = tu_alloc(group * p->q_tiles, p->tile_bytes, err);
    p->lse2 = tu_alloc(group * p->q_tiles, p->br * sizeof(float), err);
    p->delta = tu_alloc(group * p->q_tiles, p->br * sizeof(float), err);
    p->dq = tu_alloc(group * p->splits * p->q_tiles, p->dm * p->br * sizeof(float), err);
    p->work = tu_calloc(workers, sizeof *p->work, err);
    if (!p->packed || !p->lse2 || !p->delta || !p->dq || !p->work)
        return TU_ENOMEM;
    for (unsigned i = 0; i < workers; i++) {
        int code = work_init(&p->work[i], p, err);
        if (code)
            return code;
    }
    return 0;
}

int tu_attn_backward(const struct tu_attn *a, const struct tu_job *job,
                     struct tu_err *err)
{
    struct tui_back p = {0};
    unsigned workers = tu_pool_size(job ? job->pool : NULL);
    uint64_t all = a->batch * a->hkv;
    if (a->q.dtype == TU_F64 || a->dbias || a->dslope || a->q_scale || a->k_scale ||
        a->v_scale)
        return tu_attn_backward_ref(a, job, err);
    plan_sizes(&p, a);
    uint64_t bytes = tu_max(1, p.q_tiles * (p.tile_bytes + p.splits * p.dm * p.br * 4));
    uint64_t group = tu_max(1, tu_min(all, 2 * tu_job_memory(job) / bytes));
    int code = prepare(&p, group, workers, err);
    for (p.pair0 = 0; !code && p.pair0 < all && !atomic_load(&p.odd); p.pair0 += group) {
        p.pairs = tu_min(group, all - p.pair0);
        code = run_group(&p, job, err);
        tu_job_progress(job, p.pair0 + p.pairs, all);
    }
    if (!code && atomic_load(&p.odd))
        code = tu_attn_backward_ref(a, job, err);
    else if (!code && a->dsink && a->sinks)
        code = tui_sink_gradient(a, err);
    for (unsigned i = 0; p.work && i < workers; i++)
        tu_arena_free(p.work[i].arena);
    tu_free(p.work);
    tu_free(p.dq);
    tu_free(p.delta);
    tu_free(p.lse2);
    tu_free(p.packed);
    return code;
}
