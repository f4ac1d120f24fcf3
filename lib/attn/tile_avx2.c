/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx2.c: the f32 tile kernels, eight lanes. */
#include "attn/tile.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>
#include "attn/exp2.h"

typedef __m256 vec;
#define W 8
#define MR 6
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps((p), (v))
#define v_set(x) _mm256_set1_ps(x)
#define v_add(a, b) _mm256_add_ps((a), (b))
#define v_sub(a, b) _mm256_sub_ps((a), (b))
#define v_mul(a, b) _mm256_mul_ps((a), (b))
#define v_fma(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define v_max(a, b) _mm256_max_ps((a), (b))

static inline float v_sum(vec v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

static inline float v_top(vec v)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

/* Two factors of 2^n, so that results below 2^-126 come out right. */
static inline vec v_exp2(vec x)
{
    static const float c[] = {EXP2_6};
    x = _mm256_max_ps(_mm256_set1_ps(EXP2_LOW), x); /* gives x where x is NaN */
    x = _mm256_min_ps(_mm256_set1_ps(EXP2_HIGH), x);
    vec n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec f = _mm256_sub_ps(x, n), p = _mm256_set1_ps(c[6]);
    for (int i = 5; i >= 0; i--)
        p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(c[i]));
    __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1);
    __m256i bias = _mm256_set1_epi32(127), rest = _mm256_sub_epi32(e, half);
    vec a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vec b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}
#include "attn/tile_body.h"

const struct tui_ops tui_ops_avx2 = TILE_OPS("avx2", 96, 256);
#endif
