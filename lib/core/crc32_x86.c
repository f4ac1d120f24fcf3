/* SPDX-License-Identifier: Apache-2.0 */
/* crc32_x86.c: CRC-32 by carry-less multiplication, 4 x 128 or 4 x 512 bits at a time.
 *
 * A 128-bit lane holds a polynomial in reflected order: its low half has the higher
 * powers. To fold a lane over D bits that follow it, the low half is multiplied by
 * x^(D+32) and the high half by x^(D-32) modulo p (the instruction's product of reflected
 * words comes out as x^32 times theirs, with the constants one bit to the left). What is
 * left, 16 bytes, has the same CRC as everything before it and goes through the tables.
 * Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel, 2009.
 *
 * Each function says which instructions it may use, for the rows differ within this
 * file. */
#include "crc32_x86.h"

#if TUI_CRC32_X86

#include <immintrin.h>

#define TARGET_128 __attribute__((target("sse4.2,pclmul")))
#define TARGET_512 __attribute__((target("sse4.2,pclmul,avx512f,avx512dq,vpclmulqdq")))

/* x^(D+32) and x^(D-32) mod p, reflected, shifted left by one. */
#define FOLD_128 INT64_C(0x1751997d0), INT64_C(0x0ccaa009e)
#define FOLD_256 INT64_C(0x0f1da05aa), INT64_C(0x15a546366)
#define FOLD_384 INT64_C(0x03db1ecdc), INT64_C(0x174359406)
#define FOLD_512 INT64_C(0x154442bd4), INT64_C(0x1c6e41596)
#define FOLD_1024 INT64_C(0x1e88ef372), INT64_C(0x14a7fe880)
#define FOLD_1536 INT64_C(0x1821d8bc0), INT64_C(0x12e958ac4)
#define FOLD_2048 INT64_C(0x11542778a), INT64_C(0x1322d1430)

#define PAIR_(lo, hi) _mm_set_epi64x((hi), (lo))
#define PAIR(...) PAIR_(__VA_ARGS__)

TARGET_128 static inline __m128i load128(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* a moved over the distance of k, plus b. */
TARGET_128 static inline __m128i fold128(__m128i a, __m128i k, __m128i b)
{
    __m128i lo = _mm_clmulepi64_si128(a, k, 0x00), hi = _mm_clmulepi64_si128(a, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(lo, hi), b);
}

/* The lane x stands for everything before p; n bytes are left. */
TARGET_128 static inline uint32_t finish(__m128i x, const unsigned char *p, size_t n)
{
    const __m128i k = PAIR(FOLD_128);
    for (; n >= 16; n -= 16, p += 16)
        x = fold128(x, k, load128(p));
    unsigned char lane[16];
    _mm_storeu_si128((__m128i *)(void *)lane, x);
    /* The register starts as zero, ~0 from outside: the initial inversion is in x. */
    return tui_crc32_plain(tui_crc32_plain(~UINT32_C(0), lane, sizeof lane), p, n);
}

TARGET_128 uint32_t tui_crc32_pclmul(uint32_t crc, const unsigned char *p, size_t n)
{
    if (n < 64)
        return tui_crc32_plain(crc, p, n);
    __m128i a = _mm_xor_si128(load128(p), _mm_cvtsi32_si128((int)~crc));
    __m128i b = load128(p + 16), c = load128(p + 32), d = load128(p + 48);
    const __m128i k = PAIR(FOLD_512);
    for (p += 64, n -= 64; n >= 64; n -= 64, p += 64) {
        a = fold128(a, k, load128(p));
        b = fold128(b, k, load128(p + 16));
        c = fold128(c, k, load128(p + 32));
        d = fold128(d, k, load128(p + 48));
    }
    const __m128i one = PAIR(FOLD_128);
    return finish(fold128(fold128(fold128(a, one, b), one, c), one, d), p, n);
}

TARGET_512 static inline __m512i fold512(__m512i a, __m512i k, __m512i b)
{
    __m512i lo = _mm512_clmulepi64_epi128(a, k, 0x00);
    __m512i hi = _mm512_clmulepi64_epi128(a, k, 0x11);
    return _mm512_ternarylogic_epi64(lo, hi, b, 0x96); /* xor of three */
}

TARGET_512 static inline __m512i pair512(long long lo, long long hi)
{
    return _mm512_broadcast_i64x2(_mm_set_epi64x(hi, lo));
}

/* Four lanes into one. */
TARGET_512 static inline __m128i join(__m512i x)
{
    __m128i a = _mm512_castsi512_si128(x);
    __m128i b = _mm512_extracti64x2_epi64(x, 1), c = _mm512_extracti64x2_epi64(x, 2);
    __m128i d = _mm512_extracti64x2_epi64(x, 3);
    d = fold128(a, PAIR(FOLD_384), d);
    return fold128(c, PAIR(FOLD_128), fold128(b, PAIR(FOLD_256), d));
}

TARGET_512 uint32_t tui_crc32_vpclmul(uint32_t crc, const unsigned char *p, size_t n)
{
    if (n < 64)
        return tui_crc32_plain(crc, p, n);
    __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), start);
    if (n >= 256) {
        __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128);
        __m512i d = _mm512_loadu_si512(p + 192);
        const __m512i k = pair512(FOLD_2048);
        for (p += 256, n -= 256; n >= 256; n -= 256, p += 256) {
            a = fold512(a, k, _mm512_loadu_si512(p));
            b = fold512(b, k, _mm512_loadu_si512(p + 64));
            c = fold512(c, k, _mm512_loadu_si512(p + 128));
            d = fold512(d, k, _mm512_loadu_si512(p + 192));
        }
        d = fold512(a, pair512(FOLD_1536), d);
        a = fold512(c, pair512(FOLD_512), fold512(b, pair512(FOLD_1024), d));
    } else {
        p += 64;
        n -= 64;
    }
    const __m512i k = pair512(FOLD_512);
    for (; n >= 64; n -= 64, p += 64)
        a = fold512(a, k, _mm512_loadu_si512(p));
    return finish(join(a), p, n);
}

#endif
