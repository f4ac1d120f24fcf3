/* SPDX-License-Identifier: Apache-2.0 */
/* ggml.cu: Q4_0, Q8_0 both ways, Q4_K back to floats. A warp has a block of 32 elements, or
 * a super-block of 256; the arithmetic is that of lib/quant/ggml_basic.c to the bit. */
#include "kernel.h"

enum { N = 32, SUPER = 256, Q4_0 = 18, Q8_0 = 34, Q4_K = 144, PER_BLOCK = 256 };

/* The value of largest magnitude in the warp, the first one of equals. */
DEVICE float extreme(float v)
{
    uint32_t at = THREAD % WARP;
    v = v != 0 ? v : 0.0f;
    for (unsigned m = WARP / 2; m; m /= 2) {
        float o = xor_f32(v, m);
        uint32_t other = xor_u32(at, m);
        float x = abs_f32(v), y = abs_f32(o);
        if (y > x || (y == x && other < at)) {
            v = o;
            at = other;
        }
    }
    return v;
}

/* As x86 converts a float to int8: 0 where it does not fit an int. */
DEVICE int to_i8(float v)
{
    return v >= -2147483648.0f && v < 2147483648.0f ? (int)(int8_t)(int)v : 0;
}

DEVICE void put16(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

DEVICE float get_f16(const unsigned char *p)
{
    return from_f16((uint32_t)p[0] | (uint32_t)p[1] << 8);
}

KERNEL(encode_q4_0, tu_kernel_code, PER_BLOCK)
{
    unsigned lane = THREAD % WARP;
    for (uint64_t i = first_of_warp(); i < a.n / N; i += warps_of_grid()) {
        unsigned char *out = a.code + i * Q4_0;
        float x = a.x[i * N + lane], d = extreme(x) / -8.0f;
        float inverse = d != 0 ? 1.0f / d : 0.0f;
        int q = to_i8(x * inverse + 8.5f);
        uint32_t code = (uint32_t)(q > 15 ? 15 : q) & 255;
        uint32_t high = lane_u32(code, lane + 16);
        if (lane == 0)
            put16(out, to_f16(d));
        if (lane < 16)
            out[2 + lane] = (unsigned char)(code | high << 4);
    }
}

KERNEL(decode_q4_0, tu_kernel_code, PER_BLOCK)
{
    unsigned lane = THREAD % WARP;
    for (uint64_t i = first_of_warp(); i < a.n / N; i += warps_of_grid()) {
        const unsigned char *in = a.code + i * Q4_0;
        int q = in[2 + lane % 16] >> (lane / 16 * 4) & 15;
        a.x[i * N + lane] = (float)(q - 8) * get_f16(in);
    }
}

KERNEL(encode_q8_0, tu_kernel_code, PER_BLOCK)
{
    unsigned lane = THREAD % WARP;
    for (uint64_t i = first_of_warp(); i < a.n / N; i += warps_of_grid()) {
        unsigned char *out = a.code + i * Q8_0;
        float x = a.x[i * N + lane], d = warp_max(abs_f32(x)) / 127;
        float inverse = d != 0 ? 1.0f / d : 0.0f;
        if (lane == 0)
            put16(out, to_f16(d));
        out[2 + lane] = (unsigned char)to_i8(roundf(x * inverse));
    }
}

KERNEL(decode_q8_0, tu_kernel_code, PER_BLOCK)
{
    unsigned lane = THREAD % WARP;
    for (uint64_t i = first_of_warp(); i < a.n / N; i += warps_of_grid()) {
        const unsigned char *in = a.code + i * Q8_0;
        a.x[i * N + lane] = (float)(int8_t)in[2 + lane] * get_f16(in);
    }
}

/* Scales and minima of six bits, 12 bytes for eight of each. */
DEVICE unsigned k4_scale(const unsigned char *s, unsigned j)
{
    return j < 4 ? s[j] & 63u : (s[j + 4] & 15u) | (unsigned)(s[j - 4] >> 6) << 4;
}

DEVICE unsigned k4_min(const unsigned char *s, unsigned j)
{
    return j < 4 ? s[j + 4] & 63u : (unsigned)(s[j + 4] >> 4) | (unsigned)(s[j] >> 6) << 4;
}

KERNEL(decode_q4_k, tu_kernel_code, PER_BLOCK)
{
    unsigned lane = THREAD % WARP;
    for (uint64_t i = first_of_warp(); i < a.n / SUPER; i += warps_of_grid()) {
        const unsigned char *in = a.code + i * Q4_K;
        float d = get_f16(in), least = get_f16(in + 2);
        for (unsigned g = 0; g < SUPER / N; g++) {
            unsigned q = in[16 + g / 2 * 32 + lane] >> (g % 2 * 4) & 15;
            a.x[i * SUPER + g * N + lane] = d * (float)k4_scale(in + 4, g) * (float)q -
                                            least * (float)k4_min(in + 4, g);
        }
    }
}

#define ROW(fn, elements)                                                                \
    static int launch_##fn(const void *args, struct tu_queue *q, struct tu_err *err)     \
    {                                                                                    \
        const struct tu_kernel_code *a = (const struct tu_kernel_code *)args;            \
        return LAUNCH(fn, tui_blocks(a->n / (elements), PER_BLOCK / WARP), 1, PER_BLOCK, \
                      0, a, q, err);                                                     \
    }
ROW(encode_q4_0, N)
ROW(decode_q4_0, N)
ROW(encode_q8_0, N)
ROW(decode_q8_0, N)
ROW(decode_q4_k, SUPER)

const struct tui_kernel tui_kernels_ggml[] = {
    {"encode.q4_0", launch_encode_q4_0}, {"decode.q4_0", launch_decode_q4_0},
    {"encode.q8_0", launch_encode_q8_0}, {"decode.q8_0", launch_decode_q8_0},
    {"decode.q4_k", launch_decode_q4_k}, {NULL, NULL},
};
