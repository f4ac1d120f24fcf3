/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c: do the tensors' names suit the family?
 *
 * A configuration names the family, and its map must take every name that is read. Where
 * no configuration is, names may tell what stands before them. */

#include <string.h>

#include "ckpt.h"

int tui_fit_family(struct tu_ckpt *c, const char *const *name, size_t n,
                   const struct tu_shard_opts *o, struct tu_err *err)
{
    bool part = o->include != NULL;
    struct tui_list u = {.all = part ? NULL : c->refused};
    struct tu_names *listed = tu_names_new(err); /* a tensor may lie in many pieces */
    int rc = listed ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < n && c->canonical && !rc; i++) {
        struct tu_named named;
        bool yes = false;
        if (name[i])
            rc = tui_selected(o, name[i], &yes, err);
        if (rc || !yes)
            continue;
        rc = tu_map_match(c->canonical, name[i], 0, 0, &named, &yes, err);
        if (rc || yes || tu_names_get(listed, name[i]) != TU_NAMES_NONE)
            continue;
        rc = tui_list_add(&u, "unmatched", name[i], err);
        if (!rc)
            rc = tu_names_put(listed, name[i], 0, err);
    }
    tu_names_free(listed);
    if (rc || !u.n)
        return rc;
    if (!part)
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.60s: no line of map %s takes %zu of its tensors: %s (--include '.*' "
                       "reads them under these names)",
                       c->root, tu_map_name(c->canonical), u.n, u.text);
    tu_map_free(c->canonical);
    c->canonical = NULL;
    memset(&c->model, 0, sizeof c->model);
    return 0;
}

/* Bytes that all names begin with, up to the last dot in them. */
static size_t shared(const char *const *name, size_t n)
{
    size_t len = n ? strlen(name[0]) : 0;
    for (size_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < len && name[i][k] == name[0][k])
            k++;
        len = k;
    }
    while (len && name[0][len - 1] != '.')
        len--;
    return len;
}

/* How many of the shared bytes are too many for a family's names, which are cut; 0: none. */
static size_t surplus(const char **name, size_t n, const struct tu_family **family)
{
    size_t all = shared(name, n), cut = 0;
    if (tu_family_guess(name, n))
        return 0;
    while (cut < all) {
        size_t step = strcspn(name[0], ".") + 1;
        for (size_t i = 0; i < n; i++)
            name[i] += step;
        cut += step;
        if ((*family = tu_family_guess(name, n)))
            return cut;
    }
    return 0;
}

int tui_warn_prefix(const struct tu_ckpt *c, const struct tu_job *job, struct tu_err *err)
{
    if (c->canonical || c->renames || c->scheme || *c->model.family || !c->atoms)
        return 0;
    const char **name = tu_alloc(c->roles, sizeof *name, err);
    const struct tu_family *family = NULL;
    size_t n = 0;
    if (!name)
        return TU_ENOMEM;
    for (size_t i = 0; i < c->roles; i++)
        if (!c->role[i].state && c->role[i].atom != UINT32_MAX)
            name[n++] = c->role[i].name;
    const char *first = n ? name[0] : "";
    size_t cut = n ? surplus(name, n, &family) : 0;
    tu_free(name);
    struct tu_buf way = {0};
    int rc = 0;
    if (cut && !strcmp(c->layout->name, "dcp"))
        rc = tu_buf_printf(&way, err, "--from dcp:model=%.*s", (int)cut - 1, first);
    else if (cut)
        rc = tu_buf_text(&way, "shard-ckpt rename '", err);
    for (size_t i = 0; i < cut && !rc && strcmp(c->layout->name, "dcp"); i++)
        rc = tu_buf_printf(&way, err, "%s%c%s", first[i] == '.' ? "\\" : "", first[i],
                           i + 1 == cut ? "='" : "");
    if (cut && !rc)
        tu_job_warn(job, "%.60s: all names begin '%.*s', without which they are those of family "
                         "%s: %.70s takes it off",
                    c->root, (int)tu_min(cut, (size_t)40), first, family->name, way.data);
    tu_buf_release(&way);
    return rc;
}
