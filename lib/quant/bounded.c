/* SPDX-License-Identifier: Apache-2.0 */
/* bounded.c: multilevel reduction with a bound on every element's error.
 *
 * A block has 2^L + 1 points. From level to level the odd points are replaced by their
 * difference from the mean of their even neighbours; ends and details are then whole
 * numbers of steps of 2·bound/(L+1). Interpolation does not amplify errors, so each
 * element is off by at most L+1 half steps. Every block is decoded again before it is
 * written; one that breaks the bound all the same is stored as floats.
 *
 * Block: u8 0 and the f64 step, then for the two ends and each level, coarse to fine, u8
 * width and zigzag numbers of that width, lowest bits first; or u8 1 and the floats. Not
 * for tensors of several dimensions: their order is kept. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "tensorutils/quant/gradient.h"

enum { LEVELS = 10, POINTS = (1 << LEVELS) + 1, STEPS = 0, RAW = 1 };

/* The largest L whose block fits into n points; -1: none. */
static int levels_of(uint64_t n)
{
    int l = LEVELS;
    while (l >= 0 && (UINT64_C(1) << l) + 1 > n)
        l--;
    return l;
}

/* v [2^l + 1] to details, in place: an odd point of step s less its neighbours' mean. */
static void take_apart(double *v, int l)
{
    for (size_t s = 1; s < (size_t)1 << l; s *= 2)
        for (size_t i = s; i < (size_t)1 << l; i += 2 * s)
            v[i] -= (v[i - s] + v[i + s]) / 2;
}

static void put_together(double *v, int l)
{
    for (size_t s = ((size_t)1 << l) / 2; s; s /= 2)
        for (size_t i = s; i < (size_t)1 << l; i += 2 * s)
            v[i] += (v[i - s] + v[i + s]) / 2;
}

static bool fits(const double *v, const float *x, size_t n, double bound)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)(float)v[i] - (double)x[i]) <= bound))
            return false;
    return true;
}

static int put_raw(const float *x, size_t n, struct tu_buf *out, struct tu_err *err)
{
    unsigned char kind = RAW;
    int rc = tu_buf_add(out, &kind, 1, err);
    for (size_t i = 0; i < n && !rc; i++) {
        unsigned char b[4];
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        tu_put32(b, bits);
        rc = tu_buf_add(out, b, sizeof b, err);
    }
    return rc;
}

/* The points of group k of a block: the ends, then level after level. */
struct points {
    size_t first, stride, n;
};

static struct points points_of(int l, int k)
{
    size_t last = (size_t)1 << l;
    if (k == 0)
        return (struct points){0, last, 2};
    return (struct points){last >> k, last >> (k - 1), (size_t)1 << (k - 1)};
}

static uint64_t zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t) - (v < 0);
}

static int put_group(const int64_t *q, struct points g, struct tu_buf *out,
                     struct tu_err *err)
{
    uint64_t all = 0;
    for (size_t i = 0; i < g.n; i++)
        all |= zigzag(q[g.first + i * g.stride]);
    unsigned width = all ? 64 - (unsigned)__builtin_clzll(all) : 0;
    size_t bytes = 1 + (g.n * width + 7) / 8;
    unsigned char *p = tu_buf_room(out, bytes, err);
    if (!p)
        return TU_ENOMEM;
    memset(p, 0, bytes);
    p[0] = (unsigned char)width;
    for (size_t i = 0; i < g.n; i++)
        for (unsigned b = 0; b < width; b++)
            if (zigzag(q[g.first + i * g.stride]) >> b & 1)
                p[1 + (i * width + b) / 8] |= (unsigned char)(1u << (i * width + b) % 8);
    out->n += bytes;
    return 0;
}

static int put_steps(const int64_t *q, int l, double step, struct tu_buf *out,
                     struct tu_err *err)
{
    unsigned char head[9] = {STEPS};
    uint64_t bits;
    memcpy(&bits, &step, sizeof bits);
    tu_put64(head + 1, bits);
    int rc = tu_buf_add(out, head, sizeof head, err);
    for (int k = 0; k <= l && !rc; k++)
        rc = put_group(q, points_of(l, k), out, err);
    return rc;
}

static int put_block(const float *x, int l, double bound, struct tu_buf *out,
                     struct tu_err *err)
{
    double v[POINTS], step = 2 * bound / (l + 1);
    int64_t q[POINTS];
    size_t n = l < 0 ? 1 : ((size_t)1 << l) + 1;
    for (size_t i = 0; i < n; i++)
        v[i] = (double)x[i];
    if (l < 0 || !(step > 0))
        return put_raw(x, n, out, err);
    take_apart(v, l);
    for (size_t i = 0; i < n; i++) {
        double k = rint(v[i] / step);
        if (!(fabs(k) < 0x1p30))
            return put_raw(x, n, out, err);
        q[i] = (int64_t)k;
        v[i] = k * step;
    }
    put_together(v, l);
    return fits(v, x, n, bound) ? put_steps(q, l, step, out, err)
                                : put_raw(x, n, out, err);
}

int tu_bounded_encode(const float *x, uint64_t n, double bound, bool relative,
                      struct tu_buf *out, struct tu_err *err)
{
    if (!(bound > 0) || isinf(bound))
        return tu_fail(err, TU_EUSAGE, "error bound %g: a positive number", bound);
    if (relative) {
        double lo = INFINITY, hi = -INFINITY;
        for (uint64_t i = 0; i < n; i++) {
            lo = isfinite(x[i]) ? fmin(lo, (double)x[i]) : lo;
            hi = isfinite(x[i]) ? fmax(hi, (double)x[i]) : hi;
        }
        bound *= hi > lo ? hi - lo : 0;
    }
    int rc = 0;
    for (uint64_t i = 0; i < n && !rc;) {
        int l = levels_of(n - i);
        rc = put_block(x + i, l, bound, out, err);
        i += l < 0 ? 1 : (UINT64_C(1) << l) + 1;
    }
    return rc;
}

/* What is left to read. */
struct bytes {
    const unsigned char *p;
    size_t size, at;
};

static const unsigned char *take(struct bytes *b, size_t n, struct tu_err *err)
{
    if (b->size - b->at < n) {
        tu_fail_at(err, TU_ETRUNC, b->at, "%zu bytes wanted, %zu there", n,
                   b->size - b->at);
        return NULL;
    }
    b->at += n;
    return b->p + b->at - n;
}

static int get_group(struct bytes *b, struct points g, double step, double *v,
                     struct tu_err *err)
{
    const unsigned char *p = take(b, 1, err);
    if (!p)
        return TU_ETRUNC;
    unsigned width = *p;
    if (width > 32)
        return tu_fail_at(err, TU_EFORMAT, b->at - 1, "numbers of %u bits", width);
    if (!(p = take(b, (g.n * width + 7) / 8, err)))
        return TU_ETRUNC;
    for (size_t i = 0; i < g.n; i++) {
        uint64_t z = 0;
        for (unsigned k = 0; k < width; k++)
            z |= (uint64_t)(p[(i * width + k) / 8] >> (i * width + k) % 8 & 1) << k;
        v[g.first + i * g.stride] =
            (z & 1 ? -(double)(z >> 1) - 1 : (double)(z >> 1)) * step;
    }
    return 0;
}

static int get_block(struct bytes *b, float *x, int l, struct tu_err *err)
{
    double v[POINTS], step;
    size_t n = l < 0 ? 1 : ((size_t)1 << l) + 1;
    const unsigned char *p = take(b, 1, err);
    if (!p)
        return TU_ETRUNC;
    if (*p > RAW || (*p == STEPS && l < 0))
        return tu_fail_at(err, TU_EFORMAT, b->at - 1, "a block of kind %u", *p);
    bool raw = *p == RAW;
    if (!(p = take(b, raw ? 4 * n : 8, err)))
        return TU_ETRUNC;
    for (size_t i = 0; raw && i < n; i++) {
        uint32_t bits = tu_le32(p + 4 * i);
        memcpy(&x[i], &bits, sizeof bits);
    }
    if (raw)
        return 0;
    uint64_t bits = tu_le64(p);
    memcpy(&step, &bits, sizeof step);
    for (int k = 0; k <= l; k++) {
        int rc = get_group(b, points_of(l, k), step, v, err);
        if (rc)
            return rc;
    }
    put_together(v, l);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)v[i];
    return 0;
}

int tu_bounded_decode(const void *p, size_t size, float *x, uint64_t n, size_t *used,
                      struct tu_err *err)
{
    struct bytes b = {p, size, 0};
    int rc = 0;
    for (uint64_t i = 0; i < n && !rc;) {
        int l = levels_of(n - i);
        rc = get_block(&b, x + i, l, err);
        i += l < 0 ? 1 : (UINT64_C(1) << l) + 1;
    }
    *used = b.at;
    return rc;
}
