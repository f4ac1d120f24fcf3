/* SPDX-License-Identifier: Apache-2.0 */
/* sha256_wide.c: sixteen SHA-256 streams in the lanes of AVX-512 registers.
 *
 * A register holds one word of all sixteen: the eight of the states and the sixteen of
 * the message schedule fill 24 of the 32, so a round is plain vector arithmetic without a
 * chain to wait for. Rotation is one instruction and each of the functions of three words
 * is another (vpternlogd). About 26 instructions a round for 1,024 bytes: twice what the
 * SHA instructions do with two streams. Rounds and schedule: FIPS 180-4, section 6.2. */
#include "sha256_x86.h"

#if TUI_SHA256_X86

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw")))
#define LANES TUI_SHA256_LANES

/* Truth tables of vpternlogd for its operands a, b, c. */
#define XOR3 0x96
#define CHOOSE 0xCA
#define MAJORITY 0xE8

TARGET static inline __m512i add(__m512i a, __m512i b)
{
    return _mm512_add_epi32(a, b);
}

TARGET static inline __m512i xor3(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi32(a, b, c, XOR3);
}

/* Sixteen rows of sixteen words become their columns: pairs of words, then of pairs, then
 * of quarters of the registers. */
TARGET static inline void transpose(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 4) {
        __m512i ab_lo = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        __m512i ab_hi = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        __m512i cd_lo = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
        __m512i cd_hi = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm512_unpacklo_epi64(ab_lo, cd_lo);
        t[i + 1] = _mm512_unpackhi_epi64(ab_lo, cd_lo);
        t[i + 2] = _mm512_unpacklo_epi64(ab_hi, cd_hi);
        t[i + 3] = _mm512_unpackhi_epi64(ab_hi, cd_hi);
    }
    for (int i = 0; i < 4; i++) {
        __m512i even_lo = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        __m512i odd_lo = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xDD);
        __m512i even_hi = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        __m512i odd_hi = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xDD);
        r[i] = _mm512_shuffle_i32x4(even_lo, even_hi, 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(odd_lo, odd_hi, 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(even_lo, even_hi, 0xDD);
        r[i + 12] = _mm512_shuffle_i32x4(odd_lo, odd_hi, 0xDD);
    }
}

/* A block of each lane at byte `at`, as big-endian words by columns. */
TARGET static inline void words_in(__m512i w[16], const unsigned char *const p[LANES],
                                   size_t at)
{
    const __m512i turn = _mm512_broadcast_i32x4(
        _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
    for (int i = 0; i < LANES; i++)
        w[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(p[i] + at), turn);
    transpose(w);
}

/* The word sixteen further on, from those 0, 1, 9 and 14 ahead of it. */
TARGET static inline __m512i next(__m512i w0, __m512i w1, __m512i w9, __m512i w14)
{
    __m512i s0 = xor3(_mm512_ror_epi32(w1, 7), _mm512_ror_epi32(w1, 18),
                      _mm512_srli_epi32(w1, 3));
    __m512i s1 = xor3(_mm512_ror_epi32(w14, 17), _mm512_ror_epi32(w14, 19),
                      _mm512_srli_epi32(w14, 10));
    return add(add(w0, s0), add(w9, s1));
}

/* One round; the caller names the states in turned order instead of moving them. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                 \
    do {                                                                                 \
        __m512i s1 = xor3(_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11),               \
                          _mm512_ror_epi32(e, 25));                                      \
        __m512i s0 = xor3(_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13),               \
                          _mm512_ror_epi32(a, 22));                                      \
        __m512i kw = add(w[i], _mm512_set1_epi32((int)k[i]));                            \
        __m512i ch = _mm512_ternarylogic_epi32(e, f, g, CHOOSE);                         \
        __m512i t1 = add(add(h, kw), add(s1, ch));                                       \
        d = add(d, t1);                                                                  \
        h = add(t1, add(s0, _mm512_ternarylogic_epi32(a, b, c, MAJORITY)));              \
    } while (0)
#define ROUNDS(i)                                                                        \
    do {                                                                                 \
        ROUND(a, b, c, d, e, f, g, h, (i));                                              \
        ROUND(h, a, b, c, d, e, f, g, (i) + 1);                                          \
        ROUND(g, h, a, b, c, d, e, f, (i) + 2);                                          \
        ROUND(f, g, h, a, b, c, d, e, (i) + 3);                                          \
        ROUND(e, f, g, h, a, b, c, d, (i) + 4);                                          \
        ROUND(d, e, f, g, h, a, b, c, (i) + 5);                                          \
        ROUND(c, d, e, f, g, h, a, b, (i) + 6);                                          \
        ROUND(b, c, d, e, f, g, h, a, (i) + 7);                                          \
    } while (0)

/* The states, one word of all lanes a register, over a block each. */
TARGET static inline void block(__m512i s[8], __m512i w[16])
{
    __m512i a = s[0], b = s[1], c = s[2], d = s[3];
    __m512i e = s[4], f = s[5], g = s[6], h = s[7];
    const uint32_t *k = tui_sha256_constant;
    for (int sixteen = 0; sixteen < 4; sixteen++, k += 16) {
        ROUNDS(0);
        ROUNDS(8);
        if (sixteen < 3)
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                w[i] = next(w[i], w[(i + 1) & 15], w[(i + 9) & 15], w[(i + 14) & 15]);
    }
    s[0] = add(s[0], a);
    s[1] = add(s[1], b);
    s[2] = add(s[2], c);
    s[3] = add(s[3], d);
    s[4] = add(s[4], e);
    s[5] = add(s[5], f);
    s[6] = add(s[6], g);
    s[7] = add(s[7], h);
}

TARGET void tui_sha256_wide(uint32_t *const state[LANES], const unsigned char *const p[LANES],
                            size_t n)
{
    uint32_t word[8][LANES];
    __m512i s[8], w[16];
    for (int i = 0; i < 8; i++) {
        for (int lane = 0; lane < LANES; lane++)
            word[i][lane] = state[lane][i];
        s[i] = _mm512_loadu_si512(word[i]);
    }
    for (size_t i = 0; i < n; i++) {
        words_in(w, p, 64 * i);
        block(s, w);
    }
    for (int i = 0; i < 8; i++) {
        _mm512_storeu_si512(word[i], s[i]);
        for (int lane = 0; lane < LANES; lane++)
            state[lane][i] = word[i][lane];
    }
}

#endif
