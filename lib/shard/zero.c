/* SPDX-License-Identifier: Apache-2.0 */
/* zero.c: DeepSpeed's ZeRO checkpoints, read.
 *
 * Stage 1 and 2: each group of parameters is one flat vector in the order of
 * `param_shapes`, padded and cut into equal partitions, so parameters cross ranks. Stage
 * 3: each parameter is cut by itself, and a rank's pieces follow each other. Both are
 * flat runs. The order comes from `param_shapes`; `param_slice_mappings`, which newer
 * versions add, must agree. Source: DeepSpeed deepspeed/utils/zero_to_fp32.py,
 * deepspeed/runtime/zero/{stage_1_and_2,stage3}.py. */

#include <stdio.h>
#include <string.h>

#include "single.h"
#include "trust.h"
#include "zero.h"

#define U(x) ((unsigned long long)(x))

const struct tu_pnode *tui_item(const struct tu_pnode *v, size_t i)
{
    return v && (v->kind == TU_P_LIST || v->kind == TU_P_TUPLE) && i < v->n ? v->item[i]
                                                                            : NULL;
}

uint32_t tui_zero_model(const struct zero_reader *r, uint32_t mp, uint32_t dp)
{
    return r->z.partitioned ? r->z.model[mp * r->z.dp + dp] : r->z.model[mp];
}

/* torch.Size is a tuple of numbers, or a call with one. */
int tui_zero_shape_dims(const struct tu_pnode *v, uint64_t *dim, unsigned *rank,
                        struct tu_err *err)
{
    if (v && v->kind == TU_P_CALL && v->n > TU_P_ARGS)
        v = tui_item(v->item[TU_P_ARGS], 0);
    if (!v || (v->kind != TU_P_TUPLE && v->kind != TU_P_LIST) || v->n > TU_RANK_MAX)
        return tu_fail(err, TU_EFORMAT, "param_shapes: a shape is no torch.Size");
    *rank = (unsigned)v->n;
    for (size_t i = 0; i < v->n; i++) {
        if (v->item[i]->kind != TU_P_INT || v->item[i]->integer < 0)
            return tu_fail(err, TU_EFORMAT, "param_shapes: a dimension is no number");
        dim[i] = (uint64_t)v->item[i]->integer;
    }
    return 0;
}

static int numel_of(const uint64_t *dim, unsigned rank, uint64_t *out, struct tu_err *err)
{
    uint64_t bytes;
    int rc = tu_tensor_bytes(TU_U8, dim, rank, &bytes, err);
    *out = bytes;
    return rc;
}

/* The entry of this name in the group of another rank's shapes. */
const struct tu_pnode *tui_zero_shape_in(const struct zero_reader *r, uint32_t mp,
                                         size_t g, const char *key, const char *name)
{
    const struct tu_pnode *all =
        tu_pnode_get(tui_file_root(r->c, tui_zero_model(r, mp, 0)), key);
    return tu_pnode_get(g == SIZE_MAX ? all : tui_item(all, g), name);
}

/* Dimensions of a parameter on all tensor-parallel ranks of the stage that mp is in. */
static int all_dims(struct zero_reader *r, uint32_t mp, size_t g, const char *key,
                    struct zero_param *p, struct tu_err *err)
{
    uint32_t tp = r->z.tp, first = mp - mp % tp;
    uint64_t one[TU_RANK_MAX], *all = NULL;
    unsigned rank = 0;
    int rc = tui_zero_shape_dims(tui_zero_shape_in(r, mp, g, key, p->name), one,
                                 &p->rank, err);
    if (!rc)
        rc = numel_of(one, p->rank, &p->numel, err);
    if (!rc &&
        !(all = tu_arena_alloc(r->c->arena, (size_t)tp * p->rank + 1, sizeof *all, err)))
        rc = TU_ENOMEM;
    for (uint32_t t = 0; t < tp && !rc; t++) {
        rc = tui_zero_shape_dims(tui_zero_shape_in(r, first + t, g, key, p->name), one,
                                 &rank, err);
        if (!rc && rank != p->rank)
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "'%.100s' has rank %u on one tensor-parallel "
                         "rank and %u on another",
                         p->name, p->rank, rank);
        if (!rc)
            memcpy(all + t * rank, one, rank * sizeof *one);
    }
    p->dim = all;
    if (rc && rc != TU_ENOMEM)
        tu_err_prefix(err, "%s: '%.80s'", r->c->file[tui_zero_model(r, mp, 0)].path,
                      p->name);
    return rc;
}

int tui_zero_group(struct zero_reader *r, uint32_t mp, size_t g,
                   const struct tu_pnode *pads, struct zero_group *out,
                   struct tu_err *err)
{
    const struct tu_pnode *shapes = tui_item(
        tu_pnode_get(tui_file_root(r->c, tui_zero_model(r, mp, 0)), "param_shapes"), g);
    int rc = 0;
    *out = (struct zero_group){0};
    if (!shapes || shapes->kind != TU_P_DICT)
        return tu_fail(err, TU_EFORMAT, "%.150s: param_shapes has no group %zu",
                       r->c->file[tui_zero_model(r, mp, 0)].path, g);
    out->param = tu_arena_alloc(r->c->arena, shapes->n / 2 + 1, sizeof *out->param, err);
    if (!out->param)
        return TU_ENOMEM;
    for (size_t i = 0; i + 1 < shapes->n && !rc; i += 2) {
        struct zero_param *p = &out->param[out->n];
        if (shapes->item[i]->kind != TU_P_TEXT)
            return tu_fail(err, TU_EFORMAT, "param_shapes: a name is no text");
        const struct tu_pnode *pad = tui_item(pads, out->n);
        *p = (struct zero_param){.name = shapes->item[i]->text, .at = out->numel};
        rc = all_dims(r, mp, g, "param_shapes", p, err);
        out->numel +=
            p->numel + (pad && pad->kind == TU_P_INT ? (uint64_t)pad->integer : 0);
        out->n++;
    }
    return rc;
}

static uint64_t elements(const struct zero_reader *r, uint32_t f, size_t index)
{
    const struct tu_tensor *t = &r->c->file[f].source->tensor[index];
    return t->bytes / tu_dtype_find(t->dtype)->block_bytes;
}

int tui_zero_add(struct zero_reader *r, uint32_t f, size_t index,
                 const struct zero_param *q, const char *state, uint32_t dtype,
                 uint32_t mp, struct tu_flat flat, struct tu_err *err)
{
    struct tu_ckpt *c = r->c;
    const struct tu_source *s = c->file[f].source;
    struct tu_piece p = {.file = f,
                         .index = (uint32_t)index,
                         .flat = flat,
                         .at = {.tp = mp % r->z.tp, .pp = mp / r->z.tp}};
    struct tui_cut cut;
    struct tu_named named;
    bool yes = false;
    int rc = tui_ucp_cut(c, r->z.ucp, q->name, q->dim, q->rank, &cut, err);
    if (!rc)
        rc = tu_tensor_make(&p.tensor, c->arena, q->name, s->tensor[index].dtype,
                            q->dim + p.at.tp * q->rank, q->rank, NULL, err);
    if (!rc && flat.yes && flat.at + flat.n > elements(r, f, index))
        rc = tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.60s' ends before '%.60s' does",
                     s->path, s->tensor[index].name, q->name);
    if (!rc)
        rc = tui_cut_piece(c, &cut, p.tensor.dim, &p, err);
    if (!rc && c->canonical)
        rc = tu_map_match(c->canonical, q->name, 0, 0, &named, &yes, err);
    p.replica = (cut.kind == TUI_CUT_WHOLE && p.at.tp > 0) ||
                (p.at.pp && tui_zero_earlier(r, mp, q->name)); /* tied */
    if (rc || (yes && named.transform & TU_MAP_DROP))
        return rc;
    rc = yes ? tui_piece_fuse(c, &p, &named, state, dtype, err)
             : tui_piece_plain(c, &p, q->name, state, dtype, err);
    return rc ? rc : tui_piece_add(c, &p, err);
}

/* What of a parameter a rank's partition [lo, hi) of the group holds, from element `at`
 * of its tensor. */
static struct tu_flat overlap(const struct zero_param *p, uint64_t lo, uint64_t hi)
{
    uint64_t from = tu_max(p->at, lo), to = tu_min(p->at + p->numel, hi);
    if (from >= to)
        return (struct tu_flat){.yes = true};
    return (struct tu_flat){true, from - p->at, to - from, from - lo};
}

/* Elements of one rank's partition: the one size with which all ranks' fp32 vectors, cut
 * behind the last parameter or not, are as long as they are. */
static int partition_size(const struct zero_reader *r, uint32_t mp, uint32_t ranks,
                          const uint64_t *length, const struct zero_group *g,
                          size_t number, uint64_t *out, struct tu_err *err)
{
    uint64_t dp = ranks, sum = 0;
    uint64_t guess[] = {tu_ceil_div(g->numel, 2 * dp) * 2, tu_ceil_div(g->numel, dp),
                        length[0]};
    for (int k = 0; k < 3; k++) {
        bool fits = guess[k] * dp >= g->numel;
        for (uint64_t d = 0; d < dp; d++) {
            uint64_t lo = tu_min(d * guess[k], g->numel),
                     hi = tu_min(lo + guess[k], g->numel);
            fits &= length[d] == guess[k] || length[d] == hi - lo;
        }
        *out = guess[k];
        if (fits)
            return 0;
    }
    for (uint64_t d = 0; d < dp; d++)
        sum += length[d];
    return tu_fail(
        err, TU_EINCOMPLETE,
        "%.100s: group %zu: param_shapes has %llu elements, the files of %llu ranks "
        "hold %llu",
        r->c->file[tui_zero_model(r, mp, 0)].path, number, U(g->numel), U(dp), U(sum));
}

/* fragment_address(numel, start), a named tuple or a data class. */
static bool fragment(const struct tu_pnode *v, uint64_t *numel, uint64_t *start)
{
    const struct tu_pnode *n = tu_pnode_get(v, "numel"), *s = tu_pnode_get(v, "start");
    if (!n && v && v->kind == TU_P_CALL && v->n > TU_P_ARGS) {
        n = tui_item(v->item[TU_P_ARGS], 0);
        s = tui_item(v->item[TU_P_ARGS], 1);
    }
    if (!n || !s || n->kind != TU_P_INT || s->kind != TU_P_INT)
        return false;
    *numel = (uint64_t)n->integer;
    *start = (uint64_t)s->integer;
    return true;
}

/* The rank's own record of where its parameters lie says the same. */
static int agrees(const struct zero_reader *r, uint32_t f, size_t g,
                  const struct zero_param *p, struct tu_flat run, struct tu_err *err)
{
    const struct tu_pnode *state =
        tu_pnode_get(tui_file_root(r->c, f), "optimizer_state_dict");
    const struct tu_pnode *map = tui_item(tu_pnode_get(state, "param_slice_mappings"), g);
    const struct tu_pnode *v = tu_pnode_get(map, p->name);
    uint64_t numel = 0, start = 0;
    if (!map || (!v && !run.n))
        return 0;
    if (!v || !fragment(v, &numel, &start) || numel != run.n ||
        (run.n && start != run.at))
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.100s: '%.60s': param_shapes places %llu elements at %llu, "
                       "param_slice_mappings %llu at %llu",
                       r->c->file[f].path, p->name, U(run.n), U(run.at), U(numel),
                       U(start));
    return 0;
}

static size_t tensor_number(const struct zero_reader *r, uint32_t f,
                            const struct tu_pnode *v)
{
    size_t n = v ? tu_pnode_number(v) : SIZE_MAX;
    return n < r->c->file[f].source->n ? n : SIZE_MAX;
}

/* The step of a group is a number or a scalar tensor. */
int tui_zero_step(struct zero_reader *r, uint32_t f, const struct tu_pnode *v,
                  struct tu_err *err)
{
    const struct tu_source *s = r->c->file[f].source;
    size_t i = tensor_number(r, f, v);
    double step = v && v->kind == TU_P_REAL ? v->real : v ? (double)v->integer : 0;
    int rc = 0;
    if (!v || (i == SIZE_MAX && v->kind != TU_P_INT && v->kind != TU_P_REAL))
        return 0;
    if (i != SIZE_MAX) {
        char raw[16];
        if (s->tensor[i].bytes > 8)
            return 0;
        rc = tui_read_sound(r->c, f, i, 0, raw, (size_t)s->tensor[i].bytes, err);
        if (!rc)
            rc = tu_cast(TU_F64, &step, s->tensor[i].dtype, raw, 1, err);
    }
    return rc ? rc : tui_set_step(r->c, step, s->path, err);
}

/* States of one group in one rank's file: every tensor as long as its fp32 vector. */
static int add_states(struct zero_reader *r, uint32_t f, const struct tu_pnode *state,
                      const struct zero_param *p, uint64_t least, struct tu_flat run,
                      uint32_t mp, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; state && state->kind == TU_P_DICT && i + 1 < state->n && !rc;
         i += 2) {
        size_t t = tensor_number(r, f, state->item[i + 1]);
        if (t == SIZE_MAX || state->item[i]->kind != TU_P_TEXT ||
            r->c->file[f].source->tensor[t].rank != 1 || elements(r, f, t) < least)
            continue;
        rc = tui_zero_add(r, f, t, p, state->item[i]->text, r->c->file[f].source->tensor[t].dtype,
                 mp, run, err);
    }
    return rc;
}

static const struct tu_pnode *group_state(const struct tu_pnode *base, size_t g)
{
    const struct tu_pnode *all = tu_pnode_get(base, "state");
    for (size_t i = 0; all && all->kind == TU_P_DICT && i + 1 < all->n; i += 2)
        if (all->item[i]->kind == TU_P_INT && all->item[i]->integer == (int64_t)g)
            return all->item[i + 1];
    return tui_item(base, g); /* older: a list of groups */
}

const struct tu_pnode *tui_zero_optim_of(const struct zero_reader *r, uint32_t f)
{
    return tu_pnode_get(tui_file_root(r->c, f), "optimizer_state_dict");
}

/* One rank's partition of a group: from element lo of its vector. */
static int flat_partition(struct zero_reader *r, uint32_t mp, uint32_t f, size_t g,
                          const struct zero_group *group, uint64_t lo, uint64_t part,
                          uint32_t set, struct tu_err *err)
{
    const struct tu_pnode *o = tui_zero_optim_of(r, f);
    const struct tu_pnode *state = group_state(tu_pnode_get(o, "base_optimizer_state"), g);
    size_t fp32 = tensor_number(
        r, f, tui_item(tu_pnode_get(o, "single_partition_of_fp32_groups"), g));
    uint64_t hi = tu_max(lo, tu_min(lo + part, group->numel));
    int rc = 0;
    for (size_t i = 0; i < group->n && !rc; i++) {
        struct zero_param q = group->param[i];
        struct tu_flat run = overlap(&q, lo, hi);
        rc = agrees(r, f, g, &q, run, err);
        if (!rc)
            rc = tui_zero_expert_name(r, group, q.name, set, &q.name, err);
        if (!rc && run.n)
            rc = tui_zero_add(r, f, fp32, &q, "fp32", TU_F32, mp, run, err);
        if (!rc && run.n)
            rc = add_states(r, f, state, &q, hi - lo, run, mp, err);
    }
    return rc ? rc : tui_zero_step(r, f, tu_pnode_get(state, "step"), err);
}

/* A group of stage 1 and 2, cut over the ranks set, set + sets, … */
static int flat_set(struct zero_reader *r, uint32_t mp, size_t g, uint32_t set,
                    uint32_t sets, struct tu_err *err)
{
    uint32_t *file = &r->z.optim[mp * r->z.dp], ranks = r->z.dp / sets;
    uint64_t *length = tu_calloc(ranks, sizeof *length, err), part = 0;
    struct zero_group group;
    int rc = length ? tui_zero_group(r, mp, g,
                                     tui_item(tu_pnode_get(tui_zero_optim_of(r, file[0]),
                                                           "param_alignment_paddings"),
                                              g),
                                     &group, err)
                    : TU_ENOMEM;
    for (uint32_t k = 0; k < ranks && !rc; k++) {
        uint32_t f = file[set + k * sets];
        size_t t = tensor_number(r, f,
                                 tui_item(tu_pnode_get(tui_zero_optim_of(r, f),
                                                       "single_partition_of_fp32_groups"),
                                          g));
        if (t == SIZE_MAX)
            rc = tu_fail(err, TU_EFORMAT, "%.150s: no single_partition_of_fp32_groups.%zu",
                         r->c->file[f].path, g);
        else
            length[k] = elements(r, f, t);
    }
    if (!rc)
        rc = partition_size(r, mp, ranks, length, &group, g, &part, err);
    for (uint32_t k = 0; k < ranks && !rc; k++)
        rc = flat_partition(r, mp, file[set + k * sets], g, &group, k * part, part, set,
                            err);
    tu_free(length);
    return rc;
}

static int flat_group(struct zero_reader *r, uint32_t mp, size_t g, struct tu_err *err)
{
    uint32_t sets = tui_zero_expert_ranks(r, mp, g);
    int rc = 0;
    for (uint32_t s = 0; s < sets && !rc; s++)
        rc = flat_set(r, mp, g, s, sets, err);
    return rc;
}

/* The weight of a partitioned parameter is its master copy, rounded. */
static int add_partition(struct zero_reader *r, uint32_t f, size_t fp32,
                         const struct zero_param *p, const struct tu_pnode *state,
                         uint64_t least, struct tu_flat run, uint32_t mp,
                         struct tu_err *err)
{
    int rc = 0;
    if (!run.n)
        return 0;
    if ((rc = tui_zero_add(r, f, fp32, p, NULL, r->weight_dtype, mp, run, err)) ||
        (rc = tui_zero_add(r, f, fp32, p, "fp32", TU_F32, mp, run, err)))
        return rc;
    return add_states(r, f, state, p, least, run, mp, err);
}

/* Stage 3: parameters in the order of all groups, a rank's pieces one after the other in
 * the vectors of the sub-groups. */
static int partitions(struct zero_reader *r, uint32_t mp, uint32_t d, size_t groups,
                      struct tu_err *err)
{
    uint32_t f = r->z.optim[mp * r->z.dp + d];
    const struct tu_pnode *o = tui_zero_optim_of(r, f),
                          *flat = tu_pnode_get(o, "fp32_flat_groups");
    size_t sub = 0;
    uint64_t at = 0;
    int rc = 0;
    for (size_t g = 0; g < groups && !rc; g++) {
        struct zero_group group;
        rc = tui_zero_group(r, mp, g, NULL, &group, err);
        for (size_t i = 0; i < group.n && !rc; i++) {
            const struct zero_param *p = &group.param[i];
            uint64_t part = tu_ceil_div(p->numel, (uint64_t)r->z.dp);
            size_t t = tensor_number(r, f, tui_item(flat, sub));
            uint64_t most = t == SIZE_MAX ? 0 : elements(r, f, t);
            if (at == most && most) { /* the next sub-group */
                t = tensor_number(r, f, tui_item(flat, ++sub));
                most = t == SIZE_MAX ? 0 : elements(r, f, t);
                at = 0;
            }
            if (at + part > most)
                return tu_fail(
                    err, TU_EINCOMPLETE,
                    "%.100s: sub-group %zu has %llu elements, '%.60s' begins at "
                    "%llu and has %llu",
                    r->c->file[f].path, sub, U(most), p->name, U(at), U(part));
            uint64_t lo = tu_min(d * part, p->numel), hi = tu_min(lo + part, p->numel);
            const struct tu_pnode *state =
                group_state(tu_pnode_get(o, "optimizer_state_dict"), sub);
            rc = add_partition(r, f, t, p, state, most,
                               (struct tu_flat){true, lo, hi - lo, at}, mp, err);
            if (!rc)
                rc = tui_zero_step(r, f, tu_pnode_get(state, "step"), err);
            at += part;
        }
    }
    return rc;
}

/* Frozen parameters of stage 3: each rank's piece is a tensor by itself. */
static int frozen_pieces(struct zero_reader *r, uint32_t mp, uint32_t d,
                         struct tu_err *err)
{
    uint32_t f = tui_zero_model(r, mp, d);
    const struct tu_pnode *root = tui_file_root(r->c, f);
    const struct tu_pnode *shapes = tu_pnode_get(root, "frozen_param_shapes"),
                          *pieces = tu_pnode_get(root, "frozen_param_fragments");
    int rc = 0;
    for (size_t i = 0; shapes && shapes->kind == TU_P_DICT && i + 1 < shapes->n && !rc;
         i += 2) {
        struct zero_param p = {
            .name = shapes->item[i]->kind == TU_P_TEXT ? shapes->item[i]->text : ""};
        size_t t = tensor_number(r, f, tu_pnode_get(pieces, p.name));
        if (t == SIZE_MAX)
            return tu_fail(err, TU_EFORMAT,
                           "%.120s: no frozen_param_fragments of '%.80s'",
                           r->c->file[f].path, p.name);
        rc = all_dims(r, mp, SIZE_MAX, "frozen_param_shapes", &p, err);
        uint64_t part = tu_ceil_div(p.numel, (uint64_t)r->z.dp);
        uint64_t lo = tu_min(d * part, p.numel), hi = tu_min(lo + part, p.numel);
        if (!rc)
            rc = tui_zero_add(r, f, t, &p, NULL, r->c->file[f].source->tensor[t].dtype, mp,
                     (struct tu_flat){true, lo, hi - lo, 0}, err);
    }
    return rc;
}

/* Dimensions of a tensor of the state dictionary on the other tensor-parallel ranks. */
static int module_dims(struct zero_reader *r, uint32_t mp, const struct tu_tensor *t,
                       struct zero_param *p, struct tu_err *err)
{
    uint32_t tp = r->z.tp, first = mp - mp % tp;
    uint64_t *all =
        tu_arena_alloc(r->c->arena, (size_t)tp * t->rank + 1, sizeof *all, err);
    if (!all)
        return TU_ENOMEM;
    for (uint32_t k = 0; k < tp; k++) {
        uint32_t f = tui_zero_model(r, first + k, 0);
        const struct tu_pnode *m = tu_pnode_get(tui_file_root(r->c, f), "module");
        size_t i = tensor_number(r, f, tu_pnode_get(m, p->name));
        if (i == SIZE_MAX || r->c->file[f].source->tensor[i].rank != t->rank)
            return tu_fail(err, TU_EINCOMPLETE,
                           "%.120s: module has no '%.80s' of rank %u", r->c->file[f].path,
                           p->name, t->rank);
        memcpy(all + k * t->rank, r->c->file[f].source->tensor[i].dim,
               t->rank * sizeof *all);
    }
    p->dim = all;
    p->rank = t->rank;
    return 0;
}

/* The state dictionary: weights as the model uses them, and buffers; of stage 3 only
 * buffers, the weights being empty. */
static int module_pieces(struct zero_reader *r, uint32_t mp, struct tu_err *err)
{
    uint32_t f = tui_zero_model(r, mp, 0);
    const struct tu_source *s = r->c->file[f].source;
    const struct tu_pnode *root = tui_file_root(r->c, f);
    const struct tu_pnode *module = tu_pnode_get(root, "module"),
                          *shared = tu_pnode_get(root, "shared_params");
    int rc = 0;
    if ((r->z.parts || r->bare) && module && module->kind == TU_P_NONE)
        return 0; /* a pipeline: it is in files of its layers */
    if (!module || module->kind != TU_P_DICT)
        return tu_fail(err, TU_EFORMAT, "%.150s: no state dictionary under 'module'",
                       s->path);
    rc = tui_zero_names(r, f, err);
    for (size_t i = 0; i + 1 < module->n && !rc; i += 2) {
        const struct tu_pnode *name = module->item[i];
        size_t t = tensor_number(r, f, module->item[i + 1]);
        if (name->kind != TU_P_TEXT || t == SIZE_MAX ||
            tu_pnode_get(shared, name->text)) {
            r->c->dropped++; /* extra states, and second names of shared parameters */
            continue;
        }
        struct zero_param p = {.name = name->text};
        if (r->z.partitioned && !s->tensor[t].bytes) {
            r->weight_dtype = s->tensor[t].dtype;
            continue;
        }
        rc = module_dims(r, mp, &s->tensor[t], &p, err);
        if (!rc)
            rc = tui_zero_add(r, f, t, &p, NULL, s->tensor[t].dtype, mp, (struct tu_flat){0}, err);
    }
    return rc;
}

/* Pieces of all ranks. */
static int read_ranks(struct zero_reader *r, struct tu_err *err)
{
    size_t groups = tui_zero_groups(r);
    bool states = r->z.optim[0] != UINT32_MAX;
    int rc = tui_zero_parts(r, err);
    for (uint32_t mp = 0; mp < r->z.mp && !rc; mp++) {
        rc = module_pieces(r, mp, err);
        for (uint32_t d = 0; d < r->z.dp && r->z.partitioned && !rc; d++)
            rc = frozen_pieces(r, mp, d, err);
        for (uint32_t d = 0; d < r->z.dp && r->z.partitioned && states && !rc; d++)
            rc = partitions(r, mp, d, groups, err);
        for (size_t g = 0; g < groups && states && !r->z.partitioned && !rc; g++)
            rc = flat_group(r, mp, g, err);
    }
    return rc;
}

/* The names of `module` suit the family. */
static int fit_module(struct zero_reader *r, const struct tu_shard_opts *o,
                      struct tu_err *err)
{
    const struct tu_pnode *module =
        tu_pnode_get(tui_file_root(r->c, r->z.model[0]), "module");
    size_t n = module && module->kind == TU_P_DICT ? module->n / 2 : 0;
    const char **name = tu_calloc(n + 1, sizeof *name, err);
    int rc = name ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++)
        if (module->item[2 * i]->kind == TU_P_TEXT)
            name[i] = module->item[2 * i]->text;
    if (!rc)
        rc = tui_fit_family(r->c, name, n, o, err);
    tu_free(name);
    return rc;
}

/* ds_to_universal does not copy the files of a pipeline's layers: weights are the master
 * copies in the dtype that the configuration trains in. */
static void find_bare(struct zero_reader *r)
{
    const struct tu_pnode *root = tui_file_root(r->c, r->z.model[0]),
                          *module = tu_pnode_get(root, "module"),
                          *config = tu_pnode_get(root, "ds_config");
    const struct tu_pnode *fp16 = tu_pnode_get(tu_pnode_get(config, "fp16"), "enabled"),
                          *bf16 = tu_pnode_get(tu_pnode_get(config, "bf16"), "enabled");
    r->bare = r->z.universal && !r->z.parts && module && module->kind == TU_P_NONE;
    if (r->bare)
        r->weight_dtype = bf16 && bf16->integer   ? TU_BF16
                          : fp16 && fp16->integer ? TU_F16
                                                  : TU_F32;
}

int tui_zero_read(struct zero_reader *r, const struct tu_spec *spec,
                  const struct tu_shard_opts *o, const struct tu_job *job,
                  struct tu_err *err)
{
    struct tu_ckpt *c = r->c;
    int rc = tui_zero_files(c, spec, o, job, &r->z, err);
    if (!rc) {
        c->tp = r->z.tp;
        find_bare(r);
        const struct tu_pnode *root = tui_file_root(c, r->z.model[0]);
        r->z.info = tu_pnode_get(root, "universal_checkpoint_info");
        rc = tui_ucp_info(c, spec, &r->z.info, err);
    }
    if (!rc && (rc = tui_ucp_new(&r->z.ucp, r->z.info, err))) {
        const char *rules = tu_spec_get(spec, "rules");
        tu_err_prefix(err, "%s", rules ? rules : c->file[r->z.model[0]].path);
    }
    if (!rc)
        rc = tui_sides_from(c, c->root, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    if (!rc)
        rc = fit_module(r, o, err);
    if (!rc)
        rc = read_ranks(r, err);
    if (!rc)
        rc = tui_zero_complete(r, err);
    if (!rc)
        rc = tui_check_copies(c, job, err);
    if (!rc && r->z.universal)
        rc = tui_universal_states(r, o, job, err);
    if (!rc)
        rc = tui_zero_describe(r, err);
    tui_ucp_free(r->z.ucp);
    return rc;
}

static int zero_open(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_err *err)
{
    struct zero_reader r = {.c = c, .z = {.latest = "latest"}, .weight_dtype = TU_BF16};
    return tui_zero_read(&r, spec, o, job, err);
}

static int zero_detect(const char *path)
{
    return tui_zero_is(path);
}

static const struct tu_layout_key keys[] = {
    {"tag", "folder of the save (default: what the file latest names; to write: "
            "global_stepN)"},
    {"stage", "to write: 1 (default), 2 or 3"},
    {"dp", "to write: data-parallel size"},
    {"tp", "to write: tensor-parallel size, by the source's universal_checkpoint_info"},
    {"rules", "file of universal_checkpoint_info as JSON, where the checkpoint has none"},
    {"order", "to write: file of parameter names in the optimizer's order"},
    {"sub_group", "to write, stage 3: sub_group_size of the configuration (default 1e9)"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_zero = {
    .name = "zero",
    .help = "DeepSpeed ZeRO stage 1, 2 or 3: weights, master copies and optimizer states",
    .key = keys,
    .detect = zero_detect,
    .open = zero_open,
    .plan = tui_zero_plan,
    .side_folder = "",
    .extra = tui_zero_extra,
};
