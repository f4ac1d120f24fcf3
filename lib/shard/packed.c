/* SPDX-License-Identifier: Apache-2.0 */
/* packed.c: tensors of dtypes whose elements share bytes: GGUF's blocks, FP4, FP6.
 *
 * In matrix views their unit is a block, so all the arithmetic of spans holds; a cut must not
 * go through one. */

#include "ckpt.h"

bool tui_has_rows(const struct tu_tensor *t)
{
    unsigned unit = tu_dtype_find(t->dtype)->block_elems;
    return unit == 1 ? t->rank > 0 : t->rank > 1 && t->dim[t->rank - 1] % unit == 0;
}

void tui_matrix(const struct tu_tensor *t, uint64_t *rows, uint64_t *cols)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    tu_tensor_matrix(t, rows, cols);
    if (d->block_elems > 1 && tui_has_rows(t)) {
        *cols /= d->block_elems;
    } else if (d->block_elems > 1) { /* rows would begin inside blocks: all is one */
        *rows = 1;
        *cols = t->bytes / d->block_bytes;
    }
}

int tui_span_in_blocks(struct tu_span *s, const struct tu_tensor *t, struct tu_err *err)
{
    unsigned unit = tu_dtype_find(t->dtype)->block_elems;
    if (!tui_has_rows(t) || s->acol % unit || s->cols % unit || s->poff % unit || s->prow % unit)
        return tu_fail(err, TU_EUNSUP, "'%.100s': a cut goes through blocks of %u elements",
                       t->name, unit);
    s->acol /= unit;
    s->cols /= unit;
    s->poff /= unit;
    s->prow /= unit;
    return 0;
}
