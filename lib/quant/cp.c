/* SPDX-License-Identifier: Apache-2.0 */
/* cp.c: CP decomposition of tensors of order 3 and 4 by alternating least squares, as a
 * function and as a codec. No normalisation while it runs. Source: T. Kolda, B. Bader,
 * "Tensor Decompositions and Applications", 2009. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "tensorutils/quant/lowrank.h"

enum { RANK_MAX = 256 };

static uint64_t elements(const struct tu_cp *cp)
{
    uint64_t n = 1;
    for (unsigned k = 0; k < cp->order; k++)
        n *= cp->dim[k];
    return n;
}

/* Places in each mode of element e. */
static void places(const struct tu_cp *cp, uint64_t e, uint64_t at[TU_CP_ORDER])
{
    for (unsigned k = cp->order; k-- > 0; e /= cp->dim[k])
        at[k] = e % cp->dim[k];
}

static double value_at(const struct tu_cp *cp, uint64_t e)
{
    uint64_t at[TU_CP_ORDER];
    double sum = 0;
    places(cp, e, at);
    for (unsigned r = 0; r < cp->rank; r++) {
        double v = 1;
        for (unsigned k = 0; k < cp->order; k++)
            v *= cp->factor[k][at[k] * cp->rank + r];
        sum += v;
    }
    return sum;
}

/* pinv of a symmetric g [r, r] in place: eigenvalues under 1e-12 of the largest are 0. */
static void pseudo_inverse(double *g, size_t r, double *value, double *v, double *scaled)
{
    tu_eigen(g, r, value, v);
    for (size_t i = 0; i < r; i++)
        for (size_t k = 0; k < r; k++)
            scaled[i * r + k] = value[k] > 1e-12 * value[0] ? v[i * r + k] / value[k] : 0;
    tu_product(scaled, false, v, true, r, r, r, g);
}

struct work {
    double *unfolded; /* [largest dimension, rank] */
    double *gram, *value, *v, *scaled;
};

static int work_init(struct work *w, const struct tu_cp *cp, struct tu_err *err)
{
    uint64_t most = 0;
    size_t r = cp->rank;
    for (unsigned k = 0; k < cp->order; k++)
        most = tu_max(most, cp->dim[k]);
    *w = (struct work){tu_alloc((size_t)most * r, sizeof(double), err),
                       tu_alloc(r * r * 3 + r, sizeof(double), err), NULL, NULL, NULL};
    if (!w->unfolded || !w->gram)
        return TU_ENOMEM;
    w->v = w->gram + r * r;
    w->scaled = w->v + r * r;
    w->value = w->scaled + r * r;
    return 0;
}

/* Factor of one mode from the others. */
static void solve_mode(struct tu_cp *cp, const float *x, unsigned mode, struct work *w)
{
    size_t r = cp->rank;
    memset(w->unfolded, 0, (size_t)cp->dim[mode] * r * sizeof(double));
    for (uint64_t e = 0; e < elements(cp); e++) {
        uint64_t at[TU_CP_ORDER];
        places(cp, e, at);
        for (size_t c = 0; c < r; c++) {
            double v = (double)x[e];
            for (unsigned k = 0; k < cp->order; k++)
                v *= k == mode ? 1 : cp->factor[k][at[k] * r + c];
            w->unfolded[at[mode] * r + c] += v;
        }
    }
    for (size_t i = 0; i < r; i++)
        for (size_t j = 0; j < r; j++) {
            double v = 1;
            for (unsigned k = 0; k < cp->order; k++) {
                double dot = 0;
                for (uint64_t d = 0; k != mode && d < cp->dim[k]; d++)
                    dot += cp->factor[k][d * r + i] * cp->factor[k][d * r + j];
                v *= k == mode ? 1 : dot;
            }
            w->gram[i * r + j] = v;
        }
    pseudo_inverse(w->gram, r, w->value, w->v, w->scaled);
    tu_product(w->unfolded, false, w->gram, false, (size_t)cp->dim[mode], r, r,
                cp->factor[mode]);
}

/* Leading left vectors of the unfolding, from the Gram matrix of its rows; columns that
 * are not there are normals. */
static int start_svd(struct tu_cp *cp, const float *x, unsigned mode, struct tu_err *err)
{
    size_t n = (size_t)cp->dim[mode], r = cp->rank;
    uint64_t inner = 1, total = elements(cp);
    for (unsigned k = mode + 1; k < cp->order; k++)
        inner *= cp->dim[k];
    double *g = tu_calloc(n * n * 2 + n, sizeof *g, err);
    if (!g)
        return TU_ENOMEM;
    double *v = g + n * n, *value = v + n * n;
    for (uint64_t e = 0; e < total; e++) {
        uint64_t i = e / inner % n, base = e - i * inner;
        for (uint64_t j = 0; j < n; j++)
            g[i * n + j] += (double)x[e] * (double)x[base + j * inner];
    }
    tu_eigen(g, n, value, v);
    const struct tu_rng rng = {cp->seed, mode};
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < r; c++) {
            float z;
            tu_rng_normal(&rng, i * r + c, &z, 1);
            cp->factor[mode][i * r + c] = c < n ? v[i * n + c] : (double)z;
        }
    tu_free(g);
    return 0;
}

/* Two terms whose vectors' cosines multiply to nearly -1. */
static bool is_degenerate(const struct tu_cp *cp)
{
    for (unsigned i = 0; i < cp->rank; i++)
        for (unsigned j = 0; j < i; j++) {
            double product = 1;
            for (unsigned k = 0; k < cp->order; k++) {
                double ij = 0, ii = 0, jj = 0;
                for (uint64_t d = 0; d < cp->dim[k]; d++) {
                    double a = cp->factor[k][d * cp->rank + i],
                           b = cp->factor[k][d * cp->rank + j];
                    ij += a * b;
                    ii += a * a;
                    jj += b * b;
                }
                product *= ii > 0 && jj > 0 ? ij / sqrt(ii * jj) : 0;
            }
            if (product < -.99)
                return true;
        }
    return false;
}

int tu_cp_fit(struct tu_cp *cp, const float *x, enum tu_cp_init init, struct tu_err *err)
{
    struct work w;
    double size = 0, last = INFINITY,
           tolerance = cp->tolerance > 0 ? cp->tolerance : 1e-8;
    unsigned most = cp->sweeps ? cp->sweeps : 200;
    if (cp->order < 3 || cp->order > TU_CP_ORDER || !cp->rank || cp->rank > RANK_MAX)
        return tu_fail(err, TU_EUSAGE, "order %u, rank %u: order 3 or 4, rank 1 to %u",
                       cp->order, cp->rank, RANK_MAX);
    int rc = work_init(&w, cp, err);
    for (unsigned k = 0; !rc && k < cp->order && init != TU_CP_GIVEN; k++) {
        for (uint64_t i = 0; i < cp->dim[k] * cp->rank; i++)
            cp->factor[k][i] = 1;
        if (init == TU_CP_SVD)
            rc = start_svd(cp, x, k, err);
    }
    for (uint64_t e = 0; !rc && e < elements(cp); e++)
        size += (double)x[e] * (double)x[e];
    for (cp->done = 0; !rc && cp->done < most;) {
        for (unsigned k = 0; k < cp->order; k++)
            solve_mode(cp, x, k, &w);
        cp->done++;
        cp->error = 0;
        for (uint64_t e = 0; e < elements(cp); e++) {
            double d = (double)x[e] - value_at(cp, e);
            cp->error += d * d;
        }
        if (fabs(cp->error - last) <= tolerance * size)
            break;
        last = cp->error;
    }
    if (!rc)
        cp->degenerate = is_degenerate(cp);
    tu_free(w.unfolded);
    tu_free(w.gram);
    return rc;
}

void tu_cp_normalise(struct tu_cp *cp, double *weight)
{
    unsigned r = cp->rank;
    for (unsigned c = 0; c < r; c++) {
        weight[c] = 1;
        for (unsigned k = 0; k < cp->order; k++) {
            double sum = 0;
            for (uint64_t d = 0; d < cp->dim[k]; d++)
                sum += cp->factor[k][d * r + c] * cp->factor[k][d * r + c];
            sum = sqrt(sum);
            weight[c] *= sum;
            for (uint64_t d = 0; sum > 0 && d < cp->dim[k]; d++)
                cp->factor[k][d * r + c] /= sum;
        }
    }
    for (unsigned c = 0; c < r; c++)
        for (unsigned b = c + 1; b < r; b++) {
            if (weight[b] <= weight[c])
                continue;
            double keep = weight[c];
            weight[c] = weight[b];
            weight[b] = keep;
            for (unsigned k = 0; k < cp->order; k++)
                for (uint64_t d = 0; d < cp->dim[k]; d++) {
                    keep = cp->factor[k][d * r + c];
                    cp->factor[k][d * r + c] = cp->factor[k][d * r + b];
                    cp->factor[k][d * r + b] = keep;
                }
        }
}

/* The codec: the factors below each other, and the weights. ----------------------------
 */

static uint64_t sum_of_dims(const struct tu_coding *c)
{
    uint64_t n = 0;
    for (unsigned k = 0; k < c->rank; k++)
        n += c->dim[k];
    return n;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t rank;
    int rc = tu_spec_u64(spec, "rank", 0, &rank, err);
    if (rc)
        return rc;
    if ((c->rank != 3 && c->rank != 4) || !rank || rank > RANK_MAX || !c->elements)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'cp': order %u, rank %" PRIu64 ": order 3 or 4, rank 1 "
                       "to %u",
                       c->rank, rank, RANK_MAX);
    c->param[0] = (int64_t)rank;
    c->atom = c->elements;
    c->code = (struct tu_part){.dtype = TU_F32,
                               .rank = 2,
                               .dim = {sum_of_dims(c), rank},
                               .atom_bytes = sum_of_dims(c) * rank * 4};
    c->side[0] =
        (struct tu_part){.suffix = "weight", .dtype = TU_F32, .rank = 1, .dim = {rank}};
    c->sides = 1;
    return 0;
}

/* Factors in one block, filled by the caller or from it. */
static double *describe(const struct tu_coding *c, struct tu_cp *cp, struct tu_err *err)
{
    *cp =
        (struct tu_cp){.order = c->rank, .rank = (unsigned)c->param[0], .seed = c->seed};
    double *f = tu_alloc((size_t)sum_of_dims(c) * cp->rank + cp->rank, sizeof *f, err),
           *at = f;
    for (unsigned k = 0; f && k < c->rank; k++) {
        cp->dim[k] = c->dim[k];
        cp->factor[k] = at;
        at += c->dim[k] * cp->rank;
    }
    return f;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)n;
    struct tu_cp cp;
    double *f = describe(c, &cp, err);
    int rc = f ? tu_cp_fit(&cp, x, TU_CP_SVD, err) : TU_ENOMEM;
    if (!rc) {
        uint64_t count = sum_of_dims(c) * cp.rank;
        tu_cp_normalise(&cp, f + count);
        for (uint64_t i = 0; i < count; i++)
            ((float *)code)[i] = (float)f[i];
        for (unsigned r = 0; r < cp.rank; r++)
            ((float *)side[0])[r] = (float)f[count + r];
    }
    tu_free(f);
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    struct tu_cp cp;
    double *f = describe(c, &cp, err);
    if (!f)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < sum_of_dims(c) * cp.rank; i++)
        f[i] = (double)((const float *)code)[i];
    for (uint64_t i = 0; i < cp.dim[0] * cp.rank; i++)
        cp.factor[0][i] *= (double)((const float *)side[0])[i % cp.rank];
    for (uint64_t e = 0; e < n; e++)
        x[e] = (float)value_at(&cp, e);
    tu_free(f);
    return 0;
}

static const char *const key[] = {"rank", NULL};

const struct tu_codec tui_codecs_cp[] = {
    {.name = "cp",
     .help = "sums of outer products, order 3 and 4",
     .source = "T. Kolda, B. Bader, 2009",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
