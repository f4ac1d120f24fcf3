/* SPDX-License-Identifier: Apache-2.0 */
/* raw.c: dumps without a header, described by the caller: arrays of one layout, layer by
 * layer, keys before values where the layout does not hold both. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "engines.h"

struct described {
    const struct tu_kv_layout *layout;
    struct tu_kv_geometry g;
    uint32_t dtype;
    uint64_t layers, tokens, dim_v;
};

static int describe(struct described *d, const struct tu_kv_hint *hint, struct tu_err *err)
{
    const struct tu_spec *s = hint->spec;
    const char *layout = s ? tu_spec_get(s, "layout") : NULL;
    const char *dtype = s ? tu_spec_get(s, "dtype") : NULL;
    if (!s || !tu_spec_get(s, "layers") || !tu_spec_get(s, "dim") || !dtype)
        return tu_fail(err, TU_EUSAGE,
                       "raw: layers=, heads=, dim=, dtype= and tokens= (pages: block= and "
                       "blocks=) say what the bytes are");
    int rc = tu_kv_layout_find(&d->layout, layout ? layout : "", err);
    if (!rc)
        rc = tu_spec_u64(s, "layers", 0, &d->layers, err);
    if (!rc)
        rc = tu_spec_u64(s, "heads", 1, &d->g.heads, err);
    if (!rc)
        rc = tu_spec_u64(s, "dim", 0, &d->g.dim, err);
    if (!rc)
        rc = tu_spec_u64(s, "dim-v", d->g.dim, &d->dim_v, err);
    if (!rc)
        rc = tu_spec_u64(s, "tokens", 0, &d->tokens, err);
    if (!rc)
        rc = tu_spec_u64(s, "block", d->tokens, &d->g.block, err);
    if (!rc)
        rc = tu_spec_u64(s, "blocks", tu_ceil_div(d->tokens, tu_max(d->g.block, 1)),
                         &d->g.blocks, err);
    if (rc)
        return rc;
    d->g.latent = tu_spec_get(s, "latent") != NULL;
    d->g.layers = d->layers;
    d->dtype = tui_kv_dtype(dtype);
    const struct tu_dtype *t = tu_dtype_find(d->dtype);
    if (!t || t->block_elems != 1)
        return tu_fail(err, TU_EUSAGE, "raw: dtype=%.20s is none of whole bytes", dtype);
    d->g.elem = t->block_bytes;
    if (!tu_kv_layout_has(d->layout, 'p') && d->g.block != d->tokens)
        return tu_fail(err, TU_EUSAGE, "raw: layout '%s' has no pages", d->layout->name);
    if (d->layers > 1 << 16 || !d->layers || d->g.blocks > INT32_MAX)
        return tu_fail(err, TU_EUSAGE, "raw: layers=%" PRIu64 ", blocks=%" PRIu64,
                       d->layers, d->g.blocks);
    return 0;
}

static int add(struct tui_pieces *p, const struct described *d, const char *name,
               enum tu_kv_side side, uint64_t *at, struct tu_err *err)
{
    struct tu_kv_place place;
    struct tu_kv_geometry g = d->g;
    if (side == TU_KV_V)
        g.dim = d->dim_v;
    if (!tu_kv_layout_has(d->layout, 'l'))
        g.layers = 1;
    int rc = tu_kv_place(&place, d->layout, side, &g, err);
    if (!rc)
        rc = tui_pieces_record(p, name, d->dtype, place.dim, place.rank, err);
    if (!rc && (place.bytes > tu_in_size(p->file[0]) ||
                *at > tu_in_size(p->file[0]) - place.bytes))
        rc = tu_fail_at(err, TU_ETRUNC, *at,
                        "%s: '%s' needs %" PRIu64 " bytes at byte %" PRIu64 " of %" PRIu64,
                        p->base.name, name, place.bytes, *at, tu_in_size(p->file[0]));
    if (!rc)
        rc = tui_pieces_add(
            p, &(struct tui_piece){.off = *at, .row = place.bytes, .rows = 1,
                                   .stride = place.bytes},
            err);
    *at += place.bytes;
    return rc;
}

static int add_all(struct tui_pieces *p, const struct described *d, struct tu_err *err)
{
    uint64_t at = 0;
    int rc = 0;
    char name[40];
    bool both = tu_kv_layout_has(d->layout, 's'), all = tu_kv_layout_has(d->layout, 'l');
    if (all)
        rc = add(p, d, "kv.all", TU_KV_K, &at, err);
    for (uint64_t l = 0; !all && !rc && l < d->layers; l++) {
        const char *kind = both ? "kv" : d->g.latent ? "ckv" : "k";
        snprintf(name, sizeof name, "kv.%" PRIu64 ".%s", l, kind);
        rc = add(p, d, name, TU_KV_K, &at, err);
        snprintf(name, sizeof name, "kv.%" PRIu64 ".v", l);
        if (!rc && !both && !d->g.latent)
            rc = add(p, d, name, TU_KV_V, &at, err);
    }
    if (!rc && at != tu_in_size(p->file[0]))
        rc = tu_fail_at(err, TU_EGARBAGE, at,
                        "%s: %" PRIu64 " bytes are described, the file has %" PRIu64,
                        p->base.name, at, tu_in_size(p->file[0]));
    return rc;
}

/* The ids that the caller has for an array of tokens. */
static int add_ids(struct tui_pieces *p, const struct described *d, const struct tu_kv_hint *hint,
                   struct tu_err *err)
{
    if (!hint->ids)
        return 0;
    if (tu_kv_layout_has(d->layout, 'p'))
        return tu_fail(err, TU_EUSAGE, "raw: pages have no tokens of their own (--tokens)");
    if (hint->n_ids != d->tokens)
        return tu_fail(err, TU_EUSAGE, "raw: %" PRIu64 " token ids for tokens=%" PRIu64,
                       hint->n_ids, d->tokens);
    return tui_pieces_ints(p, "kv.tokens", hint->ids, hint->n_ids, err);
}

static int open_raw(struct tu_kv **out, const char *const *path, size_t n,
                    const struct tu_kv_hint *hint, const struct tu_job *job,
                    struct tu_err *err)
{
    struct described d = {0};
    struct tui_pieces *p = NULL;
    (void)job;
    (void)n;
    int rc = describe(&d, hint, err);
    if (!rc)
        rc = tui_pieces_new(&p, path[0], err);
    if (rc)
        return rc;
    rc = tui_pieces_file(p, path[0], err);
    if (!rc)
        rc = add_ids(p, &d, hint, err);
    if (!rc)
        rc = add_all(p, &d, err);
    struct tu_kv_info *i = &p->base.info;
    i->layers = d.layers;
    i->heads = d.g.latent ? 1 : d.g.heads * hint->info.tp_size;
    i->dim_k = d.g.dim;
    i->dim_v = d.g.latent ? 0 : d.dim_v;
    if (strcmp(d.layout->name, "nhd") != 0) {
        snprintf(i->layout, sizeof i->layout, "%s", d.layout->name);
        i->block = d.g.block;
        p->base.tokens = tu_kv_layout_has(d.layout, 'p') ? 0 : d.tokens;
    }
    struct tu_kv_hint known = *hint;
    known.info.heads = 0;
    if (!rc)
        rc = tui_kv_known(&p->base, &known, err);
    if (!rc)
        rc = tu_kv_finish(&p->base, err);
    if (rc)
        tu_kv_close(&p->base);
    else
        *out = &p->base;
    return rc;
}

/* The records of keys and values as they stand. */
static int save_raw(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                    const struct tu_job *job, struct tu_err *err)
{
    struct tu_out *out;
    void *buf = tu_alloc(TU_IO_CHUNK, 1, err);
    (void)how;
    int rc = buf ? tu_out_open(&out, path, job, err) : TU_ENOMEM;
    if (rc) {
        tu_free(buf);
        return rc;
    }
    for (size_t i = 0; !rc && i < kv->n; i++) {
        uint64_t layer;
        const struct tu_tensor *t = &kv->tensor[i];
        if (!tu_kv_name(t->name, &layer) && strcmp(t->name, "kv.all") != 0)
            continue;
        for (uint64_t off = 0; !rc && off < t->bytes; off += TU_IO_CHUNK) {
            size_t n = (size_t)tu_min(TU_IO_CHUNK, t->bytes - off);
            rc = tu_kv_read(kv, i, off, buf, n, err);
            if (!rc)
                rc = tu_out_write(out, buf, n, err);
        }
    }
    tu_free(buf);
    if (!rc)
        return tu_out_commit(out, true, err);
    tu_out_abort(out);
    return rc;
}

static const char *const keys[] = {"layout", "layers", "heads",  "dim",    "dim-v", "tokens",
                                   "block",  "blocks", "latent", "dtype", NULL};

const struct tu_kv_engine tui_kv_raw = {
    .name = "raw",
    .help = "bytes without a header; layout= layers= heads= dim= dim-v= tokens= block= "
            "blocks= dtype= latent",
    .key = keys,
    .open = open_raw,
    .save = save_raw,
};
