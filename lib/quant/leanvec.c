/* SPDX-License-Identifier: Apache-2.0 */
/* leanvec.c: projections of vectors to fewer dimensions that keep inner products with
 * queries. Source: M. Tepper et al., "LeanVec: Searching vectors faster by making them
 * fit", 2023. The first step, where the gradient is zero, is ours. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "tensorutils/quant/lowrank.h"

enum { STEPS = 500 };

/* xᵀx [d, d]. */
static double *gram(const float *x, uint64_t n, uint64_t d, struct tu_err *err)
{
    double *k = tu_calloc((size_t)(d * d), sizeof *k, err);
    for (uint64_t t = 0; k && t < n; t++)
        for (uint64_t i = 0; i < d; i++)
            for (uint64_t j = 0; j < d; j++)
                k[i * d + j] += (double)x[t * d + i] * (double)x[t * d + j];
    return k;
}

static int check(uint64_t d, uint64_t r, struct tu_err *err)
{
    if (!r || r > d || d > 65536)
        return tu_fail(err, TU_EUSAGE, "%" PRIu64 " of %" PRIu64 " dimensions", r, d);
    return 0;
}

int tu_leanvec_id(const float *x, uint64_t n, uint64_t d, uint64_t r, double *b,
                  struct tu_err *err)
{
    int rc = check(d, r, err);
    if (rc)
        return rc;
    double *k = gram(x, n, d, err),
           *v = k ? tu_alloc((size_t)(d * d + d), sizeof *v, err) : NULL;
    if (!v) {
        tu_free(k);
        return TU_ENOMEM;
    }
    tu_eigen(k, (size_t)d, v + d * d, v);
    for (uint64_t i = 0; i < d; i++)
        for (uint64_t j = 0; j < r; j++)
            b[i * r + j] = v[i * d + j];
    tu_free(k);
    tu_free(v);
    return 0;
}

struct problem {
    size_t d, r;
    double *kq, *kx, *kqx; /* [d, d]; kqx = K_Q·K_X */
    double *t, *s, *m;     /* [d, d] room, [d, r] room, [d, r] gradient */
    double *u, *sigma, *v; /* of a polar decomposition */
};

static void release(struct problem *p)
{
    tu_free(p->kq);
    tu_free(p->kx);
    tu_free(p->kqx);
}

static int prepare(struct problem *p, const float *q, uint64_t m, const float *x,
                   uint64_t n, uint64_t d, uint64_t r, struct tu_err *err)
{
    size_t dd = (size_t)(d * d), dr = (size_t)(d * r);
    *p = (struct problem){.d = (size_t)d, .r = (size_t)r};
    int rc = check(d, r, err);
    if (rc)
        return rc;
    p->kq = gram(q, m, d, err);
    p->kx = p->kq ? gram(x, n, d, err) : NULL;
    p->kqx = p->kx ? tu_alloc(2 * dd + 3 * dr + (size_t)(r * r + r), sizeof(double), err)
                   : NULL;
    if (!p->kqx) {
        release(p);
        return TU_ENOMEM;
    }
    p->t = p->kqx + dd;
    p->s = p->t + dd;
    p->m = p->s + dr;
    p->u = p->m + dr;
    p->sigma = p->u + dr;
    p->v = p->sigma + r;
    tu_product(p->kq, false, p->kx, false, p->d, p->d, p->d, p->kqx);
    return 0;
}

/* tr(B·A'·K_Q·A·B'·K_X) - 2·tr(K_Q·A·B'·K_X) + tr(K_Q·K_X). */
static double loss_of(const struct problem *p, const double *a, const double *b)
{
    double sum = 0, same = 0;
    /* t = A'·K_Q·A [r, r], then B'·K_X·B against it. */
    tu_product(p->kq, false, a, false, p->d, p->r, p->d, p->s);
    tu_product(a, true, p->s, false, p->r, p->r, p->d, p->t);
    tu_product(p->kx, false, b, false, p->d, p->r, p->d, p->s);
    double *bb = p->u; /* r·r fits d·r */
    tu_product(b, true, p->s, false, p->r, p->r, p->d, bb);
    for (size_t i = 0; i < p->r; i++)
        for (size_t j = 0; j < p->r; j++)
            sum += p->t[i * p->r + j] * bb[j * p->r + i];
    /* tr(K_Q·A·B'·K_X) = sum of (K_X·K_Q·A) ∘ B, K_X·K_Q being K_Q·K_X transposed. */
    tu_product(p->kqx, true, a, false, p->d, p->r, p->d, p->s);
    for (size_t i = 0; i < p->d * p->r; i++)
        sum -= 2 * p->s[i] * b[i];
    for (size_t i = 0; i < p->d; i++)
        same += p->kqx[i * p->d + i];
    return sum + same;
}

/* a towards the polar factor of minus the gradient in a, with b fixed: 2·k·a·(b'·l·b) -
 * 2·(k·l)·b, kl being k·l or transposed. */
static int step(struct problem *p, double *a, const double *b, const double *k,
                const double *l, bool transposed, double gamma, bool first,
                struct tu_err *err)
{
    tu_product(l, false, b, false, p->d, p->r, p->d, p->s);
    tu_product(b, true, p->s, false, p->r, p->r, p->d, p->t);
    tu_product(a, false, p->t, false, p->d, p->r, p->r, p->s);
    tu_product(k, false, p->s, false, p->d, p->r, p->d, p->m);
    tu_product(p->kqx, transposed, b, false, p->d, p->r, p->d, p->s);
    bool zero = true;
    for (size_t i = 0; i < p->d * p->r; i++) {
        p->m[i] = -(2 * p->m[i] - 2 * p->s[i]);
        zero &= p->m[i] == 0;
    }
    memset(p->s, 0, p->d * p->r * sizeof *p->s);
    if (zero && first) {
        for (size_t i = 0; i < p->r; i++)
            p->s[i * p->r + i] = 1;
    } else if (!zero) {
        int rc = tu_svd(p->m, p->d, p->r, p->u, p->sigma, p->v, err);
        if (rc)
            return rc;
        tu_product(p->u, false, p->v, true, p->d, p->r, p->r, p->s);
    }
    for (size_t i = 0; i < p->d * p->r; i++)
        a[i] = (1 - gamma) * a[i] + gamma * p->s[i];
    return 0;
}

int tu_leanvec_ood(const float *q, uint64_t m, const float *x, uint64_t n, uint64_t d,
                   uint64_t r, double *a, double *b, double *loss, unsigned *steps,
                   struct tu_err *err)
{
    struct problem p;
    double last = 0, now = 0;
    unsigned it = 0;
    int rc = prepare(&p, q, m, x, n, d, r, err);
    if (rc)
        return rc;
    memset(a, 0, p.d * p.r * sizeof *a);
    memset(b, 0, p.d * p.r * sizeof *b);
    for (; it < STEPS && !rc; it++) {
        double gamma = pow(it + 1, -.999);
        rc = step(&p, a, b, p.kq, p.kx, false, gamma, it == 0, err);
        if (!rc)
            rc = step(&p, b, a, p.kx, p.kq, true, gamma, it == 0, err);
        now = loss_of(&p, a, b);
        if (it >= 2 && fabs(now - last) < 1e-3 * last) {
            it++;
            break;
        }
        last = now;
    }
    if (loss)
        *loss = now;
    if (steps)
        *steps = it;
    release(&p);
    return rc;
}

int tu_leanvec_loss(const float *q, uint64_t m, const float *x, uint64_t n, uint64_t d,
                    uint64_t r, const double *a, const double *b, double *loss,
                    struct tu_err *err)
{
    struct problem p;
    int rc = prepare(&p, q, m, x, n, d, r, err);
    if (!rc) {
        *loss = loss_of(&p, a, b);
        release(&p);
    }
    return rc;
}
