/* SPDX-License-Identifier: Apache-2.0 */
/* attn.h: what the kernels of softmax attention share: where rows are, which keys a query
 * sees, what becomes of a logit. The definitions of lib/attn/ref.c, in float. */
#ifndef TENSORUTILS_DEVICE_CUDA_ATTN_H
#define TENSORUTILS_DEVICE_CUDA_ATTN_H

#include <math.h>
#include "floats.h"

enum causal { CAUSAL_NONE, CAUSAL_BR, CAUSAL_TL };

DEVICE unsigned char *q_row(const struct tu_kernel_rows *r, const struct tu_kernel_seq *s,
                            uint64_t i, uint64_t h)
{
    return r->data + (int64_t)r->elem *
                         ((int64_t)s->q_batch * r->batch +
                          (int64_t)(s->q_token + i) * r->token + (int64_t)h * r->head);
}

DEVICE unsigned char *k_row(const struct tu_kernel_attn *a, const struct tu_kernel_rows *r,
                            const struct tu_kernel_seq *s, uint64_t j, uint64_t h)
{
    uint64_t batch = s->k_batch, token = s->k_token + j;
    if (s->page) {
        batch = (uint64_t)s->page[(uint32_t)j / (uint32_t)a->page];
        token = (uint32_t)j % (uint32_t)a->page;
    }
    return r->data + (int64_t)r->elem *
                         ((int64_t)batch * r->batch + (int64_t)token * r->token +
                          (int64_t)h * r->head);
}

DEVICE int64_t at4(const int64_t at[4], uint64_t b, uint64_t h, uint64_t i, uint64_t j)
{
    return (int64_t)b * at[0] + (int64_t)h * at[1] + (int64_t)i * at[2] + (int64_t)j * at[3];
}

DEVICE bool sees(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s, uint64_t b,
                 uint64_t h, uint64_t i, uint64_t key)
{
    int64_t p = (int64_t)i + s->off, j = (int64_t)key, c = (int64_t)a->chunk;
    /* Divisions are of 32 bits: positions are (launches check), and 64 cost a call. */
    int32_t p32 = (int32_t)p, c32 = (int32_t)c;
    bool left = a->left < 0 || j >= p - a->left, right = a->right < 0 || j <= p + a->right;
    if (a->causal != CAUSAL_NONE)
        right = right && j <= p;
    if (c) {
        int64_t start = p - ((p32 % c32) + c32) % c32;
        left = left && j >= start;
        right = right && j < start + c && j <= p;
    }
    bool yes = (left && right) || (j < (int64_t)a->sink_tokens && right) ||
               j < (int64_t)s->prefix;
    if (yes && a->blocks)
        yes = a->blocks[at4(a->blocks_at, b, h, (uint32_t)i / (uint32_t)a->mask_q,
                            (uint32_t)key / (uint32_t)a->mask_k)] != 0;
    if (yes && a->mask)
        yes = a->mask[at4(a->mask_at, b, h, i, key)] != 0;
    if (yes && a->docs)
        yes = p >= 0 && p < (int64_t)a->docs_n &&
              a->docs[b * a->docs_n + (uint64_t)p] == a->docs[b * a->docs_n + key];
    return yes;
}

/* The final logit of a product q·k that has its scale; *slow is the derivative of the
 * cap. */
DEVICE float logit(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s, uint64_t b,
                   uint64_t h, uint64_t i, uint64_t j, float x, float *slow)
{
    *slow = 1;
    if (a->softcap > 0) {
        float y = tanhf(x / a->softcap);
        x = a->softcap * y;
        *slow = 1 - y * y;
    }
    if (a->bias)
        x += a->bias[at4(a->bias_at, b, h, i, j)];
    if (a->slopes) {
        int64_t far = (int64_t)i + s->off - (int64_t)j;
        x -= a->slopes[b * a->slopes_batch + h] * (float)(far < 0 ? -far : far);
    }
    return x;
}

/* 0 where P is dropped, else 1/(1-p). Philox of (j/4, i, head, 0), word j%4. */
DEVICE float keep(const struct tu_kernel_attn *a, uint64_t b, uint64_t h, uint64_t i,
                  uint64_t j)
{
    if (a->dropout == 0)
        return 1;
    uint32_t c[4] = {(uint32_t)(j >> 2), (uint32_t)i,
                     (uint32_t)(b * a->h_all + a->h_first + h), 0};
    uint32_t k0 = (uint32_t)a->seed, k1 = (uint32_t)(a->seed >> 32);
    for (int r = 0; r < 10; r++) {
        uint32_t x0 = high_product(c[2], 0xCD9E8D57u) ^ c[1] ^ k0;
        uint32_t x2 = high_product(c[0], 0xD2511F53u) ^ c[3] ^ k1;
        c[1] = c[2] * 0xCD9E8D57u;
        c[3] = c[0] * 0xD2511F53u;
        c[0] = x0;
        c[2] = x2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint32_t w = j & 2 ? (j & 1 ? c[3] : c[2]) : j & 1 ? c[1] : c[0];
    return w >= a->drop_below ? 1 / (1 - a->dropout) : 0;
}

DEVICE uint64_t lse_of(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s,
                       uint64_t i, uint64_t h)
{
    return s->lse_at + h * a->lse_head + i;
}

DEVICE float factor(const float *scale, const struct tu_kernel_attn *a, uint64_t b,
                    uint64_t hkv)
{
    return scale ? scale[b * a->hkv + hkv] : 1;
}

#endif
