/* SPDX-License-Identifier: Apache-2.0 */
/* zero_optim.c: the optim_states files of a planned ZeRO checkpoint, for any stage,
 * data-parallel and tensor-parallel size.
 *
 * What the source lacks begins as training would: the master copy is the weight, moments
 * are zero. Source: as zero.c; alignment of groups to twice the ranks from
 * stage_1_and_2.py, sub-groups from stage3.py (_create_fp16_sub_groups). */

#include <stdio.h>
#include <string.h>

#include "zero.h"

static struct tu_arena *arena(const struct zero_writer *w)
{
    return w->c->arena;
}

/* The tensor of a parameter on one tensor-parallel rank, as a piece without a place. */
int tui_zero_local(struct zero_writer *w, const struct tui_param *q, uint32_t atom,
                   uint32_t tp, uint32_t dtype, struct tu_piece *out, struct tu_err *err)
{
    const struct tu_atom *a = &w->c->from->atom[atom];
    uint64_t dim[TU_RANK_MAX];
    struct tui_cut cut;
    *out = (struct tu_piece){.at = {.tp = tp}, .fuse = a->fuse};
    int rc =
        tui_ucp_target(w->c, w->ucp, q->name, a->tensor.dim, a->tensor.rank, &cut, err);
    if (rc)
        return rc;
    tui_cut_dims(w->c, &cut, tp, a->tensor.dim, a->tensor.rank, dim);
    uint32_t *own = tu_arena_alloc(arena(w), a->fuse.roles, sizeof *own, err);
    if (!own)
        return TU_ENOMEM;
    memcpy(own, a->fuse.role, a->fuse.roles * sizeof *own);
    out->fuse.role = own;
    rc = tu_tensor_make(&out->tensor, arena(w), a->tensor.name, dtype, dim,
                        a->tensor.rank, NULL, err);
    if (!rc && cut.kind == TUI_CUT_AXIS)
        rc = tui_cut_piece(w->c, &cut, dim, out, err);
    if (!rc && cut.kind == TUI_CUT_AXIS) /* padding is not the source's */
        out->whole = a->tensor.dim;
    return rc;
}

static uint64_t numel_of(const struct tu_tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

/* Elements that the boxes of a piece do not cover are zero. Boxes are only of padded
 * vocabularies smaller than the tensor, and then it is its last rows that are missing. */
static int pad_rows(struct zero_writer *w, const struct tu_piece *p, struct tu_flat run,
                    uint64_t base, struct tu_err *err)
{
    uint64_t have = 0, all = numel_of(&p->tensor),
             elem = tu_dtype_find(p->tensor.dtype)->block_bytes;
    if (!p->box)
        return 0;
    for (uint32_t i = 0; i < p->boxes; i++) {
        uint64_t n = 1;
        for (unsigned k = 0; k < p->tensor.rank; k++)
            n *= p->box[i].dim[k];
        have += n;
    }
    uint64_t lo = tu_max(have, run.lo), hi = tu_min(all, run.lo + run.n);
    return lo < hi ? tui_add_blank(w->c, p->file, p->index, (base + lo - run.lo) * elem,
                                   (hi - lo) * elem, err)
                   : 0;
}

/* A run of a parameter's state at element `at` of a flat tensor: from its own atom, from
 * the weight, or zeros. */
static int add_run(struct zero_writer *w, uint32_t f, uint32_t index,
                   const struct tui_param *q, size_t state, uint32_t tp,
                   struct tu_flat run, struct tu_err *err)
{
    uint32_t atom = q->state[state] != UINT32_MAX ? q->state[state]
                    : state                       ? UINT32_MAX
                                                  : q->atom;
    struct tu_piece p;
    if (!run.n)
        return 0;
    if (atom == UINT32_MAX)
        return tui_add_blank(w->c, f, index, run.at * 4, run.n * 4, err);
    int rc = tui_zero_local(w, q, atom, tp, TU_F32, &p, err);
    p.file = f;
    p.index = index;
    p.flat = run;
    if (!rc)
        rc = pad_rows(w, &p, run, run.at, err);
    return rc ? rc : tui_piece_add(w->c, &p, err);
}

int tui_zero_whole(struct zero_writer *w, uint32_t f, const struct tui_param *q,
                   uint32_t tp, struct tu_pnode *dict, struct tu_err *err)
{
    const struct tu_role *r = &w->c->role[w->c->from->atom[q->atom].fuse.role[0]];
    uint32_t dtype = tui_plan_dtype(w->c, r->dtype);
    struct tu_piece p;
    int rc = tui_zero_local(w, q, q->atom, tp, dtype, &p, err);
    p.file = f;
    if (!rc)
        rc = tui_add_target_tensor(w->c, f, q->name, dtype, p.tensor.dim, p.tensor.rank,
                                   &p.index, err);
    if (!rc)
        rc = pad_rows(w, &p, (struct tu_flat){true, 0, numel_of(&p.tensor), 0}, 0, err);
    if (!rc)
        rc = tui_piece_add(w->c, &p, err);
    return rc ? rc
              : tu_pnode_set(arena(w), dict, q->name,
                             tu_pnode_tensor(arena(w), p.index, err), err);
}

/* Shape and elements of a parameter on one tensor-parallel rank. */
int tui_zero_dims(struct zero_writer *w, const struct tui_param *q, uint32_t tp,
                  uint64_t *dim, unsigned *rank, uint64_t *numel, struct tu_err *err)
{
    const struct tu_tensor *t = &w->c->from->atom[q->atom].tensor;
    struct tui_cut cut;
    int rc = tui_ucp_target(w->c, w->ucp, q->name, t->dim, t->rank, &cut, err);
    if (rc)
        return rc;
    tui_cut_dims(w->c, &cut, tp, t->dim, t->rank, dim);
    *rank = t->rank;
    *numel = 1;
    for (unsigned i = 0; i < t->rank; i++)
        *numel *= dim[i];
    return 0;
}

int tui_zero_shape(struct zero_writer *w, struct tu_pnode *dict,
                   const struct tui_param *q, uint32_t tp, struct tu_err *err)
{
    uint64_t dim[TU_RANK_MAX], numel;
    unsigned rank;
    int rc = tui_zero_dims(w, q, tp, dim, &rank, &numel, err);
    return rc ? rc
              : tu_pnode_set(arena(w), dict, q->name,
                             tui_pnode_size(arena(w), dim, rank, err), err);
}

/* A flat tensor of n elements under `key`. */
static int add_vector(struct zero_writer *w, uint32_t f, uint64_t n, uint32_t dtype,
                      uint32_t *index, struct tu_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "flat%zu", w->c->file[f].save.n);
    return tui_add_target_tensor(w->c, f, name, dtype, &n, 1, index, err);
}

/* The number of steps as a scalar tensor of its own. */
static int step_tensor(struct zero_writer *w, uint32_t f, struct tu_pnode **out,
                       struct tu_err *err)
{
    const struct tu_ckpt *from = w->c->from;
    struct tu_piece p = {.file = f};
    uint32_t role = tu_names_get(from->names, TUI_STEP);
    char name[32];
    snprintf(name, sizeof name, "step%zu", w->c->file[f].save.n);
    int rc = tui_add_target_tensor(w->c, f, name, TU_F32, NULL, 0, &p.index, err);
    *out = rc ? NULL : tu_pnode_tensor(arena(w), p.index, err);
    if (rc || !*out)
        return rc ? rc : TU_ENOMEM;
    if (role == TU_NAMES_NONE || from->role[role].atom == UINT32_MAX)
        return tui_add_blank(w->c, f, p.index, 0, 4, err);
    p.fuse = from->atom[from->role[role].atom].fuse;
    p.tensor = w->c->file[f].list[p.index];
    return tui_piece_add(w->c, &p, err);
}

static int add_step(struct zero_writer *w, uint32_t f, struct tu_pnode *dict,
                    struct tu_err *err)
{
    struct tu_pnode *t = NULL;
    int rc = step_tensor(w, f, &t, err);
    return rc ? rc : tu_pnode_set(arena(w), dict, "step", t, err);
}

int tui_zero_scalar(struct zero_writer *w, uint32_t f, const struct tu_pnode **root,
                    struct tu_err *err)
{
    struct tu_pnode *t = NULL;
    int rc = step_tensor(w, f, &t, err);
    *root = t;
    return rc;
}

/* Settings of a group with `params` set to its number, as torch's optimizers save it. */
static int add_settings(struct zero_writer *w, struct tu_pnode *list,
                        const struct tui_group *g, size_t first, size_t n,
                        struct tu_err *err)
{
    json_t *copy;
    struct tu_pnode *numbers = tu_pnode_new(arena(w), TU_P_LIST, 0, err), *node;
    int rc = numbers ? tu_json_copy(&copy, g->settings, err) : TU_ENOMEM;
    if (rc)
        return rc;
    json_object_del(copy, "params");
    node = tui_pnode_of(arena(w), copy, err);
    json_decref(copy);
    for (size_t i = 0; i < n && !rc; i++)
        rc = tu_pnode_add(arena(w), numbers, NULL,
                          tu_pnode_int(arena(w), (int64_t)(first + i), err), err);
    struct tu_pnode *betas = node ? tu_pnode_get(node, "betas") : NULL;
    if (betas && betas->kind == TU_P_LIST)
        betas->kind = TU_P_TUPLE;
    if (!rc)
        rc = node ? tu_pnode_set(arena(w), node, "params", numbers, err) : TU_ENOMEM;
    return rc ? rc : tu_pnode_add(arena(w), list, NULL, node, err);
}

/* Objects under construction of one optim_states file. */
struct optim {
    struct tu_pnode *root, *dict, *state, *groups, *fp32, *paddings, *maps;
};

/* The loss scaler as it was, or one that scales nothing. */
static struct tu_pnode *loss_scaler(struct zero_writer *w, struct tu_err *err)
{
    static const char fixed[] = "deepspeed.runtime.fp16.loss_scaler LossScaler",
                      dynamic[] = "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler";
    const json_t *known = json_object_get(w->params.optim, "loss_scaler");
    struct tu_arena *a = arena(w);
    struct tu_pnode *state =
        known ? tui_pnode_of(a, known, err) : tu_pnode_new(a, TU_P_DICT, 0, err);
    bool moves = json_is_true(json_object_get(known, "dynamic"));
    int rc = state ? 0 : TU_ENOMEM;
    if (!rc && !known)
        rc = tu_pnode_set(a, state, "cur_scale", tu_pnode_real(a, 1, err), err);
    if (!rc && !known)
        rc = tu_pnode_set(a, state, "dynamic", tu_pnode_bool(a, false, err), err);
    if (!rc && moves)
        rc = tu_pnode_set(a, state, "dtype", tu_pnode_global(a, "torch float16", err),
                          err);
    return rc ? NULL : tu_pnode_object(a, moves ? dynamic : fixed, state, err);
}

/* Values that both kinds of optimizer have. */
static int set_scale(struct zero_writer *w, struct tu_pnode *dict, struct tu_err *err)
{
    struct tu_arena *a = arena(w);
    const json_t *known = json_object_get(w->params.optim, "loss_scaler"),
                 *clip = json_object_get(w->params.optim, "clip_grad");
    bool moves = json_is_true(json_object_get(known, "dynamic"));
    int rc = tu_pnode_set(a, dict, "loss_scaler", loss_scaler(w, err), err);
    if (!rc)
        rc = tu_pnode_set(a, dict, "dynamic_loss_scale", tu_pnode_bool(a, moves, err),
                          err);
    if (!rc)
        rc = tu_pnode_set(a, dict, "overflow", tu_pnode_bool(a, false, err), err);
    return rc || !clip
               ? rc
               : tu_pnode_set(a, dict, "clip_grad", tui_pnode_of(a, clip, err), err);
}

static int optim_begin(struct zero_writer *w, struct optim *o, struct tu_err *err)
{
    struct tu_arena *a = arena(w);
    struct tu_pnode *base = tu_pnode_new(a, TU_P_DICT, 0, err);
    bool flat = w->stage < 3;
    *o = (struct optim){
        tu_pnode_new(a, TU_P_DICT, 0, err), tu_pnode_new(a, TU_P_DICT, 0, err),
        tu_pnode_new(a, TU_P_DICT, 0, err), tu_pnode_new(a, TU_P_LIST, 0, err),
        tu_pnode_new(a, TU_P_LIST, 0, err), tu_pnode_new(a, TU_P_LIST, 0, err),
        tu_pnode_new(a, TU_P_LIST, 0, err)};
    struct tu_pnode *counts = tu_pnode_new(a, TU_P_LIST, 0, err);
    int rc = !base || !o->root || !o->dict || !o->groups || !o->fp32 || !o->paddings ||
                     !o->maps || !counts
                 ? TU_ENOMEM
                 : 0;
    if (rc || (rc = tu_pnode_set(a, base, "state", o->state, err)) ||
        (rc = tu_pnode_set(a, base, "param_groups", o->groups, err)) ||
        (rc = tu_pnode_set(a, o->root, "optimizer_state_dict", o->dict, err)) ||
        (rc = tu_pnode_set(a, o->root, "ds_version", tu_pnode_text(a, ZERO_VERSION, err),
                           err)) ||
        (rc = tu_pnode_set(a, o->dict, "zero_stage", tu_pnode_int(a, w->stage, err),
                           err)) ||
        (rc = set_scale(w, o->dict, err)) ||
        (rc = tu_pnode_set(a, o->dict, "ds_version", tu_pnode_text(a, ZERO_VERSION, err),
                           err)))
        return rc;
    if (!flat)
        rc = (rc = tu_pnode_set(a, o->dict, "partition_count",
                                tu_pnode_int(a, w->dp, err), err))
                 ? rc
             : (rc = tu_pnode_set(a, o->dict, "optimizer_state_dict", base, err))
                 ? rc
                 : tu_pnode_set(a, o->dict, "fp32_flat_groups", o->fp32, err);
    for (size_t g = 0; g < w->params.groups && flat && !rc; g++)
        rc = tu_pnode_add(a, counts, NULL, tu_pnode_int(a, w->dp, err), err);
    if (!flat && !rc)
        return 0;
    if (rc || (rc = tu_pnode_set(a, o->dict, "base_optimizer_state", base, err)) ||
        (rc =
             tu_pnode_set(a, o->dict, "single_partition_of_fp32_groups", o->fp32, err)) ||
        (rc = tu_pnode_set(a, o->dict, "group_paddings", o->paddings, err)) ||
        (rc = tu_pnode_set(a, o->dict, "partition_count", counts, err)))
        return rc;
    return tu_pnode_set(a, o->dict, "param_slice_mappings", o->maps, err);
}

/* A dictionary of a group's vectors under the number g of `state`. */
static int group_dict(struct zero_writer *w, struct optim *o, size_t g,
                      struct tu_pnode **out, struct tu_err *err)
{
    *out = tu_pnode_new(arena(w), TU_P_DICT, 0, err);
    return *out ? tu_pnode_add(arena(w), o->state,
                               tu_pnode_int(arena(w), (int64_t)g, err), *out, err)
                : TU_ENOMEM;
}

/* fragment_address: where a parameter's run lies in the partition. */
static int add_mapping(struct zero_writer *w, struct tu_pnode *map, const char *name,
                       struct tu_flat run, struct tu_err *err)
{
    struct tu_arena *a = arena(w);
    struct tu_pnode *state = tu_pnode_new(a, TU_P_DICT, 0, err);
    int rc =
        state ? tu_pnode_set(a, state, "numel", tu_pnode_int(a, (int64_t)run.n, err), err)
              : TU_ENOMEM;
    if (!rc)
        rc = tu_pnode_set(a, state, "start", tu_pnode_int(a, (int64_t)run.at, err), err);
    return rc ? rc
              : tu_pnode_set(a, map, name,
                             tu_pnode_object(a,
                                             "deepspeed.utils.tensor_fragment "
                                             "fragment_address",
                                             state, err),
                             err);
}

/* One group's partition of rank d: fp32 cut behind the last parameter, moments padded. */
static int flat_group(struct zero_writer *w, struct optim *o, uint32_t f, size_t number,
                      uint32_t tp, uint32_t d, struct tu_err *err)
{
    const struct tui_group *g = &w->params.group[number];
    uint64_t total = 0, dim[TU_RANK_MAX], n, at = 0;
    uint32_t index[16];
    unsigned rank;
    int rc = 0;
    for (size_t i = 0; i < g->n && !rc; i++, total += n)
        rc = tui_zero_dims(w, &g->param[i], tp, dim, &rank, &n, err);
    uint64_t part = tu_ceil_div(total, 2 * (uint64_t)w->dp) * 2;
    uint64_t lo = d * part, hi = tu_min(lo + part, tu_max(total, lo));
    struct tu_pnode *state = NULL, *map = tui_pnode_ordered(arena(w), err);
    if (!rc)
        rc = map ? group_dict(w, o, number, &state, err) : TU_ENOMEM;
    if (!rc)
        rc = add_step(w, f, state, err);
    for (size_t s = 0; s < w->params.states && !rc; s++) {
        rc = add_vector(w, f, s ? part : hi - lo, TU_F32, &index[s], err);
        struct tu_pnode *t = rc ? NULL : tu_pnode_tensor(arena(w), index[s], err);
        if (!rc)
            rc = s ? tu_pnode_set(arena(w), state, w->params.state[s], t, err)
                   : tu_pnode_add(arena(w), o->fp32, NULL, t, err);
        if (!rc && s)
            rc = tui_add_blank(w->c, f, index[s], (hi - lo) * 4, (part - (hi - lo)) * 4,
                               err);
    }
    for (size_t i = 0; i < g->n && !rc; i++, at += n) {
        rc = tui_zero_dims(w, &g->param[i], tp, dim, &rank, &n, err);
        uint64_t from = tu_max(at, lo), to = tu_min(at + n, hi);
        if (rc || from >= to)
            continue;
        struct tu_flat run = {true, from - at, to - from, from - lo};
        rc = add_mapping(w, map, g->param[i].name, run, err);
        for (size_t s = 0; s < w->params.states && !rc; s++)
            rc = add_run(w, f, index[s], &g->param[i], s, tp, run, err);
    }
    if (!rc)
        rc = tu_pnode_add(arena(w), o->maps, NULL, map, err);
    if (!rc)
        rc = tu_pnode_add(arena(w), o->paddings, NULL,
                          tu_pnode_int(arena(w), (int64_t)(part - (hi - lo)), err), err);
    return rc ? rc : add_settings(w, o->groups, g, number, 1, err);
}

/* How many parameters from number i on make a sub-group of stage 3. */
int tui_zero_sub_group(struct zero_writer *w, const struct tui_group *g, size_t first,
                       uint32_t tp, size_t *count, uint64_t *length, struct tu_err *err)
{
    uint64_t dim[TU_RANK_MAX], n;
    unsigned rank;
    int rc = 0;
    *count = 0;
    *length = 0;
    while (first + *count < g->n && !rc && (!*count || *length < w->sub_group)) {
        rc = tui_zero_dims(w, &g->param[first + *count], tp, dim, &rank, &n, err);
        *length += tu_ceil_div(n, (uint64_t)w->dp);
        (*count)++;
    }
    return rc;
}

static int partition_group(struct zero_writer *w, struct optim *o, uint32_t f,
                           const struct tui_param *q, size_t n, uint64_t length,
                           size_t number, uint32_t tp, uint32_t d, struct tu_err *err)
{
    uint64_t dim[TU_RANK_MAX], numel, at = 0;
    uint32_t index[16];
    unsigned rank;
    struct tu_pnode *state = NULL;
    int rc = group_dict(w, o, number, &state, err);
    if (!rc)
        rc = add_step(w, f, state, err);
    for (size_t s = 0; s < w->params.states && !rc; s++) {
        rc = add_vector(w, f, length, TU_F32, &index[s], err);
        struct tu_pnode *t = rc ? NULL : tu_pnode_tensor(arena(w), index[s], err);
        if (!rc)
            rc = s ? tu_pnode_set(arena(w), state, w->params.state[s], t, err)
                   : tu_pnode_add(arena(w), o->fp32, NULL, t, err);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        rc = tui_zero_dims(w, &q[i], tp, dim, &rank, &numel, err);
        uint64_t part = tu_ceil_div(numel, (uint64_t)w->dp);
        uint64_t lo = tu_min(d * part, numel), hi = tu_min(lo + part, numel);
        for (size_t s = 0; s < w->params.states && !rc; s++) {
            rc = add_run(w, f, index[s], &q[i], s, tp,
                         (struct tu_flat){true, lo, hi - lo, at}, err);
            if (!rc)
                rc = tui_add_blank(w->c, f, index[s], (at + hi - lo) * 4,
                                   (part - (hi - lo)) * 4, err);
        }
        at += part;
    }
    return rc;
}

static int add_partitions(struct zero_writer *w, struct optim *o, uint32_t f, uint32_t tp,
                          uint32_t d, struct tu_err *err)
{
    size_t number = 0;
    int rc = 0;
    for (size_t g = 0; g < w->params.groups && !rc; g++) {
        const struct tui_group *group = &w->params.group[g];
        size_t first = number, n = 0;
        uint64_t length;
        for (size_t i = 0; i < group->n && !rc; i += n) {
            rc = tui_zero_sub_group(w, group, i, tp, &n, &length, err);
            if (!rc)
                rc = partition_group(w, o, f, group->param + i, n, length, number++, tp,
                                     d, err);
        }
        if (!rc)
            rc = add_settings(w, o->groups, group, first, number - first, err);
    }
    return rc;
}

int tui_zero_plan_optim(struct zero_writer *w, uint32_t tp, uint32_t d,
                        struct tu_err *err)
{
    struct optim o;
    char path[128];
    uint32_t f;
    int rc = optim_begin(w, &o, err);
    snprintf(path, sizeof path, "%s/%szero_pp_rank_%u_mp_rank_%02u_optim_states.pt",
             w->tag, w->prefix, d, tp);
    if (!rc)
        rc = tui_add_target(w->c, path, tu_format_find("torch"),
                            (struct tu_coord){.tp = tp}, &f, err);
    for (size_t g = 0; g < w->params.groups && w->stage < 3 && !rc; g++)
        rc = flat_group(w, &o, f, g, tp, d, err);
    if (!rc && w->stage == 3)
        rc = add_partitions(w, &o, f, tp, d, err);
    if (!rc)
        w->c->file[f].save.object = o.root;
    return rc;
}

/* Of stage 3 the steps stand here, by group. */
static int set_steps(struct zero_writer *w, uint32_t f, struct tu_pnode *dict,
                     struct tu_pnode *groups, struct tu_err *err)
{
    struct tu_arena *a = arena(w);
    struct tu_pnode *base = tu_pnode_new(a, TU_P_DICT, 0, err),
                    *state = tu_pnode_new(a, TU_P_DICT, 0, err);
    int rc = base && state ? tu_pnode_set(a, base, "state", state, err) : TU_ENOMEM;
    for (size_t g = 0; g < w->params.groups && !rc; g++) {
        struct tu_pnode *one = tu_pnode_new(a, TU_P_DICT, 0, err);
        rc = tu_pnode_add(a, state, tu_pnode_int(a, (int64_t)g, err), one, err);
        if (!rc)
            rc = add_step(w, f, one, err);
    }
    if (!rc)
        rc = tu_pnode_set(a, base, "param_groups", groups, err);
    return rc ? rc : tu_pnode_set(a, dict, "optimizer_state_dict", base, err);
}

int tui_zero_settings(struct zero_writer *w, uint32_t f, const struct tu_pnode **root,
                      struct tu_err *err)
{
    struct tu_arena *a = arena(w);
    struct tu_pnode *d = tu_pnode_new(a, TU_P_DICT, 0, err),
                    *groups = tu_pnode_new(a, TU_P_LIST, 0, err);
    int rc = d && groups ? set_scale(w, d, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_pnode_set(a, d, "zero_stage", tu_pnode_int(a, w->stage, err), err);
    if (!rc)
        rc = tu_pnode_set(a, d, "ds_version", tu_pnode_text(a, ZERO_VERSION, err), err);
    for (size_t g = 0; g < w->params.groups && !rc; g++)
        rc = add_settings(w, groups, &w->params.group[g], g, 1, err);
    if (!rc)
        rc = tu_pnode_set(a, d, "param_groups", groups, err);
    if (!rc && w->stage == 3)
        rc = set_steps(w, f, d, groups, err);
    *root = d;
    return rc;
}
