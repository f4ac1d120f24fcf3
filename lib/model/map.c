/* SPDX-License-Identifier: Apache-2.0 */
/* map.c: name maps: names of a maker to roles and back.
 *
 * One line serves both directions. Reading, the pattern matches a name and its captures
 * fill the target. Writing, the target becomes a pattern for roles (each $n replaced by
 * the n-th capture's own sub-pattern) and the pattern becomes a template for names
 * (literals unescaped, captures filled). Order of lines is order of preference in both.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "maps.h"

static const struct {
    const char *word;
    unsigned transform, cond;
} words[] = {
    {"copy", 0, 0},
    {"transpose", TU_MAP_TRANSPOSE, 0},
    {"rotary", TU_MAP_ROTARY, 0},
    {"qkv", TU_MAP_QKV, 0},
    {"concat", TU_MAP_CONCAT, 0},
    {"column", TU_MAP_COLUMN, 0},
    {"row", TU_MAP_ROW, 0},
    {"vocab", TU_MAP_VOCAB, 0},
    {"stack", TU_MAP_STACK, 0},
    {"drop", TU_MAP_DROP, 0},
    {"read", TU_MAP_READ, 0},
    {"tied", TU_MAP_TIED, 0},
    {"if-gated", 0, TUI_IF_GATED},
    {"if-plain", 0, TUI_IF_PLAIN},
    {"if-tied", 0, TUI_IF_TIED},
    {"if-untied", 0, TUI_IF_UNTIED},
    {"if-moe", 0, TUI_IF_MOE},
    {"if-dense", 0, TUI_IF_DENSE},
    {"if-latent", 0, TUI_IF_LATENT},
    {"if-full", 0, TUI_IF_FULL},
    {"if-mtp", 0, TUI_IF_MTP},
};

/* Reading, the presence of experts decides nothing: the names differ. */
static bool holds(unsigned cond, unsigned facts, bool reading)
{
    cond &= ~(unsigned)TUI_IF_MTP; /* decided by the number */
    if (reading)
        cond &= ~(unsigned)(TUI_IF_MOE | TUI_IF_DENSE);
    return !facts || !(cond & ~facts);
}

void tu_map_bind(struct tu_map *m, const struct tu_model *model)
{
    m->facts = (model->gated ? TUI_IF_GATED : TUI_IF_PLAIN) |
               (model->tied ? TUI_IF_TIED : TUI_IF_UNTIED) |
               (model->experts ? TUI_IF_MOE : TUI_IF_DENSE) |
               (model->kv_rank ? TUI_IF_LATENT : TUI_IF_FULL);
    m->layers = (int64_t)model->layers;
    m->dense = model->experts ? (int64_t)model->dense_layers : 0;
    m->mtp = (int64_t)model->mtp_layers;
}

const char *tu_map_name(const struct tu_map *m)
{
    return m->name;
}

int tui_map_words(const char *text, size_t n, unsigned *transform, unsigned *cond,
                  struct tu_err *err)
{
    *transform = *cond = 0;
    for (size_t at = 0; at <= n;) {
        size_t len = 0, i = 0;
        while (at + len < n && text[at + len] != ',')
            len++;
        while (i < sizeof words / sizeof *words &&
               (strlen(words[i].word) != len || memcmp(words[i].word, text + at, len)))
            i++;
        if (i == sizeof words / sizeof *words)
            return tu_fail(err, TU_EFORMAT, "unknown transform '%.*s'",
                           (int)(len > 40 ? 40 : len), text + at);
        *transform |= words[i].transform;
        *cond |= words[i].cond;
        at += len + 1;
    }
    return 0;
}

/* Numbers of a role: "layers.N." and "experts.N."; -1 where there is none. */
static int64_t number_after(const char *role, const char *word)
{
    const char *p = strstr(role, word);
    if (!p || (p != role && p[-1] != '.'))
        return -1;
    p += strlen(word);
    return *p >= '0' && *p <= '9' ? strtoll(p, NULL, 10) : -1;
}

static void numbers(struct tu_named *n)
{
    n->layer = n->n ? number_after(n->role[0], "layers.") : -1;
    n->expert = n->n ? number_after(n->role[0], "experts.") : -1;
}

/* What is added to the numbers of names to make those of roles. */
struct bases {
    int64_t layer, expert, mtp;
};

/* Those of a line: makers number the layers that predict further tokens (MTP) as if they
 * were layers behind the last, roles from 0. */
static struct bases bases_of(const struct tu_map *m, const struct tui_line *l,
                             int64_t layer_base, int64_t expert_base)
{
    return (struct bases){layer_base, expert_base,
                          l->cond & TUI_IF_MTP ? -m->layers : 0};
}

/* The base that belongs to the number which is about to follow `text`. */
static int64_t base_after(const char *text, size_t n, const struct bases *b)
{
    if (n >= 7 && !memcmp(text + n - 7, "layers.", 7))
        return b->layer;
    if (n >= 8 && !memcmp(text + n - 8, "experts.", 8))
        return b->expert;
    return n >= 4 && !memcmp(text + n - 4, "mtp.", 4) ? b->mtp : 0;
}

/* Is the layer's number one that the line is for? */
static bool is_kind(const struct tu_map *m, const struct tui_line *l, const char *name,
                    const struct tu_match *g, int64_t layer_base)
{
    bool mtp = l->cond & TUI_IF_MTP;
    if (!m->facts || (!mtp && (!m->mtp || !l->layer_group)))
        return true;
    return mtp == (strtoll(name + g->group[1].begin, NULL, 10) + layer_base >= m->layers);
}

static int role_of(const struct tui_role *r, const char *name, const struct tu_match *m,
                   const struct bases *b, char *out, size_t cap, struct tu_err *err)
{
    size_t n = 0;
    for (const char *t = r->target; *t; t++) {
        if (n + 24 > cap)
            return tu_fail(err, TU_ELIMIT, "role of '%.60s' is too long", name);
        if (*t != '$') {
            out[n++] = *t;
            continue;
        }
        unsigned g = (unsigned)(*++t - '0');
        size_t len = m->group[g].end - m->group[g].begin;
        const char *value = name + m->group[g].begin;
        int64_t base = base_after(out, n, b);
        if (base && len < 18)
            n += (size_t)snprintf(out + n, cap - n, "%lld",
                                  strtoll(value, NULL, 10) + (long long)base);
        else if (len + n + 24 > cap)
            return tu_fail(err, TU_ELIMIT, "role of '%.60s' is too long", name);
        else {
            memcpy(out + n, value, len);
            n += len;
        }
    }
    out[n] = 0;
    return 0;
}

int tu_map_match(const struct tu_map *m, const char *name, int64_t layer_base,
                 int64_t expert_base, struct tu_named *out, bool *yes, struct tu_err *err)
{
    size_t len = strlen(name);
    *yes = false;
    for (size_t i = 0; i < m->n && !*yes; i++) {
        const struct tui_line *l = &m->line[i];
        if (!holds(l->cond, m->facts, true) || len < l->literal ||
            memcmp(name, l->prefix, l->literal))
            continue;
        struct tu_match g;
        int rc = tu_pattern_match(l->pattern, name, len, &g, yes, err);
        if (rc)
            return rc;
        *yes = *yes && is_kind(m, l, name, &g, layer_base);
        if (!*yes)
            continue;
        struct bases b = bases_of(m, l, layer_base, expert_base);
        out->transform = l->transform;
        out->n = l->roles;
        for (unsigned k = 0; k < l->roles; k++)
            if ((rc = role_of(&l->role[k], name, &g, &b, out->role[k],
                              sizeof out->role[k], err)))
                return rc;
        numbers(out);
    }
    return 0;
}

/* The name that line l gives when its captures have these values; other roles of the line
 * too. */
static int fill(const struct tui_line *l, char value[][64], const struct bases *b,
                struct tu_buf *name, struct tu_named *out, struct tu_err *err)
{
    out->transform = l->transform;
    out->n = l->roles;
    for (unsigned k = 0; k < l->roles; k++) {
        size_t n = 0;
        for (const char *t = l->role[k].target; *t && n + 64 < sizeof out->role[k]; t++) {
            if (*t == '$')
                n += (size_t)snprintf(out->role[k] + n, 64, "%s", value[*++t - '0']);
            else
                out->role[k][n++] = *t;
        }
        out->role[k][n] = 0;
    }
    numbers(out);
    for (const char *t = l->templ; *t; t++) {
        int rc;
        if (*t != '\1') {
            rc = tu_buf_add(name, t, 1, err);
        } else {
            const char *v = value[*++t - '0'];
            unsigned g = (unsigned)(*t - '0');
            int64_t base = out->layer >= 0 && g == l->layer_group     ? b->layer
                           : out->expert >= 0 && g == l->expert_group ? b->expert
                           : g == l->mtp_group                        ? b->mtp
                                                                      : 0;
            if (base)
                rc = tu_buf_printf(name, err, "%lld",
                                   strtoll(v, NULL, 10) - (long long)base);
            else
                rc = tu_buf_text(name, v, err);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* Captures of role number k in the order of $n: value[n]. */
static int take(const struct tui_role *r, const char *role, char value[][64], bool *yes,
                struct tu_err *err)
{
    struct tu_match g;
    int rc = tu_pattern_match(r->inverse, role, strlen(role), &g, yes, err);
    if (rc || !*yes)
        return rc;
    for (unsigned i = 1; i < g.n && i <= r->captures; i++) {
        size_t n = g.group[i].end - g.group[i].begin;
        if (n >= 64)
            return tu_fail(err, TU_ELIMIT, "role '%.60s' has a part of %zu bytes", role,
                           n);
        memcpy(value[r->order[i - 1]], role + g.group[i].begin, n);
        value[r->order[i - 1]][n] = 0;
    }
    return 0;
}

/* The model's facts as they are in the layer of this role. */
static unsigned facts_at(const struct tu_map *m, const char *role)
{
    int64_t layer = m->dense ? number_after(role, "layers.") : -1;
    return layer >= 0 && layer < m->dense
               ? (m->facts & ~(unsigned)TUI_IF_MOE) | TUI_IF_DENSE
               : m->facts;
}

int tu_map_entry(const struct tu_map *m, const char *role, int64_t layer_base,
                 int64_t expert_base, struct tu_buf *name, struct tu_named *out,
                 bool *yes, struct tu_err *err)
{
    unsigned facts = facts_at(m, role);
    *yes = false;
    for (size_t i = 0; i < m->n && !*yes; i++) {
        const struct tui_line *l = &m->line[i];
        if (!l->templ || l->transform & TU_MAP_TIED || !holds(l->cond, facts, false))
            continue;
        struct bases b = bases_of(m, l, layer_base, expert_base);
        for (unsigned k = 0; k < l->roles && !*yes; k++) {
            char value[10][64] = {{0}};
            int rc = take(&l->role[k], role, value, yes, err);
            if (!rc && *yes)
                rc = fill(l, value, &b, name, out, err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

int tu_map_tied(const struct tu_map *m, struct tu_buf *name, struct tu_named *out,
                bool *yes, struct tu_err *err)
{
    *yes = false;
    for (size_t i = 0; i < m->n; i++) {
        const struct tui_line *l = &m->line[i];
        if (l->templ && l->transform & TU_MAP_TIED && holds(l->cond, m->facts, false)) {
            char value[10][64] = {{0}};
            *yes = true;
            return fill(l, value, &(struct bases){0}, name, out, err);
        }
    }
    return 0;
}

size_t tu_role_text(char *out, size_t cap, const char *role, uint64_t expert)
{
    const char *star = strchr(role, '*');
    int n = star ? snprintf(out, cap, "%.*s%llu%s", (int)(star - role), role,
                            (unsigned long long)expert, star + 1)
                 : snprintf(out, cap, "%s", role);
    return (size_t)n;
}

int tu_map_line(const struct tu_map *m, const char *role, size_t *line, struct tu_err *err)
{
    size_t len = strlen(role);
    *line = SIZE_MAX;
    for (size_t i = 0; i < m->n; i++)
        for (unsigned k = 0; k < m->line[i].roles; k++) {
            bool yes = false;
            int rc = !m->line[i].role[k].inverse
                         ? 0
                         : tu_pattern_match(m->line[i].role[k].inverse, role, len, NULL, &yes, err);
            if (rc)
                return rc;
            if (yes) {
                *line = i;
                return 0;
            }
        }
    return 0;
}

int tu_map_builtin(struct tu_map **out, const char *name, struct tu_err *err)
{
    char known[256];
    size_t n = 0;
    for (const struct tui_map_text *t = tui_maps; t->name; t++) {
        if (!strcmp(t->name, name))
            return tu_map_parse(out, name, t->text, err);
        n +=
            (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", t->name);
        if (n >= sizeof known)
            n = sizeof known - 1;
    }
    return tu_fail(err, TU_EUSAGE, "no map '%.60s' (there are %.150s)", name, known);
}

const char *tu_map_text(const char *name)
{
    for (const struct tui_map_text *t = tui_maps; t->name; t++)
        if (!strcmp(t->name, name))
            return t->text;
    return NULL;
}

const char *tu_map_list(size_t i, char help[TU_MAP_HELP])
{
    for (size_t k = 0; k < i; k++)
        if (!tui_maps[k].name)
            return NULL;
    if (!tui_maps[i].name)
        return NULL;
    const char *t = tui_maps[i].text;
    if (!strncmp(t, "# ", 2))
        t += 2;
    size_t n = strcspn(t, "\n");
    n = tu_min(n, TU_MAP_HELP - 1);
    memcpy(help, t, n);
    help[n] = 0;
    return tui_maps[i].name;
}
