/* SPDX-License-Identifier: Apache-2.0 */
/* split_avx2.c: the inner loops, 32 numbers at a time. An exponent is found in the book by
 * 16 comparisons; a book entry by a shuffle of bytes. */
#include "split.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>
#include "unpack.h"

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void store(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* Bytes of 32 numbers in their order: exponents, and sign and mantissa. */
static inline void part32(const uint16_t *x, __m256i *exponent, __m256i *rest)
{
    const __m256i low7 = _mm256_set1_epi16(127), sign = _mm256_set1_epi16(128);
    const __m256i byte = _mm256_set1_epi16(255);
    __m256i a = load(x), b = load(x + 16);
    /* Packing works in halves of 128 bits: put the quarters in order again. */
    __m256i e = _mm256_packus_epi16(_mm256_and_si256(_mm256_srli_epi16(a, 7), byte),
                                    _mm256_and_si256(_mm256_srli_epi16(b, 7), byte));
    __m256i r = _mm256_packus_epi16(
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 8), sign),
                        _mm256_and_si256(a, low7)),
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 8), sign),
                        _mm256_and_si256(b, low7)));
    *exponent = _mm256_permute4x64_epi64(e, 0xd8);
    *rest = _mm256_permute4x64_epi64(r, 0xd8);
}

static inline void unite32(uint16_t *x, __m256i exponent, __m256i rest)
{
    const __m256i high = _mm256_set1_epi8((char)128);
    /* Bit 7 of each byte is the one and the lower seven the other. */
    __m256i above = _mm256_or_si256(
        _mm256_and_si256(rest, high),
        _mm256_andnot_si256(high, _mm256_srli_epi16(exponent, 1)));
    __m256i below = _mm256_or_si256(
        _mm256_and_si256(_mm256_slli_epi16(exponent, 7), high),
        _mm256_andnot_si256(high, rest));
    __m256i a = _mm256_unpacklo_epi8(below, above), b = _mm256_unpackhi_epi8(below, above);
    store(x, _mm256_permute2x128_si256(a, b, 0x20));
    store(x + 16, _mm256_permute2x128_si256(a, b, 0x31));
}

size_t tui_split_avx2(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                      uint8_t *rest, struct tui_escape *escape)
{
    const __m256i pair = _mm256_set1_epi16(0x1001), low4 = _mm256_set1_epi8(15);
    __m256i entry[16], number[16]; /* of a code, with bit 7: found */
    size_t escapes = 0, i = 0;
    for (int k = 0; k < 16; k++) {
        int first = 0;
        while (book[first] != book[k])
            first++;
        entry[k] = _mm256_set1_epi8((char)book[k]);
        number[k] = _mm256_set1_epi8((char)(first | 128));
    }
    for (; i + 32 <= n; i += 32) {
        __m256i e, r, c = _mm256_setzero_si256();
        part32(x + i, &e, &r);
        for (int k = 0; k < 16; k++)
            c = _mm256_or_si256(c, _mm256_and_si256(_mm256_cmpeq_epi8(e, entry[k]), number[k]));
        store(rest + i, r);
        unsigned miss = ~(unsigned)_mm256_movemask_epi8(c);
        __m256i nibbles = _mm256_maddubs_epi16(_mm256_and_si256(c, low4), pair); /* c0 + 16 c1 */
        nibbles = _mm256_permute4x64_epi64(_mm256_packus_epi16(nibbles, nibbles), 0xd8);
        _mm_storeu_si128((__m128i *)(void *)(code + i / 2),
                         _mm256_castsi256_si128(nibbles));
        for (; miss; miss &= miss - 1) {
            size_t at = i + (size_t)__builtin_ctz(miss);
            escape[escapes++] = (struct tui_escape){(uint16_t)at, (uint8_t)(x[at] >> 7)};
        }
    }
    size_t more = tui_split_plain(x + i, n - i, book, code + i / 2, rest + i,
                                  escape + escapes);
    return escapes + tui_split_moved(escape + escapes, more, i);
}

void tui_join_avx2(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                   const uint8_t *rest)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)book));
    const __m128i low4 = _mm_set1_epi8(15);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m128i p = _mm_loadu_si128((const __m128i *)(const void *)(code + i / 2));
        __m128i even = _mm_and_si128(p, low4), odd = _mm_and_si128(_mm_srli_epi16(p, 4), low4);
        __m256i c = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd),
                                     _mm_unpacklo_epi8(even, odd));
        unite32(x + i, _mm256_shuffle_epi8(table, c), load(rest + i));
    }
    tui_join_plain(x + i, n - i, book, code + i / 2, rest + i);
}

void tui_part_avx2(const uint16_t *x, size_t n, const uint8_t *bias, uint8_t *exponent,
                   uint8_t *rest)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i e, r;
        part32(x + i, &e, &r);
        store(exponent + i, _mm256_sub_epi8(e, load(bias + i)));
        store(rest + i, r);
    }
    tui_part_plain(x + i, n - i, bias + i, exponent + i, rest + i);
}

void tui_unite_avx2(uint16_t *x, size_t n, const uint8_t *bias, const uint8_t *exponent,
                    const uint8_t *rest)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        unite32(x + i, _mm256_add_epi8(load(exponent + i), load(bias + i)), load(rest + i));
    tui_unite_plain(x + i, n - i, bias + i, exponent + i, rest + i);
}

void tui_unpack_avx2(struct tui_bits s[4], const uint64_t *entry)
{
    unpack(s, entry); /* for BMI2's shifts */
}
#endif
