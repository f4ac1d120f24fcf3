/* SPDX-License-Identifier: Apache-2.0 */
/* mix_mamba.c: Mamba-1's selective scan: a decay per channel and state.
 *
 * u and dt [batch, L, C], A [C, N], B and C [batch, L, N], D [C] and z [batch, L, C]
 * optional: h = exp(dt A) h + dt B u, y = C h + D u, then times silu(z). States are
 * [batch, C, N]. Channels are independent and run in parallel. Source: Gu and Dao,
 * "Mamba", 2023. */
#include <math.h>
#include <string.h>
#include "attn/recur.h"
#include "attn/scratch.h"

static const char *const names[] = {"u",  "dt",  "A",         "B",       "C", "D?",
                                    "z?", "do?", "state_in?", "dstate?", NULL};
static const char *const algos[] = {"scan", "ref", NULL};

enum { U, DT, A, B, C, D, Z, DO, STATE, DSTATE, OPERANDS };

struct mamba {
    const struct tu_operand *in[OPERANDS];
    uint64_t batch, n, c, s;
};

static int bind(struct mamba *x, const struct tu_mixer_args *m, struct tu_err *err)
{
    static const char *const name[] = {"u", "dt", "A",  "B",        "C",
                                       "D", "z",  "do", "state_in", "dstate"};
    for (unsigned i = 0; i < OPERANDS; i++)
        x->in[i] = tu_operand_find(m->in, m->n_in, name[i]);
    if (!x->in[U] || !x->in[A])
        return tui_missing(x->in[U] ? "A" : "u", err);
    if (x->in[U]->rank != 3 || x->in[A]->rank != 2)
        return tu_fail(err, TU_ESIZE,
                       "'u' must be [batch, steps, channels], 'A' [channels, state]");
    x->batch = x->in[U]->dim[0];
    x->n = x->in[U]->dim[1];
    x->c = x->in[U]->dim[2];
    x->s = x->in[A]->dim[1];
    uint64_t bc[3] = {x->batch, x->n, x->s}, st[3] = {x->batch, x->c, x->s},
             a[2] = {x->c, x->s};
    const uint64_t *u = x->in[U]->dim, *dim[] = {u, u, a, bc, bc, &x->c, u, u, st, st};
    static const unsigned rank[] = {3, 3, 2, 3, 3, 1, 3, 3, 3, 3};
    for (unsigned i = 0; i < OPERANDS; i++) {
        int code = x->in[i] || i < D
                       ? tui_recur_shape(x->in[i], name[i], rank[i], dim[i], err)
                       : 0;
        if (code)
            return code;
    }
    return 0;
}

static int infer(struct tu_mixer_args *m, struct tu_err *err)
{
    struct mamba x;
    int code = bind(&x, m, err);
    if (code)
        return code;
    uint64_t st[3] = {x.batch, x.c, x.s};
    m->n_out = 0;
    if (m->pass & TU_PASS_FWD) {
        tui_recur_out(m, "y", x.in[U]->dtype, 3, x.in[U]->dim);
        tui_recur_out(m, "state_out", TU_F32, 3, st);
    }
    if (!(m->pass & TU_PASS_BWD))
        return 0;
    if (!x.in[DO])
        return tui_missing("do", err);
    static const char *const grad[] = {"du", "ddt", "dA", "dB", "dC", "dD", "dz"};
    for (unsigned i = U; i <= Z; i++)
        if (x.in[i])
            tui_recur_out(m, grad[i], TU_F32, x.in[i]->rank, x.in[i]->dim);
    tui_recur_out(m, "dstate_in", TU_F32, 3, st);
    return 0;
}

/* One channel: [n] of u, dt, z, do; [n, s] of B, C and of every state; the gradients
 * beside. */
struct channel {
    double *u, *dt, *z, *g, *b, *c, *a, *h, *y, *dh, *db, *dc, *da, d;
    struct tu_arena *arena;
};

static int column(const struct tu_operand *o, uint64_t b, uint64_t c, double *out,
                  struct tu_err *err)
{
    int code = 0;
    for (uint64_t t = 0; o && !code && t < o->dim[1]; t++)
        code = tui_recur_state(o, (b * o->dim[1] + t) * o->dim[2] + c, out + t, 1, err);
    return code;
}

static int load(struct channel *w, const struct mamba *x, uint64_t b, uint64_t c,
                struct tu_err *err)
{
    uint64_t n = x->n, s = x->s;
    const size_t e = sizeof(double);
    const struct tui_part part[] = {
        {&w->u, n, e},     {&w->dt, n, e},          {&w->z, n, e},      {&w->g, n, e},
        {&w->b, n * s, e}, {&w->c, n * s, e},       {&w->a, s, e},      {&w->y, n, e},
        {&w->dh, s, e},    {&w->h, (n + 1) * s, e}, {&w->db, n * s, e}, {&w->dc, n * s, e},
        {&w->da, s, e},
    };
    int code = TUI_SCRATCH(&w->arena, part, err);
    if (code || (code = column(x->in[U], b, c, w->u, err)) ||
        (code = column(x->in[DT], b, c, w->dt, err)) ||
        (code = column(x->in[Z], b, c, w->z, err)) ||
        (code = column(x->in[DO], b, c, w->g, err)) ||
        (code = tui_recur_state(x->in[B], b, w->b, n * s, err)) ||
        (code = tui_recur_state(x->in[C], b, w->c, n * s, err)) ||
        (code = tui_recur_state(x->in[A], c, w->a, s, err)) ||
        (code = tui_recur_state(x->in[D], c, &w->d, 1, err)) ||
        (code = tui_recur_state(x->in[STATE], b * x->c + c, w->h, s, err)))
        return code;
    return tui_recur_state(x->in[DSTATE], b * x->c + c, w->dh, s, err);
}

static double silu(double z)
{
    return z / (1 + exp(-z));
}

/* All states are kept, h[t + 1] after step t; y without the factor of z. */
static void scan(struct channel *w, const struct mamba *x)
{
    for (uint64_t t = 0; t < x->n; t++) {
        double y = w->d * w->u[t];
        for (uint64_t i = 0; i < x->s; i++) {
            double *h = w->h + t * x->s + i;
            h[x->s] =
                exp(w->dt[t] * w->a[i]) * *h + w->dt[t] * w->b[t * x->s + i] * w->u[t];
            y += w->c[t * x->s + i] * h[x->s];
        }
        w->y[t] = y;
    }
}

static float *out(const struct tu_mixer_args *m, const char *name)
{
    const struct tu_operand *o = tu_operand_find(m->out, m->n_out, name);
    return o ? o->data : NULL;
}

/* From the last step to the first; dh is the gradient of the state after the step at
 * hand. */
static void backward(struct channel *w, const struct mamba *x,
                     const struct tu_mixer_args *m, uint64_t b, uint64_t c)
{
    float *du = out(m, "du"), *ddt = out(m, "ddt"), *dz = out(m, "dz"),
          *dd = out(m, "dD");
    for (uint64_t t = x->n; t-- > 0;) {
        uint64_t at = (b * x->n + t) * x->c + c;
        double g = w->g[t], u = w->u[t], dt = w->dt[t], sum_u = 0, sum_dt = 0;
        if (x->in[Z]) {
            double e = 1 / (1 + exp(-w->z[t]));
            dz[at] = (float)(g * w->y[t] * e * (1 + w->z[t] * (1 - e)));
            g *= silu(w->z[t]);
        }
        for (uint64_t i = 0; i < x->s; i++) {
            uint64_t k = t * x->s + i;
            double before = w->h[k], fade = exp(dt * w->a[i]);
            w->dc[k] = g * w->h[k + x->s];
            double dh = w->dh[i] + g * w->c[k];
            w->db[k] = dh * dt * u;
            sum_u += dh * dt * w->b[k];
            sum_dt += dh * (w->b[k] * u + fade * before * w->a[i]);
            w->da[i] += dh * fade * before * dt;
            w->dh[i] = dh * fade;
        }
        du[at] = (float)(sum_u + w->d * g);
        ddt[at] = (float)sum_dt;
        if (dd)
            dd[c] += (float)(g * u);
    }
}

static int finish_back(struct channel *w, const struct mamba *x,
                       const struct tu_mixer_args *m, uint64_t b, uint64_t c,
                       struct tu_err *err)
{
    float *da = out(m, "dA"), *db = out(m, "dB"), *dc = out(m, "dC");
    for (uint64_t i = 0; i < x->s; i++)
        da[c * x->s + i] += (float)w->da[i];
    for (uint64_t i = 0; i < x->n * x->s; i++) {
        db[b * x->n * x->s + i] += (float)w->db[i];
        dc[b * x->n * x->s + i] += (float)w->dc[i];
    }
    return tui_recur_put(tu_operand_find(m->out, m->n_out, "dstate_in"), b * x->c + c,
                         w->dh, x->s, err);
}

static int task(void *ctx, uint64_t n, unsigned worker, struct tu_err *err)
{
    const struct tu_mixer_args *m = ctx;
    const struct tu_operand *y = tu_operand_find(m->out, m->n_out, "y");
    struct mamba x;
    struct channel w = {0};
    (void)worker;
    int code = bind(&x, m, err);
    uint64_t b = code ? 0 : n / x.c, c = code ? 0 : n % x.c;
    if (code || (code = load(&w, &x, b, c, err)))
        goto out;
    scan(&w, &x);
    for (uint64_t t = 0; y && !code && t < x.n; t++) {
        double v = x.in[Z] ? w.y[t] * silu(w.z[t]) : w.y[t];
        code = tui_recur_put(y, (b * x.n + t) * x.c + c, &v, 1, err);
    }
    if (!code && y)
        code = tui_recur_put(tu_operand_find(m->out, m->n_out, "state_out"), b * x.c + c,
                             w.h + x.n * x.s, x.s, err);
    if (!code && (m->pass & TU_PASS_BWD)) {
        backward(&w, &x, m, b, c);
        code = finish_back(&w, &x, m, b, c, err);
    }
out:
    tu_arena_free(w.arena);
    return code;
}

static int run(const struct tu_mixer_args *m, struct tu_err *err)
{
    struct mamba x;
    int code = bind(&x, m, err);
    return code ? code : tui_recur_run(m, x.batch * x.c, task, err);
}

static double flops(const struct tu_mixer_args *m)
{
    struct mamba x;
    if (bind(&x, m, NULL))
        return 0;
    double fwd = 9.0 * (double)(x.batch * x.n * x.c) * (double)x.s;
    return (m->pass & TU_PASS_FWD ? fwd : 0) + (m->pass & TU_PASS_BWD ? 2 * fwd : 0);
}

const struct tu_mixer tui_mix_mamba = {
    .name = "mamba",
    .help = "Mamba-1's selective scan: a decay per channel and state",
    .source = "Gu and Dao, Mamba, 2023",
    .in = names,
    .algo = algos,
    .infer = infer,
    .run = run,
    .flops = flops,
};
