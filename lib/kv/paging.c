/* SPDX-License-Identifier: Apache-2.0 */
/* paging.c: the caches of several sequences in one pool of pages: each its own, a common
 * beginning copied on write, or full blocks shared by their names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "rows.h"

struct paging {
    const struct tu_kv_paging *how;
    struct tu_kv_paged *out;
    struct tui_rows *seq; /* [n] */
    int32_t **ids;        /* [n], NULL where a cache has none */
    uint32_t *number;     /* [n] in the pool */
    uint64_t *skip;       /* [n] tokens that stand in the pool already */
    size_t n;
    struct tu_kv_pool *pool;
    const struct tu_kv_layout *layout;
    struct tu_kv_info info;
    struct tu_writer *w;
};

static int begin(struct paging *p, struct tu_kv *const *cache, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < p->n; i++) {
        rc = tui_rows_begin(&p->seq[i], cache[i], err);
        if (!rc && p->seq[i].pool)
            rc = tu_fail(err, TU_EUSAGE, "%s: pages already: kv-pack convert --layout nhd",
                         cache[i]->name);
        if (!rc)
            rc = tui_rows_ids(&p->seq[i], 0, &p->ids[i], err);
        if (!rc && (p->how->scheme || p->how->cow) && !p->ids[i])
            rc = tu_fail(err, TU_EINCOMPLETE, "%s: no record kv.tokens: sharing goes by it",
                         cache[i]->name);
        if (!rc && i && (rc = tu_kv_info_same(&cache[0]->info, &cache[i]->info, true, err)))
            tu_err_prefix(err, "%s and %s", cache[0]->name, cache[i]->name);
    }
    return rc;
}

/* Keys of full blocks: the first 8 bytes of their names, or numbers that no two share. */
static int keys_of(struct paging *p, size_t i, uint64_t **key, unsigned char **digest,
                   struct tu_err *err)
{
    uint64_t n = tui_rows_tokens(&p->seq[i], 0), blocks = n / p->how->block;
    const struct tu_kv_scheme *s = p->how->scheme;
    *digest = NULL;
    *key = tu_alloc((size_t)blocks + 1, sizeof **key, err);
    int rc = *key ? 0 : TU_ENOMEM;
    if (!rc && s) {
        struct tu_kv_hash_how how = *p->how->hash;
        how.block = p->how->block;
        if (!(*digest = tu_alloc((size_t)blocks + 1, s->size, err)))
            rc = TU_ENOMEM;
        if (!rc)
            rc = tu_kv_hash_blocks(s, &how, p->ids[i], n, *digest, err);
    }
    for (uint64_t b = 0; !rc && b < blocks; b++)
        (*key)[b] = s ? tu_le64(*digest + b * s->size) : (uint64_t)i << 32 | b;
    return rc;
}

/* The names of the pages that this sequence filled. */
static int note_names(struct paging *p, size_t i, const unsigned char *digest,
                      struct tu_err *err)
{
    uint64_t pages, full = tui_rows_tokens(&p->seq[i], 0) / p->how->block;
    const int32_t *page = tu_kv_pool_pages(p->pool, p->number[i], &pages);
    unsigned size = p->out->size;
    (void)err;
    for (uint64_t b = 0; b < full; b++)
        memcpy(p->out->digest + (size_t)page[b] * size, digest + b * size, size);
    return 0;
}

static int take(struct paging *p, size_t i, struct tu_err *err)
{
    uint64_t n = tui_rows_tokens(&p->seq[i], 0), hits = 0;
    uint64_t *key;
    unsigned char *digest;
    int rc = keys_of(p, i, &key, &digest, err);
    if (!rc)
        rc = tu_kv_pool_begin(p->pool, key, n, &p->number[i], &hits, err);
    if (!rc && digest)
        rc = note_names(p, i, digest, err);
    if (!rc) {
        p->skip[i] = hits * p->how->block;
        p->out->shared += p->skip[i];
    } else
        tu_err_prefix(err, "%s", p->seq[i].kv->name);
    tu_free(key);
    tu_free(digest);
    return rc;
}

/* What all sequences begin with is one sequence that is forked; then each goes its way. */
static int fork_all(struct paging *p, struct tu_err *err)
{
    uint64_t common = tui_rows_tokens(&p->seq[0], 0), hits;
    int32_t from, to;
    uint64_t *key = tu_calloc((size_t)p->how->blocks + 1, sizeof *key, err);
    int rc = key ? 0 : TU_ENOMEM;
    for (size_t i = 1; i < p->n; i++) {
        common = tu_min(common, tui_rows_tokens(&p->seq[i], 0));
        for (uint64_t k = 0; k < common; k++)
            if (p->ids[i][k] != p->ids[0][k])
                common = k;
    }
    for (uint64_t b = 0; !rc && b < p->how->blocks; b++)
        key[b] = b;
    if (!rc)
        rc = tu_kv_pool_begin(p->pool, key, common, &p->number[0], &hits, err);
    for (size_t i = 1; !rc && i < p->n; i++)
        rc = tu_kv_pool_fork(p->pool, p->number[0], &p->number[i], err);
    for (size_t i = 0; !rc && i < p->n; i++) {
        for (uint64_t b = 0; b < p->how->blocks; b++)
            key[b] = (uint64_t)i << 32 | b;
        rc = tu_kv_pool_grow(p->pool, p->number[i], key, tui_rows_tokens(&p->seq[i], 0),
                             &from, &to, err);
        /* A copied page is written again, as is the last one's own partial page. */
        p->skip[i] = i ? common / p->how->block * p->how->block : 0;
        p->out->shared += i ? common : 0;
    }
    tu_free(key);
    return rc;
}

static int allocate(struct paging *p, struct tu_err *err)
{
    uint64_t blocks = p->how->blocks;
    for (size_t i = 0; i < p->n; i++)
        p->out->tokens += tui_rows_tokens(&p->seq[i], 0);
    if (!p->out->tokens || blocks > INT32_MAX / 4)
        return tu_fail(err, TU_EUSAGE, "%" PRIu64 " tokens in %" PRIu64 " pages",
                       p->out->tokens, blocks);
    int rc = tu_kv_pool_new(&p->pool, (uint32_t)blocks, (uint32_t)p->how->block, err);
    if (rc)
        return rc;
    if (p->how->scheme) {
        p->out->size = p->how->scheme->size;
        p->out->digest = tu_calloc((size_t)blocks, p->out->size, err);
        if (!p->out->digest)
            return TU_ENOMEM;
    }
    if (p->how->cow)
        rc = fork_all(p, err);
    for (size_t i = 0; !rc && !p->how->cow && i < p->n; i++)
        rc = take(p, i, err);
    return rc;
}

static int tabulate(struct paging *p, struct tu_err *err)
{
    struct tu_kv_paged *out = p->out;
    struct tu_kv_pool_count c;
    int rc = 0;
    out->table = (struct tu_kv_table){.block = p->how->block, .blocks = p->how->blocks};
    for (size_t i = 0; !rc && i < p->n; i++) {
        uint64_t pages;
        const int32_t *page = tu_kv_pool_pages(p->pool, p->number[i], &pages);
        rc = tu_kv_table_add(&out->table, page, pages, tui_rows_tokens(&p->seq[i], 0), err);
    }
    tu_kv_pool_counts(p->pool, &c);
    out->lookups = c.lookups;
    out->hits = c.hits;
    out->copies = c.copies;
    if (!rc && !(out->refs = tu_calloc((size_t)p->how->blocks, sizeof *out->refs, err)))
        rc = TU_ENOMEM;
    for (uint64_t b = 0; !rc && b < p->how->blocks; b++)
        out->refs[b] = tu_kv_pool_refs(p->pool, (int32_t)b);
    return rc;
}

/* Arrays ------------------------------------------------------------------------------- */

struct array {
    struct tu_kv_place place;
    void *data;
    uint32_t dtype;
};

static int new_array(struct paging *p, struct array *a, const struct tui_side *s,
                     enum tu_kv_side side, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(s->dtype);
    struct tu_kv_geometry g = {
        .layers = tu_kv_layout_has(p->layout, 'l') ? p->info.layers : 1,
        .heads = s->heads, .dim = s->dim, .block = p->how->block, .blocks = p->how->blocks,
        .elem = d->block_bytes, .latent = s->latent};
    if (d->block_elems != 1)
        return tu_fail(err, TU_EUSAGE, "pages take elements of whole bytes, not %s (kv-pack "
                                       "convert --dtype)", d->name);
    int rc = tu_kv_place(&a->place, p->layout, side, &g, err);
    a->dtype = s->dtype;
    if (!rc && !(a->data = tu_calloc((size_t)a->place.bytes, 1, err)))
        rc = tu_fail(err, TU_ENOMEM, "no memory for a pool of %" PRIu64 " bytes",
                     a->place.bytes);
    return rc;
}

/* Are the shared rows those that stand in the pool? */
static int compare(struct paging *p, struct array *a, size_t i, uint64_t l, uint64_t s,
                   const void *rows, uint64_t n, const int32_t *page, struct tu_err *err)
{
    uint64_t row = a->place.of.heads * a->place.of.dim * a->place.of.elem;
    unsigned char *have = tu_alloc((size_t)n, (size_t)row, err);
    if (!have)
        return TU_ENOMEM;
    tu_kv_get(&a->place, a->data, l, s, page, 0, n, have);
    bool same = !memcmp(have, rows, (size_t)(n * row));
    tu_free(have);
    return same ? 0
                : tu_fail(err, TU_EINCOMPLETE,
                          "%s: layer %" PRIu64 ": blocks of the same name hold other %s: "
                          "one of the caches is not what META kv says",
                          p->seq[i].kv->name, l, s ? "values" : "keys");
}

static int put_rows(struct paging *p, struct array *a, size_t i, uint64_t layer,
                    enum tu_kv_side side, struct tu_err *err)
{
    struct tui_side s;
    uint64_t n = tui_rows_tokens(&p->seq[i], 0), pages, skip = p->skip[i];
    uint64_t l = tu_kv_layout_has(p->layout, 'l') ? layer : 0;
    uint64_t k = tu_kv_layout_has(p->layout, 's') ? (uint64_t)side : 0;
    const int32_t *page = tu_kv_pool_pages(p->pool, p->number[i], &pages);
    if (!tui_rows_side(&p->seq[i], 0, layer, side, &s) || s.heads != a->place.of.heads ||
        s.dim != a->place.of.dim || s.dtype != a->dtype || s.tokens != n)
        return tu_fail(err, TU_EINCOMPLETE, "%s: layer %" PRIu64 " has another shape or dtype",
                       p->seq[i].kv->name, layer);
    uint64_t first = p->how->verify ? 0 : skip, row = s.heads * s.dim * a->place.of.elem;
    unsigned char *rows = tu_alloc((size_t)(n - first), (size_t)row, err);
    int rc = rows ? tui_rows_read(&p->seq[i], 0, layer, side, first, n - first, rows, err)
                  : TU_ENOMEM;
    if (!rc && skip && p->how->verify)
        rc = compare(p, a, i, l, k, rows, skip, page, err);
    if (!rc)
        tu_kv_put(&a->place, a->data, l, k, page, skip, n - skip,
                  rows + (skip - first) * row);
    tu_free(rows);
    return rc;
}

static int write_array(struct paging *p, struct array *a, const char *name,
                       struct tu_err *err)
{
    struct tu_tensor t = {.name = name, .dtype = a->dtype, .rank = a->place.rank,
                          .dim = a->place.dim, .bytes = a->place.bytes};
    int rc = tu_writer_tensor(p->w, &t, a->data, err);
    tu_free(a->data);
    a->data = NULL;
    return rc;
}

static int write_layers(struct paging *p, struct tu_err *err)
{
    bool both = tu_kv_layout_has(p->layout, 's'), all = tu_kv_layout_has(p->layout, 'l');
    struct array a = {.data = NULL};
    int rc = 0;
    for (uint64_t l = 0; !rc && l < p->info.layers; l++)
        for (int side = TU_KV_K; !rc && side < TU_KV_SIDES; side++) {
            struct tui_side s;
            char name[40];
            if (!tui_rows_side(&p->seq[0], 0, l, (enum tu_kv_side)side, &s))
                continue;
            if (!a.data)
                rc = new_array(p, &a, &s, (enum tu_kv_side)side, err);
            for (size_t i = 0; !rc && i < p->n; i++)
                rc = put_rows(p, &a, i, l, (enum tu_kv_side)side, err);
            snprintf(name, sizeof name, "kv.%" PRIu64 ".%s", l,
                     s.latent ? "ckv" : both ? "kv" : side ? "v" : "k");
            bool last = !all || (l + 1 == p->info.layers && (side == TU_KV_V || s.latent));
            if (!rc && (!both || side == TU_KV_V || s.latent) && last)
                rc = write_array(p, &a, all ? "kv.all" : name, err);
        }
    tu_free(a.data);
    return rc;
}

/* Per page: ids or positions of its tokens, -1 behind the last. */
static int write_per_page(struct paging *p, const char *name, int32_t *const *of,
                          struct tu_err *err)
{
    uint64_t B = p->how->block, dim[2] = {p->how->blocks, B};
    int32_t *all = tu_alloc((size_t)(dim[0] * B), sizeof *all, err);
    if (!all)
        return TU_ENOMEM;
    memset(all, 0xff, (size_t)(dim[0] * B) * sizeof *all);
    for (size_t i = 0; i < p->n; i++) {
        const int32_t *page = p->out->table.page + p->out->table.begin[i];
        for (uint64_t t = 0; t < p->out->table.tokens[i]; t++)
            all[(uint64_t)page[t / B] * B + t % B] = of[i][t];
    }
    int rc = tui_write_ints(p->w, name, all, dim, 2, err);
    tu_free(all);
    return rc;
}

static int write_tables(struct paging *p, struct tu_err *err)
{
    uint64_t blocks = p->how->blocks;
    bool ids = true;
    int32_t *refs = tu_alloc((size_t)blocks, sizeof *refs, err);
    int rc = refs ? tui_write_table(p->w, &p->out->table, p->how->tables, err) : TU_ENOMEM;
    for (size_t i = 0; i < p->n; i++)
        ids = ids && p->ids[i];
    if (!rc && ids)
        rc = write_per_page(p, "kv.pool.tokens", p->ids, err);
    for (uint64_t b = 0; !rc && b < blocks; b++)
        refs[b] = (int32_t)p->out->refs[b];
    if (!rc)
        rc = tui_write_ints(p->w, "kv.pool.refs", refs, &blocks, 1, err);
    if (!rc && p->out->digest) {
        uint64_t dim[2] = {blocks, p->out->size};
        struct tu_tensor t = {.name = "kv.pool.hash", .dtype = TU_U8, .rank = 2, .dim = dim,
                              .bytes = blocks * p->out->size};
        rc = tu_writer_tensor(p->w, &t, p->out->digest, err);
    }
    tu_free(refs);
    return rc;
}

/* Positions that are not 0 … T-1 would make equal tokens unequal: refused with sharing. */
static int write_positions(struct paging *p, struct tu_err *err)
{
    int32_t **pos = tu_calloc(p->n, sizeof *pos, err);
    bool any = false;
    int rc = pos ? 0 : TU_ENOMEM;
    for (size_t i = 0; !rc && i < p->n; i++) {
        rc = tu_kv_positions(p->seq[i].kv, &pos[i], err);
        for (uint64_t t = 0; !rc && t < p->seq[i].kv->tokens; t++)
            any = any || pos[i][t] != (int32_t)t;
    }
    if (!rc && any && (p->how->scheme || p->how->cow))
        rc = tu_fail(err, TU_EUSAGE, "caches whose positions do not begin at 0 share nothing");
    if (!rc && any)
        rc = write_per_page(p, "kv.pool.pos", pos, err);
    for (size_t i = 0; pos && i < p->n; i++)
        tu_free(pos[i]);
    tu_free(pos);
    return rc;
}

static int write_pool(struct paging *p, struct tu_err *err)
{
    int rc = tu_kv_write_info(p->w, &p->info, err);
    if (!rc)
        rc = tui_copy_metas(p->seq[0].kv, p->w, err);
    if (!rc)
        rc = write_tables(p, err);
    if (!rc)
        rc = write_positions(p, err);
    if (!rc)
        rc = write_layers(p, err);
    return rc ? rc : tu_writer_end(p->w, false, err);
}

static void release(struct paging *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->seq)
            tui_rows_end(&p->seq[i]);
        if (p->ids)
            tu_free(p->ids[i]);
    }
    tu_free(p->seq);
    tu_free(p->ids);
    tu_free(p->number);
    tu_free(p->skip);
    tu_kv_pool_free(p->pool);
}

int tu_kv_page(struct tu_kv *const *cache, size_t n, const struct tu_kv_paging *how,
               struct tu_kv_paged *out, struct tu_writer *w, const struct tu_job *job,
               struct tu_err *err)
{
    struct tu_kv_paging local = *how;
    struct paging p = {.how = &local, .out = out, .n = n, .layout = how->layout, .w = w};
    (void)job;
    *out = (struct tu_kv_paged){0};
    if (!n || !how->block || how->block > 1 << 20)
        return tu_fail(err, TU_EUSAGE, "pages of %" PRIu64 " tokens for %zu sequences",
                       how->block, n);
    p.seq = tu_calloc(n, sizeof *p.seq, err);
    p.ids = tu_calloc(n, sizeof *p.ids, err);
    p.number = tu_calloc(n, sizeof *p.number, err);
    p.skip = tu_calloc(n, sizeof *p.skip, err);
    int rc = p.seq && p.ids && p.number && p.skip ? 0 : TU_ENOMEM;
    if (!rc && !p.layout)
        rc = tu_kv_layout_find(&p.layout, "nhd-paged", err);
    if (!rc && !tu_kv_layout_has(p.layout, 'p'))
        rc = tu_fail(err, TU_EUSAGE, "layout '%s' has no pages", p.layout->name);
    if (!rc)
        rc = begin(&p, cache, err);
    if (!rc && !local.blocks) /* one that surely suffices; what is free is cut off below */
        for (size_t i = 0; i < n; i++)
            local.blocks += tu_ceil_div(tui_rows_tokens(&p.seq[i], 0), how->block) + how->cow;
    if (!rc)
        rc = allocate(&p, err);
    if (!rc && !how->blocks) { /* pages are handed out in order, so the free ones are last */
        uint64_t used = 0;
        for (uint64_t b = 0; b < local.blocks; b++)
            used = tu_kv_pool_refs(p.pool, (int32_t)b) ? b + 1 : used;
        local.blocks = used;
    }
    if (!rc)
        rc = tabulate(&p, err);
    if (!rc) {
        p.info = cache[0]->info;
        p.info.block = how->block;
        snprintf(p.info.layout, sizeof p.info.layout, "%s", p.layout->name);
        rc = write_pool(&p, err);
    }
    release(&p);
    if (rc)
        tu_kv_paged_release(out);
    return rc;
}

void tu_kv_paged_release(struct tu_kv_paged *p)
{
    tu_kv_table_release(&p->table);
    tu_free(p->refs);
    tu_free(p->digest);
    *p = (struct tu_kv_paged){0};
}
