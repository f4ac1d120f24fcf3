/* SPDX-License-Identifier: Apache-2.0 */
/* params.c: the parameters of a plan in the order of the optimizer's groups, each with
 * its states.
 *
 * A flat vector has no names: its order is the layout. It comes from the source's own
 * groups or from the user, never from a guess. */

#include <stdlib.h>
#include <string.h>

#include "deepspeed.h"

struct builder {
    struct tui_params *out;
    struct tu_ckpt *c;
    struct tu_names *names; /* atoms of the source by name */
    unsigned char *used;    /* [atoms] */
};

static int state_named(const struct builder *b, const char *state, const char *name, uint32_t *out,
                       struct tu_err *err)
{
    char *full = tu_arena_printf(b->c->arena, err, "optim.%s.%s", state, name);
    *out = full ? tu_names_get(b->names, full) : TU_NAMES_NONE;
    return full ? 0 : TU_ENOMEM;
}

static int param_of(struct builder *b, const char *name, struct tui_param *out,
                    struct tu_err *err)
{
    struct tui_params *p = b->out;
    uint32_t *state = tu_arena_alloc(b->c->arena, p->states, sizeof *state, err);
    if (!state)
        return TU_ENOMEM;
    *out = (struct tui_param){tu_arena_text(b->c->arena, name, strlen(name), err),
                              tu_names_get(b->names, name), state};
    if (out->atom == TU_NAMES_NONE)
        return tu_fail(err, TU_EINCOMPLETE,
                       "the optimizer's groups name '%.80s', which is not there or not "
                       "selected",
                       name);
    if (b->used[out->atom])
        return tu_fail(err, TU_EINCOMPLETE, "the optimizer's groups name '%.80s' twice",
                       name);
    b->used[out->atom] = 1;
    int rc = out->name ? 0 : TU_ENOMEM;
    for (size_t s = 0; s < p->states && !rc; s++)
        rc = state_named(b, p->state[s], name, &state[s], err);
    return rc;
}

static int group_add(struct builder *b, const json_t *names, const json_t *settings,
                     struct tu_err *err)
{
    struct tui_group *g = &b->out->group[b->out->groups];
    size_t n = json_array_size(names);
    int rc = 0;
    *g = (struct tui_group){tu_arena_alloc(b->c->arena, n + 1, sizeof *g->param, err), 0,
                            settings};
    if (!g->param)
        return TU_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        rc = name ? param_of(b, name, &g->param[g->n++], err)
                  : tu_fail(err, TU_EMETA, "META optim: a parameter's name is no text");
    }
    b->out->groups += n > 0;
    return rc;
}

/* Groups as the order file says: names line by line, a blank line between groups. */
static int groups_of_file(const char *path, json_t *optim, struct tu_err *err)
{
    char *text = NULL;
    size_t n;
    json_t *groups = json_array(), *names = NULL;
    int rc = tu_file_read(path, (size_t)64 << 20, &text, &n, err);
    if (!rc && (!groups || json_object_set(optim, "groups", groups)))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    for (char *line = text; line && !rc && *line;) {
        size_t len = strcspn(line, "\r\n");
        char *next = line + len + strspn(line + len, "\r");
        next += *next == '\n';
        line[len] = 0;
        if (!len) {
            names = NULL;
        } else {
            if (!names) {
                json_t *one = json_object();
                names = json_array();
                if (!one || !names || json_object_set_new(one, "params", names) ||
                    json_array_append_new(groups, one))
                    rc = tu_fail(err, TU_ENOMEM, "out of memory");
            }
            json_t *name = NULL;
            if (!rc)
                rc = tu_json_text(&name, line, len, err);
            if (rc == TU_EMETA)
                tu_err_prefix(err, "%.150s", path);
            if (!rc)
                rc = tu_json_append(names, name, err);
        }
        line = next;
    }
    json_decref(groups);
    tu_free(text);
    return rc;
}

static int find_states(struct builder *b, struct tu_err *err)
{
    static const char *const adam[] = {"fp32", "exp_avg", "exp_avg_sq"};
    const struct tu_ckpt *from = b->c->from;
    struct tui_params *p = b->out;
    p->state = tu_arena_alloc(b->c->arena, 16, sizeof *p->state, err);
    if (!p->state)
        return TU_ENOMEM;
    p->state[p->states++] = adam[0];
    for (size_t a = 0; a < from->atoms; a++) {
        const char *s = from->role[from->atom[a].fuse.role[0]].state;
        size_t k = 0;
        while (s && k < p->states && strcmp(p->state[k], s))
            k++;
        if (s && k == p->states && k < 16)
            p->state[p->states++] = s;
    }
    for (int k = 1; k < 3 && p->states < 3; k++) /* the source has none: all zeros */
        p->state[p->states++] = adam[k];
    return 0;
}

static bool is_buffer(const json_t *optim, const char *name)
{
    const json_t *list = json_object_get(optim, "buffers");
    bool yes = false;
    for (size_t i = 0; i < json_array_size(list) && !yes; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        yes = text && !strcmp(text, name);
    }
    return yes;
}

/* Weights that no group has: frozen parameters, then buffers. */
static int find_rest(struct builder *b, struct tu_err *err)
{
    const struct tu_ckpt *from = b->c->from;
    struct tui_params *p = b->out;
    int rc = 0;
    p->rest = tu_arena_alloc(b->c->arena, from->atoms + 1, sizeof *p->rest, err);
    if (!p->rest)
        return TU_ENOMEM;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t a = 0; a < from->atoms && !rc; a++) {
            const char *name = from->atom[a].tensor.name;
            if (b->used[a] || tui_is_state(from, &from->atom[a]) ||
                is_buffer(p->optim, name) != pass)
                continue;
            rc = param_of(b, name, &p->rest[p->frozen + p->buffers], err);
            *(pass ? &p->buffers : &p->frozen) += 1;
        }
    return rc;
}

static int index_atoms(struct builder *b, struct tu_err *err)
{
    const struct tu_ckpt *from = b->c->from;
    int rc = 0;
    b->used = tu_calloc(from->atoms + 1, 1, err);
    b->names = tu_names_new(err);
    if (!b->used || !b->names)
        return TU_ENOMEM;
    for (uint32_t a = 0; a < from->atoms && !rc; a++)
        rc = tu_names_put(b->names, from->atom[a].tensor.name, a, err);
    return rc;
}

int tui_params_new(struct tui_params *out, struct tu_ckpt *c, const char *order,
                   struct tu_err *err)
{
    struct builder b = {out, c, NULL, NULL};
    *out = (struct tui_params){0};
    int rc = tui_get_optim(c, &out->optim, err);
    if (!rc)
        rc = index_atoms(&b, err);
    if (!rc && order)
        rc = groups_of_file(order, out->optim, err);
    const json_t *groups = json_object_get(out->optim, "groups");
    if (!rc && !json_array_size(groups))
        rc = tu_fail(
            err, TU_EUSAGE,
            "the order of the parameters in the optimizer's groups is not known: "
            "order=FILE gives it (names line by line as the training script lists "
            "them, a blank line between groups)");
    if (!rc)
        rc = find_states(&b, err);
    if (!rc && !(out->group = tu_arena_alloc(c->arena, json_array_size(groups) + 1,
                                             sizeof *out->group, err)))
        rc = TU_ENOMEM;
    for (size_t i = 0; i < json_array_size(groups) && !rc; i++) {
        const json_t *g = json_array_get(groups, i);
        rc = group_add(&b, json_object_get(g, "params"), g, err);
    }
    if (!rc)
        rc = find_rest(&b, err);
    if (!rc)
        rc = tui_get_step(c->from, &out->step, err);
    tu_names_free(b.names);
    tu_free(b.used);
    return rc;
}

void tui_params_release(struct tui_params *p)
{
    json_decref(p->optim);
}
