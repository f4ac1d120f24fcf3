/* SPDX-License-Identifier: Apache-2.0 */
/* floats.h: numbers of 4, 8 and 16 bits to float and back, in kernels. */
#ifndef TENSORUTILS_DEVICE_CUDA_FLOATS_H
#define TENSORUTILS_DEVICE_CUDA_FLOATS_H

#include "kernel.h"

/* What rounding needs to know of a format. */
struct format {
    int mantissa, bias, emin, emax;
    float max;
    unsigned sign; /* its bit */
};

DEVICE struct format format_of(uint32_t dtype)
{
    struct format e4m3 = {3, 7, -6, 8, 448.0f, 128}, e5m2 = {2, 15, -14, 15, 57344.0f, 128},
                  e2m1 = {1, 1, 0, 2, 6.0f, 8};
    return dtype == TU_F8_E5M2 ? e5m2 : dtype == TU_F4_E2M1 ? e2m1 : e4m3;
}

/* 2^e of a normal number. */
DEVICE float power(int e)
{
    return of_bits((uint32_t)(e + 127) << 23);
}

/* To the nearest, half to even, saturating. */
DEVICE unsigned to_small(struct format f, float v)
{
    unsigned sign = bits_of(v) >> 31 ? f.sign : 0;
    float x = abs_f32(v);
    if (x > f.max)
        x = f.max;
    if (x < power(f.emin)) /* steps of one size down to 0 */
        return sign | (unsigned)(int)(x * power(f.mantissa - f.emin) + 12582912.0f -
                                      12582912.0f);
    unsigned drop = 23 - (unsigned)f.mantissa;
    uint32_t bits = bits_of(x);
    bits += (1u << (drop - 1)) - 1 + (bits >> drop & 1);
    bits = (bits >> drop) - ((uint32_t)(127 - f.bias) << f.mantissa);
    uint32_t most = (bits_of(f.max) >> drop) - ((uint32_t)(127 - f.bias) << f.mantissa);
    return sign | (bits < most ? bits : most);
}

DEVICE float from_small(struct format f, unsigned code)
{
    unsigned magnitude = code & (f.sign - 1), low = magnitude & ((1u << f.mantissa) - 1);
    unsigned e = magnitude >> f.mantissa;
    float v = e ? of_bits((e + (unsigned)(127 - f.bias)) << 23 | low << (23 - f.mantissa))
                : (float)low * power(f.emin - f.mantissa);
    /* What is not finite: e5m2's last exponent, e4m3's last code. */
    if (f.mantissa == 2 && e == 31)
        v = of_bits(low ? 0x7fc00000u : 0x7f800000u);
    if (f.mantissa == 3 && magnitude == 127)
        v = of_bits(0x7fc00000u);
    return code & f.sign ? -v : v;
}

/* Element t of a row. */
DEVICE float load_float(uint32_t dtype, const unsigned char *p, uint64_t t)
{
    if (dtype == TU_F32)
        return ((const float *)(const void *)p)[t];
    if (dtype == TU_F16)
        return from_f16(((const uint16_t *)(const void *)p)[t]);
    if (dtype == TU_BF16)
        return from_bf16(((const uint16_t *)(const void *)p)[t]);
    return from_small(format_of(dtype), p[t]);
}

/* f32, f16 and bf16. */
DEVICE void store_float(uint32_t dtype, unsigned char *p, uint64_t t, float v)
{
    if (dtype == TU_F32)
        ((float *)(void *)p)[t] = v;
    else
        ((uint16_t *)(void *)p)[t] = (uint16_t)(dtype == TU_F16 ? to_f16(v) : to_bf16(v));
}

#endif
