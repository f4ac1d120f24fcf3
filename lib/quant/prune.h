/* SPDX-License-Identifier: Apache-2.0 */
/* prune.h: what pruning and the compressed forms share: the choice of N of M, the dtype that
 * values are kept in. */
#ifndef TENSORUTILS_QUANT_PRUNE_H
#define TENSORUTILS_QUANT_PRUNE_H

#include "tensorutils/quant.h"

#define TUI_M_MAX 64u

/* Mark the n largest of m scores that lie `stride` apart; ties to the lower index. */
void tui_keep_nm(const float *score, size_t stride, unsigned n, unsigned m, bool *keep);
/* The dtype that key `value` names, bf16 without it, into *value. */
int tui_plan_value(const struct tu_coding *c, const struct tu_spec *spec, int64_t *value,
                   struct tu_err *err);
/* n values as that dtype at *to, which moves on. */
int tui_put_values(uint32_t dtype, unsigned char **to, const float *x, size_t n,
                   struct tu_err *err);

#endif
