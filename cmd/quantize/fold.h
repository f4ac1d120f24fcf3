/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h: scales of columns that AWQ and SmoothQuant move into the operation before. */
#ifndef QUANTIZE_FOLD_H
#define QUANTIZE_FOLD_H

#include "quantize/calib.h"

struct fold;

/* What the element [i, j] of a tensor is multiplied by: row[i]·col[j], NULL being ones. A
 * vector is one row. */
struct fold_scales {
    const float *row, *col;
};

/* The groups of a model whose tensors can be read at any time: matrices and what comes before
 * them, a norm or a linear layer. heads: of queries, 0 where that is not known. Errors:
 * TU_EUSAGE for a pipe, or for names of no known family. */
TU_MUST int fold_new(struct fold **out, const struct calib *c, struct choosing *choose,
                     const struct tu_source *source, uint64_t heads, struct tu_err *err);
void fold_free(struct fold *f);
/* Found on the first call for a group. Borrowed. */
TU_MUST int fold_find(struct fold *f, const struct tu_tensor *t, struct fold_scales *out,
                      struct tu_err *err);

#endif
