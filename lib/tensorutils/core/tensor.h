/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h: the description of a tensor, without its bytes, and strided gathering.
 *
 * Data is always C order (row-major), contiguous, little-endian. A description borrows its texts
 * and dimensions, usually from an arena of the object that lists it. */
#ifndef TENSORUTILS_CORE_TENSOR_H
#define TENSORUTILS_CORE_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "dtype.h"
#include "err.h"
#include "mem.h"

TU_BEGIN

struct tu_tensor {
    const char *name;    /* UTF-8, no control bytes, 1..65535 bytes */
    uint32_t dtype;      /* code of dtype.h */
    uint32_t rank;
    const uint64_t *dim; /* [rank], outermost first */
    uint64_t bytes;      /* of the data */
    const char *meta;    /* canonical JSON object, or NULL */
};

/* Fill *out with copies in the arena; meta may be NULL. Checks the name and the sizes.
 * Errors: TU_ENAME, TU_EDTYPE, TU_ESIZE, TU_ELIMIT, TU_ENOMEM. */
TU_API TU_MUST int tu_tensor_make(struct tu_tensor *out, struct tu_arena *a, const char *name,
                                  uint32_t dtype, const uint64_t *dim, unsigned rank,
                                  const char *meta, struct tu_err *err);

/* A tensor as a matrix for moving rows: rows = dim[0], cols = product of the others (1 for rank 1);
 * rank 0 is 1 × 1. */
TU_API void tu_tensor_matrix(const struct tu_tensor *t, uint64_t *rows, uint64_t *cols);

/* Walk of a strided view in C order: strides in elements, may be 0 or any order. Copies elements
 * first … first+n-1 of the contiguous order from base (the view's element 0) to dst. The caller
 * has checked the bounds of the view. elem: bytes of one element. */
TU_API void tu_gather(void *dst, const void *base, const uint64_t *dim, const int64_t *stride,
                      unsigned rank, size_t elem, uint64_t first, uint64_t n);

TU_END

#endif
