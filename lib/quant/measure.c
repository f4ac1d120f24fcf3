/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c: how far decoded numbers are from what they were.
 *
 * Element i of a leaf adds to lane i % LANES; the lanes are folded in halves. So a leaf's
 * digits depend on its elements alone, and vector code keeps them. */
#include <math.h>
#include <string.h>
#include "tensorutils/quant.h"

#define LANES 16

struct lanes {
    double x2[LANES], y2[LANES], xy[LANES], e[LANES], e2[LANES];
};

static double fold(double *v)
{
    for (unsigned half = LANES / 2; half; half /= 2)
        for (unsigned i = 0; i < half; i++)
            v[i] += v[i + half];
    return v[0];
}

/* LANES elements that are all finite. */
static inline void add_lanes(struct lanes *s, const float *x, const float *y)
{
    for (unsigned i = 0; i < LANES; i++) {
        double a = (double)x[i], b = (double)y[i], e = b - a;
        s->x2[i] += a * a;
        s->y2[i] += b * b;
        s->xy[i] += a * b;
        s->e[i] += e;
        s->e2[i] += e * e;
    }
}

/* Largest |y - x| of a run, and where; n counts elements that are finite on both
 * sides. */
static void worst(struct tu_measure *m, const float *x, const float *y, uint64_t first,
                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double e = fabs((double)y[i] - (double)x[i]);
        if (e > m->max_abs) {
            m->max_abs = e;
            m->max_at = first + i;
        }
    }
}

static void count_clipped(struct tu_measure *m, const float *x, const float *y, size_t n)
{
    float top = 0;
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(y[i]);
        top = a > top ? a : top;
        m->zeros += y[i] == 0;
    }
    for (size_t i = 0; i < n; i++)
        m->clipped += fabsf(x[i]) > top;
}

static bool all_finite(const float *x, size_t n)
{
    float sum = 0; /* 0·x is NaN for NaN and Inf */
    for (size_t i = 0; i < n; i++)
        sum += 0 * x[i];
    return sum == 0;
}

/* Where some x are not finite: count them and take them out, as zeros on both sides. */
static void strip(struct tu_measure *m, float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            continue;
        m->nan += isnan(x[i]);
        m->inf += isinf(x[i]) != 0;
        x[i] = y[i] = 0;
    }
}

void tu_measure_add(struct tu_measure *m, const float *x, const float *y, uint64_t first,
                    size_t n, uint64_t atom)
{
    struct lanes s;
    memset(&s, 0, sizeof s);
    m->n += n;
    uint64_t before = m->nan + m->inf;
    for (size_t i = 0; i < n; i += LANES) {
        size_t k = n - i < LANES ? n - i : LANES;
        float a[LANES] = {0}, b[LANES] = {0};
        memcpy(a, x + i, k * sizeof *a);
        memcpy(b, y + i, k * sizeof *b);
        if (!all_finite(a, k))
            strip(m, a, b, k);
        add_lanes(&s, a, b);
        worst(m, a, b, first + i, k);
    }
    m->n -= m->nan + m->inf - before;
    for (size_t i = 0; i < n; i += (size_t)tu_min(atom, n - i))
        count_clipped(m, x + i, y + i, (size_t)tu_min(atom, n - i));
    m->sum_x2 += fold(s.x2);
    m->sum_y2 += fold(s.y2);
    m->sum_xy += fold(s.xy);
    m->sum_e += fold(s.e);
    m->sum_e2 += fold(s.e2);
}

void tu_measure_merge(struct tu_measure *m, const struct tu_measure *next)
{
    m->n += next->n;
    m->sum_x2 += next->sum_x2;
    m->sum_y2 += next->sum_y2;
    m->sum_xy += next->sum_xy;
    m->sum_e += next->sum_e;
    m->sum_e2 += next->sum_e2;
    m->clipped += next->clipped;
    m->zeros += next->zeros;
    m->nan += next->nan;
    m->inf += next->inf;
    if (next->max_abs > m->max_abs) {
        m->max_abs = next->max_abs;
        m->max_at = next->max_at;
    }
}

double tu_measure_rmse(const struct tu_measure *m)
{
    return m->n ? sqrt(m->sum_e2 / (double)m->n) : 0;
}

double tu_measure_relative(const struct tu_measure *m)
{
    return m->sum_e2 == 0 ? 0 : sqrt(m->sum_e2 / m->sum_x2);
}

double tu_measure_sqnr(const struct tu_measure *m)
{
    return m->sum_e2 == 0 ? INFINITY : 10 * log10(m->sum_x2 / m->sum_e2);
}

double tu_measure_cosine(const struct tu_measure *m)
{
    double d = sqrt(m->sum_x2) * sqrt(m->sum_y2);
    if (d == 0)
        return NAN;
    double c = m->sum_xy / d;
    return m->sum_e2 == 0 || c > 1 ? 1 : c;
}
