/* SPDX-License-Identifier: Apache-2.0 */
/* forms.c: three, two and one pass over a row of keys. */
#include <math.h>
#include <string.h>
#include "attn/forms.h"
#include "attn/mask.h"

enum { PART = 64 }; /* keys of a block of the two-pass form */

/* What one row needs; x is [sk] for three passes, [PART] for the others. */
struct row {
    const struct tu_attn *a;
    struct tui_block t;
    float *q, *kv, *x, *acc;
    double m, l;
    uint32_t round; /* logits and P are rounded to it; 0: not */
};

static int rounded(struct row *r, float *x, uint64_t n, struct tu_err *err)
{
    unsigned char narrow[8];
    int code = 0;
    for (uint64_t j = 0; r->round && !code && j < n; j++) {
        code = tu_cast(r->round, narrow, TU_F32, x + j, 1, err);
        code = code ? code : tu_to_float(r->round, narrow, x + j, 1, err);
    }
    return code;
}

static int key(struct row *r, const struct tu_rows *rows, uint64_t j, struct tu_err *err)
{
    return tu_to_float(rows->dtype,
                       tui_k_row(r->a, rows, &r->a->seq[r->t.b], j, r->t.hkv), r->kv,
                       rows->dim, err);
}

/* Final logits of keys [j0, j0+n) into x. */
static int logits(struct row *r, uint64_t j0, uint64_t n, float *x, struct tu_err *err)
{
    const struct tu_attn *a = r->a;
    for (uint64_t j = 0; j < n; j++) {
        int code = key(r, &a->k, j0 + j, err);
        if (code)
            return code;
        float s = 0;
        for (uint64_t t = 0; t < a->d; t++)
            s += r->q[t] * r->kv[t];
        x[j] = s;
    }
    tui_logits(a, &r->t, 0, 1, j0, n, x, n, 1, NULL);
    tui_hide(a, &r->t, 0, 1, j0, n, x, n, 1);
    return 0;
}

/* acc += factor · v of key j, unless dropped. */
static int value(struct row *r, uint64_t j, float p, struct tu_err *err)
{
    const struct tu_attn *a = r->a;
    if (a->opt.dropout > 0 &&
        !tui_keep(a, r->t.b, r->t.h0, tui_at(a->q_at, r->t.i0), tui_at(a->k_at, j)))
        return 0;
    int code = key(r, &a->v, j, err);
    for (uint64_t t = 0; !code && t < a->dv; t++)
        r->acc[t] += p * r->kv[t];
    return code;
}

static float top(const float *x, uint64_t n)
{
    float m = -INFINITY;
    for (uint64_t j = 0; j < n; j++)
        m = isnan(x[j]) || x[j] > m ? x[j] : m;
    return m;
}

/* Maximum, sum, quotient: the row of logits is kept. */
static int three(struct row *r, struct tu_err *err)
{
    uint64_t sk = r->a->seq[r->t.b].sk;
    int code = logits(r, 0, sk, r->x, err);
    if (code || (code = rounded(r, r->x, sk, err)))
        return code;
    r->m = (double)top(r->x, sk);
    for (uint64_t j = 0; j < sk; j++) {
        r->x[j] = r->x[j] == -INFINITY ? 0 : expf(r->x[j] - (float)r->m);
        r->l += (double)r->x[j];
    }
    code = rounded(r, r->x, sk, err);
    for (uint64_t j = 0; !code && j < sk; j++)
        if (r->x[j] != 0)
            code = value(r, j, r->x[j], err);
    return code;
}

/* One block joins the running state: its logits are in x. */
static int join(struct row *r, uint64_t j0, uint64_t n, struct tu_err *err)
{
    double m = (double)top(r->x, n), now = m > r->m || isnan(m) ? m : r->m;
    if (now == -INFINITY)
        return 0;
    float fade = r->m == -INFINITY ? 0 : expf((float)(r->m - now));
    r->l *= (double)fade;
    for (uint64_t t = 0; t < r->a->dv; t++)
        r->acc[t] *= fade;
    r->m = now;
    int code = 0;
    for (uint64_t j = 0; !code && j < n; j++) {
        if (r->x[j] == -INFINITY)
            continue;
        float p = expf(r->x[j] - (float)now);
        r->l += (double)p;
        code = value(r, j0 + j, p, err);
    }
    return code;
}

static int blocks(struct row *r, uint64_t part, struct tu_err *err)
{
    uint64_t sk = r->a->seq[r->t.b].sk;
    int code = 0;
    for (uint64_t j = 0; !code && j < sk; j += part) {
        code = logits(r, j, tu_min(part, sk - j), r->x, err);
        if (!code)
            code = join(r, j, tu_min(part, sk - j), err);
    }
    return code;
}

/* A maximum per block; what came before is corrected by the greater one. */
static int two(struct row *r, struct tu_err *err)
{
    return blocks(r, PART, err);
}

static int one(struct row *r, struct tu_err *err)
{
    return blocks(r, 1, err);
}

static int finish(struct row *r, struct tu_err *err)
{
    const struct tu_attn *a = r->a;
    const struct tu_attn_seq *s = &a->seq[r->t.b];
    double join_ = 1;
    if (a->sinks) {
        double sink = (double)a->sinks[r->t.h0], m = r->m > sink ? r->m : sink;
        join_ = r->m == -INFINITY ? 0 : exp(r->m - m);
        r->l = r->l * join_ + exp(sink - m);
        r->m = m;
    }
    double f = r->l == 0 ? 0
                         : join_ / r->l / (1 - a->opt.dropout) *
                               tui_factor(a->v_scale, a, r->t.b, r->t.hkv);
    for (uint64_t t = 0; t < a->dv; t++)
        r->acc[t] *= (float)f;
    double lse = r->l == 0 ? -INFINITY : r->m + log(r->l);
    uint64_t at = tui_lse_at(a, s, r->t.i0, r->t.h0);
    if (a->lse && a->lse_dtype == TU_F64)
        ((double *)a->lse)[at] = lse;
    else if (a->lse)
        ((float *)a->lse)[at] = (float)lse;
    return tu_cast(a->o.dtype, tui_q_row(&a->o, s, r->t.i0, r->t.h0), TU_F32, r->acc,
                   a->dv, err);
}

struct form {
    const struct tu_attn *a;
    int (*row)(struct row *r, struct tu_err *err);
    uint64_t x; /* logits that a row keeps */
    bool low;
};

/* All queries of one head. */
static int head_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    const struct form *f = ctx;
    const struct tu_attn *a = f->a;
    uint64_t h = task % a->hq, wide = tu_max(a->d, a->dv);
    struct row r = {
        .a = a,
        .t = {.b = task / a->hq, .hkv = h / (a->hq / a->hkv), .h0 = h, .nh = 1, .ni = 1},
        .round = f->low ? a->q.dtype : 0};
    struct tu_arena *arena = tu_arena_new(err);
    (void)worker;
    if (!arena)
        return TU_ENOMEM;
    int code = TU_ENOMEM;
    r.q = tu_arena_alloc(arena, wide, sizeof *r.q, err);
    r.kv = tu_arena_alloc(arena, wide, sizeof *r.kv, err);
    r.acc = tu_arena_alloc(arena, wide, sizeof *r.acc, err);
    r.x = tu_arena_alloc(arena, f->x, sizeof *r.x, err);
    const struct tu_attn_seq *s = &a->seq[r.t.b];
    if (r.q && r.kv && r.acc && r.x)
        code = 0;
    for (uint64_t i = 0; !code && i < s->sq; i++) {
        r.t.i0 = i;
        r.m = -INFINITY;
        r.l = 0;
        memset(r.acc, 0, a->dv * sizeof *r.acc);
        code = tu_to_float(a->q.dtype, tui_q_row(&a->q, s, i, h), r.q, a->d, err);
        code = code ? code : f->row(&r, err);
        code = code ? code : finish(&r, err);
    }
    tu_arena_free(arena);
    return code;
}

static int form(const struct tu_attn *a, int (*row)(struct row *, struct tu_err *),
                uint64_t x, bool low, const struct tu_job *job, struct tu_err *err)
{
    struct form f = {a, row, tu_max(1, x), low};
    return tu_pool_run(job ? job->pool : NULL, a->batch * a->hq, head_task, &f, err);
}

int tui_form_naive3(const struct tu_attn *a, const struct tu_job *job, struct tu_err *err)
{
    return form(a, three, a->sk_max, false, job, err);
}

int tui_form_naive2(const struct tu_attn *a, const struct tu_job *job, struct tu_err *err)
{
    return form(a, two, PART, false, job, err);
}

int tui_form_online(const struct tu_attn *a, const struct tu_job *job, struct tu_err *err)
{
    return form(a, one, 1, false, job, err);
}

int tui_form_low(const struct tu_attn *a, const struct tu_job *job, struct tu_err *err)
{
    return form(a, three, a->sk_max, a->q.dtype != TU_F32, job, err);
}
