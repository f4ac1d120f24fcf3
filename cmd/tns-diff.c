/* SPDX-License-Identifier: Apache-2.0 */
/* tns-diff: compare the tensors of two files or streams of any format. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/formats.h"
#include "common/main.h"

static struct {
    double rtol, atol;
    uint64_t ulp;
    struct tu_open open;
} opt = {.rtol = -INFINITY, .atol = -INFINITY, .ulp = UINT64_MAX};

static const struct tu_opt options[] = {
    {0, "rtol", "X", "pass values with |a-b| <= atol + X*|b|", TU_OPT_DOUBLE, &opt.rtol, NULL, 0},
    {0, "atol", "X", "pass values with |a-b| <= X + rtol*|b|", TU_OPT_DOUBLE, &opt.atol, NULL, 0},
    {0, "ulp", "N", "pass values at most N representable values apart", TU_OPT_U64, &opt.ulp,
     NULL, 0},
    TU_OPEN_OPTIONS(opt.open),
    {0},
};

static const struct tu_column columns[] = {
    {"status", "STATUS", TU_COL_TEXT, 0},     {"dtype_a", NULL, TU_COL_TEXT, 0},
    {"dtype_b", NULL, TU_COL_TEXT, 0},        {"shape_a", NULL, TU_COL_SHAPE, 0},
    {"shape_b", NULL, TU_COL_SHAPE, 0},       {"values", "VALUES", TU_COL_U64, 0},
    {"differ", "DIFFER", TU_COL_U64, 0},      {"outside", "OUTSIDE", TU_COL_U64, 0},
    {"max_abs", "MAX_ABS", TU_COL_REAL, 0},   {"max_rel", "MAX_REL", TU_COL_REAL, 0},
    {"max_ulp", "ULP", TU_COL_U64, 0},        {"cosine", "COSINE", TU_COL_REAL, 0},
    {"sqnr_db", "SQNR_DB", TU_COL_REAL, 0},   {"worst", "WORST", TU_COL_JSON, 0},
    {"a", "A", TU_COL_VALUE, 0},              {"b", "B", TU_COL_VALUE, 0},
    {"name", "NAME", TU_COL_NAME, 0},         {0},
};

/* The two files and the counts of what was found. */
struct diff {
    struct tu_ctx *ctx;
    struct tu_source *a, *b;
    struct tu_tolerance tol;
    bool exact, begun;
    uint64_t equal, within, differ;
    double worst;      /* largest difference of those within, */
    const char *where; /* and the tensor's name */
};

/* [i,j,…] of an element. */
static int index_text(struct tu_buf *out, const struct tu_tensor *t, uint64_t element,
                      struct tu_err *err)
{
    uint64_t at[TU_RANK_MAX];
    for (unsigned k = t->rank; k-- > 0; element /= t->dim[k])
        at[k] = element % t->dim[k];
    int rc = tu_buf_text(out, "[", err);
    for (unsigned k = 0; !rc && k < t->rank; k++)
        rc = tu_buf_printf(out, err, k ? ",%" PRIu64 : "%" PRIu64, at[k]);
    return rc ? rc : tu_buf_text(out, "]", err);
}

/* A value as JSON; 64-bit integers from their bytes, which a double may not hold. */
static int value_text(char out[32], struct tu_source *s, size_t i, uint64_t number, double v,
                      struct tu_err *err)
{
    const struct tu_tensor *t = &s->tensor[i];
    unsigned char p[8];
    if (t->dtype == TU_I64 || t->dtype == TU_U64) {
        int rc = tu_source_read(s, i, 8 * number, p, 8, err);
        snprintf(out, 32, t->dtype == TU_I64 ? "%" PRId64 : "%" PRIu64, tu_le64(p));
        return rc;
    }
    if (isfinite(v))
        tu_json_real(v, out);
    else
        strcpy(out, isnan(v) ? "\"nan\"" : v < 0 ? "\"-inf\"" : "\"inf\"");
    return 0;
}

struct texts {
    char dtype_a[8], dtype_b[8], a[32], b[32];
    struct tu_buf worst;
};

/* One row. i, j: SIZE_MAX where the side lacks it; d: NULL where nothing was compared. */
static int show(struct diff *x, const char *status, size_t i, size_t j,
                const struct tu_difference *d, struct tu_err *err)
{
    const struct tu_tensor *a = i == SIZE_MAX ? NULL : &x->a->tensor[i];
    const struct tu_tensor *b = j == SIZE_MAX ? NULL : &x->b->tensor[j];
    struct texts t = {0};
    if (!x->begun)
        tu_rows_begin(x->ctx, columns); /* nothing to show: no titles */
    x->begun = true;
    const struct tu_compare *c = d ? &d->values : NULL;
    bool valued = d && d->valued && !d->bytes_equal, worst = c && c->differ;
    unsigned parts = a ? tu_compare_parts(a->dtype) : 1;
    int rc = worst ? index_text(&t.worst, a, c->worst / parts, err) : 0;
    if (!rc && worst && valued)
        rc = value_text(t.a, x->a, i, c->worst, c->worst_a, err);
    if (!rc && worst && valued)
        rc = value_text(t.b, x->b, j, c->worst, c->worst_b, err);
    if (!rc)
        tu_row(x->ctx, (const struct tu_cell[]){
            {.s = status},
            {.none = !a, .s = a ? tu_dtype_text(a->dtype, t.dtype_a) : ""},
            {.none = !b, .s = b ? tu_dtype_text(b->dtype, t.dtype_b) : ""},
            {.none = !a, .dim = a ? a->dim : NULL, .rank = a ? a->rank : 0},
            {.none = !b, .dim = b ? b->dim : NULL, .rank = b ? b->rank : 0},
            {.none = !c, .u = c ? c->n : 0},
            {.none = !c, .u = c ? c->differ : 0},
            {.none = !c, .u = c ? c->outside : 0},
            {.none = !valued, .f = c ? c->max_abs : 0},
            {.none = !valued, .f = c ? c->max_rel : 0},
            {.none = !valued || a->dtype != b->dtype, .u = c ? c->max_ulp : 0},
            {.none = !valued, .f = valued ? tu_compare_cosine(c) : 0},
            {.none = !valued, .f = valued ? tu_compare_sqnr(c) : 0},
            {.s = worst ? t.worst.data : NULL},
            {.s = worst && valued ? t.a : NULL},
            {.s = worst && valued ? t.b : NULL},
            {.s = a ? a->name : b->name},
        });
    tu_buf_release(&t.worst);
    return rc;
}

static bool same_shape(const struct tu_tensor *a, const struct tu_tensor *b)
{
    return a->rank == b->rank && (!a->rank || !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim));
}

static int compare(struct diff *x, size_t i, size_t j, struct tu_err *err)
{
    const struct tu_tensor *a = &x->a->tensor[i], *b = &x->b->tensor[j];
    struct tu_difference d = {0};
    if (!same_shape(a, b)) {
        x->differ++;
        return show(x, "shape", i, j, NULL, err);
    }
    bool mixed = a->dtype != b->dtype, blocks = (a->dtype | b->dtype) & TU_DTYPE_GGML;
    if (mixed &&
        (x->exact || blocks || tu_compare_parts(a->dtype) != tu_compare_parts(b->dtype))) {
        x->differ++;
        return show(x, "dtype", i, j, NULL, err);
    }
    int rc = tu_source_compare(&d, x->a, i, x->b, j, &x->tol, tu_ctx_job(x->ctx), err);
    if (rc)
        return rc;
    bool within = !x->exact && d.valued && !d.values.outside;
    uint64_t *count = d.bytes_equal ? &x->equal : within ? &x->within : &x->differ;
    ++*count;
    if (count == &x->within && (!x->where || d.values.max_abs > x->worst)) {
        x->worst = d.values.max_abs;
        x->where = a->name;
    }
    if ((d.bytes_equal || within) && !x->ctx->verbose)
        return 0;
    const char *status = d.bytes_equal                    ? "equal"
                         : within                         ? "within"
                         : d.valued && !d.values.differ   ? "bits"
                                                          : "values";
    return show(x, status, i, j, &d, err);
}

static int compare_all(struct diff *x, struct tu_err *err)
{
    size_t *to = tu_alloc(x->a->n, sizeof *to, err);
    size_t *from = to ? tu_alloc(x->b->n, sizeof *from, err) : NULL;
    int rc = from ? tu_source_match(x->a, x->b, to, from, err) : TU_ENOMEM;
    if (!rc && x->a->n == 1 && x->b->n == 1)
        to[0] = from[0] = 0; /* files of one array are named after themselves */
    for (size_t i = 0; !rc && i < x->a->n; i++) {
        x->differ += to[i] == SIZE_MAX;
        rc = to[i] == SIZE_MAX ? show(x, "only in a", i, SIZE_MAX, NULL, err)
                               : compare(x, i, to[i], err);
        tu_job_progress(tu_ctx_job(x->ctx), i + 1, x->a->n);
    }
    for (size_t j = 0; !rc && j < x->b->n; j++) {
        if (from[j] != SIZE_MAX)
            continue;
        x->differ++;
        rc = show(x, "only in b", SIZE_MAX, j, NULL, err);
    }
    tu_free(to);
    tu_free(from);
    return rc;
}

static int open_side(struct tu_ctx *ctx, struct tu_source **s, const char *path,
                     struct tu_err *err)
{
    /* Standard input is a stream, a file is whatever it looks like. */
    const struct tu_format *format = strcmp(path, "-") ? NULL : tu_format_find("tns");
    int rc = tu_source_open(s, path, format, &opt.open, tu_ctx_job(ctx), err);
    if (!rc && (rc = tu_source_join(s, *s, err)))
        *s = NULL;
    return rc;
}

static void summarise(struct diff *x)
{
    uint64_t tensors = x->equal + x->within + x->differ;
    struct tu_jw *w = tu_line_begin(x->ctx);
    if (w) {
        tu_jw_u64(w, "tensors", tensors);
        tu_jw_u64(w, "equal", x->equal);
        tu_jw_u64(w, "within", x->within);
        tu_jw_u64(w, "differ", x->differ);
        tu_line_end(x->ctx);
    }
    tu_rows_end(x->ctx);
    if (x->ctx->quiet)
        return;
    const char *s = tensors == 1 ? "" : "s";
    if (x->differ)
        tu_print(x->ctx, "differ: %" PRIu64 " of %" PRIu64 " tensor%s\n", x->differ, tensors, s);
    else if (x->within)
        tu_print(x->ctx, "within tolerance: %" PRIu64 " tensor%s, worst off by %.6g in '%s'\n",
                 tensors, s, x->worst, x->where);
    else
        tu_print(x->ctx, "equal: %" PRIu64 " tensor%s\n", tensors, s);
}

/* Not given, or no less than nothing; NaN would pass and fail at random. */
static bool tolerance_is_valid(double x)
{
    return x >= 0 || x == -INFINITY;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct diff x = {.ctx = ctx, .exact = opt.rtol < 0 && opt.atol < 0 && opt.ulp == UINT64_MAX};
    struct tu_err err;
    (void)argc;
    if (!tolerance_is_valid(opt.rtol) || !tolerance_is_valid(opt.atol))
        return tu_usage(ctx, "a tolerance is a number that is not negative");
    x.tol = (struct tu_tolerance){.rtol = fmax(opt.rtol, 0),
                                  .atol = fmax(opt.atol, 0),
                                  .ulp = opt.ulp == UINT64_MAX ? 0 : opt.ulp};
    int rc = open_side(ctx, &x.a, argv[0], &err);
    if (!rc)
        rc = open_side(ctx, &x.b, argv[1], &err);
    if (!rc) {
        x.begun = tu_json_wanted(ctx);
        if (x.begun)
            tu_rows_begin(ctx, columns);
        rc = compare_all(&x, &err);
    }
    if (!rc)
        summarise(&x);
    tu_source_close(x.a);
    tu_source_close(x.b);
    return rc ? tu_error(ctx, &err) : x.differ ? TU_STATUS_NO : 0;
}

static const char *const usage[] = {"[option ...] a b", NULL};

static const struct tu_cmd command = {
    .name = "tns-diff",
    .example = "tns-diff --rtol 0.01 a.tns b.safetensors",
    .summary = "compare the tensors of two files or streams",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_COUNTS,
    .min = 2,
    .max = 2,
    .run = run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
