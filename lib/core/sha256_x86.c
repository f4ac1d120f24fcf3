/* SPDX-License-Identifier: Apache-2.0 */
/* sha256_x86.c: two SHA-256 streams side by side with the SHA instructions.
 *
 * One stream waits for itself: the 32 sha256rnds2 of a block are a chain, and each takes
 * longer to answer than to start. A second, independent stream fills the gaps, so two
 * streams cost little more than one. The rounds and the message schedule are those of
 * FIPS 180-4, section 6.2; how a state lies in two registers (ABEF, CDGH) is the
 * instructions' (Intel SDM vol. 2, SHA256RNDS2). */
#include "sha256_x86.h"

#if TUI_SHA256_X86

#include <immintrin.h>

#define TARGET __attribute__((target("sha,sse4.2")))

const uint32_t tui_sha256_constant[64] __attribute__((aligned(64))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
};

/* One stream: its state, and the 16 words of the schedule at hand. */
struct lane {
    __m128i abef, cdgh, w0, w1, w2, w3;
};

TARGET static inline __m128i load(const void *p)
{
    return _mm_loadu_si128(p);
}

TARGET static inline void state_in(struct lane *l, const uint32_t s[8])
{
    __m128i badc = _mm_shuffle_epi32(load(s), 0xB1);
    __m128i hgfe = _mm_shuffle_epi32(load(s + 4), 0x1B);
    l->abef = _mm_alignr_epi8(badc, hgfe, 8);
    l->cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
}

TARGET static inline void state_out(const struct lane *l, uint32_t s[8])
{
    __m128i feba = _mm_shuffle_epi32(l->abef, 0x1B);
    __m128i dchg = _mm_shuffle_epi32(l->cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)s, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(s + 4), _mm_alignr_epi8(dchg, feba, 8));
}

TARGET static inline void words_in(struct lane *l, const unsigned char *p)
{
    const __m128i turn = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    l->w0 = _mm_shuffle_epi8(load(p), turn);
    l->w1 = _mm_shuffle_epi8(load(p + 16), turn);
    l->w2 = _mm_shuffle_epi8(load(p + 32), turn);
    l->w3 = _mm_shuffle_epi8(load(p + 48), turn);
}

/* Four rounds with the words w. */
TARGET static inline void rounds(struct lane *l, __m128i w, const uint32_t *k)
{
    __m128i m = _mm_add_epi32(w, load(k));
    l->cdgh = _mm_sha256rnds2_epu32(l->cdgh, l->abef, m);
    l->abef = _mm_sha256rnds2_epu32(l->abef, l->cdgh, _mm_shuffle_epi32(m, 0x0E));
}

/* The four words that follow the sixteen a, b, c, d. */
TARGET static inline __m128i next(__m128i a, __m128i b, __m128i c, __m128i d)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4));
    return _mm_sha256msg2_epu32(sum, d);
}

/* Four rounds of both streams, and the words that replace the ones used. */
#define STEP(a, b, c, d, k)                                                              \
    do {                                                                                 \
        rounds(&x, x.a, (k));                                                            \
        rounds(&y, y.a, (k));                                                            \
        x.a = next(x.a, x.b, x.c, x.d);                                                  \
        y.a = next(y.a, y.b, y.c, y.d);                                                  \
    } while (0)
#define STEPS(k)                                                                         \
    do {                                                                                 \
        STEP(w0, w1, w2, w3, (k));                                                       \
        STEP(w1, w2, w3, w0, (k) + 4);                                                   \
        STEP(w2, w3, w0, w1, (k) + 8);                                                   \
        STEP(w3, w0, w1, w2, (k) + 12);                                                  \
    } while (0)
#define LAST(w, k)                                                                       \
    do {                                                                                 \
        rounds(&x, x.w, (k));                                                            \
        rounds(&y, y.w, (k));                                                            \
    } while (0)

TARGET void tui_sha256_pair(uint32_t a[8], const unsigned char *pa, uint32_t b[8],
                            const unsigned char *pb, size_t n)
{
    struct lane x, y;
    state_in(&x, a);
    state_in(&y, b);
    for (size_t i = 0; i < n; i++) {
        __m128i xa = x.abef, xc = x.cdgh, ya = y.abef, yc = y.cdgh;
        words_in(&x, pa + 64 * i);
        words_in(&y, pb + 64 * i);
        STEPS(tui_sha256_constant);
        STEPS(tui_sha256_constant + 16);
        STEPS(tui_sha256_constant + 32);
        LAST(w0, tui_sha256_constant + 48);
        LAST(w1, tui_sha256_constant + 52);
        LAST(w2, tui_sha256_constant + 56);
        LAST(w3, tui_sha256_constant + 60);
        x.abef = _mm_add_epi32(x.abef, xa);
        x.cdgh = _mm_add_epi32(x.cdgh, xc);
        y.abef = _mm_add_epi32(y.abef, ya);
        y.cdgh = _mm_add_epi32(y.cdgh, yc);
    }
    state_out(&x, a);
    state_out(&y, b);
}

#endif
