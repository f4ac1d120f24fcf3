/* SPDX-License-Identifier: Apache-2.0 */
/* lowrank.c: the truncated SVD, as functions and as a codec. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "tensorutils/quant/lowrank.h"

struct parts {
    double *a, *u, *s, *v;
    size_t k;
};

static void parts_release(struct parts *p)
{
    tu_free(p->a);
    tu_free(p->u);
    tu_free(p->s);
    tu_free(p->v);
}

static int decompose(struct parts *p, const float *w, uint64_t rows, uint64_t cols,
                     struct tu_err *err)
{
    uint64_t n;
    *p = (struct parts){.k = (size_t)tu_min(rows, cols)};
    if (tu_mul_over(rows, cols, &n) || n > SIZE_MAX / sizeof(double))
        return tu_fail(err, TU_ESIZE, "%" PRIu64 " by %" PRIu64 " elements", rows, cols);
    if (!(p->a = tu_alloc((size_t)n, sizeof *p->a, err)) ||
        !(p->u = tu_alloc((size_t)rows * p->k, sizeof *p->u, err)) ||
        !(p->s = tu_alloc(p->k, sizeof *p->s, err)) ||
        !(p->v = tu_alloc((size_t)cols * p->k, sizeof *p->v, err)))
        return TU_ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(w[i]))
            return tu_fail(err, TU_EUSAGE,
                           "row %" PRIu64 ", column %" PRIu64 ": not finite", i / cols,
                           i % cols);
        p->a[i] = (double)w[i];
    }
    return tu_svd(p->a, (size_t)rows, (size_t)cols, p->u, p->s, p->v, err);
}

int tu_svd_split(const float *w, uint64_t rows, uint64_t cols, uint64_t rank, float *u,
                 float *v, double *lost, struct tu_err *err)
{
    struct parts p;
    if (rank > tu_min(rows, cols))
        return tu_fail(err, TU_EUSAGE, "rank %" PRIu64 " of %" PRIu64 " by %" PRIu64,
                       rank, rows, cols);
    int rc = decompose(&p, w, rows, cols, err);
    if (!rc) {
        for (uint64_t r = 0; r < rank; r++) {
            double root = sqrt(p.s[r]);
            for (uint64_t i = 0; i < rows; i++)
                u[i * rank + r] = (float)(p.u[i * p.k + r] * root);
            for (uint64_t j = 0; j < cols; j++)
                v[r * cols + j] = (float)(p.v[j * p.k + r] * root);
        }
        double sum = 0;
        for (size_t r = p.k; r-- > rank;)
            sum += p.s[r] * p.s[r];
        if (lost)
            *lost = sum;
    }
    parts_release(&p);
    return rc;
}

int tu_svd_rank(const float *w, uint64_t rows, uint64_t cols, double energy,
                uint64_t *rank, struct tu_err *err)
{
    struct parts p;
    int rc = decompose(&p, w, rows, cols, err);
    if (!rc) {
        double all = 0, kept = 0;
        for (size_t r = 0; r < p.k; r++)
            all += p.s[r] * p.s[r];
        for (*rank = 0; *rank < p.k && kept < energy * all; ++*rank)
            kept += p.s[*rank] * p.s[*rank];
    }
    parts_release(&p);
    return rc;
}

/* The codec ---------------------------------------------------------------------------
 */

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t rank;
    int rc = tu_spec_u64(spec, "rank", 0, &rank, err);
    if (rc)
        return rc;
    if (c->rank != 2 || !rank || rank > tu_min(c->rows, c->cols))
        return tu_fail(err, TU_EUSAGE,
                       "codec 'svd': rank %" PRIu64 ": 1 to the lesser dimension of "
                       "a matrix",
                       rank);
    if (rank * (c->rows + c->cols) >= c->elements)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'svd': rank %" PRIu64 ": factors of %" PRIu64 " by %" PRIu64
                       " are no smaller than the matrix",
                       rank, c->rows, c->cols);
    c->param[0] = (int64_t)rank;
    c->atom = tu_max(c->elements, 1);
    c->code = (struct tu_part){.dtype = TU_F32,
                               .rank = 2,
                               .dim = {c->rows, rank},
                               .atom_bytes = c->rows * rank * 4};
    c->side[0] = (struct tu_part){
        .suffix = "v", .dtype = TU_F32, .rank = 2, .dim = {rank, c->cols}};
    c->sides = 1;
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)n;
    return tu_svd_split(x, c->rows, c->cols, (uint64_t)c->param[0], code, side[0], NULL,
                        err);
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)n;
    (void)err;
    uint64_t rank = (uint64_t)c->param[0];
    const float *u = code, *v = side[0];
    for (uint64_t i = 0; i < c->rows; i++)
        for (uint64_t j = 0; j < c->cols; j++) {
            double sum = 0;
            for (uint64_t r = 0; r < rank; r++)
                sum += (double)u[i * rank + r] * (double)v[r * c->cols + j];
            x[i * c->cols + j] = (float)sum;
        }
    return 0;
}

static const char *const key[] = {"rank", NULL};

const struct tu_codec tui_codecs_lowrank[] = {
    {.name = "svd",
     .help = "two thin factors by the truncated SVD",
     .source = "C. Eckart, G. Young, 1936",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
