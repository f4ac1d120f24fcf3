/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h: how far two arrays of numbers are apart, in pieces of any size.
 *
 * b is the reference. Two NaN are the same value, two infinities of one sign too; a NaN
 * or an infinity against anything else is outside of every tolerance. The parts of a
 * complex number are compared as two values. Sums are taken in double over runs of 1024
 * values, so the same pieces give the same figures. */
#ifndef TENSORUTILS_CORE_COMPARE_H
#define TENSORUTILS_CORE_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

/* A pair passes if |a-b| ≤ atol + rtol·|b|, or if both are of one dtype and at most ulp
 * steps apart (representable values for floats, ones for integers). All zero: the values
 * must be equal. */
struct tu_tolerance {
    double rtol, atol;
    uint64_t ulp;
};

struct tu_compare {
    uint64_t n;       /* values */
    uint64_t differ;  /* pairs of different values */
    uint64_t outside; /* of them, pairs that do not pass */
    double max_abs;   /* |a-b|; infinite where one is not finite and the other is another value */
    double max_rel;   /* |a-b| / |b|, over b ≠ 0 */
    uint64_t max_ulp; /* steps, where both are of one dtype of whole bytes */
    uint64_t worst;   /* number of the value with the largest |a-b|, the first of equals */
    double worst_a, worst_b;
    double aa, bb, ab, dd; /* sums of a², b², a·b and (a-b)² over finite pairs */
};

/* {0} is a comparison of nothing. Add n elements of a and b, of which the first is
 * element `first` of the tensors. Errors: TU_EDTYPE for block formats and for complex
 * against real. */
TU_API TU_MUST int tu_compare_add(struct tu_compare *c, const struct tu_tolerance *tol,
                                  uint32_t dtype_a, const void *a, uint32_t dtype_b,
                                  const void *b, size_t n, uint64_t first, struct tu_err *err);
/* Add what was found in a later part. */
TU_API void tu_compare_merge(struct tu_compare *c, const struct tu_compare *later);
/* Values per element: 2 for complex dtypes. worst / this is the element. */
TU_API unsigned tu_compare_parts(uint32_t dtype);
/* a·b / (|a||b|); 1 for two zero vectors, 0 for one. */
TU_API double tu_compare_cosine(const struct tu_compare *c);
/* Signal to quantisation noise, 10 log10(b² / (a-b)²), in dB; infinite without noise. */
TU_API double tu_compare_sqnr(const struct tu_compare *c);

TU_END

#endif
