/* SPDX-License-Identifier: Apache-2.0 */
/* box.h: boxes of a tensor: intersection, tiling, and the runs of bytes two boxes share.
 *
 * A box is offset and length per dimension. The intersection of two row-major boxes is a set of
 * equal runs: the longest suffix of dimensions covered whole by both is contiguous. */
#ifndef TENSORUTILS_CORE_BOX_H
#define TENSORUTILS_CORE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

struct tu_box {
    unsigned rank;
    const uint64_t *off; /* [rank] */
    const uint64_t *len; /* [rank] */
};

/* off/len [rank] of the common part; false when it is empty. */
TU_API bool tu_box_meet(const struct tu_box *a, const struct tu_box *b, uint64_t *off,
                        uint64_t *len);
/* Copy the common part of box `s` (bytes at src) into box `d` (bytes at dst); elem bytes each.
 * Returns the elements copied. */
TU_API uint64_t tu_box_copy(void *dst, const struct tu_box *d, const void *src,
                            const struct tu_box *s, size_t elem);
/* Do n boxes cover dim[rank] exactly once? TU_EINCOMPLETE names the first hole or overlap and the
 * boxes that cause it. O(n log n) for grids, O(n²) at worst. */
TU_API TU_MUST int tu_box_tile(const struct tu_box *box, size_t n, const uint64_t *dim,
                               unsigned rank, struct tu_err *err);

TU_END

#endif
