/* SPDX-License-Identifier: Apache-2.0 */
/* traps.c: what peers got wrong: NaN behind a mask, NaN that vanishes, rows without keys, counters
 * of dropout, exact counts, default slopes, and laws that any tile size must keep. */
#include "kit.h"

enum { S = 70, D = 24, N = S * D };

static float q[N], k[N], v[N], g[N], o[N], lse[S], o2[N], lse2[S], dq[N], dk[N], dv[N];

static void fill(void)
{
    float *x[] = {q, k, v, g};
    for (unsigned i = 0; i < 4; i++) {
        struct tu_rng r = {99, i};
        tu_rng_normal(&r, 0, x[i], N);
    }
}

static void bind(struct kit *p, struct tu_attn *a, float *to, float *tol)
{
    p->n = 0;
    kit_add(p, "q", TU_F32, 4, 1, S, 1, D, q);
    kit_add(p, "k", TU_F32, 4, 1, S, 1, D, k);
    kit_add(p, "v", TU_F32, 4, 1, S, 1, D, v);
    kit_add(p, "do", TU_F32, 4, 1, S, 1, D, g);
    if (tu_attn_init(a, &p->opt, p->in, p->n, NULL))
        abort();
    kit_outputs(a, to, tol, dq, dk, dv);
}

static bool forward(struct kit *p, float *to, float *tol)
{
    struct tu_attn a;
    bind(p, &a, to, tol);
    bool good = !tu_attn_forward(&a, NULL, NULL);
    tu_attn_release(&a);
    return good;
}

static unsigned not_finite(const float *x, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += !isfinite(x[i]);
    return bad;
}

/* Keys behind the causal edge hold NaN: rows before them must not know. */
static void hidden_nan(const char *how, uint32_t compute)
{
    struct kit p = {0};
    struct tu_attn a;
    fill();
    tu_attn_opts_init(&p.opt);
    p.opt.causal = TU_CAUSAL_BR;
    p.opt.compute = compute;
    p.opt.tile_q = p.opt.tile_k = 32;
    for (unsigned t = 0; t < D; t++) {
        k[40 * D + t] = NAN;
        v[40 * D + t] = t % 2 ? NAN : INFINITY;
    }
    ok(forward(&p, o, lse) && !not_finite(o, 40 * D) && !not_finite(lse, 40),
       "%s: rows before a NaN key are finite", how);
    ok(not_finite(o + 40 * D, N - 40 * D) == N - 40 * D, "%s: rows that see it are NaN", how);
    bind(&p, &a, o, lse);
    ok(!tu_attn_backward(&a, NULL, NULL) && !not_finite(dq, 40 * D),
       "%s: nor do gradients of the rows before", how);
    tu_attn_release(&a);
    fill();
    q[7 * D] = NAN;
    ok(forward(&p, o, lse) && not_finite(o, N) == D && isnan(o[7 * D]),
       "%s: a NaN query makes its own row NaN and no other", how);
}

/* Permuting keys, adding a constant to all logits, constant and scaled values. */
static void laws(const char *how, uint32_t compute, double tol)
{
    struct kit p = {0};
    double want[N];
    unsigned bad = 0;
    fill();
    tu_attn_opts_init(&p.opt);
    p.opt.compute = compute;
    forward(&p, o, lse);
    for (unsigned t = 0; t < D; t++) { /* keys 3 and 60 change places */
        float x = k[3 * D + t], y = v[3 * D + t];
        k[3 * D + t] = k[60 * D + t];
        v[3 * D + t] = v[60 * D + t];
        k[60 * D + t] = x;
        v[60 * D + t] = y;
    }
    forward(&p, o2, lse2);
    for (size_t i = 0; i < N; i++)
        want[i] = (double)o[i];
    ok(!kit_compare("o", o2, want, N, tol), "%s: the order of keys does not matter", how);
    for (size_t i = 0; i < N; i++)
        v[i] *= 2;
    forward(&p, o, lse);
    for (size_t i = 0; i < N; i++)
        want[i] = 2 * (double)o2[i];
    ok(!kit_compare("o", o, want, N, tol), "%s: twice the values, twice the result", how);
    for (size_t i = 0; i < N; i++)
        v[i] = 0.75f;
    forward(&p, o, lse);
    for (size_t i = 0; i < N; i++)
        bad += fabs((double)o[i] - .75) > tol;
    ok(!bad, "%s: constant values come through", how);
}

/* Every tile size and number of splits agrees. */
static void tiles(void)
{
    struct kit p = {0};
    double want[N];
    unsigned bad = 0;
    fill();
    tu_attn_opts_init(&p.opt);
    p.opt.left = 20;
    p.opt.sink_tokens = 2;
    p.opt.right = 3;
    forward(&p, o, lse);
    for (size_t i = 0; i < N; i++)
        want[i] = (double)o[i];
    for (p.opt.tile_q = 1; p.opt.tile_q < 80; p.opt.tile_q += 13)
        for (p.opt.tile_k = 1; p.opt.tile_k < 80; p.opt.tile_k += 17)
            for (p.opt.splits = 1; p.opt.splits < 4; p.opt.splits++)
                bad += !forward(&p, o2, lse2) || kit_compare("o", o2, want, N, 3e-6);
    ok(!bad, "any tile size and number of splits agrees");
}

/* Exact numbers of visible pairs. */
static void pairs(void)
{
    static const struct {
        uint64_t sq, sk;
        int64_t left;
        double pairs;
    } t[] = {{4096, 4096, -1, 8390656}, {4096, 4096, 1023, 3670528}, {2, 5, -1, 9}, {5, 2, -1, 3}};
    for (unsigned i = 0; i < 4; i++) {
        struct kit p = {0};
        struct tu_attn a;
        tu_attn_opts_init(&p.opt);
        p.opt.causal = TU_CAUSAL_BR;
        p.opt.left = t[i].left;
        kit_add(&p, "q", TU_F32, 4, 1, t[i].sq, 1, 1, q);
        kit_add(&p, "k", TU_F32, 4, 1, t[i].sk, 1, 1, k);
        kit_add(&p, "v", TU_F32, 4, 1, t[i].sk, 1, 1, v);
        if (tu_attn_init(&a, &p.opt, p.in, p.n, NULL))
            abort();
        double n = tu_attn_pairs(&a);
        ok(fabs(n - t[i].pairs) < .5, "%d x %d: %.0f pairs", (int)t[i].sq, (int)t[i].sk, n);
        ok(fabs(tu_attn_flops(&a, TU_PASS_BOTH) - 3.5 * 4 * n) < .5, "and 3.5 times the operations");
        tu_attn_release(&a);
    }
}

static void slopes(void)
{
    static const double twelve[] = {.7071068, .3535534, .1767767, .0883883};
    unsigned bad = 0;
    for (unsigned h = 0; h < 8; h++)
        bad += fabs(tu_alibi_slope(h, 8) - ldexp(1, -(int)h - 1)) > 0 ||
               fabs(tu_alibi_slope(h, 12) - ldexp(1, -(int)h - 1)) > 0;
    for (unsigned h = 8; h < 12; h++)
        bad += !kit_near(tu_alibi_slope(h, 12), twelve[h - 8], 1e-7);
    ok(!bad, "default slopes of 8 and 12 heads");
}

int main(void)
{
    static const char *const isa[] = {"amx", "avx512", "avx2", "scalar"};
    pairs();
    slopes();
    for (unsigned i = 0; i < 4; i++) {
        struct tu_err err;
        if (tu_cpu_narrow(isa[i], &err)) {
            tap_skip(isa[i], "this CPU has it not");
            continue;
        }
        hidden_nan(isa[i], i ? TU_F32 : TU_BF16);
        laws(isa[i], i ? TU_F32 : TU_BF16, i ? 3e-6 : 2e-2);
        tiles();
    }
    return tap_done();
}
