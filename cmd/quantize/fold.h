/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h: scales of columns that AWQ and SmoothQuant move into the operation before. */
#ifndef QUANTIZE_FOLD_H
#define QUANTIZE_FOLD_H

#include "quantize/calib.h"

struct fold;

/* The groups of a model whose tensors can be read at any time: a norm and the matrices that
 * read its output. Errors: TU_EUSAGE for a pipe, or for names of no known family. */
TU_MUST int fold_new(struct fold **out, const struct calib *c, struct choosing *choose,
                     const struct tu_source *source, struct tu_err *err);
void fold_free(struct fold *f);
/* What the elements of this tensor are multiplied by, by column: [cols], or NULL: nothing.
 * Found on the first call for a group. Borrowed. */
TU_MUST int fold_scales(struct fold *f, const struct tu_tensor *t, const float **scale,
                        struct tu_err *err);

#endif
