/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.c: a GGUF file seen as the tensors of the family's Hugging Face files: names,
 * experts one by one, q, k and v apart, rotary halves instead of pairs. Codes in blocks stay
 * codes: everything moves by whole rows.
 *
 * Not for families whose Hugging Face files are turned round (GPT-2's Conv1D). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <tensorutils/format.h>
#include <tensorutils/model.h>

struct names {
    struct tu_source *in;
    struct tu_arena *arena;
    struct tu_model model;
    struct tu_map *gguf, *hf;
    struct tu_view_item *item;
    size_t n, cap;
};

/* Rows of role number k of `n` that share `rows`. */
static uint64_t rows_of(const struct names *x, const struct tu_named *named, unsigned k,
                        uint64_t rows)
{
    uint64_t q = x->model.heads * x->model.head_dim, kv = x->model.kv_heads * x->model.head_dim;
    if (named->n == 1)
        return rows;
    if (named->n == 3 && strstr(named->role[0], ".attn.q.") && q + 2 * kv == rows)
        return k == 0 ? q : kv;
    return rows % named->n ? 0 : rows / named->n;
}

static int add_role(struct names *x, const struct tu_named *named, const char *role,
                    struct tu_view_item v, uint64_t row_bytes, struct tu_err *err)
{
    struct tu_buf name = {0};
    struct tu_named to;
    bool yes = false;
    int rc = TU_GROW(&x->item, &x->cap, x->n, err);
    if (!rc)
        rc = tu_map_entry(x->hf, role, 0, 0, &name, &to, &yes, err);
    if (!rc && (!yes || to.n != 1 || to.transform & ~(unsigned)TU_MAP_READ))
        rc = tu_fail(err, TU_EUNSUP, "'%.80s': %s", role,
                     yes ? "Hugging Face's files hold it fused or turned round: use shard-ckpt "
                           "convert"
                         : "has no name in Hugging Face's files");
    if (!rc && named->transform & TU_MAP_ROTARY) {
        v.pair = x->model.head_dim;
        v.row = row_bytes;
        if (!v.pair || v.pair % 2 || v.tensor.dim[0] % v.pair)
            rc = tu_fail(err, TU_EFORMAT, "'%.80s': %llu rows are no whole number of heads of %llu",
                         role, (unsigned long long)v.tensor.dim[0], (unsigned long long)v.pair);
    }
    if (!rc && !(v.tensor.name = tu_arena_text(x->arena, name.data, name.n, err)))
        rc = TU_ENOMEM;
    if (!rc)
        x->item[x->n++] = v;
    tu_buf_release(&name);
    return rc;
}

/* The tensor, cut into its roles. */
static int add_tensor(struct names *x, size_t i, const struct tu_named *named,
                      struct tu_err *err)
{
    const struct tu_tensor *t = &x->in->tensor[i];
    const bool stack = named->transform & TU_MAP_STACK;
    if (t->rank < (stack ? 3u : 1u) || (stack && !t->dim[0]))
        return tu_fail(err, TU_EFORMAT, "'%.80s' has rank %u", t->name, (unsigned)t->rank);
    uint64_t experts = stack ? t->dim[0] : 1, rows = t->dim[stack];
    uint64_t row_bytes = rows ? t->bytes / experts / rows : 0, off = 0;
    int rc = 0;
    for (uint64_t k = 0; k < experts * named->n && !rc; k++) {
        char role[160];
        unsigned rank = t->rank - stack;
        uint64_t *dim = tu_arena_alloc(x->arena, rank, sizeof *dim, err);
        if (!dim)
            return TU_ENOMEM;
        memcpy(dim, t->dim + stack, rank * sizeof *dim);
        dim[0] = rows_of(x, named, (unsigned)(k % named->n), rows);
        if (!dim[0] && rows)
            return tu_fail(err, TU_EFORMAT, "'%.80s': %llu rows do not divide among its parts",
                           t->name, (unsigned long long)rows);
        tu_role_text(role, sizeof role, named->role[k % named->n], k / named->n);
        rc = add_role(x, named, role,
                      (struct tu_view_item){.tensor = {.dtype = t->dtype, .rank = rank,
                                                       .dim = dim},
                                            .from = i, .off = off},
                      row_bytes, err);
        off += dim[0] * row_bytes;
    }
    return rc;
}

static int add_all(struct names *x, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < x->in->n && !rc; i++) {
        struct tu_named named;
        bool yes = false;
        rc = tu_map_match(x->gguf, x->in->tensor[i].name, 0, 0, &named, &yes, err);
        if (!rc && !yes)
            rc = tu_fail(err, TU_EINCOMPLETE, "no line of map %s takes '%.80s'",
                         tu_map_name(x->gguf), x->in->tensor[i].name);
        if (!rc && !(named.transform & (TU_MAP_DROP | TU_MAP_TIED)))
            rc = add_tensor(x, i, &named, err);
    }
    return rc;
}

/* META model, and a config.json as META files. */
static int metas_of(struct names *x, struct tu_meta meta[2], struct tu_err *err)
{
    struct tu_buf b = {0};
    json_t *files = NULL;
    int rc = tu_model_to_meta(&b, &x->model, err);
    if (!rc) {
        meta[0] = (struct tu_meta){"model", tu_arena_text(x->arena, b.data, b.n, err), b.n};
        tu_buf_reset(&b);
        rc = meta[0].json ? tu_model_to_hf(&b, &x->model, "bfloat16", err) : TU_ENOMEM;
    }
    if (!rc && !(files = json_pack("{s:s%}", "config.json", b.data, b.n)))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    tu_buf_reset(&b);
    if (!rc)
        rc = tu_json_dump(&b, files, err);
    if (!rc) {
        meta[1] = (struct tu_meta){"files", tu_arena_text(x->arena, b.data, b.n, err), b.n};
        rc = meta[1].json ? 0 : TU_ENOMEM;
    }
    json_decref(files);
    tu_buf_release(&b);
    return rc;
}

static int know_model(struct names *x, struct tu_err *err)
{
    const struct tu_meta *m = NULL;
    for (size_t i = 0; i < x->in->metas; i++)
        if (!strcmp(x->in->meta[i].topic, "gguf"))
            m = &x->in->meta[i];
    if (!m)
        return tu_fail(err, TU_EMETA, "no key-values of GGUF");
    int rc = tu_model_from_gguf(&x->model, m->json, m->n, err);
    bool head = false;
    for (size_t i = 0; i < x->in->n; i++)
        head |= !strcmp(x->in->tensor[i].name, "output.weight");
    x->model.tied = !head;
    const struct tu_family *f = rc ? NULL : tu_family_find(x->model.family);
    if (!rc)
        rc = tu_map_builtin(&x->gguf, f->gguf_map, err);
    if (!rc)
        rc = tu_map_builtin(&x->hf, f->hf_map, err);
    if (rc)
        return rc;
    tu_map_bind(x->gguf, &x->model);
    tu_map_bind(x->hf, &x->model);
    return 0;
}

int tu_gguf_to_hf(struct tu_source **out, struct tu_source *in, struct tu_err *err)
{
    struct names x = {.in = in, .arena = tu_arena_new(err)};
    struct tu_meta meta[2];
    int rc = x.arena ? know_model(&x, err) : TU_ENOMEM;
    if (!rc)
        rc = add_all(&x, err);
    if (!rc)
        rc = metas_of(&x, meta, err);
    if (!rc)
        rc = tu_source_view(out, in, x.item, x.n, meta, 2, err);
    else
        tu_source_close(in);
    tu_free(x.item);
    tu_map_free(x.gguf);
    tu_map_free(x.hf);
    tu_arena_free(x.arena);
    return rc;
}

/* One family's word on a name. */
static int name_by(const struct tu_family *f, struct tu_buf *out, const char *name, bool *yes,
                   struct tu_err *err)
{
    struct tu_map *hf = NULL, *gguf = NULL;
    struct tu_named from, to;
    int rc = tu_map_builtin(&hf, f->hf_map, err);
    if (!rc)
        rc = tu_map_builtin(&gguf, f->gguf_map, err);
    if (!rc)
        rc = tu_map_match(hf, name, 0, 0, &from, yes, err);
    *yes = *yes && from.n == 1 && !(from.transform & (TU_MAP_DROP | TU_MAP_STACK));
    if (!rc && *yes)
        rc = tu_map_entry(gguf, from.role[0], 0, 0, out, &to, yes, err);
    tu_map_free(hf);
    tu_map_free(gguf);
    return rc;
}

int tu_gguf_name(struct tu_buf *out, const char *name, bool *yes, struct tu_err *err)
{
    const char *last = "";
    int rc = 0;
    *yes = false;
    for (const struct tu_family *f = tu_families; f->name && !rc && !*yes; f++) {
        if (f->gguf_map && strcmp(f->hf_map, last))
            rc = name_by(f, out, name, yes, err);
        last = f->hf_map;
    }
    return rc;
}
