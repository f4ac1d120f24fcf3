/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: see names.h. */
#include "common/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "common/front.h"

/* Does a word of n bytes name the table? "layout": layouts, "hash": hashes, "family": families,
 * "keep": keep. */
static bool is_table(const char *word, size_t n, const char *table)
{
    static const char *const plural[] = {"", "s", "es"};
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)word[i]) != table[i])
            return n > 1 && i == n - 1 && tolower((unsigned char)word[i]) == 'y' &&
                   !strcmp(table + i, "ies");
    for (size_t i = 0; i < sizeof plural / sizeof *plural; i++)
        if (n && !strcmp(table + n, plural[i]))
            return true;
    return false;
}

static const char *dtype_row(size_t i, const char **help)
{
    static char text[128];
    const struct tu_dtype *d = tu_dtype_row(i);
    const char *other;
    uint32_t code;
    if (!d)
        return NULL;
    int n = d->code & TU_DTYPE_GGML
                ? snprintf(text, sizeof text, "%u elements in %u bytes", d->block_elems,
                           d->block_bytes)
                : snprintf(text, sizeof text, "%u bits", d->block_bytes * 8u / d->block_elems);
    const char *between = "; also ";
    for (size_t k = 0; (other = tu_dtype_other(k, &code)); k++)
        if (code == d->code && n < (int)sizeof text) {
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", between, other);
            between = ", ";
        }
    *help = text;
    return d->name;
}

static const struct tu_listing dtypes = {"dtypes", "types of elements", dtype_row, NULL};

static bool takes_dtypes(const struct tu_opt *o)
{
    for (; o && o->type != TU_OPT_END; o++)
        if (o->type == TU_OPT_DTYPE || (o->arg && strstr(o->arg, "DTYPE")))
            return true;
    return false;
}

/* A command that has subcommands lists what they take. */
static bool shows_dtypes(const struct tu_cmd *cmd)
{
    bool shows = takes_dtypes(cmd->opts) || takes_dtypes(cmd->shared);
    for (size_t i = 0; !shows && cmd->subs && cmd->subs[i]; i++)
        shows = shows_dtypes(cmd->subs[i]);
    return shows;
}

static size_t count(const struct tu_listing *l)
{
    size_t n = 0;
    while (l && l[n].name)
        n++;
    return n;
}

const struct tu_listing *tu_listing_nth(const struct tu_cmd *top, const struct tu_cmd *cmd,
                                        size_t i)
{
    const struct tu_listing *all = cmd->listings == top->listings ? NULL : top->listings;
    const size_t own = count(cmd->listings), more = count(all);
    if (i < own + more)
        return i < own ? &cmd->listings[i] : &all[i - own];
    return i == own + more && shows_dtypes(cmd) ? &dtypes : NULL;
}

static const struct tu_listing *find(const struct tu_cmd *top, const struct tu_cmd *cmd,
                                     const char *word, size_t n)
{
    const struct tu_listing *l;
    for (size_t i = 0; (l = tu_listing_nth(top, cmd, i)); i++)
        if (is_table(word, n, l->name))
            return l;
    return NULL;
}

static bool is(const char *word, size_t n, const char *text)
{
    return strlen(text) == n && !memcmp(word, text, n);
}

/* One alternative, n bytes. */
static void add(struct tu_names *out, const struct tu_cmd *top, const struct tu_cmd *cmd,
                const char *word, size_t n)
{
    size_t upper = 0;
    while (upper < n && word[upper] >= 'A' && word[upper] <= 'Z')
        upper++;
    const struct tu_listing *l = NULL;
    if (upper && (upper == n || word[upper] == '[' || word[upper] == ':'))
        l = find(top, cmd, word, upper);
    out->dtypes |= l == &dtypes;
    if (l && out->tables < TU_NAMES_MAX)
        out->table[out->tables++] = l;
    else if (is(word, n, "RATE"))
        out->rates = true;
    else if (n && strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-_") >= n &&
             n < sizeof out->literal[0] && out->literals < TU_NAMES_MAX)
        snprintf(out->literal[out->literals++], sizeof out->literal[0], "%.*s", (int)n, word);
    else
        out->open = true;
}

void tu_names_of(struct tu_names *out, const struct tu_cmd *top, const struct tu_cmd *cmd,
                 const char *word)
{
    *out = (struct tu_names){.open = !word};
    if (word && *word == '[' && strchr(word, ']')) { /* [REGEX=]DTYPE */
        word = strchr(word, ']') + 1;
        out->open = true;
    }
    for (const char *end; word; word = *end ? end + 1 : NULL) {
        end = word + strcspn(word, "|");
        add(out, top, cmd, word, (size_t)(end - word));
    }
}

const struct tu_listing *tu_names_operand(const struct tu_cmd *top, const struct tu_cmd *cmd)
{
    const char *p = cmd->usage && cmd->flags & TU_CMD_WORDS ? cmd->usage[0] : NULL;
    while (p && (p = strchr(p, '['))) {
        p++;
        const struct tu_listing *l = find(top, cmd, p, strcspn(p, " ]"));
        if (l)
            return l;
    }
    return NULL;
}

/* Name i of all that there are; rows called GROUP/NAME are known by their names. */
static const char *nth(const void *ctx, size_t i)
{
    const struct tu_names *names = ctx;
    const char *help, *name;
    for (size_t t = 0; t < names->tables; t++)
        for (size_t r = 0; (name = names->table[t]->row(r, &help)); r++)
            if (i-- == 0)
                return strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    return i < names->literals ? names->literal[i] : NULL;
}

/* `value` up to its keys is one of the names, else TU_EUSAGE. */
static int check(const struct tu_names *names, const char *value, struct tu_err *err)
{
    const char *name;
    size_t n = strcspn(value, ":");
    char shown[88], word[64];
    if (names->open || (names->rates && isdigit((unsigned char)*value)))
        return 0;
    for (size_t i = 0; (name = nth(names, i)); i++)
        if (is(value, n, name))
            return 0;
    snprintf(word, sizeof word, "%.*s", (int)tu_min(n, 60), value);
    if (names->dtypes && tu_dtype_called(word))
        return 0;
    tu_fail(err, TU_EUSAGE, "'%s': no such name", tu_text_short(value, n, shown));
    for (size_t t = 0, used; err && t < names->tables; t++) {
        used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, "%s--list=%s%s", t ? ", " : " (",
                 names->table[t]->name, t + 1 < names->tables ? "" : ")");
    }
    tu_suggest(err, word, "", nth, names);
    return TU_EUSAGE;
}

static int check_option(const struct tu_names *names, const struct tu_opt *o,
                        struct tu_err *err)
{
    const bool many = o->flags & (TU_OPT_LIST | TU_OPT_EACH);
    const struct tu_list *list = many ? o->dest : NULL;
    int rc = 0;
    for (size_t i = 0; !rc && i < (many ? list->n : 1); i++) {
        const char *value = many ? TU_LIST(list, const char *)[i]
                            : o->type == TU_OPT_SPEC
                                ? ((const struct tu_spec *)o->dest)->name
                                : *(const char *const *)o->dest;
        rc = value ? check(names, value, err) : 0;
    }
    if (rc)
        tu_err_prefix(err, "--%s", o->name);
    return rc;
}

int tu_names_check(const struct tu_cmd *top, const struct tu_cmd *cmd, tu_opt_tables tables,
                   int operands, char **operand, struct tu_err *err)
{
    struct tu_names names;
    int rc = 0;
    for (; *tables; tables++)
        for (const struct tu_opt *o = *tables; !rc && o->type != TU_OPT_END; o++) {
            bool text = o->type == TU_OPT_STRING ||
                        (o->type == TU_OPT_SPEC && !(o->flags & (TU_OPT_LIST | TU_OPT_EACH)));
            if (!text || !o->arg || tu_is_common(o))
                continue;
            tu_names_of(&names, top, cmd, o->arg);
            rc = check_option(&names, o, err);
        }
    const struct tu_listing *l = tu_names_operand(top, cmd);
    names = (struct tu_names){.table = {l}, .tables = 1};
    for (int i = 0; l && !rc && i < operands; i++)
        rc = check(&names, operand[i], err);
    return rc;
}
