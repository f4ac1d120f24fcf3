/* SPDX-License-Identifier: Apache-2.0 */
/* mix_ssd.c: Mamba-2's state space duality: a decay exp(dt A) per step and head.
 *
 * x [batch, L, H, P], dt [batch, L, H], A [H], B and C [batch, L, G, N] shared by H/G
 * heads, D [H] optional: h = exp(dt A) h + dt x B', y = h C + D x. It is the gated
 * recurrence with q = C, k = B, v = dt x, a number for a gate; states are [batch, H, P,
 * N]. Source: Dao and Gu, "Transformers are SSMs", 2024. */
#include <math.h>
#include <string.h>
#include "attn/gated.h"
#include "attn/recur.h"
#include "attn/scan_back.h"
#include "attn/scratch.h"

static const char *const names[] = {"x",  "dt",  "A",         "B",       "C",
                                    "D?", "do?", "state_in?", "dstate?", NULL};
static const char *const algos[] = {"chunks", "ref", NULL};

struct ssd {
    const struct tu_operand *x, *dt, *a, *b, *c, *d, *dout, *state, *dstate;
    uint64_t batch, n, h, p, g, s;
};

static int bind(struct ssd *z, const struct tu_mixer_args *m, struct tu_err *err)
{
    const struct tu_operand **to[] = {&z->x, &z->dt,   &z->a,     &z->b,     &z->c,
                                      &z->d, &z->dout, &z->state, &z->dstate};
    static const char *const name[] = {"x", "dt", "A",        "B",     "C",
                                       "D", "do", "state_in", "dstate"};
    int code;
    for (unsigned i = 0; i < 9; i++)
        *to[i] = tu_operand_find(m->in, m->n_in, name[i]);
    if (!z->x || !z->b)
        return tui_missing(z->x ? "B" : "x", err);
    if (z->x->rank != 4 || z->b->rank != 4)
        return tu_fail(err, TU_ESIZE, "'x' and 'B' must have 4 dimensions");
    z->batch = z->x->dim[0];
    z->n = z->x->dim[1];
    z->h = z->x->dim[2];
    z->p = z->x->dim[3];
    z->g = z->b->dim[2];
    z->s = z->b->dim[3];
    if (!z->g || z->h % z->g)
        return tu_fail(err, TU_ESIZE,
                       "'x' has %llu heads, no multiple of the %llu of 'B'",
                       (unsigned long long)z->h, (unsigned long long)z->g);
    uint64_t bc[4] = {z->batch, z->n, z->g, z->s}, st[4] = {z->batch, z->h, z->p, z->s};
    if ((code = tui_recur_shape(z->x, "x", 4, z->x->dim, err)) ||
        (code = tui_recur_shape(z->dt, "dt", 3, z->x->dim, err)) ||
        (code = tui_recur_shape(z->a, "A", 1, &z->h, err)) ||
        (code = tui_recur_shape(z->b, "B", 4, bc, err)) ||
        (code = tui_recur_shape(z->c, "C", 4, bc, err)) ||
        (z->d && (code = tui_recur_shape(z->d, "D", 1, &z->h, err))) ||
        (z->dout && (code = tui_recur_shape(z->dout, "do", 4, z->x->dim, err))) ||
        (z->state && (code = tui_recur_shape(z->state, "state_in", 4, st, err))) ||
        (z->dstate && (code = tui_recur_shape(z->dstate, "dstate", 4, st, err))))
        return code;
    return 0;
}

static int infer(struct tu_mixer_args *m, struct tu_err *err)
{
    struct ssd z;
    int code = bind(&z, m, err);
    if (code)
        return code;
    uint64_t st[4] = {z.batch, z.h, z.p, z.s};
    m->n_out = 0;
    if (m->pass & TU_PASS_FWD) {
        tui_recur_out(m, "y", z.x->dtype, 4, z.x->dim);
        tui_recur_out(m, "state_out", TU_F32, 4, st);
    }
    if (!(m->pass & TU_PASS_BWD))
        return 0;
    if (!z.dout)
        return tui_missing("do", err);
    tui_recur_out(m, "dx", z.x->dtype, 4, z.x->dim);
    tui_recur_out(m, "ddt", TU_F32, 3, z.dt->dim);
    tui_recur_out(m, "dA", TU_F32, 1, &z.h);
    tui_recur_out(m, "dB", TU_F32, 4, z.b->dim);
    tui_recur_out(m, "dC", TU_F32, 4, z.c->dim);
    if (z.d)
        tui_recur_out(m, "dD", TU_F32, 1, &z.h);
    tui_recur_out(m, "dstate_in", TU_F32, 4, st);
    return 0;
}

/* One head in float64, for the reference and the backward pass. */
struct head {
    struct tui_gated r;
    double *x, *dt, *turn, a, d; /* turn: a state, [P, N] */
    struct tu_arena *arena;
};

static int load(struct head *w, const struct ssd *z, uint64_t b, uint64_t h,
                struct tu_err *err)
{
    uint64_t n = z->n, dv = z->p;
    *w = (struct head){.r = {.n = n, .d = z->s, .dv = dv, .scale = 1}};
    struct tui_gated *r = &w->r;
    const struct tui_part part[] = {
        {&w->x, n * dv, sizeof(double)},
        {&w->dt, n * z->h, sizeof(double)},
        {&w->turn, z->s * dv, sizeof(double)},
    };
    int code = tui_gated_init(r, err);
    if (code || (code = TUI_SCRATCH(&w->arena, part, err)) ||
        (code = tui_recur_load(z->x, b, h, w->x, err)) ||
        (code = tui_recur_load(z->c, b, h / (z->h / z->g), r->q, err)) ||
        (code = tui_recur_load(z->b, b, h / (z->h / z->g), r->k, err)) ||
        (code = tui_recur_state(z->dt, b, w->dt, n * z->h, err)) ||
        (code = tui_recur_state(z->a, h, &w->a, 1, err)) ||
        (code = tui_recur_state(z->d, h, &w->d, 1, err)))
        return code;
    for (uint64_t t = 0; t < n; t++) {
        w->dt[t] = w->dt[t * z->h + h];
        r->g[t] = w->dt[t] * w->a;
        for (uint64_t p = 0; p < dv; p++)
            r->v[t * dv + p] = w->dt[t] * w->x[t * dv + p];
    }
    return 0;
}

/* A state between [P, N] outside and [N, P] here. */
static int take_state(struct head *w, const struct tu_operand *o, uint64_t at, double *to,
                      struct tu_err *err)
{
    uint64_t d = w->r.d, dv = w->r.dv;
    int code = tui_recur_state(o, at, w->turn, d * dv, err);
    for (uint64_t i = 0; i < d * dv; i++)
        to[i] = w->turn[i % dv * d + i / dv];
    return code;
}

static int give_state(struct head *w, const struct tu_operand *o, uint64_t at,
                      const double *from, struct tu_err *err)
{
    uint64_t d = w->r.d, dv = w->r.dv;
    for (uint64_t i = 0; i < d * dv; i++)
        w->turn[i % dv * d + i / dv] = from[i];
    return tui_recur_put(o, at, w->turn, d * dv, err);
}

/* Forward by the reference. */
static int exact(struct head *w, const struct ssd *z, const struct tu_mixer_args *m,
                 uint64_t b, uint64_t h, struct tu_err *err)
{
    int code = take_state(w, z->state, b * z->h + h, w->r.state, err);
    if (code)
        return code;
    tui_gated_steps(&w->r);
    for (uint64_t i = 0; i < z->n * z->p; i++)
        w->r.o[i] += w->d * w->x[i];
    code = tui_recur_store(tu_operand_find(m->out, m->n_out, "y"), b, h, w->r.o, err);
    return code ? code
                : give_state(w, tu_operand_find(m->out, m->n_out, "state_out"),
                             b * z->h + h, w->r.state, err);
}

/* dt of head h, a number per step. */
static struct tui_steps numbers(const struct ssd *z, uint64_t b, uint64_t h)
{
    size_t e = tu_dtype_find(z->dt->dtype)->block_bytes;
    return (struct tui_steps){(char *)z->dt->data + (b * z->n * z->h + h) * e,
                              z->dt->dtype, (int64_t)(z->h * e)};
}

/* Forward in chunks; *odd as tui_scan_run. */
static int fast(const struct ssd *z, const struct tu_mixer_args *m, uint64_t b,
                uint64_t h, bool *odd, struct tu_err *err)
{
    const struct tu_operand *y = tu_operand_find(m->out, m->n_out, "y"),
                            *last = tu_operand_find(m->out, m->n_out, "state_out");
    uint64_t group = h / (z->h / z->g), at = b * z->h + h;
    struct head w = {.r = {.d = z->s, .dv = z->p}};
    const struct tui_part part[] = {
        {&w.r.state, z->s * z->p, sizeof(double)},
        {&w.turn, z->s * z->p, sizeof(double)},
    };
    int code = TUI_SCRATCH(&w.arena, part, err);
    if (code || (code = tui_recur_state(z->a, h, &w.a, 1, err)) ||
        (code = tui_recur_state(z->d, h, &w.d, 1, err)) ||
        (code = take_state(&w, z->state, at, w.r.state, err)))
        goto out;
    const struct tui_scan x = {.n = z->n,
                               .d = z->s,
                               .dv = z->p,
                               .block = m->opt->block,
                               .compute = tui_compute(m->opt, z->x->dtype),
                               .scale = 1,
                               .q = tui_recur_steps(z->c, b, group),
                               .k = tui_recur_steps(z->b, b, group),
                               .v = tui_recur_steps(z->x, b, h),
                               .gate = numbers(z, b, h),
                               .rate = w.a,
                               .weight = numbers(z, b, h),
                               .skip = w.d,
                               .o = tui_recur_steps(y, b, h),
                               .state = w.r.state};
    code = tui_scan_run(&x, odd, err);
    if (!code && !*odd)
        code = give_state(&w, last, at, w.r.state, err);
out:
    tu_arena_free(w.arena);
    return code;
}

static float *grad(const struct tu_mixer_args *m, const char *name)
{
    const struct tu_operand *o = tu_operand_find(m->out, m->n_out, name);
    return o ? o->data : NULL;
}

static void add(const struct tu_operand *o, float *to, uint64_t b, uint64_t g,
                const double *v)
{
    for (uint64_t t = 0; t < o->dim[1]; t++)
        for (uint64_t i = 0; i < o->dim[3]; i++)
            to[((b * o->dim[1] + t) * o->dim[2] + g) * o->dim[3] + i] +=
                (float)v[t * o->dim[3] + i];
}

/* From the gradients of q, k, v and the gates to those of what they were made of. */
static int backward(struct head *w, const struct ssd *z, const struct tu_mixer_args *m,
                    uint64_t b, uint64_t h, struct tu_err *err)
{
    struct tui_gated *r = &w->r;
    uint64_t at = b * z->h + h, group = h / (z->h / z->g);
    const struct tui_scan_how how = {
        .block = m->opt->block, .compute = TU_F32, .gates = true};
    bool slow = tui_recur_exact(m, z->x->dtype);
    int code;
    if ((code = tui_recur_load(z->dout, b, h, r->dout, err)) ||
        (code = take_state(w, z->state, at, r->state, err)) ||
        (code = take_state(w, z->dstate, at, r->dstate, err)) ||
        (!slow && (code = tui_scan_back(r, &how, &slow, err))))
        return code;
    if (slow)
        tui_gated_back(r);
    float *ddt = grad(m, "ddt"), *da = grad(m, "dA"), *dd = grad(m, "dD");
    double sum_a = 0, sum_d = 0;
    for (uint64_t t = 0; t < z->n; t++) {
        double sum = r->dg[t] * w->a;
        sum_a += r->dg[t] * w->dt[t];
        for (uint64_t p = 0; p < z->p; p++) {
            uint64_t i = t * z->p + p;
            sum += r->dv_[i] * w->x[i];
            sum_d += r->dout[i] * w->x[i];
            r->o[i] = r->dv_[i] * w->dt[t] + w->d * r->dout[i];
        }
        ddt[(b * z->n + t) * z->h + h] = (float)sum;
    }
    da[h] += (float)sum_a;
    if (dd)
        dd[h] += (float)sum_d;
    add(z->b, grad(m, "dB"), b, group, r->dk);
    add(z->c, grad(m, "dC"), b, group, r->dq);
    code = tui_recur_store(tu_operand_find(m->out, m->n_out, "dx"), b, h, r->o, err);
    return code ? code
                : give_state(w, tu_operand_find(m->out, m->n_out, "dstate_in"), at,
                             r->dstate, err);
}

static int task(void *ctx, uint64_t n, unsigned worker, struct tu_err *err)
{
    const struct tu_mixer_args *m = ctx;
    struct ssd z;
    struct head w = {0};
    (void)worker;
    int code = bind(&z, m, err);
    if (code)
        return code;
    uint64_t b = n / z.h, h = n % z.h;
    bool forward = m->pass & TU_PASS_FWD, slow = tui_recur_exact(m, z.x->dtype);
    if (forward && !slow) {
        code = fast(&z, m, b, h, &slow, err);
        forward = slow;
    }
    if (code || (!forward && !(m->pass & TU_PASS_BWD)))
        return code;
    if ((code = load(&w, &z, b, h, err)))
        goto out;
    if (forward)
        code = exact(&w, &z, m, b, h, err);
    if (!code && (m->pass & TU_PASS_BWD))
        code = backward(&w, &z, m, b, h, err);
out:
    tu_arena_free(w.arena);
    tu_arena_free(w.r.arena);
    return code;
}

static int run(const struct tu_mixer_args *m, struct tu_err *err)
{
    struct ssd z;
    int code = bind(&z, m, err);
    return code ? code : tui_recur_run(m, z.batch * z.h, task, err);
}

static double flops(const struct tu_mixer_args *m)
{
    struct ssd z;
    if (bind(&z, m, NULL))
        return 0;
    double fwd = 4.0 * (double)(z.batch * z.h * z.n) * (double)(z.p * z.s);
    return (m->pass & TU_PASS_FWD ? fwd : 0) + (m->pass & TU_PASS_BWD ? 2 * fwd : 0);
}

const struct tu_mixer tui_mix_ssd = {
    .name = "ssd",
    .help = "Mamba-2's state space: a decay per step and head",
    .source = "Dao and Gu, Transformers are SSMs, 2024",
    .in = names,
    .algo = algos,
    .infer = infer,
    .run = run,
    .flops = flops,
};
