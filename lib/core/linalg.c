/* SPDX-License-Identifier: Apache-2.0 */
/* linalg.c: Cholesky, symmetric eigenvectors and singular vectors by Jacobi rotations.
 * Source: G. Golub, C. Van Loan, "Matrix Computations", 4.2, 8.5 and 8.6. Not for speed.
 */
#include <math.h>
#include <string.h>
#include "tensorutils/core/linalg.h"
#include "tensorutils/core/mem.h"

enum { SWEEPS = 60 };

bool tu_cholesky(double *a, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double d = a[j * n + j];
        for (size_t k = 0; k < j; k++)
            d -= a[j * n + k] * a[j * n + k];
        if (!(d > 0) || isinf(d))
            return false;
        d = sqrt(d);
        a[j * n + j] = d;
        for (size_t i = j + 1; i < n; i++) {
            double v = a[i * n + j];
            for (size_t k = 0; k < j; k++)
                v -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = v / d;
            a[j * n + i] = 0;
        }
    }
    return true;
}

int tu_cholesky_inverse(double *l, size_t n, struct tu_err *err)
{
    double *w = tu_calloc(n * n, sizeof *w, err); /* L's inverse, lower */
    if (!w)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        w[i * n + i] = 1 / l[i * n + i];
        for (size_t k = 0; k < i; k++)
            for (size_t j = 0; j <= k; j++)
                w[i * n + j] -= l[i * n + k] * w[k * n + j] / l[i * n + i];
    }
    memset(l, 0, n * n * sizeof *l);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i <= k; i++)
            for (size_t j = 0; j <= k; j++)
                l[i * n + j] += w[k * n + i] * w[k * n + j];
    tu_free(w);
    return 0;
}

/* Cosine and sine that make the off-diagonal entry of [[p, q], [q, r]] zero. */
static void rotation(double p, double q, double r, double *c, double *s)
{
    double tau = (r - p) / (2 * q);
    double t = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau));
    *c = 1 / sqrt(1 + t * t);
    *s = *c * t;
}

static void rotate(double *x, double *y, size_t stride, size_t n, double c, double s)
{
    for (size_t i = 0; i < n; i++) {
        double a = x[i * stride], b = y[i * stride];
        x[i * stride] = c * a - s * b;
        y[i * stride] = s * a + c * b;
    }
}

/* Sort columns by value, descending, and make the largest entry of each column of v
 * positive (u, if any, turns with it). */
static void arrange(double *value, size_t k, double *v, size_t n, double *u, size_t m)
{
    for (size_t j = 0; j < k; j++) {
        size_t best = j, top = 0;
        for (size_t i = j + 1; i < k; i++)
            best = value[i] > value[best] ? i : best;
        double keep = value[j];
        value[j] = value[best];
        value[best] = keep;
        for (size_t i = 0; best != j && i < n; i++) {
            keep = v[i * k + j];
            v[i * k + j] = v[i * k + best];
            v[i * k + best] = keep;
        }
        for (size_t i = 0; best != j && i < m; i++) {
            keep = u[i * k + j];
            u[i * k + j] = u[i * k + best];
            u[i * k + best] = keep;
        }
        for (size_t i = 1; i < n; i++)
            if (fabs(v[i * k + j]) > fabs(v[top * k + j]) * (1 + 1e-12))
                top = i;
        if (n && v[top * k + j] < 0) {
            for (size_t i = 0; i < n; i++)
                v[i * k + j] = -v[i * k + j];
            for (size_t i = 0; i < m; i++)
                u[i * k + j] = -u[i * k + j];
        }
    }
}

void tu_eigen(double *a, size_t n, double *value, double *v)
{
    memset(v, 0, n * n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i * n + i] = 1;
    for (unsigned sweep = 0, turned = 1; sweep < SWEEPS && turned; sweep++) {
        turned = 0;
        for (size_t p = 0; p + 1 < n; p++)
            for (size_t q = p + 1; q < n; q++) {
                double off = a[p * n + q], c, s;
                if (fabs(off) <= 1e-17 * sqrt(fabs(a[p * n + p] * a[q * n + q])) ||
                    off == 0)
                    continue;
                turned = 1;
                rotation(a[p * n + p], off, a[q * n + q], &c, &s);
                rotate(a + p, a + q, n, n, c, s);
                rotate(a + p * n, a + q * n, 1, n, c, s);
                rotate(v + p, v + q, n, n, c, s);
            }
    }
    for (size_t i = 0; i < n; i++)
        value[i] = a[i * n + i];
    arrange(value, n, v, n, NULL, 0);
}

/* w [m, n] with m ≥ n: rotate its columns until they are orthogonal. */
static void orthogonalise(double *w, size_t m, size_t n, double *v)
{
    for (unsigned sweep = 0, turned = 1; sweep < SWEEPS && turned; sweep++) {
        turned = 0;
        for (size_t p = 0; p + 1 < n; p++)
            for (size_t q = p + 1; q < n; q++) {
                double pp = 0, pq = 0, qq = 0, c, s;
                for (size_t i = 0; i < m; i++) {
                    pp += w[i * n + p] * w[i * n + p];
                    pq += w[i * n + p] * w[i * n + q];
                    qq += w[i * n + q] * w[i * n + q];
                }
                if (fabs(pq) <= 1e-15 * sqrt(pp * qq) || pq == 0)
                    continue;
                turned = 1;
                rotation(pp, pq, qq, &c, &s);
                rotate(w + p, w + q, n, m, c, s);
                rotate(v + p, v + q, n, n, c, s);
            }
    }
}

int tu_svd(const double *a, size_t m, size_t n, double *u, double *s, double *v,
            struct tu_err *err)
{
    bool wide = m < n;
    size_t rows = wide ? n : m, cols = wide ? m : n;
    double *w = tu_alloc(rows * cols, sizeof *w, err), *turn = NULL;
    if (!w || !(turn = tu_calloc(cols * cols, sizeof *turn, err))) {
        tu_free(w);
        return TU_ENOMEM;
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            w[i * cols + j] = wide ? a[j * n + i] : a[i * n + j];
    for (size_t j = 0; j < cols; j++)
        turn[j * cols + j] = 1;
    orthogonalise(w, rows, cols, turn);
    for (size_t j = 0; j < cols; j++) {
        double sum = 0;
        for (size_t i = 0; i < rows; i++)
            sum += w[i * cols + j] * w[i * cols + j];
        s[j] = sqrt(sum);
        for (size_t i = 0; i < rows; i++)
            w[i * cols + j] = s[j] > 0 ? w[i * cols + j] / s[j] : 0;
    }
    memcpy(wide ? v : u, w, rows * cols * sizeof *w);
    memcpy(wide ? u : v, turn, cols * cols * sizeof *turn);
    arrange(s, cols, v, n, u, m);
    tu_free(w);
    tu_free(turn);
    return 0;
}

void tu_product(const double *a, bool ta, const double *b, bool tb, size_t m, size_t n,
                 size_t k, double *c)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t l = 0; l < k; l++)
                sum += (ta ? a[l * m + i] : a[i * k + l]) *
                       (tb ? b[j * k + l] : b[l * n + j]);
            c[i * n + j] = sum;
        }
}
