/* SPDX-License-Identifier: Apache-2.0 */
/* The device's kernels against float64: softmax attention forward and backward over masks,
 * lengths, pages, dtypes and heads; linear attention and GLA; SSD's decay per step. */
#include "../gpu.h"
#include "cases.h"

static void options(struct tu_attn_opts *o)
{
    if (one_in(2))
        o->causal = one_in(3) ? TU_CAUSAL_TL : TU_CAUSAL_BR;
    if (one_in(4)) {
        o->left = (int64_t)pick(9) - 1;
        o->right = (int64_t)pick(5) - 1;
    }
    if (one_in(5))
        o->sink_tokens = pick(4);
    if (one_in(6))
        o->chunk = 1 + pick(7);
    if (one_in(4))
        o->softcap = 1 + (double)pick(5);
    o->alibi = one_in(4);
    if (one_in(5))
        o->dropout = 0.1 * (double)(1 + pick(5));
    o->seed = pick(1000);
    if (one_in(4))
        o->scale = 0.2;
}

static void dense(struct kit *k, uint32_t dtype)
{
    uint64_t b = 1 + pick(2), hkv = 1 + pick(2), hq = hkv * (1 + pick(2)), sq = 1 + pick(9);
    uint64_t sk = pick(one_in(4) ? 300 : 20), d = 1 + pick(20), dv = one_in(5) ? 150 : 1 + pick(20);
    bool t = one_in(3);
    k->opt.layout = t ? TU_ATTN_BHSD : TU_ATTN_BSHD;
    normal(k, "q", dtype, 4, b, t ? hq : sq, t ? sq : hq, d);
    normal(k, "k", dtype, 4, b, t ? hkv : sk, t ? sk : hkv, d);
    normal(k, "v", dtype, 4, b, t ? hkv : sk, t ? sk : hkv, dv);
    normal(k, "do", dtype, 4, b, t ? hq : sq, t ? sq : hq, dv);
    if (one_in(4))
        bits(k, "mask", one_in(2) ? b : 1, one_in(2) ? hq : 1, sq, sk);
    if (one_in(4))
        normal(k, "sinks", TU_F32, 1, hq, 0, 0, 0);
    if (one_in(4))
        lengths(k, "seqlens_k", b, sk);
    if (one_in(4))
        normal(k, "dlse", TU_F32, 3, b, hq, sq, 0);
}

/* A row's form, on the device or float64's; false with a line where it fails. */
static bool run(const char *name, struct tu_mixer_args *m, const struct kit *k, int pass,
                bool on_gpu)
{
    static char note[TU_MIXER_NOTE];
    const struct tu_mixer *row = tu_mixer_find(name);
    struct tu_err err = {0};
    *note = '\0';
    *m = (struct tu_mixer_args){.opt = &k->opt,
                                .in = k->in,
                                .n_in = k->n,
                                .pass = pass,
                                .algo = on_gpu ? NULL : "ref",
                                .device = on_gpu ? gpu : NULL,
                                .note = note};
    int code = case_run(row, m, !on_gpu, &err);
    bool good = !code && strncmp(note, "on the CPU", 10) != 0;
    if (!good)
        printf("# %s %s\n", code ? err.msg : "", note);
    return good;
}

static bool near(const struct tu_mixer_args *x, const struct tu_mixer_args *ref, double tol)
{
    char where[64] = "";
    bool good = case_worst(x, ref, where) <= tol;
    if (!good)
        printf("# %s\n", where);
    return good;
}

static bool softmax_case(unsigned n)
{
    static const uint32_t dtypes[] = {TU_F32, TU_BF16, TU_F16, TU_F8_E4M3FN};
    static const struct case_limits limits = {
        .batch = 3, .group = 2, .dim = 20, .queries = 7, .keys = 20, .page = 5, .pages = 4};
    struct kit k = {0};
    struct tu_mixer_args fast, ref;
    case_seed(1000 * n);
    tu_attn_opts_init(&k.opt);
    options(&k.opt);
    uint64_t kind = pick(4);
    if (kind < 2)
        dense(&k, dtypes[n % 4]);
    else
        packed(&k, dtypes[n % 4], kind == 3, &limits);
    int pass = kind == 3 ? TU_PASS_FWD : one_in(4) ? TU_PASS_BWD : TU_PASS_BOTH;
    gpu_backward(n % 2);
    return run("softmax", &fast, &k, pass, true) && run("softmax", &ref, &k, pass, false) &&
           near(&fast, &ref, 2e-5);
}

/* Tensor cores: dimensions about their steps, tiles that end within the lengths. P is in 16
 * bits, so the error is that of its rounding. */
static bool mma_case(unsigned n)
{
    static const uint64_t dims[] = {64, 8, 128, 72, 192, 256, 40, 136};
    struct kit k = {0};
    struct tu_mixer_args fast, ref;
    uint32_t dtype = n % 2 ? TU_F16 : TU_BF16;
    case_seed(5000 + 100 * n);
    tu_attn_opts_init(&k.opt);
    options(&k.opt);
    uint64_t hkv = 1 + pick(2), hq = hkv * (1 + pick(2)), sq = 1 + pick(100), d = dims[n % 8];
    uint64_t sk = pick(150);
    normal(&k, "q", dtype, 4, 1, sq, hq, d);
    normal(&k, "k", dtype, 4, 1, sk, hkv, d);
    normal(&k, "v", dtype, 4, 1, sk, hkv, d);
    if (one_in(3))
        normal(&k, "sinks", TU_F32, 1, hq, 0, 0, 0);
    if (n % 3)
        k.opt.splits = 1 + pick(4);
    gpu_backward(n / 2 % 2);
    bool good = run("softmax", &fast, &k, TU_PASS_FWD, true);
    if (good && *fast.note)
        printf("# not on tensor cores: %s\n", fast.note);
    good = good && !*fast.note;
    return good && run("softmax", &ref, &k, TU_PASS_FWD, false) &&
           near(&fast, &ref, dtype == TU_F16 ? 2e-3 : 1e-2);
}

static bool scan_case(unsigned n)
{
    struct kit k = {0};
    struct tu_mixer_args fast, ref;
    case_seed(77 * n);
    tu_attn_opts_init(&k.opt);
    bool gated = n % 2;
    uint64_t b = 1 + pick(2), t = pick(50), h = 1 + pick(2), d = 1 + pick(20), e = 1 + pick(50);
    normal(&k, "q", TU_F32, 4, b, t, h, d);
    normal(&k, "k", TU_BF16, 4, b, t, h, d);
    normal(&k, "v", TU_F32, 4, b, t, h, e);
    if (gated) {
        normal(&k, "gate", TU_F32, 4, b, t, h, d);
        for (uint64_t i = 0; i < b * t * h * d; i++) {
            float *g = (float *)k.in[k.n - 1].data + i;
            *g = -fabsf(*g);
        }
    }
    k.opt.decay = one_in(2) ? 0.1 : 0;
    k.opt.decay_slopes = one_in(3);
    if (one_in(2))
        normal(&k, "state_in", TU_F32, 4, b, h, d, e);
    const char *name = gated ? "gla" : "linear";
    gpu_backward(n / 2 % 2);
    return run(name, &fast, &k, TU_PASS_FWD, true) && run(name, &ref, &k, TU_PASS_FWD, false) &&
           near(&fast, &ref, 2e-5);
}

/* SSD: a decay per step, by the recurrence itself. */
static void test_ssd(void)
{
    enum { T = 37, D = 5, E = 33 };
    float q[T * D], k[T * D], v[T * E], g[T], got[T * E], last[D * E];
    double s[D * E] = {0}, worst = 0;
    struct tu_rng r = {4, 4};
    tu_rng_normal(&r, 0, q, T * D);
    tu_rng_normal(&r, 1000, k, T * D);
    tu_rng_normal(&r, 2000, v, T * E);
    tu_rng_uniform(&r, 9000, g, T);
    for (unsigned t = 0; t < T; t++)
        g[t] = -g[t];
    struct tu_kernel_scan a = {.q = gpu_put(q, sizeof q),
                               .k = gpu_put(k, sizeof k),
                               .v = gpu_put(v, sizeof v),
                               .gate = gpu_put(g, sizeof g),
                               .o = gpu_put(NULL, sizeof got),
                               .state_out = gpu_put(NULL, sizeof last),
                               .batch = 1,
                               .time = T,
                               .heads = 1,
                               .d = D,
                               .e = E,
                               .scale = 0.5f};
    eq_int(gpu->launch("ssd.forward", &a, NULL, NULL), 0, "ssd.forward runs");
    gpu_get(got, a.o, sizeof got);
    gpu_get(last, a.state_out, sizeof last);
    for (unsigned t = 0; t < T; t++)
        for (unsigned e = 0; e < E; e++) {
            double o = 0;
            for (unsigned i = 0; i < D; i++) {
                s[i * E + e] = exp((double)g[t]) * s[i * E + e] + (double)(k[t * D + i] * v[t * E + e]);
                o += 0.5 * (double)q[t * D + i] * s[i * E + e];
            }
            worst = fmax(worst, fabs(o - (double)got[t * E + e]));
        }
    for (unsigned i = 0; i < D * E; i++)
        worst = fmax(worst, fabs(s[i] - (double)last[i]));
    ok(worst < 1e-4, "SSD equals its recurrence: %g", worst);
    gpu_get(NULL, (void *)a.q, 0);
    gpu_get(NULL, (void *)a.k, 0);
    gpu_get(NULL, (void *)a.v, 0);
    gpu_get(NULL, (void *)a.gate, 0);
}

int main(void)
{
    unsigned bad = 0, n;
    if (!gpu_open())
        return tap_done();
    for (n = 0; n < (getenv("SLOW") ? 600u : 60u); n++)
        if (!softmax_case(n)) {
            printf("# case %u\n", n);
            bad++;
        }
    ok(!bad, "softmax: %u random cases against float64", n);
    for (n = bad = 0; n < 12; n++)
        bad += !mma_case(n);
    ok(!bad, "softmax on tensor cores: %u random cases against float64", n);
    for (n = bad = 0; n < 16; n++)
        bad += !scan_case(n);
    ok(!bad, "linear attention and GLA: %u random cases against float64", n);
    test_ssd();
    return tap_done();
}
