/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c: allreduce-bench compare: the rows of two JSON reports side by side. */
#include <jansson.h>
#include "allreduce-bench/bench.h"

static struct {
    double tolerance;
} opt = {.tolerance = 10};

static const struct tu_opt options[] = {
    {0, "tolerance", "PERCENT", "how much slower the second may be (default 10)",
     TU_OPT_DOUBLE, &opt.tolerance, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"collective", "COLLECTIVE", TU_COL_TEXT, 0},
    {"algorithm", "ALGORITHM", TU_COL_TEXT, 0},
    {"dtype", "DTYPE", TU_COL_TEXT, 0},
    {"ranks", "RANKS", TU_COL_U64, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},
    {"place", "PLACE", TU_COL_TEXT, 0},
    {"a_p50_us", "A_US", TU_COL_REAL, 0},
    {"b_p50_us", "B_US", TU_COL_REAL, 0},
    {"change_pct", "CHANGE_%", TU_COL_REAL, 0},
    {"slower", "SLOWER", TU_COL_BOOL, 0},
    {NULL, NULL, TU_COL_TEXT, 0},
};

/* The rows of a report: its lines that have a p50_us. */
static int load(const char *path, json_t **rows, struct tu_err *err)
{
    char *text;
    size_t n, line = 1;
    int code = tu_file_read(path, (size_t)64 << 20, &text, &n, err);
    *rows = json_array();
    if (!code && !*rows)
        code = tu_fail(err, TU_ENOMEM, "out of memory");
    for (size_t at = 0; !code && at < n; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        json_t *o = NULL;
        if (len)
            code = tu_json_parse(&o, text + at, len, NULL, err);
        if (code)
            tu_err_prefix(err, "%s: line %zu", path, line);
        else if (o && json_is_number(json_object_get(o, "p50_us")))
            json_array_append(*rows, o);
        json_decref(o);
        at += len + 1;
    }
    if (!code && !json_array_size(*rows))
        code =
            tu_fail(err, TU_EFORMAT, "%s: no rows of allreduce-bench run --json", path);
    tu_free(text);
    return code;
}

static bool same(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"collective", "algorithm", "dtype", "op",
                                       "ranks",      "bytes",     "place"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
            return false;
    return true;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static uint64_t number_of(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));
    return v > 0 ? (uint64_t)v : 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    json_t *a = NULL, *b = NULL, *x, *y;
    struct tu_err err;
    size_t i, k, pairs = 0;
    bool slower = false;
    (void)argc;
    int code = load(argv[0], &a, &err);
    if (!code)
        code = load(argv[1], &b, &err);
    if (!code)
        tu_rows_begin(ctx, columns);
    json_array_foreach(a, i, x)
    {
        json_array_foreach(b, k, y)
        {
            if (code || !same(x, y))
                continue;
            double ta = json_number_value(json_object_get(x, "p50_us"));
            double tb = json_number_value(json_object_get(y, "p50_us"));
            double change = ta > 0 ? 100 * (tb / ta - 1) : 0;
            const struct tu_cell cells[] = {
                {.s = text_of(x, "collective")},
                {.s = text_of(x, "algorithm")},
                {.s = text_of(x, "dtype")},
                {.u = number_of(x, "ranks")},
                {.u = number_of(x, "bytes")},
                {.s = text_of(x, "place")},
                {.f = ta},
                {.f = tb},
                {.f = change},
                {.b = change > opt.tolerance},
            };
            tu_row(ctx, cells);
            slower |= change > opt.tolerance;
            pairs++;
        }
    }
    json_decref(a);
    json_decref(b);
    if (!code && !pairs)
        code = tu_fail(&err, TU_EFORMAT, "%s and %s have no row in common", argv[0],
                       argv[1]);
    return code ? tu_error(ctx, &err) : slower ? TU_STATUS_NO : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...] report report", NULL};

const struct tu_cmd bench_compare = {
    .name = "compare",
    .example = "allreduce-bench compare before.json after.json",
    .summary = "compare two JSON reports of run",
    .usage = usage,
    .opts = options,
    .min = 2,
    .max = 2,
    .run = run,
};
