/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: the pieces of a checkpoint to be written: which role goes to which file, under
 * which name. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

int tui_plan_stages(struct tu_ckpt *c, const char *layers, struct tu_err *err)
{
    uint64_t total = c->model.layers, at = 0;
    uint32_t n = c->pp * c->vpp;
    c->stage = tu_arena_alloc(c->arena, n, sizeof *c->stage, err);
    if (!c->stage)
        return TU_ENOMEM;
    if (!layers && total % n) {
        char legal[64];
        tui_divisors(total, legal);
        return tu_fail(err, TU_EUSAGE,
                       "%llu layers do not divide by pp=%u x vpp=%u: make the product one "
                       "of %s, or give layers=N+N+… with %u numbers",
                       (unsigned long long)total, c->pp, c->vpp, legal, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t count = total / n;
        if (layers) {
            char *end;
            count = strtoull(layers, &end, 10);
            if (end == layers || (*end && *end != '+') || (i + 1 < n) != (*end == '+') ||
                count > total)
                return tu_fail(err, TU_EUSAGE,
                               "layers= needs %u numbers joined by '+', one for each "
                               "stage and chunk (chunk 0 of all stages first)",
                               n);
            layers = end + 1;
        }
        c->stage[i] = (struct tu_stage){(uint32_t)at, (uint32_t)count};
        at += count;
    }
    if (at != total)
        return tu_fail(err, TU_EUSAGE, "layers= adds up to %llu, the model has %llu",
                       (unsigned long long)at, (unsigned long long)total);
    return 0;
}

uint32_t tui_stage_of(const struct tu_ckpt *c, int64_t layer)
{
    uint32_t i = 0, n = c->pp * c->vpp;
    while (i + 1 < n && layer >= (int64_t)c->stage[i].first + c->stage[i].count)
        i++;
    return i;
}

/* Dimensions of the tensor that a fuse makes for one rank. */
static int target_dims(const struct tu_ckpt *c, const struct tu_fuse *f, const char *name,
                       uint32_t pad, uint64_t dim[2], struct tu_err *err)
{
    int rc = tui_fuse_shape(c, f, name, c->tp, pad, &dim[0], &dim[1], err);
    if (!rc && f->transform & TU_MAP_TRANSPOSE && c->role[f->role[0]].rank == 2) {
        uint64_t swap = dim[0];
        dim[0] = dim[1];
        dim[1] = swap;
    }
    return rc;
}

int tui_need_family(const struct tu_ckpt *c, struct tu_err *err)
{
    const char *family = c->from->model.family;
    int rc = tui_need_plain(c->from, "the layout cuts tensors", err);
    if (rc || c->canonical)
        return rc;
    return *family ? tu_fail(err, TU_EUSAGE,
                             "%.150s: no map has the names of family '%.40s' "
                             "(--list=families shows those that have one)",
                             c->from->root, family)
                   : tu_fail(err, TU_EUSAGE,
                             "%.150s: the model's family is not known (--list=families "
                             "shows those that are): give --family or --config",
                             c->from->root);
}

uint32_t tui_plan_dtype(const struct tu_ckpt *c, uint32_t dtype)
{
    return c->dtype != TU_DTYPE_NONE && tu_dtype_is_float(dtype) ? c->dtype : dtype;
}

int tui_add_target_tensor(struct tu_ckpt *c, uint32_t f, const char *name, uint32_t dtype,
                          const uint64_t *dim, unsigned rank, uint32_t *index,
                          struct tu_err *err)
{
    struct tu_ckpt_file *file = &c->file[f];
    int rc = TU_GROW(&file->list, &file->list_cap, file->save.n, err);
    if (!rc)
        rc = tu_tensor_make(&file->list[file->save.n], c->arena, name, dtype, dim, rank,
                            NULL, err);
    file->save.tensor = file->list;
    *index = (uint32_t)file->save.n;
    file->save.n += !rc;
    return rc;
}

static int add_piece(struct tu_ckpt *c, uint32_t f, const char *name, struct tu_fuse fuse,
                     struct tu_coord at, unsigned stacked, const uint64_t *dim,
                     struct tu_err *err)
{
    const struct tu_role *r = &c->role[fuse.role[0]];
    struct tu_piece p = {.file = f, .at = at, .fuse = fuse};
    unsigned rank = r->rank + (fuse.per && fuse.per < fuse.roles ? 1 : 0);
    uint32_t *own = tu_arena_alloc(c->arena, fuse.roles, sizeof *own, err);
    if (!own)
        return TU_ENOMEM;
    memcpy(own, fuse.role, fuse.roles * sizeof *own);
    p.fuse.role = own; /* its master copies may take the roles' place */
    bool state = r->state || !strcmp(r->name, TUI_STEP);
    uint32_t dtype = state ? r->dtype : tui_plan_dtype(c, r->dtype);
    int rc = tui_add_target_tensor(c, f, name, dtype, dim, rank + stacked, &p.index, err);
    if (!rc) {
        p.tensor = c->file[f].list[p.index];
        p.tensor.dim += stacked;
        p.tensor.rank -= stacked;
        rc = tui_piece_add(c, &p, err);
    }
    return rc;
}

int tui_add_target_piece(struct tu_ckpt *c, uint32_t f, const char *name,
                         struct tu_fuse fuse, struct tu_coord at, const uint64_t *dim,
                         struct tu_err *err)
{
    return add_piece(c, f, name, fuse, at, 0, dim, err);
}

int tui_add_target_stacked(struct tu_ckpt *c, uint32_t f, const char *name,
                           struct tu_fuse fuse, unsigned stacked, const uint64_t *dim,
                           struct tu_err *err)
{
    return add_piece(c, f, name, fuse, (struct tu_coord){0}, stacked, dim, err);
}

int tui_shard_meta(struct tu_ckpt *c, struct tu_tensor *t, const uint64_t *at,
                   const uint64_t *whole, struct tu_err *err)
{
    struct tu_buf b = {0};
    struct tu_jw w;
    tu_jw_begin(&w, &b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_open(&w, "shard", '{');
    tu_jw_dims(&w, "global", whole, t->rank);
    tu_jw_dims(&w, "offset", at, t->rank);
    tu_jw_close(&w, '}');
    tu_jw_close(&w, '}');
    int rc = tu_jw_end(&w, err);
    if (!rc && !(t->meta = tu_arena_text(c->arena, b.data, b.n, err)))
        rc = TU_ENOMEM;
    tu_buf_release(&b);
    return rc;
}

int tui_add_rows(struct tu_ckpt *c, uint32_t rank, uint32_t ranks, const char *name,
                 uint32_t atom, bool *yes, uint64_t *at, struct tu_err *err)
{
    const struct tu_tensor *t = &c->from->atom[atom].tensor;
    bool cut = tui_has_rows(t);
    uint64_t all = cut ? t->dim[0] : 1, per = tu_ceil_div(all, (uint64_t)ranks),
             lo = tu_min(rank * per, all), dim[TU_RANK_MAX];
    uint64_t n = tu_min(per, all - lo);
    *yes = cut ? n > 0 || (!all && !rank) : !rank;
    memset(at, 0, TU_RANK_MAX * sizeof *at);
    if (!*yes)
        return 0;
    memcpy(dim, t->dim, t->rank * sizeof *dim);
    if (cut) {
        dim[0] = n;
        at[0] = lo;
    }
    int rc = tui_add_target_piece(c, rank, name, c->from->atom[atom].fuse,
                                  (struct tu_coord){0}, dim, err);
    if (!rc && cut && ranks > 1) {
        struct tu_piece *q = &c->piece[c->pieces - 1];
        q->whole = t->dim;
        q->box = tui_slab(c, at, dim, NULL, t->rank, err);
        q->boxes = 1;
        rc = q->box ? tui_shard_meta(c, &c->file[rank].list[q->index], at, t->dim, err)
                    : TU_ENOMEM;
    }
    return rc;
}

int tui_add_blank(struct tu_ckpt *c, uint32_t f, uint32_t index, uint64_t off, uint64_t n,
                  struct tu_err *err)
{
    int rc = n ? TU_GROW(&c->blank, &c->blank_cap, c->blanks, err) : 0;
    if (!rc && n)
        c->blank[c->blanks++] = (struct tu_blank){f, index, off, n};
    return rc;
}

/* The fuse of a named entry; every role of it must be there. *first: role number i leads
 * it. */
static int fuse_named(struct tu_ckpt *c, uint32_t i, const struct tu_named *named,
                      const char *state, const char *entry, struct tu_fuse *out,
                      bool *first, struct tu_err *err)
{
    uint32_t *list = tu_arena_alloc(c->arena, named->n, sizeof *list, err);
    if (!list)
        return TU_ENOMEM;
    for (unsigned k = 0; k < named->n; k++) {
        char role[200];
        snprintf(role, sizeof role, "%s%s%s%s", state ? "optim." : "", state ? state : "",
                 state ? "." : "", named->role[k]);
        list[k] = tu_names_get(c->from->names, role);
        if (list[k] == TU_NAMES_NONE || c->role[list[k]].atom == UINT32_MAX)
            return tu_fail(err, TU_EINCOMPLETE,
                           "'%.80s' needs '%.80s', which is not there or not selected",
                           entry, role);
    }
    *first = list[0] == i;
    *out = (struct tu_fuse){named->transform, named->n, list, 0};
    return 0;
}

struct planner {
    struct tu_ckpt *c;
    const struct tui_target_rule *rule;
    uint32_t (*file_of)(const struct tu_ckpt *c, struct tu_coord at);
    struct tu_buf name;
    struct tui_list unnamed;
    uint32_t last; /* atom that was listed last */
};

/* One entry on all tensor-parallel ranks, and on the expert ranks that hold it. */
static int place(struct planner *p, const struct tu_fuse *fuse, uint32_t chunk,
                 int64_t expert_rank, struct tu_err *err)
{
    struct tu_ckpt *c = p->c;
    struct tu_coord at = {.pp = chunk % c->pp, .vp = chunk / c->pp};
    struct tui_entry e = {&c->role[fuse->role[0]], p->name.data, *fuse, {0}};
    uint64_t *dim = e.dim;
    int rc = target_dims(c, fuse, p->name.data, p->rule->pad, dim, err);
    if (p->rule->place)
        return rc ? rc : p->rule->place(c, p->rule, &e, err);
    for (at.ep = 0; at.ep < c->ep && !rc; at.ep++)
        for (at.tp = 0; at.tp < c->tp && !rc; at.tp++)
            if (expert_rank < 0 || expert_rank == at.ep)
                rc = tui_add_target_piece(c, p->file_of(c, at), p->name.data, *fuse, at,
                                          dim, err);
    return rc;
}

static int name_prefix(struct planner *p, uint32_t chunk, struct tu_err *err)
{
    tu_buf_reset(&p->name);
    if (!p->rule->prefix)
        return tu_buf_text(&p->name, "", err);
    if (p->c->vpp > 1)
        return tu_buf_printf(&p->name, err, "%s%u.", p->rule->prefix, chunk / p->c->pp);
    return tu_buf_printf(&p->name, err, "%s.", p->rule->prefix);
}

/* A tensor is listed once, of however many roles it is made. */
static int no_name(struct planner *p, uint32_t atom, struct tu_err *err)
{
    bool listed = p->unnamed.n && p->last == atom;
    p->last = atom;
    return listed ? 0
                  : tui_list_add(&p->unnamed, "without a name in the layout",
                                 p->c->from->atom[atom].tensor.name, err);
}

static int plan_role(struct planner *p, uint32_t i, struct tu_err *err)
{
    struct tu_ckpt *c = p->c;
    const struct tu_role *r = &c->role[i];
    uint32_t last = c->pp * c->vpp - 1;
    uint32_t chunk = r->layer >= 0                ? tui_stage_of(c, r->layer)
                     : tui_role_is_front(r->base) ? 0
                                                  : last;
    int64_t layer_base = r->layer >= 0 ? c->stage[chunk].first : 0, expert_base = 0,
            rank = -1;
    struct tu_named named;
    struct tu_fuse fuse;
    bool yes = false, first = false;
    if (r->expert >= 0 && c->ep > 1) {
        uint64_t per = c->model.experts / c->ep;
        rank = (int64_t)((uint64_t)r->expert / per);
        expert_base = rank * (int64_t)per;
    }
    int rc = name_prefix(p, chunk, err);
    if (!rc)
        rc = tu_map_entry(c->map, r->base, layer_base, expert_base, &p->name, &named,
                          &yes, err);
    if (!rc && !yes)
        return no_name(p, r->atom, err);
    if (!rc && p->rule->adjust)
        p->rule->adjust(c, &named);
    if (!rc)
        rc = fuse_named(c, i, &named, r->state, p->name.data, &fuse, &first, err);
    return rc || !first ? rc : place(p, &fuse, chunk, rank, err);
}

static int plan_tied(struct planner *p, struct tu_err *err)
{
    struct tu_ckpt *c = p->c;
    struct tu_named named;
    struct tu_fuse fuse;
    uint32_t last = c->pp * c->vpp - 1;
    bool yes = false, first;
    int rc = name_prefix(p, last, err);
    if (!rc)
        rc = tu_map_tied(c->map, &p->name, &named, &yes, err);
    if (rc || !yes)
        return rc;
    rc = fuse_named(c, UINT32_MAX, &named, NULL, p->name.data, &fuse, &first, err);
    return rc ? rc : place(p, &fuse, last, -1, err);
}

/* Layers that predict further tokens embed them again, in the last stage. Source:
 * Megatron-LM core/models/gpt/gpt_model.py. */
static int plan_mtp_embedding(struct planner *p, struct tu_err *err)
{
    struct tu_ckpt *c = p->c;
    struct tu_named named;
    struct tu_fuse fuse;
    uint32_t last = c->pp * c->vpp - 1;
    bool yes = false, first;
    int rc = name_prefix(p, last, err);
    if (!rc)
        rc = tu_map_entry(c->map, "embed.weight", 0, 0, &p->name, &named, &yes, err);
    if (!rc && yes)
        rc = fuse_named(c, UINT32_MAX, &named, NULL, p->name.data, &fuse, &first, err);
    return rc || !yes ? rc : place(p, &fuse, last, -1, err);
}

bool tui_has_mtp(const struct tu_ckpt *c)
{
    bool yes = false;
    for (size_t i = 0; i < c->roles && !yes; i++)
        yes = !strncmp(c->role[i].base, "mtp.", 4) && c->role[i].atom != UINT32_MAX;
    return yes;
}

int tui_plan_pieces(struct tu_ckpt *c, const struct tui_target_rule *rule,
                    uint32_t (*file_of)(const struct tu_ckpt *c, struct tu_coord at),
                    struct tu_err *err)
{
    struct planner p = {
        .c = c, .rule = rule, .file_of = file_of, .unnamed = {.all = c->refused}};
    int rc = 0;
    for (size_t a = 0; a < c->from->atoms && !rc; a++) {
        const struct tu_fuse *f = &c->from->atom[a].fuse;
        if (tui_is_state(c, &c->from->atom[a]) &&
            (!rule->states || !c->role[f->role[0]].state)) {
            c->dropped++;
            continue;
        }
        for (uint32_t k = 0; k < f->roles && !rc; k++)
            rc = plan_role(&p, f->role[k], err);
    }
    if (!rc && p.unnamed.n)
        rc = tu_fail(err, TU_EINCOMPLETE, "map %s has no name for %zu tensor%s: %s",
                     tu_map_name(c->map), p.unnamed.n, p.unnamed.n == 1 ? "" : "s",
                     p.unnamed.text);
    if (!rc && rule->tied_head && c->model.tied)
        rc = plan_tied(&p, err);
    if (!rc && rule->tied_head && c->pp > 1 && tui_has_mtp(c))
        rc = plan_mtp_embedding(&p, err);
    tu_buf_release(&p.name);
    return rc;
}
