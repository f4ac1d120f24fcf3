/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c: the walk over argv. What a value means is opt_type.c's. */
#include "common/opt.h"

#include <stdio.h>
#include <string.h>
#include "common/opt_type.h"

struct walk {
    tu_opt_tables tables;
    int argc;
    char **argv;
    int i;      /* the argument at hand */
    bool apply; /* false: only find out which arguments are values */
    struct tu_err *err;
};

bool tu_opt_valued(const struct tu_opt *o)
{
    return tu_opt_row(o)->read != NULL;
}

const char *tu_opt_type_name(const struct tu_opt *o)
{
    return tu_opt_row(o)->name;
}

const char *tu_opt_arg(const struct tu_opt *o, char *buf, size_t n)
{
    if (o->arg)
        return o->arg;
    if (!o->choices)
        return tu_opt_row(o)->arg;
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; o->choices[i] && used < n; i++)
        used +=
            (size_t)snprintf(buf + used, n - used, "%s%s", i ? "|" : "", o->choices[i]);
    return buf;
}

/* Option number i over all tables, NULL past the end. */
static const struct tu_opt *nth(tu_opt_tables tables, size_t i)
{
    for (; *tables; tables++)
        for (const struct tu_opt *o = *tables; o->type != TU_OPT_END; o++)
            if (i-- == 0)
                return o;
    return NULL;
}

static const char *nth_name(const void *ctx, size_t i)
{
    const struct tu_opt *o = nth(ctx, i);
    return o ? o->name : NULL;
}

/* By long name of n bytes, or by letter where name is NULL. */
static const struct tu_opt *find(tu_opt_tables tables, const char *name, size_t n,
                                 int letter)
{
    const struct tu_opt *o;
    for (size_t i = 0; (o = nth(tables, i)); i++)
        if (name ? strlen(o->name) == n && !memcmp(o->name, name, n)
                 : o->shortname == letter)
            return o;
    return NULL;
}

static int add_value(const struct tu_opt *o, const char *text, struct tu_err *err)
{
    const struct tu_opt_row *row = tu_opt_row(o);
    struct tu_list *list = o->dest;
    int rc = tu_grow(&list->v, &list->cap, list->n, row->size, err);
    if (rc)
        return rc;
    void *item = (char *)list->v + list->n * row->size;
    memset(item, 0, row->size);
    rc = row->read(o, text, item, err);
    if (!rc)
        list->n++;
    return rc;
}

/* The comma that ends the value, NULL: it is the last. What has '=' before any ':' is another key
 * of a spec. */
static char *end_of_value(const struct tu_opt *o, char *text)
{
    char *comma = strchr(text, ',');
    while (comma && o->flags & TU_OPT_SPECS && comma[1 + strcspn(comma + 1, "=:,")] == '=')
        comma = strchr(comma + 1, ',');
    return comma;
}

/* Values between commas. Strings keep a pointer into argv, so the commas become ends. */
static int add_values(const struct tu_opt *o, char *text, struct tu_err *err)
{
    int rc = 0;
    while (!rc) {
        char *comma = end_of_value(o, text);
        if (comma)
            *comma = '\0';
        if (!*text)
            return tu_fail(err, TU_EUSAGE, "an item of the list is empty");
        rc = add_value(o, text, err);
        if (!comma)
            break;
        text = comma + 1;
    }
    return rc;
}

static int set(struct walk *w, const struct tu_opt *o, char *value, bool negated)
{
    int rc = 0;
    if (!w->apply)
        return 0;
    if (o->type == TU_OPT_FLAG) {
        *(bool *)o->dest = !negated;
    } else if (o->type == TU_OPT_COUNT) {
        ++*(unsigned *)o->dest;
    } else if (negated) {
        int last = 0;
        while (o->choices[last + 1])
            last++;
        *(int *)o->dest = last;
    } else if (!value) {
        if (o->type == TU_OPT_CHOICE)
            *(int *)o->dest = 0;
        else
            *(const char **)o->dest = "";
    } else if (o->flags & (TU_OPT_LIST | TU_OPT_SPECS)) {
        rc = add_values(o, value, w->err);
    } else if (o->flags & TU_OPT_EACH) {
        rc = add_value(o, value, w->err);
    } else {
        rc = tu_opt_row(o)->read(o, value, o->dest, w->err);
    }
    if (rc)
        tu_err_prefix(w->err, "--%s", o->name);
    return rc;
}

/* The value in the next argument. */
static int next_value(struct walk *w, const struct tu_opt *o, char **value)
{
    if (w->i + 1 >= w->argc)
        return tu_fail(w->err, TU_EUSAGE, "option '--%s' needs a value", o->name);
    *value = w->argv[++w->i];
    return 0;
}

/* A value that may be left out stands behind "="; one in the next argument would be taken
 * for an operand. */
static int not_apart(const struct walk *w, const struct tu_opt *o)
{
    const char *next = w->i + 1 < w->argc ? w->argv[w->i + 1] : NULL;
    for (const char *const *c = o->choices; next && o->type == TU_OPT_CHOICE && *c; c++)
        if (!strcmp(*c, next))
            return tu_fail(w->err, TU_EUSAGE,
                           "option '--%s' takes its value after '=': --%s=%s; a file of "
                           "this name is ./%s",
                           o->name, o->name, next, next);
    return 0;
}

static int unknown_long(struct walk *w, const char *name, size_t n)
{
    char text[88], near[64];
    tu_fail(w->err, TU_EUSAGE, "unknown option '--%s'", tu_text_short(name, n, text));
    snprintf(near, sizeof near, "%.*s", (int)(n < 60 ? n : 60), name);
    tu_suggest(w->err, near, "--", nth_name, w->tables);
    return TU_EUSAGE;
}

static int long_option(struct walk *w)
{
    char *name = w->argv[w->i] + 2, *value = strchr(name, '=');
    size_t n = value ? (size_t)(value++ - name) : strlen(name);
    const struct tu_opt *o = find(w->tables, name, n, 0);
    bool negated = false;
    if (!o && n > 3 && !memcmp(name, "no-", 3)) {
        o = find(w->tables, name + 3, n - 3, 0);
        if (o && !(o->flags & TU_OPT_NEGATABLE))
            o = NULL;
        negated = o != NULL;
    }
    if (!o)
        return unknown_long(w, name, n);
    bool valued = tu_opt_valued(o) && !negated;
    if (value && !valued)
        return tu_fail(w->err, TU_EUSAGE, "option '--%.*s' takes no value", (int)n, name);
    if (valued && !value) {
        int rc = o->flags & TU_OPT_MAYBE ? not_apart(w, o) : next_value(w, o, &value);
        if (rc)
            return rc;
    }
    return set(w, o, value, negated);
}

static int short_options(struct walk *w)
{
    for (char *p = w->argv[w->i] + 1; *p; p++) {
        const struct tu_opt *o = find(w->tables, NULL, 0, (unsigned char)*p);
        if (!o)
            return tu_fail(w->err, TU_EUSAGE, "unknown option '-%c'", *p);
        char *value = NULL;
        bool valued = tu_opt_valued(o) && !(o->flags & TU_OPT_MAYBE);
        if (valued && p[1]) {
            value = p + 1;
        } else if (valued) {
            int rc = next_value(w, o, &value);
            if (rc)
                return rc;
        }
        int rc = set(w, o, value, false);
        if (rc || value)
            return rc;
    }
    return 0;
}

/* An argument that is an option with its value, or false for an operand. */
static bool is_option(const char *arg)
{
    return arg[0] == '-' && arg[1];
}

int tu_opt_parse(tu_opt_tables tables, int *argc, char **argv, struct tu_err *err)
{
    struct walk w = {tables, *argc, argv, 1, true, err};
    int operands = 0;
    bool ended = false;
    for (; w.i < w.argc; w.i++) {
        char *arg = argv[w.i];
        int rc = 0;
        if (ended || !is_option(arg))
            argv[operands++] = arg;
        else if (!strcmp(arg, "--"))
            ended = true;
        else
            rc = arg[1] == '-' ? long_option(&w) : short_options(&w);
        if (rc)
            return rc;
    }
    *argc = operands;
    argv[operands] = NULL; /* at most argc, where main's own NULL stands */
    return 0;
}

int tu_opt_operand(tu_opt_tables tables, int argc, char **argv)
{
    struct walk w = {tables, argc, argv, 1, false, NULL};
    for (; w.i < argc; w.i++) {
        const char *arg = argv[w.i];
        if (!strcmp(arg, "--"))
            return w.i + 1 < argc ? w.i + 1 : 0;
        if (!is_option(arg))
            return w.i;
        /* What is unknown here is reported by the real parse. */
        int rc = arg[1] == '-' ? long_option(&w) : short_options(&w);
        (void)rc;
    }
    return 0;
}
