/* SPDX-License-Identifier: Apache-2.0 */
/* single.c: what the layouts without ranks share: every tensor is an atom.
 *
 * Names are the family's own where the family is known, and are left alone where it is
 * not. */

#include <stdio.h>
#include <string.h>

#include "single.h"

const struct tu_layout_key tui_no_keys[] = {{NULL, NULL}};
#define PT "{\"metadata\":{\"format\":\"pt\"}}"
static const struct tu_meta pt_meta = {"safetensors", PT, sizeof PT - 1};

/* Model and canonical map from config.json among the side files, or from the tensors'
 * names. */
int tui_know_model(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err)
{
    const struct tu_side *config = tui_side(c, "config.json");
    const struct tu_source *s = c->file[0].source;
    int rc = 0;
    tui_find_scaled(c);
    if (c->renames) /* names are the user's, no family's */
        return 0;
    if (config && !c->model.layers) {
        rc = tu_model_from_hf(&c->model, config->text, config->n, err);
        if (rc == TU_EFORMAT && !tu_family_find(c->model.family)) {
            rc = 0; /* of a kind we do not know: its tensors are moved by their names */
            memset(&c->model, 0, sizeof c->model);
        }
        if (rc)
            tu_err_prefix(err, "%s: config.json", c->root);
    }
    if (!rc && !*c->model.family && !(o->family)) {
        const char **name = tu_alloc(s->n + 1, sizeof *name, err);
        if (!name)
            return TU_ENOMEM;
        for (size_t i = 0; i < s->n; i++)
            name[i] = s->tensor[i].name;
        const struct tu_family *f =
            s->n && c->model.layers ? tu_family_guess(name, s->n) : NULL;
        if (f)
            snprintf(c->model.family, sizeof c->model.family, "%s", f->name);
        tu_free(name);
    }
    if (o->untied)
        c->model.tied = false;
    if (o->vocab)
        c->model.vocab = o->vocab;
    return rc || c->scheme ? rc : tui_set_canonical(c, o, err);
}

int tui_add_one(struct tu_ckpt *c, const char *path, const char *name,
                const struct tu_format *f, const struct tu_shard_opts *o,
                const struct tu_job *job, struct tu_err *err)
{
    struct tu_source *s = NULL;
    uint32_t number;
    int rc = tu_source_open(&s, path, f, &o->open, job, err);
    return rc ? rc : tui_add_source(c, name, s, (struct tu_coord){0}, &number, err);
}

int tui_fit_all(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err)
{
    size_t n = 0;
    for (size_t f = 0; f < c->files; f++)
        n += c->file[f].source->n;
    const char **name = tu_alloc(n + 1, sizeof *name, err), *state;
    int rc = name ? 0 : TU_ENOMEM;
    n = 0;
    for (size_t f = 0; f < c->files && !rc; f++) {
        const struct tu_source *s = c->file[f].source;
        for (size_t i = 0; i < s->n && !rc; i++) {
            rc = tui_state_of(c, s->tensor[i].name, &state, &name[n], err);
            n += strcmp(name[n], TUI_STEP) != 0;
        }
    }
    if (!rc)
        rc = tui_fit_family(c, name, n, o, err);
    tu_free(name);
    return rc;
}

int tui_add_all(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err)
{
    int rc = tui_fit_all(c, o, err);
    struct tui_naming n = {.map = c->canonical};
    for (uint32_t f = 0; f < c->files && !rc; f++)
        rc = tui_add_pieces(c, f, &n, err);
    return rc;
}

size_t tui_weights(const struct tu_ckpt *c)
{
    size_t n = 0;
    while (n < c->atoms && !tui_is_state(c, &c->atom[n]))
        n++;
    return n;
}

int tui_plan_atoms(struct tu_ckpt *c, const uint32_t *file, size_t n, bool tied_copy,
                   struct tu_err *err)
{
    int rc = 0;
    c->dropped += c->from->atoms - n;
    for (size_t a = 0; a < n && !rc; a++) {
        const struct tu_atom *atom = &c->from->atom[a];
        rc = tui_add_target_piece(c, file ? file[a] : 0, atom->tensor.name, atom->fuse,
                                  (struct tu_coord){0}, atom->tensor.dim, err);
    }
    if (!rc && tied_copy && c->model.tied && c->canonical) {
        struct tu_buf name = {0};
        struct tu_named named;
        bool yes = false;
        rc = tu_map_tied(c->canonical, &name, &named, &yes, err);
        uint32_t role =
            yes && !rc ? tu_names_get(c->from->names, named.role[0]) : TU_NAMES_NONE;
        if (role != TU_NAMES_NONE && c->role[role].atom != UINT32_MAX) {
            const struct tu_atom *atom = &c->from->atom[c->role[role].atom];
            rc = tui_add_target_piece(c, file ? file[n] : 0, name.data,
                                      atom->fuse, (struct tu_coord){0}, atom->tensor.dim,
                                      err);
        }
        tu_buf_release(&name);
    }
    return rc;
}

/* {"metadata":{"format":"pt","HEAD":"EMBEDDING"}}, the keys sorted. */
static int tied_json(struct tu_buf *out, const char *head, const char *embedding,
                     struct tu_err *err)
{
    const char *pair[2][2] = {{"format", "pt"}, {head, embedding}};
    size_t first = strcmp(head, "format") < 0;
    int rc = tu_buf_text(out, "{\"metadata\":{", err);
    for (size_t i = 0; i < 2 && !rc; i++)
        for (size_t k = 0; k < 2 && !rc; k++) {
            const char *text = pair[first ^ i][k];
            if (!(rc = tu_json_string(out, text, strlen(text), err)))
                rc = tu_buf_text(out, k ? i ? "}}" : "," : ":", err);
        }
    return rc;
}

/* The file that holds the embedding: the metadata there says what else it is. */
static int meta_of_tied(struct tu_ckpt *c, const char *head, uint32_t role,
                        struct tu_err *err)
{
    struct tu_buf json = {0};
    int rc = 0;
    for (size_t i = 0; i < c->pieces && !rc; i++) {
        const struct tu_piece *p = &c->piece[i];
        struct tu_save *save = &c->file[p->file].save;
        if (p->fuse.role[0] != role)
            continue;
        struct tu_meta *m = tu_arena_alloc(c->arena, 1, sizeof *m, err);
        tu_buf_reset(&json);
        rc = m ? tied_json(&json, head, p->tensor.name, err) : TU_ENOMEM;
        if (!rc && !(m->json = tu_arena_text(c->arena, json.data, json.n, err)))
            rc = TU_ENOMEM;
        if (!rc) {
            m->topic = pt_meta.topic;
            m->n = json.n;
            save->meta = m;
        }
    }
    tu_buf_release(&json);
    return rc;
}

int tui_pt_metas(struct tu_ckpt *c, bool tied_copy, struct tu_err *err)
{
    struct tu_buf name = {0};
    struct tu_named named;
    bool yes = false;
    for (size_t f = 0; f < c->files; f++) {
        c->file[f].save.metas = 1;
        c->file[f].save.meta = &pt_meta;
    }
    if (tied_copy || !c->model.tied || !c->canonical)
        return 0;
    int rc = tu_map_tied(c->canonical, &name, &named, &yes, err);
    uint32_t role = yes && !rc ? tu_names_get(c->from->names, named.role[0]) : TU_NAMES_NONE;
    if (!rc && role != TU_NAMES_NONE)
        rc = meta_of_tied(c, name.data, role, err);
    tu_buf_release(&name);
    return rc;
}

/* config.json may lie beside the file. */
static int sides_beside(struct tu_ckpt *c, struct tu_err *err)
{
    const char *slash = strrchr(c->root, '/');
    char *folder =
        slash ? tu_arena_text(c->arena, c->root, (size_t)(slash - c->root), err) : NULL;
    return slash && !folder ? TU_ENOMEM : tui_sides_from(c, folder ? folder : ".", err);
}

int tui_file_open(struct tu_ckpt *c, const char *format, const struct tu_shard_opts *o,
                  const struct tu_job *job, struct tu_err *err)
{
    int rc = tui_add_one(c, c->root, "", tu_format_find(format), o, job, err);
    if (!rc)
        rc = sides_beside(c, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    return rc ? rc : tui_add_all(c, o, err);
}

int tui_file_plan(struct tu_ckpt *c, const char *format, const struct tu_shard_opts *o,
                  struct tu_err *err)
{
    uint32_t number;
    int rc =
        tui_add_target(c, "", tu_format_find(format), (struct tu_coord){0}, &number, err);
    return rc ? rc : tui_plan_atoms(c, NULL, c->from->atoms, o && o->tied_copy, err);
}
