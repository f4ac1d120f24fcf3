/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h: the scalar conversions, the encoder of narrow floats, and the tables of array
 * kernels.
 *
 * The scalars are inline: the vector files end their loops with them. They are the
 * definition: every vector row gives their bits for every input, NaN included (its top
 * mantissa bits stay, the quiet bit is set: what VCVTPS2PH does). */
#ifndef TENSORUTILS_CORE_CAST_PRIVATE_H
#define TENSORUTILS_CORE_CAST_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tensorutils/core/cpu.h>

static inline uint32_t tui_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static inline float tui_float(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static inline uint16_t tui_f32_to_bf16(uint32_t u)
{
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline uint16_t tui_f32_to_f16(uint32_t u)
{
    uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff, r;
    if (a > 0x7f800000)
        r = 0x7e00 | (a >> 13 & 0x1ff);
    else if (a >= 0x477ff000) /* 65520, the middle between 65504 and 2^16 */
        r = 0x7c00;
    else if (a < 0x38800000) /* 2^-14: adding 1/2 leaves multiples of 2^-24, rounded to
                                even */
        r = tui_bits(tui_float(a) + 0.5f) - 0x3f000000;
    else
        r = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | r);
}

static inline uint32_t tui_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, a = h & 0x7fff, r;
    if (a > 0x7c00)
        r = 0x7fc00000 | a << 13;
    else if (a == 0x7c00)
        r = 0x7f800000;
    else if (a >= 0x400)
        r = (a << 13) + 0x38000000;
    else
        r = tui_bits((float)a * 0x1p-24f);
    return sign | r;
}

/* A binary format of at most 16 bits. */
struct tui_format {
    uint16_t dtype;
    uint8_t mantissa; /* bits */
    uint8_t bias;
    uint16_t sign; /* its bit, 0 when there is none */
    uint16_t max;  /* code of the largest finite value */
    uint16_t inf;  /* code of what overflows: Inf, else NaN, else max */
    uint16_t nan;  /* == sign in the fnuz formats, whose only NaN is where -0 would be */
};

/* NULL where dtype is no such format. */
const struct tui_format *tui_format_of(uint32_t dtype);
/* The code nearest to ±m × 2^e, ties to even; any m. One rounding. */
uint16_t tui_encode(const struct tui_format *f, bool minus, uint64_t m, int e,
                    bool saturate);
/* The same of a double, NaN and Inf included. */
uint16_t tui_encode_double(const struct tui_format *f, double v, bool saturate);

/* n values, unaligned; src and dst do not overlap. */
typedef void (*tui_cast_fn)(void *dst, const void *src, size_t n);

extern const struct tu_kernel tui_cast_f32_bf16[], tui_cast_bf16_f32[];
extern const struct tu_kernel tui_cast_f32_f16[], tui_cast_f16_f32[];

#define TUI_CAST_ROWS(isa)                                                             \
    void tui_f32_to_bf16_##isa(void *dst, const void *src, size_t n);                  \
    void tui_bf16_to_f32_##isa(void *dst, const void *src, size_t n);                  \
    void tui_f32_to_f16_##isa(void *dst, const void *src, size_t n);                   \
    void tui_f16_to_f32_##isa(void *dst, const void *src, size_t n);
TUI_CAST_ROWS(plain)
TUI_CAST_ROWS(avx2)
TUI_CAST_ROWS(avx512)
#undef TUI_CAST_ROWS

#endif
