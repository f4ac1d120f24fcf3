/* SPDX-License-Identifier: Apache-2.0 */
/* calib.c: sums over the inputs of a layer. */
#include <inttypes.h>
#include <math.h>
#include "tensorutils/quant/calib.h"

int tu_calib_init(struct tu_calib *c, uint64_t cols, bool hessian, struct tu_err *err)
{
    uint64_t n;
    *c = (struct tu_calib){.cols = cols};
    if (tu_mul_over(cols, cols, &n) || n > SIZE_MAX / sizeof(double))
        return tu_fail(err, TU_ESIZE, "a Hessian of %" PRIu64 " columns", cols);
    if ((hessian && !(c->hessian = tu_calloc((size_t)n, sizeof *c->hessian, err))) ||
        !(c->sum_abs = tu_calloc((size_t)cols, sizeof *c->sum_abs, err)) ||
        !(c->max_abs = tu_calloc((size_t)cols, sizeof *c->max_abs, err))) {
        tu_calib_release(c);
        return TU_ENOMEM;
    }
    return 0;
}

void tu_calib_release(struct tu_calib *c)
{
    tu_free(c->hessian);
    tu_free(c->sum_abs);
    tu_free(c->max_abs);
    *c = (struct tu_calib){0};
}

struct add {
    struct tu_calib *c;
    const float *x;
    uint64_t tokens;
};

/* One row of the Hessian, tokens in order; the half below the diagonal. */
static int add_row(void *ctx, uint64_t i, unsigned worker, struct tu_err *err)
{
    (void)worker;
    (void)err;
    struct add *a = ctx;
    double *h = a->c->hessian + i * a->c->cols;
    for (uint64_t t = 0; t < a->tokens; t++) {
        const float *x = a->x + t * a->c->cols;
        double v = x[i];
        for (uint64_t j = 0; v != 0 && j <= i; j++)
            h[j] += v * x[j];
    }
    return 0;
}

int tu_calib_add(struct tu_calib *c, const float *x, uint64_t tokens,
                 struct tu_pool *pool, struct tu_err *err)
{
    for (uint64_t t = 0; t < tokens; t++)
        for (uint64_t j = 0; j < c->cols; j++) {
            float v = fabsf(x[t * c->cols + j]);
            if (!isfinite(v))
                return tu_fail(err, TU_EUSAGE,
                               "input of token %" PRIu64 ", column %" PRIu64
                               ": not finite",
                               c->tokens + t, j);
            c->sum_abs[j] += v;
            c->max_abs[j] = v > c->max_abs[j] ? v : c->max_abs[j];
        }
    struct add a = {c, x, tokens};
    int rc = c->hessian ? tu_pool_run(pool, c->cols, add_row, &a, err) : 0;
    for (uint64_t i = 0; !rc && c->hessian && i < c->cols; i++)
        for (uint64_t j = 0; j < i; j++)
            c->hessian[j * c->cols + i] = c->hessian[i * c->cols + j];
    if (!rc)
        c->tokens += tokens;
    return rc;
}
