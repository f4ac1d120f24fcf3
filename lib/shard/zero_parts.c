/* SPDX-License-Identifier: Apache-2.0 */
/* zero_parts.c: parts of a model that DeepSpeed keeps in files of their own: the layers of
 * a pipeline, and experts.
 *
 * A layer's file has the names inside the layer; the optimizer calls them by its number,
 * or tied_modules.KEY where several layers share them. An expert's file has its number
 * among all experts; the optimizer of a rank numbers only its own, and the ranks that
 * share them are every ep-th. Source: DeepSpeed deepspeed/runtime/pipe/module.py,
 * deepspeed/runtime/engine.py (_save_moe_checkpoint), deepspeed/utils/groups.py. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zero.h"

#define TIED "tied_modules."
#define EXPERTS "deepspeed_experts."

/* Is the parameter in the groups of any stage? */
static bool is_trained(const struct zero_reader *r, const char *name)
{
    for (uint32_t mp = 0; mp < r->z.mp; mp += r->z.tp)
        for (size_t g = 0; g < tui_zero_groups(r); g++)
            if (tui_zero_shape_in(r, mp, g, "param_shapes", name))
                return true;
    return false;
}

bool tui_zero_earlier(const struct zero_reader *r, uint32_t mp, const char *name)
{
    for (uint32_t s = 0; s + r->z.tp <= mp; s += r->z.tp)
        for (size_t g = 0; g < tui_zero_groups(r); g++)
            if (tui_zero_shape_in(r, s, g, "param_shapes", name))
                return true;
    return false;
}

/* tied_modules.KEY.`rest`, where one KEY alone has it; else NULL. */
static const char *tied_name(const struct zero_reader *r, const char *rest)
{
    const char *found = NULL;
    for (uint32_t mp = 0; mp < r->z.mp; mp += r->z.tp)
        for (size_t g = 0; g < tui_zero_groups(r); g++) {
            const struct tu_pnode *shapes = tui_item(
                tu_pnode_get(tui_file_root(r->c, tui_zero_model(r, mp, 0)),
                             "param_shapes"),
                g);
            for (size_t i = 0; shapes && i + 1 < shapes->n; i += 2) {
                const char *name =
                    shapes->item[i]->kind == TU_P_TEXT ? shapes->item[i]->text : "";
                const char *dot = strncmp(name, TIED, strlen(TIED))
                                      ? NULL
                                      : strchr(name + strlen(TIED), '.');
                if (!dot || strcmp(dot + 1, rest))
                    continue;
                if (found && strcmp(found, name))
                    return NULL;
                found = name;
            }
        }
    return found;
}

/* The file of the same part on tensor rank tp. */
static const struct tui_zero_part *twin(const struct zero_reader *r,
                                        const struct tui_zero_part *p, uint32_t tp)
{
    for (size_t i = 0; i < r->z.parts; i++) {
        const struct tui_zero_part *q = &r->z.part[i];
        if (q->layer == p->layer && q->expert == p->expert && q->tp == tp)
            return q;
    }
    return NULL;
}

/* Dimensions of the tensor on all tensor ranks. */
static int part_dims(struct zero_reader *r, const struct tui_zero_part *p, const char *key,
                     const struct tu_tensor *t, struct zero_param *q, struct tu_err *err)
{
    uint64_t *all =
        tu_arena_alloc(r->c->arena, (size_t)r->z.tp * t->rank + 1, sizeof *all, err);
    if (!all)
        return TU_ENOMEM;
    for (uint32_t k = 0; k < r->z.tp; k++) {
        const struct tui_zero_part *other = twin(r, p, k);
        struct tu_source *s = other ? r->c->file[other->file].source : NULL;
        size_t i = s ? tu_source_find(s, key) : SIZE_MAX;
        if (i == SIZE_MAX || s->tensor[i].rank != t->rank)
            return tu_fail(err, TU_EINCOMPLETE,
                           "%.150s: tensor rank %u has no such '%.80s'",
                           r->c->file[p->file].path, k, key);
        memcpy(all + k * t->rank, s->tensor[i].dim, t->rank * sizeof *all);
    }
    q->dim = all;
    q->rank = t->rank;
    return 0;
}

static int layer_name(struct zero_reader *r, const struct tui_zero_part *p,
                      const char *key, const char **out, struct tu_err *err)
{
    char *own = tu_arena_printf(r->c->arena, err, "%u.%s", p->layer, key);
    const char *tied = own && !is_trained(r, own) ? tied_name(r, key) : NULL;
    *out = tied ? tied : own;
    return own ? 0 : TU_ENOMEM;
}

/* Has the file of a layer before it the same tied parameter? */
static bool is_copy(struct zero_reader *r, const struct tui_zero_part *p, const char *key,
                    const char *name)
{
    bool yes = false;
    for (const struct tui_zero_part *q = r->z.part; q < p && !yes; q++) {
        const char *other = NULL;
        yes = q->layer < p->layer && q->tp == p->tp && q->expert == TUI_NO_EXPERT &&
              tu_source_find(r->c->file[q->file].source, key) != SIZE_MAX &&
              !layer_name(r, q, key, &other, NULL) && !strcmp(other, name);
    }
    return yes;
}

static int add_part(struct zero_reader *r, const struct tui_zero_part *p,
                    struct tu_err *err)
{
    const struct tu_source *s = r->c->file[p->file].source;
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++) {
        const char *key = s->tensor[i].name;
        struct zero_param q = {.name = key};
        size_t before = r->c->pieces;
        rc = part_dims(r, p, key, &s->tensor[i], &q, err);
        if (!rc && p->expert == TUI_NO_EXPERT)
            rc = layer_name(r, p, key, &q.name, err);
        if (!rc)
            rc = tui_zero_add(r, p->file, i, &q, NULL, s->tensor[i].dtype, p->tp,
                              (struct tu_flat){0}, err);
        if (!rc && r->c->pieces > before && !strncmp(q.name, TIED, strlen(TIED)) &&
            is_copy(r, p, key, q.name))
            r->c->piece[before].replica = true;
    }
    return rc;
}

int tui_zero_parts(struct zero_reader *r, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->z.parts && !rc; i++)
        rc = add_part(r, &r->z.part[i], err);
    return rc;
}

int tui_zero_complete(struct zero_reader *r, struct tu_err *err)
{
    bool experts = r->z.optim[0] != UINT32_MAX && !r->z.partitioned;
    int rc = 0;
    for (uint32_t mp = 0; r->z.parts && mp < r->z.mp && !rc; mp += r->z.tp)
        for (size_t g = 0; g < tui_zero_groups(r) && !rc; g++) {
            uint32_t sets = experts ? tui_zero_expert_ranks(r, mp, g) : 1;
            struct zero_group group;
            rc = tui_zero_group(r, mp, g, NULL, &group, err);
            for (size_t i = 0; !rc && i < group.n * sets; i++) {
                const char *name;
                rc = tui_zero_expert_name(r, &group, group.param[i % group.n].name,
                                          (uint32_t)(i / group.n), &name, err);
                if (!rc && !r->c->canonical &&
                    tu_names_get(r->c->names, name) == TU_NAMES_NONE)
                    rc = tu_fail(err, TU_EINCOMPLETE,
                                 "%.120s: no layer_* file has '%.80s', which was trained",
                                 r->z.folder, name);
            }
        }
    return rc;
}

/* Experts of the optimizer ---------------------------------------------------------------
 */

uint32_t tui_zero_expert_ranks(const struct zero_reader *r, uint32_t mp, size_t g)
{
    const struct tu_pnode *o = tui_zero_optim_of(r, r->z.optim[mp * r->z.dp]);
    const struct tu_pnode *n = tui_item(tu_pnode_get(o, "partition_count"), g);
    uint32_t dp = r->z.dp;
    return n && n->kind == TU_P_INT && n->integer > 0 && n->integer < dp &&
                   dp % (uint64_t)n->integer == 0
               ? dp / (uint32_t)n->integer
               : 1;
}

int tui_zero_expert_name(struct zero_reader *r, const struct zero_group *g,
                         const char *name, uint32_t rank, const char **out,
                         struct tu_err *err)
{
    const char *at = strstr(name, EXPERTS);
    unsigned long most = 0;
    char *rest;
    *out = name;
    if (!at)
        return 0;
    at += strlen(EXPERTS);
    for (size_t i = 0; i < g->n; i++)
        if (!strncmp(g->param[i].name, name, (size_t)(at - name)))
            most = tu_max(most, strtoul(g->param[i].name + (at - name), NULL, 10));
    unsigned long own = strtoul(at, &rest, 10);
    if (most > 1u << 20)
        return tu_fail(err, TU_EFORMAT, "'%.100s': so many experts", name);
    *out = tu_arena_printf(r->c->arena, err, "%.*s%lu%s", (int)(at - name), name,
                           rank * (most + 1) + own, rest);
    return *out ? 0 : TU_ENOMEM;
}
