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
#include "zero.h"

#define U(x) ((unsigned long long)(x))

/* A parameter of one group on one model-parallel rank. */
struct param {
    const char *name;
    unsigned rank;
    const uint64_t *dim; /* [tp*rank] of all tensor-parallel ranks */
    uint64_t numel, at;  /* of this rank; its place in the group's vector */
};

struct group {
    struct param *param;
    size_t n;
    uint64_t numel; /* alignment between parameters included */
};

struct reader {
    struct tu_ckpt *c;
    struct tui_zero z;
    uint32_t weight_dtype; /* of the model, where weights are only in partitions */
    json_t *optim;
};

static const struct tu_pnode *item(const struct tu_pnode *v, size_t i)
{
    return v && (v->kind == TU_P_LIST || v->kind == TU_P_TUPLE) && i < v->n ? v->item[i]
                                                                           : NULL;
}

static uint32_t model_file(const struct reader *r, uint32_t mp, uint32_t dp)
{
    return r->z.partitioned ? r->z.model[mp * r->z.dp + dp] : r->z.model[mp];
}

/* torch.Size is a tuple of numbers, or a call with one. */
static int dims_of(const struct tu_pnode *v, uint64_t *dim, unsigned *rank,
                   struct tu_err *err)
{
    if (v && v->kind == TU_P_CALL && v->n > TU_P_ARGS)
        v = item(v->item[TU_P_ARGS], 0);
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
static const struct tu_pnode *shape_in(const struct reader *r, uint32_t mp, size_t g,
                                       const char *key, const char *name)
{
    const struct tu_pnode *all = tu_pnode_get(tui_file_root(r->c, model_file(r, mp, 0)), key);
    return tu_pnode_get(g == SIZE_MAX ? all : item(all, g), name);
}

/* Dimensions of a parameter on all tensor-parallel ranks of the stage that mp is in. */
static int all_dims(struct reader *r, uint32_t mp, size_t g, const char *key,
                    struct param *p, struct tu_err *err)
{
    uint32_t tp = r->z.tp, first = mp - mp % tp;
    uint64_t one[TU_RANK_MAX], *all = NULL;
    unsigned rank = 0;
    int rc = dims_of(shape_in(r, mp, g, key, p->name), one, &p->rank, err);
    if (!rc)
        rc = numel_of(one, p->rank, &p->numel, err);
    if (!rc && !(all = tu_arena_alloc(r->c->arena, (size_t)tp * p->rank + 1, sizeof *all, err)))
        rc = TU_ENOMEM;
    for (uint32_t t = 0; t < tp && !rc; t++) {
        rc = dims_of(shape_in(r, first + t, g, key, p->name), one, &rank, err);
        if (!rc && rank != p->rank)
            rc = tu_fail(err, TU_EINCOMPLETE, "'%.100s' has rank %u on one tensor-parallel "
                         "rank and %u on another", p->name, p->rank, rank);
        if (!rc)
            memcpy(all + t * rank, one, rank * sizeof *one);
    }
    p->dim = all;
    if (rc && rc != TU_ENOMEM)
        tu_err_prefix(err, "%s: '%.80s'", r->c->file[model_file(r, mp, 0)].path, p->name);
    return rc;
}

static int group_of(struct reader *r, uint32_t mp, size_t g, const struct tu_pnode *pads,
                    struct group *out, struct tu_err *err)
{
    const struct tu_pnode *shapes =
        item(tu_pnode_get(tui_file_root(r->c, model_file(r, mp, 0)), "param_shapes"), g);
    int rc = 0;
    *out = (struct group){0};
    if (!shapes || shapes->kind != TU_P_DICT)
        return tu_fail(err, TU_EFORMAT, "%.150s: param_shapes has no group %zu",
                       r->c->file[model_file(r, mp, 0)].path, g);
    out->param = tu_arena_alloc(r->c->arena, shapes->n / 2 + 1, sizeof *out->param, err);
    if (!out->param)
        return TU_ENOMEM;
    for (size_t i = 0; i + 1 < shapes->n && !rc; i += 2) {
        struct param *p = &out->param[out->n];
        if (shapes->item[i]->kind != TU_P_TEXT)
            return tu_fail(err, TU_EFORMAT, "param_shapes: a name is no text");
        const struct tu_pnode *pad = item(pads, out->n);
        *p = (struct param){.name = shapes->item[i]->text, .at = out->numel};
        rc = all_dims(r, mp, g, "param_shapes", p, err);
        out->numel += p->numel + (pad && pad->kind == TU_P_INT ? (uint64_t)pad->integer : 0);
        out->n++;
    }
    return rc;
}

static uint64_t elements(const struct reader *r, uint32_t f, size_t index)
{
    const struct tu_tensor *t = &r->c->file[f].source->tensor[index];
    return t->bytes / tu_dtype_find(t->dtype)->block_bytes;
}

/* Add a piece of a parameter: a run of it, or all (flat.yes false). */
static int add(struct reader *r, uint32_t f, size_t index, const struct param *q,
               const char *state, uint32_t dtype, uint32_t mp, struct tu_flat flat,
               struct tu_err *err)
{
    struct tu_ckpt *c = r->c;
    const struct tu_source *s = c->file[f].source;
    struct tu_piece p = {.file = f, .index = (uint32_t)index, .flat = flat,
                         .at = {.tp = mp % r->z.tp, .pp = mp / r->z.tp}};
    struct tui_cut cut;
    struct tu_named named;
    bool yes = false;
    int rc = tui_ucp_cut(c, r->z.ucp, q->name, q->dim, q->rank, &cut, err);
    if (!rc)
        rc = tu_tensor_make(&p.tensor, c->arena, q->name, s->tensor[index].dtype,
                            q->dim + p.at.tp * q->rank, q->rank, NULL, err);
    if (!rc && flat.yes && flat.at + flat.n > elements(r, f, index))
        rc = tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.60s' ends before '%.60s' does", s->path,
                     s->tensor[index].name, q->name);
    if (!rc)
        rc = tui_cut_piece(c, &cut, p.tensor.dim, &p, err);
    if (!rc && c->canonical)
        rc = tu_map_match(c->canonical, q->name, 0, 0, &named, &yes, err);
    p.replica = cut.kind == TUI_CUT_WHOLE && p.at.tp > 0;
    if (rc || (yes && named.transform & TU_MAP_DROP))
        return rc;
    rc = yes ? tui_piece_fuse(c, &p, &named, state, dtype, err)
             : tui_piece_plain(c, &p, q->name, state, dtype, err);
    return rc ? rc : tui_piece_add(c, &p, err);
}

/* What of a parameter a rank's partition [lo, hi) of the group holds, from element `at`
 * of its tensor. */
static struct tu_flat overlap(const struct param *p, uint64_t lo, uint64_t hi)
{
    uint64_t from = tu_max(p->at, lo), to = tu_min(p->at + p->numel, hi);
    if (from >= to)
        return (struct tu_flat){.yes = true};
    return (struct tu_flat){true, from - p->at, to - from, from - lo};
}

/* Elements of one rank's partition: the one size with which all ranks' fp32 vectors, cut
 * behind the last parameter or not, are as long as they are. */
static int partition_size(const struct reader *r, uint32_t mp, const uint64_t *length,
                          const struct group *g, size_t number, uint64_t *out,
                          struct tu_err *err)
{
    uint64_t dp = r->z.dp, sum = 0;
    uint64_t guess[] = {tu_ceil_div(g->numel, 2 * dp) * 2, tu_ceil_div(g->numel, dp), length[0]};
    for (int k = 0; k < 3; k++) {
        bool fits = guess[k] * dp >= g->numel;
        for (uint64_t d = 0; d < dp; d++) {
            uint64_t lo = tu_min(d * guess[k], g->numel), hi = tu_min(lo + guess[k], g->numel);
            fits &= length[d] == guess[k] || length[d] == hi - lo;
        }
        *out = guess[k];
        if (fits)
            return 0;
    }
    for (uint64_t d = 0; d < dp; d++)
        sum += length[d];
    return tu_fail(err, TU_EINCOMPLETE,
                   "%.100s: group %zu: param_shapes has %llu elements, the files of %llu ranks "
                   "hold %llu",
                   r->c->file[model_file(r, mp, 0)].path, number, U(g->numel), U(dp), U(sum));
}

/* fragment_address(numel, start), a named tuple or a data class. */
static bool fragment(const struct tu_pnode *v, uint64_t *numel, uint64_t *start)
{
    const struct tu_pnode *n = tu_pnode_get(v, "numel"), *s = tu_pnode_get(v, "start");
    if (!n && v && v->kind == TU_P_CALL && v->n > TU_P_ARGS) {
        n = item(v->item[TU_P_ARGS], 0);
        s = item(v->item[TU_P_ARGS], 1);
    }
    if (!n || !s || n->kind != TU_P_INT || s->kind != TU_P_INT)
        return false;
    *numel = (uint64_t)n->integer;
    *start = (uint64_t)s->integer;
    return true;
}

/* The rank's own record of where its parameters lie says the same. */
static int agrees(const struct reader *r, uint32_t f, size_t g, const struct param *p,
                  struct tu_flat run, struct tu_err *err)
{
    const struct tu_pnode *state = tu_pnode_get(tui_file_root(r->c, f), "optimizer_state_dict");
    const struct tu_pnode *map = item(tu_pnode_get(state, "param_slice_mappings"), g);
    const struct tu_pnode *v = tu_pnode_get(map, p->name);
    uint64_t numel = 0, start = 0;
    if (!map || (!v && !run.n))
        return 0;
    if (!v || !fragment(v, &numel, &start) || numel != run.n || (run.n && start != run.at))
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.100s: '%.60s': param_shapes places %llu elements at %llu, "
                       "param_slice_mappings %llu at %llu",
                       r->c->file[f].path, p->name, U(run.n), U(run.at), U(numel), U(start));
    return 0;
}

static size_t tensor_number(const struct reader *r, uint32_t f, const struct tu_pnode *v)
{
    size_t n = v ? tu_pnode_number(v) : SIZE_MAX;
    return n < r->c->file[f].source->n ? n : SIZE_MAX;
}

/* The step of a group is a number or a scalar tensor. */
static int read_step(struct reader *r, uint32_t f, const struct tu_pnode *v,
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
        rc = tu_source_read(r->c->file[f].source, i, 0, raw, (size_t)s->tensor[i].bytes, err);
        if (!rc)
            rc = tu_cast(TU_F64, &step, s->tensor[i].dtype, raw, 1, err);
    }
    return rc ? rc : tui_set_step(r->c, step, s->path, err);
}

/* States of one group in one rank's file: every tensor as long as its fp32 vector. */
static int add_states(struct reader *r, uint32_t f, const struct tu_pnode *state,
                      const struct param *p, uint64_t least, struct tu_flat run, uint32_t mp,
                      struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; state && state->kind == TU_P_DICT && i + 1 < state->n && !rc; i += 2) {
        size_t t = tensor_number(r, f, state->item[i + 1]);
        if (t == SIZE_MAX || state->item[i]->kind != TU_P_TEXT ||
            r->c->file[f].source->tensor[t].rank != 1 || elements(r, f, t) < least)
            continue;
        rc = add(r, f, t, p, state->item[i]->text, r->c->file[f].source->tensor[t].dtype, mp,
                 run, err);
    }
    return rc;
}

static const struct tu_pnode *group_state(const struct tu_pnode *base, size_t g)
{
    const struct tu_pnode *all = tu_pnode_get(base, "state");
    for (size_t i = 0; all && all->kind == TU_P_DICT && i + 1 < all->n; i += 2)
        if (all->item[i]->kind == TU_P_INT && all->item[i]->integer == (int64_t)g)
            return all->item[i + 1];
    return item(base, g); /* older: a list of groups */
}

static const struct tu_pnode *optim_of(const struct reader *r, uint32_t f)
{
    return tu_pnode_get(tui_file_root(r->c, f), "optimizer_state_dict");
}

static int flat_group(struct reader *r, uint32_t mp, size_t g, struct tu_err *err)
{
    uint32_t *file = &r->z.optim[mp * r->z.dp], dp = r->z.dp;
    uint64_t *length = tu_calloc(dp, sizeof *length, err), part = 0;
    struct group group;
    int rc = length ? group_of(r, mp, g,
                               item(tu_pnode_get(optim_of(r, file[0]),
                                                 "param_alignment_paddings"), g),
                               &group, err)
                    : TU_ENOMEM;
    for (uint32_t d = 0; d < dp && !rc; d++) {
        size_t t = tensor_number(
            r, file[d], item(tu_pnode_get(optim_of(r, file[d]),
                                          "single_partition_of_fp32_groups"), g));
        if (t == SIZE_MAX)
            rc = tu_fail(err, TU_EFORMAT, "%.150s: no single_partition_of_fp32_groups.%zu",
                         r->c->file[file[d]].path, g);
        else
            length[d] = elements(r, file[d], t);
    }
    if (!rc)
        rc = partition_size(r, mp, length, &group, g, &part, err);
    for (uint32_t d = 0; d < dp && !rc; d++) {
        const struct tu_pnode *o = optim_of(r, file[d]);
        const struct tu_pnode *state = group_state(tu_pnode_get(o, "base_optimizer_state"), g);
        size_t fp32 = tensor_number(
            r, file[d], item(tu_pnode_get(o, "single_partition_of_fp32_groups"), g));
        uint64_t lo = d * part, hi = tu_min(lo + part, group.numel);
        for (size_t i = 0; i < group.n && !rc; i++) {
            struct tu_flat run = overlap(&group.param[i], lo, tu_max(lo, hi));
            rc = agrees(r, file[d], g, &group.param[i], run, err);
            if (!rc && run.n)
                rc = add(r, file[d], fp32, &group.param[i], "fp32", TU_F32, mp, run, err);
            if (!rc && run.n)
                rc = add_states(r, file[d], state, &group.param[i], hi - lo, run, mp, err);
        }
        if (!rc)
            rc = read_step(r, file[d], tu_pnode_get(state, "step"), err);
    }
    tu_free(length);
    return rc;
}

/* The weight of a partitioned parameter is its master copy, rounded. */
static int add_partition(struct reader *r, uint32_t f, size_t fp32, const struct param *p,
                         const struct tu_pnode *state, uint64_t least, struct tu_flat run,
                         uint32_t mp, struct tu_err *err)
{
    int rc = 0;
    if (!run.n)
        return 0;
    if ((rc = add(r, f, fp32, p, NULL, r->weight_dtype, mp, run, err)) ||
        (rc = add(r, f, fp32, p, "fp32", TU_F32, mp, run, err)))
        return rc;
    return add_states(r, f, state, p, least, run, mp, err);
}

/* Stage 3: parameters in the order of all groups, a rank's pieces one after the other in
 * the vectors of the sub-groups. */
static int partitions(struct reader *r, uint32_t mp, uint32_t d, size_t groups,
                      struct tu_err *err)
{
    uint32_t f = r->z.optim[mp * r->z.dp + d];
    const struct tu_pnode *o = optim_of(r, f), *flat = tu_pnode_get(o, "fp32_flat_groups");
    size_t sub = 0;
    uint64_t at = 0;
    int rc = 0;
    for (size_t g = 0; g < groups && !rc; g++) {
        struct group group;
        rc = group_of(r, mp, g, NULL, &group, err);
        for (size_t i = 0; i < group.n && !rc; i++) {
            const struct param *p = &group.param[i];
            uint64_t part = tu_ceil_div(p->numel, (uint64_t)r->z.dp);
            size_t t = tensor_number(r, f, item(flat, sub));
            uint64_t most = t == SIZE_MAX ? 0 : elements(r, f, t);
            if (at == most && most) { /* the next sub-group */
                t = tensor_number(r, f, item(flat, ++sub));
                most = t == SIZE_MAX ? 0 : elements(r, f, t);
                at = 0;
            }
            if (at + part > most)
                return tu_fail(err, TU_EINCOMPLETE,
                               "%.100s: sub-group %zu has %llu elements, '%.60s' begins at "
                               "%llu and has %llu",
                               r->c->file[f].path, sub, U(most), p->name, U(at), U(part));
            uint64_t lo = tu_min(d * part, p->numel), hi = tu_min(lo + part, p->numel);
            const struct tu_pnode *state =
                group_state(tu_pnode_get(o, "optimizer_state_dict"), sub);
            rc = add_partition(r, f, t, p, state, most, (struct tu_flat){true, lo, hi - lo, at},
                               mp, err);
            if (!rc)
                rc = read_step(r, f, tu_pnode_get(state, "step"), err);
            at += part;
        }
    }
    return rc;
}

/* Frozen parameters of stage 3: each rank's piece is a tensor by itself. */
static int frozen_pieces(struct reader *r, uint32_t mp, uint32_t d, struct tu_err *err)
{
    uint32_t f = model_file(r, mp, d);
    const struct tu_pnode *root = tui_file_root(r->c, f);
    const struct tu_pnode *shapes = tu_pnode_get(root, "frozen_param_shapes"),
                          *pieces = tu_pnode_get(root, "frozen_param_fragments");
    int rc = 0;
    for (size_t i = 0; shapes && shapes->kind == TU_P_DICT && i + 1 < shapes->n && !rc; i += 2) {
        struct param p = {.name = shapes->item[i]->kind == TU_P_TEXT ? shapes->item[i]->text : ""};
        size_t t = tensor_number(r, f, tu_pnode_get(pieces, p.name));
        if (t == SIZE_MAX)
            return tu_fail(err, TU_EFORMAT, "%.120s: no frozen_param_fragments of '%.80s'",
                           r->c->file[f].path, p.name);
        rc = all_dims(r, mp, SIZE_MAX, "frozen_param_shapes", &p, err);
        uint64_t part = tu_ceil_div(p.numel, (uint64_t)r->z.dp);
        uint64_t lo = tu_min(d * part, p.numel), hi = tu_min(lo + part, p.numel);
        if (!rc)
            rc = add(r, f, t, &p, NULL, r->c->file[f].source->tensor[t].dtype, mp,
                     (struct tu_flat){true, lo, hi - lo, 0}, err);
    }
    return rc;
}

static bool listed(const struct tu_pnode *list, const char *name)
{
    for (size_t i = 0; list && list->kind == TU_P_LIST && i < list->n; i++)
        if (list->item[i]->kind == TU_P_TEXT && !strcmp(list->item[i]->text, name))
            return true;
    return false;
}

/* Dimensions of a tensor of the state dictionary on the other tensor-parallel ranks. */
static int module_dims(struct reader *r, uint32_t mp, const struct tu_tensor *t,
                       struct param *p, struct tu_err *err)
{
    uint32_t tp = r->z.tp, first = mp - mp % tp;
    uint64_t *all = tu_arena_alloc(r->c->arena, (size_t)tp * t->rank + 1, sizeof *all, err);
    if (!all)
        return TU_ENOMEM;
    for (uint32_t k = 0; k < tp; k++) {
        uint32_t f = model_file(r, first + k, 0);
        const struct tu_pnode *m = tu_pnode_get(tui_file_root(r->c, f), "module");
        size_t i = tensor_number(r, f, tu_pnode_get(m, p->name));
        if (i == SIZE_MAX || r->c->file[f].source->tensor[i].rank != t->rank)
            return tu_fail(err, TU_EINCOMPLETE, "%.120s: module has no '%.80s' of rank %u",
                           r->c->file[f].path, p->name, t->rank);
        memcpy(all + k * t->rank, r->c->file[f].source->tensor[i].dim, t->rank * sizeof *all);
    }
    p->dim = all;
    p->rank = t->rank;
    return 0;
}

/* The state dictionary: weights as the model uses them, and buffers; of stage 3 only
 * buffers, the weights being empty. */
static int module_pieces(struct reader *r, uint32_t mp, struct tu_err *err)
{
    uint32_t f = model_file(r, mp, 0);
    const struct tu_source *s = r->c->file[f].source;
    const struct tu_pnode *root = tui_file_root(r->c, f);
    const struct tu_pnode *module = tu_pnode_get(root, "module"),
                          *shared = tu_pnode_get(root, "shared_params");
    int rc = 0;
    if (!module || module->kind != TU_P_DICT)
        return tu_fail(err, TU_EFORMAT, "%.150s: no state dictionary under 'module'", s->path);
    for (size_t i = 0; i + 1 < module->n && !rc; i += 2) {
        const struct tu_pnode *name = module->item[i];
        size_t t = tensor_number(r, f, module->item[i + 1]);
        if (name->kind != TU_P_TEXT || t == SIZE_MAX || tu_pnode_get(shared, name->text)) {
            r->c->dropped++; /* extra states, and second names of shared parameters */
            continue;
        }
        struct param p = {.name = name->text};
        if (r->z.partitioned && !s->tensor[t].bytes) {
            r->weight_dtype = s->tensor[t].dtype;
            continue;
        }
        rc = module_dims(r, mp, &s->tensor[t], &p, err);
        if (!rc)
            rc = add(r, f, t, &p, NULL, s->tensor[t].dtype, mp, (struct tu_flat){0}, err);
    }
    return rc;
}

static size_t group_count(const struct reader *r)
{
    const struct tu_pnode *v =
        tu_pnode_get(tui_file_root(r->c, r->z.model[0]), "param_shapes");
    return v && v->kind == TU_P_LIST ? v->n : 0;
}

static int append_name(json_t *list, const char *name, struct tu_err *err)
{
    return json_array_append_new(list, json_string(name))
               ? tu_fail(err, TU_ENOMEM, "out of memory or a name that is no UTF-8")
               : 0;
}

/* A group with these settings and a list of names (a reference of its own). */
static int append_group(json_t *groups, const struct tu_pnode *settings, json_t **names,
                        struct tu_err *err)
{
    json_t *one = NULL;
    int rc = settings ? tui_json_of(&one, settings, err) : 0;
    if (!rc && !one)
        one = json_object();
    *names = json_array();
    if (!rc && (!one || !*names || json_object_set(one, "params", *names) ||
                json_array_append_new(groups, one)))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    return rc;
}

/* The settings that vector number g is trained with: those whose `params` name it. */
static const struct tu_pnode *settings_of(const struct tu_pnode *all, size_t g)
{
    for (size_t i = 0; item(all, i); i++) {
        const struct tu_pnode *numbers = tu_pnode_get(item(all, i), "params");
        for (size_t k = 0; item(numbers, k); k++)
            if (item(numbers, k)->kind == TU_P_INT && item(numbers, k)->integer == (int64_t)g)
                return item(all, i);
    }
    return item(all, g);
}

/* Settings of each group, and the names in it in their order. */
static int describe_groups(struct reader *r, json_t *groups, struct tu_err *err)
{
    const struct tu_pnode *o = r->z.optim[0] == UINT32_MAX ? NULL : optim_of(r, r->z.optim[0]);
    const struct tu_pnode *base = tu_pnode_get(o, r->z.partitioned ? "optimizer_state_dict"
                                                                   : "base_optimizer_state");
    const struct tu_pnode *settings = tu_pnode_get(base, "param_groups");
    int rc = 0;
    for (size_t g = 0; g < group_count(r) && !rc; g++) {
        const struct tu_pnode *shapes = item(
            tu_pnode_get(tui_file_root(r->c, r->z.model[0]), "param_shapes"), g);
        json_t *names = NULL;
        const struct tu_pnode *own = settings_of(settings, g);
        if (g && own && own == settings_of(settings, g - 1)) /* a sub-group */
            names = json_incref(json_object_get(json_array_get(groups, json_array_size(groups) - 1),
                                                "params"));
        else
            rc = append_group(groups, own, &names, err);
        for (size_t i = 0; !rc && shapes && i + 1 < shapes->n; i += 2)
            if (shapes->item[i]->kind == TU_P_TEXT)
                rc = append_name(names, shapes->item[i]->text, err);
        json_decref(names);
    }
    return rc;
}

/* The loss scaler's attributes, and the norm that gradients are clipped to. */
static int describe_scale(struct reader *r, json_t *optim, struct tu_err *err)
{
    const struct tu_pnode *o = r->z.optim[0] == UINT32_MAX ? NULL : optim_of(r, r->z.optim[0]);
    const struct tu_pnode *scaler = tu_pnode_get(o, "loss_scaler");
    json_t *clip = NULL, *scale = NULL;
    int rc = tui_json_of(&clip, tu_pnode_get(o, "clip_grad"), err);
    if (!rc && scaler && scaler->kind == TU_P_CALL && scaler->n > TU_P_STATE)
        rc = tui_json_of(&scale, scaler->item[TU_P_STATE], err);
    if (!rc && ((clip && json_object_set_new(optim, "clip_grad", clip)) ||
                (json_is_object(scale) && json_object_set_new(optim, "loss_scaler", scale))))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    return rc;
}

static int describe_rest(struct reader *r, json_t *optim, struct tu_err *err)
{
    const struct tu_pnode *root = tui_file_root(r->c, r->z.model[0]);
    const struct tu_pnode *buffers = tu_pnode_get(root, "buffer_names"),
                          *module = tu_pnode_get(root, "module");
    json_t *frozen = json_array(), *buffer = NULL, *shared = NULL, *info = NULL;
    int rc = tui_json_of(&buffer, buffers, err);
    if (!rc)
        rc = tui_json_of(&info, tu_pnode_get(root, "universal_checkpoint_info"), err);
    if (!rc)
        rc = tui_json_of(&shared, tu_pnode_get(root, "shared_params"), err);
    for (size_t i = 0; !rc && module && i + 1 < module->n; i += 2) {
        const char *name = module->item[i]->kind == TU_P_TEXT ? module->item[i]->text : "";
        bool trained = false;
        for (size_t g = 0; g < group_count(r); g++)
            trained |= shape_in(r, 0, g, "param_shapes", name) != NULL;
        if (!trained && !listed(buffers, name))
            rc = append_name(frozen, name, err);
    }
    if (!rc && (json_object_set_new(optim, "frozen", frozen) ||
                (buffer && json_object_set_new(optim, "buffers", buffer)) ||
                (json_is_object(info) &&
                 json_object_set_new(optim, "universal_checkpoint_info", info)) ||
                (shared && json_object_set_new(optim, "shared", shared))))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    return rc;
}

static int describe(struct reader *r, struct tu_err *err)
{
    json_t *optim = json_object(), *groups = json_array();
    int rc = optim && groups && !json_object_set_new(optim, "groups", groups)
                 ? 0
                 : tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc)
        rc = describe_groups(r, groups, err);
    if (!rc)
        rc = describe_scale(r, optim, err);
    if (!rc)
        rc = describe_rest(r, optim, err);
    if (!rc)
        rc = tui_set_optim(r->c, optim, err);
    json_decref(optim);
    return rc;
}

/* Pieces of all ranks. */
static int read_ranks(struct reader *r, struct tu_err *err)
{
    size_t groups = group_count(r);
    bool states = r->z.optim[0] != UINT32_MAX;
    int rc = 0;
    for (uint32_t mp = 0; mp < r->z.mp && !rc; mp++) {
        rc = module_pieces(r, mp, err);
        for (uint32_t d = 0; d < r->z.dp && r->z.partitioned && !rc; d++)
            rc = frozen_pieces(r, mp, d, err);
        for (uint32_t d = 0; d < r->z.dp && r->z.partitioned && !rc; d++)
            rc = partitions(r, mp, d, groups, err);
        for (size_t g = 0; g < groups && states && !r->z.partitioned && !rc; g++)
            rc = flat_group(r, mp, g, err);
    }
    return rc;
}

/* The family is of use only where its map takes every name. */
static int fit_family(struct tu_ckpt *c, const struct tu_pnode *module, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; c->canonical && module && i + 1 < module->n && !rc; i += 2) {
        struct tu_named named;
        bool yes = true;
        if (module->item[i]->kind == TU_P_TEXT)
            rc = tu_map_match(c->canonical, module->item[i]->text, 0, 0, &named, &yes, err);
        if (!yes) {
            tu_map_free(c->canonical);
            c->canonical = NULL;
            memset(&c->model, 0, sizeof c->model);
        }
    }
    return rc;
}

static int zero_open(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_err *err)
{
    struct reader r = {.c = c, .weight_dtype = TU_BF16};
    int rc = tui_zero_files(c, spec, o, job, &r.z, err);
    if (!rc) {
        c->tp = r.z.tp;
        const struct tu_pnode *root = tui_file_root(c, r.z.model[0]);
        rc = tui_ucp_new(&r.z.ucp, tu_pnode_get(root, "universal_checkpoint_info"), err);
    }
    if (!rc)
        rc = tui_sides_from(c, c->root, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    if (!rc)
        rc = fit_family(c, tu_pnode_get(tui_file_root(c, r.z.model[0]), "module"), err);
    if (!rc)
        rc = read_ranks(&r, err);
    if (!rc)
        rc = describe(&r, err);
    tui_ucp_free(r.z.ucp);
    return rc;
}

static int zero_detect(const char *path)
{
    return tui_zero_is(path) ? 92 : 0;
}

static const struct tu_layout_key keys[] = {
    {"tag", "folder of the save (default: what the file latest names; to write: "
            "global_stepN)"},
    {"stage", "to write: 1 (default), 2 or 3"},
    {"dp", "to write: data-parallel size"},
    {"tp", "to write: tensor-parallel size, by the source's universal_checkpoint_info"},
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
