/* SPDX-License-Identifier: Apache-2.0 */
/* ggml.h: ggml's block formats: what their encoders and decoders are given, and the parts
 * they share.
 *
 * Bytes are those of the peer's default x86-64 build, so the arithmetic is part of the
 * format: float32, one rounding per operation, sums in index order, products from left to
 * right. */
#ifndef TENSORUTILS_QUANT_GGML_H
#define TENSORUTILS_QUANT_GGML_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "tensorutils/core.h"

/* A run of blocks to encode. */
struct tui_blocks {
    const float *x;
    const float *weight; /* importance of the same elements, or NULL */
    float mean_sq;       /* with weights: mean of x² over the whole row */
    unsigned char *out;
    size_t n;            /* blocks */
    bool compat;         /* the peer's defects too */
};
typedef void (*tui_encode_fn)(const struct tui_blocks *b);
/* n blocks to floats. */
typedef void (*tui_decode_fn)(const unsigned char *in, float *x, size_t n);

#define TUI_SUPER 256 /* elements of a super-block */

/* X(name): the formats; each has tui_encode_NAME (but the IQ1 to IQ3) and
 * tui_decode_NAME. */
#define TUI_GGML_ENCODED(X)                                                                \
    X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q1_0) X(q2_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) \
    X(q6_k) X(iq4_nl) X(iq4_xs) X(tq1_0) X(tq2_0) X(mxfp4) X(nvfp4)
#define TUI_GGML_DECODED(X)                                                                \
    X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s)

#define TUI_ENCODE(name) void tui_encode_##name(const struct tui_blocks *b);
#define TUI_DECODE(name) void tui_decode_##name(const unsigned char *in, float *x, size_t n);
TUI_GGML_ENCODED(TUI_ENCODE)
TUI_GGML_ENCODED(TUI_DECODE)
TUI_GGML_DECODED(TUI_DECODE)
#undef TUI_ENCODE
#undef TUI_DECODE

/* Formats with vector twins, in both directions. */
#define TUI_GGML_LANES(X)                                                               \
    X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k)     \
    X(iq4_nl) X(iq4_xs) X(tq1_0) X(tq2_0) X(mxfp4) X(nvfp4)
#if defined __x86_64__ && !defined TU_NO_X86
#define TUI_TWINS(name)                                                                 \
    void tui_encode_##name##_avx2(const struct tui_blocks *b);                          \
    void tui_encode_##name##_avx512(const struct tui_blocks *b);                        \
    void tui_decode_##name##_avx2(const unsigned char *in, float *x, size_t n);         \
    void tui_decode_##name##_avx512(const unsigned char *in, float *x, size_t n);
TUI_GGML_LANES(TUI_TWINS)
#undef TUI_TWINS
#endif

/* Round half to even, the peer's way: outside |v| ≤ 4194303 the result wraps as there. */
static inline int tui_nint(float v)
{
    float y = v + 12582912.0f;
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    return (int)(bits & 0x007fffff) - 0x00400000;
}

static inline int tui_clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* 1/d, 0 for 0. Inf for the smallest d: every code is then what converting NaN to an
 * integer gives on x86, and the stored d is 0. */
static inline float tui_inverse(float d)
{
    return d != 0 ? 1.0f / d : 0.0f;
}

/* As x86 converts a float to int8: 0 where it does not fit an int. */
static inline int tui_to_i8(float v)
{
    return v >= -2147483648.0f && v < 2147483648.0f ? (int8_t)(int)v : 0;
}

/* The element of largest magnitude, with its sign; the first one wins. */
static inline float tui_extreme(const float *x, unsigned n)
{
    float top = 0, amax = 0;
    for (unsigned i = 0; i < n; i++) {
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            top = x[i];
        }
    }
    return top;
}

#define TUI_TINY 1e-15f /* groups below it get scale 0, where the format has a threshold */

/* Weight of an element by an importance matrix: q·sqrt(mean + x²). */
static inline float tui_weigh(float q, float mean, float x)
{
    return q * sqrtf(mean + x * x);
}

/* Sum of squares over n elements. */
static inline float tui_sum_sq(const float *x, unsigned n)
{
    float sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* Searches (ggml_fit.c). Each returns a scale and writes codes. */

/* x ≈ s·(code - nmax), code in 0 … 2·nmax-1: 19 scales around the one that maps the
 * extreme to -nmax, best by weighted least squares. weight NULL: x². */
float tui_fit_symmetric(unsigned n, int nmax, const float *x, const float *weight,
                        unsigned char *code);
/* x ≈ s·code - min, min ≥ 0. */
struct tui_fit_min {
    int nmax;
    float rmin, rdelta;
    int steps;
    bool absolute; /* error |d| instead of d² */
};
float tui_fit_min(const struct tui_fit_min *rule, unsigned n, const float *x, const float *weight,
                  unsigned char *code, float *min);
/* v ≈ s·code for v ≥ 0. */
float tui_fit_positive(unsigned n, int nmax, const float *v, const float *weight,
                       unsigned char *code);

/* Index of the nearest value of IQ4's code book; between two the upper one. */
unsigned tui_iq4_nearest(float v);
extern const signed char tui_iq4_book[16];

/* MXFP4 and NVFP4: E2M1 doubled, and scales halved to match. */
extern const signed char tui_fp4_book[16];
float tui_half_e8m0(unsigned e);
unsigned tui_mxfp4_scale(float amax, bool compat);
float tui_half_ue4m3(unsigned char v);
unsigned char tui_to_ue4m3(float v);

/* Byte j of four-bit codes of 32 elements: element j low, j+16 high. */
static inline void tui_put_nibbles(unsigned char *out, const unsigned char *code)
{
    for (unsigned j = 0; j < 16; j++)
        out[j] = (unsigned char)(code[j] | code[j + 16] << 4);
}

/* Scales and minima of Q4_K and Q5_K, six bits each, in 12 bytes. */
static inline unsigned tui_k4_scale(const unsigned char *s, unsigned j)
{
    return j < 4 ? s[j] & 63u : (s[j + 4] & 15u) | (unsigned)(s[j - 4] >> 6) << 4;
}

static inline unsigned tui_k4_min(const unsigned char *s, unsigned j)
{
    return j < 4 ? s[j + 4] & 63u : (unsigned)(s[j + 4] >> 4) | (unsigned)(s[j] >> 6) << 4;
}

static inline void tui_k4_pack(unsigned char *s, const unsigned char *scale,
                               const unsigned char *min)
{
    for (unsigned j = 0; j < 4; j++) {
        s[j] = (unsigned char)(scale[j] | (scale[j + 4] >> 4) << 6);
        s[j + 4] = (unsigned char)(min[j] | (min[j + 4] >> 4) << 6);
        s[j + 8] = (unsigned char)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* The bit layouts of the k-quants' codes, from 256 codes in element order. */
void tui_pack_q2_k(unsigned char *qs, const unsigned char *code);
void tui_pack_q3_k(unsigned char *hmask, unsigned char *qs, const unsigned char *code);
void tui_pack_q3_k_scales(unsigned char *scales, const unsigned char *l);
void tui_pack_q4_k(unsigned char *qs, const unsigned char *code);
void tui_pack_q5_k(unsigned char *qh, unsigned char *qs, const unsigned char *code);
void tui_pack_tq1_0(unsigned char *out, const unsigned char *trit);
void tui_pack_q6_k(unsigned char *ql, unsigned char *qh, const unsigned char *code);

#endif
