/* SPDX-License-Identifier: Apache-2.0 */
/* interference.c: what operations that run at once cost one another: curves of speed over
 * the share of a device's units, from a table of measurements.
 *
 * What overlaps and how is in overlap.c. */
#include <stdio.h>
#include <string.h>
#include "tensorutils/sched/plan.h"

double tu_curve_at(const struct tu_curve *c, double share)
{
    double x0 = 0, y0 = 0;
    if (!c->n)
        return 1;
    for (size_t i = 0; i <= c->n; i++) {
        double x1 = i < c->n ? c->share[i] : 1, y1 = i < c->n ? c->speed[i] : 1;
        if (share <= x1)
            return x1 > x0 ? y0 + (y1 - y0) * (share - x0) / (x1 - x0) : y1;
        x0 = x1, y0 = y1;
    }
    return 1;
}

static int line_of(struct tu_interference *x, const char *line, struct tu_err *err)
{
    char name[16], rest;
    double share, speed;
    struct tu_curve *c;
    if (sscanf(line, " %15[a-z] , %lf , %lf %c", name, &share, &speed, &rest) != 3)
        return tu_fail(err, TU_EFORMAT,
                       "'%.40s': compute or network,SHARE,SPEED is expected", line);
    c = !strcmp(name, "compute")   ? &x->compute
        : !strcmp(name, "network") ? &x->network
                                   : NULL;
    if (!c)
        return tu_fail(err, TU_EFORMAT, "'%s': neither compute nor network", name);
    double low = c->n ? c->share[c->n - 1] : 0, slow = c->n ? c->speed[c->n - 1] : 0;
    if (!(share > low && share < 1) || !(speed > 0 && speed >= slow && speed <= 1))
        return tu_fail(err, TU_EFORMAT,
                       "%s,%g,%g: shares rise between 0 and 1, and speeds do not fall",
                       name, share, speed);
    if (c->n == TU_CURVE_MAX)
        return tu_fail(err, TU_EFORMAT, "more than %d rows of %s", TU_CURVE_MAX, name);
    c->share[c->n] = share;
    c->speed[c->n++] = speed;
    return 0;
}

int tu_interference_read(struct tu_interference *x, const char *text, size_t n,
                         struct tu_err *err)
{
    size_t number = 0, at = 0;
    int rc = 0;
    while (at < n && !rc) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t size = end ? (size_t)(end - text) - at : n - at;
        char line[80];
        snprintf(line, sizeof line, "%.*s", (int)tu_min(size, sizeof line - 1), text + at);
        line[strcspn(line, "#\r")] = 0;
        number++;
        if (line[strspn(line, " \t")])
            rc = line_of(x, line, err);
        if (rc)
            tu_err_prefix(err, "line %zu", number);
        at += size + 1;
    }
    if (!rc && (!x->network.n || !x->compute.n))
        rc = tu_fail(err, TU_EFORMAT, "rows of both compute and network are needed");
    return rc;
}
