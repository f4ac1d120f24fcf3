/* SPDX-License-Identifier: Apache-2.0 */
/* scan_back.h: the backward pass of the gated recurrence, made of three of the forward.
 *
 * With dS_t the gradient of the state after step t, dq_t = S_t do_t, dv_t = dS_t' k_t and
 * dk_t = dS_t v_t, and both states follow the forward's rule, dS from the last step to
 * the first. So each is scan.h with the roles of q, k and v exchanged; where the state is
 * transposed, gates of its rows are gates of columns. */
#ifndef ATTN_SCAN_BACK_H
#define ATTN_SCAN_BACK_H

#include "attn/gated.h"
#include "attn/scan.h"

struct tui_scan_how {
    uint64_t block;   /* as in scan.h */
    uint32_t compute; /* with gates TU_F32, for their gradient is a sum of differences */
    bool both_ways;
    bool gates; /* is dg wanted? not both ways */
};

/* What tui_gated_back does, in f32. *odd: as tui_scan_run; then x is as it was. Errors:
 * TU_ENOMEM. */
TU_MUST int tui_scan_back(struct tui_gated *x, const struct tui_scan_how *how, bool *odd,
                          struct tu_err *err);

#endif
