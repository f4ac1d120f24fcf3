/* SPDX-License-Identifier: Apache-2.0 */
/* mix_linear.c: linear attention with a decay per head, and gated linear attention.
 *
 * "chunks" is the tiling of Lightning Attention-2 and GLA in f32, "ref" goes step by step
 * in float64; both over heads in parallel. Without causality o = q (K'V). Sequences carry
 * their state in and out, so pieces equal the whole. */
#include <math.h>
#include <string.h>
#include "attn/gated.h"
#include "attn/gpu.h"
#include "attn/recur.h"
#include "attn/scan_back.h"

static const char *const linear_in[] = {"q",         "k",       "v", "do?",
                                        "state_in?", "dstate?", NULL};
static const char *const gla_in[] = {"q",   "k",         "v",       "gate",
                                     "do?", "state_in?", "dstate?", NULL};
static const char *const algos[] = {"chunks", "ref", NULL};

static const struct tu_operand *in(const struct tu_mixer_args *m, const char *name)
{
    return tu_operand_find(m->in, m->n_in, name);
}

static const struct tu_operand *out(const struct tu_mixer_args *m, const char *name)
{
    return tu_operand_find(m->out, m->n_out, name);
}

static int infer_both(struct tu_mixer_args *m, bool gated, struct tu_err *err)
{
    struct tui_recur r;
    const struct tu_operand *gate = in(m, "gate");
    int code = tui_recur_init(&r, m, err);
    if (code || (gated && (code = tui_recur_shape(gate, "gate", 4, r.q->dim, err))))
        return code;
    uint64_t state[4] = {r.batch, r.heads, r.d, r.dv};
    m->n_out = 0;
    if (m->pass & TU_PASS_FWD) {
        tui_recur_out(m, "o", r.q->dtype, 4, r.v->dim);
        tui_recur_out(m, "state_out", TU_F32, 4, state);
    }
    if (!(m->pass & TU_PASS_BWD))
        return 0;
    if (!r.dout)
        return tui_missing("do", err);
    tui_recur_out(m, "dq", r.q->dtype, 4, r.q->dim);
    tui_recur_out(m, "dk", r.q->dtype, 4, r.k->dim);
    tui_recur_out(m, "dv", r.q->dtype, 4, r.v->dim);
    if (gated)
        tui_recur_out(m, "dgate", gate->dtype, 4, r.q->dim);
    tui_recur_out(m, "dstate_in", TU_F32, 4, state);
    return 0;
}

static int infer_linear(struct tu_mixer_args *m, struct tu_err *err)
{
    return infer_both(m, false, err);
}

static int infer_gla(struct tu_mixer_args *m, struct tu_err *err)
{
    return infer_both(m, true, err);
}

/* Without causality every step sees the sum of all: decays are 1, the state is complete
 * first. */
static void both_ways(struct tui_gated *x, bool back)
{
    double *sum = x->state;
    for (uint64_t t = 0; t < x->n; t++)
        for (uint64_t a = 0; a < x->d; a++)
            for (uint64_t b = 0; b < x->dv; b++) {
                sum[a * x->dv + b] += x->k[t * x->d + a] * x->v[t * x->dv + b];
                if (back)
                    x->dstate[a * x->dv + b] +=
                        x->scale * x->q[t * x->d + a] * x->dout[t * x->dv + b];
            }
    for (uint64_t t = 0; t < x->n; t++)
        for (uint64_t a = 0; a < x->d; a++)
            for (uint64_t b = 0; b < x->dv; b++) {
                double s = sum[a * x->dv + b];
                if (!back) {
                    x->o[t * x->dv + b] += x->scale * x->q[t * x->d + a] * s;
                    continue;
                }
                double ds = x->dstate[a * x->dv + b];
                x->dq[t * x->d + a] += x->scale * s * x->dout[t * x->dv + b];
                x->dk[t * x->d + a] += ds * x->v[t * x->dv + b];
                x->dv_[t * x->dv + b] += ds * x->k[t * x->d + a];
            }
}

static double scale_of(const struct tu_mixer_args *m)
{
    return isnan(m->opt->scale) ? 1 : m->opt->scale;
}

static double decay_of(const struct tu_mixer_args *m, uint64_t head, uint64_t heads)
{
    return m->opt->decay_slopes ? tu_alibi_slope(head, heads) : m->opt->decay;
}

/* A head before its inputs are read: sizes, memory, the decay that all steps share. */
static int head_init(struct tui_gated *x, const struct tui_recur *r,
                     const struct tu_mixer_args *m, uint64_t head, struct tu_err *err)
{
    *x = (struct tui_gated){.n = r->n,
                            .d = r->d,
                            .dv = r->dv,
                            .vector = in(m, "gate") != NULL,
                            .scale = scale_of(m)};
    int code = tui_gated_init(x, err);
    double s = decay_of(m, head, r->heads);
    for (uint64_t t = 0; !code && !x->vector && t < x->n; t++)
        x->g[t] = -s;
    return code;
}

static int back(struct tui_gated *x, const struct tu_mixer_args *m, uint64_t b,
                uint64_t h, uint64_t task, struct tu_err *err)
{
    uint64_t s = x->d * x->dv;
    uint32_t storage = in(m, "q")->dtype;
    const struct tui_scan_how how = {
        .block = m->opt->block,
        .compute = x->vector ? TU_F32 : tui_compute(m->opt, storage),
        .both_ways = m->opt->bidirectional,
        .gates = x->vector && !m->opt->bidirectional};
    bool slow = tui_recur_exact(m, storage);
    int code;
    if ((code = tui_recur_load(in(m, "do"), b, h, x->dout, err)) ||
        (code = tui_recur_state(in(m, "state_in"), task, x->state, s, err)) ||
        (code = tui_recur_state(in(m, "dstate"), task, x->dstate, s, err)) ||
        (!slow && (code = tui_scan_back(x, &how, &slow, err))))
        return code;
    if (slow && m->opt->bidirectional)
        both_ways(x, true);
    else if (slow)
        tui_gated_back(x);
    if ((code = tui_recur_store(out(m, "dq"), b, h, x->dq, err)) ||
        (code = tui_recur_store(out(m, "dk"), b, h, x->dk, err)) ||
        (code = tui_recur_store(out(m, "dv"), b, h, x->dv_, err)) ||
        (code = tui_recur_store(out(m, "dgate"), b, h, x->dg, err)))
        return code;
    return tui_recur_put(out(m, "dstate_in"), task, x->dstate, s, err);
}

/* Forward by the reference. */
static int exact(struct tui_gated *x, const struct tui_recur *r,
                 const struct tu_mixer_args *m, uint64_t b, uint64_t h, uint64_t task,
                 struct tu_err *err)
{
    int code = tui_recur_state(r->state, task, x->state, x->d * x->dv, err);
    if (code)
        return code;
    if (m->opt->bidirectional)
        both_ways(x, false);
    else
        tui_gated_steps(x);
    code = tui_recur_store(out(m, "o"), b, h, x->o, err);
    return code ? code
                : tui_recur_put(out(m, "state_out"), task, x->state, x->d * x->dv, err);
}

/* Forward in chunks; *odd as tui_scan_run. */
static int fast(const struct tui_recur *r, const struct tu_mixer_args *m, uint64_t b,
                uint64_t h, uint64_t task, bool *odd, struct tu_err *err)
{
    uint64_t s = r->d * r->dv;
    double *state = tu_alloc(s, sizeof *state, err), g = -decay_of(m, h, r->heads);
    const struct tu_operand *gate = in(m, "gate");
    struct tui_scan x = {.n = r->n,
                         .d = r->d,
                         .dv = r->dv,
                         .block = m->opt->block,
                         .compute = tui_compute(m->opt, r->q->dtype),
                         .gates = gate ? TUI_GATES_ROWS : TUI_GATES_ONE,
                         .both_ways = m->opt->bidirectional,
                         .scale = scale_of(m),
                         .q = tui_recur_steps(r->q, b, h),
                         .k = tui_recur_steps(r->k, b, h),
                         .v = tui_recur_steps(r->v, b, h),
                         .gate = {&g, TU_F64, 0},
                         .rate = 1,
                         .o = tui_recur_steps(out(m, "o"), b, h),
                         .state = state};
    if (gate)
        x.gate = tui_recur_steps(gate, b, h);
    int code = state ? tui_recur_state(r->state, task, state, s, err) : TU_ENOMEM;
    code = code ? code : tui_scan_run(&x, odd, err);
    if (!code && !*odd)
        code = tui_recur_put(out(m, "state_out"), task, state, s, err);
    tu_free(state);
    return code;
}

static int head_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    const struct tu_mixer_args *m = ctx;
    struct tui_recur r;
    struct tui_gated x = {0};
    (void)worker;
    int code = tui_recur_init(&r, m, err);
    if (code)
        return code;
    uint64_t b = task / r.heads, h = task % r.heads;
    bool forward = m->pass & TU_PASS_FWD, slow = tui_recur_exact(m, r.q->dtype);
    if (forward && !slow) {
        code = fast(&r, m, b, h, task, &slow, err);
        forward = slow;
    }
    if (code || (!forward && !(m->pass & TU_PASS_BWD)))
        return code;
    if ((code = head_init(&x, &r, m, h, err)) ||
        (code = tui_recur_load(r.q, b, h, x.q, err)) ||
        (code = tui_recur_load(r.k, b, h, x.k, err)) ||
        (code = tui_recur_load(r.v, b, h, x.v, err)) ||
        (x.vector && (code = tui_recur_load(in(m, "gate"), b, h, x.g, err))) ||
        (forward && (code = exact(&x, &r, m, b, h, task, err))))
        goto out;
    if (m->pass & TU_PASS_BWD)
        code = back(&x, m, b, h, task, err);
out:
    tu_arena_free(x.arena);
    return code;
}

static int run_gpu(const struct tu_mixer_args *m, uint64_t heads, struct tu_err *err)
{
    if (in(m, "gate"))
        return tui_gpu_scan(m, "gla.forward", NULL, err);
    float *decay = tu_alloc((size_t)heads, sizeof *decay, err);
    for (uint64_t h = 0; decay && h < heads; h++)
        decay[h] =
            (float)(m->opt->decay_slopes ? tu_alibi_slope(h, heads) : m->opt->decay);
    int code = decay ? tui_gpu_scan(m, "linear.forward", decay, err) : TU_ENOMEM;
    tu_free(decay);
    return code;
}

static int run(const struct tu_mixer_args *m, struct tu_err *err)
{
    struct tui_recur r;
    int code = tui_recur_init(&r, m, err);
    if (!code && m->device) {
        code = run_gpu(m, r.heads, err);
        if (tui_gpu_done(m, &code, err))
            return code;
    }
    return code ? code
                : tu_pool_run(m->job ? m->job->pool : NULL, r.batch * r.heads, head_task,
                              (void *)m, err);
}

static double flops(const struct tu_mixer_args *m)
{
    struct tui_recur r;
    if (tui_recur_init(&r, m, NULL))
        return 0;
    double fwd = 4.0 * (double)(r.batch * r.heads * r.n) * (double)(r.d * r.dv);
    return (m->pass & TU_PASS_FWD ? fwd : 0) + (m->pass & TU_PASS_BWD ? 2 * fwd : 0);
}

const struct tu_mixer tui_mix_linear = {
    .name = "linear",
    .help = "linear attention with a decay per head",
    .source = "Katharopoulos et al., 2020; Qin et al., Lightning Attention-2, 2024",
    .in = linear_in,
    .algo = algos,
    .device = true,
    .infer = infer_linear,
    .run = run,
    .flops = flops,
};

const struct tu_mixer tui_mix_gla = {
    .name = "gla",
    .help = "linear attention with a decay per step and key column; gate: its logarithm",
    .source = "Yang et al., Gated Linear Attention, 2024",
    .in = gla_in,
    .algo = algos,
    .device = true,
    .infer = infer_gla,
    .run = run,
    .flops = flops,
};
