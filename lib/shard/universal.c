/* SPDX-License-Identifier: Apache-2.0 */
/* universal.c: DeepSpeed's universal checkpoints: every state of a parameter whole, in a
 * file of its own: zero/NAME/{fp32,exp_avg,…}.pt and step.pt; copies of the model's
 * files beside.
 *
 * A state's file is a dictionary with the tensor as `param` and how it is cut for
 * tensor-parallel ranks; made of stage 3 without them it is the bare tensor, flat.
 * Source: DeepSpeed deepspeed/checkpoint/{ds_to_universal,universal_checkpoint}.py. */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "single.h"
#include "universal.h"

static bool is_safe(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

/* The whole tensor's dimensions, and no boxes: its file holds it whole. */
static int whole_piece(struct zero_reader *r, const struct zero_param *q,
                       struct tu_piece *p, struct tu_err *err)
{
    struct tui_cut cut;
    struct tu_piece part = {.at = {.tp = 0}};
    int rc = tui_ucp_cut(r->c, r->z.ucp, q->name, q->dim, q->rank, &cut, err);
    if (!rc)
        rc = tu_tensor_make(&part.tensor, r->c->arena, q->name, TU_F32, q->dim, q->rank,
                            NULL, err);
    if (!rc && cut.kind == TUI_CUT_AXIS)
        rc = tui_cut_piece(r->c, &cut, q->dim, &part, err);
    if (rc)
        return rc;
    return tu_tensor_make(&p->tensor, r->c->arena, q->name, TU_F32,
                          cut.kind == TUI_CUT_AXIS ? part.whole : q->dim, q->rank, NULL,
                          err);
}

/* The tensor of a state's file is the whole, or its elements in one line. */
static int fit(struct zero_reader *r, struct tu_piece *p, size_t index,
               struct tu_err *err)
{
    const struct tu_source *s = r->c->file[p->file].source;
    const struct tu_tensor *t = &s->tensor[index];
    bool same = t->rank == p->tensor.rank &&
                !memcmp(t->dim, p->tensor.dim, t->rank * sizeof *t->dim);
    uint32_t elem = tu_dtype_find(t->dtype)->block_bytes;
    p->tensor.dtype = t->dtype;
    p->index = (uint32_t)index;
    if (!same && t->rank == 1 && t->bytes / elem * 4 == p->tensor.bytes)
        p->flat = (struct tu_flat){true, 0, t->bytes / elem, 0};
    else if (!same)
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.150s: not of the shape that param_shapes says", s->path);
    return 0;
}

static int add_piece(struct zero_reader *r, struct tu_piece p, const char *name,
                     const char *state, uint32_t dtype, struct tu_err *err)
{
    struct tu_named named;
    bool yes = false;
    int rc = r->c->canonical
                 ? tu_map_match(r->c->canonical, name, 0, 0, &named, &yes, err)
                 : 0;
    if (!rc)
        rc = yes ? tui_piece_fuse(r->c, &p, &named, state, dtype, err)
                 : tui_piece_plain(r->c, &p, name, state, dtype, err);
    return rc ? rc : tui_piece_add(r->c, &p, err);
}

/* One file of a parameter's folder. */
static int add_state(struct zero_reader *r, const struct zero_param *q,
                     const char *folder, const char *file, const struct tu_shard_opts *o,
                     const struct tu_job *job, struct tu_err *err)
{
    struct tu_ckpt *c = r->c;
    struct tu_source *s = NULL;
    struct tu_piece p = {.file = 0};
    char *path = tui_join(c->arena, folder, file, err);
    char *state = tu_arena_text(c->arena, file, strlen(file) - 3, err);
    int rc = path && state
                 ? tu_source_open(&s, path, tu_format_find("torch"), &o->open, job, err)
                 : TU_ENOMEM;
    if (!rc)
        rc = tui_add_source(c, path, s, p.at, &p.file, err);
    if (rc)
        return rc;
    const struct tu_pnode *root = tui_file_root(c, p.file);
    const struct tu_pnode *v =
        tu_pnode_get(root, "param") ? tu_pnode_get(root, "param") : root;
    if (!strcmp(state, "step"))
        return tui_zero_step(r, p.file, v, err);
    size_t index = v ? tu_pnode_number(v) : SIZE_MAX;
    if (index >= s->n)
        return tu_fail(err, TU_EFORMAT, "%.200s: no tensor under 'param'", path);
    rc = whole_piece(r, q, &p, err);
    if (!rc)
        rc = fit(r, &p, index, err);
    if (!rc && (r->z.partitioned || r->bare) &&
        !strcmp(state, "fp32")) /* the weight is its rounding */
        rc = add_piece(r, p, q->name, NULL, r->weight_dtype, err);
    return rc ? rc : add_piece(r, p, q->name, state, s->tensor[index].dtype, err);
}

static int is_state(const struct dirent *d)
{
    return tui_has_suffix(d->d_name, ".pt");
}

/* The files of one parameter's folder. */
struct states {
    const char *folder;
    const char **file;
    int n;
};

static bool has_file(const struct states *s, const char *file)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->file[i], file))
            return true;
    return false;
}

/* Parameters that one optimizer's group holds have the same states. */
static int lacks(const struct states *a, const struct states *b, struct tu_err *err)
{
    for (int i = 0; i < a->n; i++)
        if (!has_file(b, a->file[i]))
            return tu_fail(err, TU_EINCOMPLETE,
                           "%.150s: no %.40s, expected it: %.150s has it", b->folder,
                           a->file[i], a->folder);
    return 0;
}

static int add_param(struct zero_reader *r, const struct zero_param *q,
                     struct states *have, const struct tu_shard_opts *o,
                     const struct tu_job *job, struct tu_err *err)
{
    struct dirent **list = NULL;
    char *folder = tu_arena_printf(r->c->arena, err, "%s/zero/%s", r->z.folder, q->name);
    int n = 0, rc = folder ? 0 : TU_ENOMEM;
    if (!rc && !is_safe(q->name))
        rc = tu_fail(err, TU_EFORMAT, "param_shapes: '%.100s' is no name of a folder",
                     q->name);
    if (!rc)
        n = scandir(folder, &list, is_state, alphasort);
    if (!rc && n < 0 && errno != ENOENT)
        rc = tu_fail_errno(err, "%s", folder);
    if (!rc && n <= 0)
        rc = tu_fail(err, TU_EINCOMPLETE, "%.200s: no states of this parameter", folder);
    have->folder = folder;
    if (!rc && !(have->file = tu_arena_alloc(r->c->arena, (size_t)n, sizeof *have->file,
                                             err)))
        rc = TU_ENOMEM;
    for (int i = 0; i < n; i++) {
        if (!rc && !(have->file[have->n++] = tu_arena_text(
                         r->c->arena, list[i]->d_name, strlen(list[i]->d_name), err)))
            rc = TU_ENOMEM;
        if (!rc)
            rc = add_state(r, q, folder, list[i]->d_name, o, job, err);
        free(list[i]);
    }
    free(list);
    return rc;
}

/* Settings of the optimizer: zero/optimizer_state.pt. */
static int read_settings(struct zero_reader *r, const struct tu_shard_opts *o,
                         const struct tu_job *job, struct tu_err *err)
{
    struct tu_ckpt *c = r->c;
    struct tu_source *s = NULL;
    char *path = tui_join(c->arena, r->z.folder, "zero/optimizer_state.pt", err);
    if (!path)
        return TU_ENOMEM;
    r->z.settings = UINT32_MAX;
    if (!tui_is_file(path))
        return 0;
    int rc = tu_source_open(&s, path, tu_format_find("torch"), &o->open, job, err);
    if (!rc)
        rc = tui_add_source(c, path, s, (struct tu_coord){0}, &r->z.settings, err);
    if (rc)
        return rc;
    const struct tu_pnode *root = tui_file_root(c, r->z.settings);
    const char *key = r->z.partitioned ? "optimizer_state_dict" : "param_groups";
    if (!tu_pnode_get(root, key))
        return tu_fail(err, TU_EINCOMPLETE, "%.200s: no '%s', expected the optimizer's",
                       path, key);
    /* Of stage 3 the steps are here, by group. */
    const struct tu_pnode *all =
        tu_pnode_get(tu_pnode_get(root, "optimizer_state_dict"), "state");
    for (size_t i = 0; all && all->kind == TU_P_DICT && i + 1 < all->n && !rc; i += 2)
        rc = tui_zero_step(r, r->z.settings, tu_pnode_get(all->item[i + 1], "step"), err);
    return rc;
}

int tui_universal_states(struct zero_reader *r, const struct tu_shard_opts *o,
                         const struct tu_job *job, struct tu_err *err)
{
    int rc = read_settings(r, o, job, err);
    for (uint32_t mp = 0; mp < r->z.mp && !rc; mp += r->z.tp)
        for (size_t g = 0; g < tui_zero_groups(r) && !rc; g++) {
            struct zero_group group = {0};
            struct states first = {0};
            rc = tui_zero_group(r, mp, g, NULL, &group, err);
            for (size_t i = 0; i < group.n && !rc; i++) {
                struct states have = {0};
                if (tui_zero_earlier(r, mp, group.param[i].name)) /* tied */
                    continue;
                rc = add_param(r, &group.param[i], &have, o, job, err);
                if (!first.n)
                    first = have;
                if (!rc)
                    rc = lacks(&first, &have, err);
                if (!rc)
                    rc = lacks(&have, &first, err);
            }
        }
    return rc;
}

static int universal_open(struct tu_ckpt *c, const struct tu_spec *spec,
                          const struct tu_shard_opts *o, const struct tu_job *job,
                          struct tu_err *err)
{
    struct zero_reader r = {.c = c,
                            .z = {.latest = "latest_universal", .universal = true},
                            .weight_dtype = TU_BF16};
    return tui_zero_read(&r, spec, o, job, err);
}

static int universal_detect(const char *path)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/latest_universal", path);
    if (tui_is_file(full))
        return 96;
    snprintf(full, sizeof full, "%s/zero/optimizer_state.pt", path);
    return tui_is_file(full) ? 96 : 0;
}

static const struct tu_layout_key keys[] = {
    {"tag", "folder of the save (default: what the file latest_universal names)"},
    {"stage", "to write: 1 (default: whole tensors) or 3 (flat ones, as ds_to_universal "
              "makes of stage 3)"},
    {"tp", "to write: tensor-parallel size of the model's files"},
    {"dp", "to write: data-parallel size of the model's files, of stage 3"},
    {"order", "to write: file of parameter names in the optimizer's order"},
    {"rules", "file of universal_checkpoint_info as JSON, where the checkpoint has none"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_universal = {
    .name = "universal",
    .help = "DeepSpeed universal checkpoint: zero/NAME/{fp32,exp_avg,...}.pt",
    .key = keys,
    .detect = universal_detect,
    .open = universal_open,
    .plan = tui_universal_plan,
    .side_folder = "",
    .extra = tui_universal_extra,
};
