/* SPDX-License-Identifier: Apache-2.0 */
/* tile_body.h: the f32 tile kernels, written once over a handful of vector operations.
 *
 * Included by one file per instruction set, which first defines: W lanes of a `vec`, MR
 * rows of the micro-kernel, v_load v_store v_set v_add v_sub v_mul v_fma v_max v_exp2
 * v_sum v_top and, if it has a fast one, PACK_BT. With BESIDE_PRODUCTS only what is no
 * product of matrices and no softmax is made. A panel of B has 2·W columns. v_max(a, b)
 * may give either on NaN: a NaN reaches the result through the exponential. */
#include <math.h>
#include <string.h>
#include "attn/tile.h"

#define NR (2 * W)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#ifndef BESIDE_PRODUCTS
/* MR rows of A times one panel. */
INLINE void micro(unsigned mr, float *c, size_t ldc, const float *a, size_t lda,
                  const float *b, size_t k, bool add)
{
    vec x[MR][2];
    UNROLL for (unsigned i = 0; i < mr; i++)
    {
        x[i][0] = add ? v_load(c + i * ldc) : v_set(0);
        x[i][1] = add ? v_load(c + i * ldc + W) : v_set(0);
    }
    for (size_t t = 0; t < k; t++) {
        vec b0 = v_load(b + t * NR), b1 = v_load(b + t * NR + W);
        UNROLL for (unsigned i = 0; i < mr; i++)
        {
            vec s = v_set(a[i * lda + t]);
            x[i][0] = v_fma(s, b0, x[i][0]);
            x[i][1] = v_fma(s, b1, x[i][1]);
        }
    }
    UNROLL for (unsigned i = 0; i < mr; i++)
    {
        v_store(c + i * ldc, x[i][0]);
        v_store(c + i * ldc + W, x[i][1]);
    }
}

#define TAIL(n)                                                                          \
    case n: micro(n, c, ldc, a, lda, b, k, add); break;

static void micro_tail(size_t m, float *c, size_t ldc, const float *a, size_t lda,
                       const float *b, size_t k, bool add)
{
    switch (m) {
        TAIL(1)
        TAIL(2)
        TAIL(3)
#if MR > 4
        TAIL(4)
        TAIL(5)
#endif
#if MR > 6
        TAIL(6)
        TAIL(7)
        TAIL(8)
        TAIL(9)
        TAIL(10)
        TAIL(11)
#endif
    }
}

static void gemm(float *c, size_t ldc, const void *va, size_t lda, const void *vb,
                 size_t m, size_t n, size_t k, bool add)
{
    const float *a = va, *b = vb;
    for (size_t p = 0; p < n; p += NR) {
        size_t i = 0;
        for (; i + MR <= m; i += MR)
            micro(MR, c + i * ldc + p, ldc, a + i * lda, lda, b + p * k, k, add);
        micro_tail(m - i, c + i * ldc + p, ldc, a + i * lda, lda, b + p * k, k, add);
    }
}

static void pack_b(void *vb, const float *src, size_t ld, size_t k, size_t n)
{
    float *b = vb;
    for (size_t p = 0; p < n; p += NR)
        for (size_t t = 0; t < k; t++) {
            size_t w = n - p < NR ? n - p : NR;
            memcpy(b, src + t * ld + p, w * sizeof *b);
            memset(b + w, 0, (NR - w) * sizeof *b);
            b += NR;
        }
}

#ifndef PACK_BT
#define PACK_BT pack_bt
static void pack_bt(void *vb, const float *src, size_t ld, size_t n, size_t k)
{
    float *b = vb;
    for (size_t p = 0; p < n; p += NR)
        for (size_t t = 0; t < k; t++)
            for (size_t c = 0; c < NR; c++)
                *b++ = p + c < n ? src[(p + c) * ld + t] : 0;
}
#endif

static void softmax(const struct tui_softmax *x)
{
    vec mul = v_set(x->mul);
    for (size_t r = 0; r < x->m; r++) {
        float *s = x->s + r * x->ld, *p = (float *)x->p + r * x->ldp;
        vec top = v_load(s), sum = v_set(0);
        for (size_t j = W; j < x->n; j += W)
            top = v_max(v_load(s + j), top);
        float old = x->c[r], now = v_top(top) * x->mul;
        now = now > old ? now : old;
        float base = now == -INFINITY ? 0 : now;
        vec minus = v_set(-base);
        for (size_t j = 0; j < x->n; j += W) {
            vec e = v_exp2(v_fma(v_load(s + j), mul, minus));
            sum = v_add(sum, e);
            v_store(p + j, e);
        }
        x->alpha[r] = old == now ? 1 : old == -INFINITY ? 0 : exp2f(old - base);
        x->l[r] = x->l[r] * x->alpha[r] + v_sum(sum);
        x->c[r] = now;
    }
}

#endif

static void rescale(float *acc, size_t ld, size_t m, size_t n, const float *alpha)
{
    for (size_t r = 0; r < m; r++) {
        if (alpha[r] == 1)
            continue;
        vec f = v_set(alpha[r]);
        for (size_t j = 0; j < n; j += W)
            v_store(acc + r * ld + j, v_mul(v_load(acc + r * ld + j), f));
    }
}

static void grad(const struct tui_grad *x)
{
    vec mul = v_set(x->mul), zero = v_set(0);
    for (size_t c = 0; c < x->n; c++) {
        size_t at = c * x->ld;
        for (size_t r = 0; r < x->m; r += W, at += W) {
            vec lse = v_load(x->lse2 + r);
            vec p = v_exp2(v_fma(v_load(x->s + at), mul, v_sub(zero, lse)));
            vec dp = v_load(x->dp + at), drop = p;
            if (x->keep) {
                vec z = v_load(x->keep + at);
                drop = v_mul(p, z);
                dp = v_mul(dp, z);
            }
            vec ds = v_mul(p, v_sub(dp, v_load(x->delta + r)));
            if (x->chain)
                ds = v_mul(ds, v_load(x->chain + at));
            v_store(x->s + at, drop);
            v_store(x->dp + at, ds);
        }
    }
}

/* Four keys at once, so that the sums over lanes overlap. */
static void dots(float *s, size_t lds, const float *q, size_t ldq, const float *k,
                 size_t ldk, size_t m, size_t n, size_t d)
{
    for (size_t r = 0; r < m; r++)
        for (size_t j = 0; j < n; j += 4) {
            const float *row = q + r * ldq, *key = k + j * ldk;
            vec x[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
            for (size_t t = 0; t < d; t += W) {
                vec a = v_load(row + t);
                UNROLL for (unsigned i = 0; i < 4; i++) x[i] =
                    v_fma(a, v_load(key + i * ldk + t), x[i]);
            }
            UNROLL for (unsigned i = 0; i < 4; i++) s[r * lds + j + i] = v_sum(x[i]);
        }
}

static void sums(float *acc, size_t ld, const float *p, size_t ldp, const float *v,
                 size_t ldv, size_t m, size_t n, size_t d)
{
    for (size_t r = 0; r < m; r++)
        for (size_t t = 0; t < d; t += W) {
            vec a = v_load(acc + r * ld + t), b = v_set(0);
            for (size_t j = 0; j < n; j += 2) {
                a = v_fma(v_set(p[r * ldp + j]), v_load(v + j * ldv + t), a);
                b = v_fma(v_set(p[r * ldp + j + 1]), v_load(v + (j + 1) * ldv + t), b);
            }
            v_store(acc + r * ld + t, v_add(a, b));
        }
}

/* 0·x is 0 for finite x and NaN for all others. */
static bool finite(const float *x, size_t n)
{
    vec s = v_set(0);
    size_t i = 0;
    for (; i + W <= n; i += W)
        s = v_fma(v_load(x + i), v_set(0), s);
    float rest = v_sum(s);
    for (; i < n; i++)
        rest += 0 * x[i];
    return rest == 0;
}

/* Segment sums: row[j] is the sum of g over (j, i]. What lies past the diagonal in a
 * vector is computed and thrown away. */
static void decay(const struct tui_decay *x)
{
    float sum = 0;
    memset(x->row, 0, (x->e + W) * sizeof *x->row);
    for (size_t i = 0; i < x->e; i++) {
        float *p = x->p + i * x->ldp, own = p[i];
        vec g = v_set(x->g[i]);
        for (size_t j = 0; j <= i; j += W) {
            vec r = v_add(v_load(x->row + j), g);
            v_store(x->row + j, r);
            v_store(p + j, v_mul(v_load(p + j), v_exp2(r)));
        }
        x->row[i] = 0;
        p[i] = own;
        memset(p + i + 1, 0, (x->e - i - 1) * sizeof *p);
        x->head[i] = sum += x->g[i];
    }
    for (size_t j = 0; j < x->e; j += W) {
        v_store(x->head + j, v_exp2(v_load(x->head + j)));
        v_store(x->tail + j, v_exp2(v_load(x->row + j)));
    }
}

/* n keys from j on fade by step i and meet its query. */
INLINE void gate_meet(const struct tui_decay *x, size_t i, size_t j, unsigned n)
{
    const float *q = x->q + i * x->ld, *g = x->g + i * x->ld;
    float *k = x->k + j * x->ld;
    vec s[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
    for (size_t t = 0; t < x->d; t += W) {
        vec a = v_load(q + t), fade = v_load(g + t);
        UNROLL for (unsigned u = 0; u < n; u++)
        {
            vec b = v_mul(v_load(k + u * x->ld + t), fade);
            v_store(k + u * x->ld + t, b);
            s[u] = v_fma(a, b, s[u]);
        }
    }
    UNROLL for (unsigned u = 0; u < n; u++) x->p[i * x->ldp + j + u] = v_sum(s[u]);
}

/* Keys fade on their way from step to step: exact also where a sum of logarithms would
 * have no digits left. They end decayed to the end of the chunk. */
static void gate_rows(const struct tui_decay *x)
{
    for (size_t t = 0; t < x->d; t += W) {
        vec sum = v_set(0);
        for (size_t i = 0; i < x->e; i++) {
            float *g = x->g + i * x->ld + t;
            sum = v_add(sum, v_load(g));
            v_store(g, v_exp2(v_load(g)));
        }
        v_store(x->whole + t, v_exp2(sum));
    }
    for (size_t i = 0; i < x->e; i++) {
        const float *q = x->q + i * x->ld, *k = x->k + i * x->ld;
        float *p = x->p + i * x->ldp;
        size_t j = 0;
        vec own = v_set(0);
        for (; j + 4 <= i; j += 4)
            gate_meet(x, i, j, 4);
        for (; j < i; j++)
            gate_meet(x, i, j, 1);
        for (size_t t = 0; t < x->d; t += W)
            own = v_fma(v_load(q + t), v_load(k + t), own);
        p[i] = v_sum(own);
        memset(p + i + 1, 0, (x->e - i - 1) * sizeof *p);
    }
    for (size_t t = 0; t < x->d; t += W) {
        vec run = v_set(1);
        for (size_t i = 0; i < x->e; i++) {
            size_t at = i * x->ld + t;
            run = v_mul(run, v_load(x->g + at));
            v_store(x->q + at, v_mul(v_load(x->q + at), run));
        }
    }
}

static void gate_columns(const struct tui_decay *x)
{
    for (size_t t = 0; t < x->d; t += W) {
        vec run = v_set(1), sum = v_set(0);
        for (size_t i = 0; i < x->e; i++) {
            const float *p = x->p + i * x->ldp;
            float *o = x->q + i * x->ld + t, *v = x->k + t;
            vec g = v_load(x->g + i * x->ld + t), fade = v_exp2(g);
            sum = v_add(sum, g);
            run = v_mul(run, fade);
            vec s = v_mul(v_load(o), run);
            for (size_t j = 0; j < i; j++) {
                vec b = v_mul(v_load(v + j * x->ld), fade);
                v_store(v + j * x->ld, b);
                s = v_fma(v_set(p[j]), b, s);
            }
            v_store(o, v_fma(v_set(p[i]), v_load(v + i * x->ld), s));
        }
        v_store(x->whole + t, v_exp2(sum));
    }
}

static void weigh(float *rows, size_t ld, size_t m, size_t n, const float *by)
{
    for (size_t r = 0; r < m; r++)
        for (size_t j = 0; j < n; j += W)
            v_store(rows + r * ld + j, v_mul(v_load(rows + r * ld + j), v_load(by + j)));
}

#ifndef TURN
#define TURN turn
static void turn(float *dst, size_t ld_dst, const float *src, size_t ld, size_t m,
                 size_t n)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            dst[j * ld_dst + i] = src[i * ld + j];
}
#endif

static double peak_exp(unsigned n, float *sink)
{
    vec x[8], s = v_set(0);
    for (unsigned i = 0; i < 8; i++)
        x[i] = v_set(-0.1f * (float)(i + n % 3));
    for (unsigned r = 0; r < n; r++)
        UNROLL for (unsigned i = 0; i < 8; i++)
        {
            s = v_add(s, v_exp2(x[i]));
            x[i] = v_sub(x[i], v_set(1e-6f));
        }
    *sink += v_sum(s);
    return 8.0 * W * n;
}

#ifndef BESIDE_PRODUCTS
/* As many accumulators as hide the latency and stay in registers. */
static double peak(unsigned n, float *sink)
{
    vec x[12], f = v_set(0.999f + 1e-6f * (float)(n % 3)), c = v_set(1e-3f);
    UNROLL for (unsigned i = 0; i < 12; i++) x[i] = v_set((float)i);
    for (unsigned r = 0; r < n; r++)
        UNROLL for (unsigned i = 0; i < 12; i++) x[i] = v_fma(x[i], f, c);
    for (unsigned i = 0; i < 12; i++)
        *sink += v_sum(x[i]);
    return 2.0 * 12 * W * n;
}

static void nothing(void)
{
}

#define TILE_OPS(label, q, k)                                                            \
    {                                                                                    \
        .name = label, .elem = 4, .mpad = 1, .npad = NR, .kpad = 1, .tile_q = q,         \
        .tile_k = k, .begin = nothing, .end = nothing, .pack_b = pack_b,                 \
        .pack_bt = PACK_BT, .gemm = gemm, .softmax = softmax, .rescale = rescale,        \
        .grad = grad, .dots = dots, .sums = sums, .finite = finite, .decay = decay,      \
        .gate_rows = gate_rows, .gate_columns = gate_columns, .weigh = weigh,            \
        .turn = TURN, .peak = peak, .peak_exp = peak_exp                                 \
    }
#endif
