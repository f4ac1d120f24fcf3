/* SPDX-License-Identifier: Apache-2.0 */
/* scan.cu: recurrences with a matrix state that fades: linear attention (a decay per head),
 * GLA (a decay per step and key column), SSD (a decay per step).
 *
 * S_t = decay · S_{t-1} + k_t v_t', o_t = scale · q_t' S_t. In chunks of C steps: what the
 * state before the chunk gives, and, from the keys within it, a triangular product; so the
 * state moves once per chunk. A block of threads has a head and a slice of value columns;
 * sums of log decays are taken from the chunk's start, so exponents of both are at most 0. */
#include <math.h>
#include "kernel.h"

enum { N = 128, C = 16, SLICE = 32 };
enum kind { LINEAR, GLA, SSD };

struct chunk {
    float *s, *q, *k, *v, *g, *w; /* [d, SLICE], [C, d] thrice … g: sums of logs; w: [C, C] */
};

DEVICE uint64_t row_of(const struct tu_kernel_scan *a, uint64_t b, uint64_t t, uint64_t h)
{
    return (b * a->time + t) * a->heads + h;
}

DEVICE float log_decay(const struct tu_kernel_scan *a, enum kind kind, uint64_t row, uint64_t h,
                       uint64_t i)
{
    if (kind == LINEAR)
        return a->slope ? -a->slope[h] : 0;
    return kind == GLA ? a->gate[row * a->d + i] : a->gate[row];
}

/* Rows of the chunk and the sums of their log decays, the step itself included. */
DEVICE void load(const struct tu_kernel_scan *a, enum kind kind, struct chunk c, uint64_t b,
                 uint64_t h, uint64_t t0, uint64_t n, uint64_t e0)
{
    for (uint64_t i = THREAD; i < a->d; i += N) {
        float sum = 0;
        for (uint64_t t = 0; t < n; t++) {
            uint64_t row = row_of(a, b, t0 + t, h);
            sum += log_decay(a, kind, row, h, i);
            c.g[t * a->d + i] = sum;
            c.q[t * a->d + i] = a->q[row * a->d + i] * a->scale;
            c.k[t * a->d + i] = a->k[row * a->d + i];
        }
    }
    for (uint64_t x = THREAD; x < n * SLICE; x += N) {
        uint64_t row = row_of(a, b, t0 + x / SLICE, h), e = e0 + x % SLICE;
        c.v[x] = e < a->e ? a->v[row * a->e + e] : 0;
    }
}

DEVICE void scan(const struct tu_kernel_scan *a, enum kind kind, unsigned char *memory)
{
    uint64_t b = BLOCK_Y / a->heads, h = BLOCK_Y % a->heads, d = a->d;
    uint64_t e0 = (uint64_t)BLOCK_X * SLICE, cd = C * d * sizeof(float), at = 0;
    struct chunk c;
    c.s = SHARED_PART(float, memory, at, d * SLICE), at += d * SLICE * sizeof(float);
    c.q = SHARED_PART(float, memory, at, C * d), at += cd;
    c.k = SHARED_PART(float, memory, at, C * d), at += cd;
    c.g = SHARED_PART(float, memory, at, C * d), at += cd;
    c.v = SHARED_PART(float, memory, at, C * SLICE), at += C * SLICE * sizeof(float);
    c.w = SHARED_PART(float, memory, at, C * C);
    for (uint64_t x = THREAD; x < d * SLICE; x += N) {
        uint64_t e = e0 + x % SLICE;
        c.s[x] = a->state && e < a->e ? a->state[(BLOCK_Y * d + x / SLICE) * a->e + e] : 0;
    }
    for (uint64_t t0 = 0; t0 < a->time; t0 += C) {
        uint64_t n = a->time - t0 < C ? a->time - t0 : C;
        load(a, kind, c, b, h, t0, n, e0);
        BARRIER();
        for (uint64_t x = THREAD; x < n * n; x += N) {
            uint64_t i = x / n, j = x % n;
            float w = 0;
            for (uint64_t t = 0; j <= i && t < d; t++)
                w += c.q[i * d + t] * c.k[j * d + t] * expf(c.g[i * d + t] - c.g[j * d + t]);
            c.w[i * C + j] = w;
        }
        BARRIER();
        for (uint64_t x = THREAD; x < n * SLICE; x += N) {
            uint64_t i = x / SLICE, e = x % SLICE;
            float o = 0;
            for (uint64_t t = 0; t < d; t++)
                o += c.q[i * d + t] * expf(c.g[i * d + t]) * c.s[t * SLICE + e];
            for (uint64_t j = 0; j <= i; j++)
                o += c.w[i * C + j] * c.v[j * SLICE + e];
            if (e0 + e < a->e)
                a->o[row_of(a, b, t0 + i, h) * a->e + e0 + e] = o;
        }
        BARRIER();
        for (uint64_t x = THREAD; x < d * SLICE; x += N) {
            uint64_t t = x / SLICE, e = x % SLICE;
            float last = c.g[(n - 1) * d + t], s = c.s[x] * expf(last);
            for (uint64_t j = 0; j < n; j++)
                s += c.k[j * d + t] * expf(last - c.g[j * d + t]) * c.v[j * SLICE + e];
            c.s[x] = s;
        }
        BARRIER();
    }
    for (uint64_t x = THREAD; a->state_out && x < d * SLICE; x += N)
        if (e0 + x % SLICE < a->e)
            a->state_out[(BLOCK_Y * d + x / SLICE) * a->e + e0 + x % SLICE] = c.s[x];
}

#define ROW(name, kind)                                                                  \
    KERNEL(scan_##name, tu_kernel_scan, N)                                               \
    {                                                                                    \
        DYNAMIC_SHARED(memory);                                                          \
        scan(&a, kind, memory);                                                          \
    }                                                                                    \
    static int launch_##name(const void *args, struct tu_queue *q, struct tu_err *err)   \
    {                                                                                    \
        const struct tu_kernel_scan *a = (const struct tu_kernel_scan *)args;            \
        size_t shared = (a->d * (SLICE + 3 * C) + C * SLICE + C * C) * sizeof(float);    \
        if (shared > 160 * 1024 || a->batch * a->heads > 65535)                          \
            return tui_fail(err, TU_EUNSUP, "a state or a batch that is too large");     \
        if (!a->batch || !a->heads)                                                      \
            return 0;                                                                    \
        return LAUNCH(scan_##name, (a->e + SLICE - 1) / SLICE, a->batch * a->heads, N,   \
                      shared, a, q, err);                                                \
    }
ROW(linear, LINEAR)
ROW(gla, GLA)
ROW(ssd, SSD)

const struct tui_kernel tui_kernels_scan[] = {{"linear.forward", launch_linear},
                                              {"gla.forward", launch_gla},
                                              {"ssd.forward", launch_ssd},
                                              {NULL, NULL}};
