/* SPDX-License-Identifier: Apache-2.0 */
/* forms.h: the same forward by the number of passes over a row of keys, for teaching and
 * checking.
 *
 * FuseMax's taxonomy: 3 passes (maximum, sum, divide), 2 (a maximum per block, corrected
 * later; its second pass is over the blocks), 1 (running maximum; the streaming form
 * keeps O(1) per row). f32 rows, one query at a time; not for speed. Source: Nayak et
 * al., "FuseMax", 2024; Rabe and Staats, "Self-attention Does Not Need O(n²) Memory",
 * 2021. */
#ifndef ATTN_FORMS_H
#define ATTN_FORMS_H

#include <tensorutils/attn.h>

int tui_form_naive3(const struct tu_attn *a, const struct tu_job *job,
                    struct tu_err *err);
int tui_form_naive2(const struct tu_attn *a, const struct tu_job *job,
                    struct tu_err *err);
int tui_form_online(const struct tu_attn *a, const struct tu_job *job,
                    struct tu_err *err);

/* Three passes with logits and P rounded to the storage dtype: what a plain
 * implementation in that precision loses, the yardstick of checks. */
int tui_form_low(const struct tu_attn *a, const struct tu_job *job, struct tu_err *err);

#endif
