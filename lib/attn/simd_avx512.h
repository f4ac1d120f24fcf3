/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx512.h: the vector operations of tile_body.h in AVX-512, for the f32 and the AMX
 * rows. */
#ifndef ATTN_SIMD_AVX512_H
#define ATTN_SIMD_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include "attn/exp2.h"

typedef __m512 vec;
#define W 16
#define MR 12
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps((p), (v))
#define v_set(x) _mm512_set1_ps(x)
#define v_add(a, b) _mm512_add_ps((a), (b))
#define v_sub(a, b) _mm512_sub_ps((a), (b))
#define v_mul(a, b) _mm512_mul_ps((a), (b))
#define v_fma(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define v_max(a, b) _mm512_max_ps((a), (b))
#define v_sum(v) _mm512_reduce_add_ps(v)
#define v_top(v) _mm512_reduce_max_ps(v)

static inline vec v_exp2(vec x)
{
    static const float c[] = {EXP2_6};
    x = _mm512_max_ps(_mm512_set1_ps(EXP2_LOW), x); /* gives x where x is NaN */
    vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec f = _mm512_sub_ps(x, n), p = _mm512_set1_ps(c[6]);
    for (int i = 5; i >= 0; i--)
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c[i]));
    return _mm512_scalef_ps(p, n);
}

/* 16 rows of 16 words (stride ld words) become 16 columns. */
static inline void transpose16(void *dst, size_t ld_dst, const void *src, size_t ld)
{
    const char *from = src;
    char *to = dst;
    __m512i r[16], t[16];
    for (size_t i = 0; i < 16; i++)
        r[i] = _mm512_loadu_si512(from + 4 * i * ld);
    for (unsigned i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (unsigned i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (unsigned i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (unsigned i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
    for (size_t i = 0; i < 16; i++)
        _mm512_storeu_si512(to + 4 * i * ld_dst, r[i]);
}

static inline void turn(float *dst, size_t ld_dst, const float *src, size_t ld, size_t m,
                        size_t n)
{
    for (size_t i = 0; i < m; i += 16)
        for (size_t j = 0; j < n; j += 16)
            transpose16(dst + j * ld_dst + i, ld_dst, src + i * ld + j, ld);
}
#define TURN turn

#endif
