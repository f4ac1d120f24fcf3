/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h: how far a result is from its reference, and how far it may be. */
#ifndef FA_RUN_COMPARE_H
#define FA_RUN_COMPARE_H

#include "fa-run/fa.h"

struct fa_diff {
    double max_abs, max_rel, rmse_ratio, cosine;
    uint64_t worst, n; /* index of the worst element */
    double got, want;  /* its values */
    uint64_t odd;      /* elements where only one side is NaN or an infinity */
    double max_ref;    /* greatest finite |reference| */
};

/* Both as doubles. */
void fa_compare(struct fa_diff *d, const double *got, const double *want, uint64_t n);
/* An operand's elements as doubles, at most `n`; tu_free. */
double *fa_doubles(const struct tu_operand *o, uint64_t *n, struct tu_err *err);

#endif
