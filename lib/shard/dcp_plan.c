/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_plan.c: PyTorch's distributed checkpoints, written: a file for each rank and the
 * `.metadata` that names every chunk in them.
 *
 * Source: pytorch torch/distributed/checkpoint/{metadata,filesystem,planner_helpers}.py;
 * rows are cut as DTensor's Shard(0) cuts them: ceil(R/n) for each rank. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

#define TORCH "torch.distributed.checkpoint.metadata "

struct planner {
    struct tu_ckpt *c;
    uint32_t ranks;
    const char *model, *optim; /* prefixes with their dot, or "" */
    json_t *info;              /* META optim */
};

static int add_atom(struct planner *p, uint32_t atom, struct tu_err *err)
{
    struct tu_ckpt *c = p->c;
    const struct tu_role *r = &c->from->role[c->from->atom[atom].fuse.role[0]];
    const char *name = c->from->atom[atom].tensor.name;
    char *full = NULL;
    if (!strcmp(r->name, TUI_STEP))
        return 0; /* one for each parameter, below */
    full = r->state ? tu_arena_printf(c->arena, err, "%sstate.%s.%s", p->optim,
                                      name + strlen(r->state) + 7, r->state)
                    : tu_arena_printf(c->arena, err, "%s%s", p->model, name);
    int rc = full ? 0 : TU_ENOMEM;
    for (uint32_t k = 0; k < p->ranks && !rc; k++) {
        uint64_t at[TU_RANK_MAX];
        bool yes;
        rc = tui_add_rows(c, k, p->ranks, full, atom, &yes, at, err);
    }
    return rc;
}

/* A step for each parameter with moments, all alike. */
static int add_steps(struct planner *p, struct tu_err *err)
{
    struct tu_ckpt *c = p->c;
    uint32_t role = tu_names_get(c->from->names, TUI_STEP);
    uint32_t step = role == TU_NAMES_NONE ? UINT32_MAX : c->from->role[role].atom;
    int rc = 0;
    for (uint32_t a = 0; a < c->from->atoms && step != UINT32_MAX && !rc; a++) {
        const struct tu_role *r = &c->from->role[c->from->atom[a].fuse.role[0]];
        if (!r->state || strcmp(r->state, "exp_avg"))
            continue;
        char *full =
            tu_arena_printf(c->arena, err, "%sstate.%s.step", p->optim,
                            c->from->atom[a].tensor.name + strlen("optim.exp_avg."));
        uint64_t at[TU_RANK_MAX];
        bool yes;
        rc = full ? tui_add_rows(c, 0, 1, full, step, &yes, at, err) : TU_ENOMEM;
    }
    return rc;
}

/* Settings of the groups as objects of their own, in file 0. */
static int add_objects(struct planner *p, struct tu_err *err)
{
    struct tu_arena *a = p->c->arena;
    const json_t *groups = json_object_get(p->info, "groups");
    struct tu_pnode *list = tu_pnode_new(a, TU_P_LIST, 0, err);
    struct tu_pnode *names = tu_pnode_new(a, TU_P_LIST, 0, err);
    int rc = list && names ? 0 : TU_ENOMEM;
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const char *key;
        json_t *value, *group = json_array_get(groups, g);
        json_object_foreach(group, key, value)
        {
            struct tu_pnode *v = rc ? NULL : tui_pnode_of(a, value, err);
            char *name =
                rc ? NULL
                   : tu_arena_printf(a, err, "%sparam_groups.%zu.%s", p->optim, g, key);
            if (v && !strcmp(key, "betas") && v->kind == TU_P_LIST)
                v->kind = TU_P_TUPLE;
            if (!rc)
                rc = tu_pnode_add(a, list, NULL, v, err);
            if (!rc)
                rc = name ? tu_pnode_add(a, names, NULL, tu_pnode_text(a, name, err), err)
                          : TU_ENOMEM;
        }
    }
    if (!rc && list->n) {
        p->c->file[0].save.object = list;
        p->c->object_names = names;
    }
    return rc;
}

static const char *prefix(struct tu_ckpt *c, const struct tu_spec *spec, const char *key,
                          const char *fallback, struct tu_err *err)
{
    const char *v = tu_spec_get(spec, key);
    if (!v)
        v = fallback;
    return *v ? tu_arena_printf(c->arena, err, "%s.", v) : "";
}

int tui_dcp_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                 const struct tu_shard_opts *o, struct tu_err *err)
{
    struct planner p = {.c = c};
    uint64_t ranks;
    uint32_t number;
    (void)o;
    int rc = tu_spec_u64(spec, "ranks", 1, &ranks, err);
    if (!rc && (!ranks || ranks > 65536))
        rc = tu_fail(err, TU_EUSAGE, "ranks= is a number from 1 to 65536");
    p.ranks = rc ? 0 : (uint32_t)ranks;
    p.model = prefix(c, spec, "model", "model", err);
    p.optim = prefix(c, spec, "optim", "optim", err);
    if (!rc && (!p.model || !p.optim))
        rc = TU_ENOMEM;
    for (uint32_t r = 0; r < p.ranks && !rc; r++) {
        char path[32];
        snprintf(path, sizeof path, "__%u_0.distcp", r);
        rc = tui_add_target(c, path, &tu_format_distcp, (struct tu_coord){0}, &number,
                            err);
    }
    if (!rc)
        rc = tui_get_optim(c, &p.info, err);
    for (uint32_t a = 0; a < c->from->atoms && !rc; a++)
        rc = add_atom(&p, a, err);
    if (!rc)
        rc = add_steps(&p, err);
    if (!rc)
        rc = add_objects(&p, err);
    if (!rc)
        rc = tui_ensure_config(c, err);
    json_decref(p.info);
    return rc;
}

/* .metadata -----------------------------------------------------------------------------
 */

struct metadata {
    const struct tu_ckpt *c;
    struct tu_arena *a;
    struct tu_err *err;
    struct tu_pnode *tensors, *planner, *storage;
    const char *model; /* prefix of the weights, with its dot */
    bool nested;       /* say where names were */
    int rc;
};

static void set(struct metadata *m, struct tu_pnode *dict, const char *key,
                struct tu_pnode *v)
{
    if (!m->rc)
        m->rc = tu_pnode_set(m->a, dict, key, v, m->err);
}

static struct tu_pnode *tuple(struct metadata *m, size_t n)
{
    struct tu_pnode *t = tu_pnode_new(m->a, TU_P_TUPLE, n, m->err);
    if (!t)
        m->rc = TU_ENOMEM;
    return t;
}

static struct tu_pnode *object(struct metadata *m, const char *class,
                               struct tu_pnode *state)
{
    return state ? tu_pnode_object(m->a, class, state, m->err) : NULL;
}

static struct tu_pnode *call1(struct metadata *m, const char *name, struct tu_pnode *arg)
{
    struct tu_pnode *args = tuple(m, 1);
    if (!args || !arg)
        return NULL;
    args->item[0] = arg;
    return tui_pnode_call(m->a, name, args, m->err);
}

static struct tu_pnode *properties(struct metadata *m, uint32_t dtype)
{
    struct tu_pnode *t = tuple(m, 5);
    if (!t)
        return NULL;
    t->item[0] =
        tu_pnode_global(m->a, tu_torch_name(dtype), m->err); /* the sink has one */
    t->item[1] = call1(m, "torch.serialization _get_layout",
                       tu_pnode_text(m->a, "torch.strided", m->err));
    t->item[2] = tu_pnode_bool(m->a, false, m->err);
    t->item[3] = call1(m, TORCH "_MEM_FORMAT_ENCODING", tu_pnode_int(m->a, 0, m->err));
    t->item[4] = tu_pnode_bool(m->a, false, m->err);
    for (int i = 0; i < 5; i++)
        if (!t->item[i])
            return NULL;
    return object(m, TORCH "TensorProperties", t);
}

static void append(struct metadata *m, struct tu_pnode *list, const char *text, size_t n)
{
    char *end, *copy = tu_arena_text(m->a, text, n, m->err);
    if (!copy) {
        m->rc = TU_ENOMEM;
        return;
    }
    long long number = strtoll(copy, &end, 10);
    bool digits = *copy >= '0' && *copy <= '9' && !*end;
    if (!m->rc)
        m->rc = tu_pnode_add(m->a, list, NULL,
                             digits ? tu_pnode_int(m->a, number, m->err)
                                    : tu_pnode_text(m->a, copy, m->err),
                             m->err);
}

/* Where a name was in the nested dictionaries: MODEL, NAME; OPTIM, state, NAME, STATE;
 * OPTIM, param_groups, G, KEY. */
static void add_planner(struct metadata *m, const char *name)
{
    if (!m->nested)
        return;
    struct tu_pnode *path = tu_pnode_new(m->a, TU_P_LIST, 0, m->err);
    const char *at = name, *state = strstr(name, "state."),
               *groups = strstr(name, "param_groups.");
    const char *head = state == name || (state && state[-1] == '.')      ? state
                       : groups == name || (groups && groups[-1] == '.') ? groups
                                                                         : NULL;
    const char *last = strrchr(name, '.');
    if (!path) {
        m->rc = TU_ENOMEM;
        return;
    }
    if (head && head > at)
        append(m, path, at, (size_t)(head - at) - 1);
    if (head && last > strchr(head, '.')) {
        const char *mid = strchr(head, '.') + 1;
        append(m, path, head, (size_t)(mid - head) - 1);
        append(m, path, mid, (size_t)(last - mid));
        at = last + 1;
    } else if (!head && !strncmp(name, m->model, strlen(m->model)) && *m->model) {
        append(m, path, at, strlen(m->model) - 1);
        at += strlen(m->model);
    }
    append(m, path, at, strlen(at));
    path->kind = TU_P_TUPLE;
    set(m, m->planner, name, path);
}

static void add_storage(struct metadata *m, const char *name, struct tu_pnode *offset,
                        size_t index, const char *file, struct tu_place place)
{
    struct tu_pnode *key = tu_pnode_new(m->a, TU_P_DICT, 0, m->err),
                    *info = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
    if (!key || !info || !offset) {
        m->rc = TU_ENOMEM;
        return;
    }
    set(m, key, "fqn", tu_pnode_text(m->a, name, m->err));
    set(m, key, "offset", offset);
    set(m, key, "index",
        offset->kind == TU_P_NONE ? tu_pnode_new(m->a, TU_P_NONE, 0, m->err)
                                  : tu_pnode_int(m->a, (int64_t)index, m->err));
    const char *slash = strrchr(file, '/');
    set(m, info, "relative_path",
        tu_pnode_text(m->a, slash ? slash + 1 : file, m->err));
    set(m, info, "offset", tu_pnode_int(m->a, (int64_t)place.offset, m->err));
    set(m, info, "length", tu_pnode_int(m->a, (int64_t)place.length, m->err));
    if (!m->rc)
        m->rc = tu_pnode_add(
            m->a, m->storage, object(m, TORCH "MetadataIndex", key),
            object(m, "torch.distributed.checkpoint.filesystem _StorageInfo", info),
            m->err);
}

/* Sizes or offsets, in elements of torch: of a packed dtype those of the last dimension
 * hold several. */
static struct tu_pnode *size(struct metadata *m, const struct tu_tensor *t,
                             const uint64_t *dim)
{
    uint64_t own[TU_RANK_MAX];
    memcpy(own, dim, t->rank * sizeof *own);
    if (t->rank)
        own[t->rank - 1] /= tu_dtype_find(t->dtype)->block_elems;
    return tui_pnode_size(m->a, own, t->rank, m->err);
}

/* A chunk, and with the first of a name the tensor. */
static void add_one(struct metadata *m, const struct tu_piece *p, struct tu_place place)
{
    const struct tu_tensor *t = &m->c->file[p->file].list[p->index];
    struct tu_region where;
    if ((m->rc = tu_region_of(&where, t, m->err)))
        return;
    const uint64_t none[TU_RANK_MAX] = {0};
    bool whole = where.kind == TU_REGION_WHOLE;
    const uint64_t *at = whole ? none : where.off, *all = whole ? t->dim : where.global;
    struct tu_pnode *v = tu_pnode_get(m->tensors, t->name), *chunks, *chunk;
    if (!v) {
        struct tu_pnode *state = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
        chunks = tu_pnode_new(m->a, TU_P_LIST, 0, m->err);
        if (!state || !chunks) {
            m->rc = TU_ENOMEM;
            return;
        }
        set(m, state, "properties", properties(m, t->dtype));
        set(m, state, "size", size(m, t, all));
        set(m, state, "chunks", chunks);
        set(m, m->tensors, t->name, object(m, TORCH "TensorStorageMetadata", state));
        add_planner(m, t->name);
    } else {
        chunks = tu_pnode_get(v, "chunks");
    }
    chunk = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
    if (!chunk) {
        m->rc = TU_ENOMEM;
        return;
    }
    set(m, chunk, "offsets", size(m, t, at));
    set(m, chunk, "sizes", size(m, t, t->dim));
    if (!m->rc)
        add_storage(m, t->name, size(m, t, at), chunks->n,
                    m->c->file[p->file].path, place);
    if (!m->rc)
        m->rc = tu_pnode_add(m->a, chunks, NULL,
                             object(m, TORCH "ChunkStorageMetadata", chunk), m->err);
}

static void add_objects_of(struct metadata *m, const struct tu_place *place)
{
    for (size_t i = 0; m->c->object_names && i < m->c->object_names->n && !m->rc; i++) {
        const char *name = m->c->object_names->item[i]->text;
        struct tu_pnode *state = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
        set(m, m->tensors, name, object(m, TORCH "BytesStorageMetadata", state));
        add_planner(m, name);
        if (!m->rc)
            add_storage(m, name, tu_pnode_new(m->a, TU_P_NONE, 0, m->err), 0,
                        m->c->file[0].path, place[i]);
    }
}

static int places_of(const struct tu_ckpt *c, struct tu_place ***out,
                     struct tu_place **object, struct tu_arena *a, struct tu_err *err)
{
    struct tu_place **place = tu_arena_alloc(a, c->files + 1, sizeof *place, err);
    size_t objects = c->object_names ? c->object_names->n : 0;
    *object = tu_arena_alloc(a, objects + 1, sizeof **object, err);
    int rc = place && *object ? 0 : TU_ENOMEM;
    for (size_t f = 0; f < c->files && !rc; f++) {
        if (c->file[f].format != &tu_format_distcp)
            continue;
        place[f] = tu_arena_alloc(a, c->file[f].save.n + 1, sizeof **place, err);
        rc = place[f] ? tu_distcp_places(&c->file[f].save, place[f], *object, err)
                      : TU_ENOMEM;
    }
    *out = place;
    return rc;
}

/* What the plan put before the names of the weights: a piece's name tells. NULL: no memory. */
static const char *prefix_of(const struct tu_ckpt *c, struct tu_arena *a,
                             struct tu_err *err)
{
    for (size_t i = 0; i < c->pieces; i++) {
        const struct tu_piece *p = &c->piece[i];
        const struct tu_role *r = &c->role[p->fuse.role[0]];
        const char *own =
            r->atom == UINT32_MAX || r->state ? NULL : c->from->atom[r->atom].tensor.name;
        size_t n = strlen(p->tensor.name), m = own ? strlen(own) : n;
        if (own && n > m && !strcmp(p->tensor.name + n - m, own))
            return tu_arena_text(a, p->tensor.name, n - m, err);
    }
    return "";
}

static int make_metadata(struct metadata *m, struct tu_buf *out)
{
    struct tu_place **place = NULL, *objects = NULL;
    struct tu_pnode *state = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
    m->tensors = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
    m->planner = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
    m->storage = tu_pnode_new(m->a, TU_P_DICT, 0, m->err);
    m->rc = state && m->tensors && m->planner && m->storage
                ? places_of(m->c, &place, &objects, m->a, m->err)
                : TU_ENOMEM;
    m->model = m->nested ? prefix_of(m->c, m->a, m->err) : "";
    if (!m->model)
        m->rc = TU_ENOMEM;
    for (size_t i = 0; i < m->c->pieces && !m->rc; i++) {
        const struct tu_piece *p = &m->c->piece[i];
        add_one(m, p, place[p->file][p->index]);
    }
    if (!m->rc)
        add_objects_of(m, objects);
    if (m->rc)
        return m->rc;
    set(m, state, "state_dict_metadata", m->tensors);
    set(m, state, "planner_data", m->planner);
    set(m, state, "storage_data", m->storage);
    set(m, state, "storage_meta", tu_pnode_new(m->a, TU_P_NONE, 0, m->err));
    set(m, state, "version", tu_pnode_text(m->a, "1.0.0", m->err));
    struct tu_pnode *root = m->rc ? NULL : object(m, TORCH "Metadata", state);
    return m->rc ? m->rc : root ? tu_pickle_write(out, root, NULL, 0, m->err) : TU_ENOMEM;
}

int tui_dcp_metadata(const struct tu_ckpt *c, const char *folder, bool planner,
                     const struct tu_job *job, struct tu_err *err)
{
    struct metadata m = {.c = c, .a = tu_arena_new(err), .err = err, .nested = planner};
    struct tu_buf b = {0};
    char path[4096];
    int rc = m.a ? make_metadata(&m, &b) : TU_ENOMEM;
    if (!rc && snprintf(path, sizeof path, "%s/.metadata", folder) >= (int)sizeof path)
        rc = tu_fail(err, TU_EIO, "%.200s: path too long", folder);
    if (!rc)
        rc = tu_file_write(path, b.data, b.n, true, job, err);
    tu_buf_release(&b);
    tu_arena_free(m.a);
    return rc;
}

int tui_dcp_extra(const struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                  struct tu_err *err)
{
    return tui_dcp_metadata(c, folder, true, job, err);
}
