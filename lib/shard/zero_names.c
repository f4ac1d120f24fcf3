/* SPDX-License-Identifier: Apache-2.0 */
/* zero_names.c: the state dictionary of a ZeRO file has every parameter that was trained,
 * in the shape that param_shapes says, and every buffer; nothing of it that holds a
 * storage is lost. */

#include <stdio.h>
#include <string.h>

#include "zero.h"

/* A call that was to rebuild a tensor takes a storage, at times through another call. */
static bool rebuilds(const struct tu_pnode *v, int depth)
{
    bool yes = v && v->kind == TU_P_PERSID;
    if (!v || depth > 3 || (v->kind != TU_P_CALL && v->kind != TU_P_TUPLE))
        return yes;
    if (v->kind == TU_P_CALL)
        return v->n > TU_P_ARGS && rebuilds(v->item[TU_P_ARGS], depth + 1);
    for (size_t i = 0; i < v->n && !yes; i++)
        yes = rebuilds(v->item[i], depth + 1);
    return yes;
}

static bool lists(const struct tu_pnode *list, const char *name)
{
    for (size_t i = 0; tui_item(list, i); i++)
        if (list->item[i]->kind == TU_P_TEXT && !strcmp(list->item[i]->text, name))
            return true;
    return false;
}

static int no_tensor(const struct tu_source *s, const char *name, struct tu_err *err)
{
    return tu_fail(err, TU_EINCOMPLETE,
                   "%.120s: module: '%.100s' is no tensor that can be read, expected "
                   "one",
                   s->path, name);
}

/* Values that yield no tensor are those of other things than weights. */
static int values_are_tensors(const struct tu_source *s, const struct tu_pnode *root,
                              const struct tu_pnode *module, struct tu_err *err)
{
    for (size_t i = 0; i + 1 < module->n; i += 2) {
        const struct tu_pnode *name = module->item[i], *v = module->item[i + 1];
        if (name->kind == TU_P_TEXT && tu_pnode_number(v) >= s->n &&
            (rebuilds(v, 0) || lists(tu_pnode_get(root, "buffer_names"), name->text) ||
             tu_pnode_get(tu_pnode_get(root, "frozen_param_shapes"), name->text)))
            return no_tensor(s, name->text, err);
    }
    return 0;
}

static void dims_text(const uint64_t *dim, unsigned rank, char out[96])
{
    size_t at = 0;
    out[0] = 0;
    for (unsigned i = 0; i < rank && at + 24 < 96; i++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%llu", i ? "x" : "",
                               (unsigned long long)dim[i]);
}

static int same_shape(const struct tu_source *s, const struct tu_tensor *t,
                      const char *name, const struct tu_pnode *shape, struct tu_err *err)
{
    uint64_t dim[TU_RANK_MAX];
    unsigned rank;
    char has[96], says[96];
    int rc = tui_zero_shape_dims(shape, dim, &rank, err);
    if (rc || (rank == t->rank && !memcmp(dim, t->dim, rank * sizeof *dim)))
        return rc;
    dims_text(t->dim, t->rank, has);
    dims_text(dim, rank, says);
    return tu_fail(err, TU_EINCOMPLETE,
                   "%.100s: module: '%.80s' is %s, expected %s as param_shapes says",
                   s->path, name, has, says);
}

int tui_zero_names(const struct zero_reader *r, uint32_t f, struct tu_err *err)
{
    const struct tu_source *s = r->c->file[f].source;
    const struct tu_pnode *root = tui_file_root(r->c, f);
    const struct tu_pnode *module = tu_pnode_get(root, "module"),
                          *groups = tu_pnode_get(root, "param_shapes");
    int rc = values_are_tensors(s, root, module, err);
    for (size_t g = 0; tui_item(groups, g) && !r->z.parts; g++) {
        const struct tu_pnode *shapes = groups->item[g];
        for (size_t i = 0; shapes->kind == TU_P_DICT && i + 1 < shapes->n && !rc;
             i += 2) {
            if (shapes->item[i]->kind != TU_P_TEXT)
                continue;
            const char *name = shapes->item[i]->text;
            const struct tu_pnode *v = tu_pnode_get(module, name);
            size_t t = v ? tu_pnode_number(v) : SIZE_MAX;
            if (!v)
                rc = tu_fail(err, TU_EINCOMPLETE,
                             "%.120s: module has no '%.100s', which param_shapes names",
                             s->path, name);
            else if (t >= s->n)
                rc = no_tensor(s, name, err);
            else if (!r->z.partitioned || s->tensor[t].bytes)
                rc = same_shape(s, &s->tensor[t], name, shapes->item[i + 1], err);
        }
    }
    return rc;
}
