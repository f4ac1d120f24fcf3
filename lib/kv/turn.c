/* SPDX-License-Identifier: Apache-2.0 */
/* turn.c: the reference of turning 16-bit elements, and the table. */
#include <string.h>
#include "turn.h"

/* Turn 8 × 8 elements of 16 bits: the vectors are those of the compiler, so that every
 * machine has them. */
typedef uint16_t v8 __attribute__((vector_size(16)));

static inline v8 load8(const unsigned char *p)
{
    v8 v;
    memcpy(&v, p, 16);
    return v;
}

static inline void turn8(const unsigned char *from, size_t from_row, unsigned char *to,
                         size_t to_row)
{
#define LO(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HI(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
/* Rows i and i+4 interleaved, three times. */
#define ROUND(to, from)                                                                  \
    v8 to##0 = LO(from##0, from##4), to##1 = HI(from##0, from##4);                       \
    v8 to##2 = LO(from##1, from##5), to##3 = HI(from##1, from##5);                       \
    v8 to##4 = LO(from##2, from##6), to##5 = HI(from##2, from##6);                       \
    v8 to##6 = LO(from##3, from##7), to##7 = HI(from##3, from##7);
    v8 a0 = load8(from), a1 = load8(from + from_row), a2 = load8(from + 2 * from_row);
    v8 a3 = load8(from + 3 * from_row), a4 = load8(from + 4 * from_row);
    v8 a5 = load8(from + 5 * from_row), a6 = load8(from + 6 * from_row);
    v8 a7 = load8(from + 7 * from_row);
    ROUND(b, a)
    ROUND(c, b)
    ROUND(d, c)
    memcpy(to, &d0, 16);
    memcpy(to + to_row, &d1, 16);
    memcpy(to + 2 * to_row, &d2, 16);
    memcpy(to + 3 * to_row, &d3, 16);
    memcpy(to + 4 * to_row, &d4, 16);
    memcpy(to + 5 * to_row, &d5, 16);
    memcpy(to + 6 * to_row, &d6, 16);
    memcpy(to + 7 * to_row, &d7, 16);
#undef LO
#undef HI
#undef ROUND
}

static void each(const unsigned char *from, size_t from_row, unsigned char *to, size_t to_row,
                 uint64_t rows, uint64_t cols)
{
    for (uint64_t c = 0; c < cols; c++)
        for (uint64_t r = 0; r < rows; r++)
            memcpy(to + c * to_row + r * 2, from + r * from_row + c * 2, 2);
}

/* Each row of the result is written to its end before the next. */
void tui_turn_plain(const unsigned char *from, size_t from_row, unsigned char *to,
                    size_t to_row, uint64_t rows, uint64_t cols)
{
    uint64_t r8 = rows & ~(uint64_t)7, c8 = cols & ~(uint64_t)7;
    for (uint64_t c = 0; c < c8; c += 8)
        for (uint64_t r = 0; r < r8; r += 8)
            turn8(from + r * from_row + c * 2, from_row, to + c * to_row + r * 2, to_row);
    each(from + r8 * from_row, from_row, to + r8 * 2, to_row, rows - r8, c8);
    each(from + c8 * 2, from_row, to + c8 * to_row, to_row, rows, cols - c8);
}

const struct tu_kernel tui_turn_kernels[] = {
#if defined __x86_64__ && !defined TU_NO_X86
    {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)tui_turn_avx2},
#endif
    {"plain", 0, (tu_kernel_fn)tui_turn_plain},
    {NULL, 0, NULL},
};
