/* SPDX-License-Identifier: Apache-2.0 */
/* scale_search.c: scales of columns that move difficulty between inputs and weights:
 * SmoothQuant's formula, AWQ's search. */
#include <inttypes.h>
#include <math.h>
#include "tensorutils/quant.h"
#include "tensorutils/quant/calib.h"

void tu_smooth_scales(const struct tu_calib *calib, const float *w, uint64_t rows,
                      double a, float *scale)
{
    for (uint64_t j = 0; j < calib->cols; j++) {
        double top = 0;
        for (uint64_t i = 0; i < rows; i++)
            top = fmax(top, fabs((double)w[i * calib->cols + j]));
        top = fmax(top, 1e-5);
        scale[j] = (float)fmax(pow(calib->max_abs[j], a) / pow(top, 1 - a), 1e-5);
    }
}

/* mean|X_j|^a, at least 1e-4, divided by the root of the largest times the least. */
static void scales_of(const struct tu_calib *c, double a, float *scale)
{
    double lo = INFINITY, hi = 0;
    for (uint64_t j = 0; j < c->cols; j++) {
        double mean = c->tokens ? c->sum_abs[j] / (double)c->tokens : 0,
               s = fmax(pow(mean, a), 1e-4);
        lo = fmin(lo, s);
        hi = fmax(hi, s);
        scale[j] = (float)s;
    }
    double unit = sqrt(lo * hi);
    for (uint64_t j = 0; j < c->cols; j++)
        scale[j] = (float)((double)scale[j] / unit);
}

struct search {
    const struct tu_coding *coding;
    const float *w, *x;
    float *scaled, *back, *scale;
    void *code, *side[TU_CODING_SIDES];
    uint64_t tokens;
    double *loss; /* per row */
};

/* Squared error of an output over all tokens. */
static int row_loss(void *ctx, uint64_t i, unsigned worker, struct tu_err *err)
{
    (void)worker;
    (void)err;
    struct search *s = ctx;
    uint64_t n = s->coding->cols;
    const float *w = s->w + i * n;
    float *d = s->back + i * n;
    for (uint64_t j = 0; j < n; j++)
        d[j] = d[j] / s->scale[j] - w[j];
    double sum = 0;
    for (uint64_t t = 0; t < s->tokens; t++) {
        double y = 0;
        for (uint64_t j = 0; j < n; j++)
            y += (double)d[j] * s->x[t * n + j];
        sum += y * y;
    }
    s->loss[i] = sum;
    return 0;
}

static int try_scales(struct search *s, struct tu_pool *pool, double *loss,
                      struct tu_err *err)
{
    struct tu_coding c = *s->coding;
    for (uint64_t i = 0; i < c.elements; i++)
        s->scaled[i] = s->w[i] * s->scale[i % c.cols];
    int rc = tu_coding_encode_mem(&c, s->scaled, s->code, s->side, pool, err);
    if (!rc)
        rc = tu_coding_decode_mem(&c, s->code, (const void *const *)s->side, s->back,
                                  pool, err);
    if (!rc)
        rc = tu_pool_run(pool, c.rows, row_loss, s, err);
    *loss = 0;
    for (uint64_t i = 0; !rc && i < c.rows; i++)
        *loss += s->loss[i];
    return rc;
}

int tu_awq_scales(const struct tu_calib *calib, const struct tu_coding *coding,
                  const float *w, const float *x, uint64_t tokens, float *scale,
                  double *a, struct tu_pool *pool, struct tu_err *err)
{
    struct search s = {
        .coding = coding, .w = w, .x = x, .tokens = tokens, .scale = scale};
    double least = INFINITY, loss;
    int rc = TU_ENOMEM;
    if (calib->cols != coding->cols)
        return tu_fail(err, TU_EUSAGE,
                       "inputs of %" PRIu64 " columns for weights of %" PRIu64,
                       calib->cols, coding->cols);
    s.scaled = tu_alloc((size_t)coding->elements, sizeof *s.scaled, err);
    s.back = tu_alloc((size_t)coding->elements, sizeof *s.back, err);
    s.loss = tu_alloc((size_t)coding->rows, sizeof *s.loss, err);
    s.code = tu_alloc((size_t)coding->code.bytes, 1, err);
    if (!s.scaled || !s.back || !s.loss || !s.code)
        goto out;
    for (unsigned k = 0; k < coding->sides; k++)
        if (!(s.side[k] = tu_alloc((size_t)coding->side[k].bytes, 1, err)))
            goto out;
    rc = 0;
    *a = 0;
    for (unsigned i = 0; i < 20 && !rc; i++) {
        scales_of(calib, i / 20.0, scale);
        rc = try_scales(&s, pool, &loss, err);
        if (!rc && loss < least) {
            least = loss;
            *a = i / 20.0;
        }
    }
    scales_of(calib, *a, scale);
out:
    tu_free(s.scaled);
    tu_free(s.back);
    tu_free(s.loss);
    tu_free(s.code);
    for (unsigned k = 0; k < coding->sides; k++)
        tu_free(s.side[k]);
    return rc;
}
