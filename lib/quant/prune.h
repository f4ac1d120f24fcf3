/* SPDX-License-Identifier: Apache-2.0 */
/* prune.h: the choice of N of M that pruning and the compressed forms share. */
#ifndef TENSORUTILS_QUANT_PRUNE_H
#define TENSORUTILS_QUANT_PRUNE_H

#include <stdbool.h>
#include <stddef.h>

#define TUI_M_MAX 64u

/* Mark the n largest of m scores that lie `stride` apart; ties to the lower index. */
void tui_keep_nm(const float *score, size_t stride, unsigned n, unsigned m, bool *keep);

#endif
