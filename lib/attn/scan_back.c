/* SPDX-License-Identifier: Apache-2.0 */
/* scan_back.c: gradients of the gated recurrence by three scans. */
#include <math.h>
#include <string.h>
#include "attn/scan_back.h"
#include "attn/scratch.h"

#define CLOSED (-17.4) /* a gate that leaves less than f32 resolves, 2^-25 */

struct work {
    const struct tui_gated *x;
    const struct tui_scan_how *how;
    float *q, *k, *v, *dout; /* q times the scale */
    float *g;                /* a step more than there are, with gates of 0 */
    float *dq, *dk, *dv;     /* dq without the scale; with gates without the step itself */
    double *state, *dstate;  /* [d, dv] */
    double *turned, *dturned; /* [dv, d] */
    struct tu_arena *arena;
};

static void narrow(float *to, const double *from, double by, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = (float)(by * from[i]);
}

/* The states as one scan finds them and as the others, which have them transposed. */
static void turn(double *to, const double *from, uint64_t m, uint64_t n)
{
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++)
            to[j * m + i] = from[i * n + j];
}

static int work_init(struct work *w, const struct tui_gated *x,
                     const struct tui_scan_how *how, struct tu_err *err)
{
    const size_t f = sizeof(float), e = sizeof(double);
    const uint64_t n = x->n, rows = n * x->d, values = n * x->dv, state = x->d * x->dv;
    const uint64_t gate = x->vector ? x->d : 1;
    *w = (struct work){.x = x, .how = how};
    const struct tui_part part[] = {
        {&w->q, rows, f},        {&w->k, rows, f},       {&w->v, values, f},
        {&w->dout, values, f},   {&w->dq, rows, f},      {&w->dk, rows, f},
        {&w->dv, values, f},     {&w->g, (n + 1) * gate, f},
        {&w->state, state, e},   {&w->dstate, state, e},
        {&w->turned, state, e},  {&w->dturned, state, e},
    };
    int code = TUI_SCRATCH(&w->arena, part, err);
    if (code)
        return code;
    narrow(w->q, x->q, x->scale, rows);
    narrow(w->k, x->k, 1, rows);
    narrow(w->v, x->v, 1, values);
    narrow(w->dout, x->dout, 1, values);
    narrow(w->g, x->g, 1, n * gate);
    memcpy(w->dstate, x->dstate, state * e);
    turn(w->turned, x->state, x->d, x->dv);
    turn(w->dturned, x->dstate, x->d, x->dv);
    return 0;
}

/* Rows of dim, in order or from the last to the first. */
static struct tui_steps along(float *rows, uint64_t n, uint64_t dim, bool back)
{
    int64_t step = (int64_t)(dim * sizeof *rows);
    return (struct tui_steps){rows + (back && n ? (n - 1) * dim : 0), TU_F32,
                              back ? -step : step};
}

/* o, by the state of q, k and v. Backwards, dS_t comes from dS_{t+1} by the gate of t +
 * 1; the last step, the first to be seen, by the gate behind all. */
static int scan(const struct work *w, bool back, float *q, float *k, float *v, float *o,
                bool turned, double *state, bool *odd, struct tu_err *err)
{
    const struct tui_gated *x = w->x;
    const uint64_t n = x->n, d = turned ? x->dv : x->d, dv = turned ? x->d : x->dv;
    const struct tui_scan y = {.n = n,
                               .d = d,
                               .dv = dv,
                               .block = w->how->block,
                               .compute = w->how->compute,
                               .gates = !x->vector ? TUI_GATES_ONE
                                        : turned   ? TUI_GATES_COLUMNS
                                                   : TUI_GATES_ROWS,
                               .both_ways = w->how->both_ways,
                               .strict = turned && w->how->gates,
                               .scale = 1,
                               .q = along(q, n, d, back),
                               .k = along(k, n, d, back),
                               .v = along(v, n, dv, back),
                               .gate = along(w->g, n + back, x->vector ? x->d : 1, back),
                               .rate = 1,
                               .o = along(o, n, dv, back),
                               .state = state};
    return *odd ? 0 : tui_scan_run(&y, odd, err);
}

/* G_t, the sum up to step t, stands in its factor of q_t and in the inverse one of k_t;
 * g_t is in every G from t on, so it has what comes with the state before the first step
 * and of every step before t k dk - q dq. In that order, and without what a step is to
 * itself, no terms are in the sum that do not decay: nothing large cancels. What is left
 * of the sum at a closed gate is rounding. */
static void gates(const struct work *w)
{
    const struct tui_gated *x = w->x;
    for (uint64_t a = 0; a < x->d; a++) {
        double run = 0;
        for (uint64_t b = 0; b < x->dv; b++)
            run += x->state[a * x->dv + b] * w->dstate[a * x->dv + b];
        run *= x->n ? exp(x->g[x->vector ? a : 0]) : 1;
        for (uint64_t t = 0; t < x->n; t++) {
            uint64_t at = t * x->d + a, gate = x->vector ? at : t;
            if (x->g[gate] < CLOSED)
                run = 0;
            x->dg[gate] += run;
            run += (double)w->k[at] * (double)w->dk[at] -
                   (double)w->q[at] * (double)w->dq[at];
        }
    }
}

/* What a step is to itself. */
static void add_self(const struct work *w)
{
    const struct tui_gated *x = w->x;
    for (uint64_t t = 0; t < x->n; t++) {
        double s = 0;
        for (uint64_t b = 0; b < x->dv; b++)
            s += x->dout[t * x->dv + b] * x->v[t * x->dv + b];
        for (uint64_t i = t * x->d; i < (t + 1) * x->d; i++) {
            w->dq[i] += (float)(s * (double)w->k[i]);
            w->dk[i] += (float)(s * (double)w->q[i]);
        }
    }
}

static void give(const struct work *w)
{
    const struct tui_gated *x = w->x;
    for (uint64_t i = 0; i < x->n * x->d; i++) {
        x->dq[i] = (double)((float)x->scale * w->dq[i]);
        x->dk[i] = (double)w->dk[i];
    }
    for (uint64_t i = 0; i < x->n * x->dv; i++)
        x->dv_[i] = (double)w->dv[i];
    turn(x->state, w->turned, x->dv, x->d);
    for (uint64_t a = 0; a < x->d; a++) {
        bool fades = x->n && !w->how->both_ways;
        double fade = fades ? exp(x->g[x->vector ? a : 0]) : 1;
        for (uint64_t b = 0; b < x->dv; b++)
            x->dstate[a * x->dv + b] = fade * w->dstate[a * x->dv + b];
    }
}

int tui_scan_back(struct tui_gated *x, const struct tui_scan_how *how, bool *odd,
                  struct tu_err *err)
{
    struct work w;
    int code = work_init(&w, x, how, err);
    *odd = false;
    if (code ||
        (code = scan(&w, false, w.dout, w.v, w.k, w.dq, true, w.turned, odd, err)) ||
        (code = scan(&w, true, w.v, w.dout, w.q, w.dk, true, w.dturned, odd, err)) ||
        (code = scan(&w, true, w.k, w.q, w.dout, w.dv, false, w.dstate, odd, err)))
        goto out;
    if (*odd)
        goto out;
    if (how->gates) {
        gates(&w);
        add_self(&w);
    }
    give(&w);
out:
    tu_arena_free(w.arena);
    return code;
}
