/* SPDX-License-Identifier: Apache-2.0 */
/* universal_plan.c: DeepSpeed's universal checkpoints, written: what ds_to_universal
 * makes, in one pass. */

#include <stdio.h>
#include <string.h>

#include "universal.h"

/* SubparamShape(patterns, shape, partition_dim) of the rule that the parameter has. */
static struct tu_pnode *sub_shape(struct zero_writer *w, const struct tui_param *q,
                                  struct tu_err *err)
{
    struct tu_pnode *entry = tui_ucp_sub(w->ucp, q->name);
    struct tu_pnode *shape = entry ? tu_pnode_get(entry, "shape") : NULL;
    for (size_t i = 0; shape && i < shape->n; i++)
        if (shape->item[i]->kind == TU_P_LIST)
            shape->item[i]->kind = TU_P_TUPLE;
    if (shape)
        shape->kind = TU_P_TUPLE;
    return entry ? tu_pnode_object(
                       w->c->arena,
                       "deepspeed.checkpoint.universal_checkpoint SubparamShape", entry,
                       err)
                 : NULL;
}

/* The dictionary around a tensor: how ranks cut it, then the tensor. */
static int describe(struct zero_writer *w, const struct tui_param *q, uint32_t index,
                    struct tu_pnode **out, struct tu_err *err)
{
    struct tu_arena *a = w->c->arena;
    struct tu_pnode *d = tu_pnode_new(a, TU_P_DICT, 0, err);
    struct tui_cut cut;
    const struct tu_tensor *t = &w->c->from->atom[q->atom].tensor;
    int rc = d ? tui_ucp_kind(w->c, w->ucp, q->name, t->rank, &cut, err) : TU_ENOMEM;
    if (!rc && cut.kind == TUI_CUT_AXIS && cut.sub)
        rc = tu_pnode_set(a, d, "sub_param_shape", sub_shape(w, q, err), err);
    else if (!rc && cut.kind == TUI_CUT_AXIS)
        rc = tu_pnode_set(a, d, "cat_dim", tu_pnode_int(a, cut.axis, err), err);
    if (!rc && cut.kind == TUI_CUT_AXIS && cut.halves)
        rc = tu_pnode_set(a, d, "param_n_sub_params", tu_pnode_int(a, 2, err), err);
    if (!rc && cut.vocab)
        rc = tu_pnode_set(a, d, "vocab_tensor", tu_pnode_bool(a, true, err), err);
    if (!rc)
        rc = tu_pnode_set(a, d, "param", tu_pnode_tensor(a, index, err), err);
    *out = d;
    return rc;
}

static int add_file(struct zero_writer *w, const char *name, const char *state,
                    uint32_t *f, struct tu_err *err)
{
    char *path =
        tu_arena_printf(w->c->arena, err, "%s/zero/%s/%s.pt", w->tag, name, state);
    int rc = path ? tui_add_target(w->c, path, tu_format_find("torch"),
                                   (struct tu_coord){0}, f, err)
                  : TU_ENOMEM;
    if (!rc)
        w->c->file[*f].save.folder_name =
            tu_arena_text(w->c->arena, state, strlen(state), err);
    return rc || w->c->file[*f].save.folder_name ? rc : TU_ENOMEM;
}

/* One state of a parameter in a file of its own. */
static int plan_state(struct zero_writer *w, const struct tui_param *q, size_t s,
                      struct tu_err *err)
{
    uint32_t atom = q->state[s] != UINT32_MAX ? q->state[s] : s ? UINT32_MAX : q->atom, f;
    const struct tu_tensor *t = &w->c->from->atom[q->atom].tensor;
    uint64_t numel = 1;
    struct tu_piece p = {.file = 0};
    struct tu_pnode *root = NULL;
    bool flat = w->stage == 3;
    int rc = add_file(w, q->name, w->params.state[s], &f, err);
    for (unsigned i = 0; i < t->rank; i++)
        numel *= t->dim[i];
    if (!rc)
        rc = tui_add_target_tensor(w->c, f, "param", TU_F32, flat ? &numel : t->dim,
                                   flat ? 1 : t->rank, &p.index, err);
    if (!rc && flat)
        root = tu_pnode_tensor(w->c->arena, p.index, err);
    else if (!rc)
        rc = describe(w, q, p.index, &root, err);
    if (rc)
        return rc;
    w->c->file[f].save.object = root;
    if (atom == UINT32_MAX)
        return tui_add_blank(w->c, f, p.index, 0, numel * 4, err);
    p.file = f;
    p.fuse = w->c->from->atom[atom].fuse;
    rc = tu_tensor_make(&p.tensor, w->c->arena, t->name, TU_F32, t->dim, t->rank, NULL,
                        err);
    if (flat)
        p.flat = (struct tu_flat){true, 0, numel, 0};
    return rc ? rc : tui_piece_add(w->c, &p, err);
}

static int plan_param(struct zero_writer *w, const struct tui_param *q,
                      struct tu_err *err)
{
    int rc = 0;
    uint32_t f;
    if (*q->name == '.' || strchr(q->name, '/'))
        return tu_fail(err, TU_EUSAGE, "'%.100s' cannot be the name of a folder",
                       q->name);
    for (size_t s = 0; s < w->params.states && !rc; s++)
        rc = plan_state(w, q, s, err);
    if (rc || w->stage == 3)
        return rc;
    rc = add_file(w, q->name, "step", &f, err);
    return rc ? rc : tui_zero_scalar(w, f, &w->c->file[f].save.object, err);
}

/* What is not trained, as DeepSpeed keeps it: in float32 too. */
static int plan_rest(struct zero_writer *w, const struct tui_param *q, struct tu_err *err)
{
    const struct tu_atom *atom = &w->c->from->atom[q->atom];
    struct tu_pnode *d = tu_pnode_new(w->c->arena, TU_P_DICT, 0, err);
    struct tu_piece p = {.fuse = atom->fuse};
    uint32_t f;
    if (*q->name == '.' || strchr(q->name, '/'))
        return tu_fail(err, TU_EUSAGE, "'%.100s' cannot be the name of a folder",
                       q->name);
    int rc = d ? add_file(w, q->name, "fp32", &f, err) : TU_ENOMEM;
    if (!rc)
        rc = tui_add_target_tensor(w->c, f, "param", TU_F32, atom->tensor.dim,
                                   atom->tensor.rank, &p.index, err);
    if (!rc)
        rc = tu_pnode_set(w->c->arena, d, "param",
                          tu_pnode_tensor(w->c->arena, p.index, err), err);
    if (rc)
        return rc;
    w->c->file[f].save.object = d;
    p.file = f;
    p.tensor = w->c->file[f].list[p.index];
    return tui_piece_add(w->c, &p, err);
}

static int plan_settings(struct zero_writer *w, struct tu_err *err)
{
    char *path = tu_arena_printf(w->c->arena, err, "%s/zero/optimizer_state.pt", w->tag);
    uint32_t f;
    int rc = path ? tui_add_target(w->c, path, tu_format_find("torch"),
                                   (struct tu_coord){0}, &f, err)
                  : TU_ENOMEM;
    return rc ? rc : tui_zero_settings(w, f, &w->c->file[f].save.object, err);
}

int tui_universal_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                       const struct tu_shard_opts *o, struct tu_err *err)
{
    struct zero_writer w = {.c = c};
    (void)o;
    int rc = tui_zero_begin(&w, spec, "_universal", err);
    for (uint32_t tp = 0; tp < c->tp && !rc; tp++)
        for (uint32_t d = 0; d < (w.stage == 3 ? w.dp : 1) && !rc; d++)
            rc = tui_zero_plan_model(&w, tp, d, err);
    for (size_t i = 0; i < w.params.frozen + w.params.buffers && w.stage < 3 && !rc; i++)
        rc = plan_rest(&w, &w.params.rest[i], err);
    for (size_t g = 0; g < w.params.groups && !rc; g++)
        for (size_t i = 0; i < w.params.group[g].n && !rc; i++)
            rc = plan_param(&w, &w.params.group[g].param[i], err);
    if (!rc)
        rc = plan_settings(&w, err);
    tui_ucp_free(w.ucp);
    tui_params_release(&w.params);
    return rc;
}

int tui_universal_extra(const struct tu_ckpt *c, const char *folder,
                        const struct tu_job *job, struct tu_err *err)
{
    return tui_zero_latest(c, folder, "latest_universal", job, err);
}
