/* SPDX-License-Identifier: Apache-2.0 */
/* turn_avx2.c: two tiles of 8 × 8 at once, one in each half of the registers: those of rows
 * i and i+8, or of columns. */
#include "turn.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include <immintrin.h>

static inline __m256i both(const unsigned char *low, const unsigned char *high)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low)),
        _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

static inline __m256i load(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline void store(unsigned char *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

/* Registers i and i+4 interleaved, three times, turn the tiles. */
#define LO _mm256_unpacklo_epi16
#define HI _mm256_unpackhi_epi16
#define ROUND(to, from)                                                                  \
    __m256i to##0 = LO(from##0, from##4), to##1 = HI(from##0, from##4);                  \
    __m256i to##2 = LO(from##1, from##5), to##3 = HI(from##1, from##5);                  \
    __m256i to##4 = LO(from##2, from##6), to##5 = HI(from##2, from##6);                  \
    __m256i to##6 = LO(from##3, from##7), to##7 = HI(from##3, from##7);
#define TURN(d, a) ROUND(a##_, a) ROUND(a##__, a##_) ROUND(d, a##__)

/* 16 rows of 8 columns to 8 rows of 32 bytes. */
static inline void tall(const unsigned char *p, size_t row, unsigned char *to, size_t to_row)
{
    __m256i a0 = both(p, p + 8 * row), a1 = both(p + row, p + 9 * row);
    __m256i a2 = both(p + 2 * row, p + 10 * row), a3 = both(p + 3 * row, p + 11 * row);
    __m256i a4 = both(p + 4 * row, p + 12 * row), a5 = both(p + 5 * row, p + 13 * row);
    __m256i a6 = both(p + 6 * row, p + 14 * row), a7 = both(p + 7 * row, p + 15 * row);
    TURN(d, a)
    store(to, d0);
    store(to + to_row, d1);
    store(to + 2 * to_row, d2);
    store(to + 3 * to_row, d3);
    store(to + 4 * to_row, d4);
    store(to + 5 * to_row, d5);
    store(to + 6 * to_row, d6);
    store(to + 7 * to_row, d7);
}

/* 8 rows of 16 columns: column i in the lower half of register i, i+8 in the upper one. */
#define WIDE(d, a, p)                                                                    \
    __m256i a##0 = load(p), a##1 = load(p + row), a##2 = load(p + 2 * row);              \
    __m256i a##3 = load(p + 3 * row), a##4 = load(p + 4 * row);                          \
    __m256i a##5 = load(p + 5 * row), a##6 = load(p + 6 * row);                          \
    __m256i a##7 = load(p + 7 * row);                                                    \
    TURN(d, a)
#define PAIR(i)                                                                          \
    store(to + i * to_row, _mm256_permute2x128_si256(d##i, h##i, 0x20));                 \
    store(to + (i + 8) * to_row, _mm256_permute2x128_si256(d##i, h##i, 0x31));

/* 16 rows of 16 columns. */
static inline void square(const unsigned char *p, size_t row, unsigned char *to, size_t to_row)
{
    const unsigned char *q = p + 8 * row;
    WIDE(d, a, p)
    WIDE(h, b, q)
    PAIR(0) PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6) PAIR(7)
}

void tui_turn_avx2(const unsigned char *from, size_t from_row, unsigned char *to,
                   size_t to_row, uint64_t rows, uint64_t cols)
{
    if (rows % 16 == 0 && cols % 8 == 0 && rows <= cols)
        for (uint64_t c = 0; c < cols; c += 8)
            for (uint64_t r = 0; r < rows; r += 16)
                tall(from + r * from_row + c * 2, from_row, to + c * to_row + r * 2, to_row);
    else if (rows % 16 == 0 && cols % 16 == 0)
        for (uint64_t c = 0; c < cols; c += 16)
            for (uint64_t r = 0; r < rows; r += 16)
                square(from + r * from_row + c * 2, from_row, to + c * to_row + r * 2, to_row);
    else
        tui_turn_plain(from, from_row, to, to_row, rows, cols);
}
#endif
