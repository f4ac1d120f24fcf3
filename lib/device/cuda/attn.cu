/* SPDX-License-Identifier: Apache-2.0 */
/* attn.cu: softmax attention with every mask, bias and dtype, a block of threads for a row:
 * what the tensor-core kernels do not do is done here. Not for speed.
 *
 * Threads have a key each while logits are made, a few columns each while rows of v, k, q
 * are added up. The backward is deterministic: nothing is added by two blocks. */
#include "attn.h"

enum { N = 128, MOST = 8 }; /* threads; columns of a thread: at most N · MOST in a row */

/* Over the block; every thread gets the result. */
DEVICE float block_sum(float v, float *part)
{
    v = warp_sum(v);
    BARRIER();
    if (THREAD % WARP == 0)
        part[THREAD / WARP] = v;
    BARRIER();
    return part[0] + part[1] + (part[2] + part[3]);
}

DEVICE float block_max(float v, float *part)
{
    v = warp_max(v);
    BARRIER();
    if (THREAD % WARP == 0)
        part[THREAD / WARP] = v;
    BARRIER();
    return max_f32(max_f32(part[0], part[1]), max_f32(part[2], part[3]));
}

/* A row into shared memory. */
DEVICE void stage(float *to, uint32_t dtype, const unsigned char *row, uint64_t n, float f)
{
    for (uint64_t t = THREAD; t < n; t += N)
        to[t] = load_float(dtype, row, t) * f;
}

DEVICE float dot(const float *x, uint32_t dtype, const unsigned char *row, uint64_t n)
{
    float sum = 0;
    for (uint64_t t = 0; t < n; t++)
        sum += x[t] * load_float(dtype, row, t);
    return sum;
}

/* o and lse of row BLOCK_X = head · sq_max + query. */
KERNEL(attn_forward, tu_kernel_attn, N)
{
    SHARED(float, p, N);
    SHARED(float, part, N / WARP);
    DYNAMIC_SHARED(memory);
    uint64_t b = BLOCK_Y, h = BLOCK_X / a.sq_max, i = BLOCK_X % a.sq_max;
    uint64_t hkv = h / (a.hq / a.hkv);
    const struct tu_kernel_seq s = a.seq[b];
    if (i >= s.sq)
        return;
    float *q = SHARED_PART(float, memory, 0, a.d);
    float fk = factor(a.k_scale, &a, b, hkv), fv = factor(a.v_scale, &a, b, hkv), slow;
    stage(q, a.q.dtype, q_row(&a.q, &s, i, h), a.d, factor(a.q_scale, &a, b, hkv));
    float m = a.sinks ? a.sinks[h] : -INFINITY, l = a.sinks ? 1 : 0, acc[MOST];
    for (unsigned c = 0; c < MOST; c++)
        acc[c] = 0;
    BARRIER();
    for (uint64_t j0 = 0; j0 < s.sk; j0 += N) {
        uint64_t j = j0 + THREAD;
        float x = -INFINITY;
        if (j < s.sk && sees(&a, &s, b, h, i, j))
            x = logit(&a, &s, b, h, i, j,
                      dot(q, a.k.dtype, k_row(&a, &a.k, &s, j, hkv), a.d) * fk * a.scale,
                      &slow);
        float top = max_f32(m, block_max(x, part));
        /* NaN among the logits makes the row NaN, also where nothing else is seen. */
        float odd = block_sum(x != x ? 1 : 0, part);
        if (top == -INFINITY && odd == 0)
            continue;
        top = odd > 0 ? of_bits(0x7fc00000u) : top;
        float e = x == -INFINITY ? 0 : expf(x - top), old = m == -INFINITY ? 0 : expf(m - top);
        AT(p, THREAD) = e == 0 ? 0 : e * keep(&a, b, h, i, j);
        l = l * old + block_sum(e, part);
        m = top;
        uint64_t n = s.sk - j0 < N ? s.sk - j0 : N;
        for (unsigned c = 0; c < MOST; c++) {
            uint64_t t = THREAD + (uint64_t)c * N;
            float sum = acc[c] * old;
            for (uint64_t k = 0; t < a.dv && k < n; k++)
                if (AT(p, k) != 0)
                    sum += AT(p, k) *
                           load_float(a.v.dtype, k_row(&a, &a.v, &s, j0 + k, hkv), t);
            acc[c] = sum;
        }
        BARRIER();
    }
    unsigned char *o = q_row(&a.o, &s, i, h);
    for (unsigned c = 0; c < MOST; c++)
        if (THREAD + (uint64_t)c * N < a.dv)
            store_float(a.o.dtype, o, THREAD + (uint64_t)c * N, l == 0 ? 0 : acc[c] * fv / l);
    if (THREAD == 0 && a.lse)
        a.lse[lse_of(&a, &s, i, h)] = l == 0 ? -INFINITY : m + logf(l);
}

/* Gradient of a logit: dx, and ds with what the cap and the scale make of it. */
struct gradient {
    float pz, dx, ds;
};

DEVICE struct gradient gradient_of(const struct tu_kernel_attn *a,
                                   const struct tu_kernel_seq *s, uint64_t b, uint64_t h,
                                   uint64_t i, uint64_t j, float product, float dp)
{
    struct gradient g = {0, 0, 0};
    uint64_t at = lse_of(a, s, i, h);
    float slow, lse = a->lse[at];
    if (lse == -INFINITY || !sees(a, s, b, h, i, j))
        return g;
    float x = logit(a, s, b, h, i, j, product, &slow), p = expf(x - lse);
    float z = keep(a, b, h, i, j);
    g.pz = p * z;
    g.dx = p * (z * dp - a->delta[at] + (a->dlse ? a->dlse[at] : 0));
    g.ds = g.dx * slow * a->scale;
    return g;
}

/* delta = o·do of each row. */
KERNEL(attn_delta, tu_kernel_attn, N)
{
    SHARED(float, part, N / WARP);
    uint64_t b = BLOCK_Y, h = BLOCK_X / a.sq_max, i = BLOCK_X % a.sq_max;
    const struct tu_kernel_seq s = a.seq[b];
    if (i >= s.sq)
        return;
    const unsigned char *o = q_row(&a.o, &s, i, h), *g = q_row(&a.dout, &s, i, h);
    float sum = 0;
    for (uint64_t t = THREAD; t < a.dv; t += N)
        sum += load_float(a.o.dtype, o, t) * load_float(a.dout.dtype, g, t);
    sum = block_sum(sum, part);
    if (THREAD == 0)
        a.delta[lse_of(&a, &s, i, h)] = sum;
}

/* dq of a row. */
KERNEL(attn_dq, tu_kernel_attn, N)
{
    SHARED(float, ds, N);
    DYNAMIC_SHARED(memory);
    uint64_t b = BLOCK_Y, h = BLOCK_X / a.sq_max, i = BLOCK_X % a.sq_max;
    uint64_t hkv = h / (a.hq / a.hkv);
    const struct tu_kernel_seq s = a.seq[b];
    if (i >= s.sq)
        return;
    float *q = SHARED_PART(float, memory, 0, a.d);
    float *g = SHARED_PART(float, memory, a.d * sizeof(float), a.dv), acc[MOST];
    float fk = factor(a.k_scale, &a, b, hkv), fv = factor(a.v_scale, &a, b, hkv);
    stage(q, a.q.dtype, q_row(&a.q, &s, i, h), a.d, factor(a.q_scale, &a, b, hkv));
    stage(g, a.dout.dtype, q_row(&a.dout, &s, i, h), a.dv, 1);
    for (unsigned c = 0; c < MOST; c++)
        acc[c] = 0;
    BARRIER();
    for (uint64_t j0 = 0; j0 < s.sk; j0 += N) {
        uint64_t j = j0 + THREAD, n = s.sk - j0 < N ? s.sk - j0 : N;
        struct gradient w = {0, 0, 0};
        if (j < s.sk)
            w = gradient_of(&a, &s, b, h, i, j,
                            dot(q, a.k.dtype, k_row(&a, &a.k, &s, j, hkv), a.d) * fk * a.scale,
                            dot(g, a.v.dtype, k_row(&a, &a.v, &s, j, hkv), a.dv) * fv);
        AT(ds, THREAD) = w.ds;
        BARRIER();
        for (unsigned c = 0; c < MOST; c++) {
            uint64_t t = THREAD + (uint64_t)c * N;
            for (uint64_t k = 0; t < a.d && k < n; k++)
                if (AT(ds, k) != 0)
                    acc[c] += AT(ds, k) * fk *
                              load_float(a.k.dtype, k_row(&a, &a.k, &s, j0 + k, hkv), t);
        }
        BARRIER();
    }
    unsigned char *dq = q_row(&a.dq, &s, i, h);
    for (unsigned c = 0; c < MOST; c++)
        if (THREAD + (uint64_t)c * N < a.d)
            store_float(a.dq.dtype, dq, THREAD + (uint64_t)c * N, acc[c]);
}

/* dk and dv of key BLOCK_X % sk_max of KV head BLOCK_X / sk_max. */
KERNEL(attn_dkv, tu_kernel_attn, N)
{
    SHARED(float, ds, N);
    SHARED(float, pz, N);
    DYNAMIC_SHARED(memory);
    uint64_t b = BLOCK_Y, hkv = BLOCK_X / a.sk_max, j = BLOCK_X % a.sk_max;
    uint64_t group = a.hq / a.hkv;
    const struct tu_kernel_seq s = a.seq[b];
    if (j >= s.sk)
        return;
    float *k = SHARED_PART(float, memory, 0, a.d);
    float *v = SHARED_PART(float, memory, a.d * sizeof(float), a.dv), dk[MOST], dv[MOST];
    float fq = factor(a.q_scale, &a, b, hkv);
    stage(k, a.k.dtype, k_row(&a, &a.k, &s, j, hkv), a.d, factor(a.k_scale, &a, b, hkv));
    stage(v, a.v.dtype, k_row(&a, &a.v, &s, j, hkv), a.dv, factor(a.v_scale, &a, b, hkv));
    for (unsigned c = 0; c < MOST; c++)
        dk[c] = dv[c] = 0;
    BARRIER();
    for (uint64_t at = 0; at < group * s.sq; at += N) {
        uint64_t row = at + THREAD, h = hkv * group + row / s.sq, i = row % s.sq;
        struct gradient w = {0, 0, 0};
        if (row < group * s.sq)
            w = gradient_of(&a, &s, b, h, i, j,
                            dot(k, a.q.dtype, q_row(&a.q, &s, i, h), a.d) * fq * a.scale,
                            dot(v, a.dout.dtype, q_row(&a.dout, &s, i, h), a.dv));
        AT(ds, THREAD) = w.ds;
        AT(pz, THREAD) = w.pz;
        BARRIER();
        uint64_t n = group * s.sq - at < N ? group * s.sq - at : N;
        for (uint64_t r = 0; r < n; r++) {
            uint64_t hr = hkv * group + (at + r) / s.sq, ir = (at + r) % s.sq;
            if (AT(ds, r) == 0 && AT(pz, r) == 0)
                continue;
            for (unsigned c = 0; c < MOST; c++) {
                uint64_t t = THREAD + (uint64_t)c * N;
                if (t < a.d)
                    dk[c] += AT(ds, r) * fq *
                             load_float(a.q.dtype, q_row(&a.q, &s, ir, hr), t);
                if (t < a.dv)
                    dv[c] += AT(pz, r) *
                             load_float(a.dout.dtype, q_row(&a.dout, &s, ir, hr), t);
            }
        }
        BARRIER();
    }
    unsigned char *to_k = k_row(&a, &a.dk, &s, j, hkv), *to_v = k_row(&a, &a.dv_, &s, j, hkv);
    for (unsigned c = 0; c < MOST; c++) {
        uint64_t t = THREAD + (uint64_t)c * N;
        if (t < a.d)
            store_float(a.dk.dtype, to_k, t, dk[c]);
        if (t < a.dv)
            store_float(a.dv_.dtype, to_v, t, dv[c]);
    }
}

/* dsink of head BLOCK_X: the sum over rows of exp(sink - lse)·(dlse - delta). */
KERNEL(attn_dsink, tu_kernel_attn, N)
{
    SHARED(float, part, N / WARP);
    float sum = 0;
    for (uint64_t b = 0; b < a.batch; b++)
        for (uint64_t i = THREAD; i < a.seq[b].sq; i += N) {
            uint64_t at = lse_of(&a, &a.seq[b], i, BLOCK_X);
            if (a.lse[at] != -INFINITY)
                sum += expf(a.sinks[BLOCK_X] - a.lse[at]) *
                       ((a.dlse ? a.dlse[at] : 0) - a.delta[at]);
        }
    sum = block_sum(sum, part);
    if (THREAD == 0)
        a.dsink[BLOCK_X] = sum;
}

static int check(const struct tu_kernel_attn *a, struct tu_err *err)
{
    if (a->d > N * MOST || a->dv > N * MOST)
        return tui_fail(err, TU_EUNSUP, "rows of more than %d columns", N * MOST);
    if (a->sq_max > INT32_MAX || a->sk_max > INT32_MAX || a->chunk > INT32_MAX ||
        a->page > INT32_MAX)
        return tui_fail(err, TU_EUNSUP, "positions of more than 31 bits");
    if (a->batch > 65535 || a->sq_max * a->hq > 2147483647u ||
        a->sk_max * a->hkv > 2147483647u)
        return tui_fail(err, TU_EUNSUP, "more rows than a grid has blocks");
    return 0;
}

static int launch_forward(const void *args, struct tu_queue *q, struct tu_err *err)
{
    const struct tu_kernel_attn *a = (const struct tu_kernel_attn *)args;
    int code = check(a, err);
    if (code || !a->batch || !a->sq_max)
        return code;
    return LAUNCH(attn_forward, a->sq_max * a->hq, a->batch, N, a->d * sizeof(float), a, q, err);
}

static int launch_backward(const void *args, struct tu_queue *q, struct tu_err *err)
{
    const struct tu_kernel_attn *a = (const struct tu_kernel_attn *)args;
    size_t shared = (size_t)(a->d + a->dv) * sizeof(float);
    int code = check(a, err);
    if (code || !a->batch)
        return code;
    if (a->sq_max) {
        code = LAUNCH(attn_delta, a->sq_max * a->hq, a->batch, N, 0, a, q, err);
        if (!code)
            code = LAUNCH(attn_dq, a->sq_max * a->hq, a->batch, N, shared, a, q, err);
    }
    if (!code && a->sk_max)
        code = LAUNCH(attn_dkv, a->sk_max * a->hkv, a->batch, N, shared, a, q, err);
    if (!code && a->dsink)
        code = LAUNCH(attn_dsink, a->hq, 1, N, 0, a, q, err);
    return code;
}

const struct tui_kernel tui_kernels_attn[] = {
    {"attn.forward", launch_forward}, {"attn.backward", launch_backward}, {NULL, NULL}};
