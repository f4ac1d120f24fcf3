/* SPDX-License-Identifier: Apache-2.0 */
/* pack.cu: compressed-tensors' int4 in words, TernGrad's trits four in a byte, 2:4 pruning.
 * The bytes are those of lib/quant/int.c (rule ct, symmetric), ternary.c and prune.c. */
#include "kernel.h"

enum { PER_BLOCK = 256, IN_WORD = 8 };

/* Half to even for |v| < 2^22. */
DEVICE float nearest(float v)
{
    return v + 12582912.0f - 12582912.0f;
}

DEVICE float limit(float v, float lo, float hi)
{
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

DEVICE void put_scale(const struct tu_kernel_code *a, uint64_t i, float v)
{
    if (a->rule == TU_F32) {
        a->scale[i] = v;
        return;
    }
    uint32_t h = to_bf16(v);
    a->scale16[2 * i] = (unsigned char)h;
    a->scale16[2 * i + 1] = (unsigned char)(h >> 8);
}

DEVICE float get_scale(const struct tu_kernel_code *a, uint64_t i)
{
    if (a->rule == TU_F32)
        return a->scale[i];
    return from_bf16((uint32_t)a->scale16[2 * i] | (uint32_t)a->scale16[2 * i + 1] << 8);
}

/* A warp for a group; a lane for a word of eight codes. */
KERNEL(encode_int4, tu_kernel_code, PER_BLOCK)
{
    unsigned lane = THREAD % WARP;
    uint32_t in_row = (uint32_t)a.cols / a.block, groups = (uint32_t)(a.n / a.block);
    for (uint64_t g = first_of_warp(); g < groups; g += warps_of_grid()) {
        const float *x = a.x + g * a.block;
        float amax = 0;
        for (uint64_t i = lane; i < a.block; i += WARP)
            amax = max_f32(amax, abs_f32(x[i]));
        float scale = warp_max(amax) / 7.5f;
        scale = scale == 0 ? 1.1920929e-7f : scale;
        if (a.rule != TU_F32)
            scale = from_bf16(to_bf16(scale));
        if (lane == 0)
            put_scale(&a, g, scale);
        unsigned char *out =
            a.code + 4 * ((uint64_t)((uint32_t)g / in_row) * a.words +
                          (uint32_t)g % in_row * (a.block / IN_WORD));
        for (uint64_t w = lane; w < a.block / IN_WORD; w += WARP) {
            uint32_t word = 0;
            for (unsigned k = 0; k < IN_WORD; k++) {
                float v = nearest(limit(x[w * IN_WORD + k] / scale, -8, 7));
                word |= (uint32_t)(int)(v + 8) << 4 * k;
            }
            *(uint32_t *)(void *)(out + 4 * w) = word;
        }
    }
}

KERNEL(decode_int4, tu_kernel_code, PER_BLOCK)
{
    uint32_t in_row = (uint32_t)a.cols / a.block, groups = (uint32_t)(a.n / a.block);
    for (uint64_t g = first_of_warp(); g < groups; g += warps_of_grid()) {
        const unsigned char *in =
            a.code + 4 * ((uint64_t)((uint32_t)g / in_row) * a.words +
                          (uint32_t)g % in_row * (a.block / IN_WORD));
        float scale = get_scale(&a, g);
        for (uint64_t i = THREAD % WARP; i < a.block; i += WARP)
            a.x[g * a.block + i] =
                ((float)(in[i / 2] >> (i % 2 * 4) & 15) - 8) * scale;
    }
}

/* Philox4x32-10, the words of one block. Source: lib/core/rng.c. */
DEVICE void philox(uint64_t seed, uint64_t stream, uint64_t block, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    c[0] = (uint32_t)block;
    c[1] = (uint32_t)(block >> 32);
    c[2] = (uint32_t)stream;
    c[3] = (uint32_t)(stream >> 32);
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
}

/* A thread for a byte; first is a multiple of four. */
KERNEL(encode_terngrad, tu_kernel_code, PER_BLOCK)
{
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t b = (uint64_t)BLOCK_X * THREADS + THREAD; b < (a.n + 3) / 4; b += step) {
        uint32_t word[4];
        unsigned v = 0;
        philox(a.seed, a.stream, a.first / 4 + b, word);
        for (unsigned k = 0; k < 4; k++) {
            uint64_t i = 4 * b + k;
            float x = i < a.n ? a.x[i] : 0, size = abs_f32(x) < a.unit ? abs_f32(x) : a.unit;
            float u = (float)(word[k] >> 8) * 5.9604645e-8f;
            unsigned t = i < a.n && u * a.unit < size ? (x < 0 ? 0 : 2) : 1;
            v |= t << 2 * k;
        }
        a.code[b] = (unsigned char)v;
    }
}

KERNEL(decode_terngrad, tu_kernel_code, PER_BLOCK)
{
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step) {
        int t = a.code[i / 4] >> (i % 4 * 2) & 3;
        if (t == 3)
            *a.bad = 1;
        a.x[i] = (float)(t - 1) * a.unit;
    }
}

/* A thread for four elements: those with fewer than two above them stay; of equals the
 * earlier is above. */
KERNEL(prune_24, tu_kernel_prune, PER_BLOCK)
{
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t g = (uint64_t)BLOCK_X * THREADS + THREAD; g < a.n / 4; g += step) {
        float s[4];
        for (unsigned i = 0; i < 4; i++)
            s[i] = a.score ? a.score[4 * g + i] : abs_f32(a.x[4 * g + i]);
        for (unsigned i = 0; i < 4; i++) {
            unsigned above = 0;
            for (unsigned j = 0; j < 4; j++)
                above += s[j] > s[i] || (s[j] == s[i] && j < i);
            if (above >= 2)
                a.x[4 * g + i] = 0;
        }
    }
}

#define ROW(fn, type, warps)                                                             \
    static int launch_##fn(const void *args, struct tu_queue *q, struct tu_err *err)     \
    {                                                                                    \
        const struct type *a = (const struct type *)args;                                \
        return LAUNCH(fn, tui_blocks(warps, PER_BLOCK / WARP), 1, PER_BLOCK, 0, a, q,    \
                      err);                                                              \
    }
ROW(encode_int4, tu_kernel_code, a->n / a->block)
ROW(decode_int4, tu_kernel_code, a->n / a->block)
ROW(encode_terngrad, tu_kernel_code, a->n / (4 * WARP) + 1)
ROW(decode_terngrad, tu_kernel_code, a->n / WARP + 1)
ROW(prune_24, tu_kernel_prune, a->n / (4 * WARP) + 1)

const struct tui_kernel tui_kernels_pack[] = {
    {"encode.int4", launch_encode_int4},         {"decode.int4", launch_decode_int4},
    {"encode.terngrad", launch_encode_terngrad}, {"decode.terngrad", launch_decode_terngrad},
    {"prune.24", launch_prune_24},               {NULL, NULL},
};
