/* SPDX-License-Identifier: Apache-2.0 */
/* map_parse.c: the text of a name map to lines that work in both directions. */

#include <string.h>

#include "map.h"

/* Length of the group that opens at p ("(…)"), 0 if it never closes. */
static size_t group_len(const char *p)
{
    size_t i = 0;
    int depth = 0;
    do {
        if (p[i] == '\\' && p[i + 1])
            i++;
        else if (p[i] == '(')
            depth++;
        else if (p[i] == ')')
            depth--;
        else if (!p[i])
            return 0;
        i++;
    } while (depth);
    return i;
}

/* The pattern turned into a template: literals unescaped, capture n as \1 and its digit,
 * a non-capturing choice as its first branch. Gives up (*ok false) at anything else. */
static int turn(const char *pattern, struct tu_buf *out, bool *ok, struct tu_err *err)
{
    unsigned group = 0;
    int rc = 0;
    *ok = true;
    for (const char *p = pattern; *p && !rc; p++) {
        if (*p == '\\' && strchr(".-_/[](){}$^|?*+\\", p[1])) {
            rc = tu_buf_add(out, ++p, 1, err);
        } else if (*p == '(') {
            size_t n = group_len(p);
            if (!n)
                break;
            if (!strncmp(p, "(?:", 3)) {
                bool inner;
                char branch[128];
                size_t len = strcspn(p + 3, "|)");
                if (len >= sizeof branch) {
                    *ok = false;
                    return 0;
                }
                memcpy(branch, p + 3, len);
                branch[len] = 0;
                rc = turn(branch, out, &inner, err);
                *ok = *ok && inner;
            } else {
                rc = tu_buf_printf(out, err, "\1%c", '0' + (int)++group);
                *ok = *ok && group < 10;
            }
            p += n - 1;
        } else if (strchr("\\.[]{}?*+|^$", *p)) {
            *ok = false;
            return 0;
        } else {
            rc = tu_buf_add(out, p, 1, err);
        }
    }
    return rc;
}

/* Text of capture `want` of a pattern, with its parentheses; NULL if there are fewer. */
static const char *capture(const char *pattern, unsigned want, size_t *n)
{
    unsigned group = 0;
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == '(') {
            *n = group_len(p);
            if (!*n)
                return NULL;
            if (p[1] != '?' && ++group == want)
                return p;
        }
    }
    return NULL;
}

/* The pattern that takes the roles of this target. */
static int invert(struct tui_role *r, const char *pattern, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = 0;
    for (const char *t = r->target; *t && !rc; t++) {
        if (*t == '$') {
            size_t n;
            const char *sub = capture(pattern, (unsigned)(*++t - '0'), &n);
            if (!sub || r->captures == 9) {
                rc = tu_fail(err, TU_EFORMAT, "the pattern has no capture $%c", *t);
                break;
            }
            r->order[r->captures++] = (unsigned char)(*t - '0');
            rc = tu_buf_add(&b, sub, n, err);
        } else if (*t == '*') {
            rc = tu_buf_text(&b, "(?:\\d+|\\*)", err);
        } else {
            if (strchr(".[]{}()?+|^$\\", *t))
                rc = tu_buf_text(&b, "\\", err);
            if (!rc)
                rc = tu_buf_add(&b, t, 1, err);
        }
    }
    if (!rc)
        rc = tu_pattern_new(&r->inverse, b.data ? b.data : "", TU_PATTERN_WHOLE, err);
    tu_buf_release(&b);
    return rc;
}

/* One target of "a.{q,k,v}.b": branch k (0 …), or the text itself; *more says if there
 * are others. */
static int branch(const char *target, unsigned k, struct tu_buf *out, bool *more,
                  struct tu_err *err)
{
    const char *open = strchr(target, '{'), *close = open ? strchr(open, '}') : NULL;
    *more = false;
    if (!close)
        return tu_buf_text(out, target, err);
    const char *p = open + 1;
    for (unsigned i = 0; i < k; i++)
        p += strcspn(p, ",}") + 1;
    size_t n = strcspn(p, ",}");
    *more = p[n] == ',';
    int rc = tu_buf_add(out, target, (size_t)(open - target), err);
    if (!rc)
        rc = tu_buf_add(out, p, n, err);
    return rc ? rc : tu_buf_text(out, close + 1, err);
}

static int set_roles(struct tui_line *l, const char *pattern, const char *target,
                     struct tu_err *err)
{
    bool more = true;
    for (unsigned k = 0; more; k++) {
        if (k == TU_MAP_ROLES)
            return tu_fail(err, TU_EFORMAT, "more than %d roles", TU_MAP_ROLES);
        struct tu_buf b = {0};
        int rc = branch(target, k, &b, &more, err);
        if (rc) {
            tu_buf_release(&b);
            return rc;
        }
        l->roles = k + 1;
        l->role[k].target = tu_buf_take(&b);
        if (!l->role[k].target || strlen(l->role[k].target) > 60)
            return tu_fail(err, TU_EFORMAT, "a target is empty or over 60 bytes");
        for (const char *t = l->role[k].target; *t; t++) {
            if (*t == '$' && (t[1] < '1' || t[1] > '9'))
                return tu_fail(err, TU_EFORMAT, "'$' needs a digit in '%.60s'", target);
            if (*t == '$' && t > l->role[k].target) {
                unsigned g = (unsigned)(t[1] - '0');
                size_t n = (size_t)(t - l->role[k].target);
                if (n >= 7 && !memcmp(t - 7, "layers.", 7))
                    l->layer_group = g;
                else if (n >= 8 && !memcmp(t - 8, "experts.", 8))
                    l->expert_group = g;
                else if (n >= 4 && !memcmp(t - 4, "mtp.", 4))
                    l->mtp_group = g;
            }
        }
        if ((rc = invert(&l->role[k], pattern, err)))
            return rc;
    }
    return 0;
}

static int set_prefix(struct tui_line *l, const char *pattern, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = tu_buf_text(&b, "", err);
    for (const char *p = pattern; *p && !rc; p++) {
        bool literal =
            *p == '\\' ? p[1] && strchr(".-_/", p[1]) : !strchr("(.[{?*+|^$", *p);
        const char *next = *p == '\\' ? p + 2 : p + 1;
        if (!literal || (*next && strchr("?*{+|", *next)))
            break;
        p += *p == '\\';
        rc = tu_buf_add(&b, p, 1, err);
    }
    l->literal = b.n;
    l->prefix = tu_buf_take(&b);
    return rc;
}

static int parse_line(struct tui_line *l, const char *pattern, const char *target,
                      const char *transform, struct tu_err *err)
{
    int rc = tui_map_words(transform, strlen(transform), &l->transform, &l->cond, err);
    if (!rc)
        rc = tu_pattern_new(&l->pattern, pattern, TU_PATTERN_WHOLE, err);
    /* A top-level choice would make the literal beginning a lie. */
    if (!rc)
        rc = strchr(pattern, '|') && !strchr(pattern, '(')
                 ? tu_fail(err, TU_EFORMAT, "put '|' inside parentheses")
                 : set_prefix(l, pattern, err);
    if (rc || l->transform & TU_MAP_DROP)
        return rc;
    if ((rc = set_roles(l, pattern, target, err)) || l->transform & TU_MAP_READ)
        return rc;
    struct tu_buf b = {0};
    bool ok = false;
    rc = turn(pattern, &b, &ok, err);
    if (!rc && !ok)
        rc = tu_fail(err, TU_EFORMAT,
                     "the pattern cannot be turned into a name: add 'read'");
    l->templ = rc ? NULL : tu_buf_take(&b);
    tu_buf_release(&b);
    return rc;
}

static void line_release(struct tui_line *l)
{
    tu_pattern_free(l->pattern);
    tu_free(l->prefix);
    tu_free(l->templ);
    for (unsigned k = 0; k < TU_MAP_ROLES; k++) {
        tu_free(l->role[k].target);
        tu_pattern_free(l->role[k].inverse);
    }
}

void tu_map_free(struct tu_map *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++)
        line_release(&m->line[i]);
    tu_free(m->line);
    tu_free(m->name);
    tu_free(m);
}

static int add_line(struct tu_map *m, char *text, unsigned number, struct tu_err *err)
{
    char *target = strchr(text, '\t'),
         *transform = target ? strchr(target + 1, '\t') : NULL;
    if (!transform)
        return tu_fail(err, TU_EFORMAT, "line %u: not PATTERN TAB TARGET TAB TRANSFORM",
                       number);
    *target++ = 0;
    *transform++ = 0;
    int rc = TU_GROW(&m->line, &m->cap, m->n, err);
    if (rc)
        return rc;
    struct tui_line *l = &m->line[m->n++];
    memset(l, 0, sizeof *l);
    rc = parse_line(l, text, target, transform, err);
    if (rc == TU_EFORMAT || rc == TU_EUSAGE) {
        tu_err_prefix(err, "line %u", number);
        rc = TU_EFORMAT;
    }
    return rc;
}

int tu_map_parse(struct tu_map **out, const char *name, const char *text,
                 struct tu_err *err)
{
    int rc = 0;
    unsigned number = 0;
    struct tu_map *m = tu_calloc(1, sizeof *m, err);
    if (!m || !(m->name = tu_strdup(name, err)))
        rc = TU_ENOMEM;
    for (const char *p = text; *p && !rc;) {
        size_t n = strcspn(p, "\n"), used = n;
        number++;
        while (used && (p[used - 1] == '\r' || p[used - 1] == ' '))
            used--;
        if (used && *p != '#') {
            struct tu_buf line = {0};
            rc = tu_buf_add(&line, p, used, err);
            if (!rc)
                rc = add_line(m, line.data, number, err);
            tu_buf_release(&line);
        }
        p += n + (p[n] == '\n');
    }
    if (rc) {
        tu_map_free(m);
        if (err && rc != TU_ENOMEM)
            tu_err_prefix(err, "%s", name);
        return rc;
    }
    *out = m;
    return 0;
}

int tu_map_prepend(struct tu_map *m, struct tu_map *more, struct tu_err *err)
{
    struct tui_line *line = tu_alloc(m->n + more->n + 1, sizeof *line, err);
    if (!line)
        return TU_ENOMEM;
    if (more->n)
        memcpy(line, more->line, more->n * sizeof *line);
    if (m->n)
        memcpy(line + more->n, m->line, m->n * sizeof *line);
    tu_free(m->line);
    m->line = line;
    m->n += more->n;
    m->cap = m->n + 1;
    more->n = 0;
    return 0;
}
