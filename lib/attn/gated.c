/* SPDX-License-Identifier: Apache-2.0 */
/* gated.c: the decaying matrix state, forwards and backwards. */
#include <math.h>
#include <string.h>
#include "attn/gated.h"
#include "attn/scratch.h"

int tui_gated_init(struct tui_gated *x, struct tu_err *err)
{
    const size_t e = sizeof(double);
    const uint64_t n = x->n, rows = n * x->d, values = n * x->dv, state = x->d * x->dv;
    const uint64_t gates = x->vector ? rows : n;
    const struct tui_part part[] = {
        {&x->g, gates, e},      {&x->q, rows, e},
        {&x->k, rows, e},       {&x->v, values, e},
        {&x->dout, values, e},  {&x->o, values, e},
        {&x->dq, rows, e},      {&x->dk, rows, e},
        {&x->dv_, values, e},   {&x->dg, gates, e},
        {&x->state, state, e},  {&x->dstate, state, e},
        {&x->work, state, e},
    };
    return TUI_SCRATCH(&x->arena, part, err);
}

/* Log decay of row a at step t. */
static double gate(const struct tui_gated *x, uint64_t t, uint64_t a)
{
    return x->vector ? x->g[t * x->d + a] : x->g[t];
}

static void step(const struct tui_gated *x, double *s, uint64_t t)
{
    const double *k = x->k + t * x->d, *v = x->v + t * x->dv;
    for (uint64_t a = 0; a < x->d; a++) {
        double fade = exp(gate(x, t, a));
        for (uint64_t b = 0; b < x->dv; b++)
            s[a * x->dv + b] = fade * s[a * x->dv + b] + k[a] * v[b];
    }
}

void tui_gated_steps(const struct tui_gated *x)
{
    for (uint64_t t = 0; t < x->n; t++) {
        step(x, x->state, t);
        for (uint64_t a = 0; a < x->d; a++)
            for (uint64_t b = 0; b < x->dv; b++)
                x->o[t * x->dv + b] +=
                    x->scale * x->q[t * x->d + a] * x->state[a * x->dv + b];
    }
}

/* Gradients of the decays from those of q and k: exp(G_t) stands with q_t, exp(-G_t) with
 * k_t, so dG_t = q_t dq_t - k_t dk_t, and the last state holds exp(G_n). g_t is in every
 * later G. */
static void gates(const struct tui_gated *x, const double *last, const double *dlast)
{
    for (uint64_t a = 0; a < x->d; a++) {
        double run = 0;
        for (uint64_t b = 0; b < x->dv; b++)
            run += last[a * x->dv + b] * dlast[a * x->dv + b];
        for (uint64_t t = x->n; t-- > 0;) {
            uint64_t at = t * x->d + a;
            run += x->q[at] * x->dq[at] - x->k[at] * x->dk[at];
            x->dg[x->vector ? at : t] += run;
        }
    }
}

/* dS_t = exp(g_{t+1}) dS_{t+1} + q_t do_t', dk_t = dS_t v_t, dv_t = dS_t' k_t, from the
 * end. */
static void back_step(const struct tui_gated *x, uint64_t t)
{
    const double *q = x->q + t * x->d, *k = x->k + t * x->d, *v = x->v + t * x->dv;
    const double *g = x->dout + t * x->dv;
    for (uint64_t a = 0; a < x->d; a++) {
        double *ds = x->dstate + a * x->dv, sum = 0;
        for (uint64_t b = 0; b < x->dv; b++) {
            ds[b] += x->scale * q[a] * g[b];
            sum += ds[b] * v[b];
            x->dv_[t * x->dv + b] += ds[b] * k[a];
        }
        x->dk[t * x->d + a] += sum;
        double fade = exp(gate(x, t, a));
        for (uint64_t b = 0; b < x->dv; b++)
            ds[b] *= fade;
    }
}

void tui_gated_back(const struct tui_gated *x)
{
    uint64_t n = x->d * x->dv;
    double *dlast = x->work;
    memcpy(dlast, x->dstate, n * sizeof *dlast);
    for (uint64_t t = 0; t < x->n; t++) {
        step(x, x->state, t);
        for (uint64_t a = 0; a < x->d; a++)
            for (uint64_t b = 0; b < x->dv; b++)
                x->dq[t * x->d + a] +=
                    x->scale * x->state[a * x->dv + b] * x->dout[t * x->dv + b];
    }
    for (uint64_t t = x->n; t-- > 0;)
        back_step(x, t);
    if (x->dg)
        gates(x, x->state, dlast);
}
