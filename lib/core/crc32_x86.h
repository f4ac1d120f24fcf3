/* SPDX-License-Identifier: Apache-2.0 */
/* crc32_x86.h: the folding rows of the CRC-32 table, and the row they finish with. */
#ifndef TENSORUTILS_CORE_CRC32_X86_H
#define TENSORUTILS_CORE_CRC32_X86_H

#include <stddef.h>
#include <stdint.h>
#include "tensorutils/core/cpu.h"

uint32_t tui_crc32_plain(uint32_t crc, const unsigned char *p, size_t n);

#if defined __x86_64__ && !defined TU_NO_X86
#define TUI_CRC32_X86 1
#define TUI_CRC32_PCLMUL_NEEDS ((uint32_t)TU_CPU_PCLMUL | TU_CPU_SSE42)
#define TUI_CRC32_VPCLMUL_NEEDS                                                          \
    (TUI_CRC32_PCLMUL_NEEDS | TU_CPU_VPCLMUL | TU_CPU_AVX512F | TU_CPU_AVX512DQ)
uint32_t tui_crc32_pclmul(uint32_t crc, const unsigned char *p, size_t n);
uint32_t tui_crc32_vpclmul(uint32_t crc, const unsigned char *p, size_t n);
#else
#define TUI_CRC32_X86 0
#endif

#endif
