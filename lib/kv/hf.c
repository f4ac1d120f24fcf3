/* SPDX-License-Identifier: Apache-2.0 */
/* hf.c: past_key_values of Hugging Face transformers, as torch.save or safetensors keeps
 * them: a tuple of pairs, a DynamicCache of any version, or named tensors; each
 * [batch, heads, T, D]. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engines.h"

/* How makers name a layer's keys and values: the first group is the layer; the second,
 * or the pattern itself, tells the side. */
static const struct {
    const char *pattern;
    int side; /* -1: by group 2 */
} names[] = {
    {"(\\d+)\\.(0|1)", -1},
    {"(?:.*\\.)?layers\\.(\\d+)\\.(keys|values)", -1},
    {"(?:.*\\.)?key_cache\\.(\\d+)", TU_KV_K},
    {"(?:.*\\.)?value_cache\\.(\\d+)", TU_KV_V},
    {"(?:past_key_values|past|present|past_key_value)\\.(\\d+)\\.(keys?|values?|k|v|0|1)", -1},
    {"(?:past_key_values|past|present)_(key|value)s?[._](\\d+)", -2},
    {"(?:.*\\.)?(\\d+)\\.(key|value|k|v)", -1},
};
enum { NAMES = sizeof names / sizeof *names };

struct hf {
    struct tu_kv base;
    struct tu_source *source;
    size_t *from;   /* [n] tensor of the source */
    uint64_t batch; /* which of the batch */
    size_t held;    /* record that `hold` is, by tokens */
    void *hold;
    size_t ids; /* the record that is the caller's, TU_KV_NONE if the file has its own */
    int32_t *id;
};

/* Which layer and side a name is; false if none. */
static int what_is(struct tu_pattern *const *pattern, const char *name, uint64_t *layer,
                   int *side, bool *yes, struct tu_err *err)
{
    struct tu_match m;
    int rc = 0;
    *yes = false;
    for (size_t i = 0; !rc && !*yes && i < NAMES; i++) {
        rc = tu_pattern_match(pattern[i], name, strlen(name), &m, yes, err);
        if (rc || !*yes)
            continue;
        bool turned = names[i].side == -2;
        *layer = strtoull(name + m.group[turned ? 2 : 1].begin, NULL, 10);
        char c = m.n > 2 ? name[m.group[turned ? 1 : 2].begin] : '0';
        *side = names[i].side >= 0 ? names[i].side : c == 'v' || c == '1';
    }
    return rc;
}

static int load_turned(struct hf *h, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &h->base.tensor[i]; /* [T, H, D] */
    uint64_t T = t->dim[0], H = t->dim[1], D = t->dim[2];
    size_t e = tu_dtype_find(t->dtype)->block_bytes;
    if (h->held == i)
        return 0;
    h->held = TU_KV_NONE;
    tu_free(h->hold);
    h->hold = tu_alloc((size_t)t->bytes, 1, err);
    void *heads = h->hold ? tu_alloc((size_t)t->bytes, 1, err) : NULL;
    int rc = heads ? tu_source_read(h->source, h->from[i], h->batch * t->bytes, heads,
                                    (size_t)t->bytes, err)
                   : TU_ENOMEM;
    if (!rc) {
        const struct tu_kv_layout *l;
        struct tu_kv_place p;
        struct tu_kv_geometry g = {.layers = 1, .heads = H, .dim = D, .block = T, .blocks = 1,
                                   .elem = (unsigned)e};
        rc = tu_kv_layout_find(&l, "hnd", err);
        if (!rc)
            rc = tu_kv_place(&p, l, TU_KV_K, &g, err);
        if (!rc)
            tu_kv_get(&p, heads, 0, 0, NULL, 0, T, h->hold);
        h->held = rc ? TU_KV_NONE : i;
    }
    tu_free(heads);
    return rc;
}

static int hf_read(struct tu_kv *kv, size_t i, uint64_t off, void *buf, size_t n,
                   struct tu_err *err)
{
    struct hf *h = (struct hf *)kv;
    if (i == h->ids) {
        memcpy(buf, (char *)h->id + off, n);
        return 0;
    }
    if (kv->tensor[i].rank == 1)
        return tu_source_read(h->source, h->from[i], off, buf, n, err);
    int rc = load_turned(h, i, err);
    if (!rc)
        memcpy(buf, (char *)h->hold + off, n);
    return rc;
}

static int hf_verify(struct tu_kv *kv, size_t i, struct tu_err *err)
{
    struct hf *h = (struct hf *)kv;
    return i == h->ids ? 0 : tu_source_verify(h->source, h->from[i], NULL, err);
}

static void hf_close(struct tu_kv *kv)
{
    struct hf *h = (struct hf *)kv;
    tu_source_close(h->source);
    tu_free(h->from);
    tu_free(h->hold);
}

static const struct tu_kv_ops ops = {hf_read, hf_verify, hf_close};

static int add(struct hf *h, size_t i, uint64_t layer, int side, struct tu_err *err)
{
    const struct tu_tensor *t = &h->source->tensor[i];
    char name[40];
    if (t->rank != 4 || !tu_dtype_find(t->dtype) || !tu_dtype_is_plain(t->dtype))
        return tu_fail(err, TU_EFORMAT, "%s: '%s': expected [batch, heads, T, D]",
                       h->source->path, t->name);
    if (h->batch >= t->dim[0])
        return tu_fail(err, TU_EUSAGE, "%s: '%s': hf:batch=%" PRIu64 " of %" PRIu64,
                       h->source->path, t->name, h->batch, t->dim[0]);
    uint64_t dim[3] = {t->dim[2], t->dim[1], t->dim[3]};
    snprintf(name, sizeof name, "kv.%" PRIu64 ".%c", layer, "kv"[side]);
    h->from[h->base.n] = i;
    return tu_kv_add(&h->base, name, t->dtype, dim, 3, NULL, err);
}

static int add_all(struct hf *h, struct tu_err *err)
{
    struct tu_pattern *pattern[NAMES] = {NULL};
    bool yes;
    uint64_t layer = 0, found = 0;
    int rc = 0, side = 0;
    h->from = tu_alloc(h->source->n + 1, sizeof *h->from, err);
    if (!h->from)
        return TU_ENOMEM;
    for (size_t i = 0; !rc && i < NAMES; i++)
        rc = tu_pattern_new(&pattern[i], names[i].pattern, TU_PATTERN_WHOLE, err);
    for (size_t i = 0; !rc && i < h->source->n; i++) {
        const struct tu_tensor *t = &h->source->tensor[i];
        rc = what_is(pattern, t->name, &layer, &side, &yes, err);
        if (!rc && yes && layer < 1 << 16) {
            rc = add(h, i, layer, side, err);
            found++;
        } else if (!rc && (!strcmp(t->name, "kv.tokens") || !strcmp(t->name, "kv.pos"))) {
            h->from[h->base.n] = i;
            rc = tu_kv_add(&h->base, t->name, t->dtype, t->dim, t->rank, NULL, err);
        }
    }
    for (size_t i = 0; i < NAMES; i++)
        tu_pattern_free(pattern[i]);
    if (!rc && !found)
        rc = tu_fail(err, TU_EFORMAT, "%s: no tensor is named as past_key_values are",
                     h->source->path);
    return rc;
}

/* The ids that the caller has, where the file has none. */
static int add_ids(struct hf *h, const struct tu_kv_hint *hint, struct tu_err *err)
{
    bool has = !hint->ids;
    for (size_t i = 0; i < h->base.n; i++)
        has = has || !strcmp(h->base.tensor[i].name, "kv.tokens");
    if (has)
        return 0;
    h->ids = h->base.n;
    h->id = tu_arena_alloc(h->base.arena, (size_t)hint->n_ids + 1, sizeof *h->id, err);
    if (!h->id)
        return TU_ENOMEM;
    memcpy(h->id, hint->ids, (size_t)hint->n_ids * sizeof *h->id);
    return tu_kv_add(&h->base, "kv.tokens", TU_I32, &hint->n_ids, 1, NULL, err);
}

static int open_hf(struct tu_kv **out, const char *const *path, size_t n,
                   const struct tu_kv_hint *hint, const struct tu_job *job,
                   struct tu_err *err)
{
    struct tu_open how = {0};
    struct hf *h = tu_kv_new(sizeof *h, &ops, path[0], err);
    (void)n;
    if (!h)
        return TU_ENOMEM;
    h->held = h->ids = TU_KV_NONE;
    int rc = hint->spec ? tu_spec_u64(hint->spec, "batch", 0, &h->batch, err) : 0;
    if (!rc)
        rc = tu_source_open(&h->source, path[0], NULL, &how, job, err);
    if (!rc)
        rc = add_all(h, err);
    if (!rc)
        rc = add_ids(h, hint, err);
    if (!rc)
        rc = tui_kv_known(&h->base, hint, err);
    if (!rc)
        rc = tu_kv_finish(&h->base, err);
    if (rc)
        tu_kv_close(&h->base);
    else
        *out = &h->base;
    return rc;
}

static bool sniff(const char *path, const unsigned char *head, size_t n)
{
    const struct tu_format *torch = tu_format_find("torch"),
                           *st = tu_format_find("safetensors");
    return n && ((torch && torch->sniff && torch->sniff(path, head, n)) ||
                 (st && st->sniff && st->sniff(path, head, n)));
}

/* Saving --------------------------------------------------------------------------------- */

/* ((k0, v0), (k1, v1), …), what DynamicCache is made of and torch.load gives. */
static struct tu_pnode *pairs(struct tu_arena *a, uint64_t layers, struct tu_err *err)
{
    struct tu_pnode *all = tu_pnode_new(a, TU_P_TUPLE, (size_t)layers, err);
    for (uint64_t l = 0; all && l < layers; l++) {
        struct tu_pnode *pair = tu_pnode_new(a, TU_P_TUPLE, 2, err);
        for (int s = 0; pair && s < 2; s++)
            if (!(pair->item[s] = tu_pnode_tensor(a, (size_t)(2 * l) + (size_t)s, err)))
                return NULL;
        if (!(all->item[l] = pair))
            return NULL;
    }
    return all;
}

static int put_record(struct tu_kv *kv, size_t i, struct tu_sink *sink, size_t to,
                      struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    const struct tu_kv_layout *l;
    struct tu_kv_place p;
    struct tu_kv_geometry g = {.layers = 1, .heads = t->dim[1], .dim = t->dim[2],
                               .block = t->dim[0], .blocks = 1,
                               .elem = tu_dtype_find(t->dtype)->block_bytes};
    void *rows, *heads = tu_alloc((size_t)t->bytes, 1, err);
    if (!heads)
        return TU_ENOMEM;
    int rc = tu_kv_load(kv, i, &rows, err);
    if (!rc)
        rc = tu_kv_layout_find(&l, "hnd", err);
    if (!rc)
        rc = tu_kv_place(&p, l, TU_KV_K, &g, err);
    if (!rc) {
        tu_kv_put(&p, heads, 0, 0, NULL, 0, t->dim[0], rows);
        rc = tu_sink_write(sink, to, 0, heads, (size_t)t->bytes, err);
    }
    tu_free(rows);
    tu_free(heads);
    return rc;
}

static int declare(struct tu_kv *kv, struct tu_arena *a, struct tu_tensor *to, bool torch,
                   struct tu_err *err)
{
    int rc = 0;
    for (uint64_t l = 0; !rc && l < kv->info.layers; l++)
        for (int s = TU_KV_K; !rc && s < TU_KV_SIDES; s++) {
            size_t i = tu_kv_record(kv, l, (enum tu_kv_side)s);
            const struct tu_tensor *t = i == TU_KV_NONE ? NULL : &kv->tensor[i];
            if (!t || t->rank != 3 || !tu_dtype_is_plain(t->dtype))
                return tu_fail(err, TU_EUNSUP,
                               "hf: layer %" PRIu64 " has no plain keys and values by head",
                               l);
            uint64_t dim[4] = {1, t->dim[1], t->dim[0], t->dim[2]};
            char *name = tu_arena_printf(a, err, torch ? "%" PRIu64 ".%s" : "past_key_values.%"
                                                                           PRIu64 ".%s",
                                         l, torch ? (s ? "1" : "0") : (s ? "value" : "key"));
            rc = name ? tu_tensor_make(&to[2 * l + (uint64_t)s], a, name, t->dtype, dim, 4,
                                       NULL, err)
                      : TU_ENOMEM;
        }
    return rc;
}

static int save_hf(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                   const struct tu_job *job, struct tu_err *err)
{
    const char *as = how->spec ? tu_spec_get(how->spec, "as") : NULL;
    const struct tu_format *f = as ? tu_format_find(as) : tu_format_of_path(path);
    struct tui_even even;
    struct tu_sink *sink = NULL;
    if (!f || (strcmp(f->name, "torch") != 0 && strcmp(f->name, "safetensors") != 0))
        return tu_fail(err, TU_EUSAGE, "hf: as=torch or as=safetensors (by suffix .pt or "
                                       ".safetensors)");
    bool torch = !strcmp(f->name, "torch");
    struct tu_arena *a = tu_arena_new(err);
    if (!a)
        return TU_ENOMEM;
    struct tu_save what = {.n = (size_t)(2 * kv->info.layers), .force = how->force};
    struct tu_tensor *t = tu_arena_alloc(a, what.n + 1, sizeof *t, err);
    int rc = t ? 0 : TU_ENOMEM;
    if (!rc && *kv->info.layout && strcmp(kv->info.layout, "nhd"))
        rc = tui_kv_even(kv, &even, err);
    if (!rc)
        rc = declare(kv, a, t, torch, err);
    what.tensor = t;
    if (!rc && torch && !(what.object = pairs(a, kv->info.layers, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = tu_sink_open(&sink, path, f, &what, job, err);
    for (uint64_t l = 0; !rc && l < kv->info.layers; l++)
        for (int s = TU_KV_K; !rc && s < TU_KV_SIDES; s++)
            rc = put_record(kv, tu_kv_record(kv, l, (enum tu_kv_side)s), sink,
                            (size_t)(2 * l) + (size_t)s, err);
    if (!rc)
        rc = tu_sink_finish(sink, true, err);
    else
        tu_sink_abort(sink);
    tu_arena_free(a);
    return rc;
}

static const char *const keys[] = {"batch", "as", NULL};

const struct tu_kv_engine tui_kv_hf = {
    .name = "hf",
    .help = "transformers' past_key_values by torch.save or safetensors; batch= as=",
    .key = keys,
    .sniff = sniff,
    .open = open_hf,
    .save = save_hf,
};
