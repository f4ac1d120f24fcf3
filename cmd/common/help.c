/* SPDX-License-Identifier: Apache-2.0 */
/* help.c: --help, --version, --list and --dump-options, all from the tables. */
#include <stdio.h>
#include <string.h>
#include "common/front.h"
#include "common/names.h"

enum { HELP_COLUMN = 30, LINE_WIDTH = 90 };

void tu_usage_lines(struct tu_buf *out, const struct tu_cmd *top,
                    const struct tu_cmd *cmd)
{
    static const char *const plain[] = {"[option ...]", NULL};
    static const char *const with_subs[] = {"subcommand [option ...] [operand ...]",
                                            NULL};
    const char *const *line = cmd->usage ? cmd->usage : cmd->subs ? with_subs : plain;
    for (size_t i = 0; line[i]; i++) {
        int rc =
            tu_buf_printf(out, NULL, "%s%s%s%s%s%s\n",
                          i ? "   or: " : "Usage: ", top->name, cmd == top ? "" : " ",
                          cmd == top ? "" : cmd->name, *line[i] ? " " : "", line[i]);
        if (rc)
            return;
    }
}

/* `left`, and from HELP_COLUMN on the help, broken between words at LINE_WIDTH. `more`: further
 * text in parentheses, or NULL. */
static void two_columns(struct tu_ctx *ctx, const char *left, const char *help,
                        const char *more)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s%s%s", help, more ? " (" : "", more ? more : "",
             more ? ")" : "");
    bool full = strlen(left) > HELP_COLUMN - 2;
    tu_print(ctx, "%-*s%s", full ? 0 : HELP_COLUMN, left, full ? "\n" : "");
    for (const char *p = text; *p;) {
        size_t n = strlen(p), fit = n;
        if (n > LINE_WIDTH - HELP_COLUMN)
            for (fit = LINE_WIDTH - HELP_COLUMN; fit > 1 && p[fit] != ' ';)
                fit--;
        if (p != text || full)
            tu_print(ctx, "%*s", HELP_COLUMN, "");
        tu_print(ctx, "%.*s\n", (int)fit, p);
        p += fit + (p[fit] == ' ');
    }
}

static void print_option(struct tu_ctx *ctx, const struct tu_opt *o)
{
    char words[128], left[192];
    if (o->flags & TU_OPT_HIDDEN)
        return;
    int n = o->shortname ? snprintf(left, sizeof left, "  -%c, ", o->shortname)
                         : snprintf(left, sizeof left, "      ");
    n += snprintf(left + n, sizeof left - (size_t)n, "--%s%s",
                  o->flags & TU_OPT_NEGATABLE ? "[no-]" : "", o->name);
    if (tu_opt_valued(o))
        n += snprintf(left + n, sizeof left - (size_t)n,
                      o->flags & TU_OPT_MAYBE ? "[=%s]" : " %s",
                      tu_opt_arg(o, words, sizeof words));
    two_columns(ctx, left, o->help, NULL);
}

static void print_subs(struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    char left[64];
    tu_print(ctx, "\nSubcommands:\n");
    for (size_t i = 0; cmd->subs[i]; i++) {
        snprintf(left, sizeof left, "  %s", cmd->subs[i]->name);
        two_columns(ctx, left, cmd->subs[i]->summary,
                    cmd->subs[i] == cmd->fallback ? "the default" : NULL);
    }
}

static const struct tu_listing *nth_listing(const struct tu_ctx *ctx, size_t i)
{
    return tu_listing_nth(ctx->top, ctx->cmd, i);
}

static void print_listings(struct tu_ctx *ctx)
{
    char left[64];
    const struct tu_listing *l;
    for (size_t i = 0; (l = nth_listing(ctx, i)); i++) {
        tu_print(ctx, "%s", i ? "" : "\nTables:\n");
        snprintf(left, sizeof left, "  --list=%s", l->name);
        two_columns(ctx, left, l->help, NULL);
    }
}

static void print_options(struct tu_ctx *ctx, tu_opt_tables tables)
{
    const char *title = "Options";
    for (; *tables; tables++)
        for (const struct tu_opt *o = *tables; o->type != TU_OPT_END; o++) {
            if (o == *tables && tu_is_common(o))
                title = "Common options";
            if (title)
                tu_print(ctx, "\n%s:\n", title);
            title = NULL;
            print_option(ctx, o);
        }
}

void tu_help(struct tu_ctx *ctx, tu_opt_tables tables)
{
    struct tu_buf text = {0};
    const struct tu_cmd *cmd = ctx->cmd;
    ctx->plain = true;
    tu_usage_lines(&text, ctx->top, cmd);
    tu_print(ctx, "%.*s%s.\n", (int)text.n, text.n ? text.data : "", cmd->summary);
    tu_buf_release(&text);
    if (cmd->example)
        tu_print(ctx, "\nExample: %s\n", cmd->example);
    if (cmd->subs)
        print_subs(ctx, cmd);
    print_listings(ctx);
    print_options(ctx, tables);
    tu_print(ctx, "\nExit status: 0 done (yes), 1 the answer is no, 2 usage, 3 bad data, "
                  "4 system.\n");
}

void tu_version(struct tu_ctx *ctx)
{
    char bits[512];
    ctx->plain = true;
    tu_print(ctx, "%s (tensorutils) %s\n", ctx->top->name, TU_VERSION);
    tu_print(ctx, "tensor stream: 1\n");
    tu_cpu_text(tu_cpu_bits(), bits, sizeof bits);
    tu_print(ctx, "cpu: %s\n", *bits ? bits : "no vector units in use");
    tu_print(ctx, "plug-ins:");
    const char *name;
    for (size_t i = 0; (name = tu_plugin_name(i)); i++)
        tu_print(ctx, " %s", name);
    tu_print(ctx, "%s\n", tu_plugin_name(0) ? "" : " none");
}

static const struct tu_listing *find_listing(const struct tu_ctx *ctx, const char *name)
{
    const struct tu_listing *l;
    for (size_t i = 0; (l = nth_listing(ctx, i)); i++)
        if (!strcmp(l->name, name))
            return l;
    return NULL;
}

/* The same of any subcommand, where none is named. */
static const struct tu_listing *find_below(const struct tu_ctx *ctx, const char *name)
{
    const struct tu_cmd *const *subs = ctx->cmd->subs;
    for (; subs && *subs; subs++)
        for (const struct tu_listing *l = (*subs)->listings; l && l->name; l++)
            if (!strcmp(l->name, name))
                return l;
    return NULL;
}

static int print_table_names(struct tu_ctx *ctx)
{
    if (ctx->top->subs)
        tu_print(ctx, "subcommands\twhat %s does\n", ctx->top->name);
    const struct tu_listing *l;
    for (size_t i = 0; (l = nth_listing(ctx, i)); i++)
        tu_print(ctx, "%s\t%s\n", l->name, l->help);
    return 0;
}

static const char *nth_table(const void *c, size_t i)
{
    const struct tu_listing *l = nth_listing(c, i);
    return l ? l->name : NULL;
}

static int no_table(struct tu_ctx *ctx, const char *table)
{
    struct tu_err err;
    tu_fail(&err, TU_EUSAGE, "no table is called '%.60s' (--list=tables)", table);
    tu_suggest(&err, table, "", nth_table, ctx);
    return tu_error(ctx, &err);
}

static void print_table(struct tu_ctx *ctx, const struct tu_listing *l)
{
    const char *name, *help, *key;
    for (size_t i = 0; (name = l->row(i, &help)); i++) {
        tu_print(ctx, "%s\t%s", name, help);
        for (size_t k = 0; l->key && (key = l->key(i, k)); k++)
            tu_print(ctx, "%s%s", k ? ", " : "; keys: ", key);
        tu_print(ctx, "\n");
    }
}

/* Without a table: which there are. */
int tu_list(struct tu_ctx *ctx, const char *table)
{
    const struct tu_cmd *const *subs = ctx->top->subs;
    ctx->plain = true;
    if (!*table || !strcmp(table, "tables"))
        return print_table_names(ctx);
    if (subs && !strcmp(table, "subcommands")) {
        for (; *subs; subs++)
            tu_print(ctx, "%s\t%s\n", (*subs)->name, (*subs)->summary);
        return 0;
    }
    const struct tu_listing *l = find_listing(ctx, table);
    l = l ? l : find_below(ctx, table);
    if (!l)
        return no_table(ctx, table);
    print_table(ctx, l);
    return 0;
}

static void dump(struct tu_ctx *ctx, const struct tu_cmd *cmd, bool common)
{
    const struct tu_opt *tables[TU_TABLES_MAX];
    char words[128];
    tu_tables_of(ctx->top, cmd, tables);
    for (size_t t = 0; tables[t]; t++)
        for (const struct tu_opt *o = tables[t]; o->type != TU_OPT_END; o++) {
            if (tu_is_common(o) && !common)
                continue;
            char letter[3] = {o->shortname ? '-' : '\0', (char)o->shortname, '\0'};
            const char *arg = tu_opt_valued(o) ? tu_opt_arg(o, words, sizeof words) : "";
            tu_print(ctx, "%s\t%s\t%s\t--%s%s\t%s\t%s\t%s%s\t%s\n",
                     cmd == ctx->top ? "" : cmd->name,
                     o->flags & TU_OPT_HIDDEN ? "hidden"
                     : tu_is_common(o)        ? "common"
                                              : "own",
                     letter, o->flags & TU_OPT_NEGATABLE ? "[no-]" : "", o->name, arg,
                     tu_opt_type_name(o),
                     o->flags & TU_OPT_LIST   ? "list"
                     : o->flags & TU_OPT_EACH ? "repeat"
                                              : "one",
                     o->flags & TU_OPT_MAYBE ? ",optional" : "", o->help);
        }
}

/* Columns: subcommand, own|common|hidden, -x, --name, value, type,
 * one|list|repeat[,optional], help. */
void tu_dump_options(struct tu_ctx *ctx)
{
    ctx->plain = true;
    dump(ctx, ctx->cmd, true);
    for (size_t i = 0; ctx->cmd->subs && ctx->cmd->subs[i]; i++)
        dump(ctx, ctx->cmd->subs[i], true);
}
