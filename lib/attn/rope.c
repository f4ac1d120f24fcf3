/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c: rotary positions, in place, before attention.
 *
 * Pair c of the first `dim` columns turns by position · theta^(-2c/dim): columns (c, c +
 * dim/2), or (2c, 2c + 1) when interleaved. Computed in float64, rounded once to the
 * storage dtype. Source: Su et al., "RoFormer", 2021. */
#include <math.h>
#include "attn/problem.h"

static void turn(double *x, uint64_t dim, double theta, bool interleaved, double pos)
{
    for (uint64_t c = 0; c < dim / 2; c++) {
        uint64_t a = interleaved ? 2 * c : c, b = interleaved ? 2 * c + 1 : c + dim / 2;
        double angle = pos * pow(theta, -2 * (double)c / (double)dim);
        double s = sin(angle), k = cos(angle), u = x[a], v = x[b];
        x[a] = u * k - v * s;
        x[b] = u * s + v * k;
    }
}

int tu_rope(const struct tu_operand *o, int layout, double theta, uint64_t dim,
            bool interleaved, const int64_t *at, int64_t first, struct tu_err *err)
{
    struct tu_rows r;
    uint64_t d[4];
    int code = tui_rows_of(&r, d, o, layout, err);
    if (code)
        return code;
    if (dim == 0 || dim % 2 || dim > r.dim || !(theta > 0))
        return tu_fail(err, TU_EUSAGE, "--rope: %llu of the %llu columns of '%s'",
                       (unsigned long long)dim, (unsigned long long)r.dim, o->name);
    double *row = tu_alloc(r.dim, sizeof *row, err);
    if (!row)
        return TU_ENOMEM;
    for (uint64_t i = 0; !code && i < d[0] * d[1] * d[2]; i++) {
        uint64_t b = i / (d[1] * d[2]), t = i / d[2] % d[1], h = i % d[2];
        unsigned char *p =
            r.data + (int64_t)r.elem * ((int64_t)b * r.batch + (int64_t)t * r.token +
                                        (int64_t)h * r.head);
        code = tu_to_double(r.dtype, p, row, r.dim, err);
        if (code)
            break;
        turn(row, dim, theta, interleaved,
             (double)(at ? at[b * d[1] + t] : first + (int64_t)t));
        code = tu_cast(r.dtype, p, TU_F64, row, r.dim, err);
    }
    tu_free(row);
    return code;
}
