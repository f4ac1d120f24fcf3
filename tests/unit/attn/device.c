/* SPDX-License-Identifier: Apache-2.0 */
/* The device's kernels against float64: softmax attention forward and backward over masks,
 * lengths, pages, dtypes and heads; linear attention and GLA; SSD's decay per step. */
#include "../gpu.h"
#include "kit.h"

static uint64_t draws;

static uint64_t pick(uint64_t n)
{
    struct tu_rng r = {99, 12};
    return tu_rng_u32(&r, draws++) % n;
}

static bool one_in(uint64_t n)
{
    return pick(n) == 0;
}

enum { ROOM = 8 << 20 };
static unsigned char pool[ROOM];
static size_t used;

static void *room(size_t n)
{
    void *p = pool + used;
    used += (n + 63) / 64 * 64;
    if (used > ROOM)
        abort();
    memset(p, 0, n);
    return p;
}

static void normal(struct kit *k, const char *name, uint32_t dtype, unsigned rank,
                   uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t n = a * (rank > 1 ? b : 1) * (rank > 2 ? c : 1) * (rank > 3 ? d : 1);
    float *wide = room(n * 4);
    struct tu_rng r = {draws, tu_rng_stream(name)};
    tu_rng_normal(&r, 0, wide, n);
    void *data = room(n * 4);
    if (tu_cast(dtype, data, TU_F32, wide, n, NULL))
        abort();
    kit_add(k, name, dtype, rank, a, b, c, d, data);
}

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

static void bits(struct kit *k, const char *name, uint64_t b, uint64_t h, uint64_t i, uint64_t j)
{
    uint8_t *v = room(b * h * i * j);
    for (uint64_t n = 0; n < b * h * i * j; n++)
        v[n] = pick(4) != 0;
    kit_add(k, name, TU_BOOL, 4, b, h, i, j, v);
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
    if (one_in(4)) {
        int32_t *len = room(b * 4);
        for (uint64_t i = 0; i < b; i++)
            len[i] = (int32_t)pick(sk + 1);
        kit_add(k, "seqlens_k", TU_I32, 1, b, 0, 0, 0, len);
    }
    if (one_in(4))
        normal(k, "dlse", TU_F32, 3, b, hq, sq, 0);
}

static void packed(struct kit *k, uint32_t dtype, bool paged)
{
    uint64_t b = 1 + pick(3), hkv = 1 + pick(2), hq = hkv * (1 + pick(2)), d = 1 + pick(20);
    uint64_t page = 1 + pick(5), most = 4;
    int32_t *cq = room((b + 1) * 4), *ck = room((b + 1) * 4), *len = room(b * 4);
    int32_t *table = room(b * most * 4);
    for (uint64_t i = 0; i < b; i++) {
        cq[i + 1] = cq[i] + (int32_t)pick(7);
        len[i] = (int32_t)pick(paged ? most * page + 1 : 20);
        ck[i + 1] = ck[i] + len[i];
    }
    for (uint64_t i = 0; i < b * most; i++)
        table[i] = i % most * page < (uint64_t)len[i / most] ? (int32_t)pick(9) : -1;
    normal(k, "q", dtype, 3, (uint64_t)cq[b], hq, d, 0);
    if (paged) {
        normal(k, "k", dtype, 4, 9, page, hkv, d);
        normal(k, "v", dtype, 4, 9, page, hkv, d);
        kit_add(k, "block_table", TU_I32, 2, b, most, 0, 0, table);
        kit_add(k, "seqlens_k", TU_I32, 1, b, 0, 0, 0, len);
    } else {
        normal(k, "k", dtype, 3, (uint64_t)ck[b], hkv, d, 0);
        normal(k, "v", dtype, 3, (uint64_t)ck[b], hkv, d, 0);
        kit_add(k, "cu_seqlens_k", TU_I32, 1, b + 1, 0, 0, 0, ck);
    }
    normal(k, "do", dtype, 3, (uint64_t)cq[b], hq, d, 0);
    kit_add(k, "cu_seqlens_q", TU_I32, 1, b + 1, 0, 0, 0, cq);
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
    int code = row->infer(m, &err);
    for (size_t i = 0; !code && i < m->n_out; i++) {
        struct tu_operand *o = &m->out[i];
        uint64_t n;
        o->dtype = on_gpu || !strncmp(o->name, "dsink", 5) ? TU_F32 : TU_F64;
        code = tu_elements(o->dim, o->rank, &n, &err);
        o->data = room(n * 8);
    }
    if (!code)
        code = row->run(m, &err);
    bool good = !code && strncmp(note, "on the CPU", 10) != 0;
    if (!good)
        printf("# %s %s\n", code ? err.msg : "", note);
    return good;
}

static bool near(const struct tu_mixer_args *x, const struct tu_mixer_args *ref, double tol)
{
    bool good = true;
    for (size_t i = 0; good && i < x->n_out; i++) {
        uint64_t n = 0;
        good = !tu_elements(x->out[i].dim, x->out[i].rank, &n, NULL);
        double *a = room(n * 8), *b = room(n * 8), top = 1;
        good = good && !tu_to_double(x->out[i].dtype, x->out[i].data, a, n, NULL) &&
               !tu_to_double(ref->out[i].dtype, ref->out[i].data, b, n, NULL);
        for (uint64_t t = 0; t < n; t++)
            top = isfinite(b[t]) && fabs(b[t]) > top ? fabs(b[t]) : top;
        for (uint64_t t = 0; good && t < n; t++) {
            good = a[t] == b[t] || fabs(a[t] - b[t]) <= tol * top;
            if (!good)
                printf("# %s[%d]: %g, not %g\n", x->out[i].name, (int)t, a[t], b[t]);
        }
    }
    return good;
}

static bool softmax_case(unsigned n)
{
    static const uint32_t dtypes[] = {TU_F32, TU_BF16, TU_F16, TU_F8_E4M3FN};
    struct kit k = {0};
    struct tu_mixer_args fast, ref;
    used = 0;
    draws = 1000 * n;
    tu_attn_opts_init(&k.opt);
    options(&k.opt);
    uint64_t kind = pick(4);
    if (kind < 2)
        dense(&k, dtypes[n % 4]);
    else
        packed(&k, dtypes[n % 4], kind == 3);
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
    used = 0;
    draws = 5000 + 100 * n;
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
    used = 0;
    draws = 77 * n;
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
