/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.c: arrays of some tokens each as one cache, and a cache as such arrays. */
#include "chunks.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const tui_chunks_keys[] = {"layout", "layers", "heads", "dim",  "dtype",
                                       "chunk",  "latent", "hash",  "seed", NULL};

int tui_chunks_spec(struct tui_chunks *c, const struct tu_spec *spec, const char *layout,
                    uint64_t chunk, struct tu_err *err)
{
    static const struct tu_spec none = {0};
    const struct tu_spec *s = spec ? spec : &none;
    const char *dtype = tu_spec_get(s, "dtype"), *name = tu_spec_get(s, "layout");
    *c = (struct tui_chunks){0};
    c->g.latent = tu_spec_get(s, "latent") != NULL;
    int rc = tu_kv_layout_find(&c->layout,
                               name          ? name
                               : c->g.latent ? "ltd"
                                             : layout,
                               err);
    if (!rc)
        rc = tu_spec_u64(s, "layers", 0, &c->g.layers, err);
    if (!rc)
        rc = tu_spec_u64(s, "heads", c->g.latent ? 1 : 0, &c->g.heads, err);
    if (!rc)
        rc = tu_spec_u64(s, "dim", 0, &c->g.dim, err);
    if (!rc)
        rc = tu_spec_u64(s, "chunk", chunk, &c->g.block, err);
    c->g.blocks = 1;
    if (!rc && dtype && !(c->dtype = tui_kv_dtype(dtype)))
        rc = tu_fail(err, TU_EUSAGE, "dtype=%.20s: unknown", dtype);
    return rc;
}

int tui_chunks_ready(struct tui_chunks *c, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(c->dtype);
    struct tu_kv_place p;
    if (!c->g.layers || !c->g.heads || !c->g.dim || !d)
        return tu_fail(err, TU_EUSAGE,
                       "the file does not say all: layers=, heads=, dim= and dtype= are "
                       "needed");
    if (d->block_elems != 1 || !c->g.block || c->g.layers > 1 << 16)
        return tu_fail(err, TU_EUSAGE,
                       "chunks of %" PRIu64 " tokens of %s in %" PRIu64 " layers",
                       c->g.block, d->name, c->g.layers);
    c->g.elem = d->block_bytes;
    int rc = tu_kv_place(&p, c->layout, TU_KV_K, &c->g, err);
    if (!rc && (p.col != 1 || (p.head != c->g.dim && c->g.heads > 1)))
        rc = tu_fail(err, TU_EUNSUP,
                     "chunks of layout '%s': a token's heads do not lie "
                     "together",
                     c->layout->name);
    c->row = rc ? 0 : p.bytes / c->g.block;
    return rc;
}

int tui_chunks_add(struct tui_chunks *c, struct tui_pieces *p, size_t file, uint64_t off,
                   uint64_t bytes, int64_t layer, struct tu_err *err)
{
    if (!bytes || bytes % c->row || off > tu_in_size(p->file[file]) ||
        bytes > tu_in_size(p->file[file]) - off)
        return tu_fail(err, TU_EFORMAT,
                       "%s: %" PRIu64 " bytes at byte %" PRIu64
                       " are no whole tokens of %" PRIu64 " bytes",
                       tu_in_name(p->file[file]), bytes, off, c->row);
    int rc = TU_GROW(&c->chunk, &c->cap, c->n, err);
    if (!rc)
        c->chunk[c->n++] = (struct tui_chunk){file, off, bytes / c->row, layer};
    return rc;
}

void tui_chunks_release(struct tui_chunks *c)
{
    tu_free(c->chunk);
    c->chunk = NULL;
    c->n = 0;
}

/* The part of chunk k that is one layer's side: rows of tokens. */
static int add_piece(const struct tui_chunks *c, struct tui_pieces *p,
                     const struct tui_chunk *k, uint64_t layer, int side,
                     struct tu_err *err)
{
    struct tu_kv_place at;
    struct tu_kv_geometry g = c->g;
    g.block = k->tokens;
    int rc = tu_kv_place(&at, c->layout, (enum tu_kv_side)side, &g, err);
    uint64_t elem =
        tu_kv_offset(&at, k->layer < 0 ? layer : 0, (uint64_t)side, 0, 0, 0, 0);
    uint64_t row = g.heads * g.dim * g.elem, stride = at.token * g.elem;
    return rc ? rc
              : tui_pieces_add(p,
                               &(struct tui_piece){.file = k->file,
                                                   .off = k->off + elem * g.elem,
                                                   .row = row,
                                                   .rows = k->tokens,
                                                   .stride = stride},
                               err);
}

static int add_record(const struct tui_chunks *c, struct tui_pieces *p, uint64_t layer,
                      int side, struct tu_err *err)
{
    char name[40];
    uint64_t tokens = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->chunk[i].layer < 0 || (uint64_t)c->chunk[i].layer == layer)
            tokens += c->chunk[i].tokens;
    uint64_t dim[3] = {tokens, c->g.heads, c->g.dim};
    if (c->g.latent)
        dim[1] = c->g.dim;
    snprintf(name, sizeof name, "kv.%" PRIu64 ".%s", layer,
             c->g.latent       ? "ckv"
             : side == TU_KV_K ? "k"
                               : "v");
    int rc = tui_pieces_record(p, name, c->dtype, dim, c->g.latent ? 2 : 3, err);
    for (size_t i = 0; !rc && i < c->n; i++)
        if (c->chunk[i].layer < 0 || (uint64_t)c->chunk[i].layer == layer)
            rc = add_piece(c, p, &c->chunk[i], layer, side, err);
    return rc;
}

int tui_chunks_open(struct tui_chunks *c, struct tui_pieces *p,
                    const struct tu_kv_hint *hint, struct tu_err *err)
{
    uint64_t layers = c->g.layers, tokens = 0;
    int rc = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->chunk[i].layer >= 0)
            layers = tu_max(layers, (uint64_t)c->chunk[i].layer + 1);
    if (layers > 1 << 16)
        return tu_fail(err, TU_ELIMIT, "%s: %" PRIu64 " layers", p->base.name, layers);
    for (size_t i = 0; i < c->n; i++)
        tokens += c->chunk[i].layer <= 0 ? c->chunk[i].tokens : 0;
    if (hint->ids && hint->n_ids >= tokens)
        rc = tui_pieces_ints(p, "kv.tokens", hint->ids, tokens, err);
    for (uint64_t l = 0; !rc && l < layers; l++)
        for (int s = TU_KV_K; !rc && s < (c->g.latent ? 1 : TU_KV_SIDES); s++)
            rc = add_record(c, p, l, s, err);
    if (!rc)
        rc = tui_kv_known(&p->base, hint, err);
    return rc ? rc : tu_kv_finish(&p->base, err);
}

/* Saving -------------------------------------------------------------------------------
 */

int tui_chunks_of(struct tui_chunks *c, struct tu_kv *kv, uint64_t *chunks,
                  struct tu_err *err)
{
    struct tui_even e;
    uint64_t block = c->g.block;
    int rc = tui_kv_even(kv, &e, err);
    if (rc)
        return rc;
    if (!e.latent && e.dim_k != e.dim_v)
        return tu_fail(err, TU_EUNSUP,
                       "%s: keys of %" PRIu64 " columns and values of %" PRIu64
                       " do not fit one array",
                       kv->name, e.dim_k, e.dim_v);
    c->g = (struct tu_kv_geometry){.layers = e.layers,
                                   .heads = e.heads,
                                   .dim = e.dim_k,
                                   .block = block,
                                   .blocks = 1,
                                   .latent = e.latent};
    c->dtype = e.dtype;
    if (e.latent)
        rc = tu_kv_layout_find(&c->layout, "ltd", err);
    if (!rc)
        rc = tui_chunks_ready(c, err);
    *chunks = tu_ceil_div(e.tokens, tu_max(block, 1));
    return rc;
}

int tui_chunks_data(const struct tui_chunks *c, struct tu_kv *kv, uint64_t i, void **data,
                    size_t *n, struct tu_err *err)
{
    struct tu_kv_geometry g = c->g;
    struct tu_kv_place p;
    uint64_t first = i * c->g.block, row = g.heads * g.dim * g.elem;
    g.block = tu_min(c->g.block, kv->tokens - first);
    *data = NULL;
    int rc = tu_kv_place(&p, c->layout, TU_KV_K, &g, err);
    if (rc)
        return rc;
    *n = (size_t)p.bytes;
    void *rows = tu_alloc((size_t)g.block, (size_t)row, err);
    *data = rows ? tu_alloc(*n, 1, err) : NULL;
    rc = *data ? 0 : TU_ENOMEM;
    for (uint64_t l = 0; !rc && l < g.layers; l++)
        for (int s = TU_KV_K; !rc && s < (g.latent ? 1 : TU_KV_SIDES); s++) {
            rc = tu_kv_read(kv, tu_kv_record(kv, l, (enum tu_kv_side)s), first * row,
                            rows, (size_t)(g.block * row), err);
            if (!rc)
                tu_kv_put(&p, *data, l, (uint64_t)s, NULL, 0, g.block, rows);
        }
    tu_free(rows);
    if (rc) {
        tu_free(*data);
        *data = NULL;
    }
    return rc;
}

void tui_chunks_rest(const struct tui_chunks *c, const struct tu_kv *kv,
                     const char *engine, const char *chunk, const struct tu_job *job)
{
    const uint64_t rest = kv->tokens % c->g.block;
    if (rest)
        tu_job_warn(job,
                    "%s: the last %" PRIu64 " tokens fill no %s of %" PRIu64
                    " and are left out",
                    engine, rest, chunk, c->g.block);
}

int tui_chunks_names(struct tu_kv *kv, const int32_t *ids, uint64_t n, const char *scheme,
                     const struct tu_spec *spec, uint64_t block, unsigned char **out,
                     unsigned *size, struct tu_err *err)
{
    const char *name = spec ? tu_spec_get(spec, "hash") : NULL;
    struct tu_kv_hash_how how = {.block = block,
                                 .seed = spec ? tu_spec_get(spec, "seed") : NULL};
    const struct tu_kv_scheme *s;
    int32_t *own = NULL;
    *out = NULL;
    int rc = tu_kv_scheme_find(&s, name ? name : scheme, err);
    if (!rc && kv) {
        rc = tu_kv_ids(kv, &own, err);
        ids = own;
        n = kv->tokens;
    }
    if (!rc && !(*out = tu_alloc((size_t)(n / block) + 1, s->size, err)))
        rc = TU_ENOMEM;
    if (!rc) {
        *size = s->size;
        rc = tu_kv_hash_blocks(s, &how, ids, n, *out, err);
    }
    tu_free(own);
    if (rc) {
        tu_free(*out);
        *out = NULL;
    }
    return rc;
}
