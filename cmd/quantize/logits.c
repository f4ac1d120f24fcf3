/* SPDX-License-Identifier: Apache-2.0 */
/* logits.c: quantize measure --logits: how far a model's distributions of the next token
 * have moved from those of another. Files are read by position, some rows at a time. */
#include "quantize/logits.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "tensorutils/quant/logits.h"

struct logits_opt logits_opt;

struct run {
    struct tu_ctx *ctx;
    struct tu_source *base, *other, *tokens;
    struct tu_logits_row *row; /* of all tensors so far */
    uint64_t n;
};

static const struct tu_column columns[] = {
    {"rows", "ROWS", TU_COL_U64, 0},
    {"kl_mean", "KL", TU_COL_REAL, 0},
    {"kl_error", "KL_ERROR", TU_COL_REAL, 0},
    {"kl_median", "MEDIAN", TU_COL_REAL, 0},
    {"kl_p99", "P99", TU_COL_REAL, 0},
    {"kl_max", "MAX", TU_COL_REAL, 0},
    {"same_top", "SAME_TOP", TU_COL_REAL, 0},
    {"same_top_error", NULL, TU_COL_REAL, 0},
    {"base_ppl", "PPL_BASE", TU_COL_REAL, 0},
    {"ppl", "PPL", TU_COL_REAL, 0},
    {"log_ratio", NULL, TU_COL_REAL, 0},
    {"log_ratio_error", NULL, TU_COL_REAL, 0},
    {"correlation", NULL, TU_COL_REAL, 0},
    {"change_mean", NULL, TU_COL_REAL, 0},
    {"change_error", NULL, TU_COL_REAL, 0},
    {"change_rms", NULL, TU_COL_REAL, 0},
    {"change_min", NULL, TU_COL_REAL, 0},
    {"change_max", NULL, TU_COL_REAL, 0},
    {"kl_min", NULL, TU_COL_REAL, 0},
    {"kl_quantiles", NULL, TU_COL_JSON, 0},
    {"change_quantiles", NULL, TU_COL_JSON, 0},
    {"name", "NAME", TU_COL_NAME, 0},
    {0},
};

/* {"0.001":…,…}: an object of the quantiles. */
static int quantiles(struct tu_buf *out, const struct tu_spread *s, struct tu_err *err)
{
    int rc = 0;
    for (unsigned k = 0; !rc && k < TU_SPREAD_QUANTILES; k++) {
        rc = tu_buf_printf(out, err, "%s\"%g\":", k ? "," : "{", tu_spread_at[k]);
        if (!rc && isfinite(s->quantile[k]))
            rc = tu_buf_printf(out, err, "%.9g", s->quantile[k]);
        else if (!rc)
            rc = tu_buf_printf(out, err, "null");
    }
    return rc ? rc : tu_buf_printf(out, err, "}");
}

static int tell(struct run *r, const struct tu_logits_row *row, uint64_t n, const char *name,
                struct tu_err *err)
{
    struct tu_logits_sum s;
    struct tu_buf kl = {0}, change = {0};
    int rc = tu_logits_sum(row, n, &s, err);
    if (!rc)
        rc = quantiles(&kl, &s.kl, err);
    if (!rc && s.known)
        rc = quantiles(&change, &s.change, err);
    const bool none = !s.known;
    if (!rc)
        tu_row(r->ctx, (const struct tu_cell[]){
                           {.u = n},
                           {.f = s.kl.mean},
                           {.f = s.kl.error},
                           {.f = s.kl.quantile[4]},
                           {.f = s.kl.quantile[7]},
                           {.f = s.kl.max},
                           {.f = s.same_top},
                           {.f = s.same_top_error},
                           {.none = none, .f = s.base_ppl},
                           {.none = none, .f = s.ppl},
                           {.none = none, .f = s.log_ratio},
                           {.none = none, .f = s.log_ratio_error},
                           {.none = none, .f = s.correlation},
                           {.none = none, .f = s.change.mean},
                           {.none = none, .f = s.change.error},
                           {.none = none, .f = s.change_rms},
                           {.none = none, .f = s.change.min},
                           {.none = none, .f = s.change.max},
                           {.f = s.kl.min},
                           {.s = kl.data},
                           {.s = change.data},
                           {.s = name},
                       });
    tu_buf_release(&kl);
    tu_buf_release(&change);
    return rc;
}

/* Windows --------------------------------------------------------------------------------- */

/* n elements of a record from element `first` on, as `to`. */
static int read_as(struct tu_source *s, size_t i, uint32_t to, uint64_t first, uint64_t n,
                   void *out, unsigned char *raw, struct tu_err *err)
{
    const struct tu_tensor *t = &s->tensor[i];
    const uint64_t wide = tu_dtype_find(t->dtype)->block_bytes;
    int rc = tu_source_read(s, i, first * wide, raw, (size_t)(n * wide), err);
    if (!rc)
        rc = to == TU_F32 ? tu_to_float(t->dtype, raw, out, (size_t)n, err)
                          : tu_cast(to, out, t->dtype, raw, (size_t)n, err);
    if (rc)
        tu_err_prefix(err, "%s: '%.80s'", s->path, t->name);
    return rc;
}

/* The tokens of a record's rows, or NULL. */
static int read_tokens(struct run *r, const char *name, uint64_t rows, int64_t **next,
                       struct tu_err *err)
{
    *next = NULL;
    if (!r->tokens)
        return 0;
    size_t i = r->tokens->n == 1 ? 0 : tu_source_find(r->tokens, name);
    const struct tu_tensor *t = i < r->tokens->n ? &r->tokens->tensor[i] : NULL;
    uint64_t n;
    if (!t)
        return tu_fail(err, TU_EUSAGE, "%s: no record '%.80s'", r->tokens->path, name);
    int rc = tu_elements(t->dim, t->rank, &n, err);
    if (rc)
        return rc;
    if (n != rows || tu_dtype_is_float(t->dtype) || !tu_cast_ok(TU_I64, t->dtype))
        return tu_fail(err, TU_EUSAGE,
                       "%s: '%.80s': %" PRIu64 " elements, expected the %" PRIu64
                       " tokens that follow the rows, integers",
                       r->tokens->path, t->name, n, rows);
    unsigned char *raw = tu_alloc((size_t)t->bytes, 1, err);
    *next = raw ? tu_alloc((size_t)n, sizeof **next, err) : NULL;
    rc = *next ? read_as(r->tokens, i, TU_I64, 0, n, *next, raw, err) : TU_ENOMEM;
    tu_free(raw);
    return rc;
}

static int compare_rows(struct run *r, size_t i, size_t j, const int64_t *next, uint64_t rows,
                        uint64_t vocab, struct tu_err *err)
{
    const uint64_t step = tu_max(1, (UINT64_C(1) << 20) / vocab);
    const size_t most = (size_t)(tu_min(step, rows) * vocab);
    float *a = tu_alloc(most, sizeof *a, err), *b = tu_alloc(most, sizeof *b, err);
    unsigned char *raw = tu_alloc(most, 16, err);
    int rc = a && b && raw ? 0 : TU_ENOMEM;
    for (uint64_t first = 0; !rc && first < rows; first += step) {
        const uint64_t n = tu_min(step, rows - first);
        rc = read_as(r->base, j, TU_F32, first * vocab, n * vocab, a, raw, err);
        if (!rc)
            rc = read_as(r->other, i, TU_F32, first * vocab, n * vocab, b, raw, err);
        if (!rc && (rc = tu_logits_compare(a, b, next ? next + first : NULL, first, n, vocab,
                                           r->row + r->n + first, tu_ctx_pool(r->ctx), err)))
            tu_err_prefix(err, "'%.80s'", r->other->tensor[i].name);
    }
    tu_free(a);
    tu_free(b);
    tu_free(raw);
    return rc;
}

static bool plain_float(const struct tu_tensor *t)
{
    return t->rank && tu_dtype_is_float(t->dtype) && tu_dtype_find(t->dtype)->block_elems == 1;
}

static int compare_tensor(struct run *r, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &r->other->tensor[i];
    const uint64_t vocab = t->dim[t->rank - 1];
    const bool only = r->base->n == 1 && r->other->n == 1;
    const size_t j = only ? 0 : tu_source_find(r->base, t->name);
    const struct tu_tensor *b = j < r->base->n ? &r->base->tensor[j] : NULL;
    int64_t *next;
    uint64_t n;
    if (!b || !plain_float(b))
        return tu_fail(err, TU_EUSAGE, "%s: no logits '%.80s'", r->base->path, t->name);
    if (b->rank != t->rank || memcmp(b->dim, t->dim, t->rank * sizeof *t->dim) != 0)
        return tu_fail(err, TU_EUSAGE, "'%.80s': another shape in %s", t->name, r->base->path);
    int rc = tu_elements(t->dim, t->rank, &n, err);
    if (rc || !n)
        return rc ? rc : tu_fail(err, TU_EUSAGE, "'%.80s' is empty", t->name);
    const uint64_t rows = n / vocab;
    struct tu_logits_row *more = tu_realloc(r->row, (size_t)(r->n + rows), sizeof *more, err);
    if (!more)
        return TU_ENOMEM;
    r->row = more;
    rc = read_tokens(r, t->name, rows, &next, err);
    if (!rc)
        rc = compare_rows(r, i, j, next, rows, vocab, err);
    tu_free(next);
    if (!rc)
        rc = tell(r, r->row + r->n, rows, t->name, err);
    r->n += rows;
    return rc;
}

static int compare_all(struct run *r, const char *path, struct tu_err *err)
{
    const struct tu_job *job = tu_ctx_job(r->ctx);
    size_t tensors = 0;
    int rc = tu_source_open(&r->base, logits_opt.base, NULL, NULL, job, err);
    if (!rc)
        rc = tu_source_open(&r->other, path, NULL, NULL, job, err);
    if (!rc && logits_opt.tokens)
        rc = tu_source_open(&r->tokens, logits_opt.tokens, NULL, NULL, job, err);
    if (!rc)
        tu_rows_begin(r->ctx, columns);
    for (size_t i = 0; !rc && i < r->other->n; i++) {
        if (!plain_float(&r->other->tensor[i]))
            continue;
        tensors++;
        rc = compare_tensor(r, i, err);
    }
    if (!rc && !tensors)
        rc = tu_fail(err, TU_EUSAGE, "%s: no logits", path);
    return rc || tensors == 1 ? rc : tell(r, r->row, r->n, "(all)", err);
}

int logits_run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct run r = {.ctx = ctx};
    struct tu_err err;
    if (argc > 1)
        return tu_usage(ctx, "--logits compares with one file");
    int rc = compare_all(&r, argc ? argv[0] : "-", &err);
    tu_source_close(r.base);
    tu_source_close(r.other);
    tu_source_close(r.tokens);
    tu_free(r.row);
    return rc ? tu_error(ctx, &err) : 0;
}
