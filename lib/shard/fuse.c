/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c: how roles lie inside a tensor: interleaved, concatenated, cut, padded,
 * permuted.
 *
 * Everything is said in spans (shard.h), so nothing else knows these rules. Sources:
 * Megatron-LM core/tensor_parallel/layers.py (column, row, vocabulary),
 * training/checkpointing.py fix_query_key_value_ordering (the three orders of QKV),
 * transformers models/llama/convert_llama_weights_to_hf.py permute (rotary pairs). */

#include <stdio.h>
#include <string.h>

#include "ckpt.h"

int tui_span_add(struct tu_spans *s, struct tu_span v, struct tu_err *err)
{
    int rc = v.rows && v.cols ? TU_GROW(&s->span, &s->cap, s->n, err) : 0;
    if (!rc && v.rows && v.cols)
        s->span[s->n++] = v;
    return rc;
}

void tui_spans_release(struct tu_spans *s)
{
    tu_free(s->span);
    memset(s, 0, sizeof *s);
}

/* Where the rows of a role go: the frame that stays the same for all its spans. */
struct frame {
    struct tu_spans *out;
    bool transpose;
    uint64_t col0, cols, prows;
    uint64_t base; /* elements before the block of a stack */
};

/* Role rows row … row+n-1 are piece rows prow, prow+step, … */
static int emit(const struct frame *f, uint64_t row, uint64_t n, uint64_t prow,
                uint64_t step, struct tu_err *err)
{
    struct tu_span s = {.arow = row, .acol = f->col0, .rows = n, .cols = f->cols};
    s.poff = f->base + (f->transpose ? prow : prow * f->cols);
    s.prow = f->transpose ? step : step * f->cols;
    s.pcol = f->transpose ? f->prows : 1;
    return tui_span_add(f->out, s, err);
}

/* Rows of fuse members before number k, each cut for one rank. */
static uint64_t rows_before(const struct tu_ckpt *c, const struct tu_fuse *f, uint32_t k,
                            uint32_t tp)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < k; i++)
        n += c->role[f->role[i]].rows / tp;
    return n;
}

/* Group by group: the heads of q, then k, then v; the rank holds [lo, hi) of those rows,
 * which may cut a group where there are fewer groups than ranks. */
static int spans_qkv(const struct tu_ckpt *c, const struct tu_fuse *f, uint32_t k,
                     const struct tui_slice *s, const struct frame *fr,
                     struct tu_err *err)
{
    uint64_t groups = c->model.kv_heads, kv = c->role[f->role[1]].rows / groups;
    uint64_t q = c->role[f->role[0]].rows / groups, block = q + 2 * kv;
    uint64_t per = groups * block / s->tp, lo = s->rank * per, hi = lo + per;
    uint64_t len = k == 0 ? q : kv, at = k == 0 ? 0 : k == 1 ? q : q + kv;
    int rc = 0;
    for (uint64_t g = 0; g < groups && !rc; g++) {
        uint64_t begin = g * block + at, from = tu_max(begin, lo),
                 to = tu_min(begin + len, hi);
        if (from < to)
            rc = emit(fr, g * len + (from - begin), to - from, from - lo, 1, err);
    }
    return rc;
}

/* Heads whose pairs (2i, 2i+1) hold rows i and d/2 + i of the role. */
static int spans_rotary(const struct tu_ckpt *c, uint64_t row0, uint64_t rows,
                        const struct frame *fr, struct tu_err *err)
{
    uint64_t d = c->model.head_dim, half = d / 2;
    int rc = 0;
    if (!half || rows % d)
        return tu_fail(err, TU_EUSAGE, "%llu rows are no whole number of heads of %llu",
                       (unsigned long long)rows, (unsigned long long)d);
    for (uint64_t h = 0; h < rows / d && !rc; h++)
        for (uint64_t j = 0; j < 2 && !rc; j++)
            rc = emit(fr, row0 + h * d + j * half, half, h * d + j, 2, err);
    return rc;
}

int tui_fuse_spans(const struct tu_ckpt *c, const struct tu_fuse *all, uint32_t number,
                   struct tui_slice s, struct tu_spans *out, struct tu_err *err)
{
    const struct tu_role *r = &c->role[all->role[number]];
    unsigned t = all->transform;
    uint32_t per = all->per ? all->per : all->roles, first = number - number % per,
             k = number - first;
    const struct tu_fuse block = {t, per, all->role + first, 0}, *f = &block;
    uint32_t cut = t & TU_MAP_COLUMN ? s.tp : 1;
    struct frame fr = {out, t & TU_MAP_TRANSPOSE && r->rank > 1, 0, r->cols, s.prows, 0};
    if (t & TU_MAP_ROW) {
        fr.cols = r->cols / s.tp;
        fr.col0 = s.rank * fr.cols;
    }
    fr.base = rows_before(c, all, first, cut) * fr.cols;
    if (fr.transpose && per < all->roles)
        fr.prows = rows_before(c, f, per, cut);
    if (t & TU_MAP_VOCAB) {
        uint64_t lo = tu_min(s.rank * s.prows, r->rows),
                 hi = tu_min(lo + s.prows, r->rows);
        return emit(&fr, lo, hi - lo, 0, 1, err);
    }
    uint32_t tp = t & TU_MAP_COLUMN ? s.tp : 1, rank = t & TU_MAP_COLUMN ? s.rank : 0;
    if (t & TU_MAP_QKV && s.version >= 2)
        return spans_qkv(c, f, k, &(struct tui_slice){tp, rank, s.version, s.prows}, &fr,
                         err);
    uint64_t n = r->rows / tp, row0 = rank * n;
    if (t & TU_MAP_QKV && s.version == 1) /* [heads, d, 3] */
        return emit(&fr, row0, n, k, 3, err);
    if (t & TU_MAP_ROTARY)
        return spans_rotary(c, row0, n, &fr, err);
    return emit(&fr, row0, n, rows_before(c, f, k, tp), 1, err);
}

void tui_divisors(uint64_t n, char out[64])
{
    size_t at = 0;
    out[0] = 0;
    for (uint64_t d = 1; d <= n && d <= 4096 && at + 12 < 64; d++)
        if (n % d == 0)
            at += (size_t)snprintf(out + at, 64 - at, "%s%llu", at ? ", " : "",
                                   (unsigned long long)d);
}

static int uneven(const char *name, const char *what, uint64_t n, uint32_t tp,
                  struct tu_err *err)
{
    char legal[64];
    tui_divisors(n, legal);
    return tu_fail(err, TU_EUSAGE, "'%.90s': %llu %s%s not divide by tp=%u, but by %s",
                   name, (unsigned long long)n, what, n == 1 ? " does" : "s do", tp, legal);
}

/* What a reader takes apart in equal parts must have been equal; of q, k and v, the only
 * three, the last two. */
static int parts_alike(const struct tu_ckpt *c, const struct tu_fuse *f, const char *name,
                       struct tu_err *err)
{
    const bool qkv = f->roles == 3 && !f->per;
    for (uint32_t k = 1; k < f->roles; k++) {
        const struct tu_role *r = &c->role[f->role[k]],
                             *q = &c->role[f->role[qkv && k > 1 ? 1 : 0]];
        const bool rows = !(qkv && k == 1) && r->rows != q->rows;
        if (rows || r->cols != q->cols)
            return tu_fail(err, TU_EINCOMPLETE,
                           "'%.80s': its parts '%.80s' and '%.80s' have %llu and %llu %s",
                           name, q->name, r->name,
                           (unsigned long long)(rows ? q->rows : q->cols),
                           (unsigned long long)(rows ? r->rows : r->cols),
                           rows ? "rows" : "columns");
        /* States are never cast, integers are not cast to the dtype of the weights. */
        if (r->dtype != q->dtype &&
            (r->state || tui_plan_dtype(c, r->dtype) != tui_plan_dtype(c, q->dtype))) {
            char a[8], b[8];
            return tu_fail(err, TU_EUSAGE,
                           "'%.80s': its parts '%.80s' and '%.80s' are %s and %s, but one "
                           "tensor has one dtype: --dtype makes them alike",
                           name, q->name, r->name, tu_dtype_text(q->dtype, a),
                           tu_dtype_text(r->dtype, b));
        }
    }
    return 0;
}

int tui_fuse_shape(const struct tu_ckpt *c, const struct tu_fuse *f, const char *name,
                   uint32_t tp, uint64_t pad, uint64_t *rows, uint64_t *cols,
                   struct tu_err *err)
{
    uint64_t total = 0;
    unsigned t = f->transform;
    int rc = parts_alike(c, f, name, err);
    if (rc)
        return rc;
    *cols = c->role[f->role[0]].cols;
    for (uint32_t k = 0; k < f->roles; k++) {
        const struct tu_role *r = &c->role[f->role[k]];
        if (t & TU_MAP_COLUMN && !(t & TU_MAP_QKV) && r->rows % tp)
            return uneven(name, "row", r->rows, tp, err);
        if (t & TU_MAP_ROTARY && (c->model.head_dim % 2 || r->rows % c->model.head_dim))
            return tu_fail(err, TU_EINCOMPLETE,
                           "'%.90s': %llu rows are no whole number of heads of %llu", name,
                           (unsigned long long)r->rows, (unsigned long long)c->model.head_dim);
        if (t & TU_MAP_ROTARY && r->rows / c->model.head_dim % tp)
            return uneven(name, "head", r->rows / c->model.head_dim, tp, err);
        total += r->rows;
    }
    if (t & TU_MAP_QKV && (f->roles != 3 || !c->model.kv_heads ||
                           c->role[f->role[1]].rows % c->model.kv_heads ||
                           c->role[f->role[0]].rows % c->model.kv_heads))
        return tu_fail(err, TU_EINCOMPLETE,
                       c->model.kv_heads
                           ? "'%.90s': its rows are no multiple of the key-value heads"
                           : "'%.90s': the number of key-value heads is not known: --config "
                             "gives the model's config.json",
                       name);
    if (t & TU_MAP_COLUMN && total % tp)
        return uneven(name, "row", total, tp, err);
    if (t & TU_MAP_ROW && *cols % tp)
        return uneven(name, "column", *cols, tp, err);
    *rows = t & TU_MAP_COLUMN ? total / tp : total;
    *cols = t & TU_MAP_ROW ? *cols / tp : *cols;
    if (t & TU_MAP_VOCAB) {
        if (!pad && total % tp)
            return uneven(name, "row", total, tp, err);
        *rows = pad ? tu_ceil_div(total, pad * tp) * pad : total / tp;
    }
    return 0;
}

void tui_pad_rows(const struct tu_ckpt *c, const struct tu_piece *p, uint64_t *first,
                  uint64_t *n)
{
    *first = *n = 0;
    if (!(p->fuse.transform & TU_MAP_VOCAB) || !p->tensor.rank)
        return;
    uint64_t prows = p->tensor.dim[0], rows = c->role[p->fuse.role[0]].rows;
    uint64_t begin = tu_min(p->at.tp * prows, rows);
    *first = tu_min(rows - begin, prows);
    *n = prows - *first;
}
