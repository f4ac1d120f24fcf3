/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: a checkpoint as the records that make a GGUF file for llama.cpp: its names, rotary
 * pairs, stacked experts, vectors as f32, and the key-values of model and tokenizer.
 *
 * The checkpoint is opened with its roles as atoms (tu_shard_opts.roles), so every layout
 * will do. Rows pass in windows of whole heads. Not a layout: nothing is cut by ranks. */

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "ckpt.h"

/* One tensor of the file: roles one after the other. */
struct entry {
    struct tu_named named;
    struct tu_buf name;
    uint32_t *atom; /* [n] */
    size_t n;
};

struct writing {
    const struct tu_ckpt *c;
    struct tu_map *map;
    const struct tu_job *job;
    uint64_t *dim; /* of the entry at hand */
};

static uint32_t atom_named(const struct tu_ckpt *c, const char *role)
{
    uint32_t number = tu_names_get(c->names, role);
    return number == TU_NAMES_NONE ? UINT32_MAX : c->role[number].atom;
}

/* The entry that begins with atom a; *yes false where another atom leads it. */
static int find_entry(const struct writing *w, uint32_t a, struct entry *e, bool *yes,
                      struct tu_err *err)
{
    const char *role = w->c->atom[a].tensor.name;
    uint64_t experts = 1;
    *yes = false;
    tu_buf_reset(&e->name);
    int rc = tu_map_entry(w->map, role, 0, 0, &e->name, &e->named, yes, err);
    if (!rc && !*yes)
        rc = tu_fail(err, TU_EUNSUP, "'%.100s' has no name in map %s", role, tu_map_name(w->map));
    if (!rc && e->named.transform & TU_MAP_STACK)
        experts = w->c->model.experts;
    e->n = (size_t)experts * e->named.n;
    tu_free(e->atom);
    e->atom = rc ? NULL : tu_alloc(e->n, sizeof *e->atom, err);
    for (size_t k = 0; !rc && e->atom && k < e->n; k++) {
        char text[160];
        tu_role_text(text, sizeof text, e->named.role[k % e->named.n], k / e->named.n);
        e->atom[k] = atom_named(w->c, text);
        if (e->atom[k] == UINT32_MAX)
            rc = tu_fail(err, TU_EINCOMPLETE, "'%.80s' needs '%.80s', which is not there",
                         e->name.data, text);
    }
    *yes = !rc && e->atom && e->atom[0] == a;
    return rc || e->atom ? rc : TU_ENOMEM;
}

/* Shape and dtype; parts must agree. */
static int describe(struct writing *w, const struct entry *e, struct tu_tensor *out,
                    struct tu_err *err)
{
    const struct tu_tensor *first = &w->c->atom[e->atom[0]].tensor;
    const bool stack = e->named.transform & TU_MAP_STACK;
    uint64_t rows = 0;
    for (size_t k = 0; k < e->n; k++) {
        const struct tu_tensor *t = &w->c->atom[e->atom[k]].tensor;
        if (t->rank != first->rank || t->dtype != first->dtype ||
            (t->rank == 2 && t->dim[1] != first->dim[1]) ||
            (stack && t->dim[0] != first->dim[0]))
            return tu_fail(err, TU_EINCOMPLETE, "'%.80s': '%.80s' differs from its neighbours",
                           e->name.data, t->name);
        rows += t->rank ? t->dim[0] : 1;
    }
    unsigned rank = first->rank + stack;
    w->dim[0] = stack ? e->n : rows;
    w->dim[1] = stack ? first->dim[0] : first->rank == 2 ? first->dim[1] : 0;
    w->dim[2] = stack && first->rank == 2 ? first->dim[1] : 0;
    uint32_t dtype = tu_gguf_dtype(first->name, rank, tui_plan_dtype(w->c, first->dtype));
    *out = (struct tu_tensor){.name = e->name.data, .dtype = dtype, .rank = rank, .dim = w->dim};
    return tu_tensor_bytes(dtype, w->dim, rank, &out->bytes, err);
}

/* Bytes ------------------------------------------------------------------------------------ */

/* An atom on its way: gathered to whole heads, put in pairs, cast. */
struct passing {
    struct tu_writer *w;
    uint32_t from, to;
    size_t elem, row;   /* bytes of an element and of a row */
    uint64_t pair;      /* rows of a head; 0: rows pass as they come */
    unsigned char *head, *turned; /* [pair * row] */
    unsigned char *cast;
    size_t cast_cap, have;
};

static int put_cast(struct passing *p, const unsigned char *data, size_t n, struct tu_err *err)
{
    if (p->from == p->to)
        return tu_writer_write(p->w, data, n, err);
    const size_t to = tu_dtype_find(p->to)->block_bytes;
    int rc = 0;
    for (size_t at = 0, k; !rc && at < n; at += k) {
        k = tu_min(n - at, p->cast_cap * p->elem);
        rc = tu_cast(p->to, p->cast, p->from, data + at, k / p->elem, err);
        if (!rc)
            rc = tu_writer_write(p->w, p->cast, k / p->elem * to, err);
    }
    return rc;
}

/* Row i of a half goes to the even rows, of the other to the odd ones. */
static int put_head(struct passing *p, struct tu_err *err)
{
    uint64_t half = p->pair / 2;
    for (uint64_t i = 0; i < p->pair; i++)
        memcpy(p->turned + i * p->row, p->head + (i / 2 + (i % 2 ? half : 0)) * p->row, p->row);
    p->have = 0;
    return put_cast(p, p->turned, (size_t)p->pair * p->row, err);
}

static int pass(void *ctx, const void *data, size_t n, struct tu_err *err)
{
    struct passing *p = ctx;
    const unsigned char *in = data;
    const size_t whole = (size_t)p->pair * p->row;
    if (!p->pair)
        return put_cast(p, in, n, err);
    int rc = 0;
    while (n && !rc) {
        size_t k = tu_min(n, whole - p->have);
        memcpy(p->head + p->have, in, k);
        p->have += k;
        in += k;
        n -= k;
        rc = p->have == whole ? put_head(p, err) : 0;
    }
    return rc;
}

static int put_atom(const struct writing *w, struct tu_writer *out, const struct entry *e,
                    uint32_t a, uint32_t dtype, struct tu_err *err)
{
    enum { CAST = 65536 };
    const struct tu_tensor *t = &w->c->atom[a].tensor;
    struct passing p = {.w = out, .from = t->dtype, .to = dtype, .cast_cap = CAST,
                        .elem = tu_dtype_find(t->dtype)->block_bytes};
    p.row = (t->rank == 2 ? (size_t)t->dim[1] : 1) * p.elem;
    if (e->named.transform & TU_MAP_ROTARY)
        p.pair = w->c->model.head_dim;
    if (p.pair && (p.pair % 2 || t->dim[0] % p.pair))
        return tu_fail(err, TU_EFORMAT, "'%.80s': %llu rows are no whole number of heads of %llu",
                       t->name, (unsigned long long)t->dim[0], (unsigned long long)p.pair);
    p.head = tu_alloc((size_t)p.pair * p.row + 1, 1, err);
    p.turned = tu_alloc((size_t)p.pair * p.row + 1, 1, err);
    p.cast = tu_alloc(CAST, 8, err);
    int rc = p.head && p.turned && p.cast ? tu_ckpt_walk(w->c, a, w->job, pass, &p, err)
                                          : TU_ENOMEM;
    tu_free(p.head);
    tu_free(p.turned);
    tu_free(p.cast);
    return rc;
}

static int put_entry(struct writing *w, struct tu_writer *out, const struct entry *e,
                     struct tu_err *err)
{
    struct tu_tensor t;
    struct tu_record rec;
    int rc = describe(w, e, &t, err);
    tu_record_of(&rec, &t);
    if (!rc)
        rc = tu_writer_record(out, &rec, err);
    for (size_t k = 0; k < e->n && !rc; k++)
        rc = put_atom(w, out, e, e->atom[k], t.dtype, err);
    return rc;
}

/* Records ----------------------------------------------------------------------------------- */

static int put_freqs(const struct writing *w, struct tu_writer *out, struct tu_err *err)
{
    size_t n = tu_gguf_rope_freqs(&w->c->model, NULL);
    uint64_t dim = n;
    float *f = n ? tu_alloc(n, sizeof *f, err) : NULL;
    if (!n || !f)
        return n ? TU_ENOMEM : 0;
    struct tu_tensor t = {.name = "rope_freqs.weight", .dtype = TU_F32, .rank = 1, .dim = &dim,
                          .bytes = n * sizeof *f};
    tu_gguf_rope_freqs(&w->c->model, f);
    int rc = tu_writer_tensor(out, &t, f, err);
    tu_free(f);
    return rc;
}

/* Every entry, to a function. */
static int each_entry(struct writing *w, void *ctx,
                      int (*fn)(struct writing *w, void *ctx, const struct entry *e,
                                struct tu_err *err),
                      struct tu_err *err)
{
    struct entry e = {.n = 0};
    int rc = 0;
    for (uint32_t a = 0; a < w->c->atoms && !rc; a++) {
        bool yes;
        rc = find_entry(w, a, &e, &yes, err);
        if (!rc && yes)
            rc = fn(w, ctx, &e, err);
    }
    tu_free(e.atom);
    tu_buf_release(&e.name);
    return rc;
}

static int list_entry(struct writing *w, void *ctx, const struct entry *e, struct tu_err *err)
{
    struct tu_jw *j = ctx;
    struct tu_tensor t;
    char dtype[8];
    int rc = describe(w, e, &t, err);
    if (rc)
        return rc;
    tu_jw_open(j, NULL, '[');
    tu_jw_str(j, NULL, t.name);
    tu_jw_str(j, NULL, tu_dtype_text(t.dtype, dtype));
    tu_jw_dims(j, NULL, t.dim, t.rank);
    tu_jw_close(j, ']');
    return 0;
}

static int write_entry(struct writing *w, void *ctx, const struct entry *e, struct tu_err *err)
{
    return put_entry(w, ctx, e, err);
}

static int put_contents(struct writing *w, struct tu_writer *out, struct tu_err *err)
{
    struct tu_buf b = {0};
    struct tu_jw j;
    const uint64_t freqs = tu_gguf_rope_freqs(&w->c->model, NULL);
    tu_jw_begin(&j, &b);
    tu_jw_open(&j, NULL, '{');
    tu_jw_open(&j, "tensors", '[');
    int rc = each_entry(w, &j, list_entry, err);
    if (freqs) {
        tu_jw_open(&j, NULL, '[');
        tu_jw_str(&j, NULL, "rope_freqs.weight");
        tu_jw_str(&j, NULL, "f32");
        tu_jw_dims(&j, NULL, &freqs, 1);
        tu_jw_close(&j, ']');
    }
    tu_jw_close(&j, ']');
    tu_jw_close(&j, '}');
    int end = tu_jw_end(&j, err);
    if (!rc && !end)
        rc = tu_writer_meta(out, "contents", b.data, b.n, err);
    tu_buf_release(&b);
    return rc ? rc : end;
}

static int put_metas(const struct writing *w, struct tu_writer *out, bool *tokens,
                     struct tu_err *err)
{
    const struct tu_ckpt *c = w->c;
    struct tu_buf b = {0};
    json_t *files = json_object();
    int rc = 0;
    for (size_t i = 0; i < c->sides && !rc; i++) {
        const struct tu_side *s = &c->side[i];
        if (tu_json_holds(s->name, strlen(s->name)) && tu_json_holds(s->text, s->n))
            rc = tu_json_set(files, s->name, strlen(s->name), json_stringn(s->text, s->n),
                             err);
    }
    uint32_t dtype = c->atoms ? tui_plan_dtype(c, c->atom[0].tensor.dtype) : TU_F32;
    if (!rc)
        rc = tu_model_to_gguf(&b, &c->model, files, dtype, tokens, err);
    if (!rc)
        rc = tu_writer_meta(out, "gguf", b.data, b.n, err);
    tu_buf_reset(&b);
    if (!rc && !(rc = tu_model_to_meta(&b, &c->model, err)))
        rc = tu_writer_meta(out, "model", b.data, b.n, err);
    json_decref(files);
    tu_buf_release(&b);
    return rc;
}

int tu_ckpt_gguf(const struct tu_ckpt *c, struct tu_writer *out, bool *tokens,
                 const struct tu_job *job, struct tu_err *err)
{
    uint64_t dim[3];
    struct writing w = {.c = c, .job = job, .dim = dim};
    const struct tu_family *f = tu_family_find(c->model.family);
    int rc = tui_need_plain(c, "names of GGUF files are for plain weights", err);
    if (rc)
        return rc;
    if (!f || !f->gguf_map || c->canonical)
        return tu_fail(err, TU_EUNSUP, "family '%.30s': not known in GGUF files", c->model.family);
    rc = tu_map_builtin(&w.map, f->gguf_map, err);
    if (rc)
        return rc;
    tu_map_bind(w.map, &c->model);
    rc = put_contents(&w, out, err);
    if (!rc)
        rc = put_metas(&w, out, tokens, err);
    if (!rc)
        rc = each_entry(&w, out, write_entry, err);
    if (!rc)
        rc = put_freqs(&w, out, err);
    tu_map_free(w.map);
    return rc;
}
