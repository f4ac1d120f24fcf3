/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: the gated recurrence in chunks of matrix products.
 *
 * Per chunk, with G the sums of log decays since its start: P = Q K' with the decay
 * between the steps, O = P V + (Q exp G) S, S = exp(G_e) S + (K exp(G_e - G))' V. A
 * number per step decays P after the product; a vector is part of the product, so P is
 * made pair by pair and chunks are short; a vector of columns turns up in backward
 * passes. Work is linear in n, memory a few tiles. */
#include <math.h>
#include <string.h>
#include "attn/scan.h"
#include "attn/scratch.h"
#include "attn/tile.h"

enum { BLOCK = 64, BLOCK_VECTOR = 16, ALIGN = 32 };
#define LOG2E 1.4426950408889634

struct work {
    const struct tui_scan *x;
    const struct tui_ops *ops;
    size_t c, cp, dp, vp;       /* steps of a chunk; it, d and dv padded */
    float *q, *k, *v, *g;       /* [cp, dp], v [cp, vp], g either or [cp] */
    float *p, *acc, *kt, *s;    /* [cp, cp], [cp, vp], [dp, cp], [dp, vp] */
    float *row, *head, *tail;   /* [cp] */
    float *whole, *weight, *by; /* [dp or vp]; [cp] */
    unsigned char *raw;         /* rows in their own dtype */
    void *qa, *pa, *ka;         /* A operands, where they are not f32 rows */
    void *kb, *vb, *sb;         /* B operands: K', V, S */
    struct tu_arena *arena;
};

static const struct tui_ops *ops_of(uint32_t compute)
{
    return tui_ops_pick(compute, tu_cpu_bits());
}

const char *tui_scan_kernel(uint32_t compute)
{
    return ops_of(compute)->name;
}

static int work_init(struct work *w, const struct tui_scan *x, struct tu_err *err)
{
    uint64_t block = x->block ? x->block : x->gates ? BLOCK_VECTOR : BLOCK;
    *w = (struct work){.x = x, .ops = ops_of(x->compute)};
    w->c = tu_max(1, tu_min(block, x->n));
    w->cp = tui_pad(w->c, ALIGN);
    w->dp = tui_pad(x->d, ALIGN);
    w->vp = tui_pad(x->dv, ALIGN);
    const size_t e = w->ops->elem, f = sizeof(float), a = w->ops->pack_a ? e : 0;
    const size_t widest = sizeof(double);
    const uint64_t cp = w->cp, dp = w->dp, vp = w->vp, most = tu_max(dp, vp);
    const struct tui_part part[] = {
        {&w->q, cp * dp, f},   {&w->k, cp * dp, f},    {&w->v, cp * vp, f},
        {&w->g, cp * most, f}, {&w->p, cp * cp, f},    {&w->acc, cp * vp, f},
        {&w->kt, dp * cp, f},  {&w->s, dp * vp, f},    {&w->row, cp + ALIGN, f},
        {&w->head, cp, f},     {&w->tail, cp, f},      {&w->whole, most, f},
        {&w->weight, cp, f},   {&w->by, cp, f},        {&w->qa, cp * dp, a},
        {&w->pa, cp * cp, a},  {&w->ka, dp * cp, a},   {&w->kb, dp * cp, e},
        {&w->vb, cp * vp, e},  {&w->sb, dp * vp, e},   {&w->raw, cp * most, widest},
    };
    return TUI_SCRATCH(&w->arena, part, err);
}

/* Ask for rows that are read a chunk later: their distance is no stride that the
 * hardware foresees. */
static void prefetch(const unsigned char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

/* Steps [t0, t0 + n) as f32, dim of each. Rows without padding are brought together and
 * converted at once. */
static int load(struct work *w, const struct tui_steps *s, uint64_t t0, uint64_t n,
                uint64_t dim, float *out, size_t ld, struct tu_err *err)
{
    const size_t bytes = dim * tu_dtype_find(s->dtype)->block_bytes;
    const unsigned char *from = (const unsigned char *)s->data + (int64_t)t0 * s->step;
    const bool ahead = t0 + 2 * n <= w->x->n;
    const bool whole = ld == dim && s->dtype != TU_F32;
    int code = 0;
    for (uint64_t t = 0; !code && t < n; t++, from += s->step) {
        if (ahead)
            prefetch(from + (int64_t)n * s->step, bytes);
        if (whole)
            memcpy(w->raw + t * bytes, from, bytes);
        else
            code = tu_to_float(s->dtype, from, out + t * ld, dim, err);
    }
    return whole ? tu_to_float(s->dtype, w->raw, out, n * dim, err) : code;
}

static int store(const struct work *w, uint64_t t0, size_t e, struct tu_err *err)
{
    const struct tui_steps *o = &w->x->o;
    const size_t dv = w->x->dv, bytes = dv * tu_dtype_find(o->dtype)->block_bytes;
    unsigned char *to = (unsigned char *)(uintptr_t)o->data + (int64_t)t0 * o->step;
    if (w->vp != dv) {
        int code = 0;
        for (size_t i = 0; !code && i < e; i++, to += o->step)
            code = tu_cast(o->dtype, to, TU_F32, w->acc + i * w->vp, dv, err);
        return code;
    }
    int code = tu_cast(o->dtype, w->raw, TU_F32, w->acc, e * dv, err);
    for (size_t i = 0; !code && i < e; i++, to += o->step)
        memcpy(to, w->raw + i * bytes, bytes);
    return code;
}

/* As an A operand of the same stride. */
static const void *left(const struct work *w, void *mem, const float *src, size_t ld,
                        size_t m, size_t k)
{
    if (!w->ops->pack_a)
        return src;
    w->ops->pack_a(mem, ld, src, ld, m, k);
    return mem;
}

/* Logarithms to base 2. The kernel makes factors of them in place, so padding is set to
 * 0, which decays nothing, every time. */
static int load_gates(struct work *w, uint64_t t0, size_t e, struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    const bool rows = x->gates == TUI_GATES_ROWS;
    size_t dim = rows ? x->d : x->gates ? x->dv : 1;
    size_t ld = rows ? w->dp : x->gates ? w->vp : 1;
    const double to_log2 = x->rate * LOG2E;
    int code = load(w, &x->gate, t0, e, dim, w->g, ld, err);
    for (size_t i = 0; !code && i < e; i++) {
        float *g = w->g + i * ld;
        for (size_t a = 0; a < dim; a++)
            g[a] = (float)((double)g[a] * to_log2);
        memset(g + dim, 0, (ld - dim) * sizeof *g);
    }
    return code;
}

/* P before its decay. */
static void product(struct work *w, size_t e, const void *qa)
{
    w->ops->pack_bt(w->kb, w->k, w->dp, e, w->x->d);
    w->ops->gemm(w->p, w->cp, qa, w->dp, w->kb, e, e, w->x->d, false);
}

static void forget_self(struct work *w, size_t e)
{
    for (size_t i = 0; w->x->strict && i < e; i++)
        w->p[i * w->cp + i] = 0;
}

/* acc = Q S */
static void meet_state(struct work *w, size_t e, const void *qa)
{
    w->ops->pack_b(w->sb, w->s, w->vp, w->x->d, w->x->dv);
    w->ops->gemm(w->acc, w->vp, qa, w->dp, w->sb, e, w->x->dv, w->x->d, false);
}

/* acc += P V */
static void meet_values(struct work *w, size_t e)
{
    const void *pa = left(w, w->pa, w->p, w->cp, e, e);
    w->ops->pack_b(w->vb, w->v, w->vp, e, w->x->dv);
    w->ops->gemm(w->acc, w->vp, pa, w->cp, w->vb, e, w->x->dv, e, true);
}

/* S += K' V, of what is decayed to the end of the chunk; vb holds V. */
static void carry(struct work *w, size_t e)
{
    const size_t d = w->x->d;
    w->ops->turn(w->kt, w->cp, w->k, w->dp, e, d);
    const void *ka = left(w, w->ka, w->kt, w->cp, d, e);
    w->ops->gemm(w->s, w->vp, ka, w->cp, w->vb, d, w->x->dv, e, true);
}

static int load_chunk(struct work *w, uint64_t t0, size_t e, bool *odd,
                      struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    int code;
    if ((code = load(w, &x->k, t0, e, x->d, w->k, w->dp, err)) ||
        (code = load(w, &x->v, t0, e, x->dv, w->v, w->vp, err)))
        return code;
    *odd = !w->ops->finite(w->v, e * w->vp);
    return 0;
}

/* Scaled. */
static int load_queries(struct work *w, uint64_t t0, size_t e, struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    int code = load(w, &x->q, t0, e, x->d, w->q, w->dp, err);
    if (x->scale != 1)
        w->ops->rescale(w->q, w->dp, e, x->d, w->by);
    return code;
}

/* What v_t adds to o_t beside the state, and what it enters the state times. */
static int beside(struct work *w, uint64_t t0, size_t e, struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    int code = 0;
    for (size_t i = 0; x->skip != 0 && i < e; i++)
        for (size_t b = 0; b < x->dv; b++)
            w->acc[i * w->vp + b] += (float)x->skip * w->v[i * w->vp + b];
    if (x->weight.data && !(code = load(w, &x->weight, t0, e, 1, w->weight, 1, err)))
        w->ops->rescale(w->v, w->vp, e, x->dv, w->weight);
    return code;
}

/* The chunk in memory, one number per step. */
static int with_one(struct work *w, uint64_t t0, const struct tui_decay *y, bool *odd,
                    struct tu_err *err)
{
    const struct tui_ops *ops = w->ops;
    const size_t e = y->e, d = w->x->d, dv = w->x->dv;
    const void *qa = left(w, w->qa, w->q, w->dp, e, d);
    product(w, e, qa);
    ops->decay(y);
    if ((*odd = !ops->finite(w->tail, e)))
        return 0;
    forget_self(w, e);
    meet_state(w, e, qa);
    ops->rescale(w->acc, w->vp, e, dv, w->head);
    int code = beside(w, t0, e, err);
    meet_values(w, e);
    for (size_t a = 0; a < d; a++)
        w->whole[a] = w->head[e - 1];
    ops->rescale(w->s, w->vp, d, dv, w->whole);
    ops->rescale(w->k, w->dp, e, d, w->tail);
    carry(w, e);
    return code;
}

static int with_rows(struct work *w, uint64_t t0, const struct tui_decay *y, bool *odd,
                     struct tu_err *err)
{
    const size_t e = y->e, d = w->x->d;
    w->ops->gate_rows(y);
    if ((*odd = !w->ops->finite(w->whole, d)))
        return 0;
    forget_self(w, e);
    meet_state(w, e, left(w, w->qa, w->q, w->dp, e, d));
    int code = beside(w, t0, e, err);
    meet_values(w, e);
    w->ops->rescale(w->s, w->vp, d, w->x->dv, w->whole);
    carry(w, e);
    return code;
}

static int with_columns(struct work *w, uint64_t t0, const struct tui_decay *y, bool *odd,
                        struct tu_err *err)
{
    struct tui_decay z = *y;
    const size_t e = y->e, d = w->x->d, dv = w->x->dv;
    const void *qa = left(w, w->qa, w->q, w->dp, e, d);
    (void)t0;
    (void)err;
    z.q = w->acc;
    z.k = w->v;
    z.ld = w->vp;
    z.d = w->vp;
    product(w, e, qa);
    forget_self(w, e);
    meet_state(w, e, qa);
    w->ops->gate_columns(&z);
    if ((*odd = !w->ops->finite(w->whole, dv)))
        return 0;
    w->ops->weigh(w->s, w->vp, d, dv, w->whole);
    w->ops->pack_b(w->vb, w->v, w->vp, e, dv);
    carry(w, e);
    return 0;
}

static int chunk(struct work *w, uint64_t t0, size_t e, bool *odd, struct tu_err *err)
{
    static int (*const with[])(struct work *, uint64_t, const struct tui_decay *, bool *,
                               struct tu_err *) = {with_one, with_rows, with_columns};
    const struct tui_decay y = {.p = w->p,
                                .ldp = w->cp,
                                .q = w->q,
                                .k = w->k,
                                .g = w->g,
                                .ld = w->dp,
                                .row = w->row,
                                .head = w->head,
                                .tail = w->tail,
                                .whole = w->whole,
                                .e = e,
                                .d = w->dp};
    int code;
    if ((code = load_chunk(w, t0, e, odd, err)) || *odd ||
        (code = load_queries(w, t0, e, err)) || (code = load_gates(w, t0, e, err)) ||
        (code = with[w->x->gates](w, t0, &y, odd, err)) || *odd)
        return code;
    return store(w, t0, e, err);
}

/* All keys into the state first, then every query meets it. */
static int both_ways(struct work *w, bool *odd, struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    int code = 0;
    for (uint64_t t = 0; !code && !*odd && t < x->n; t += w->c) {
        size_t e = tu_min(w->c, x->n - t);
        code = load_chunk(w, t, e, odd, err);
        w->ops->pack_b(w->vb, w->v, w->vp, e, x->dv);
        carry(w, e);
    }
    for (uint64_t t = 0; !code && !*odd && t < x->n; t += w->c) {
        size_t e = tu_min(w->c, x->n - t);
        if ((code = load_queries(w, t, e, err)))
            break;
        meet_state(w, e, left(w, w->qa, w->q, w->dp, e, x->d));
        code = store(w, t, e, err);
    }
    return code;
}

static void copy_state(const struct work *w, bool out)
{
    const struct tui_scan *x = w->x;
    for (size_t a = 0; a < x->d; a++)
        for (size_t b = 0; b < x->dv; b++) {
            double *far = x->state + a * x->dv + b;
            float *near = w->s + a * w->vp + b;
            if (out)
                *far = (double)*near;
            else
                *near = (float)*far;
        }
}

int tui_scan_run(const struct tui_scan *x, bool *odd, struct tu_err *err)
{
    struct work w;
    int code = work_init(&w, x, err);
    *odd = false;
    if (code)
        goto out;
    copy_state(&w, false);
    *odd = !w.ops->finite(w.s, w.dp * w.vp);
    for (size_t i = 0; i < w.c; i++)
        w.by[i] = (float)x->scale;
    w.ops->begin();
    if (x->both_ways)
        code = both_ways(&w, odd, err);
    for (uint64_t t = 0; !x->both_ways && !code && !*odd && t < x->n; t += w.c)
        code = chunk(&w, t, tu_min(w.c, x->n - t), odd, err);
    w.ops->end();
    copy_state(&w, true);
out:
    tu_arena_free(w.arena);
    return code;
}
