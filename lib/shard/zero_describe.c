/* SPDX-License-Identifier: Apache-2.0 */
/* zero_describe.c: what a ZeRO checkpoint says of its optimizer beside tensors, as META
 * "optim". */

#include <string.h>

#include "zero.h"

static bool listed(const struct tu_pnode *list, const char *name)
{
    for (size_t i = 0; list && list->kind == TU_P_LIST && i < list->n; i++)
        if (list->item[i]->kind == TU_P_TEXT && !strcmp(list->item[i]->text, name))
            return true;
    return false;
}

size_t tui_zero_groups(const struct zero_reader *r)
{
    const struct tu_pnode *v =
        tu_pnode_get(tui_file_root(r->c, r->z.model[0]), "param_shapes");
    return v && v->kind == TU_P_LIST ? v->n : 0;
}

/* The file that holds the optimizer's settings; UINT32_MAX: there is none. */
static uint32_t settings_file(const struct zero_reader *r)
{
    return r->z.universal ? r->z.settings : r->z.optim[0];
}

static const struct tu_pnode *settings_root(const struct zero_reader *r)
{
    uint32_t f = settings_file(r);
    return f == UINT32_MAX     ? NULL
           : r->z.universal ? tui_file_root(r->c, f)
                            : tui_zero_optim_of(r, f);
}

/* Errors: what JSON cannot hold is named with its file. */
static int value_of(const struct zero_reader *r, uint32_t f, json_t **out,
                    const struct tu_pnode *node, struct tu_err *err)
{
    int rc = tui_json_of(out, node, err);
    if (rc && tu_err_status(rc) == 3)
        tu_err_prefix(err, "%s", r->c->file[f].source->path);
    return rc;
}

static int append_name(json_t *list, const char *name, struct tu_err *err)
{
    json_t *v;
    int rc = tu_json_text(&v, name, strlen(name), err);
    return rc ? rc : tu_json_append(list, v, err);
}

/* A group with these settings and a list of names (a reference of its own). */
static int append_group(const struct zero_reader *r, json_t *groups,
                        const struct tu_pnode *settings, json_t **names,
                        struct tu_err *err)
{
    json_t *one = NULL;
    int rc = settings ? value_of(r, settings_file(r), &one, settings, err) : 0;
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
    for (size_t i = 0; tui_item(all, i); i++) {
        const struct tu_pnode *numbers = tu_pnode_get(tui_item(all, i), "params");
        for (size_t k = 0; tui_item(numbers, k); k++)
            if (tui_item(numbers, k)->kind == TU_P_INT &&
                tui_item(numbers, k)->integer == (int64_t)g)
                return tui_item(all, i);
    }
    return tui_item(all, g);
}

/* The names of group g: of all stages, and of all ranks' experts. */
static int append_names(struct zero_reader *r, size_t g, json_t *names,
                        struct tu_err *err)
{
    int rc = 0;
    for (uint32_t mp = 0; mp < r->z.mp && !rc; mp += r->z.tp) {
        struct zero_group group;
        uint32_t sets = r->z.optim[0] == UINT32_MAX || r->z.partitioned
                            ? 1
                            : tui_zero_expert_ranks(r, mp, g);
        rc = tui_zero_group(r, mp, g, NULL, &group, err);
        for (uint32_t s = 0; s < sets && !rc; s++)
            for (size_t i = 0; i < group.n && !rc; i++) {
                const char *name = NULL;
                if (!tui_zero_earlier(r, mp, group.param[i].name))
                    rc = tui_zero_expert_name(r, &group, group.param[i].name, s, &name,
                                              err);
                if (!rc && name)
                    rc = append_name(names, name, err);
            }
    }
    return rc;
}

/* Settings of each group, and the names in it in their order. */
static int describe_groups(struct zero_reader *r, json_t *groups, struct tu_err *err)
{
    const struct tu_pnode *o = settings_root(r);
    const struct tu_pnode *base =
        r->z.universal ? o
                       : tu_pnode_get(o, r->z.partitioned ? "optimizer_state_dict"
                                                          : "base_optimizer_state");
    const struct tu_pnode *settings = tu_pnode_get(base, "param_groups");
    int rc = 0;
    for (size_t g = 0; g < tui_zero_groups(r) && !rc; g++) {
        json_t *names = NULL;
        const struct tu_pnode *own = settings_of(settings, g);
        if (g && own && own == settings_of(settings, g - 1)) /* a sub-group */
            names = json_incref(json_object_get(
                json_array_get(groups, json_array_size(groups) - 1), "params"));
        else
            rc = append_group(r, groups, own, &names, err);
        if (!rc)
            rc = append_names(r, g, names, err);
        json_decref(names);
    }
    return rc;
}

/* The loss scaler's attributes, and the norm that gradients are clipped to. */
static int describe_scale(struct zero_reader *r, json_t *optim, struct tu_err *err)
{
    const struct tu_pnode *o = settings_root(r);
    const struct tu_pnode *scaler = tu_pnode_get(o, "loss_scaler");
    json_t *clip = NULL, *scale = NULL;
    uint32_t f = settings_file(r);
    int rc = value_of(r, f, &clip, tu_pnode_get(o, "clip_grad"), err);
    if (!rc && scaler && scaler->kind == TU_P_CALL && scaler->n > TU_P_STATE)
        rc = value_of(r, f, &scale, scaler->item[TU_P_STATE], err);
    if (!rc &&
        ((clip && json_object_set_new(optim, "clip_grad", clip)) ||
         (json_is_object(scale) && json_object_set_new(optim, "loss_scaler", scale))))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    return rc;
}

static int describe_rest(struct zero_reader *r, json_t *optim, struct tu_err *err)
{
    const struct tu_pnode *root = tui_file_root(r->c, r->z.model[0]);
    const struct tu_pnode *buffers = tu_pnode_get(root, "buffer_names"),
                          *module = tu_pnode_get(root, "module");
    json_t *frozen = json_array(), *buffer = NULL, *shared = NULL, *info = NULL;
    uint32_t f = r->z.model[0];
    int rc = value_of(r, f, &buffer, buffers, err);
    if (!rc)
        rc = value_of(r, f, &info, r->z.info, err);
    if (!rc)
        rc = value_of(r, f, &shared, tu_pnode_get(root, "shared_params"), err);
    for (size_t i = 0; !rc && module && i + 1 < module->n; i += 2) {
        const char *name =
            module->item[i]->kind == TU_P_TEXT ? module->item[i]->text : "";
        bool trained = false;
        for (size_t g = 0; g < tui_zero_groups(r); g++)
            trained |= tui_zero_shape_in(r, 0, g, "param_shapes", name) != NULL;
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

int tui_zero_describe(struct zero_reader *r, struct tu_err *err)
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
