/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h: what each form of an operator moves and computes. */
#ifndef FA_RUN_EXPLAIN_H
#define FA_RUN_EXPLAIN_H

#include "fa-run/fa.h"

/* Prints a table; a has been inferred. */
int fa_explain(struct tu_ctx *ctx, const struct tu_mixer *row,
               const struct tu_mixer_args *a, struct tu_err *err);

#endif
