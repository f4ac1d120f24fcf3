/* SPDX-License-Identifier: Apache-2.0 */
/* affine.c: the plain loops of affine.h, and the choice of kernels. */
#include "affine.h"
#include "pick.h"

void tui_range_plain(const float *x, size_t n, size_t group, float *lo, float *hi)
{
    for (size_t i = 0; i < n; lo++, hi++) {
        *lo = *hi = 0;
        for (size_t end = n - i < group ? n : i + group; i < end; i++) {
            *lo = x[i] < *lo ? x[i] : *lo;
            *hi = x[i] > *hi ? x[i] : *hi;
        }
    }
}

static inline float limit(float v, float lo, float hi)
{
    v = v > lo ? v : lo; /* NaN too */
    return v < hi ? v : hi;
}

static void code_group(const struct tui_affine_map *m, const float *x, size_t n,
                       uint8_t *code)
{
    for (size_t i = 0; i < n; i++) {
        float v = m->multiply ? x[i] * m->unit : x[i] / m->unit;
        v = limit(v + m->before, m->lo, m->hi) + 12582912.0f - 12582912.0f;
        code[i] = (uint8_t)(int)limit(v + m->after, 0, m->top);
    }
}

void tui_affine_code_plain(const struct tui_affine_map *m, const float *x, size_t n,
                           size_t group, uint8_t *code)
{
    for (size_t i = 0; i < n; i += group, m++)
        code_group(m, x + i, n - i < group ? n - i : group, code + i);
}

void tui_affine_values_plain(const uint8_t *code, size_t n, float zero, float scale,
                             float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)code[i] - zero) * scale;
}

void tui_book16_code_plain(const struct tui_book16 *b, const float *unit, const float *x,
                           size_t n, size_t group, uint8_t *code)
{
    for (size_t i = 0; i < n; unit++)
        for (size_t end = n - i < group ? n : i + group; i < end; i++) {
            float v = x[i] * *unit;
            unsigned k = v >= b->above[7] ? 8 : 0;
            k += v >= b->above[k + 3] ? 4 : 0;
            k += v >= b->above[k + 1] ? 2 : 0;
            code[i] = b->code[k + (v >= b->above[k])];
        }
}

void tui_book16_values_plain(const float table[16], const uint8_t *code, size_t n,
                             float scale, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = table[code[i]] * scale;
}

/* Eight outputs of a column in a word, in AWQ's order. */
void tui_awq_join_plain(const uint8_t *code, size_t stride, size_t n, uint32_t *word)
{
    for (size_t j = 0; j < n; j++) {
        word[j] = 0;
        for (unsigned k = 0; k < 8; k++)
            word[j] |= (uint32_t)code[k * stride + j] << tui_awq_shift(k);
    }
}

void tui_awq_split_plain(const uint32_t *word, size_t n, size_t stride, uint8_t *code)
{
    for (unsigned k = 0; k < 8; k++)
        for (size_t j = 0; j < n; j++)
            code[k * stride + j] = word[j] >> tui_awq_shift(k) & 15;
}

/* Kernels -------------------------------------------------------------------------------
 */

TUI_TABLE(tui_range);
TUI_TABLE(tui_affine_code);
TUI_TABLE(tui_affine_values);
TUI_TABLE(tui_book16_code);
TUI_TABLE(tui_book16_values);
TUI_TABLE(tui_awq_join);
TUI_TABLE(tui_awq_split);

void tui_range(uint32_t cpu, const float *x, size_t n, size_t group, float *lo, float *hi)
{
    TUI_PICK(tui_range, cpu)(x, n, group, lo, hi);
}

void tui_affine_code(uint32_t cpu, const struct tui_affine_map *m, const float *x,
                     size_t n, size_t group, uint8_t *code)
{
    TUI_PICK(tui_affine_code, cpu)(m, x, n, group, code);
}

void tui_affine_values(uint32_t cpu, const uint8_t *code, size_t n, float zero,
                       float scale, float *x)
{
    TUI_PICK(tui_affine_values, cpu)(code, n, zero, scale, x);
}

void tui_book16_code(uint32_t cpu, const struct tui_book16 *b, const float *unit,
                     const float *x, size_t n, size_t group, uint8_t *code)
{
    TUI_PICK(tui_book16_code, cpu)(b, unit, x, n, group, code);
}

void tui_book16_values(uint32_t cpu, const float table[16], const uint8_t *code, size_t n,
                       float scale, float *x)
{
    TUI_PICK(tui_book16_values, cpu)(table, code, n, scale, x);
}

void tui_awq_join(uint32_t cpu, const uint8_t *code, size_t stride, size_t n,
                  uint32_t *word)
{
    TUI_PICK(tui_awq_join, cpu)(code, stride, n, word);
}

void tui_awq_split(uint32_t cpu, const uint32_t *word, size_t n, size_t stride,
                   uint8_t *code)
{
    TUI_PICK(tui_awq_split, cpu)(word, n, stride, code);
}
