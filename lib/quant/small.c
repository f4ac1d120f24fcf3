/* SPDX-License-Identifier: Apache-2.0 */
/* small.c: floats of few bits under a scale: the reference and the choice of kernels.
 * Source: OCP 8-bit Floating Point Specification 1.0, Microscaling Formats
 * 1.0. */
#include "small.h"
#include <math.h>
#include <string.h>
#include "pick.h"

#define SMALL(name, dtype, bits, mantissa, bias, emin, emax, max, special)               \
    {                                                                                    \
        name, dtype, bits, mantissa, bias, emin, emax, max,                              \
            1.0f / (float)(1 << -(emin)), (float)(1 << ((mantissa) - (emin))), special   \
    }

static const struct tui_small row[] = {
    SMALL("e4m3", TU_F8_E4M3FN, 8, 3, 7, -6, 8, 448, 0x7f),
    SMALL("e5m2", TU_F8_E5M2, 8, 2, 15, -14, 15, 57344, 0x7c),
    SMALL("e3m2", TU_F6_E3M2, 6, 2, 3, -2, 4, 28, 256),
    SMALL("e2m3", TU_F6_E2M3, 6, 3, 1, 0, 2, 7.5f, 256),
    SMALL("e2m1", TU_F4_E2M1, 4, 1, 1, 0, 2, 6, 256),
};

const struct tui_small *tui_small_named(const char *name)
{
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (strcmp(row[i].name, name) == 0)
            return &row[i];
    return NULL;
}

void tui_amax_plain(const float *x, size_t n, size_t group, float *amax)
{
    for (size_t i = 0; i < n; amax++) {
        *amax = 0;
        for (size_t end = n - i < group ? n : i + group; i < end; i++)
            *amax = fabsf(x[i]) > *amax ? fabsf(x[i]) : *amax;
    }
}

void tui_small_encode_plain(const struct tui_small *f, const float *x, size_t n,
                            size_t group, const float *scale, unsigned char *code)
{
    for (size_t i = 0; i < n; scale++)
        for (size_t end = n - i < group ? n : i + group; i < end; i++)
            code[i] = tu_to_small(f->dtype, x[i] / *scale, true);
}

void tui_small_decode_plain(const struct tui_small *f, const unsigned char *code,
                            size_t n, size_t group, const float *scale, float *x)
{
    for (size_t i = 0; i < n; scale++)
        for (size_t end = n - i < group ? n : i + group; i < end; i++)
            x[i] = tu_from_small(f->dtype, code[i]) * *scale;
}

TUI_TABLE(tui_amax);
TUI_TABLE(tui_small_encode);
TUI_TABLE(tui_small_decode);

void tui_amax(uint32_t cpu, const float *x, size_t n, size_t group, float *amax)
{
    TUI_PICK(tui_amax, cpu)(x, n, group, amax);
}

void tui_small_encode(uint32_t cpu, const struct tui_small *f, const float *x, size_t n,
                      size_t group, const float *scale, unsigned char *code)
{
    TUI_PICK(tui_small_encode, cpu)(f, x, n, group, scale, code);
}

void tui_small_decode(uint32_t cpu, const struct tui_small *f, const unsigned char *code,
                      size_t n, size_t group, const float *scale, float *x)
{
    TUI_PICK(tui_small_decode, cpu)(f, code, n, group, scale, x);
}
