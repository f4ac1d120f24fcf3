/* SPDX-License-Identifier: Apache-2.0 */
/* sha256_x86.h: SHA-256 of two or sixteen streams at a time, where the CPU has the means. */
#ifndef TENSORUTILS_CORE_SHA256_X86_H
#define TENSORUTILS_CORE_SHA256_X86_H

#include <stddef.h>
#include <stdint.h>
#include "tensorutils/core/cpu.h"

#if defined __x86_64__ && !defined TU_NO_X86
#define TUI_SHA256_X86 1
#define TUI_SHA256_LANES 16
/* FIPS 180-4, 4.2.2; 64-byte aligned. */
extern const uint32_t tui_sha256_constant[64];
#define TUI_SHA256_PAIR_NEEDS ((uint32_t)TU_CPU_SHA | TU_CPU_SSE42)
/* Both states moved over n blocks of 64 bytes of their own. */
void tui_sha256_pair(uint32_t a[8], const unsigned char *pa, uint32_t b[8],
                     const unsigned char *pb, size_t n);
#define TUI_SHA256_WIDE_NEEDS ((uint32_t)TU_CPU_AVX512F | TU_CPU_AVX512BW)
/* Sixteen states moved over n blocks of their own. */
void tui_sha256_wide(uint32_t *const state[TUI_SHA256_LANES],
                     const unsigned char *const p[TUI_SHA256_LANES], size_t n);
#else
#define TUI_SHA256_X86 0
#endif

#endif
