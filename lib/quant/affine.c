/* SPDX-License-Identifier: Apache-2.0 */
/* affine.c: the plain loops of affine.h, and the choice of kernels. */
#include "affine.h"
#include "tensorutils/core.h"

void tui_range_plain(const float *x, size_t n, float *lo, float *hi)
{
    for (size_t i = 0; i < n; i++) {
        *lo = x[i] < *lo ? x[i] : *lo;
        *hi = x[i] > *hi ? x[i] : *hi;
    }
}

static inline float limit(float v, float lo, float hi)
{
    v = v > lo ? v : lo; /* NaN too */
    return v < hi ? v : hi;
}

void tui_affine_code_plain(const struct tui_affine_map *m, const float *x, size_t n,
                           uint8_t *code)
{
    for (size_t i = 0; i < n; i++) {
        float v = m->multiply ? x[i] * m->unit : x[i] / m->unit;
        v = limit(v + m->before, m->lo, m->hi) + 12582912.0f - 12582912.0f;
        code[i] = (uint8_t)(int)limit(v + m->after, 0, m->top);
    }
}

void tui_affine_values_plain(const uint8_t *code, size_t n, float zero, float scale,
                             float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)code[i] - zero) * scale;
}

void tui_book16_code_plain(const struct tui_book16 *b, float unit, const float *x,
                           size_t n, uint8_t *code)
{
    for (size_t i = 0; i < n; i++) {
        float v = limit(x[i] * unit, -1, 1);
        unsigned k = v >= b->above[7] ? 8 : 0;
        k += v >= b->above[k + 3] ? 4 : 0;
        k += v >= b->above[k + 1] ? 2 : 0;
        code[i] = (uint8_t)(k + (v >= b->above[k]));
    }
}

void tui_book16_values_plain(const float table[16], const uint8_t *code, size_t n,
                             float scale, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = table[code[i]] * scale;
}

/* Nibbles: eight codes at a time in a word. ---------------------------------------------
 */

/* Bytes 0, 2, 4, 6 of a word. */
static inline uint32_t even_bytes(uint64_t t)
{
    t &= UINT64_C(0x00ff00ff00ff00ff);
    t = (t | t >> 8) & UINT64_C(0x0000ffff0000ffff);
    return (uint32_t)(t | t >> 16);
}

void tui_nibbles_pack(const uint8_t *code, size_t n, bool high, unsigned char *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t t = tu_le64(code + i);
        t = high ? t << 4 | t >> 8 : t | t >> 4;
        tu_put32(out + i / 2, even_bytes(t));
    }
    for (; i < n; i += 2) {
        unsigned a = code[i], b = i + 1 < n ? code[i + 1] : 0;
        out[i / 2] = (unsigned char)(high ? a << 4 | b : a | b << 4);
    }
}

void tui_nibbles_unpack(const unsigned char *in, size_t n, bool high, uint8_t *code)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t t = tu_le32(in + i / 2);
        t = (t | t << 16) & UINT64_C(0x0000ffff0000ffff);
        t = (t | t << 8) & UINT64_C(0x00ff00ff00ff00ff);
        uint64_t low = t & UINT64_C(0x000f000f000f000f),
                 up = t >> 4 & UINT64_C(0x000f000f000f000f);
        tu_put64(code + i, high ? up | low << 8 : low | up << 8);
    }
    for (; i < n; i++) {
        bool up = (i % 2 == 1) != high;
        code[i] = up ? in[i / 2] >> 4 : in[i / 2] & 15;
    }
}

/* Kernels -------------------------------------------------------------------------------
 */

#define PLAIN(fn)                                                                        \
    {"plain", 0, (tu_kernel_fn)fn##_plain},                                              \
    {                                                                                    \
        NULL, 0, NULL                                                                    \
    }
#if defined __x86_64__ && !defined TU_NO_X86
#define LANES(fn)                                                                        \
    {"avx512", TU_CPU_GROUP_AVX512, (tu_kernel_fn)fn##_avx512},                          \
        {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)fn##_avx2}, PLAIN(fn)
#else
#define LANES(fn) PLAIN(fn)
#endif
/* The kernel of a function's name for a CPU, as a call. */
#define CALL(name, cpu, type) ((type)tu_kernel_pick(name##_kernels, cpu)->fn)

static const struct tu_kernel range_kernels[] = {LANES(tui_range)};
static const struct tu_kernel code_kernels[] = {LANES(tui_affine_code)};
static const struct tu_kernel values_kernels[] = {LANES(tui_affine_values)};
static const struct tu_kernel book_kernels[] = {LANES(tui_book16_code)};
static const struct tu_kernel table_kernels[] = {LANES(tui_book16_values)};

void tui_range(uint32_t cpu, const float *x, size_t n, float *lo, float *hi)
{
    *lo = *hi = 0;
    CALL(range, cpu, void (*)(const float *, size_t, float *, float *))(x, n, lo, hi);
}

void tui_affine_code(uint32_t cpu, const struct tui_affine_map *m, const float *x,
                     size_t n, uint8_t *code)
{
    CALL(code, cpu,
         void (*)(const struct tui_affine_map *, const float *, size_t, uint8_t *))
    (m, x, n, code);
}

void tui_affine_values(uint32_t cpu, const uint8_t *code, size_t n, float zero,
                       float scale, float *x)
{
    CALL(values, cpu, void (*)(const uint8_t *, size_t, float, float, float *))
    (code, n, zero, scale, x);
}

void tui_book16_code(uint32_t cpu, const struct tui_book16 *b, float unit, const float *x,
                     size_t n, uint8_t *code)
{
    CALL(book, cpu,
         void (*)(const struct tui_book16 *, float, const float *, size_t, uint8_t *))
    (b, unit, x, n, code);
}

void tui_book16_values(uint32_t cpu, const float table[16], const uint8_t *code, size_t n,
                       float scale, float *x)
{
    CALL(table, cpu, void (*)(const float *, const uint8_t *, size_t, float, float *))
    (table, code, n, scale, x);
}
