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
    float least, unit; /* the least normal number; steps in 1 below it */
    unsigned special; /* codes of this magnitude and above are not finite; 256: none */
};

/* Rows: e4m3 e5m2 e3m2 e2m3 e2m1; NULL when unknown. */
const struct tui_small *tui_small_named(const char *name);

/* Groups of `group` values share a scale; the last may be short.
 *
 * The largest magnitude of each; NaN is left out. */
void tui_amax(uint32_t cpu, const float *x, size_t n, size_t group, float *amax);
/* code[i] = x[i] / scale[i / group], to the nearest (half to even), saturating. x is
 * finite. */
void tui_small_encode(uint32_t cpu, const struct tui_small *f, const float *x, size_t n,
                      size_t group, const float *scale, unsigned char *code);
/* x[i] = code[i] · scale[i / group]. */
void tui_small_decode(uint32_t cpu, const struct tui_small *f, const unsigned char *code,
                      size_t n, size_t group, const float *scale, float *x);

/* Kernels. */
#define TUI_SMALL_KERNELS(isa)                                                           \
    void tui_amax_##isa(const float *x, size_t n, size_t group, float *amax);            \
    void tui_small_encode_##isa(const struct tui_small *f, const float *x, size_t n,     \
                                size_t group, const float *scale, unsigned char *code);  \
    void tui_small_decode_##isa(const struct tui_small *f, const unsigned char *code,    \
                                size_t n, size_t group, const float *scale, float *x);
TUI_SMALL_KERNELS(plain)
#if defined __x86_64__ && !defined TU_NO_X86
TUI_SMALL_KERNELS(avx2)
TUI_SMALL_KERNELS(avx512)
#endif

#endif
