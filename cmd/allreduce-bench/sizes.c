/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c: the sizes that a sweep goes through. */
#include "bench.h"

int bench_sizes(const struct bench_facts *f, uint64_t **out, size_t *n, struct tu_err *err)
{
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    if (f->min > f->max)
        return tu_fail(err, TU_EUSAGE, "--min %llu is over --max %llu",
                       (unsigned long long)f->min, (unsigned long long)f->max);
    if (!f->step && f->factor < 2)
        return tu_fail(err, TU_EUSAGE, "--factor %llu: sizes would never end",
                       (unsigned long long)f->factor);
    if (!f->step && !f->min && f->max)
        return tu_fail(err, TU_EUSAGE, "--min 0 grows by no factor: use --step");
    for (uint64_t v = f->min; v <= f->max;) {
        if (*n == 100000)
            return tu_fail(err, TU_EUSAGE, "more than 100000 sizes");
        int code = TU_GROW(out, &cap, *n, err);
        if (code)
            return code;
        (*out)[(*n)++] = v;
        if (f->step ? tu_add_over(v, f->step, &v) : tu_mul_over(v, f->factor, &v))
            break;
        if (!f->step && !v)
            break;
    }
    return 0;
}
