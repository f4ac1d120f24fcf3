/* SPDX-License-Identifier: Apache-2.0 */
/* edit.c: rules about names, and what they make of one tensor's description.
 *
 * Rules see a record's own name, never a renamed one, so their order among kinds does
 * not matter. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <tensorutils/stream.h>

enum kind { KEEP, DROP, RENAME, SLICE, CAST };

struct rule {
    struct rule *next;
    enum kind kind;
    bool hit;                   /* the pattern matched a tensor */
    struct tu_pattern *pattern; /* NULL: every tensor (SLICE), every float (CAST) */
    char *replacement;          /* RENAME */
    unsigned cuts;              /* SLICE */
    struct tu_cut cut[TU_RANK_MAX];
    uint32_t dtype;             /* CAST */
};

struct tu_edit {
    struct rule *first, **last;
    bool keeps;            /* there is a KEEP */
    bool renames, changes;
    enum tu_overflow overflow;
    struct tu_buf name, meta, spare; /* of the plan at hand */
    struct tu_buf contents;
};

int tu_edit_new(struct tu_edit **out, struct tu_err *err)
{
    struct tu_edit *e = tu_calloc(1, sizeof *e, err);
    if (!e)
        return TU_ENOMEM;
    e->last = &e->first;
    *out = e;
    return 0;
}

void tu_edit_free(struct tu_edit *e)
{
    if (!e)
        return;
    for (struct rule *r = e->first, *next; r; r = next) {
        next = r->next;
        tu_pattern_free(r->pattern);
        tu_free(r->replacement);
        tu_free(r);
    }
    tu_buf_release(&e->name);
    tu_buf_release(&e->meta);
    tu_buf_release(&e->spare);
    tu_buf_release(&e->contents);
    tu_free(e);
}

/* Append a rule with the pattern text[n]; text NULL: none. NULL on error. */
static struct rule *add_rule(struct tu_edit *e, enum kind kind, const char *text,
                             size_t n, enum tu_pattern_kind how, struct tu_err *err)
{
    struct tu_buf pattern = {0};
    struct rule *r = tu_calloc(1, sizeof *r, err);
    int rc = r ? 0 : TU_ENOMEM;
    if (!rc && text) {
        rc = tu_buf_add(&pattern, text, n, err);
        if (!rc)
            rc = tu_pattern_new(&r->pattern, pattern.data, how, err);
    }
    tu_buf_release(&pattern);
    if (rc) {
        tu_free(r);
        return NULL;
    }
    r->kind = kind;
    *e->last = r;
    e->last = &r->next;
    e->changes = true;
    return r;
}

int tu_edit_keep(struct tu_edit *e, const char *pattern, enum tu_pattern_kind kind,
                 struct tu_err *err)
{
    struct tu_err own;
    if (!add_rule(e, KEEP, pattern, strlen(pattern), kind, err ? err : &own))
        return err ? err->code : own.code;
    e->keeps = true;
    return 0;
}

int tu_edit_drop(struct tu_edit *e, const char *pattern, enum tu_pattern_kind kind,
                 struct tu_err *err)
{
    struct tu_err own;
    if (!add_rule(e, DROP, pattern, strlen(pattern), kind, err ? err : &own))
        return err ? err->code : own.code;
    return 0;
}

/* "[REGEX=]REST": the last '=' divides, since regular expressions may hold some. */
static struct rule *add_divided(struct tu_edit *e, enum kind kind, const char *text,
                                const char **rest, struct tu_err *err)
{
    const char *eq = strrchr(text, '=');
    *rest = eq ? eq + 1 : text;
    return add_rule(e, kind, eq ? text : NULL, eq ? (size_t)(eq - text) : 0,
                    TU_PATTERN_REGEX, err);
}

int tu_edit_rename(struct tu_edit *e, const char *text, struct tu_err *err)
{
    struct tu_err own;
    const char *rest;
    err = err ? err : &own;
    if (!strchr(text, '='))
        return tu_fail(err, TU_EUSAGE, "'%.80s': expected REGEX=REPLACEMENT", text);
    struct rule *r = add_divided(e, RENAME, text, &rest, err);
    if (!r)
        return err->code;
    e->renames = true;
    r->replacement = tu_strdup(rest, err);
    return r->replacement ? 0 : TU_ENOMEM;
}

int tu_edit_slice(struct tu_edit *e, const char *text, struct tu_err *err)
{
    struct tu_err own;
    const char *rest;
    err = err ? err : &own;
    struct rule *r = add_divided(e, SLICE, text, &rest, err);
    return r ? tu_cut_parse(rest, r->cut, &r->cuts, err) : err->code;
}

int tu_edit_cast(struct tu_edit *e, const char *text, struct tu_err *err)
{
    struct tu_err own;
    const char *rest;
    err = err ? err : &own;
    struct rule *r = add_divided(e, CAST, text, &rest, err);
    if (!r)
        return err->code;
    return tu_parse_dtype(rest, &r->dtype, err);
}

void tu_edit_overflow(struct tu_edit *e, enum tu_overflow rule)
{
    e->overflow = rule;
}

bool tu_edit_changes(const struct tu_edit *e)
{
    return e->changes;
}

bool tu_edit_idle(const struct tu_edit *e, size_t i)
{
    const struct rule *r = e->first;
    while (r && i--)
        r = r->next;
    return r && r->pattern && !r->hit;
}

static int matches(struct rule *r, const char *name, bool *yes, struct tu_err *err)
{
    *yes = true;
    int rc = r->pattern ? tu_pattern_match(r->pattern, name, strlen(name), NULL, yes, err)
                        : 0;
    r->hit |= *yes;
    return rc;
}

/* The first rule of a kind that matches, or NULL. Later ones are tried until they have matched
 * once: to be second is not to be idle. */
static int find_rule(struct tu_edit *e, enum kind kind, const struct tu_tensor *t,
                     const struct rule **out, struct tu_err *err)
{
    *out = NULL;
    for (struct rule *r = e->first; r; r = r->next) {
        bool yes = false;
        if (r->kind != kind || (*out && r->hit) ||
            (kind == CAST && !r->pattern && !tu_dtype_is_float(t->dtype)))
            continue;
        int rc = matches(r, t->name, &yes, err);
        if (rc)
            return rc;
        if (yes && !*out)
            *out = r;
    }
    return 0;
}

/* The renamed form of a name in `to`. */
static int rename_to(struct tu_edit *e, const char *name, struct tu_buf *to,
                     struct tu_err *err)
{
    struct tu_match m;
    tu_buf_reset(to);
    int rc = tu_buf_text(to, name, err);
    for (struct rule *r = e->first; !rc && r; r = r->next) {
        bool yes = false;
        if (r->kind != RENAME)
            continue;
        rc = tu_pattern_match(r->pattern, to->data, to->n, &m, &yes, err);
        if (rc || !yes)
            continue;
        r->hit = true;
        tu_buf_reset(&e->spare);
        rc = tu_buf_add(&e->spare, to->data, m.group[0].begin, err);
        if (!rc)
            rc = tu_pattern_expand(&e->spare, r->replacement, to->data, &m, err);
        if (!rc)
            rc = tu_buf_text(&e->spare, to->data + m.group[0].end, err);
        struct tu_buf swap = *to;
        *to = e->spare;
        e->spare = swap;
    }
    return rc;
}

/* Names inside `quant` follow the renaming; `src` describes bytes that a cast or a slice
 * makes untrue. */
static int edit_meta(struct tu_edit *e, struct tu_edit_plan *p, json_t *meta,
                     struct tu_err *err)
{
    static const char *const keys[] = {"scale", "zero", "gscale", "gidx",
                                       "perm",  "meta", "index"};
    json_t *quant = json_object_get(meta, "quant");
    struct tu_buf name = {0};
    int rc = 0;
    for (size_t i = 0; e->renames && quant && !rc && i < sizeof keys / sizeof *keys;
         i++) {
        const char *old = json_string_value(json_object_get(quant, keys[i]));
        if (!old)
            continue;
        rc = rename_to(e, old, &name, err);
        if (!rc && json_object_set_new(quant, keys[i], json_stringn(name.data, name.n)))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
    }
    tu_buf_release(&name);
    if (p->out.dtype != p->in.dtype || p->sliced)
        json_object_del(meta, "src");
    tu_buf_reset(&e->meta);
    if (rc || json_object_size(meta) == 0) {
        p->out.meta = NULL;
        return rc;
    }
    rc = tu_json_dump(&e->meta, meta, err);
    p->out.meta = e->meta.data;
    return rc;
}

static int plan_meta(struct tu_edit *e, struct tu_edit_plan *p, struct tu_err *err)
{
    const bool cast = p->out.dtype != p->in.dtype;
    if (!p->in.meta || (!e->renames && !p->sliced && !cast))
        return 0;
    json_t *meta;
    const struct tu_json_limits limits = {.depth = TU_JSON_DEPTH_META, .object = true};
    int rc = tu_json_parse(&meta, p->in.meta, strlen(p->in.meta), &limits, err);
    if (rc)
        return rc;
    if (p->sliced && (json_object_get(meta, "shard") || json_object_get(meta, "flat")))
        rc = tu_fail(err, TU_EUNSUP,
                     "a piece of a tensor cannot be sliced; join it first");
    else if ((p->sliced || cast) && json_object_get(meta, "quant"))
        rc = tu_fail(err, TU_EUNSUP,
                     "codes whose scales are elsewhere cannot be sliced or cast");
    else
        rc = edit_meta(e, p, meta, err);
    json_decref(meta);
    return rc;
}

static int plan_slice(struct tu_edit *e, struct tu_edit_plan *p, struct tu_err *err)
{
    const struct rule *r;
    int rc = find_rule(e, SLICE, &p->in, &r, err);
    if (rc || !r)
        return rc;
    rc = tu_slice_plan(&p->slice, r->cut, r->cuts, &p->in, err);
    p->sliced = true;
    p->out.dim = p->slice.out_dim;
    p->out.rank = p->slice.out_rank;
    return rc;
}

static int plan_cast(struct tu_edit *e, struct tu_edit_plan *p, struct tu_err *err)
{
    char from[8], to[8];
    const struct rule *r;
    int rc = find_rule(e, CAST, &p->in, &r, err);
    if (rc || !r || r->dtype == p->in.dtype)
        return rc;
    if (!tu_cast_ok(r->dtype, p->in.dtype))
        return tu_fail(err, TU_EUSAGE, "%s cannot be cast to %s",
                       tu_dtype_text(p->in.dtype, from), tu_dtype_text(r->dtype, to));
    p->out.dtype = r->dtype;
    return 0;
}

static int plan_all(struct tu_edit *e, struct tu_edit_plan *p, struct tu_err *err)
{
    const struct rule *kept = NULL, *dropped = NULL;
    int rc = e->keeps ? find_rule(e, KEEP, &p->in, &kept, err) : 0;
    if (!rc)
        rc = find_rule(e, DROP, &p->in, &dropped, err);
    p->keep = (kept || !e->keeps) && !dropped;
    if (rc || !p->keep)
        return rc;
    rc = plan_slice(e, p, err);
    if (!rc)
        rc = plan_cast(e, p, err);
    if (!rc)
        rc = plan_meta(e, p, err);
    if (!rc && e->renames) {
        rc = rename_to(e, p->in.name, &e->name, err);
        p->out.name = e->name.data;
    }
    if (!rc && (p->sliced || p->out.dtype != p->in.dtype))
        rc = tu_tensor_bytes(p->out.dtype, p->out.dim, p->out.rank, &p->out.bytes, err);
    return rc;
}

int tu_edit_tensor(struct tu_edit *e, struct tu_edit_plan *p, const struct tu_tensor *t,
                   struct tu_err *err)
{
    char name[88];
    memset(p, 0, offsetof(struct tu_edit_plan, slice));
    p->in = p->out = *t;
    p->overflow = e->overflow;
    int rc = plan_all(e, p, err);
    if (rc) {
        tu_err_prefix(err, "'%s'", tu_text_short(t->name, strlen(t->name), name));
        return rc;
    }
    p->whole = !p->sliced && p->out.dtype == t->dtype;
    p->same = p->whole && !strcmp(p->out.name, t->name) && p->out.meta == t->meta;
    return 0;
}

/* META contents ---------------------------------------------------------------------- */

static int bad_contents(struct tu_err *err, size_t i)
{
    return tu_fail(err, TU_EMETA,
                   "META 'contents': entry %zu is not [\"NAME\",\"DTYPE\",[SHAPE]]", i);
}

static int read_entry(const json_t *entry, size_t i, struct tu_tensor *t, uint64_t *dim,
                      struct tu_err *err)
{
    const char *name = json_string_value(json_array_get(entry, 0));
    const char *dtype = json_string_value(json_array_get(entry, 1));
    const json_t *shape = json_array_get(entry, 2);
    const struct tu_dtype *d = dtype ? tu_dtype_named(dtype) : NULL;
    if (!name || !d || !json_is_array(shape) || json_array_size(shape) > TU_RANK_MAX)
        return bad_contents(err, i);
    *t = (struct tu_tensor){.name = name, .dtype = d->code, .dim = dim,
                            .rank = (uint32_t)json_array_size(shape)};
    for (uint32_t k = 0; k < t->rank; k++)
        if (!tu_json_count(json_array_get(shape, k), &dim[k]))
            return bad_contents(err, i);
    return tu_tensor_bytes(t->dtype, t->dim, t->rank, &t->bytes, err);
}

static json_t *count(uint64_t v)
{
    char text[24];
    if (v <= UINT64_C(1) << 53)
        return json_integer((json_int_t)v);
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    return json_string(text);
}

static json_t *write_entry(const struct tu_tensor *t)
{
    char dtype[8];
    json_t *shape = json_array();
    bool good = shape;
    for (uint32_t k = 0; good && k < t->rank; k++)
        good = !json_array_append_new(shape, count(t->dim[k]));
    json_t *entry = good ? json_pack("[s, s, O]", t->name, tu_dtype_text(t->dtype, dtype), shape)
                         : NULL;
    json_decref(shape);
    return entry;
}

int tu_edit_contents(struct tu_edit *e, const char *json, size_t n, const char **out,
                     size_t *out_n, struct tu_err *err)
{
    const struct tu_json_limits limits = {.depth = TU_JSON_DEPTH_META, .object = true};
    uint64_t dim[TU_RANK_MAX];
    struct tu_tensor t;
    struct tu_edit_plan *plan = NULL;
    json_t *meta = NULL, *list = json_array();
    int rc = list ? tu_json_parse(&meta, json, n, &limits, err)
                  : tu_fail(err, TU_ENOMEM, "out of memory");
    const json_t *old = json_object_get(meta, "tensors");
    if (!rc && !(plan = tu_alloc(1, sizeof *plan, err)))
        rc = TU_ENOMEM;
    for (size_t i = 0; !rc && i < json_array_size(old); i++) {
        rc = read_entry(json_array_get(old, i), i, &t, dim, err);
        if (!rc)
            rc = tu_edit_tensor(e, plan, &t, err);
        if (!rc && plan->keep && json_array_append_new(list, write_entry(&plan->out)))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
    }
    if (!rc && json_object_set(meta, "tensors", list))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    tu_buf_reset(&e->contents);
    if (!rc)
        rc = tu_json_dump(&e->contents, meta, err);
    *out = e->contents.data;
    *out_n = e->contents.n;
    tu_free(plan);
    json_decref(list);
    json_decref(meta);
    return rc;
}

/* Payload ---------------------------------------------------------------------------- */

int tu_edit_flow_begin(struct tu_edit_flow *f, const struct tu_edit_plan *plan,
                       tu_pull_fn pull, void *ctx, struct tu_err *err)
{
    *f = (struct tu_edit_flow){.plan = plan, .pull = pull, .ctx = ctx};
    f->in = tu_alloc(TU_IO_CHUNK, 1, err);
    f->mid = f->in ? tu_alloc(TU_IO_CHUNK, 1, err) : NULL;
    if (f->mid)
        return 0;
    tu_edit_flow_end(f);
    return TU_ENOMEM;
}

void tu_edit_flow_end(struct tu_edit_flow *f)
{
    tu_free(f->in);
    tu_free(f->mid);
    f->in = f->mid = NULL;
}

/* Append what the slice leaves of the next input bytes to f->in; *end at the end. */
static int pull_kept(struct tu_edit_flow *f, size_t room, bool *end, struct tu_err *err)
{
    size_t got;
    int rc = f->pull(f->ctx, f->in + f->have, room - f->have, &got, err);
    if (rc)
        return rc;
    *end = got == 0;
    const uint64_t pos = f->pos;
    f->pos += got;
    f->have +=
        f->plan->sliced ? tu_slice_keep(&f->plan->slice, pos, f->in + f->have, got) : got;
    return 0;
}

int tu_edit_flow_next(struct tu_edit_flow *f, const void **p, size_t *got,
                      struct tu_err *err)
{
    const uint32_t from = f->plan->in.dtype, to = f->plan->out.dtype;
    const size_t a = from == to ? 1 : tu_dtype_find(from)->block_bytes;
    const size_t b = from == to ? 1 : tu_dtype_find(to)->block_bytes;
    const size_t room = TU_IO_CHUNK / (a > b ? a : b) * a; /* both sides fit */
    bool end = false;
    *got = 0;
    while (!end && f->have < a) {
        int rc = pull_kept(f, room, &end, err);
        if (rc)
            return rc;
    }
    const size_t n = f->have / a;
    if (n == 0)
        return 0;
    if (from == to) {
        *p = f->in;
        *got = f->have;
        f->have = 0;
        return 0;
    }
    int rc = tu_cast_by(f->plan->overflow, to, f->mid, from, f->in, n, err);
    if (rc) {
        if (f->cast)
            tu_err_prefix(err, "'%.80s' from element %" PRIu64 " on", f->plan->in.name,
                          f->cast);
        else
            tu_err_prefix(err, "'%.80s'", f->plan->in.name);
        return rc;
    }
    f->cast += n;
    f->have -= n * a;
    memmove(f->in, f->in + n * a, f->have);
    *p = f->mid;
    *got = n * b;
    return 0;
}
