/* SPDX-License-Identifier: Apache-2.0 */
/* cast_avx512.c: f32 to and from bf16 and f16, sixteen values at a time.
 *
 * VCVTNEPS2BF16 is not used: it takes subnormal values for zero. */
#include "cast.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>

static __m256i load16h(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

void tui_f32_to_bf16_avx512(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i u = _mm512_loadu_si512(from + 4 * i), high = _mm512_srli_epi32(u, 16);
        __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
        __m512i near =
            _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        __m512i size = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
        __mmask16 nan = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(0x7f800000));
        __m512i code = _mm512_mask_or_epi32(_mm512_srli_epi32(near, 16), nan, high,
                                            _mm512_set1_epi32(0x40));
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), _mm512_cvtepi32_epi16(code));
    }
    tui_f32_to_bf16_plain(to + 2 * i, from + 4 * i, n - i);
}

void tui_bf16_to_f32_avx512(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i wide = _mm512_cvtepu16_epi32(load16h(from + 2 * i));
        _mm512_storeu_si512(to + 4 * i, _mm512_slli_epi32(wide, 16));
    }
    tui_bf16_to_f32_plain(to + 4 * i, from + 2 * i, n - i);
}

void tui_f32_to_f16_avx512(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_castsi512_ps(_mm512_loadu_si512(from + 4 * i));
        __m256i half = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), half);
    }
    tui_f32_to_f16_plain(to + 2 * i, from + 4 * i, n - i);
}

void tui_f16_to_f32_avx512(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_cvtph_ps(load16h(from + 2 * i));
        _mm512_storeu_si512(to + 4 * i, _mm512_castps_si512(v));
    }
    tui_f16_to_f32_plain(to + 4 * i, from + 2 * i, n - i);
}
#endif
