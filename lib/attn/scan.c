/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: the gated recurrence in chunks of matrix products.
 *
 * Per chunk, with G the sums of log decays since its start: P = Q K' with the decay
 * between the steps, O = P V + (Q exp G) S, S = exp(G_e) S + (K exp(G_e - G))' V. A
 * number per step decays P after the product; a vector is part of the product, so P is
 * made pair by pair and chunks are short. Work is linear in n, memory a few tiles. */
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
    float *q, *k, *g, *v;       /* [cp, dp], v [cp, vp] */
    float *p, *acc, *kt, *s;    /* [cp, cp], [cp, vp], [dp, cp], [dp, vp] */
    float *row, *head, *tail;   /* [cp]; row has room for d too */
    float *whole, *weight, *by; /* [dp]; [cp] */
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
    uint64_t block = x->block ? x->block : x->vector ? BLOCK_VECTOR : BLOCK;
    *w = (struct work){.x = x, .ops = ops_of(x->compute)};
    w->c = tu_max(1, tu_min(block, x->n));
    w->cp = tui_pad(w->c, ALIGN);
    w->dp = tui_pad(x->d, ALIGN);
    w->vp = tui_pad(x->dv, ALIGN);
    const size_t e = w->ops->elem, f = sizeof(float), a = w->ops->pack_a ? e : 0;
    const uint64_t rows = (w->cp + TUI_GATE_ROWS) * w->dp, cp = w->cp, dp = w->dp,
                   vp = w->vp;
    const struct tui_part part[] = {
        {&w->q, rows, f},         {&w->k, rows, f},     {&w->g, rows, f},
        {&w->v, cp * vp, f},      {&w->p, cp * cp, f},  {&w->acc, cp * vp, f},
        {&w->kt, dp * cp, f},     {&w->s, dp * vp, f},  {&w->row, cp + dp, f},
        {&w->head, cp, f},        {&w->tail, cp, f},    {&w->whole, dp, f},
        {&w->weight, cp, f},      {&w->by, cp, f},      {&w->qa, cp * dp, a},
        {&w->pa, cp * cp, a},     {&w->ka, dp * cp, a}, {&w->kb, dp * cp, e},
        {&w->vb, cp * vp, e},     {&w->sb, dp * vp, e},
        {&w->raw, cp * tu_max(dp, vp), sizeof(double)},
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
    size_t dim = x->vector ? x->d : 1, ld = x->vector ? w->dp : 1;
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

/* P and the decays of q and k; Q is made an A operand when what it must be is known. */
static const void *pairs(struct work *w, size_t e)
{
    const struct tui_ops *ops = w->ops;
    const size_t d = w->x->d;
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
                                .d = tui_pad(d, 16)};
    if (w->x->vector) {
        ops->gate(&y);
        return left(w, w->qa, w->q, w->dp, e, d);
    }
    const void *qa = left(w, w->qa, w->q, w->dp, e, d);
    ops->pack_bt(w->kb, w->k, w->dp, e, d);
    ops->gemm(w->p, w->cp, qa, w->dp, w->kb, e, e, d, false);
    ops->decay(&y);
    for (size_t a = 0; a < d; a++)
        w->whole[a] = w->head[e - 1];
    ops->rescale(w->k, w->dp, e, d, w->tail);
    return qa;
}

/* S = whole S + K' V; K holds its decay to the end of the chunk, vb holds V. */
static void carry(struct work *w, size_t e)
{
    const struct tui_ops *ops = w->ops;
    const size_t d = w->x->d, dv = w->x->dv;
    ops->turn(w->kt, w->cp, w->k, w->dp, e, d);
    const void *ka = left(w, w->ka, w->kt, w->cp, d, e);
    ops->gemm(w->s, w->vp, ka, w->cp, w->vb, d, dv, e, true);
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

static int chunk(struct work *w, uint64_t t0, size_t e, bool *odd, struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    const struct tui_ops *ops = w->ops;
    const size_t d = x->d, dv = x->dv, vp = w->vp;
    int code;
    if ((code = load_chunk(w, t0, e, odd, err)) ||
        (code = load_queries(w, t0, e, err)) || (code = load_gates(w, t0, e, err)))
        return code;
    const void *qa = pairs(w, e);
    *odd = *odd || !ops->finite(w->whole, d) ||
           (!x->vector && !ops->finite(w->tail, e));
    if (*odd)
        return 0;
    ops->pack_b(w->sb, w->s, vp, d, dv);
    ops->gemm(w->acc, vp, qa, w->dp, w->sb, e, dv, d, false);
    if (!x->vector)
        ops->rescale(w->acc, vp, e, dv, w->head);
    for (size_t i = 0; x->skip != 0 && i < e; i++)
        for (size_t b = 0; b < dv; b++)
            w->acc[i * vp + b] += (float)x->skip * w->v[i * vp + b];
    if (x->weight.data) {
        if ((code = load(w, &x->weight, t0, e, 1, w->weight, 1, err)))
            return code;
        ops->rescale(w->v, vp, e, dv, w->weight);
    }
    ops->pack_b(w->vb, w->v, vp, e, dv);
    const void *pa = left(w, w->pa, w->p, w->cp, e, e);
    ops->gemm(w->acc, vp, pa, w->cp, w->vb, e, dv, e, true);
    ops->rescale(w->s, vp, d, dv, w->whole);
    carry(w, e);
    return store(w, t0, e, err);
}

/* All keys into the state first, then every query meets it. */
static int both_ways(struct work *w, bool *odd, struct tu_err *err)
{
    const struct tui_scan *x = w->x;
    const struct tui_ops *ops = w->ops;
    int code = 0;
    for (uint64_t t = 0; !code && !*odd && t < x->n; t += w->c) {
        size_t e = tu_min(w->c, x->n - t);
        code = load_chunk(w, t, e, odd, err);
        ops->pack_b(w->vb, w->v, w->vp, e, x->dv);
        carry(w, e);
    }
    ops->pack_b(w->sb, w->s, w->vp, x->d, x->dv);
    for (uint64_t t = 0; !code && !*odd && t < x->n; t += w->c) {
        size_t e = tu_min(w->c, x->n - t);
        if ((code = load_queries(w, t, e, err)))
            break;
        const void *qa = left(w, w->qa, w->q, w->dp, e, x->d);
        ops->gemm(w->acc, w->vp, qa, w->dp, w->sb, e, x->dv, x->d, false);
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
