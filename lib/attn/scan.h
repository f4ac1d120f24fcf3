/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h: the recurrence of gated.h in chunks, f32, by the tile kernels: what linear
 * attention, GLA and Mamba-2 run.
 *
 * Products in f32, or in bf16 where the matrix units take it; decays, sums and the state
 * in f32. gated.h is the reference. Source: Yang et al., "Gated Linear Attention", 2024,
 * section 4; Dao and Gu, "Transformers are SSMs", 2024, section 6. */
#ifndef ATTN_SCAN_H
#define ATTN_SCAN_H

#include <stdbool.h>
#include <tensorutils/core.h>

/* Rows of one head, a step each; step may be 0 (all the same) or negative. */
struct tui_steps {
    const void *data; /* of the first step; NULL: absent */
    uint32_t dtype;
    int64_t step; /* bytes from a step to the next */
};

/* What decays by the gates of a step: all of the state by one number, its d rows or its
 * dv columns each by its own. */
enum tui_gates { TUI_GATES_ONE, TUI_GATES_ROWS, TUI_GATES_COLUMNS };

struct tui_scan {
    uint64_t n, d, dv;
    uint64_t block; /* steps of a chunk; 0: the kernel's choice */
    uint32_t compute; /* TU_F32 or TU_BF16 */
    enum tui_gates gates;
    bool both_ways;   /* no causality: decays are 1, the state is complete first */
    bool strict;      /* a step sees what was before it alone */
    double scale;
    struct tui_steps q, k, v, gate; /* gate times rate is the natural logarithm */
    double rate;
    struct tui_steps weight;        /* of one: v_t times it enters the state; or absent */
    double skip;                    /* o_t += skip · v_t; neither with gates of columns */
    struct tui_steps o;
    double *state; /* [d, dv]: before the first step in, after the last out */
};

/* One head. *odd: a value or a decay is not finite, o and state are undefined and the
 * reference must be asked, for in a tile 0·Inf of a later step reaches the sum. Errors:
 * TU_ENOMEM, those of casts. */
TU_MUST int tui_scan_run(const struct tui_scan *x, bool *odd, struct tu_err *err);
/* Name of the kernels it would use. */
const char *tui_scan_kernel(uint32_t compute);

#endif
