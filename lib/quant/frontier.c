/* SPDX-License-Identifier: Apache-2.0 */
/* frontier.c: the best types for a size: the convex hulls of all tensors, merged by
 * slope. */
#include <math.h>
#include <stdlib.h>
#include "tensorutils/quant.h"

/* A move of one tensor along its hull. */
struct edge {
    double slope; /* error that a byte takes away */
    size_t tensor, order, way;
    uint64_t bytes;
    double error;
};

static int by_slope(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->slope != y->slope)
        return x->slope > y->slope ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The way from `at` that takes most error away for a byte; ways if none takes any. */
static size_t steepest(const struct tu_way *w, size_t ways, size_t at, double *slope)
{
    size_t best = ways;
    *slope = 0;
    for (size_t k = 0; k < ways; k++) {
        if (isnan(w[k].error) || w[k].bytes <= w[at].bytes || w[k].error >= w[at].error)
            continue;
        double s = (w[at].error - w[k].error) / (double)(w[k].bytes - w[at].bytes);
        if (s > *slope || (s == *slope && w[k].bytes > w[best].bytes)) {
            *slope = s;
            best = k;
        }
    }
    return best;
}

/* Smallest way, of these the one of least error; ways if none fits. */
static size_t smallest(const struct tu_way *w, size_t ways)
{
    size_t best = ways;
    for (size_t k = 0; k < ways; k++)
        if (!isnan(w[k].error) &&
            (best == ways || w[k].bytes < w[best].bytes ||
             (w[k].bytes == w[best].bytes && w[k].error < w[best].error)))
            best = k;
    return best;
}

int tu_frontier(const struct tu_way *way, size_t tensors, size_t ways, size_t *first,
                struct tu_step **step, size_t *steps, struct tu_err *err)
{
    uint64_t most;
    if (tu_mul_over(tensors, ways, &most) || most >= SIZE_MAX)
        return tu_fail(err, TU_ENOMEM, "%zu tensors in %zu ways", tensors, ways);
    struct edge *edge = tu_alloc((size_t)most, sizeof *edge, err);
    struct tu_step *out = tu_alloc((size_t)most + 1, sizeof *out, err);
    size_t n = 0;
    int rc = edge && out ? 0 : TU_ENOMEM;
    struct tu_step sum = {.tensor = SIZE_MAX};
    for (size_t i = 0; !rc && i < tensors; i++) {
        const struct tu_way *w = way + i * ways;
        size_t at = first[i] = smallest(w, ways), order = 0;
        if (at == ways) {
            rc = tu_fail(err, TU_EUSAGE, "tensor %zu: no type fits", i);
            break;
        }
        sum.bytes += w[at].bytes;
        sum.error += w[at].error;
        double slope;
        for (size_t to; (to = steepest(w, ways, at, &slope)) != ways; at = to)
            edge[n++] = (struct edge){slope,
                                      i,
                                      order++,
                                      to,
                                      w[to].bytes - w[at].bytes,
                                      w[at].error - w[to].error};
    }
    if (!rc) {
        qsort(edge, n, sizeof *edge, by_slope);
        out[0] = sum;
        for (size_t i = 0; i < n; i++) {
            sum.bytes += edge[i].bytes;
            sum.error -= edge[i].error;
            out[i + 1] =
                (struct tu_step){edge[i].tensor, edge[i].way, sum.bytes, sum.error};
        }
        *step = out;
        *steps = n + 1;
        out = NULL;
    }
    tu_free(edge);
    tu_free(out);
    return rc;
}
