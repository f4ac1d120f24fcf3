/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c: a result against its reference, element by element. */
#include <math.h>
#include "fa-run/compare.h"

void fa_compare(struct fa_diff *d, const double *got, const double *want, uint64_t n)
{
    double err2 = 0, ref2 = 0, got2 = 0, dot = 0;
    *d = (struct fa_diff){.n = n};
    for (uint64_t i = 0; i < n; i++) {
        double x = got[i], y = want[i];
        if (!isfinite(x) || !isfinite(y)) {
            bool same = isnan(x) ? isnan(y) : x == y;
            if (!same && d->odd++ == 0) {
                d->worst = i;
                d->got = x;
                d->want = y;
            }
            continue;
        }
        double e = fabs(x - y);
        if (e > d->max_abs && !d->odd) {
            d->worst = i;
            d->got = x;
            d->want = y;
        }
        d->max_abs = fmax(d->max_abs, e);
        if (y < 0 || y > 0)
            d->max_rel = fmax(d->max_rel, e / fabs(y));
        d->max_ref = fmax(d->max_ref, fabs(y));
        err2 += e * e;
        ref2 += y * y;
        got2 += x * x;
        dot += x * y;
    }
    d->rmse_ratio = ref2 > 0 ? sqrt(err2 / ref2) : 0;
    d->cosine = ref2 > 0 && got2 > 0 ? dot / sqrt(ref2 * got2) : 1;
}

double *fa_doubles(const struct tu_operand *o, uint64_t *n, struct tu_err *err)
{
    if (tu_elements(o->dim, o->rank, n, err))
        return NULL;
    if (o->dtype == TU_C64 || o->dtype == TU_C128) { /* two numbers for each element */
        tu_fail(err, TU_EDTYPE, "'%s' is complex", o->name);
        return NULL;
    }
    double *v = tu_alloc(*n, sizeof *v, err);
    if (v && tu_to_double(o->dtype, o->data, v, *n, err)) {
        tu_free(v);
        return NULL;
    }
    return v;
}
