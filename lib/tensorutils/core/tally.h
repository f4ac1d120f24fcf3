/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h: what the values of a tensor are like: range, mean, deviation, NaN, Inf and
 * zeros.
 *
 * Values are taken in blocks of TU_TALLY_BLOCK whose sums are joined in order, so a
 * tally does not depend on how many threads made it. Not for benchmark samples: see
 * stats.h. */
#ifndef TENSORUTILS_CORE_TALLY_H
#define TENSORUTILS_CORE_TALLY_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

struct tu_pool;

#define TU_TALLY_BLOCK 65536

struct tu_tally {
    uint64_t n;              /* values; the parts of a complex number are two */
    uint64_t nans, infs, zeros;
    double min, max, mean;   /* of the finite values; 0 when there are none */
    double m2;               /* sum of squared differences from the mean */
};

/* Join b, of later values, to a. Source: T. Chan, G. Golub, R. LeVeque, "Updating
 * Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979. */
TU_API void tu_tally_join(struct tu_tally *a, const struct tu_tally *b);
/* Add n elements of a plain or sub-byte dtype. Each call but the last of a tensor
 * gives a multiple of TU_TALLY_BLOCK elements. pool may be NULL. Errors: TU_EDTYPE for
 * block formats, TU_ENOMEM. */
TU_API TU_MUST int tu_tally_add(struct tu_tally *t, uint32_t dtype, const void *p,
                                size_t n, struct tu_pool *pool, struct tu_err *err);
/* Finite values. */
TU_API uint64_t tu_tally_finite(const struct tu_tally *t);
/* Population deviation of the finite values. */
TU_API double tu_tally_deviation(const struct tu_tally *t);

TU_END

#endif
