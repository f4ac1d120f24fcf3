/* SPDX-License-Identifier: Apache-2.0 */
/* fwd.c: the forward pass: plan, pack keys and values once per KV head, run the units,
 * merge.
 *
 * Units are chosen from the shape and options alone, so the bits do not depend on the
 * number of threads. Packed keys of as many KV heads as the job's memory allows live at
 * once (one at least), so memory is O(N). A head whose V holds NaN or Inf goes to the
 * reference: 0·Inf of an invisible key must not reach the sum. */
#include <math.h>
#include <string.h>
#include "attn/fwd.h"
#include "attn/scratch.h"

enum {
    FEW_KEYS = 64,
    SPLIT_UNITS = 16,
    SPLIT_KEYS = 512,
    FIXED_KEYS = 4096,
    SPLITS_MAX = 64
};

/* Query heads that share a tile: all of the group where sequences are short. */
static uint64_t heads_in_tile(const struct tu_attn *a, uint64_t br)
{
    uint64_t g = a->hq / a->hkv;
    return a->sq_max >= br ? 1 : tu_min(g, tu_max(1, br / tu_max(1, a->sq_max)));
}

static void plan_sizes(struct tui_plan *p, const struct tu_attn *a)
{
    uint64_t rows = a->hq / a->hkv * a->sq_max;
    p->a = a;
    p->ops = tui_ops_pick(tui_compute(&a->opt, a->q.dtype), tu_cpu_bits());
    p->few = rows <= (p->ops->pack_a ? 4 : 8) && !a->opt.tile_q && !a->opt.tile_k &&
             !a->opt.deterministic;
    if (p->few)
        p->ops = tui_ops_pick(TU_F32, tu_cpu_bits());
    p->logits = tui_has_logits(a);
    /* A tile that is asked for is no larger than what there is. */
    uint64_t tile_q = a->opt.tile_q ? tu_min(a->opt.tile_q, tu_max(1, rows)) : p->ops->tile_q;
    uint64_t tile_k =
        a->opt.tile_k ? tu_min(a->opt.tile_k, tu_max(1, a->sk_max)) : p->ops->tile_k;
    p->br = p->few ? tu_max(1, rows) : tui_pad(tile_q, p->ops->mpad);
    p->bc = p->few ? FEW_KEYS : tui_pad(tile_k, 32);
    p->dk = tui_pad(a->d, p->ops->kpad);
    p->dn = tui_pad(a->d, p->ops->npad);
    p->dvn = tui_pad(a->dv, p->ops->npad);
    p->k_bytes = p->dk * tui_pad(p->bc, 32) * p->ops->elem;
    p->v_bytes = p->bc * p->dvn * p->ops->elem;
    p->tiles_max = tu_ceil_div(a->sk_max, p->bc);
}

/* Few units and many keys: split the keys. */
static void plan_splits(struct tui_plan *p)
{
    const struct tu_attn *a = p->a;
    uint64_t nh = heads_in_tile(a, p->br), g = a->hq / a->hkv;
    uint64_t per_head = nh == 1 ? tu_ceil_div(a->sq_max, p->br) * g : tu_ceil_div(g, nh);
    uint64_t units = tu_max(1, a->batch * a->hkv * per_head);
    if (a->opt.deterministic) /* by the keys alone: queries may be a part of all */
        p->splits = a->sk_max / FIXED_KEYS;
    else if (a->opt.splits)
        p->splits = a->opt.splits;
    else if (units >= SPLIT_UNITS / 2)
        p->splits = 1;
    else
        p->splits = tu_min(tu_ceil_div(SPLIT_UNITS, units), a->sk_max / SPLIT_KEYS);
    p->splits = tu_max(1, tu_min(tu_min(p->splits, SPLITS_MAX), p->tiles_max));
}

static int work_init(struct tui_work *w, const struct tui_plan *p, struct tu_err *err)
{
    size_t piece = tui_pad(64, p->ops->mpad), wide = tu_max(p->dk, p->dn);
    size_t rows = tui_pad(p->br, tu_max(p->ops->mpad, 64));
    const struct tui_part part[] = {
        {&w->q, rows * wide, sizeof(float)},
        {&w->qa, rows * p->dk, p->ops->elem},
        {&w->s, piece * p->bc, sizeof(float)},
        {&w->p, piece * p->bc, p->ops->elem},
        {&w->acc, rows * p->dvn, sizeof(float)},
        {&w->rows, p->bc * tu_max(wide, p->dvn), sizeof(float)},
        {&w->vals, p->few ? p->bc * p->dvn : 0, sizeof(float)},
        {&w->c, rows, sizeof(float)},
        {&w->l, rows, sizeof(float)},
        {&w->alpha, rows, sizeof(float)},
        {&w->keep, p->bc, 1},
    };
    return TUI_SCRATCH(&w->arena, part, err);
}

static struct tui_block pair_block(const struct tui_plan *p, uint64_t pair)
{
    uint64_t x = p->pair0 + pair, g = p->a->hq / p->a->hkv;
    return (struct tui_block){
        .b = x / p->a->hkv, .hkv = x % p->a->hkv, .h0 = x % p->a->hkv * g};
}

static int pack_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct tui_plan *p = ctx;
    const struct tu_attn *a = p->a;
    struct tui_work *w = &p->work[worker];
    uint64_t pair = task / p->tiles_max, tile = task % p->tiles_max, j0 = tile * p->bc;
    struct tui_block t = pair_block(p, pair);
    if (j0 >= a->seq[t.b].sk)
        return 0;
    uint64_t n = tu_min(p->bc, a->seq[t.b].sk - j0);
    unsigned char *k = p->packed + task * (p->k_bytes + p->v_bytes);
    size_t whole = tui_pad(n, 32); /* what is multiplied; past the end it must be zero */
    int code = tui_load_keys(a, &a->k, &t, j0, n, w->rows, a->d, err);
    if (code)
        return code;
    memset(w->rows + n * a->d, 0, (whole - n) * a->d * sizeof *w->rows);
    p->ops->pack_bt(k, w->rows, a->d, whole, a->d);
    if ((code = tui_load_keys(a, &a->v, &t, j0, n, w->rows, a->dv, err)))
        return code;
    if (!p->ops->finite(w->rows, n * a->dv))
        p->odd[pair] = 1;
    memset(w->rows + n * a->dv, 0, (whole - n) * a->dv * sizeof *w->rows);
    p->ops->pack_b(k + p->k_bytes, w->rows, a->dv, whole, a->dv);
    return 0;
}

static int unit_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct tui_plan *p = ctx;
    const struct tui_unit *u = &p->unit[task];
    if (p->odd[u->pair])
        return 0;
    return p->few ? tui_unit_few(p, u, &p->work[worker], err)
                  : tui_unit_tiles(p, u, &p->work[worker], err);
}

static int merge_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct tui_plan *p = ctx;
    const struct tu_attn *a = p->a;
    const struct tui_unit *u = &p->unit[task * p->splits];
    uint64_t rows = u->rows.nh * u->rows.ni;
    float *o[SPLITS_MAX], *lse[SPLITS_MAX];
    (void)worker;
    for (uint64_t i = 0; i < p->splits; i++) {
        o[i] = p->part_o + (u->part + i) * p->br * a->dv;
        lse[i] = p->part_lse + (u->part + i) * p->br;
    }
    if (p->odd[u->pair])
        return 0;
    tu_attn_merge(o, lse, p->splits, rows, a->dv);
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t h = tui_row_head(&u->rows, r), i = tui_row_query(&u->rows, r);
        const struct tu_attn_seq *s = &a->seq[u->rows.b];
        if (a->sinks)
            tu_attn_sink(o[0] + r * a->dv, lse[0] + r, 1, a->dv, a->sinks[h]);
        uint64_t at = tui_lse_at(a, s, i, h);
        if (a->lse && a->lse_dtype == TU_F64)
            ((double *)a->lse)[at] = (double)lse[0][r];
        else if (a->lse)
            ((float *)a->lse)[at] = lse[0][r];
        int code = tu_cast(a->o.dtype, tui_q_row(&a->o, s, i, h), TU_F32,
                           o[0] + r * a->dv, a->dv, err);
        if (code)
            return code;
    }
    return 0;
}

/* All units of the pairs of the group; causal ones end with the longest, so go backwards.
 */
static void list_units(struct tui_plan *p)
{
    const struct tu_attn *a = p->a;
    uint64_t g = a->hq / a->hkv, nh = heads_in_tile(a, p->br);
    p->units = 0;
    for (uint64_t pair = 0; pair < p->pairs; pair++) {
        struct tui_block t = pair_block(p, pair);
        const struct tu_attn_seq *s = &a->seq[t.b];
        uint64_t tiles = tu_ceil_div(s->sk, p->bc),
                 step = nh == 1 ? p->br : tu_max(1, s->sq);
        for (uint64_t h = 0; h < g; h += nh)
            for (uint64_t n = tu_ceil_div(s->sq, step); n-- > 0;)
                for (uint64_t x = 0; x < p->splits; x++) {
                    struct tui_unit *u = &p->unit[p->units];
                    *u = (struct tui_unit){.rows = t,
                                           .pair = pair,
                                           .part = p->units,
                                           .t0 = tiles * x / p->splits,
                                           .t1 = tiles * (x + 1) / p->splits};
                    u->rows.h0 = t.h0 + h;
                    u->rows.nh = tu_min(nh, g - h);
                    u->rows.i0 = n * step;
                    u->rows.ni = tu_min(step, s->sq - n * step);
                    p->units++;
                }
    }
}

static int run_group(struct tui_plan *p, const struct tu_job *job, struct tu_err *err)
{
    struct tu_pool *pool = job ? job->pool : NULL;
    int code = 0;
    memset(p->odd, 0, p->pairs);
    list_units(p);
    if (!p->few)
        code = tu_pool_run(pool, p->pairs * p->tiles_max, pack_task, p, err);
    if (!code)
        code = tu_pool_run(pool, p->units, unit_task, p, err);
    if (!code && p->splits > 1)
        code = tu_pool_run(pool, p->units / p->splits, merge_task, p, err);
    for (uint64_t x = 0; !code && x < p->pairs; x++)
        if (p->odd[x]) {
            struct tui_block t = pair_block(p, x);
            code = tui_forward_ref_head(p->a, t.b, t.hkv, err);
        }
    if (!code && tu_job_cancelled(job))
        code = tu_fail(err, TU_ECANCEL, "cancelled");
    return code;
}

/* Pairs whose packed keys fit the budget together. */
static uint64_t group_size(const struct tui_plan *p, uint64_t all,
                           const struct tu_job *job)
{
    uint64_t bytes = p->few ? 1 : tu_max(1, p->tiles_max * (p->k_bytes + p->v_bytes));
    return tu_max(1, tu_min(all, tu_job_memory(job) / bytes));
}

static int prepare(struct tui_plan *p, uint64_t group, unsigned workers,
                   struct tu_err *err)
{
    const struct tu_attn *a = p->a;
    uint64_t per_pair = tu_ceil_div(a->sq_max, p->br) * (a->hq / a->hkv) + a->hq / a->hkv;
    uint64_t units = group * per_pair * p->splits;
    if (!p->few)
        p->packed = tu_alloc(group * p->tiles_max, p->k_bytes + p->v_bytes, err);
    p->odd = tu_calloc(group, 1, err);
    p->unit = tu_alloc(units, sizeof *p->unit, err);
    p->work = tu_calloc(workers, sizeof *p->work, err);
    if ((!p->few && !p->packed) || !p->odd || !p->unit || !p->work)
        return TU_ENOMEM;
    if (p->splits > 1) {
        p->part_o = tu_alloc(units * p->br, a->dv * sizeof(float), err);
        p->part_lse = tu_alloc(units * p->br, sizeof(float), err);
        if (!p->part_o || !p->part_lse)
            return TU_ENOMEM;
    }
    for (unsigned i = 0; i < workers; i++) {
        int code = work_init(&p->work[i], p, err);
        if (code)
            return code;
    }
    return 0;
}

int tu_attn_forward(const struct tu_attn *a, const struct tu_job *job, struct tu_err *err)
{
    struct tui_plan p = {0};
    unsigned workers = tu_pool_size(job ? job->pool : NULL);
    uint64_t all = a->batch * a->hkv;
    if (a->q.dtype == TU_F64)
        return tu_attn_forward_ref(a, job, err);
    plan_sizes(&p, a);
    plan_splits(&p);
    uint64_t group = group_size(&p, all, job);
    int code = prepare(&p, group, workers, err);
    for (p.pair0 = 0; !code && p.pair0 < all; p.pair0 += group) {
        p.pairs = tu_min(group, all - p.pair0);
        code = run_group(&p, job, err);
        tu_job_progress(job, p.pair0 + p.pairs, all);
    }
    for (unsigned i = 0; p.work && i < workers; i++)
        tu_arena_free(p.work[i].arena);
    tu_free(p.work);
    tu_free(p.part_lse);
    tu_free(p.part_o);
    tu_free(p.unit);
    tu_free(p.odd);
    tu_free(p.packed);
    return code;
}

const char *tu_attn_kernel(const struct tu_attn *a)
{
    struct tui_plan p = {0};
    if (a->q.dtype == TU_F64)
        return "float64";
    plan_sizes(&p, a);
    return p.ops->name;
}
