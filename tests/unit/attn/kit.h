/* SPDX-License-Identifier: Apache-2.0 */
/* kit.h: problems of softmax attention in memory, for the tests of lib/attn. */
#ifndef TESTS_UNIT_ATTN_KIT_H
#define TESTS_UNIT_ATTN_KIT_H

#include <math.h>
#include <stdlib.h>
#include <tensorutils/attn.h>
#include "../tap.h"

enum { KIT_MAX = 24 };

/* Operands and the results of one problem. */
struct kit {
    struct tu_operand in[KIT_MAX];
    size_t n;
    struct tu_attn_opts opt;
};

static inline void kit_add(struct kit *k, const char *name, uint32_t dtype, unsigned rank,
                           uint64_t a, uint64_t b, uint64_t c, uint64_t d, void *data)
{
    k->in[k->n++] = (struct tu_operand){name, dtype, rank, {a, b, c, d}, data};
}

static inline bool kit_near(double x, double want, double tol)
{
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(x) : x == want;
    return fabs(x - want) <= tol * fmax(1, fabs(want));
}

/* How many of n values differ from those wanted by more than tol; the worst is told. */
static inline unsigned kit_compare(const char *what, const float *x, const double *want,
                                   size_t n, double tol)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        if (!kit_near((double)x[i], want[i], tol)) {
            if (!bad)
                printf("# %s[%zu]: got %.9g, expected %.9g\n", what, i, (double)x[i],
                       want[i]);
            bad++;
        }
    return bad;
}

/* Where the outputs of a problem go: f32, contiguous in the layout of q and k. */
static inline void kit_outputs(struct tu_attn *a, float *o, float *lse, float *dq,
                               float *dk, float *dv)
{
    a->o = a->q;
    a->o.dim = a->dv;
    a->dq = a->q;
    a->dk = a->k;
    a->dv_ = a->v;
    struct tu_rows *r[] = {&a->o, &a->dq, &a->dk, &a->dv_};
    float *data[] = {o, dq, dk, dv};
    for (unsigned i = 0; i < 4; i++) {
        r[i]->data = (unsigned char *)data[i];
        r[i]->dtype = TU_F32;
        r[i]->elem = 4;
    }
    int64_t d = (int64_t)a->d, w = (int64_t)a->dv;
    a->o.batch = a->q.batch / d * w;
    a->o.token = a->q.token / d * w;
    a->o.head = a->q.head / d * w;
    a->lse = lse;
    a->lse_dtype = TU_F32;
}

#endif
