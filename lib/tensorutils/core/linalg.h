/* SPDX-License-Identifier: Apache-2.0 */
/* linalg.h: the little dense algebra that is needed off the hot path, in double: plain, the
 * same digits on every machine. Matrices are row-major. */
#ifndef TENSORUTILS_CORE_LINALG_H
#define TENSORUTILS_CORE_LINALG_H

#include <stdbool.h>
#include <stddef.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

/* a [n, n] = L·Lᵀ, L over the lower half, zeros above. false: not positive definite. */
TU_API bool tu_cholesky(double *a, size_t n);
/* The inverse of L·Lᵀ, from L, in place. Errors: TU_ENOMEM. */
TU_API TU_MUST int tu_cholesky_inverse(double *l, size_t n, struct tu_err *err);
/* Symmetric a = V·diag(value)·Vᵀ: values descending, vectors in the columns of v [n, n],
 * the largest entry of each positive. a is destroyed. Cyclic Jacobi. */
TU_API void tu_eigen(double *a, size_t n, double *value, double *v);
/* a [m, n] = U·diag(s)·Vᵀ with k = min(m, n): u [m, k], s [k] descending, v [n, k]; the
 * largest entry of each column of v is positive. One-sided Jacobi (Hestenes). */
TU_API TU_MUST int tu_svd(const double *a, size_t m, size_t n, double *u, double *s,
                          double *v, struct tu_err *err);
/* c [m, n] = op(a)·op(b), inner dimension k; ta: a is [k, m]; tb: b is [n, k]. */
TU_API void tu_product(const double *a, bool ta, const double *b, bool tb, size_t m,
                       size_t n, size_t k, double *c);

TU_END

#endif
