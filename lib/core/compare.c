/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c: see compare.h. 64-bit integers are doubles and what these leave of them:
 * doubles alone would call neighbours above 2^53 equal. */
#include <math.h>
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/compare.h"
#include "tensorutils/core/dtype.h"
#include "tensorutils/core/float.h"

#define RUN 1024 /* values at once */

unsigned tu_compare_parts(uint32_t dtype)
{
    return dtype == TU_C64 || dtype == TU_C128 ? 2 : 1;
}

/* Value i of an array as a whole number that counts the representable values in their
 * order. */
static int64_t ordinal(uint32_t dtype, const unsigned char *p, size_t i)
{
    uint64_t v = 0, sign;
    size_t n = tu_dtype_find(dtype)->block_bytes / tu_compare_parts(dtype);
    for (size_t k = n; k-- > 0;)
        v = v << 8 | p[i * n + k];
    if (dtype == TU_F8_E8M0)
        return (int64_t)v;
    sign = UINT64_C(1) << (8 * n - 1);
    /* Sign and magnitude: both zeros are 0. */
    return v & sign ? -(int64_t)(v & (sign - 1)) : (int64_t)v;
}

static bool is_wide(uint32_t dtype)
{
    return dtype == TU_I64 || dtype == TU_U64;
}

/* What 64-bit integer i of an array is beyond v, the double nearest to it. */
static double rest(const unsigned char *p, size_t i, double v)
{
    uint64_t near = v < 0 ? (uint64_t)(int64_t)v : v < 0x1p64 ? (uint64_t)v : 0;
    return (double)(int64_t)(tu_le64(p + 8 * i) - near);
}

struct pair {
    uint32_t dtype; /* of both, TU_DTYPE_NONE where they differ or have no whole bytes */
    bool wide_a, wide_b;
    const unsigned char *a, *b;
};

/* Steps between values i, UINT64_MAX where that has no meaning. */
static uint64_t steps(const struct pair *p, size_t i, double abs)
{
    if (p->dtype == TU_DTYPE_NONE || !isfinite(abs))
        return UINT64_MAX;
    if (is_wide(p->dtype)) {
        uint64_t x = tu_le64(p->a + 8 * i), y = tu_le64(p->b + 8 * i);
        bool less = p->dtype == TU_I64 ? (int64_t)x < (int64_t)y : x < y;
        return tu_min(less ? y - x : x - y, UINT64_MAX - 1);
    }
    if (!tu_dtype_is_float(p->dtype) && tu_compare_parts(p->dtype) == 1)
        return (uint64_t)abs;
    int64_t x = ordinal(p->dtype, p->a, i), y = ordinal(p->dtype, p->b, i);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

static void add_pair(struct tu_compare *c, const struct tu_tolerance *tol, const struct pair *p,
                     size_t i, double a, double b, uint64_t number)
{
    double beyond = (p->wide_a ? rest(p->a, i, a) : 0) - (p->wide_b ? rest(p->b, i, b) : 0);
    double abs = fabs(a - b + beyond);
    if (a == b && beyond == 0)
        abs = 0; /* infinities too */
    else if (isnan(a) && isnan(b))
        return;
    else if (!isfinite(a) || !isfinite(b))
        abs = INFINITY;
    if (isfinite(a) && isfinite(b)) {
        c->aa += a * a;
        c->bb += b * b;
        c->ab += a * b;
        c->dd += abs * abs;
    }
    if (abs == 0)
        return;
    uint64_t ulp = steps(p, i, abs);
    bool near = abs <= tol->atol + tol->rtol * fabs(b) && isfinite(abs);
    if (!c->differ || abs > c->max_abs) {
        c->worst = number;
        c->worst_a = a;
        c->worst_b = b;
    }
    c->differ++;
    c->outside += !near && (ulp == UINT64_MAX || ulp > tol->ulp);
    c->max_abs = fmax(c->max_abs, abs);
    if (b != 0 && !isnan(b))
        c->max_rel = fmax(c->max_rel, isfinite(abs) ? abs / fabs(b) : INFINITY);
    if (ulp != UINT64_MAX && ulp > c->max_ulp)
        c->max_ulp = ulp;
}

int tu_compare_add(struct tu_compare *c, const struct tu_tolerance *tol, uint32_t dtype_a,
                   const void *a, uint32_t dtype_b, const void *b, size_t n, uint64_t first,
                   struct tu_err *err)
{
    const struct tu_dtype *da = tu_dtype_find(dtype_a), *db = tu_dtype_find(dtype_b);
    unsigned parts = tu_compare_parts(dtype_a);
    if (!da || !db || parts != tu_compare_parts(dtype_b))
        return tu_fail(err, TU_EDTYPE, "%s and %s cannot be compared by value",
                       da ? da->name : "an unknown dtype", db ? db->name : "an unknown dtype");
    double va[RUN], vb[RUN];
    struct pair p = {.dtype = dtype_a == dtype_b && da->block_elems == 1 ? dtype_a
                                                                         : TU_DTYPE_NONE,
                     .wide_a = is_wide(dtype_a), .wide_b = is_wide(dtype_b)};
    for (size_t i = 0; i < n;) {
        /* RUN is a multiple of every number of packed elements, so runs begin with bytes. */
        size_t run = (size_t)tu_min(RUN / parts, n - i);
        p.a = (const unsigned char *)a + i / da->block_elems * da->block_bytes;
        p.b = (const unsigned char *)b + i / db->block_elems * db->block_bytes;
        int code = tu_to_double(dtype_a, p.a, va, run, err);
        if (!code)
            code = tu_to_double(dtype_b, p.b, vb, run, err);
        if (code)
            return code;
        struct tu_compare one = { .n = run * parts };
        for (size_t k = 0; k < run * parts; k++)
            add_pair(&one, tol, &p, k, va[k], vb[k], (first + i) * parts + k);
        tu_compare_merge(c, &one);
        i += run;
    }
    return 0;
}

void tu_compare_merge(struct tu_compare *c, const struct tu_compare *later)
{
    if (later->differ && (!c->differ || later->max_abs > c->max_abs)) {
        c->worst = later->worst;
        c->worst_a = later->worst_a;
        c->worst_b = later->worst_b;
    }
    c->n += later->n;
    c->differ += later->differ;
    c->outside += later->outside;
    c->max_abs = fmax(c->max_abs, later->max_abs);
    c->max_rel = fmax(c->max_rel, later->max_rel);
    c->max_ulp = tu_max(c->max_ulp, later->max_ulp);
    c->aa += later->aa;
    c->bb += later->bb;
    c->ab += later->ab;
    c->dd += later->dd;
}

double tu_compare_cosine(const struct tu_compare *c)
{
    if (c->aa == 0 || c->bb == 0)
        return c->aa == c->bb;
    return c->ab / (sqrt(c->aa) * sqrt(c->bb));
}

double tu_compare_sqnr(const struct tu_compare *c)
{
    return c->dd == 0 ? INFINITY : 10 * log10(c->bb / c->dd);
}
