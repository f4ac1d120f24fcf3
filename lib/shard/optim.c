/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c: what a checkpoint says of its optimizer beside tensors: groups of parameters
 * with their settings, and the number of steps. */

#include <math.h>
#include <string.h>

#include "deepspeed.h"
#include "trust.h"

#define DEPTH 8

static int none(struct tu_err *err)
{
    return tu_fail(err, TU_ENOMEM, "out of memory");
}

static int json_at(json_t **out, const struct tu_pnode *v, unsigned depth,
                   struct tu_err *err);

static int json_list(json_t **out, const struct tu_pnode *v, unsigned depth,
                     struct tu_err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : none(err);
    for (size_t i = 0; i < v->n && !rc; i++) {
        json_t *item = NULL;
        rc = json_at(&item, v->item[i], depth - 1, err);
        if (!rc)
            rc = tu_json_append(list, item ? item : json_null(), err);
    }
    *out = list;
    return rc;
}

static int json_dict(json_t **out, const struct tu_pnode *v, unsigned depth,
                     struct tu_err *err)
{
    json_t *dict = json_object();
    int rc = dict ? 0 : none(err);
    for (size_t i = 0; i + 1 < v->n && !rc; i += 2) {
        const struct tu_pnode *key = v->item[i];
        json_t *item = NULL;
        if (key->kind != TU_P_TEXT)
            continue;
        rc = json_at(&item, v->item[i + 1], depth - 1, err);
        if (!rc && item)
            rc = tu_json_set(dict, key->text, key->n, item, err);
    }
    *out = dict;
    return rc;
}

static int json_at(json_t **out, const struct tu_pnode *v, unsigned depth,
                   struct tu_err *err)
{
    *out = NULL;
    if (!v || !depth)
        return 0;
    switch (v->kind) {
    case TU_P_NONE: *out = json_null(); break;
    case TU_P_BOOL: *out = json_boolean(v->integer); break;
    case TU_P_INT: *out = json_integer(v->integer); break;
    case TU_P_REAL:
        if (!isfinite(v->real))
            return 0;
        *out = json_real(v->real);
        break;
    case TU_P_TEXT: return tu_json_text(out, v->text, v->n, err);
    case TU_P_TUPLE:
    case TU_P_LIST: return json_list(out, v, depth, err);
    case TU_P_DICT: return json_dict(out, v, depth, err);
    default: return 0; /* JSON has no such value */
    }
    return *out ? 0 : none(err);
}

int tui_json_of(json_t **out, const struct tu_pnode *node, struct tu_err *err)
{
    int rc = json_at(out, node, DEPTH, err);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

struct tu_pnode *tui_pnode_of(struct tu_arena *a, const json_t *v, struct tu_err *err)
{
    const char *key;
    json_t *value;
    size_t i;
    struct tu_pnode *n = NULL;
    switch (json_typeof(v)) {
    case JSON_NULL: return tu_pnode_new(a, TU_P_NONE, 0, err);
    case JSON_TRUE: return tu_pnode_bool(a, true, err);
    case JSON_FALSE: return tu_pnode_bool(a, false, err);
    case JSON_INTEGER: return tu_pnode_int(a, json_integer_value(v), err);
    case JSON_REAL: return tu_pnode_real(a, json_real_value(v), err);
    case JSON_STRING: return tu_pnode_text(a, json_string_value(v), err);
    case JSON_ARRAY:
        n = tu_pnode_new(a, TU_P_LIST, 0, err);
        json_array_foreach(v, i, value)
        {
            if (n && tu_pnode_add(a, n, NULL, tui_pnode_of(a, value, err), err))
                return NULL;
        }
        return n;
    case JSON_OBJECT:
        n = tu_pnode_new(a, TU_P_DICT, 0, err);
        json_object_foreach((json_t *)(uintptr_t)v, key, value)
        {
            if (n && tu_pnode_set(a, n, key, tui_pnode_of(a, value, err), err))
                return NULL;
        }
        return n;
    }
    return NULL;
}

struct tu_pnode *tui_pnode_call(struct tu_arena *a, const char *name,
                                struct tu_pnode *args, struct tu_err *err)
{
    struct tu_pnode *n = args ? tu_pnode_new(a, TU_P_CALL, 2, err) : NULL;
    if (!n || !(n->item[TU_P_CALLABLE] = tu_pnode_global(a, name, err)))
        return NULL;
    n->item[TU_P_ARGS] = args;
    return n;
}

struct tu_pnode *tui_pnode_size(struct tu_arena *a, const uint64_t *dim, unsigned rank,
                                struct tu_err *err)
{
    struct tu_pnode *dims = tu_pnode_new(a, TU_P_TUPLE, rank, err),
                    *args = tu_pnode_new(a, TU_P_TUPLE, 1, err);
    for (unsigned i = 0; dims && i < rank; i++)
        if (!(dims->item[i] = tu_pnode_int(a, (int64_t)dim[i], err)))
            return NULL;
    if (!dims || !args)
        return NULL;
    args->item[0] = dims;
    return tui_pnode_call(a, "torch Size", args, err);
}

struct tu_pnode *tui_pnode_ordered(struct tu_arena *a, struct tu_err *err)
{
    struct tu_pnode *d = tu_pnode_new(a, TU_P_DICT, 0, err);
    if (d)
        d->text = "collections OrderedDict";
    return d;
}

int tui_set_optim(struct tu_ckpt *c, const json_t *optim, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = tu_json_dump(&b, optim, err);
    if (!rc) {
        c->optim = tu_arena_text(c->arena, b.data, b.n, err);
        c->optim_n = b.n;
        rc = c->optim ? 0 : TU_ENOMEM;
    }
    tu_buf_release(&b);
    return rc;
}

int tui_get_optim(const struct tu_ckpt *c, json_t **out, struct tu_err *err)
{
    if (c->optim)
        return tu_json_parse(out, c->optim, c->optim_n, NULL, err);
    *out = json_object();
    return *out ? 0 : none(err);
}

int tui_set_step(struct tu_ckpt *c, double step, const char *where, struct tu_err *err)
{
    uint32_t known = tu_names_get(c->names, TUI_STEP);
    for (size_t i = 0; known != TU_NAMES_NONE && i < c->pieces; i++) {
        float have;
        if (c->piece[i].fuse.role[0] != known || !c->piece[i].data)
            continue;
        memcpy(&have, c->piece[i].data, sizeof have);
        return have == (float)step
                   ? 0
                   : tu_fail(err, TU_EINCOMPLETE,
                             "%.120s: the optimizer made %.17g steps here and %.17g in "
                             "another place",
                             where, step, (double)have);
    }
    struct tu_piece p = {.file = 0};
    float *value = tu_arena_alloc(c->arena, 1, sizeof *value, err);
    int rc =
        value ? tu_tensor_make(&p.tensor, c->arena, TUI_STEP, TU_F32, NULL, 0, NULL, err)
              : TU_ENOMEM;
    if (rc)
        return rc;
    *value = (float)step;
    p.data = value;
    rc = tui_piece_plain(c, &p, TUI_STEP, NULL, TU_F32, err);
    return rc ? rc : tui_piece_add(c, &p, err);
}

int tui_get_step(const struct tu_ckpt *c, double *out, struct tu_err *err)
{
    uint32_t role = tu_names_get(c->names, TUI_STEP);
    uint32_t a = role == TU_NAMES_NONE ? UINT32_MAX : c->role[role].atom;
    *out = 0;
    for (size_t i = 0; a != UINT32_MAX && i < c->atom[a].n; i++) {
        const struct tu_piece *p = &c->piece[c->atom[a].piece[i]];
        char raw[16];
        if (p->replica || p->tensor.bytes > sizeof raw)
            continue;
        int rc = p->data ? (memcpy(raw, p->data, p->tensor.bytes), 0)
                         : tui_read_sound(c, p->file, p->index, 0, raw,
                                          (size_t)p->tensor.bytes, err);
        return rc ? rc : tu_cast(TU_F64, out, p->tensor.dtype, raw, 1, err);
    }
    return 0;
}
