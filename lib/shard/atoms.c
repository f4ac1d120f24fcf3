/* SPDX-License-Identifier: Apache-2.0 */
/* atoms.c: roles become atoms: canonical names, shapes and order, and which pieces hold
 * them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

/* The user's lines come first in reading; behind, where the map is to be written. */
static int load_map(struct tu_map **out, const char *name, const struct tu_model *model,
                    const struct tu_shard_opts *o, bool behind, struct tu_err *err)
{
    struct tu_map *map = NULL, *more = NULL;
    char *text = NULL;
    size_t n;
    int rc = tu_map_builtin(&map, name, err);
    if (!rc && o && o->map_file) {
        rc = tu_file_read(o->map_file, (size_t)16 << 20, &text, &n, err);
        if (!rc)
            rc = tu_map_parse(&more, behind ? name : o->map_file, text, err);
        if (!rc)
            rc = behind ? tu_map_prepend(more, map, err) : tu_map_prepend(map, more, err);
        if (!rc && behind) {
            struct tu_map *swap = map;
            map = more;
            more = swap;
        }
        tu_map_free(more);
        tu_free(text);
    }
    if (rc) {
        tu_map_free(map);
        return rc;
    }
    tu_map_bind(map, model);
    *out = map;
    return 0;
}

int tui_load_map(struct tu_map **out, const char *name, const struct tu_model *model,
                 const struct tu_shard_opts *o, struct tu_err *err)
{
    return load_map(out, name, model, o, false, err);
}

int tui_target_map(struct tu_ckpt *c, const char *name, const struct tu_shard_opts *o,
                   struct tu_err *err)
{
    return load_map(&c->map, name, &c->model, o, true, err);
}

int tui_set_canonical(struct tu_ckpt *c, const struct tu_shard_opts *o,
                      struct tu_err *err)
{
    const char *want = o && o->family ? o->family : c->model.family;
    const struct tu_family *f = tu_family_find(want);
    if (o && o->family && !f)
        return tu_fail(err, TU_EUSAGE, "unknown family '%.40s'", o->family);
    if (!f)
        return 0;
    if (o && o->family)
        snprintf(c->model.family, sizeof c->model.family, "%s", f->name);
    tu_map_free(c->canonical);
    c->canonical = NULL;
    return tui_load_map(&c->canonical, f->hf_map, &c->model, o, err);
}

/* One entry of the canonical order while it is sorted. */
struct order {
    uint32_t atom;
    unsigned state;   /* weights, then each of the optimizer's states */
    unsigned section; /* 0 embeddings, 1 layers, 2 norm and head */
    int64_t layer, expert;
    size_t line;
    const char *name;
};

static int by_order(const void *x, const void *y)
{
    const struct order *a = x, *b = y;
    if (a->state != b->state)
        return a->state < b->state ? -1 : 1;
    if (a->section != b->section)
        return a->section < b->section ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    if (a->expert != b->expert)
        return a->expert < b->expert ? -1 : 1;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return strcmp(b->name, a->name); /* of one line: weight before bias */
}

bool tui_role_is_front(const char *role)
{
    return !strncmp(role, "embed.", 6) || !strncmp(role, "pos.", 4);
}

static unsigned state_order(const struct tu_role *r)
{
    static const char *const known[] = {"fp32", "exp_avg", "exp_avg_sq"};
    for (unsigned i = 0; r->state && i < 3; i++)
        if (!strcmp(r->state, known[i]))
            return i + 1;
    return r->state ? 4 : !strcmp(r->name, TUI_STEP) ? 5 : 0;
}

bool tui_is_state(const struct tu_ckpt *c, const struct tu_atom *atom)
{
    return state_order(&c->role[atom->fuse.role[0]]) > 0;
}

static int sort_atoms(struct tu_ckpt *c, struct tu_err *err)
{
    struct order *o = tu_alloc(c->atoms + 1, sizeof *o, err);
    struct tu_atom *sorted = tu_alloc(c->atoms + 1, sizeof *sorted, err);
    int rc = o && sorted ? 0 : TU_ENOMEM;
    for (uint32_t i = 0; i < c->atoms && !rc; i++) {
        const struct tu_role *r = &c->role[c->atom[i].fuse.role[0]];
        size_t line;
        if (!c->canonical) { /* as they came */
            o[i] = (struct order){i, state_order(r), 0, 0, 0, i, r->name};
            continue;
        }
        rc = tu_map_line(c->canonical, r->base, &line, err);
        o[i] = (struct order){i,
                              state_order(r),
                              r->layer >= 0 ? 1 : tui_role_is_front(r->base) ? 0 : 2,
                              r->layer,
                              r->expert,
                              line,
                              r->name};
    }
    if (rc) {
        tu_free(o);
        tu_free(sorted);
        return rc;
    }
    qsort(o, c->atoms, sizeof *o, by_order);
    for (uint32_t i = 0; i < c->atoms; i++) {
        sorted[i] = c->atom[o[i].atom];
        for (uint32_t k = 0; k < sorted[i].fuse.roles; k++)
            c->role[sorted[i].fuse.role[k]].atom = i;
    }
    tu_free(c->atom);
    c->atom = sorted;
    c->atom_cap = c->atoms + 1;
    tu_free(o);
    return 0;
}

static int atom_add(struct tu_ckpt *c, const char *name, struct tu_fuse fuse,
                    struct tu_err *err)
{
    const struct tu_role *r = &c->role[fuse.role[0]];
    uint64_t dim[TU_RANK_MAX] = {r->rows, r->cols};
    unsigned rank = r->rank;
    int rc = TU_GROW(&c->atom, &c->atom_cap, c->atoms, err);
    if (rc)
        return rc;
    struct tu_atom *a = &c->atom[c->atoms];
    *a = (struct tu_atom){.fuse = fuse};
    if (r->dim)
        memcpy(dim, r->dim, rank * sizeof *dim);
    else if ((rc = tui_fuse_shape(c, &fuse, name, 1, 0, &dim[0], &dim[1], err)))
        return rc;
    if (!r->dim && rank == 2 && fuse.transform & TU_MAP_TRANSPOSE) {
        uint64_t swap = dim[0];
        dim[0] = dim[1];
        dim[1] = swap;
    }
    rc = tu_tensor_make(&a->tensor, c->arena, name, r->dtype, dim, rank, NULL, err);
    for (uint32_t k = 0; k < fuse.roles && !rc; k++)
        c->role[fuse.role[k]].atom = (uint32_t)c->atoms;
    c->atoms += !rc;
    return rc;
}

/* Number of the role that is the same state as r of another weight. */
static uint32_t sibling(const struct tu_ckpt *c, const struct tu_role *r,
                        const char *base)
{
    char name[256];
    if (!r->state)
        return tu_names_get(c->names, base);
    snprintf(name, sizeof name, "optim.%s.%s", r->state, base);
    return tu_names_get(c->names, name);
}

/* The canonical tensor that holds role number i, unless it is there already. */
static int atom_of(struct tu_ckpt *c, uint32_t i, const struct tu_shard_opts *o,
                   struct tu_err *err)
{
    const struct tu_role *r = &c->role[i];
    struct tu_buf name = {0};
    struct tu_named named = {.n = 1};
    bool mapped = c->canonical && !r->dim, yes = true;
    int rc = 0;
    if (r->atom != UINT32_MAX)
        return 0;
    if (mapped && r->state)
        rc = tu_buf_printf(&name, err, "optim.%s.", r->state);
    if (!rc && mapped)
        rc = tu_map_entry(c->canonical, r->base, 0, 0, &name, &named, &yes, err);
    if (!rc && !yes)
        rc = tu_fail(err, TU_EINCOMPLETE, "map %s has no name for '%.100s'",
                     tu_map_name(c->canonical), r->name);
    uint32_t *list = rc ? NULL : tu_arena_alloc(c->arena, named.n, sizeof *list, err);
    if (!rc && !list)
        rc = TU_ENOMEM;
    for (unsigned k = 0; k < named.n && !rc; k++) {
        list[k] = mapped ? sibling(c, r, named.role[k]) : i;
        if (list[k] == TU_NAMES_NONE)
            rc = tu_fail(err, TU_EINCOMPLETE, "'%.100s' is there but '%.100s' is missing",
                         r->name, named.role[k]);
    }
    const char *text = mapped ? name.data : r->name;
    if (!rc)
        rc = tui_selected(o, text, &yes, err);
    if (!rc && yes) {
        const struct tu_fuse fuse = {named.transform &
                                         (TU_MAP_TRANSPOSE | TU_MAP_QKV | TU_MAP_CONCAT),
                                     named.n, list, 0};
        rc = atom_add(c, text, mapped ? fuse : (struct tu_fuse){0, 1, list, 0}, err);
    }
    tu_buf_release(&name);
    return rc;
}

static bool same_dims(const uint64_t *a, const uint64_t *b, unsigned rank)
{
    return a == b || (a && b && !memcmp(a, b, rank * sizeof *a));
}

static bool same_boxes(const struct tu_piece *a, const struct tu_piece *b)
{
    unsigned rank = a->tensor.rank;
    bool same = a->boxes == b->boxes && rank == b->tensor.rank;
    for (uint32_t i = 0; i < a->boxes && same; i++)
        same = same_dims(a->box[i].at, b->box[i].at, rank) &&
               same_dims(a->box[i].dim, b->box[i].dim, rank);
    return same;
}

/* Pieces of the same roles at the same place, or cut in another way, are replicas of the
 * first. */
static bool same_place(const struct tu_piece *a, const struct tu_piece *b)
{
    const unsigned cuts = TU_MAP_COLUMN | TU_MAP_ROW | TU_MAP_VOCAB;
    unsigned cut = a->fuse.transform & cuts;
    if ((a->flat.yes || b->flat.yes) &&
        (a->flat.yes != b->flat.yes || a->flat.lo != b->flat.lo ||
         a->flat.n != b->flat.n))
        return false;
    if (a->box || b->box)
        return same_boxes(a, b);
    return !cut || cut != (b->fuse.transform & cuts) || a->at.tp == b->at.tp;
}

/* A replica is another rank's: what one file holds twice may be two different tensors, of
 * which no reader could tell the right one. */
static int mark_replica(const struct tu_ckpt *c, struct tu_piece *p,
                        const struct tu_piece *q, struct tu_err *err)
{
    if (q->replica || q->fuse.role[0] != p->fuse.role[0] || !same_place(p, q))
        return 0;
    p->replica = true;
    if (p->file == q->file && p->index != q->index &&
        !strcmp(p->tensor.name, q->tensor.name))
        return tu_fail(err, TU_EFORMAT, "%.200s: '%.200s' is there twice",
                       c->file[p->file].source->path, p->tensor.name);
    return 0;
}

static int attach_pieces(struct tu_ckpt *c, struct tu_err *err)
{
    for (uint32_t i = 0; i < c->pieces; i++) {
        struct tu_piece *p = &c->piece[i];
        uint32_t last = UINT32_MAX;
        for (uint32_t k = 0; k < p->fuse.roles; k++) {
            uint32_t number = c->role[p->fuse.role[k]].atom;
            if (number == UINT32_MAX || number == last)
                continue;
            struct tu_atom *a = &c->atom[number];
            last = number;
            int rc = 0;
            for (size_t j = 0; j < a->n && !c->from && !rc; j++)
                rc = mark_replica(c, p, &c->piece[a->piece[j]], err);
            if (!rc)
                rc = TU_GROW(&a->piece, &a->cap, a->n, err);
            if (rc)
                return rc;
            a->piece[a->n++] = i;
        }
    }
    return 0;
}

int tui_make_atoms(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < c->roles && !rc; i++)
        rc = atom_of(c, i, o, err);
    if (!rc && c->roles && !c->atoms)
        rc = tu_fail(err, TU_EUSAGE, "%.200s: no tensor is selected", c->root);
    if (!rc)
        rc = sort_atoms(c, err);
    return rc ? rc : attach_pieces(c, err);
}

/* A wanted dtype that is wider than the weights' is better filled from the master copy.
 */
static void take_masters(struct tu_ckpt *c)
{
    for (size_t i = 0; i < c->pieces; i++) {
        struct tu_piece *p = &c->piece[i];
        uint32_t *role = (uint32_t *)(uintptr_t)p->fuse.role;
        for (uint32_t k = 0; k < p->fuse.roles && p->tensor.dtype == TU_F32; k++) {
            const struct tu_role *r = &c->role[role[k]];
            char name[256];
            snprintf(name, sizeof name, "optim.fp32.%s", r->base);
            uint32_t master = r->state || r->dtype == TU_F32
                                  ? TU_NAMES_NONE
                                  : tu_names_get(c->from->names, name);
            if (master != TU_NAMES_NONE && c->role[master].atom != UINT32_MAX)
                role[k] = master;
        }
    }
}

int tui_adopt_atoms(struct tu_ckpt *c, struct tu_err *err)
{
    c->atom = tu_calloc(c->from->atoms + 1, sizeof *c->atom, err);
    if (!c->atom)
        return TU_ENOMEM;
    for (size_t i = 0; i < c->from->atoms; i++) {
        c->atom[i].tensor = c->from->atom[i].tensor;
        c->atom[i].fuse = c->from->atom[i].fuse;
    }
    c->atoms = c->from->atoms;
    take_masters(c);
    return attach_pieces(c, err);
}

/* Does one of a list match? */
static int any(struct tu_pattern *const *list, const char *name, bool *yes, struct tu_err *err)
{
    int rc = 0;
    for (*yes = false; !rc && *list && !*yes; list++)
        rc = tu_pattern_match(*list, name, strlen(name), NULL, yes, err);
    return rc;
}

int tui_selected(const struct tu_shard_opts *o, const char *name, bool *yes, struct tu_err *err)
{
    bool out = false;
    *yes = !o || !o->weights_only || strncmp(name, "optim.", 6) != 0;
    int rc = o && *yes && o->include ? any(o->include, name, yes, err) : 0;
    if (!rc && o && *yes && o->exclude)
        rc = any(o->exclude, name, &out, err);
    *yes = *yes && !out;
    return rc;
}
