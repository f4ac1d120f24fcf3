/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.h: CRC-32 of zlib, gzip and zip, at the speed of memory.
 *
 * Reflected polynomial 0xEDB88320, initial and final inversion; crc32("123456789") = cbf43926,
 * the CRC of nothing is 0. Carry-less multiplication folds 512, 128 or 0 bits at a time, chosen
 * at run time. Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel, 2009. */
#ifndef TENSORUTILS_CORE_CRC32_H
#define TENSORUTILS_CORE_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "cpu.h"

TU_BEGIN

struct tu_pool;

/* Continue crc (0 to start) over n bytes. */
TU_API uint32_t tu_crc32(uint32_t crc, const void *p, size_t n);
/* CRC of A followed by B from crc(A), crc(B) and the length of B in bytes. O(log n). */
TU_API uint32_t tu_crc32_combine(uint32_t a, uint32_t b, uint64_t n_b);
/* Continue crc over n zero bytes without reading any. O(log n). */
TU_API uint32_t tu_crc32_zeros(uint32_t crc, uint64_t n);
/* Contribution of a run to the CRC of a longer text: `run` is the run's own CRC, `after` the
 * bytes that follow it. The CRC of the whole, in any order of runs that cover it once, is the
 * XOR of all contributions and 0 for none. CRC-32 is affine, so this is exact. */
TU_API uint32_t tu_crc32_part(uint32_t run, uint64_t after);
/* The same value as tu_crc32, the work shared by a pool (NULL: alone). */
TU_API uint32_t tu_crc32_pool(uint32_t crc, const void *p, size_t n, struct tu_pool *pool);

typedef uint32_t (*tu_crc32_fn)(uint32_t crc, const unsigned char *p, size_t n);
/* Rows "vpclmul", "pclmul", "plain". */
TU_API extern const struct tu_kernel tu_crc32_kernels[];

TU_END

#endif
