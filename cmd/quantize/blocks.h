/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h: a matrix as the square blocks that hold what is not zero. */
#ifndef QUANTIZE_BLOCKS_H
#define QUANTIZE_BLOCKS_H

#include "quantize/target.h"

struct blocks {
    uint64_t size;  /* rows and columns of a block */
    bool cluster;   /* rows are permuted where that needs fewer blocks */
    uint64_t kept;  /* out: blocks */
    double before, fill; /* out: part of the kept blocks that is not zero, rows in order and
                          * as they are written */
};
/* x [rows, cols] of tensor t as codec bsr's records, values in t's dtype. */
TU_MUST int blocks_put(struct blocks *b, struct target *to, const struct tu_tensor *t,
                       const float *x, struct tu_ctx *ctx, struct tu_err *err);

#endif
