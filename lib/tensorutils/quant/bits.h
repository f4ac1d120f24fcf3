/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h: products of matrices that are kept as planes of bits (codec `bipolar`).
 *
 * Bit value 0 stands for -1: n planes hold the odd numbers sum (2·b_i - 1)·2^i. Source:
 * "Efficient Arbitrary Precision Acceleration for LLMs", arXiv 2409.17870. */
#ifndef TENSORUTILS_QUANT_BITS_H
#define TENSORUTILS_QUANT_BITS_H

#include "../core.h"

TU_BEGIN

/* Words of a plane of n elements. */
#define TU_PLANE_WORDS(n) (((n) + 63) / 64)

/* Planes [bits, words] of n codes 0 … 2^bits-1; bits behind the end are 0. */
TU_API void tu_planes_pack(const uint8_t *code, uint64_t n, unsigned bits,
                           uint64_t *plane);
TU_API void tu_planes_unpack(const uint64_t *plane, uint64_t n, unsigned bits,
                             uint8_t *code);
/* Sum of products of the odd numbers that two rows stand for. */
TU_API int64_t tu_planes_dot(const uint64_t *a, unsigned bits_a, const uint64_t *b,
                             unsigned bits_b, uint64_t n);
/* y [rows_a, rows_b] = a · bᵀ under a scale per row. */
TU_API void tu_planes_product(const uint64_t *a, const float *scale_a, uint64_t rows_a,
                              unsigned bits_a, const uint64_t *b, const float *scale_b,
                              uint64_t rows_b, unsigned bits_b, uint64_t n, float *y);

TU_END

#endif
