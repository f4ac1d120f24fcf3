/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: what this CPU can do, and tables of kernels chosen by it.
 *
 * A family of kernels is a table of rows, best first, ending with the plain one that needs
 * nothing and then a row without a name. The first row whose bits are all there is used.
 * TENSORUTILS_ISA (read by cmd/common) narrows the bits, so one machine tests every row. */
#ifndef TENSORUTILS_CORE_CPU_H
#define TENSORUTILS_CORE_CPU_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

/* X(NAME, "name"): bits are separate features, not levels. */
#define TU_CPU_TABLE(X)                                                                     \
    X(PCLMUL, "pclmul") X(SSE42, "sse4.2") X(SHA, "sha") X(AVX2, "avx2") X(FMA, "fma")      \
    X(F16C, "f16c") X(BMI2, "bmi2") X(GFNI, "gfni") X(VPCLMUL, "vpclmul")                   \
    X(AVX512F, "avx512f") X(AVX512BW, "avx512bw") X(AVX512DQ, "avx512dq")                   \
    X(AVX512VL, "avx512vl") X(AVX512VNNI, "avx512vnni") X(AVX512VBMI, "avx512vbmi")         \
    X(AVX512VBMI2, "avx512vbmi2") X(AVX512BITALG, "avx512bitalg")                           \
    X(AVX512VPOPCNTDQ, "avx512vpopcntdq") X(AVX512BF16, "avx512bf16")                       \
    X(AVX512FP16, "avx512fp16") X(AVXVNNI, "avxvnni") X(AMXTILE, "amxtile")                 \
    X(AMXBF16, "amxbf16") X(AMXINT8, "amxint8")

enum tu_cpu_index {
#define TU_CPU_INDEX(name, text) TU_CPU_INDEX_##name,
    TU_CPU_TABLE(TU_CPU_INDEX)
#undef TU_CPU_INDEX
    TU_CPU_COUNT
};

enum tu_cpu_bit {
#define TU_CPU_BIT(name, text) TU_CPU_##name = 1 << TU_CPU_INDEX_##name,
    TU_CPU_TABLE(TU_CPU_BIT)
#undef TU_CPU_BIT
};

/* The groups that kernels usually ask for. */
#define TU_CPU_ALL UINT32_MAX
#define TU_CPU_GROUP_AVX2 ((uint32_t)TU_CPU_AVX2 | TU_CPU_FMA | TU_CPU_F16C | TU_CPU_BMI2)
#define TU_CPU_GROUP_AVX512                                                                 \
    (TU_CPU_GROUP_AVX2 | TU_CPU_AVX512F | TU_CPU_AVX512BW | TU_CPU_AVX512DQ | TU_CPU_AVX512VL)

typedef void (*tu_kernel_fn)(void);

struct tu_kernel {
    const char *name; /* "vpclmul", "avx2", "plain"; NULL ends the table */
    uint32_t needs;   /* TU_CPU_… bits, all of them */
    tu_kernel_fn fn;  /* cast to the family's type by its owner */
};

/* Bits of this CPU that the operating system lets us use, whatever was narrowed. */
TU_API uint32_t tu_cpu_detect(void);
/* Bits in use: detected, narrowed. */
TU_API uint32_t tu_cpu_bits(void);
/* Narrow by name: "scalar", "avx2", "avx512", "amx", or a comma list of bit names. Call before
 * any kernel has run. Errors: TU_EUSAGE unknown name; TU_ENODEV this CPU lacks it. */
TU_API TU_MUST int tu_cpu_narrow(const char *isa, struct tu_err *err);
/* First row of a table that `bits` allow. Never NULL: the plain row needs nothing. */
TU_API const struct tu_kernel *tu_kernel_pick(const struct tu_kernel *table, uint32_t bits);
/* Space-separated names of the bits; returns the length, cuts at n. */
TU_API size_t tu_cpu_text(uint32_t bits, char *out, size_t n);
/* Model name of the CPU from the system, "unknown" where it does not say. Static. */
TU_API const char *tu_cpu_model(void);
/* CPUs that the affinity mask allows, at least 1. */
TU_API unsigned tu_cpu_count(void);

TU_END

#endif
