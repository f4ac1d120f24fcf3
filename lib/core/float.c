/* SPDX-License-Identifier: Apache-2.0 */
/* float.c: one value between number formats.
 *
 * Every narrow format is a row of one table, read by one encoder and one decoder: exact
 * value in, one rounding, code out. f16 and bf16 have shorter ways from f32 in cast.h.
 * Not for arrays (cast.c). */
#include <tensorutils/core.h>
#include "cast.h"

static const struct tui_format formats[] = {
    {TU_F16, 10, 15, 0x8000, 0x7bff, 0x7c00, 0x7e00},
    {TU_BF16, 7, 127, 0x8000, 0x7f7f, 0x7f80, 0x7fc0},
    {TU_F8_E4M3FN, 3, 7, 0x80, 0x7e, 0x7f, 0x7f},
    {TU_F8_E4M3FNUZ, 3, 8, 0x80, 0x7f, 0x80, 0x80},
    {TU_F8_E5M2, 2, 15, 0x80, 0x7b, 0x7c, 0x7e},
    {TU_F8_E5M2FNUZ, 2, 16, 0x80, 0x7f, 0x80, 0x80},
    {TU_F8_E8M0, 0, 127, 0, 0xfe, 0xff, 0xff},
    {TU_F6_E2M3, 3, 1, 0x20, 0x1f, 0x1f, 0},
    {TU_F6_E3M2, 2, 3, 0x20, 0x1f, 0x1f, 0},
    {TU_F4_E2M1, 1, 1, 0x08, 0x07, 0x07, 0},
};

const struct tui_format *tui_format_of(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

/* m × 2^-shift, to nearest, ties to even; negative shifts are exact and fit. */
static uint64_t shift_round(uint64_t m, int shift)
{
    if (shift <= 0)
        return m << -shift;
    if (shift > 64)
        return 0; /* below one half */
    uint64_t half = UINT64_C(1) << (shift - 1);
    uint64_t kept = shift == 64 ? 0 : m >> shift;
    uint64_t lost = shift == 64 ? m : m & (half * 2 - 1);
    return kept + (lost > half || (lost == half && (kept & 1)));
}

uint16_t tui_encode(const struct tui_format *f, bool minus, uint64_t m, int e,
                    bool saturate)
{
    uint16_t sign = minus ? f->sign : 0;
    if (f->dtype == TU_F8_E8M0 && (!m || minus)) /* it has neither zero nor sign */
        return m || !saturate ? f->nan : 0;
    if (!m)
        return f->nan == f->sign ? 0 : sign;
    int top = 63 - __builtin_clzll(m) + e; /* 2^top <= value < 2^(top+1) */
    int least = 1 - f->bias;               /* exponent of the smallest normal value */
    if (top > least + 256)
        return sign | (saturate ? f->max : f->inf);
    /* Consecutive codes are consecutive values: a carry out of the mantissa is right. */
    int base = top > least ? top - least : 0;
    uint64_t code = shift_round(m, least + base - f->mantissa - e) +
                    ((uint64_t)base << f->mantissa);
    if (code > f->max)
        code = saturate ? f->max : f->inf;
    if (!code && f->nan == f->sign)
        return 0;
    return sign | (uint16_t)code;
}

uint16_t tui_encode_double(const struct tui_format *f, double v, bool saturate)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    bool minus = u >> 63;
    int exp = (int)(u >> 52 & 0x7ff);
    uint64_t m = u & ((UINT64_C(1) << 52) - 1);
    uint16_t sign = minus ? f->sign : 0;
    if (exp != 0x7ff)
        return tui_encode(f, minus, exp ? m | UINT64_C(1) << 52 : m,
                          exp ? exp - 1075 : -1074, saturate);
    if (!m && f->dtype == TU_F8_E8M0 && minus)
        return f->nan;
    if (!m)
        return sign | (saturate ? f->max : f->inf);
    if (f->dtype == TU_F16 || f->dtype == TU_BF16) /* room for what a NaN carries */
        return sign | f->nan | (uint16_t)(m >> (52 - f->mantissa));
    return sign | f->nan;
}

static float decode(const struct tui_format *f, uint32_t v)
{
    if (f->dtype == TU_F8_E8M0)
        return tui_float(v == 0xff ? 0x7fc00000 : v ? v << 23 : 0x00400000);
    bool minus = v & f->sign;
    uint32_t a = v & (f->sign - 1u), exp = a >> f->mantissa;
    uint32_t m = a & ((1u << f->mantissa) - 1);
    uint32_t sign = (uint32_t)minus << 31;
    if (a > f->max)
        return tui_float(sign |
                         (a == f->inf && f->inf != f->nan ? 0x7f800000 : 0x7fc00000));
    if (f->nan == f->sign && v == f->nan)
        return tui_float(0x7fc00000);
    if (exp)
        m |= 1u << f->mantissa;
    int scale = (int)(exp ? exp : 1) - f->bias - f->mantissa;
    float value = (float)m * tui_float((uint32_t)(127 + scale) << 23);
    return minus ? -value : value;
}

float tu_from_f16(uint16_t v)
{
    return tui_float(tui_f16_to_f32(v));
}

uint16_t tu_to_f16(float v)
{
    return tui_f32_to_f16(tui_bits(v));
}

float tu_from_bf16(uint16_t v)
{
    return tui_float((uint32_t)v << 16);
}

uint16_t tu_to_bf16(float v)
{
    return tui_f32_to_bf16(tui_bits(v));
}

float tu_from_small(uint32_t dtype, uint8_t v)
{
    const struct tui_format *f = tui_format_of(dtype);
    if (!f)
        return tui_float(0x7fc00000);
    return decode(f, f->sign ? v & (f->sign * 2u - 1) : v);
}

uint8_t tu_to_small(uint32_t dtype, float v, bool saturate)
{
    const struct tui_format *f = tui_format_of(dtype);
    return f ? (uint8_t)tui_encode_double(f, (double)v, saturate) : 0;
}
