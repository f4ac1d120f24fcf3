/* SPDX-License-Identifier: Apache-2.0 */
/* split_avx2.c: the two loops, 32 numbers at a time. An exponent is found in the book by
 * 16 comparisons; a book entry by a shuffle of bytes. */
#include "split.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>

size_t tui_split_avx2(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                      uint8_t *rest, struct tu_kv_escape *escape)
{
    const __m256i low7 = _mm256_set1_epi16(127), sign = _mm256_set1_epi16(128);
    const __m256i byte = _mm256_set1_epi16(255), pair = _mm256_set1_epi16(0x1001);
    __m256i entry[16], number[16];
    size_t escapes = 0, i = 0;
    for (int k = 0; k < 16; k++) {
        entry[k] = _mm256_set1_epi8((char)book[k]);
        number[k] = _mm256_set1_epi8((char)k);
    }
    for (; i + 32 <= n; i += 32) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(x + i + 16));
        /* Packing works in halves of 128 bits: put the quarters in order again. */
        __m256i e = _mm256_packus_epi16(_mm256_and_si256(_mm256_srli_epi16(a, 7), byte),
                                        _mm256_and_si256(_mm256_srli_epi16(b, 7), byte));
        __m256i r = _mm256_packus_epi16(
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 8), sign),
                            _mm256_and_si256(a, low7)),
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 8), sign),
                            _mm256_and_si256(b, low7)));
        e = _mm256_permute4x64_epi64(e, 0xd8);
        r = _mm256_permute4x64_epi64(r, 0xd8);
        __m256i c = _mm256_setzero_si256(), found = c;
        for (int k = 15; k >= 0; k--) {
            __m256i is = _mm256_cmpeq_epi8(e, entry[k]);
            c = _mm256_blendv_epi8(c, number[k], is);
            found = _mm256_or_si256(found, is);
        }
        _mm256_storeu_si256((__m256i *)(void *)(rest + i), r);
        __m256i nibbles = _mm256_maddubs_epi16(c, pair); /* c0 + 16 c1 */
        nibbles = _mm256_permute4x64_epi64(_mm256_packus_epi16(nibbles, nibbles), 0xd8);
        _mm_storeu_si128((__m128i *)(void *)(code + i / 2),
                         _mm256_castsi256_si128(nibbles));
        unsigned miss = ~(unsigned)_mm256_movemask_epi8(found);
        for (; miss; miss &= miss - 1) {
            size_t at = i + (size_t)__builtin_ctz(miss);
            escape[escapes++] = (struct tu_kv_escape){(uint16_t)at, (uint8_t)(x[at] >> 7)};
        }
    }
    size_t more = tui_split_plain(x + i, n - i, book, code + i / 2, rest + i,
                                  escape + escapes);
    for (size_t k = 0; k < more; k++)
        escape[escapes + k].at = (uint16_t)(escape[escapes + k].at + i);
    return escapes + more;
}

void tui_join_avx2(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                   const uint8_t *rest)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)book));
    const __m128i low4 = _mm_set1_epi8(15);
    const __m256i low7 = _mm256_set1_epi16(127), sign = _mm256_set1_epi16(128);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m128i p = _mm_loadu_si128((const __m128i *)(const void *)(code + i / 2));
        __m128i even = _mm_and_si128(p, low4), odd = _mm_and_si128(_mm_srli_epi16(p, 4), low4);
        __m256i c = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd),
                                     _mm_unpacklo_epi8(even, odd));
        __m256i e = _mm256_shuffle_epi8(table, c);
        __m256i r = _mm256_loadu_si256((const __m256i *)(const void *)(rest + i));
        for (int h = 0; h < 2; h++) {
            __m256i e16 = _mm256_cvtepu8_epi16(h ? _mm256_extracti128_si256(e, 1)
                                                 : _mm256_castsi256_si128(e));
            __m256i r16 = _mm256_cvtepu8_epi16(h ? _mm256_extracti128_si256(r, 1)
                                                 : _mm256_castsi256_si128(r));
            __m256i v = _mm256_or_si256(
                _mm256_or_si256(_mm256_slli_epi16(e16, 7), _mm256_and_si256(r16, low7)),
                _mm256_slli_epi16(_mm256_and_si256(r16, sign), 8));
            _mm256_storeu_si256((__m256i *)(void *)(x + i + 16 * h), v);
        }
    }
    tui_join_plain(x + i, n - i, book, code + i / 2, rest + i);
}
#endif
