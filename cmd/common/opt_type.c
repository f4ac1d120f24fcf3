/* SPDX-License-Identifier: Apache-2.0 */
/* opt_type.c: one row per option type: its word in help, its size, its reader. */
#include "common/opt_type.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A number that may have to be positive. */
static int above(const struct tu_opt *o, const char *s, bool positive, struct tu_err *err)
{
    if (positive || !(o->flags & TU_OPT_POSITIVE))
        return 0;
    return tu_fail(err, TU_EUSAGE, "'%.40s': more than 0 is expected", s);
}

static int read_u64(const struct tu_opt *o, const char *s, void *out, struct tu_err *err)
{
    int rc = tu_parse_u64(s, out, err);
    return rc ? rc : above(o, s, *(uint64_t *)out > 0, err);
}

static int read_i64(const struct tu_opt *o, const char *s, void *out, struct tu_err *err)
{
    int rc = tu_parse_i64(s, out, err);
    return rc ? rc : above(o, s, *(int64_t *)out > 0, err);
}

static int read_double(const struct tu_opt *o, const char *s, void *out,
                       struct tu_err *err)
{
    int rc = tu_parse_double(s, out, err);
    double v = rc ? 0 : *(double *)out;
    return rc ? rc : above(o, s, v > 0 && isfinite(v), err);
}

static int read_size(const struct tu_opt *o, const char *s, void *out, struct tu_err *err)
{
    int rc = tu_parse_size(s, out, err);
    return rc ? rc : above(o, s, *(uint64_t *)out > 0, err);
}

static int read_duration(const struct tu_opt *o, const char *s, void *out,
                         struct tu_err *err)
{
    (void)o;
    return tu_parse_duration(s, out, err);
}

/* A decimal number and a unit; bandwidths are quoted in powers of 1000. */
static int read_rate(const struct tu_opt *o, const char *s, void *out, struct tu_err *err)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1e9},       {"B/s", 1},        {"KB/s", 1e3},       {"MB/s", 1e6},
        {"GB/s", 1e9},   {"TB/s", 1e12},    {"Gb/s", 1.25e8},    {"Mb/s", 1.25e5},
        {"KiB/s", 1024}, {"MiB/s", 1048576}, {"GiB/s", 1073741824},
    };
    char number[32];
    size_t n = strspn(s, "0123456789.");
    if (n == 0 || n >= sizeof number)
        return tu_fail(err, TU_EUSAGE, "'%s': expected a rate such as 20GB/s", s);
    memcpy(number, s, n);
    number[n] = '\0';
    double v;
    int rc = tu_parse_double(number, &v, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(s + n, units[i].name)) {
            *(double *)out = v * units[i].factor;
            return above(o, s, v > 0, err);
        }
    return tu_fail(err, TU_EUSAGE,
                   "'%s': unit '%s' is not one of B/s KB/s MB/s GB/s TB/s Mb/s "
                   "Gb/s KiB/s MiB/s GiB/s",
                   s, s + n);
}

static int read_string(const struct tu_opt *o, const char *s, void *out,
                       struct tu_err *err)
{
    if ((o->type == TU_OPT_FILE_IN || o->type == TU_OPT_FILE_OUT) && !*s)
        return tu_fail(err, TU_EUSAGE, "the file name is empty");
    *(const char **)out = s;
    return 0;
}

static const char *choice_name(const void *ctx, size_t i)
{
    return ((const char *const *)ctx)[i];
}

static int read_choice(const struct tu_opt *o, const char *s, void *out,
                       struct tu_err *err)
{
    for (int i = 0; o->choices[i]; i++)
        if (!strcmp(o->choices[i], s)) {
            *(int *)out = i;
            return 0;
        }
    char words[200];
    tu_fail(err, TU_EUSAGE, "'%.40s': expected %s", s,
            tu_opt_arg(o, words, sizeof words));
    tu_suggest(err, s, "", choice_name, o->choices);
    return TU_EUSAGE;
}

static int read_spec(const struct tu_opt *o, const char *s, void *out, struct tu_err *err)
{
    (void)o;
    struct tu_spec spec;
    int rc = tu_spec_parse(&spec, s, err);
    if (rc)
        return rc;
    tu_spec_release(out);
    *(struct tu_spec *)out = spec;
    return 0;
}

static int read_pattern(const struct tu_opt *o, const char *s, void *out,
                        struct tu_err *err)
{
    struct tu_pattern **dest = out, *p;
    int rc = tu_pattern_new(
        &p, s, o->type == TU_OPT_GLOB ? TU_PATTERN_GLOB : TU_PATTERN_REGEX, err);
    if (rc)
        return rc;
    tu_pattern_free(*dest);
    *dest = p;
    return 0;
}

static int read_dtype(const struct tu_opt *o, const char *s, void *out,
                      struct tu_err *err)
{
    (void)o;
    return tu_parse_dtype(s, out, err);
}

static int read_shape(const struct tu_opt *o, const char *s, void *out,
                      struct tu_err *err)
{
    (void)o;
    struct tu_shape *shape = out;
    shape->given = true;
    return tu_parse_shape(s, shape->dim, &shape->rank, TU_RANK_MAX, err);
}

/* The text stays a text: lib/device opens by it. */
static int read_device(const struct tu_opt *o, const char *s, void *out,
                       struct tu_err *err)
{
    uint64_t index = 0;
    bool numbered = !strncmp(s, "cuda:", 5);
    if (strcmp(s, "cpu") && strcmp(s, "auto") && strcmp(s, "cuda") && !numbered)
        return tu_fail(err, TU_EUSAGE, "'%.40s': expected cpu, cuda[:N] or auto", s);
    int rc = numbered ? tu_parse_u64(s + 5, &index, err) : 0;
    return rc ? rc : read_string(o, s, out, err);
}

static const struct tu_opt_row rows[] = {
    [TU_OPT_FLAG] = {"flag", NULL, 0, NULL},
    [TU_OPT_COUNT] = {"count", NULL, 0, NULL},
    [TU_OPT_U64] = {"u64", "N", sizeof(uint64_t), read_u64},
    [TU_OPT_I64] = {"i64", "N", sizeof(int64_t), read_i64},
    [TU_OPT_DOUBLE] = {"double", "X", sizeof(double), read_double},
    [TU_OPT_SIZE] = {"size", "SIZE", sizeof(uint64_t), read_size},
    [TU_OPT_RATE] = {"rate", "RATE", sizeof(double), read_rate},
    [TU_OPT_DURATION] = {"duration", "TIME", sizeof(uint64_t), read_duration},
    [TU_OPT_STRING] = {"string", "TEXT", sizeof(char *), read_string},
    [TU_OPT_CHOICE] = {"choice", NULL, sizeof(int), read_choice},
    [TU_OPT_SPEC] = {"spec", "SPEC", sizeof(struct tu_spec), read_spec},
    [TU_OPT_REGEX] = {"regex", "REGEX", sizeof(struct tu_pattern *), read_pattern},
    [TU_OPT_GLOB] = {"glob", "GLOB", sizeof(struct tu_pattern *), read_pattern},
    [TU_OPT_FILE_IN] = {"file-in", "FILE", sizeof(char *), read_string},
    [TU_OPT_FILE_OUT] = {"file-out", "FILE", sizeof(char *), read_string},
    [TU_OPT_DTYPE] = {"dtype", "DTYPE", sizeof(uint32_t), read_dtype},
    [TU_OPT_SHAPE] = {"shape", "SHAPE", sizeof(struct tu_shape), read_shape},
    [TU_OPT_DEVICE] = {"device", "cpu|cuda[:N]|auto", sizeof(char *), read_device},
};

const struct tu_opt_row *tu_opt_row(const struct tu_opt *o)
{
    return &rows[o->type];
}
