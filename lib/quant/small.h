/* SPDX-License-Identifier: Apache-2.0 */
/* small.h: runs of floats to floats of 4, 6 or 8 bits under one scale, and back: what
 * fp8, MX and NVFP4 are made of. Codes lie one in a byte; packing is apart. */
#ifndef TENSORUTILS_QUANT_SMALL_H
#define TENSORUTILS_QUANT_SMALL_H

#include <stddef.h>
#include <stdint.h>
#include "tensorutils/core.h"

struct tui_small {
    const char *name;
    uint32_t dtype;
    int bits, mantissa, bias;
    int emin, emax; /* exponents of the least and the greatest normal number */
    float max;
    /* the least normal number; 1.5·2^(23 - mantissa); steps in 1 below it */
    float least, magic, unit;
    unsigned special; /* codes of this magnitude and above are not finite; 256: none */
};

/* Rows: e4m3 e5m2 e3m2 e2m3 e2m1; NULL when unknown. */
const struct tui_small *tui_small_named(const char *name);

/* code[i] = x[i] / scale, to the nearest (half to even), saturating. x is finite. */
void tui_small_encode(uint32_t cpu, const struct tui_small *f, const float *x, size_t n,
                      float scale, unsigned char *code);
/* x[i] = code[i] · scale. */
void tui_small_decode(uint32_t cpu, const struct tui_small *f, const unsigned char *code, size_t n,
                      float scale, float *x);
/* Codes of `bits` 4, 6 or 8 to packed bytes, the earlier in the lower bits, and back.
 * n·bits is a multiple of 8, but for the last of a tensor: unused bits are 0. */
void tui_pack(unsigned char *out, const unsigned char *code, size_t n, int bits);
void tui_unpack(unsigned char *code, const unsigned char *in, size_t n, int bits);

float tui_amax(const float *x, size_t n);

/* Kernels; those of a CPU are asked for once per run. */
typedef void (*tui_small_encode_fn)(const struct tui_small *f, const float *x, size_t n,
                                    float scale, unsigned char *code);
typedef void (*tui_small_decode_fn)(const struct tui_small *f, const unsigned char *code, size_t n,
                                    float scale, float *x);
tui_small_encode_fn tui_small_encoder(uint32_t cpu);
tui_small_decode_fn tui_small_decoder(uint32_t cpu);
void tui_small_encode_plain(const struct tui_small *f, const float *x, size_t n, float scale,
                            unsigned char *code);
void tui_small_decode_plain(const struct tui_small *f, const unsigned char *code, size_t n,
                            float scale, float *x);
#if defined __x86_64__ && !defined TU_NO_X86
#define TUI_SMALL_TWINS(isa)                                                                \
    void tui_small_encode_##isa(const struct tui_small *f, const float *x, size_t n,        \
                                float scale, unsigned char *code);                          \
    void tui_small_decode_##isa(const struct tui_small *f, const unsigned char *code,       \
                                size_t n, float scale, float *x);
TUI_SMALL_TWINS(avx2)
TUI_SMALL_TWINS(avx512)
#endif

#endif
