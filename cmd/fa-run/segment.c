/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c: the tensors of a segment into memory, and results out of it. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include "fa-run/fa.h"
#include "fa-run/ranks.h"

static bool reads(const struct tu_mixer *row, const char *name)
{
    for (size_t i = 0; row->in[i]; i++) {
        size_t n = strcspn(row->in[i], "?");
        if (strlen(name) == n && !memcmp(row->in[i], name, n))
            return true;
    }
    return false;
}

/* The operand that a record is. With --layer N q, k and v are those of layer N, under the
 * names that caches give them. NULL: of another layer. */
static const char *operand_of(const char *name)
{
    static const struct {
        const char *plain, *head, *tail;
    } names[] = {{"q", "q.", ""}, {"k", "kv.", ".k"}, {"v", "kv.", ".v"}};
    if (fa_opts.layer < 0)
        return name;
    for (unsigned i = 0; i < 3; i++) {
        char cached[40];
        snprintf(cached, sizeof cached, "%s%" PRId64 "%s", names[i].head, fa_opts.layer,
                 names[i].tail);
        if (!strcmp(name, cached))
            return names[i].plain;
        if (!strcmp(name, names[i].plain))
            return NULL;
    }
    return name;
}

/* META fa: partial results say so, and what base their lse has. */
static int take_meta(struct fa_segment *s, const struct tu_record *rec,
                     struct tu_err *err)
{
    struct json_t *m = NULL;
    int code = tu_json_parse(&m, rec->meta, rec->meta_len, NULL, err);
    if (code) {
        tu_err_prefix(err, "META 'fa'");
        return code;
    }
    const char *base = json_string_value(json_object_get(m, "lse_base")),
               *type = json_string_value(json_object_get(m, "out_dtype"));
    const struct tu_dtype *d = type ? tu_dtype_named(type) : NULL;
    s->partial = json_is_true(json_object_get(m, "partial"));
    s->sinks = json_is_true(json_object_get(m, "sinks"));
    s->out_dtype = d ? d->code : 0;
    if (base && strcmp(base, "e"))
        code = tu_fail(err, TU_EMETA,
                       "META 'fa': lse_base is '%.20s', natural logarithms are "
                       "needed: multiply lse of base 2 by ln 2",
                       base);
    json_decref(m);
    return code;
}

/* shard.offset of the token dimension of q and k. */
static int take_place(struct fa_segment *s, const struct tu_record *rec, const char *name,
                      int layout, struct tu_err *err)
{
    bool q = !strcmp(name, "q");
    struct tu_tensor t;
    struct tu_region where;
    if (!q && strcmp(name, "k"))
        return 0;
    tu_record_tensor(rec, &t);
    int code = tu_region_of(&where, &t, err);
    unsigned axis = rec->nwords == 3 ? 0 : layout == TU_ATTN_BHSD ? 2 : 1;
    if (!code && where.kind == TU_REGION_BOX && axis < where.rank) {
        *(q ? &s->q_first : &s->k_first) = where.off[axis];
        *(q ? &s->q_placed : &s->k_placed) = true;
    }
    return code;
}

static int take(struct fa_segment *s, struct tu_reader *r, const struct tu_record *rec,
                const char *name, struct tu_err *err)
{
    if (tu_operand_find(s->op, s->n, name))
        return tu_fail(err, TU_ENAME, "record '%.60s' stands twice in the segment",
                       rec->name);
    if (s->n == FA_OPERANDS || rec->nwords > 4)
        return tu_fail(err, TU_ESIZE,
                       "record '%.60s' has %u dimensions, at most 4 are read", rec->name,
                       rec->nwords);
    struct tu_operand *o = &s->op[s->n];
    *o = (struct tu_operand){.dtype = rec->dtype, .rank = rec->nwords};
    if (rec->nwords)
        memcpy(o->dim, rec->word, rec->nwords * sizeof *o->dim);
    if (!(o->name = tu_arena_text(s->arena, name, strlen(name), err)))
        return TU_ENOMEM;
    int code = tu_reader_load(r, TU_SIZE_MAX, &o->data, err);
    if (!code)
        s->n++;
    return code;
}

int fa_segment_read(struct fa_segment *s, struct tu_reader *r, const struct tu_mixer *row,
                    bool *got, struct tu_err *err)
{
    const struct tu_record *rec;
    int code;
    *s = (struct fa_segment){.arena = tu_arena_new(err)};
    *got = false;
    if (!s->arena)
        return TU_ENOMEM;
    while (!(code = tu_reader_next(r, &rec, err)) && rec) {
        *got = true;
        if (rec->type == TU_REC_END)
            return 0;
        if (rec->type == TU_REC_META && !strcmp(rec->name, "fa"))
            code = take_meta(s, rec, err);
        const char *name =
            !code && rec->type == TU_REC_TENSOR ? operand_of(rec->name) : NULL;
        if (name && reads(row, name)) {
            code = take_place(s, rec, name,
                              !strcmp(fa_opts.layout, "bhsd") ? TU_ATTN_BHSD : 0, err);
            code = code ? code : take(s, r, rec, name, err);
        }
        if (code)
            break;
    }
    return code;
}

void fa_segment_release(struct fa_segment *s)
{
    for (size_t i = 0; i < s->n; i++)
        tu_free(s->op[i].data);
    tu_arena_free(s->arena);
    *s = (struct fa_segment){0};
}

static int each_of(struct tu_ctx *ctx, const char *path, const struct tu_mixer *row,
                   fa_segment_fn *fn, void *arg, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_reader *r;
    bool got = true;
    int code = tu_in_open(&in, path, err);
    if (code ||
        (code = tu_reader_new(&r, in, 0, fa_parallel() ? NULL : tu_ctx_pool(ctx), err)))
        return code;
    while (!code && got) {
        struct fa_segment s;
        code = fa_segment_read(&s, r, row, &got, err);
        if (!code && got)
            code = fn(arg, &s, err);
        fa_segment_release(&s);
    }
    if (code && fa_opts.layer >= 0)
        tu_err_prefix(err, "layer %" PRId64, fa_opts.layer);
    if (code)
        tu_err_prefix(err, "%s", tu_reader_name(r));
    tu_reader_free(r);
    return code;
}

int fa_each_segment(struct tu_ctx *ctx, int paths, char **path,
                    const struct tu_mixer *row, fa_segment_fn *fn, void *arg,
                    struct tu_err *err)
{
    int code = paths ? 0 : each_of(ctx, "-", row, fn, arg, err);
    for (int i = 0; !code && i < paths; i++)
        code = each_of(ctx, path[i], row, fn, arg, err);
    return code;
}

int fa_segment_cast(struct fa_segment *s, struct tu_err *err)
{
    static const char *const name[] = {"q", "k", "v"};
    uint32_t first = 0;
    bool differ = false;
    for (size_t i = 0; i < s->n; i++)
        for (unsigned k = 0; k < 3; k++)
            if (!strcmp(s->op[i].name, name[k])) {
                differ = differ || (first && s->op[i].dtype != first);
                first = s->op[i].dtype;
            }
    for (size_t i = 0; differ && i < s->n; i++)
        for (unsigned k = 0; k < 3; k++) {
            struct tu_operand *o = &s->op[i];
            if (strcmp(o->name, name[k]))
                continue;
            uint64_t n;
            int code = tu_elements(o->dim, o->rank, &n, err);
            void *wide = code ? NULL : tu_alloc(n, sizeof(float), err);
            if (!wide)
                return code ? code : TU_ENOMEM;
            code = tu_cast(TU_F32, wide, o->dtype, o->data, n, err);
            tu_free(o->data);
            o->data = wide;
            o->dtype = TU_F32;
            if (code)
                return code;
        }
    return 0;
}

uint64_t fa_segment_odd(const struct fa_segment *s)
{
    float part[1024];
    uint64_t odd = 0, n;
    for (size_t i = 0; i < s->n; i++) {
        const struct tu_operand *o = &s->op[i];
        const struct tu_dtype *d = tu_dtype_find(o->dtype);
        bool mask = !strcmp(o->name, "mask") || !strcmp(o->name, "bias") ||
                    !strcmp(o->name, "lse");
        if (mask || !d || !tu_dtype_is_float(o->dtype) || !tu_dtype_is_plain(o->dtype) ||
            tu_elements(o->dim, o->rank, &n, NULL))
            continue;
        for (uint64_t at = 0; at < n; at += 1024) {
            size_t m = (size_t)tu_min(1024, n - at);
            if (tu_to_float(o->dtype, (char *)o->data + at * d->block_bytes, part, m,
                            NULL))
                break;
            for (size_t k = 0; k < m; k++)
                odd += !isfinite(part[k]);
        }
    }
    return odd;
}

int fa_outputs(const struct tu_mixer *row, struct tu_mixer_args *a, bool wide,
               struct tu_err *err)
{
    /* Results that are written in any dtype; sums over rows are f32 always. */
    static const char *const rows[] = {"o",     "lse", "dq", "dk",        "dv",
                                       "dgate", "y",   "dx", "state_out", "dstate_in"};
    int code = row->infer(a, err);
    for (size_t i = 0; !code && i < a->n_out; i++) {
        struct tu_operand *o = &a->out[i];
        for (size_t k = 0; wide && k < sizeof rows / sizeof *rows; k++)
            if (!strcmp(o->name, rows[k]))
                o->dtype = TU_F64;
        uint64_t bytes;
        code = tu_tensor_bytes(o->dtype, o->dim, o->rank, &bytes, err);
        if (!code && fa_parallel())
            code = fa_shared_memory(o, bytes, err);
        else if (!code && !(o->data = tu_alloc(bytes, 1, err)))
            code = TU_ENOMEM;
    }
    return code;
}

void fa_outputs_free(struct tu_mixer_args *a)
{
    for (size_t i = 0; i < a->n_out; i++)
        if (!fa_parallel() || !fa_unshare(&a->out[i]))
            tu_free(a->out[i].data);
    a->n_out = 0;
}

int fa_write(struct tu_writer *w, const struct tu_operand *op, size_t n,
             struct tu_err *err)
{
    int code = 0;
    for (size_t i = 0; !code && i < n; i++) {
        struct tu_tensor t = {.name = op[i].name,
                              .dtype = op[i].dtype,
                              .rank = op[i].rank,
                              .dim = op[i].dim};
        code = tu_tensor_bytes(t.dtype, t.dim, t.rank, &t.bytes, err);
        if (!code)
            code = tu_writer_tensor(w, &t, op[i].data, err);
    }
    return code;
}

int fa_load(const char *path, const struct tu_mixer *row, struct fa_segment *s,
            struct tu_err *err)
{
    struct tu_in *in;
    struct tu_reader *r;
    bool got;
    int code = tu_in_open(&in, path, err);
    if (code || (code = tu_reader_new(&r, in, 0, NULL, err)))
        return code;
    code = fa_segment_read(s, r, row, &got, err);
    tu_reader_free(r);
    return code;
}

int fa_save(struct tu_ctx *ctx, const char *path, const struct tu_operand *op, size_t n,
            struct tu_err *err)
{
    struct tu_out *out;
    struct tu_writer *w;
    int code = tu_out_open(&out, path, tu_ctx_alone(ctx), err);
    if (code || (code = tu_writer_new(&w, out, err)))
        return code;
    if ((code = fa_write(w, op, n, err)) || (code = tu_writer_end(w, false, err))) {
        tu_writer_abort(w);
        return code;
    }
    return tu_writer_close(w, false, err);
}
