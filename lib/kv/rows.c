/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: rows out of any layout, tables out of records, and numbers of any dtype. */
#include "rows.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

static size_t find(const struct tu_kv *kv, const char *name)
{
    for (size_t i = 0; i < kv->n; i++)
        if (!strcmp(kv->tensor[i].name, name))
            return i;
    return TU_KV_NONE;
}

static int ints(struct tu_kv *kv, const char *name, unsigned rank, int32_t **out,
                uint64_t *rows, uint64_t *cols, struct tu_err *err)
{
    size_t i = find(kv, name);
    void *data;
    *out = NULL;
    if (i == TU_KV_NONE)
        return tu_fail(err, TU_EINCOMPLETE, "%s: a pool without record '%s'", kv->name,
                       name);
    const struct tu_tensor *t = &kv->tensor[i];
    if (t->dtype != TU_I32 || t->rank != rank)
        return tu_fail(err, TU_EDTYPE, "%s: '%s': expected i32 with %u dimensions (int64 "
                                       "tables are an error in the engines too)",
                       kv->name, name, rank);
    int rc = tu_kv_load(kv, i, &data, err);
    if (rc)
        return rc;
    uint64_t n = t->bytes / 4;
    *out = data;
    for (uint64_t k = 0; k < n; k++)
        (*out)[k] = (int32_t)tu_le32((unsigned char *)data + 4 * k);
    *rows = t->dim[0];
    *cols = rank > 1 ? t->dim[1] : 1;
    return 0;
}

/* The array that a record is. */
static int array_of(const struct tu_kv *kv, const struct tu_kv_layout *l, size_t record,
                    enum tu_kv_side side, struct tu_kv_place *p, struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[record];
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    if (!d || d->block_elems != 1)
        return tu_fail(err, TU_EUNSUP, "'%s': layout '%s' of a packed dtype", t->name, l->name);
    int rc = tu_kv_place_of(p, l, side, t->dim, t->rank, d->block_bytes, tu_kv_latent(t), err);
    if (rc)
        tu_err_prefix(err, "%s: '%s'", kv->name, t->name);
    return rc;
}

/* Pages of the pool, *out: the length of axis p of every array. */
static int pool_blocks(struct tu_kv *kv, const struct tu_kv_layout *l, uint64_t *out,
                       struct tu_err *err)
{
    bool any = false;
    for (uint64_t n = 0; n < TU_KV_SIDES * kv->info.layers; n++) {
        const enum tu_kv_side side = n % TU_KV_SIDES ? TU_KV_V : TU_KV_K;
        size_t i = tu_kv_record(kv, n / TU_KV_SIDES, side);
        struct tu_kv_place p;
        if (i == TU_KV_NONE)
            continue;
        int rc = array_of(kv, l, i, side, &p, err);
        if (rc)
            return rc;
        if (p.of.block != kv->info.block)
            return tu_fail(err, TU_ESIZE,
                           "%s: '%s' has pages of %" PRIu64 " tokens, META kv says %" PRIu64,
                           kv->name, kv->tensor[i].name, p.of.block, kv->info.block);
        if (any && p.of.blocks != *out)
            return tu_fail(err, TU_ESIZE, "%s: '%s' has %" PRIu64 " pages, others have %" PRIu64,
                           kv->name, kv->tensor[i].name, p.of.blocks, *out);
        *out = p.of.blocks;
        any = true;
    }
    return any ? 0 : tu_fail(err, TU_EINCOMPLETE, "%s: no layers", kv->name);
}

/* A record [pages, tokens of a page]; *out NULL where the pool has none. */
static int per_page(struct tu_kv *kv, const struct tu_kv_table *t, const char *name,
                    int32_t **out, struct tu_err *err)
{
    uint64_t blocks, width;
    *out = NULL;
    int rc = find(kv, name) == TU_KV_NONE ? 0 : ints(kv, name, 2, out, &blocks, &width, err);
    if (!rc && *out && (blocks != t->blocks || width != t->block)) {
        tu_free(*out);
        *out = NULL;
        rc = tu_fail(err, TU_ESIZE, "%s: '%s' is not [pages, tokens of a page]", kv->name, name);
    }
    return rc;
}

/* Keys and values hang on the place of a token and on the tokens before it: a page in two
 * tables must be the same block of both, behind the same tokens. Only where positions are
 * stated per page may it stand elsewhere. */
static int check_shared(struct tu_kv *kv, const struct tu_kv_table *t, struct tu_err *err)
{
    if (find(kv, "kv.pool.pos") != TU_KV_NONE)
        return 0;
    struct owner {
        uint64_t seq, at, before; /* at: from 1; 0: in no table so far. before: a hash */
    } *owner = tu_calloc((size_t)t->blocks, sizeof *owner, err);
    const size_t width = (size_t)t->block;
    int32_t *ids = NULL;
    int rc = owner ? per_page(kv, t, "kv.pool.tokens", &ids, err) : TU_ENOMEM;
    for (uint64_t s = 0; !rc && s < t->n; s++)
        for (uint64_t k = t->begin[s], before = 0; !rc && k < t->begin[s + 1]; k++) {
            struct owner *o = &owner[t->page[k]];
            uint64_t at = k - t->begin[s];
            if (!o->at)
                *o = (struct owner){s, at + 1, before};
            else if (o->at != at + 1)
                rc = tu_fail(err, TU_EFORMAT,
                             "%s: page %d is block %" PRIu64 " of sequence %" PRIu64
                             " and block %" PRIu64 " of sequence %" PRIu64,
                             kv->name, t->page[k], o->at - 1, o->seq, at, s);
            else if (o->before != before)
                rc = tu_fail(err, TU_EFORMAT,
                             "%s: page %d is block %" PRIu64 " of sequences %" PRIu64 " and %"
                             PRIu64 ", with different tokens before it",
                             kv->name, t->page[k], at, o->seq, s);
            if (ids)
                before = XXH3_64bits_withSeed(ids + (size_t)t->page[k] * width,
                                              width * sizeof *ids, before);
        }
    tu_free(ids);
    tu_free(owner);
    return rc;
}

int tu_kv_pool_table(struct tu_kv *kv, struct tu_kv_table *out, struct tu_err *err)
{
    const struct tu_kv_layout *l;
    int32_t *a = NULL, *b = NULL, *c = NULL;
    uint64_t blocks = 0, n = 0, width = 0, m = 0, k = 0, one;
    *out = (struct tu_kv_table){0};
    int rc = tu_kv_layout_find(&l, kv->info.layout, err);
    if (!rc)
        rc = pool_blocks(kv, l, &blocks, err);
    if (!rc && find(kv, "block_table") != TU_KV_NONE) {
        rc = ints(kv, "block_table", 2, &a, &n, &width, err);
        if (!rc)
            rc = ints(kv, "seqlens_k", 1, &b, &m, &one, err);
        if (!rc && m != n)
            rc = tu_fail(err, TU_ESIZE, "'seqlens_k' has %" PRIu64 " of %" PRIu64
                                        " sequences", m, n);
        if (!rc)
            rc = tu_kv_table_of_padded(out, a, n, width, b, kv->info.block, blocks, err);
    } else if (!rc) {
        rc = ints(kv, "kv_indptr", 1, &a, &n, &one, err);
        if (!rc)
            rc = ints(kv, "kv_indices", 1, &b, &m, &one, err);
        if (!rc)
            rc = ints(kv, "kv_last_page_len", 1, &c, &k, &one, err);
        if (!rc && (n == 0 || k != n - 1))
            rc = tu_fail(err, TU_ESIZE, "kv_indptr has %" PRIu64 " entries, "
                                        "kv_last_page_len %" PRIu64, n, k);
        if (!rc)
            rc = tu_kv_table_of_csr(out, a, n - 1, b, m, c, kv->info.block, blocks, err);
    }
    if (!rc && (rc = check_shared(kv, out, err)))
        tu_kv_table_release(out);
    tu_free(a);
    tu_free(b);
    tu_free(c);
    return rc;
}

int tui_rows_begin(struct tui_rows *r, struct tu_kv *kv, struct tu_err *err)
{
    *r = (struct tui_rows){.kv = kv, .held = TU_KV_NONE};
    int rc = tu_kv_layout_find(&r->layout, kv->info.layout, err);
    if (rc) {
        tu_err_prefix(err, "%s", kv->name);
        return rc;
    }
    for (size_t i = 0; i < kv->n; i++) {
        uint64_t layer;
        const struct tu_tensor *t = &kv->tensor[i];
        if (tu_kv_name(t->name, &layer) && t->meta && strstr(t->meta, "\"quant\""))
            return tu_fail(err, TU_EUSAGE, "%s: '%s' is compressed: kv-pack decompress first",
                           kv->name, t->name);
    }
    r->pool = tu_kv_layout_has(r->layout, 'p');
    return r->pool ? tu_kv_pool_table(kv, &r->table, err) : 0;
}

void tui_rows_end(struct tui_rows *r)
{
    tu_free(r->data);
    tu_kv_table_release(&r->table);
    *r = (struct tui_rows){0};
}

uint64_t tui_rows_sequences(const struct tui_rows *r)
{
    return r->pool ? r->table.n : 1;
}

static bool by_tokens(const struct tui_rows *r)
{
    return !strcmp(r->layout->name, "nhd");
}

uint64_t tui_rows_tokens(const struct tui_rows *r, uint64_t seq)
{
    struct tu_kv_place p;
    if (r->pool)
        return r->table.tokens[seq];
    if (r->kv->tokens || by_tokens(r))
        return r->kv->tokens;
    for (uint64_t l = 0; l < r->kv->info.layers; l++)
        if (r->kv->layer[l].k != TU_KV_NONE &&
            !array_of(r->kv, r->layout, r->kv->layer[l].k, TU_KV_K, &p, NULL))
            return p.of.block;
    return 0;
}

bool tui_rows_side(const struct tui_rows *r, uint64_t seq, uint64_t layer,
                   enum tu_kv_side side, struct tui_side *out)
{
    size_t i = tu_kv_record(r->kv, layer, side);
    struct tu_kv_place p;
    if (i == TU_KV_NONE)
        return false;
    const struct tu_tensor *t = &r->kv->tensor[i];
    *out = (struct tui_side){.dtype = t->dtype, .latent = tu_kv_latent(t), .record = i};
    if (by_tokens(r)) {
        tu_kv_dims(r->kv, i, &out->heads, &out->dim);
        out->tokens = t->dim[0];
        return true;
    }
    if (array_of(r->kv, r->layout, i, side, &p, NULL))
        return false;
    out->heads = p.of.heads;
    out->dim = p.of.dim;
    out->tokens = r->pool ? r->table.tokens[seq] : p.of.block;
    return true;
}

int tui_rows_read(struct tui_rows *r, uint64_t seq, uint64_t layer, enum tu_kv_side side,
                  uint64_t first, uint64_t n, void *buf, struct tu_err *err)
{
    size_t i = tu_kv_record(r->kv, layer, side);
    const struct tu_tensor *t = &r->kv->tensor[i];
    struct tu_kv_place p;
    if (by_tokens(r)) {
        uint64_t row = t->dim[0] ? t->bytes / t->dim[0] : 0;
        int rc = r->kv->ops->verify ? r->kv->ops->verify(r->kv, i, err) : 0;
        return rc ? rc : tu_kv_read(r->kv, i, first * row, buf, (size_t)(n * row), err);
    }
    int rc = array_of(r->kv, r->layout, i, side, &p, err);
    if (!rc && r->held != i) {
        tu_free(r->data);
        r->held = TU_KV_NONE;
        rc = tu_kv_load(r->kv, i, &r->data, err);
    }
    if (rc)
        return rc;
    r->held = i;
    uint64_t l = tu_kv_layout_has(r->layout, 'l') ? layer : 0;
    uint64_t s = tu_kv_layout_has(r->layout, 's') ? (uint64_t)side : 0;
    if (l >= p.of.layers || first > UINT64_MAX - n ||
        (!r->pool && first + n > p.of.block))
        return tu_fail(err, TU_ESIZE, "%s: '%s' has no layer %" PRIu64 " or fewer tokens",
                       r->kv->name, t->name, l);
    tu_kv_get(&p, r->data, l, s, r->pool ? r->table.page + r->table.begin[seq] : NULL,
              first, n, buf);
    return 0;
}

/* Per page, kv.pool.tokens [NB, B], gathered along the table. */
static int of_pages(struct tui_rows *r, uint64_t seq, const char *name, int32_t **out,
                    struct tu_err *err)
{
    int32_t *all;
    uint64_t n = r->table.tokens[seq], width = r->table.block;
    *out = NULL;
    int rc = per_page(r->kv, &r->table, name, &all, err);
    if (rc || !all)
        return rc;
    if (!(*out = tu_alloc((size_t)n, sizeof **out, err)))
        rc = TU_ENOMEM;
    for (uint64_t i = 0; !rc && i < n; i++) {
        uint64_t page = (uint64_t)r->table.page[r->table.begin[seq] + i / width];
        (*out)[i] = all[page * width + i % width];
        if ((*out)[i] < 0)
            rc = tu_fail(err, TU_EFORMAT, "%s: '%s': page %" PRIu64 " holds %d where "
                                          "sequence %" PRIu64 " has a token",
                         r->kv->name, name, page, (*out)[i], seq);
    }
    tu_free(all);
    if (rc) {
        tu_free(*out);
        *out = NULL;
    }
    return rc;
}

/* A pool of one sequence may have a record of the whole: is it as long as the table says? */
static bool whole(const struct tui_rows *r, size_t record)
{
    return !r->pool || (r->table.n == 1 && record != TU_KV_NONE);
}

static int check_whole(const struct tui_rows *r, struct tu_err *err)
{
    if (r->pool && r->kv->tokens != r->table.tokens[0])
        return tu_fail(err, TU_ESIZE, "%s: %" PRIu64 " tokens, the table has %" PRIu64,
                       r->kv->name, r->kv->tokens, r->table.tokens[0]);
    return 0;
}

int tui_rows_ids(struct tui_rows *r, uint64_t seq, int32_t **out, struct tu_err *err)
{
    *out = NULL;
    if (!whole(r, r->kv->ids))
        return of_pages(r, seq, "kv.pool.tokens", out, err);
    int rc = check_whole(r, err);
    return rc || r->kv->ids == TU_KV_NONE ? rc : tu_kv_ids(r->kv, out, err);
}

int tui_rows_positions(struct tui_rows *r, uint64_t seq, int32_t **out, struct tu_err *err)
{
    *out = NULL;
    if (!whole(r, r->kv->pos))
        return of_pages(r, seq, "kv.pool.pos", out, err);
    int rc = check_whole(r, err);
    return rc || r->kv->pos == TU_KV_NONE ? rc : tu_kv_positions(r->kv, out, err);
}

int tui_row_bytes(uint32_t dtype, uint64_t n, uint64_t cols, uint64_t *out,
                  struct tu_err *err)
{
    uint64_t dim[2] = {cols ? n / cols : 0, cols};
    return tu_tensor_bytes(dtype, dim, 2, out, err);
}

int tui_copy_metas(const struct tu_kv *kv, struct tu_writer *w, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < kv->metas; i++)
        rc = tu_writer_meta(w, kv->meta[i].topic, kv->meta[i].json, kv->meta[i].n, err);
    return rc;
}

int tui_write_ints(struct tu_writer *w, const char *name, const int32_t *v,
                   const uint64_t *dim, unsigned rank, struct tu_err *err)
{
    struct tu_tensor t = {.name = name, .dtype = TU_I32, .rank = rank, .dim = dim};
    int rc = tu_tensor_bytes(TU_I32, dim, rank, &t.bytes, err);
    unsigned char *raw = rc ? NULL : tu_alloc((size_t)t.bytes, 1, err);
    if (!rc && !raw)
        rc = TU_ENOMEM;
    for (uint64_t i = 0; !rc && i < t.bytes / 4; i++)
        tu_put32(raw + 4 * i, (uint32_t)v[i]);
    if (!rc)
        rc = tu_writer_tensor(w, &t, raw, err);
    tu_free(raw);
    return rc;
}

int tui_write_table(struct tu_writer *w, const struct tu_kv_table *t,
                    enum tu_kv_tables form, struct tu_err *err)
{
    int32_t *a, *b, *c = NULL;
    uint64_t width, pages = t->n ? t->begin[t->n] : 0;
    int rc = form == TU_KV_PADDED ? tu_kv_table_padded(t, &a, &width, &b, err)
                                  : tu_kv_table_csr(t, &a, &b, &c, err);
    if (rc)
        return rc;
    if (form == TU_KV_PADDED) {
        rc = tui_write_ints(w, "block_table", a, (uint64_t[]){t->n, width}, 2, err);
        if (!rc)
            rc = tui_write_ints(w, "seqlens_k", b, &t->n, 1, err);
    } else {
        rc = tui_write_ints(w, "kv_indptr", a, (uint64_t[]){t->n + 1}, 1, err);
        if (!rc)
            rc = tui_write_ints(w, "kv_indices", b, &pages, 1, err);
        if (!rc)
            rc = tui_write_ints(w, "kv_last_page_len", c, &t->n, 1, err);
    }
    tu_free(a);
    tu_free(b);
    tu_free(c);
    return rc;
}

/* Numbers -------------------------------------------------------------------------------- */

static int coding(struct tu_coding *c, uint32_t dtype, uint64_t n, uint64_t cols,
                  struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(dtype);
    struct tu_spec spec;
    uint64_t dim[2] = {cols ? n / cols : 0, cols};
    if (!d)
        return tu_fail(err, TU_EDTYPE, "unknown dtype 0x%04x", (unsigned)dtype);
    int rc = tu_spec_parse(&spec, d->name, err);
    if (rc)
        return rc;
    *c = (struct tu_coding){.compat = false};
    rc = tu_coding_init(c, &spec, dim, 2, err);
    if (!rc && c->sides)
        rc = tu_fail(err, TU_EUNSUP, "dtype %s has its scales apart", d->name);
    tu_spec_release(&spec);
    return rc;
}

int tu_kv_to_float(uint32_t dtype, const void *src, float *out, uint64_t n, uint64_t cols,
                   struct tu_err *err)
{
    struct tu_coding c;
    if (!(dtype & TU_DTYPE_GGML))
        return tu_to_float(dtype, src, out, (size_t)n, err);
    int rc = coding(&c, dtype, n, cols, err);
    return rc ? rc : tu_coding_decode_mem(&c, src, NULL, out, NULL, err);
}

int tu_kv_from_float(uint32_t dtype, void *dst, const float *src, uint64_t n,
                     uint64_t cols, struct tu_err *err)
{
    struct tu_coding c;
    if (!(dtype & TU_DTYPE_GGML))
        return tu_cast(dtype, dst, TU_F32, src, (size_t)n, err);
    int rc = coding(&c, dtype, n, cols, err);
    return rc ? rc : tu_coding_encode_mem(&c, src, dst, NULL, NULL, err);
}

void tu_kv_hadamard(float *x, uint64_t n, uint64_t size)
{
    float scale = 1 / sqrtf((float)size);
    for (uint64_t at = 0; at + size <= n; at += size, x += size) {
        for (uint64_t h = 1; h < size; h *= 2)
            for (uint64_t i = 0; i < size; i += 2 * h)
                for (uint64_t k = i; k < i + h; k++) {
                    float a = x[k], b = x[k + h];
                    x[k] = a + b;
                    x[k + h] = a - b;
                }
        for (uint64_t i = 0; i < size; i++)
            x[i] *= scale;
    }
}
