/* SPDX-License-Identifier: Apache-2.0 */
/* axis.c: ranges, marks and their labels, linear and logarithmic.
 *
 * Steps are 1, 2 or 5 times a power of ten; the limits of an axis are marks. Powers of
 * ten are made by multiplication and division, so that every machine picks the same
 * marks. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "draw/draw.h"

/* Numbers and spans below this are as good as nothing: powers of ten and quotients of
 * smaller ones leave the range of a double. */
#define TINY 1e-290

static double power10(int e)
{
    double v = 1;
    for (int i = 0; i < (e < 0 ? -e : e) && i < 330; i++)
        v *= 10;
    return e < 0 ? 1 / v : v;
}

/* Marks at multiples of a nice step that cover [lo, hi]; *decimals that the step needs.
 */
static size_t linear(double lo, double hi, size_t max, double *tick)
{
    static const double nice[] = {1, 2, 5};
    int e = (int)floor(log10((hi - lo) / (double)max)) - 1;
    for (;; e++)
        for (size_t k = 0; k < 3; k++) {
            double unit = e < 0 ? nice[k] / power10(-e) : nice[k] * power10(e);
            double a = floor(lo / unit + 1e-9), b = ceil(hi / unit - 1e-9);
            if (b - a + 1 > (double)max)
                continue;
            size_t n = (size_t)(b - a) + 1;
            for (size_t i = 0; i < n; i++) {
                double v = a + (double)i;
                tick[i] = e < 0 ? v * nice[k] / power10(-e) : v * nice[k] * power10(e);
            }
            return n;
        }
}

size_t tu_ticks(double lo, double hi, size_t max, double *tick)
{
    if (!isfinite(lo) || !isfinite(hi) || max < 2)
        return 0;
    if (hi < lo) {
        double t = lo;
        lo = hi;
        hi = t;
    }
    if (!(hi - lo > fmax(fabs(hi) * 1e-12, TINY))) {
        double half = fabs(lo) > TINY ? fabs(lo) / 2 : 0.5;
        lo -= half;
        hi += half;
    }
    if (!isfinite(hi - lo))
        return 0;
    return linear(lo, hi, max, tick);
}

/* Decades, with 2 and 5 between them where there is room, else every k-th decade. */
static size_t logarithmic(double lo, double hi, size_t max, double *tick)
{
    int a = (int)floor(log10(lo) + 1e-9), b = (int)ceil(log10(hi) - 1e-9);
    if (b <= a)
        b = a + 1;
    if (b > DBL_MAX_10_EXP) {
        b = DBL_MAX_10_EXP;
        a = a < b ? a : b - 1;
    }
    size_t decades = (size_t)(b - a), n = 0;
    size_t step = (decades + max - 1) / max;
    bool fine = 3 * decades + 1 <= max;
    for (int e = a; e <= b; e += (int)step) {
        tick[n++] = power10(e);
        if (fine && e < b) {
            tick[n++] = 2 * power10(e);
            tick[n++] = 5 * power10(e);
        }
    }
    if (tick[n - 1] < hi)
        tick[n++] = power10(b);
    /* Do not spend most of a decade on nothing. */
    while (fine && n > 2 && tick[n - 2] >= hi)
        n--;
    size_t skip = 0;
    while (fine && n - skip > 2 && tick[skip + 1] <= lo)
        skip++;
    memmove(tick, tick + skip, (n - skip) * sizeof *tick);
    return n - skip;
}

void tui_axis_of(struct tui_axis *a, double lo, double hi, bool log, size_t max)
{
    if (max > TUI_TICKS - 2)
        max = TUI_TICKS - 2;
    if (!isfinite(lo) || !isfinite(hi)) {
        lo = 0;
        hi = 1;
    }
    a->log = log && lo > 0 && hi > 0;
    a->n = a->log ? logarithmic(fmax(lo, TINY), fmax(hi, TINY), max, a->tick)
                  : tu_ticks(lo, hi, max, a->tick);
    if (a->n < 2) {
        a->tick[0] = 0;
        a->tick[1] = 1;
        a->n = 2;
    }
    a->lo = a->tick[0];
    a->hi = a->tick[a->n - 1];
}

double tui_axis_at(const struct tui_axis *a, double v)
{
    if (a->log)
        return v > 0 ? (log10(fmax(v, TINY)) - log10(a->lo)) / (log10(a->hi) - log10(a->lo)) : 0;
    return (v - a->lo) / (a->hi - a->lo);
}

const char *tui_axis_label(const struct tui_axis *a, size_t i, char out[32])
{
    static const struct {
        double unit;
        const char *suffix;
    } big[] = {
        {1e12, "T"},
        {1e9, "G"},
        {1e6, "M"},
        {1e3, "k"},
    };
    double v = a->tick[i], top = fmax(fabs(a->lo), fabs(a->hi));
    double scale = a->log ? fabs(v) : top;
    for (size_t k = 0; k < sizeof big / sizeof *big && scale >= 1e4 && scale < 1e15; k++)
        if (scale >= big[k].unit) {
            snprintf(out, 32, "%.4g%s", v / big[k].unit,
                     v < 0 || v > 0 ? big[k].suffix : "");
            return out;
        }
    if (fabs(v) < top * 1e-12)
        v = 0;
    snprintf(out, 32, "%.5g", v);
    return out;
}

double tui_text_width(const char *text, double size)
{
    double units = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if ((*p & 0xc0) == 0x80)
            continue;
        units += strchr("fijlrtI.,:;'|!() ", *p) ? 0.32
                 : strchr("mwMW@%", *p)          ? 0.86
                                                 : 0.57;
    }
    return units * size;
}
