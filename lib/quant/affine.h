/* SPDX-License-Identifier: Apache-2.0 */
/* affine.h: the inner loops of integer codes and of books of 16 values, plain and on
 * lanes: the same bytes from each. */
#ifndef TENSORUTILS_QUANT_AFFINE_H
#define TENSORUTILS_QUANT_AFFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* code = limit(round(limit(x/unit + before)) + after), round to nearest, half to even;
 * the first limit is lo … hi (NaN: lo), the second 0 … top. All but the unit are whole
 * numbers within ±2^14, the last at most 255. */
struct tui_affine_map {
    float unit;
    bool multiply; /* x·unit */
    float before, lo, hi, after, top;
};

/* Sorted values, their codes and, moved up to the next float, the middles between them,
 * so that a middle itself counts as the value below it. */
struct tui_book16 {
    float value[16], above[15];
    uint8_t code[16];
};

/* lo[k] ≤ 0 ≤ hi[k]: the range of 0 and the k-th `group` values, the last of which may be
 * short. NaN is left out. */
void tui_range(uint32_t cpu, const float *x, size_t n, size_t group, float *lo,
               float *hi);
/* The k-th `group` values by m[k]. */
void tui_affine_code(uint32_t cpu, const struct tui_affine_map *m, const float *x,
                     size_t n, size_t group, uint8_t *code);
/* x = (code - zero)·scale. */
void tui_affine_values(uint32_t cpu, const uint8_t *code, size_t n, float zero,
                       float scale, float *x);
/* Code of the value nearest to x·unit[k] in the k-th `group` (NaN: of the first). */
void tui_book16_code(uint32_t cpu, const struct tui_book16 *b, const float *unit,
                     const float *x, size_t n, size_t group, uint8_t *code);
/* x = table[code]·scale; codes are below 16. */
void tui_book16_values(uint32_t cpu, const float table[16], const uint8_t *code, size_t n,
                       float scale, float *x);

/* AWQ: a word holds a column of eight outputs, whose codes of four bits lie in the order
 * 0 2 4 6 1 3 5 7. Rows of codes are `stride` bytes apart. */
static inline unsigned tui_awq_shift(unsigned output)
{
    return 4 * (output / 2 + output % 2 * 4);
}
void tui_awq_join(uint32_t cpu, const uint8_t *code, size_t stride, size_t n,
                  uint32_t *word);
void tui_awq_split(uint32_t cpu, const uint32_t *word, size_t n, size_t stride,
                   uint8_t *code);

/* Kernels. */
#define TUI_AFFINE_KERNELS(isa)                                                          \
    void tui_range_##isa(const float *x, size_t n, size_t group, float *lo, float *hi);  \
    void tui_affine_code_##isa(const struct tui_affine_map *m, const float *x, size_t n, \
                               size_t group, uint8_t *code);                             \
    void tui_affine_values_##isa(const uint8_t *code, size_t n, float zero, float scale, \
                                 float *x);                                              \
    void tui_book16_code_##isa(const struct tui_book16 *b, const float *unit,            \
                               const float *x, size_t n, size_t group, uint8_t *code);   \
    void tui_book16_values_##isa(const float table[16], const uint8_t *code, size_t n,   \
                                 float scale, float *x);                                 \
    void tui_awq_join_##isa(const uint8_t *code, size_t stride, size_t n,                \
                            uint32_t *word);                                             \
    void tui_awq_split_##isa(const uint32_t *word, size_t n, size_t stride,              \
                             uint8_t *code);
TUI_AFFINE_KERNELS(plain)
#if defined __x86_64__ && !defined TU_NO_X86
TUI_AFFINE_KERNELS(avx2)
TUI_AFFINE_KERNELS(avx512)
#endif

#endif
