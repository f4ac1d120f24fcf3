/* SPDX-License-Identifier: Apache-2.0 */
/* calib.c: inputs of layers from a second stream or file, read by position. */
#include "quantize/calib.h"
#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name, *help;
    const char *key[5];
} methods[] = {
    [METHOD_NEAREST] = {"nearest", "each value to the nearest code", {NULL}},
    [METHOD_GPTQ] = {"gptq", "each column's error made up for by those to come",
                     {"order", "fixed", "damping", "block", NULL}},
    [METHOD_AWQ] = {"awq", "columns scaled by what their inputs weigh, 1/s into what is before",
                    {NULL}},
    [METHOD_SMOOTH] = {"smooth", "SmoothQuant: columns scaled by inputs and weights",
                       {"alpha", NULL}},
    [METHOD_FEEDBACK] = {"feedback", "what this step loses is added to the next (--state)",
                         {"decay", "rate", NULL}},
    [METHOD_CHANGE] = {"change", "AC-SGD: the change since the step before (--state)", {NULL}},
};
enum { METHODS = sizeof methods / sizeof *methods };

const char *calib_method_row(size_t i, const char **help)
{
    if (i >= METHODS)
        return NULL;
    *help = methods[i].help;
    return methods[i].name;
}

static int parse_method(struct calib *c, const char *text, struct tu_err *err)
{
    int rc = tu_spec_parse(&c->spec, text, err);
    for (unsigned i = 0; !rc && i < METHODS; i++) {
        if (strcmp(methods[i].name, c->spec.name))
            continue;
        c->method = (enum method)i;
        return tu_spec_check(&c->spec, methods[i].key, err);
    }
    return rc ? rc
              : tu_fail(err, TU_EUSAGE, "method '%.40s': unknown (--list=methods)",
                        c->spec.name);
}

bool calib_folds(const struct calib *c)
{
    return c && (c->method == METHOD_AWQ || c->method == METHOD_SMOOTH);
}

bool calib_remembers(const struct calib *c)
{
    return c && c->method >= METHOD_FEEDBACK;
}

int calib_open(struct calib *c, const char *path, const char *method, struct tu_ctx *ctx,
               struct tu_err *err)
{
    *c = (struct calib){.ctx = ctx};
    int rc = method ? parse_method(c, method, err) : 0;
    if (!rc && c->method != METHOD_NEAREST && !calib_remembers(c) && !path)
        rc = tu_fail(err, TU_EUSAGE, "method '%s' looks at inputs: give --calib",
                     c->spec.name);
    return rc || !path ? rc
                       : tu_source_open(&c->source, path, NULL, NULL, tu_ctx_job(ctx), err);
}

void calib_close(struct calib *c)
{
    tu_source_close(c->source);
    if (c->spec.name)
        tu_spec_release(&c->spec);
    *c = (struct calib){.ctx = NULL};
}

size_t calib_find(const struct calib *c, const char *weight)
{
    static const char end[] = ".weight";
    char name[1024];
    size_t n = strlen(weight), k = sizeof end - 1;
    if (n > k && strcmp(weight + n - k, end) == 0)
        n -= k;
    if (!c->source ||
        snprintf(name, sizeof name, "%.*s.input", (int)n, weight) >= (int)sizeof name)
        return SIZE_MAX;
    return tu_source_find(c->source, name);
}

/* Rows of a record ------------------------------------------------------------------------ */

struct rows {
    const struct calib *c;
    const struct tu_tensor *t;
    size_t i;
    uint64_t cols, tokens, wide; /* bytes of an element */
};

static int rows_of(struct rows *r, const struct calib *c, size_t i, uint64_t cols,
                   struct tu_err *err)
{
    const struct tu_tensor *t = &c->source->tensor[i];
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    if (!t->rank || t->dim[t->rank - 1] != cols || !d || !tu_dtype_is_float(t->dtype) ||
        d->block_elems != 1)
        return tu_fail(err, TU_EUSAGE,
                       "'%.80s': its last dimension must be the %" PRIu64
                       " columns of the weight, its dtype floating-point",
                       t->name, cols);
    *r = (struct rows){c, t, i, cols, 0, d->block_bytes};
    r->tokens = cols ? t->bytes / r->wide / cols : 0;
    return 0;
}

static int read_rows(const struct rows *r, uint64_t first, uint64_t n, float *x,
                     unsigned char *raw, struct tu_err *err)
{
    size_t elements = (size_t)(n * r->cols);
    int rc = tu_source_read(r->c->source, r->i, first * r->cols * r->wide, raw,
                            elements * (size_t)r->wide, err);
    return rc ? rc : tu_to_float(r->t->dtype, raw, x, elements, err);
}

/* All rows, some at a time, to a function. */
static int each_rows(const struct rows *r, void *ctx,
                     int (*fn)(void *ctx, const float *x, uint64_t n, struct tu_err *err),
                     struct tu_err *err)
{
    const uint64_t step = tu_max(1, (UINT64_C(1) << 20) / tu_max(r->cols, 1));
    float *x = tu_alloc((size_t)(step * r->cols), sizeof *x, err);
    unsigned char *raw = tu_alloc((size_t)(step * r->cols), (size_t)r->wide, err);
    int rc = x && raw ? 0 : TU_ENOMEM;
    for (uint64_t first = 0; !rc && first < r->tokens; first += step) {
        uint64_t n = tu_min(step, r->tokens - first);
        rc = read_rows(r, first, n, x, raw, err);
        if (!rc)
            rc = fn(ctx, x, n, err);
    }
    tu_free(x);
    tu_free(raw);
    if (rc)
        tu_err_prefix(err, "'%.80s'", r->t->name);
    return rc;
}

struct adding {
    struct tu_calib *to;
    struct tu_pool *pool;
};

static int add_sums(void *ctx, const float *x, uint64_t n, struct tu_err *err)
{
    struct adding *a = ctx;
    return tu_calib_add(a->to, x, n, a->pool, err);
}

int calib_sums(const struct calib *c, size_t i, uint64_t cols, bool hessian,
               struct tu_calib *out, struct tu_err *err)
{
    struct rows r;
    int rc = rows_of(&r, c, i, cols, err);
    if (rc || (rc = tu_calib_init(out, cols, hessian, err)))
        return rc;
    struct adding a = {out, tu_ctx_pool(c->ctx)};
    rc = each_rows(&r, &a, add_sums, err);
    if (rc)
        tu_calib_release(out);
    return rc;
}

struct squares {
    double *sum;
    uint64_t cols;
};

static int add_squares(void *ctx, const float *x, uint64_t n, struct tu_err *err)
{
    struct squares *s = ctx;
    (void)err;
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t j = 0; j < s->cols; j++)
            s->sum[j] += (double)x[t * s->cols + j] * x[t * s->cols + j];
    return 0;
}

int calib_importance(const struct calib *c, size_t i, uint64_t cols, float **out,
                     struct tu_err *err)
{
    struct rows r;
    struct squares s = {NULL, cols};
    int rc = rows_of(&r, c, i, cols, err);
    if (rc)
        return rc;
    s.sum = tu_calloc((size_t)cols, sizeof *s.sum, err);
    *out = s.sum ? tu_alloc((size_t)cols, sizeof **out, err) : NULL;
    rc = *out ? each_rows(&r, &s, add_squares, err) : TU_ENOMEM;
    for (uint64_t j = 0; !rc && j < cols; j++)
        (*out)[j] = (float)(s.sum[j] / (double)tu_max(r.tokens, 1));
    if (rc) {
        tu_free(*out);
        *out = NULL;
    }
    tu_free(s.sum);
    return rc;
}

int calib_rows(const struct calib *c, size_t i, uint64_t cols, uint64_t most, float **x,
               uint64_t *tokens, struct tu_err *err)
{
    struct rows r;
    int rc = rows_of(&r, c, i, cols, err);
    if (rc)
        return rc;
    *tokens = tu_min(most, r.tokens);
    unsigned char *raw = tu_alloc((size_t)(*tokens * cols), (size_t)r.wide, err);
    *x = raw ? tu_alloc((size_t)(*tokens * cols), sizeof **x, err) : NULL;
    rc = *x ? read_rows(&r, 0, *tokens, *x, raw, err) : TU_ENOMEM;
    tu_free(raw);
    if (rc)
        tu_free(*x);
    return rc;
}

/* Methods ---------------------------------------------------------------------------------- */

static int gptq_options(struct tu_gptq *g, const struct tu_spec *s, struct tu_err *err)
{
    const char *damping = tu_spec_get(s, "damping");
    uint64_t block;
    int rc = tu_spec_u64(s, "block", 128, &block, err);
    *g = (struct tu_gptq){.order = tu_spec_get(s, "order"),
                          .fixed_groups = tu_spec_get(s, "fixed"),
                          .block = (unsigned)tu_min(block, UINT32_MAX)};
    return rc || !damping ? rc : tu_parse_double(damping, &g->damping, err);
}

int calib_gptq(const struct calib *c, size_t i, struct tu_coding *coding, float *w, void *code,
               void *const *side, struct tu_err *err)
{
    struct tu_calib sums;
    struct tu_gptq g;
    struct tu_ints m = {0};
    int rc = gptq_options(&g, &c->spec, err);
    if (!rc)
        rc = calib_sums(c, i, coding->cols, true, &sums, err);
    if (rc)
        return rc;
    rc = tu_gptq_run(&g, &sums, coding, w, &m, tu_ctx_pool(c->ctx), err);
    if (!rc)
        rc = tu_ints_pack(coding, &m, code, side, err);
    if (!rc)
        tu_note(c->ctx, 1, "'%.80s': GPTQ, damping %g, error %.6g", c->source->tensor[i].name,
                g.used, g.error);
    tu_ints_release(&m);
    tu_calib_release(&sums);
    return rc;
}
