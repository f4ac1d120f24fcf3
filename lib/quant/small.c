/* SPDX-License-Identifier: Apache-2.0 */
/* small.c: floats of few bits under a scale: the reference, the choice of kernels, the
 * packing. Source: OCP 8-bit Floating Point Specification 1.0, Microscaling Formats
 * 1.0. */
#include "small.h"
#include <math.h>
#include <string.h>

#define SMALL(name, dtype, bits, mantissa, bias, emin, emax, max, special)               \
    {                                                                                    \
        name, dtype, bits, mantissa, bias, emin, emax, max,                              \
            1.0f / (float)(1 << -(emin)), 1.5f * (float)(1 << (23 - (mantissa))),        \
            (float)(1 << ((mantissa) - (emin))), special                                 \
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

void tui_small_encode_plain(const struct tui_small *f, const float *x, size_t n,
                            float scale, unsigned char *code)
{
    for (size_t i = 0; i < n; i++)
        code[i] = tu_to_small(f->dtype, x[i] / scale, true);
}

void tui_small_decode_plain(const struct tui_small *f, const unsigned char *code,
                            size_t n, float scale, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = tu_from_small(f->dtype, code[i]) * scale;
}

#define END                                                                              \
    {                                                                                    \
        NULL, 0, NULL                                                                    \
    }
#define PLAIN(fn) {"plain", 0, (tu_kernel_fn)fn##_plain}, END
#if defined __x86_64__ && !defined TU_NO_X86
#define LANES(fn)                                                                        \
    {"avx512", TU_CPU_GROUP_AVX512, (tu_kernel_fn)fn##_avx512},                          \
        {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)fn##_avx2}, PLAIN(fn)
#else
#define LANES(fn) PLAIN(fn)
#endif

static const struct tu_kernel encode_kernels[] = {LANES(tui_small_encode)};
static const struct tu_kernel decode_kernels[] = {LANES(tui_small_decode)};

tui_small_encode_fn tui_small_encoder(uint32_t cpu)
{
    return (tui_small_encode_fn)tu_kernel_pick(encode_kernels, cpu)->fn;
}

tui_small_decode_fn tui_small_decoder(uint32_t cpu)
{
    return (tui_small_decode_fn)tu_kernel_pick(decode_kernels, cpu)->fn;
}

void tui_small_encode(uint32_t cpu, const struct tui_small *f, const float *x, size_t n,
                      float scale, unsigned char *code)
{
    tui_small_encoder(cpu)(f, x, n, scale, code);
}

void tui_small_decode(uint32_t cpu, const struct tui_small *f, const unsigned char *code,
                      size_t n, float scale, float *x)
{
    tui_small_decoder(cpu)(f, code, n, scale, x);
}

float tui_amax(const float *x, size_t n)
{
    enum { SIDE = 8 }; /* by side, for the compiler to do at once */
    float m[SIDE] = {0};
    size_t i = 0;
    for (; i + SIDE <= n; i += SIDE)
        for (size_t k = 0; k < SIDE; k++)
            m[k] = fabsf(x[i + k]) > m[k] ? fabsf(x[i + k]) : m[k];
    for (; i < n; i++)
        m[0] = fabsf(x[i]) > m[0] ? fabsf(x[i]) : m[0];
    for (size_t k = 1; k < SIDE; k++)
        m[0] = m[k] > m[0] ? m[k] : m[0];
    return m[0];
}

/* Eight bytes of which the low nibbles count, to four. */
static uint32_t nibbles(uint64_t v)
{
    v = (v | v >> 4) & UINT64_C(0x00ff00ff00ff00ff);
    v = (v | v >> 8) & UINT64_C(0x0000ffff0000ffff);
    return (uint32_t)(v | v >> 16);
}

/* And back: a byte of each nibble. */
static uint64_t spread(uint32_t word)
{
    uint64_t v = word;
    v = (v | v << 16) & UINT64_C(0x0000ffff0000ffff);
    v = (v | v << 8) & UINT64_C(0x00ff00ff00ff00ff);
    return (v | v << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
}

void tui_pack(unsigned char *out, const unsigned char *code, size_t n, int bits)
{
    if (bits == 8) {
        memcpy(out, code, n);
        return;
    }
    size_t i = 0;
    for (; bits == 4 && i + 8 <= n; i += 8, out += 4)
        tu_put32(out, nibbles(tu_le64(code + i)));
    uint32_t word = 0;
    int have = 0;
    for (; i < n; i++) {
        word |= (uint32_t)code[i] << have;
        for (have += bits; have >= 8; have -= 8, word >>= 8)
            *out++ = (unsigned char)word;
    }
    if (have)
        *out = (unsigned char)word;
}

void tui_unpack(unsigned char *code, const unsigned char *in, size_t n, int bits)
{
    if (bits == 8) {
        memcpy(code, in, n);
        return;
    }
    size_t i = 0;
    for (; bits == 4 && i + 8 <= n; i += 8, in += 4)
        tu_put64(code + i, spread(tu_le32(in)));
    for (; bits == 4 && i + 2 <= n; i += 2, in++) {
        code[i] = *in & 15;
        code[i + 1] = *in >> 4;
    }
    uint32_t word = 0, mask = (1u << bits) - 1;
    int have = 0;
    for (; i < n; i++) {
        if (have < bits) {
            word |= (uint32_t)*in++ << have;
            have += 8;
        }
        code[i] = (unsigned char)(word & mask);
        word >>= bits;
        have -= bits;
    }
}
