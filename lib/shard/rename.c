/* SPDX-License-Identifier: Apache-2.0 */
/* rename.c: tensors under other names.
 *
 * Names are changed where pieces are made, below the state of an optimizer, so a weight
 * and its states stay together. Two tensors never get one name. */

#include <string.h>

#include "ckpt.h"

struct tui_renames {
    const struct tu_rename *rule;
    size_t rules;
    struct tu_names *number; /* new names, of the old ones below */
    const char **old;
    size_t n, cap;
};

int tui_renames_new(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err)
{
    struct tui_renames *r;
    if (!o->renames)
        return 0;
    if (!(r = c->renames = tu_calloc(1, sizeof *r, err)))
        return TU_ENOMEM;
    r->rule = o->rename;
    r->rules = o->renames;
    return (r->number = tu_names_new(err)) ? 0 : TU_ENOMEM;
}

void tui_renames_free(struct tui_renames *r)
{
    if (!r)
        return;
    tu_names_free(r->number);
    tu_free(r->old);
    tu_free(r);
}

static int changed(const struct tui_renames *r, const char *name, struct tu_buf *out,
                   struct tu_err *err)
{
    struct tu_match m;
    for (size_t i = 0; i < r->rules; i++) {
        bool yes = false;
        int rc = tu_pattern_match(r->rule[i].pattern, name, strlen(name), &m, &yes, err);
        if (!rc && yes)
            rc = tu_pattern_expand(out, r->rule[i].target, name, &m, err);
        if (!rc && yes)
            rc = tu_buf_text(out, name + m.group[0].end, err);
        if (rc || yes)
            return rc;
    }
    return tu_buf_text(out, name, err);
}

int tui_new_name(struct tu_ckpt *c, const char **name, struct tu_err *err)
{
    struct tui_renames *r = c->renames;
    struct tu_buf b = {0};
    if (!r)
        return 0;
    int rc = changed(r, *name, &b, err);
    if (!rc && (!b.n || tu_name_check(b.data, b.n) != b.n))
        rc = tu_fail(err, TU_EUSAGE, "'%.100s' would get a name that is empty or no text",
                     *name);
    char *text = rc ? NULL : tu_arena_text(c->arena, b.data, b.n, err),
         *old = rc ? NULL : tu_arena_text(c->arena, *name, strlen(*name), err);
    tu_buf_release(&b);
    if (!text || !old)
        return rc ? rc : TU_ENOMEM;
    uint32_t number = tu_names_get(r->number, text);
    if (number != TU_NAMES_NONE && strcmp(r->old[number], old))
        return tu_fail(err, TU_EUSAGE, "'%.80s' and '%.80s' would both be '%.80s'",
                       r->old[number], old, text);
    if (number == TU_NAMES_NONE && !(rc = TU_GROW(&r->old, &r->cap, r->n, err))) {
        r->old[r->n] = old;
        rc = tu_names_put(r->number, text, (uint32_t)r->n++, err);
    }
    *name = text;
    return rc;
}
