/* SPDX-License-Identifier: Apache-2.0 */
/* zero_model.c: the model_states files of a planned ZeRO checkpoint, and the plan itself.
 */

#include <stdio.h>
#include <string.h>

#include "zero.h"

/* A value of the dictionary that the plan does not decide. */
static int set_constants(struct zero_writer *w, struct tu_pnode *root, struct tu_err *err)
{
    struct tu_arena *a = w->c->arena;
    static const char *const nothing[] = {"optimizer", "lr_scheduler", "data_sampler",
                                          "random_ltd", NULL};
    const struct {
        const char *key;
        int64_t value;
    } number[] = {
        {"skipped_steps", 0},
        {"global_steps", w->c->iteration < 0 ? (int64_t)w->params.step : w->c->iteration},
        {"global_samples", 0},
        {"dp_world_size", w->dp},
        {"mp_world_size", w->c->tp},
    };
    struct tu_pnode *mesh = tu_pnode_new(a, TU_P_DICT, 0, err);
    int rc = mesh ? 0 : TU_ENOMEM;
    for (const char *const *k = nothing; *k && !rc; k++)
        rc = tu_pnode_set(a, root, *k, tu_pnode_new(a, TU_P_NONE, 0, err), err);
    for (size_t i = 0; i < sizeof number / sizeof *number && !rc; i++)
        rc = tu_pnode_set(a, root, number[i].key, tu_pnode_int(a, number[i].value, err),
                          err);
    if (rc || (rc = tu_pnode_set(a, mesh, "pp_degree", tu_pnode_int(a, 1, err), err)) ||
        (rc = tu_pnode_set(a, mesh, "tp_degree", tu_pnode_int(a, w->c->tp, err), err)) ||
        (rc = tu_pnode_set(a, root, "checkpoint_parallel_dimensions", mesh, err)) ||
        (rc = tu_pnode_set(a, root, "ds_config", tu_pnode_new(a, TU_P_DICT, 0, err),
                           err)) ||
        (rc = tu_pnode_set(a, root, "ds_version", tu_pnode_text(a, ZERO_VERSION, err),
                           err)))
        return rc;
    return w->info ? tu_pnode_set(a, root, "universal_checkpoint_info", w->info, err) : 0;
}

static int set_names(struct zero_writer *w, struct tu_pnode *root, struct tu_err *err)
{
    struct tu_arena *a = w->c->arena;
    struct tu_pnode *buffers = tu_pnode_new(a, TU_P_LIST, 0, err);
    const json_t *shared = json_object_get(w->params.optim, "shared");
    int rc = buffers ? tu_pnode_set(a, root, "buffer_names", buffers, err) : TU_ENOMEM;
    for (size_t i = 0; i < w->params.buffers && !rc; i++)
        rc = tu_pnode_add(
            a, buffers, NULL,
            tu_pnode_text(a, w->params.rest[w->params.frozen + i].name, err), err);
    if (rc)
        return rc;
    return tu_pnode_set(
        a, root, "shared_params",
        shared ? tui_pnode_of(a, shared, err) : tu_pnode_new(a, TU_P_DICT, 0, err), err);
}

/* param_shapes: a dictionary for each group, or sub-group of stage 3. */
static int set_shapes(struct zero_writer *w, struct tu_pnode *root, uint32_t tp,
                      struct tu_err *err)
{
    struct tu_arena *a = w->c->arena;
    struct tu_pnode *list = tu_pnode_new(a, TU_P_LIST, 0, err);
    int rc = list ? tu_pnode_set(a, root, "param_shapes", list, err) : TU_ENOMEM;
    for (size_t g = 0; g < w->params.groups && !rc; g++) {
        const struct tui_group *group = &w->params.group[g];
        size_t n = group->n;
        uint64_t length;
        for (size_t i = 0; i < group->n && !rc; i += n) {
            struct tu_pnode *dict = tui_pnode_ordered(a, err);
            if (w->stage == 3)
                rc = tui_zero_sub_group(w, group, i, tp, &n, &length, err);
            if (!rc)
                rc = tu_pnode_add(a, list, NULL, dict, err);
            for (size_t k = 0; k < n && !rc; k++)
                rc = tui_zero_shape(w, dict, &group->param[i + k], tp, err);
        }
    }
    return rc;
}

/* A frozen parameter of stage 3 is cut like the others, a tensor for each piece. */
static int frozen_piece(struct zero_writer *w, uint32_t f, const struct tui_param *q,
                        uint32_t tp, uint32_t d, struct tu_pnode *dict,
                        struct tu_err *err)
{
    const struct tu_role *r = &w->c->role[w->c->from->atom[q->atom].fuse.role[0]];
    uint64_t dim[TU_RANK_MAX], numel;
    uint32_t dtype = tui_plan_dtype(w->c, r->dtype), index;
    unsigned rank;
    int rc = tui_zero_dims(w, q, tp, dim, &rank, &numel, err);
    uint64_t part = tu_ceil_div(numel, (uint64_t)w->dp),
             elem = tu_dtype_find(dtype)->block_bytes;
    uint64_t lo = tu_min(d * part, numel), hi = tu_min(lo + part, numel);
    struct tu_piece p;
    char name[32];
    snprintf(name, sizeof name, "frozen%zu", w->c->file[f].save.n);
    if (!rc)
        rc = tui_add_target_tensor(w->c, f, name, dtype, &part, 1, &index, err);
    if (!rc)
        rc = tui_add_blank(w->c, f, index, (hi - lo) * elem, (part - (hi - lo)) * elem,
                           err);
    if (!rc)
        rc = tu_pnode_set(w->c->arena, dict, q->name,
                          tu_pnode_tensor(w->c->arena, index, err), err);
    if (rc || lo == hi)
        return rc;
    rc = tui_zero_local(w, q, q->atom, tp, dtype, &p, err);
    p.file = f;
    p.index = index;
    p.flat = (struct tu_flat){true, lo, hi - lo, 0};
    return rc ? rc : tui_piece_add(w->c, &p, err);
}

/* Stage 3 keeps a partitioned weight in the flat files: in the module it is an empty
 * tensor. */
static int empty_weight(struct zero_writer *w, uint32_t f, const struct tui_param *q,
                       struct tu_pnode *dict, struct tu_err *err)
{
    const struct tu_role *r = &w->c->role[w->c->from->atom[q->atom].fuse.role[0]];
    uint64_t none = 0;
    uint32_t index;
    int rc = tui_add_target_tensor(w->c, f, q->name, tui_plan_dtype(w->c, r->dtype),
                                   &none, 1, &index, err);
    return rc ? rc
              : tu_pnode_set(w->c->arena, dict, q->name,
                             tu_pnode_tensor(w->c->arena, index, err), err);
}

static int set_frozen(struct zero_writer *w, struct tu_pnode *root, uint32_t f,
                      uint32_t tp, uint32_t d, struct tu_err *err)
{
    struct tu_arena *a = w->c->arena;
    struct tu_pnode *shapes = tui_pnode_ordered(a, err),
                    *pieces = tui_pnode_ordered(a, err);
    bool any = w->stage == 3 && w->params.frozen;
    int rc = shapes && pieces ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < w->params.frozen && any && !rc; i++) {
        rc = tui_zero_shape(w, shapes, &w->params.rest[i], tp, err);
        if (!rc)
            rc = frozen_piece(w, f, &w->params.rest[i], tp, d, pieces, err);
    }
    if (!any && !rc)
        shapes = pieces = tu_pnode_new(a, TU_P_NONE, 0, err);
    if (!rc)
        rc = tu_pnode_set(a, root, "frozen_param_shapes", shapes, err);
    return rc ? rc : tu_pnode_set(a, root, "frozen_param_fragments", pieces, err);
}

/* The state dictionary: weights whole, or empty where they are partitioned; buffers always
 * whole. */
static int set_module(struct zero_writer *w, struct tu_pnode *root, uint32_t f,
                      uint32_t tp, struct tu_err *err)
{
    struct tu_pnode *dict = tui_pnode_ordered(w->c->arena, err);
    int rc = tu_pnode_set(w->c->arena, root, "module", dict, err);
    for (size_t g = 0; g < w->params.groups && !rc; g++)
        for (size_t i = 0; i < w->params.group[g].n && !rc; i++) {
            const struct tui_param *q = &w->params.group[g].param[i];
            rc = w->stage == 3 ? empty_weight(w, f, q, dict, err)
                               : tui_zero_whole(w, f, q, tp, dict, err);
        }
    for (size_t i = 0; i < w->params.frozen + w->params.buffers && !rc; i++) {
        const struct tui_param *q = &w->params.rest[i];
        rc = w->stage == 3 && i < w->params.frozen
                 ? empty_weight(w, f, q, dict, err)
                 : tui_zero_whole(w, f, q, tp, dict, err);
    }
    return rc;
}

int tui_zero_plan_model(struct zero_writer *w, uint32_t tp, uint32_t d,
                        struct tu_err *err)
{
    struct tu_pnode *root = tu_pnode_new(w->c->arena, TU_P_DICT, 0, err);
    char path[128];
    uint32_t f;
    int rc = root ? 0 : TU_ENOMEM;
    if (w->stage == 3)
        snprintf(path, sizeof path, "%s/zero_pp_rank_%u_mp_rank_%02u_model_states.pt",
                 w->tag, d, tp);
    else
        snprintf(path, sizeof path, "%s/mp_rank_%02u_model_states.pt", w->tag, tp);
    if (!rc)
        rc = tui_add_target(w->c, path, tu_format_find("torch"),
                            (struct tu_coord){.tp = tp}, &f, err);
    if (!rc)
        rc = set_module(w, root, f, tp, err);
    if (!rc)
        rc = set_names(w, root, err);
    if (!rc)
        rc = set_shapes(w, root, tp, err);
    if (!rc)
        rc = set_frozen(w, root, f, tp, d, err);
    if (!rc)
        rc = set_constants(w, root, err);
    if (!rc)
        w->c->file[f].save.object = root;
    return rc;
}

/* Weights without optimizer states are trained in this dtype; its name goes into the
 * names of the files. */
static const char *prefix_of(const struct zero_writer *w)
{
    const struct tu_ckpt *from = w->c->from;
    for (size_t g = 0; g < w->params.groups; g++)
        for (size_t i = 0; i < w->params.group[g].n; i++) {
            uint32_t a = w->params.group[g].param[i].atom;
            uint32_t dtype = from->role[from->atom[a].fuse.role[0]].dtype;
            return tui_plan_dtype(w->c, dtype) == TU_BF16 ? "bf16_" : "";
        }
    return "";
}

static int settings(struct zero_writer *w, const struct tu_spec *spec, const char *suffix,
                    struct tu_err *err)
{
    uint64_t stage, dp, tp;
    const char *tag = tu_spec_get(spec, "tag");
    int rc = tu_spec_u64(spec, "stage", 1, &stage, err);
    if (!rc)
        rc = tu_spec_u64(spec, "dp", 1, &dp, err);
    if (!rc)
        rc = tu_spec_u64(spec, "tp", 1, &tp, err);
    if (!rc)
        rc = tu_spec_u64(spec, "sub_group", 1000000000, &w->sub_group, err);
    if (!rc && (stage < 1 || stage > 3))
        rc = tu_fail(err, TU_EUSAGE, "stage= is 1, 2 or 3");
    if (!rc && (!dp || dp > 65536 || !tp || tp > 4096))
        rc = tu_fail(err, TU_EUSAGE, "dp= is 1 to 65536, tp= is 1 to 4096");
    if (rc)
        return rc;
    w->stage = (unsigned)stage;
    w->dp = (uint32_t)dp;
    w->c->tp = (uint32_t)tp;
    if (tag)
        snprintf(w->tag, sizeof w->tag, "%s", tag);
    else
        snprintf(w->tag, sizeof w->tag, "global_step%lld%s",
                 (long long)(w->c->iteration < 0 ? 0 : w->c->iteration), suffix);
    if (!*w->tag || strchr(w->tag, '/') || *w->tag == '.')
        rc = tu_fail(err, TU_EUSAGE, "tag=%s is no name of a folder", w->tag);
    return rc;
}

/* The rules for tensor-parallel ranks: the user's, or those that travelled with the
 * optimizer's settings. */
static int take_rules(struct zero_writer *w, const struct tu_spec *spec,
                      struct tu_err *err)
{
    const json_t *own = json_object_get(w->params.optim, "universal_checkpoint_info");
    const struct tu_pnode *info = NULL;
    if (json_is_object(own) && !(info = tui_pnode_of(w->c->arena, own, err)))
        return TU_ENOMEM;
    int rc = tui_ucp_info(w->c, spec, &info, err);
    w->info = (struct tu_pnode *)(uintptr_t)info;
    return rc ? rc : tui_ucp_new(&w->ucp, w->info, err);
}

int tui_zero_begin(struct zero_writer *w, const struct tu_spec *spec, const char *suffix,
                   struct tu_err *err)
{
    int rc = tui_params_new(&w->params, w->c, tu_spec_get(spec, "order"), err);
    if (!rc)
        rc = settings(w, spec, suffix, err);
    if (!rc)
        rc = take_rules(w, spec, err);
    w->prefix = prefix_of(w);
    return rc;
}

int tui_zero_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                  const struct tu_shard_opts *o, struct tu_err *err)
{
    struct zero_writer w = {.c = c};
    (void)o;
    int rc = tui_zero_begin(&w, spec, "", err);
    for (uint32_t tp = 0; tp < c->tp && !rc; tp++)
        for (uint32_t d = 0; d < w.dp && !rc; d++) {
            if (!d || w.stage == 3)
                rc = tui_zero_plan_model(&w, tp, d, err);
            if (!rc)
                rc = tui_zero_plan_optim(&w, tp, d, err);
        }
    tui_ucp_free(w.ucp);
    tui_params_release(&w.params);
    return rc;
}

int tui_zero_extra(const struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                   struct tu_err *err)
{
    return tui_zero_latest(c, folder, "latest", job, err);
}

int tui_zero_latest(const struct tu_ckpt *c, const char *folder, const char *name,
                    const struct tu_job *job, struct tu_err *err)
{
    char path[4096];
    const char *first = c->file[0].path;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return tu_fail(err, TU_EIO, "%.200s: path too long", folder);
    return tu_file_write(path, first, strcspn(first, "/"), true, job, err);
}
