/* SPDX-License-Identifier: Apache-2.0 */
/* imatrix.h: an importance matrix in memory, for its reader and its writer. */
#ifndef TENSORUTILS_QUANT_IMATRIX_H
#define TENSORUTILS_QUANT_IMATRIX_H

#include "tensorutils/quant.h"

struct tui_importance {
    const char *name;
    const float *weight; /* [n] means of squares */
    uint64_t n, count;   /* count: tokens */
};

struct tu_imatrix {
    struct tu_arena *arena;
    struct tui_importance *entry; /* [n] by name */
    size_t n, cap;
};

#endif
