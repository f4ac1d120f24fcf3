/* SPDX-License-Identifier: Apache-2.0 */
/* listed.c: what a checkpoint says that it holds.
 *
 * A conversion may leave tensors out (--include, --exclude). Its manifest lists the others, and a
 * stream's META contents does: what is not listed is not missing, so that a part of a model reads
 * like a whole one. Looked at only when something seems to be missing. */

#include <jansson.h>
#include <string.h>

#include "ckpt.h"

struct tui_listed {
    struct tu_names *names; /* as a manifest has them; NULL: there is no list */
    const char **name;      /* [n] */
    size_t n, cap;
    bool loaded;
};

int tui_listed_new(struct tu_ckpt *c, struct tu_err *err)
{
    c->listed = tu_calloc(1, sizeof *c->listed, err);
    return c->listed ? 0 : TU_ENOMEM;
}

void tui_listed_free(struct tui_listed *l)
{
    if (!l)
        return;
    tu_names_free(l->names);
    tu_free(l->name);
    tu_free(l);
}

static int add(void *ctx, const char *name, size_t n, struct tu_err *err)
{
    const struct tu_ckpt *c = ctx;
    struct tui_listed *l = c->listed;
    const char *copy = tu_arena_text(c->arena, name, n, err);
    int rc = copy ? TU_GROW(&l->name, &l->cap, l->n, err) : TU_ENOMEM;
    if (rc || tu_names_get(l->names, copy) != TU_NAMES_NONE) /* a piece of the same */
        return rc;
    l->name[l->n] = copy;
    return tu_names_put(l->names, copy, (uint32_t)l->n++, err);
}

static int from_manifest(const struct tu_ckpt *c, const char *path, struct tu_err *err)
{
    char *text = NULL;
    size_t n;
    int rc = tu_file_read(path, TUI_MANIFEST_MAX, &text, &n, err);
    if (!rc)
        rc = tui_manifest_names(text, add, (void *)(uintptr_t)c, err);
    tu_free(text);
    return rc;
}

static int from_contents(const struct tu_ckpt *c, const struct tu_meta *m, struct tu_err *err)
{
    json_t *contents = NULL, *entry;
    struct tu_buf name = {0};
    size_t i;
    int rc = tu_json_parse(&contents, m->json, m->n, NULL, err);
    json_array_foreach(json_object_get(contents, "tensors"), i, entry) {
        const char *text = json_string_value(json_array_get(entry, 0));
        tu_buf_reset(&name);
        if (!rc && text)
            rc = tu_text_escape(&name, text, strlen(text), err);
        if (!rc && text)
            rc = add((void *)(uintptr_t)c, name.data, name.n, err);
    }
    tu_buf_release(&name);
    json_decref(contents);
    return rc;
}

static int load(const struct tu_ckpt *c, struct tu_err *err)
{
    struct tui_listed *l = c->listed;
    char *path = tui_join(c->arena, c->root, TU_DIGESTS, err);
    bool manifest = path && tui_is_file(path), contents = false;
    l->loaded = true;
    if (!path || !(l->names = tu_names_new(err)))
        return TU_ENOMEM;
    int rc = manifest ? from_manifest(c, path, err) : 0;
    for (size_t f = 0; f < c->files && !manifest && !rc; f++) {
        const struct tu_source *s = c->file[f].source;
        for (size_t i = 0; i < s->metas && !rc; i++)
            if (!strcmp(s->meta[i].topic, "contents")) {
                rc = from_contents(c, &s->meta[i], err);
                contents = true;
            }
    }
    if (!manifest && !contents) {
        tu_names_free(l->names);
        l->names = NULL;
    }
    return rc;
}

int tui_listed_is_there(const struct tu_ckpt *c, bool *yes, struct tu_err *err)
{
    int rc = c->listed->loaded ? 0 : load(c, err);
    *yes = !rc && c->listed->names;
    return rc;
}

int tui_listed_lacks(const struct tu_ckpt *c, const char *name, bool *yes, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = tui_listed_is_there(c, yes, err);
    if (rc || !*yes)
        return rc;
    rc = tu_text_escape(&text, name, strlen(name), err);
    *yes = !rc && tu_names_get(c->listed->names, text.data) == TU_NAMES_NONE;
    tu_buf_release(&text);
    return rc;
}

int tui_listed_layers(const struct tu_ckpt *c, unsigned char *seen, struct tu_err *err)
{
    bool there;
    int rc = tui_listed_is_there(c, &there, err);
    for (uint64_t l = 0; !rc && there && l < c->model.layers; l++)
        seen[l] |= 2;
    for (size_t i = 0; !rc && there && i < c->listed->n; i++) {
        struct tu_named named;
        bool yes = false;
        rc = tu_map_match(c->canonical, c->listed->name[i], 0, 0, &named, &yes, err);
        if (!rc && yes && named.layer >= 0 && (uint64_t)named.layer < c->model.layers)
            seen[named.layer] &= (unsigned char)~2;
    }
    return rc;
}
