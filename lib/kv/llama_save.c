/* SPDX-License-Identifier: Apache-2.0 */
/* llama_save.c: caches as state files of llama.cpp. */
#include <inttypes.h>
#include <string.h>
#include "llama.h"

struct saving {
    struct tu_kv *kv;
    struct tu_out *out;
    struct tu_err *err;
    int rc;
    uint64_t version;
    bool session, turned;
    struct tui_llama_pattern pattern; /* given: two memories */
    uint64_t window;                  /* cells of the second */
};

static void put(struct saving *s, const void *p, size_t n)
{
    if (!s->rc)
        s->rc = tu_out_write(s->out, p, n, s->err);
}

static void put32(struct saving *s, uint64_t v)
{
    unsigned char b[4];
    tu_put32(b, (uint32_t)v);
    put(s, b, 4);
}

static void put64(struct saving *s, uint64_t v)
{
    put32(s, v);
    put32(s, v >> 32);
}

static void save_tokens(struct saving *s)
{
    size_t list = s->kv->ids;
    for (size_t i = 0; i < s->kv->n; i++)
        if (!strcmp(s->kv->tensor[i].name, "llama.tokens"))
            list = i;
    void *data = NULL;
    uint64_t bytes = list == TU_KV_NONE ? 0 : s->kv->tensor[list].bytes;
    if (list != TU_KV_NONE && !s->rc)
        s->rc = tu_kv_load(s->kv, list, &data, s->err);
    put32(s, bytes / 4);
    if (!s->rc)
        put(s, data, (size_t)bytes);
    tu_free(data);
}

/* The last n tokens' cells. */
static void save_cells(struct saving *s, uint64_t n)
{
    int32_t *pos = NULL;
    if (!s->rc)
        s->rc = tu_kv_positions(s->kv, &pos, s->err);
    if (s->version >= 2)
        put32(s, 1);
    put32(s, n);
    for (uint64_t i = s->kv->tokens - n; !s->rc && i < s->kv->tokens; i++) {
        put32(s, (uint32_t)pos[i]);
        put32(s, s->version >= 2 || s->session);
        if (s->version >= 2 || s->session)
            put32(s, 0);
    }
    tu_free(pos);
}

static void save_side(struct saving *s, size_t i, bool turned)
{
    const struct tu_tensor *t = &s->kv->tensor[i];
    uint64_t row = t->bytes / tu_max(t->dim[0], 1), cols = 1;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    for (unsigned k = 1; k < t->rank; k++)
        cols *= t->dim[k];
    void *data = NULL, *columns = NULL;
    put32(s, tui_llama_type(t->dtype));
    if (turned) {
        put32(s, d->block_bytes);
        put32(s, cols);
    } else {
        put64(s, row);
    }
    if (!s->rc)
        s->rc = tu_kv_load(s->kv, i, &data, s->err);
    if (!s->rc && turned && !(columns = tu_alloc((size_t)t->bytes, 1, s->err)))
        s->rc = TU_ENOMEM;
    if (!s->rc && turned) {
        const struct tu_kv_layout *l;
        struct tu_kv_place p;
        struct tu_kv_geometry g = {.layers = 1, .heads = 1, .dim = cols,
                                   .block = t->dim[0], .blocks = 1,
                                   .elem = d->block_bytes};
        s->rc = tu_kv_layout_find(&l, "ht", s->err);
        if (!s->rc)
            s->rc = tu_kv_place(&p, l, TU_KV_V, &g, s->err);
        if (!s->rc)
            tu_kv_put(&p, columns, 0, 0, NULL, 0, t->dim[0], data);
    }
    put(s, turned ? columns : data, (size_t)t->bytes);
    tu_free(data);
    tu_free(columns);
}

/* The memory of layers that have all tokens, or that of those with a window. */
static void save_memory(struct saving *s, bool local)
{
    const struct tu_kv *kv = s->kv;
    uint64_t n = 0;
    for (uint64_t l = 0; l < kv->info.layers; l++)
        n += tui_llama_local(&s->pattern, l) == local;
    save_cells(s, local ? s->window : kv->tokens);
    put32(s, s->turned);
    put32(s, n);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        if (tui_llama_local(&s->pattern, l) == local)
            save_side(s, kv->layer[l].k, false);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        if (tui_llama_local(&s->pattern, l) == local && kv->layer[l].v != TU_KV_NONE)
            save_side(s, kv->layer[l].v, s->turned);
}

static void save_recurrent(struct saving *s)
{
    for (size_t i = 0; i < s->kv->n; i++)
        if (!strcmp(s->kv->tensor[i].name, "llama.recurrent")) {
            void *data = NULL;
            if (!s->rc)
                s->rc = tu_kv_load(s->kv, i, &data, s->err);
            if (!s->rc)
                put(s, data, (size_t)s->kv->tensor[i].bytes);
            tu_free(data);
        }
}

/* Rows of layer l: all tokens, or as many as the other layers with a window have. */
static int check_rows(struct saving *s, uint64_t l, size_t i, struct tu_err *err)
{
    uint64_t rows = i == TU_KV_NONE ? 0 : s->kv->tensor[i].dim[0];
    bool local = tui_llama_local(&s->pattern, l);
    if (local && !s->window)
        s->window = rows;
    if (rows && rows <= s->kv->tokens && rows == (local ? s->window : s->kv->tokens))
        return 0;
    return tu_fail(err, TU_EUNSUP,
                   "llama: layer %" PRIu64 " has %" PRIu64 " of %" PRIu64
                   " tokens: which layers have a window is said by llama:pattern=N",
                   l, rows, s->kv->tokens);
}

/* What the format can hold. */
static int check(struct saving *s, struct tu_err *err)
{
    struct tu_kv *kv = s->kv;
    if (kv->tokens == 0 || kv->tokens > UINT32_MAX)
        return tu_fail(err, TU_EUNSUP, "llama: %" PRIu64 " tokens", kv->tokens);
    if (kv->info.tp_size > 1)
        return tu_fail(err, TU_EUNSUP, "llama: the file holds all heads: join the %" PRIu64
                                       " ranks first (kv-pack convert --tp 1)",
                       kv->info.tp_size);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        for (int side = TU_KV_K; side < TU_KV_SIDES; side++) {
            size_t i = tu_kv_record(kv, l, (enum tu_kv_side)side);
            if (i == TU_KV_NONE && side == TU_KV_V && kv->layer[l].k != TU_KV_NONE &&
                tu_kv_latent(&kv->tensor[kv->layer[l].k]))
                continue;
            int rc = check_rows(s, l, i, err);
            if (rc)
                return rc;
            const struct tu_dtype *d = tu_dtype_find(kv->tensor[i].dtype);
            if (tui_llama_type(kv->tensor[i].dtype) == UINT32_MAX || !d)
                return tu_fail(err, TU_EUNSUP, "llama: '%s' has a dtype that ggml lacks",
                               kv->tensor[i].name);
            if (side == TU_KV_V && s->turned && d->block_elems > 1)
                return tu_fail(err, TU_EUSAGE, "llama: v-trans: '%s' is quantised",
                               kv->tensor[i].name);
        }
    return 0;
}

int tui_llama_save(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                   const struct tu_job *job, struct tu_err *err)
{
    const struct tu_spec *spec = how->spec;
    struct saving s = {.kv = kv, .err = err};
    struct tui_even even;
    s.session = spec && tu_spec_get(spec, "session");
    s.turned = spec && tu_spec_get(spec, "v-trans");
    int rc = *kv->info.layout && strcmp(kv->info.layout, "nhd") ? tui_kv_even(kv, &even, err)
                                                                : 0;
    if (!rc && spec)
        rc = tu_spec_u64(spec, "version", s.session ? 10 : 3, &s.version, err);
    if (!rc && (s.session ? s.version < 9 || s.version > 10 : s.version < 1 || s.version > 3))
        rc = tu_fail(err, TU_EUSAGE, "llama: version=%" PRIu64 " is not written", s.version);
    if (!rc)
        rc = tui_llama_pattern(&s.pattern, spec, err);
    if (!rc && kv->info.window && !s.pattern.given)
        rc = tu_fail(err, TU_EUSAGE, "llama: a model with a window of %" PRIu64
                                     ": which layers have it is said by llama:pattern=N",
                     kv->info.window);
    if (!rc)
        rc = check(&s, err);
    if (!rc)
        rc = tu_out_open(&s.out, path, job, err);
    if (rc)
        return rc;
    put32(&s, s.session ? TUI_LLAMA_SESSION : TUI_LLAMA_SEQ);
    put32(&s, s.version);
    save_tokens(&s);
    if (s.session) {
        const char *arch = *kv->info.arch ? kv->info.arch : "llama";
        put32(&s, strlen(arch));
        put(&s, arch, strlen(arch));
    }
    save_memory(&s, false);
    if (s.pattern.given)
        save_memory(&s, true);
    save_recurrent(&s);
    if (!s.rc)
        return tu_out_commit(s.out, true, err);
    tu_out_abort(s.out);
    return s.rc;
}
