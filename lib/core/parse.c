/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: whole-string parsers of numbers, sizes, durations and shapes.
 *
 * A text is taken whole or refused, with a message that shows it and says what would do.
 * Nothing is skipped: no spaces, no signs where none is said. */
#include <tensorutils/core.h>

#include <math.h>
#include <stdlib.h>

static int refuse(struct tu_err *err, const char *s, const char *expected)
{
    char shown[88];
    return tu_fail(err, TU_EUSAGE, "'%s' is not %s", tu_text_short(s, strlen(s), shown),
                   expected);
}

static int too_big(struct tu_err *err, const char *s, const char *limit)
{
    char shown[88];
    return tu_fail(err, TU_EUSAGE, "'%s' is too big: at most %s",
                   tu_text_short(s, strlen(s), shown), limit);
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at *s; *s moves behind them. 0, -1 when there are none, 1 when over 2^64-1. */
static int digits(const char **s, uint64_t *out)
{
    if (!digit(**s))
        return -1;
    bool over = false;
    uint64_t v = 0;
    for (; digit(**s); ++*s) {
        over |= tu_mul_over(v, 10, &v);
        over |= tu_add_over(v, (uint64_t)(**s - '0'), &v);
    }
    *out = v;
    return over;
}

int tu_parse_u64(const char *s, uint64_t *out, struct tu_err *err)
{
    const char *p = s;
    uint64_t v;
    int rc = digits(&p, &v);
    if (rc < 0 || *p)
        return refuse(err, s, "a whole number");
    if (rc)
        return too_big(err, s, "2^64-1");
    *out = v;
    return 0;
}

int tu_parse_i64(const char *s, int64_t *out, struct tu_err *err)
{
    bool minus = *s == '-';
    const char *p = s + minus;
    uint64_t v;
    int rc = digits(&p, &v);
    if (rc < 0 || *p)
        return refuse(err, s, "a whole number");
    if (rc || v > (uint64_t)INT64_MAX + minus)
        return too_big(err, s, "2^63-1 either way");
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

/* [-]digits[.digits][e[+-]digits]: strtod alone would take spaces, hexadecimal and
 * nan(...). */
static bool decimal(const char *p)
{
    p += *p == '-';
    if (!digit(*p) && !(*p == '.' && digit(p[1])))
        return false;
    while (digit(*p))
        p++;
    if (*p == '.')
        p++;
    while (digit(*p))
        p++;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+';
        if (!digit(*p))
            return false;
        while (digit(*p))
            p++;
    }
    return !*p;
}

int tu_parse_double(const char *s, double *out, struct tu_err *err)
{
    bool minus = *s == '-';
    if (!strcmp(s + minus, "inf"))
        *out = minus ? -INFINITY : INFINITY;
    else if (!strcmp(s, "nan"))
        *out = NAN;
    else if (!decimal(s))
        return refuse(err, s, "a number");
    else if (!isfinite(*out = strtod(s, NULL)))
        return too_big(err, s, "1.8e308 either way");
    return 0;
}

int tu_parse_size(const char *s, uint64_t *out, struct tu_err *err)
{
    static const char units[] = "KMGTPE";
    static const char expected[] =
        "a size: digits, then nothing, K M G T P E, KiB ... or KB ...";
    const char *p = s;
    uint64_t v;
    int over = digits(&p, &v);
    if (over < 0)
        return refuse(err, s, expected);
    char letter = *p == 'k' ? 'K' : *p;
    const char *unit = letter ? strchr(units, letter) : NULL;
    uint64_t base = 1024;
    if (unit) {
        p++;
        if (!strcmp(p, "B")) {
            base = 1000;
            p++;
        } else if (!strcmp(p, "iB")) {
            p += 2;
        }
    }
    if (*p)
        return refuse(err, s, expected);
    for (long i = unit ? unit - units + 1 : 0; i; i--)
        over |= tu_mul_over(v, base, &v);
    if (over)
        return too_big(err, s, "2^64-1 bytes");
    *out = v;
    return 0;
}

int tu_parse_duration(const char *s, uint64_t *ns, struct tu_err *err)
{
    static const struct { const char *name; uint64_t ns; } units[] = {
        {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"", 1000000000},
        {"min", UINT64_C(60000000000)}, {"h", UINT64_C(3600000000000)},
    };
    static const char expected[] = "a duration: a number, then ns, us, ms, s, min or h";
    const char *p = s;
    uint64_t v;
    int over = digits(&p, &v);
    if (over < 0)
        return refuse(err, s, expected);
    const char *fraction = p;
    if (*p == '.') {
        fraction = ++p;
        while (digit(*p))
            p++;
        if (p == fraction)
            return refuse(err, s, expected);
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(p, units[i].name))
            continue;
        uint64_t part = units[i].ns;
        over |= tu_mul_over(v, part, &v);
        for (; digit(*fraction); fraction++) {
            if (part % 10 && *fraction != '0')
                return refuse(err, s, "a whole number of nanoseconds");
            part /= 10;
            over |= tu_add_over(v, (uint64_t)(*fraction - '0') * part, &v);
        }
        if (over)
            return too_big(err, s, "2^64-1 ns");
        *ns = v;
        return 0;
    }
    return refuse(err, s, expected);
}

int tu_parse_shape(const char *s, uint64_t *dim, unsigned *rank, unsigned max,
                   struct tu_err *err)
{
    static const char expected[] = "a shape such as 2,3,4 or 2x3x4";
    unsigned n = 0;
    if (*s && strcmp(s, "-")) {
        char between = strchr(s, 'x') ? 'x' : ',';
        for (const char *p = s;; p++) {
            uint64_t v;
            int rc = digits(&p, &v);
            if (rc < 0 || (*p && *p != between))
                return refuse(err, s, expected);
            if (rc || v > TU_SIZE_MAX)
                return too_big(err, s, "2^63-1 in each dimension");
            if (n == max)
                return tu_fail(err, TU_EUSAGE, "a shape of more than %u dimensions", max);
            dim[n++] = v;
            if (!*p)
                break;
        }
    }
    *rank = n;
    return 0;
}
