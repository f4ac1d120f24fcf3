/* SPDX-License-Identifier: Apache-2.0 */
/* help.c: --help, --version, --list and --dump-options, all from the tables. */
#include <stdio.h>
#include <string.h>
#include "common/front.h"

#define HELP_COLUMN 30

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
    if (n > HELP_COLUMN - 2)
        tu_print(ctx, "%s\n%*s%s\n", left, HELP_COLUMN, "", o->help);
    else
        tu_print(ctx, "%-*s%s\n", HELP_COLUMN, left, o->help);
}

static void print_subs(struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    tu_print(ctx, "\nSubcommands:\n");
    for (size_t i = 0; cmd->subs[i]; i++)
        tu_print(ctx, "  %-*s%s%s\n", HELP_COLUMN - 2, cmd->subs[i]->name,
                 cmd->subs[i]->summary,
                 cmd->subs[i] == cmd->fallback ? " (the default)" : "");
}

static void print_listings(struct tu_ctx *ctx, const struct tu_listing *l)
{
    for (; l && l->name; l++)
        tu_print(ctx, "  --list=%-*s%s\n", HELP_COLUMN - 9, l->name, l->help);
}

void tu_help(struct tu_ctx *ctx, tu_opt_tables tables)
{
    struct tu_buf text = {0};
    const struct tu_cmd *cmd = ctx->cmd;
    ctx->plain = true;
    tu_usage_lines(&text, ctx->top, cmd);
    tu_print(ctx, "%.*s%s.\n", (int)text.n, text.n ? text.data : "", cmd->summary);
    tu_buf_release(&text);
    if (cmd->subs)
        print_subs(ctx, cmd);
    if (cmd->listings || ctx->top->listings)
        tu_print(ctx, "\nTables:\n");
    print_listings(ctx, cmd->listings);
    if (cmd != ctx->top)
        print_listings(ctx, ctx->top->listings);
    bool common = false;
    for (; *tables; tables++)
        for (const struct tu_opt *o = *tables; o->type != TU_OPT_END; o++) {
            if (o == *tables && tu_is_common(o) != common) {
                tu_print(ctx, "\nCommon options:\n");
                common = true;
            } else if (o == *tables) {
                tu_print(ctx, "\nOptions:\n");
            }
            print_option(ctx, o);
        }
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
    const struct tu_listing *both[] = {ctx->cmd->listings, ctx->top->listings};
    for (size_t i = 0; i < 2; i++)
        for (const struct tu_listing *l = both[i]; l && l->name; l++)
            if (!*name || !strcmp(l->name, name))
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
    const struct tu_listing *both[] = {ctx->cmd->listings, ctx->top->listings};
    if (ctx->top->subs)
        tu_print(ctx, "subcommands\twhat %s does\n", ctx->top->name);
    for (size_t i = ctx->cmd == ctx->top; i < 2; i++)
        for (const struct tu_listing *l = both[i]; l && l->name; l++)
            tu_print(ctx, "%s\t%s\n", l->name, l->help);
    return 0;
}

int tu_list(struct tu_ctx *ctx, const char *table)
{
    const struct tu_cmd *const *subs = ctx->cmd->subs ? ctx->cmd->subs : NULL;
    ctx->plain = true;
    if (!strcmp(table, "subcommands"))
        subs = ctx->top->subs;
    if (subs && (!*table || !strcmp(table, "subcommands"))) {
        for (; *subs; subs++)
            tu_print(ctx, "%s\t%s\n", (*subs)->name, (*subs)->summary);
        return 0;
    }
    if (!strcmp(table, "tables"))
        return print_table_names(ctx);
    const struct tu_listing *l = find_listing(ctx, table);
    l = l ? l : find_below(ctx, table);
    if (!l)
        return tu_usage(ctx, "no table is called '%s'; --list=tables names them", table);
    const char *name, *help;
    for (size_t i = 0; (name = l->row(i, &help)); i++)
        tu_print(ctx, "%s\t%s\n", name, help);
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
