/* SPDX-License-Identifier: Apache-2.0 */
/* cast_avx2.c: f32 to and from bf16 and f16, eight values at a time. */
#include "cast.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>

static __m256i load8(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static __m128i load8h(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* bf16 of eight floats in the low half of each lane; cast.h has the rule. */
static __m256i round8(__m256i u)
{
    __m256i high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i near = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i size = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7f800000));
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(_mm256_srli_epi32(near, 16), quiet, nan);
}

void tui_f32_to_bf16_avx2(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i a = round8(load8(from + 4 * i)), b = round8(load8(from + 4 * i + 32));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), both);
    }
    tui_f32_to_bf16_plain(to + 2 * i, from + 4 * i, n - i);
}

void tui_bf16_to_f32_avx2(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i wide = _mm256_cvtepu16_epi32(load8h(from + 2 * i));
        _mm256_storeu_si256((__m256i *)(void *)(to + 4 * i), _mm256_slli_epi32(wide, 16));
    }
    tui_bf16_to_f32_plain(to + 4 * i, from + 2 * i, n - i);
}

void tui_f32_to_f16_avx2(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_castsi256_ps(load8(from + 4 * i));
        __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * i), half);
    }
    tui_f32_to_f16_plain(to + 2 * i, from + 4 * i, n - i);
}

void tui_f16_to_f32_avx2(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_cvtph_ps(load8h(from + 2 * i));
        _mm256_storeu_si256((__m256i *)(void *)(to + 4 * i), _mm256_castps_si256(v));
    }
    tui_f16_to_f32_plain(to + 4 * i, from + 2 * i, n - i);
}
#endif
