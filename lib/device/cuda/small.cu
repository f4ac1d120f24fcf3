/* SPDX-License-Identifier: Apache-2.0 */
/* small.cu: floats of 4 and 8 bits, without a scale, under one of a tensor or a row, in
 * OCP's blocks of 32 and in NVFP4's of 16. The bytes are those of lib/quant/fp8.c,
 * scaled.c, mx.c, nvfp4.c. Inputs are finite. */
#include "floats.h"

enum { PER_BLOCK = 256, MX = 32, NV = 16 };
enum rule { FLOOR, CEIL, RCEIL, EVEN };

/* One scale for all ----------------------------------------------------------------------- */

KERNEL(encode_flat, tu_kernel_code, PER_BLOCK)
{
    struct format f = format_of(a.small);
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step)
        a.code[i] = (unsigned char)to_small(f, a.x[i] / a.unit);
}

KERNEL(decode_flat, tu_kernel_code, PER_BLOCK)
{
    struct format f = format_of(a.small);
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step)
        a.x[i] = from_small(f, a.code[i]) * a.unit;
}

/* A block of threads for a row of `cols` elements. */
KERNEL(encode_rows, tu_kernel_code, PER_BLOCK)
{
    SHARED(float, most, PER_BLOCK / WARP);
    struct format f = format_of(a.small);
    for (uint64_t row = BLOCK_X; row < a.n / a.cols; row += GRID_X) {
        const float *x = a.x + row * a.cols;
        float amax = 0;
        for (uint64_t i = THREAD; i < a.cols; i += THREADS)
            amax = max_f32(amax, abs_f32(x[i]));
        amax = warp_max(amax);
        if (THREAD % WARP == 0)
            AT(most, THREAD / WARP) = amax;
        BARRIER();
        for (unsigned w = 0; w < PER_BLOCK / WARP; w++)
            amax = max_f32(amax, AT(most, w));
        BARRIER();
        float scale = amax / f.max;
        scale = scale == 0 ? power(-23) : scale;
        if (THREAD == 0)
            a.scale[row] = scale;
        for (uint64_t i = THREAD; i < a.cols; i += THREADS)
            a.code[row * a.cols + i] = (unsigned char)to_small(f, x[i] / scale);
    }
}

KERNEL(decode_rows, tu_kernel_code, PER_BLOCK)
{
    struct format f = format_of(a.small);
    for (uint64_t row = BLOCK_X; row < a.n / a.cols; row += GRID_X)
        for (uint64_t i = THREAD; i < a.cols; i += THREADS)
            a.x[row * a.cols + i] =
                from_small(f, a.code[row * a.cols + i]) * a.scale[row];
}

/* Blocks of 32 under a power of two -------------------------------------------------------- */

/* floor(log2 v) of v > 0. */
DEVICE int exponent(float v)
{
    uint32_t bits = bits_of(v);
    return bits >> 23 ? (int)(bits >> 23) - 127 : 31 - leading_zeros(bits) - 149;
}

/* Smallest e with 2^e ≥ v; 0 for 0. */
DEVICE int exponent_up(float v)
{
    if (v == 0)
        return 0;
    uint32_t bits = bits_of(v), low = bits & 0x7fffffu;
    bool whole = bits >> 23 ? low == 0 : (low & (low - 1)) == 0;
    return exponent(v) + (whole ? 0 : 1);
}

DEVICE int shared_exponent(uint32_t rule, struct format f, float amax)
{
    int e;
    if (rule == FLOOR)
        e = exponent(amax) - f.emax;
    else if (rule == CEIL)
        e = exponent_up(amax) - f.emax;
    else if (rule == RCEIL)
        e = exponent_up(amax * (1 / f.max));
    else
        e = (int)((bits_of(amax) + (1u << (22 - f.mantissa))) >> 23) - 127 - f.emax;
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* 2^e for e of -127 to 127. */
DEVICE float scale_of(int e)
{
    return of_bits(e > -127 ? (uint32_t)(e + 127) << 23 : 1u << 22);
}

/* A lane's code to memory: a byte, or with the next lane's a pair, the earlier low. */
DEVICE void put_code(struct format f, unsigned char *out, uint64_t i, unsigned code)
{
    if (f.sign == 128) {
        out[i] = (unsigned char)code;
        return;
    }
    uint32_t next = xor_u32(code, 1);
    if (i % 2 == 0)
        out[i / 2] = (unsigned char)(code | next << 4);
}

DEVICE unsigned get_code(struct format f, const unsigned char *in, uint64_t i)
{
    return f.sign == 128 ? in[i] : in[i / 2] >> (i % 2 * 4) & 15u;
}

KERNEL(encode_mx, tu_kernel_code, PER_BLOCK)
{
    struct format f = format_of(a.small);
    unsigned lane = THREAD % WARP;
    for (uint64_t b = first_of_warp(); b < a.n / MX; b += warps_of_grid()) {
        float x = a.x[b * MX + lane], amax = warp_max(abs_f32(x));
        int e = amax > 0 ? shared_exponent(a.rule, f, amax) : -127;
        unsigned code = amax > 0 ? to_small(f, x / scale_of(e)) : 0;
        put_code(f, a.code, b * MX + lane, code);
        if (lane == 0)
            a.scale8[b] = (unsigned char)(e + 127);
    }
}

KERNEL(decode_mx, tu_kernel_code, PER_BLOCK)
{
    struct format f = format_of(a.small);
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step) {
        unsigned s = a.scale8[i / MX];
        float scale = s == 255 ? of_bits(0x7fc00000u) : scale_of((int)s - 127);
        a.x[i] = from_small(f, get_code(f, a.code, i)) * scale;
    }
}

/* Blocks of 16 under E4M3 and a scale of the tensor: unit is as stored, rule says whether it
 * multiplies, global is what block scales are multiplied by. ------------------------------- */

DEVICE float nv_unit(uint32_t multiplies, float stored, float scale)
{
    return multiplies ? scale * stored : scale / stored;
}

KERNEL(encode_nv, tu_kernel_code, PER_BLOCK)
{
    struct format e2m1 = format_of(TU_F4_E2M1), e4m3 = format_of(TU_F8_E4M3FN);
    unsigned lane = THREAD % WARP;
    uint64_t blocks = a.n / NV;
    for (uint64_t w = first_of_warp(); w < (blocks + 1) / 2; w += warps_of_grid()) {
        uint64_t i = w * WARP + lane;
        float x = i < a.n ? a.x[i] : 0, amax = abs_f32(x);
        for (unsigned m = NV / 2; m; m /= 2)
            amax = max_f32(amax, xor_f32(amax, m));
        float want = a.global * amax / 6;
        if (a.rule && !(want > power(-9)))
            want = power(-9);
        unsigned scale = to_small(e4m3, want);
        if (scale == 0)
            scale = to_small(e4m3, 0.125f);
        float unit = nv_unit(a.rule, a.unit, from_small(e4m3, scale));
        unsigned code = to_small(e2m1, x / unit);
        uint32_t next = xor_u32(code, 1);
        if (i < a.n && i % 2 == 0)
            a.code[i / 2] = (unsigned char)(code | next << 4);
        if (i < a.n && i % NV == 0)
            a.scale8[i / NV] = (unsigned char)scale;
    }
}

KERNEL(decode_nv, tu_kernel_code, PER_BLOCK)
{
    struct format e2m1 = format_of(TU_F4_E2M1), e4m3 = format_of(TU_F8_E4M3FN);
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step) {
        float unit = nv_unit(a.rule, a.unit, from_small(e4m3, a.scale8[i / NV]));
        a.x[i] = from_small(e2m1, get_code(e2m1, a.code, i)) * unit;
    }
}

#define ROW(fn, work)                                                                    \
    static int launch_##fn(const void *args, struct tu_queue *q, struct tu_err *err)     \
    {                                                                                    \
        const struct tu_kernel_code *a = (const struct tu_kernel_code *)args;            \
        return LAUNCH(fn, tui_blocks(work, PER_BLOCK / WARP), 1, PER_BLOCK, 0, a, q,     \
                      err);                                                              \
    }
ROW(encode_flat, a->n / WARP + 1)
ROW(decode_flat, a->n / WARP + 1)
ROW(encode_rows, a->n / a->cols * (PER_BLOCK / WARP))
ROW(decode_rows, a->n / a->cols * (PER_BLOCK / WARP))
ROW(encode_mx, a->n / MX)
ROW(decode_mx, a->n / WARP + 1)
ROW(encode_nv, a->n / WARP + 1)
ROW(decode_nv, a->n / WARP + 1)

const struct tui_kernel tui_kernels_small[] = {
    {"encode.fp8", launch_encode_flat},         {"decode.fp8", launch_decode_flat},
    {"encode.fp8_tensor", launch_encode_flat},  {"decode.fp8_tensor", launch_decode_flat},
    {"encode.fp8_channel", launch_encode_rows}, {"decode.fp8_channel", launch_decode_rows},
    {"encode.mxfp8", launch_encode_mx},         {"decode.mxfp8", launch_decode_mx},
    {"encode.mxfp4_packed", launch_encode_mx},  {"decode.mxfp4_packed", launch_decode_mx},
    {"encode.nvfp4_packed", launch_encode_nv},  {"decode.nvfp4_packed", launch_decode_nv},
    {NULL, NULL},
};
