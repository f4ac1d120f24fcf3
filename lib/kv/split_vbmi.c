/* SPDX-License-Identifier: Apache-2.0 */
/* split_vbmi.c: the inner loops, 64 numbers at a time. Tables of 256 bytes are four
 * registers, looked up by two permutations and a blend. */
#include "split.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>
#include <string.h>

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

struct table {
    __m512i q[4];
};

static inline struct table table(const uint8_t t[256])
{
    return (struct table){{load(t), load(t + 64), load(t + 128), load(t + 192)}};
}

static inline __m512i look(const struct table *t, __m512i at)
{
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(at),
                                  _mm512_permutex2var_epi8(t->q[0], at, t->q[1]),
                                  _mm512_permutex2var_epi8(t->q[2], at, t->q[3]));
}

/* 0, step, 2 step, …: bytes of a pair of registers. */
static inline __m512i every_second(int from)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++)
        at[i] = (uint8_t)(2 * i + from);
    return load(at);
}

/* Bytes of two registers in turn, of their lower (0) or upper (32) halves. */
static inline __m512i in_turn(int from)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++)
        at[i] = (uint8_t)(from + i / 2 + i % 2 * 64);
    return load(at);
}

/* Bit 7 of each byte from a, the others from b. */
static inline __m512i sign_of(__m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)128), a, b, 0xca);
}

static inline void part64(const uint16_t *x, __m512i even, __m512i odd, __m512i *exponent,
                          __m512i *rest)
{
    __m512i a = load(x), b = load(x + 32);
    __m512i low = _mm512_permutex2var_epi8(a, even, b);
    __m512i high = _mm512_permutex2var_epi8(a, odd, b);
    __m512i twice = _mm512_add_epi8(high, high);
    *exponent = _mm512_mask_sub_epi8(twice, _mm512_movepi8_mask(low), twice,
                                     _mm512_set1_epi8(-1));
    *rest = sign_of(high, low);
}

static inline void unite64(uint16_t *x, __m512i lower, __m512i upper, __m512i exponent,
                           __m512i rest)
{
    __m512i high = sign_of(rest, _mm512_srli_epi16(exponent, 1));
    __m512i low = sign_of(_mm512_slli_epi16(exponent, 7), rest);
    _mm512_storeu_si512(x, _mm512_permutex2var_epi8(low, lower, high));
    _mm512_storeu_si512(x + 32, _mm512_permutex2var_epi8(low, upper, high));
}

size_t tui_split_vbmi(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                      uint8_t *rest, struct tui_escape *escape)
{
    const __m512i even = every_second(0), odd = every_second(1);
    const __m512i pair = _mm512_set1_epi16(0x1001), low4 = _mm512_set1_epi8(15);
    uint8_t number[256];
    size_t escapes = 0, i = 0;
    memset(number, 128, sizeof number);
    for (unsigned k = 16; k-- > 0;)
        number[book[k]] = (uint8_t)k;
    const struct table t = table(number);
    for (; i + 64 <= n; i += 64) {
        __m512i e, r;
        part64(x + i, even, odd, &e, &r);
        _mm512_storeu_si512(rest + i, r);
        __m512i c = look(&t, e);
        __mmask64 miss = _mm512_movepi8_mask(c);
        __m512i nibbles = _mm512_maddubs_epi16(_mm512_and_si512(c, low4), pair); /* c0 + 16 c1 */
        _mm256_storeu_si256((__m256i *)(void *)(code + i / 2), _mm512_cvtepi16_epi8(nibbles));
        for (; miss; miss &= miss - 1) {
            size_t at = i + (size_t)__builtin_ctzll(miss);
            escape[escapes++] = (struct tui_escape){(uint16_t)at, (uint8_t)(x[at] >> 7)};
        }
    }
    size_t more = tui_split_plain(x + i, n - i, book, code + i / 2, rest + i,
                                  escape + escapes);
    return escapes + tui_split_moved(escape + escapes, more, i);
}

void tui_join_vbmi(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                   const uint8_t *rest)
{
    const __m512i entry = _mm512_broadcast_i32x4(
        _mm_loadu_si128((const __m128i *)(const void *)book));
    const __m512i lower = in_turn(0), upper = in_turn(32), low4 = _mm512_set1_epi8(15);
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i p = _mm512_cvtepu8_epi16(
            _mm256_loadu_si256((const __m256i *)(const void *)(code + i / 2)));
        __m512i c = _mm512_and_si512(_mm512_or_si512(p, _mm512_slli_epi16(p, 4)), low4);
        unite64(x + i, lower, upper, _mm512_shuffle_epi8(entry, c), load(rest + i));
    }
    tui_join_plain(x + i, n - i, book, code + i / 2, rest + i);
}

void tui_part_vbmi(const uint16_t *x, size_t n, const uint8_t *bias, uint8_t *exponent,
                   uint8_t *rest)
{
    const __m512i even = every_second(0), odd = every_second(1);
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i e, r;
        part64(x + i, even, odd, &e, &r);
        _mm512_storeu_si512(exponent + i, _mm512_sub_epi8(e, load(bias + i)));
        _mm512_storeu_si512(rest + i, r);
    }
    tui_part_plain(x + i, n - i, bias + i, exponent + i, rest + i);
}

void tui_unite_vbmi(uint16_t *x, size_t n, const uint8_t *bias, const uint8_t *exponent,
                    const uint8_t *rest)
{
    const __m512i lower = in_turn(0), upper = in_turn(32);
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        unite64(x + i, lower, upper, _mm512_add_epi8(load(exponent + i), load(bias + i)),
                load(rest + i));
    tui_unite_plain(x + i, n - i, bias + i, exponent + i, rest + i);
}

/* Bits that wait for a whole byte. */
struct waiting {
    uint64_t bits;
    unsigned have;
    uint8_t *to;
};

/* At most 56 bits more. */
static inline void append(struct waiting *w, uint64_t bits, uint64_t n)
{
    w->bits |= bits << w->have;
    w->have += (unsigned)n;
    memcpy(w->to, &w->bits, 8);
    w->to += w->have / 8;
    w->bits >>= w->have & ~7u;
    w->have &= 7;
}

/* 32 codes (lower 11 bits) with their lengths (upper 4), joined in twos, fours, and eights
 * where those have room. */
static inline void pack32(struct waiting *w, __m512i code)
{
    const __m512i low11 = _mm512_set1_epi32(0x7ff);
    uint64_t bits[8], n[8];
    __m512i first = _mm512_and_si512(_mm512_srli_epi32(code, 12), _mm512_set1_epi32(15));
    __m512i two = _mm512_or_si512(
        _mm512_and_si512(code, low11),
        _mm512_sllv_epi32(_mm512_and_si512(_mm512_srli_epi32(code, 16), low11), first));
    __m512i len = _mm512_add_epi32(first, _mm512_srli_epi32(code, 28));
    first = _mm512_and_si512(len, _mm512_set1_epi64(63));
    __m512i four = _mm512_or_si512(
        _mm512_and_si512(two, _mm512_set1_epi64(0xffffffff)),
        _mm512_sllv_epi64(_mm512_srli_epi64(two, 32), first));
    len = _mm512_add_epi64(first, _mm512_srli_epi64(len, 32));
    __m512i eight = _mm512_or_si512(
        four, _mm512_sllv_epi64(_mm512_unpackhi_epi64(four, four), len));
    __m512i sum = _mm512_add_epi64(len, _mm512_unpackhi_epi64(len, len));
    if (!(_mm512_cmpgt_epu64_mask(sum, _mm512_set1_epi64(56)) & 0x55)) {
        _mm512_storeu_si512(bits, eight);
        _mm512_storeu_si512(n, sum);
        for (int k = 0; k < 8; k += 2)
            append(w, bits[k], n[k]);
    } else {
        _mm512_storeu_si512(bits, four);
        _mm512_storeu_si512(n, len);
        for (int k = 0; k < 8; k++)
            append(w, bits[k], n[k]);
    }
}

size_t tui_pack_vbmi(const uint8_t *x, size_t n, const uint32_t word[256], uint8_t *out)
{
    const __m512i lower = in_turn(0), upper = in_turn(32);
    struct waiting w = {0, 0, out};
    uint8_t low[256], high[256];
    size_t i = 0;
    for (int v = 0; v < 256; v++) {
        low[v] = (uint8_t)(word[v] >> 8);
        high[v] = (uint8_t)(word[v] >> 16 | (word[v] & 15) << 4);
    }
    const struct table a = table(low), b = table(high);
    for (; i + 64 <= n; i += 64) {
        __m512i at = load(x + i), l = look(&a, at), h = look(&b, at);
        pack32(&w, _mm512_permutex2var_epi8(l, lower, h));
        pack32(&w, _mm512_permutex2var_epi8(l, upper, h));
    }
    for (; i < n; i++)
        append(&w, word[x[i]] >> 8, word[x[i]] & 15);
    memcpy(w.to, &w.bits, 8);
    return (size_t)(w.to - out) + (w.have + 7) / 8;
}
#endif
