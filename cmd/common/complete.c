/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c: completion scripts for bash, zsh and fish, printed from the tables.
 *
 * What a value may be comes from its type (files), its choices, or the names that its
 * word stands for (names.h): tables are asked of the command when the user presses the key.
 * Rows called GROUP/NAME are offered as NAME. */
#include <stdio.h>
#include <string.h>
#include "common/front.h"
#include "common/names.h"

const char *const tu_shells[] = {"bash", "zsh", "fish", NULL};

/* How the values of an option are found. */
struct values {
    bool files;
    struct tu_buf words; /* separated by spaces */
    const char *table[TU_NAMES_MAX];
    size_t tables;
};

static void join(struct tu_buf *b, const char *word)
{
    int rc = tu_buf_printf(b, NULL, "%s%s", b->n ? " " : "", word);
    (void)rc; /* out of memory: a completion less */
}

static struct values values_of(const struct tu_cmd *top, const struct tu_cmd *cmd,
                               const struct tu_opt *o)
{
    struct values v = {0};
    struct tu_names names;
    tu_names_of(&names, top, cmd, o->choices                 ? NULL
                                  : o->type == TU_OPT_DTYPE ? "DTYPE"
                                                            : o->arg);
    for (size_t i = 0; i < names.tables; i++)
        v.table[v.tables++] = names.table[i]->name;
    for (size_t i = 0; i < names.literals; i++)
        join(&v.words, names.literal[i]);
    for (size_t i = 0; o->choices && o->choices[i]; i++)
        join(&v.words, o->choices[i]);
    if (o->type == TU_OPT_DEVICE)
        join(&v.words, "cpu cuda auto");
    if (!strcmp(o->name, "list") && tu_is_common(o))
        v.table[v.tables++] = "tables";
    v.files = !v.tables && !v.words.n &&
              (o->type == TU_OPT_FILE_IN || o->type == TU_OPT_FILE_OUT);
    return v;
}

static bool any(const struct values *v)
{
    return v->files || v->tables || v->words.n;
}

/* A function name: dashes become underscores. */
static const char *symbol(const char *name, char out[64])
{
    snprintf(out, 64, "%.63s", name);
    for (char *p = out; *p; p++)
        if (*p == '-')
            *p = '_';
    return out;
}

typedef void (*each_fn)(struct tu_ctx *ctx, const struct tu_cmd *cmd,
                        const struct tu_opt *o);

static void each_option(struct tu_ctx *ctx, const struct tu_cmd *cmd, each_fn fn)
{
    const struct tu_opt *tables[TU_TABLES_MAX];
    tu_tables_of(ctx->top, cmd == ctx->top && cmd->fallback ? cmd->fallback : cmd, tables);
    for (size_t t = 0; tables[t]; t++)
        for (const struct tu_opt *o = tables[t]; o->type != TU_OPT_END; o++)
            if (!(o->flags & TU_OPT_HIDDEN))
                fn(ctx, cmd, o);
}

/* The command itself, then its subcommands. */
static const struct tu_cmd *nth_cmd(const struct tu_cmd *top, size_t i)
{
    if (i == 0)
        return top;
    return top->subs ? top->subs[i - 1] : NULL;
}

/* Where a subcommand must come first, no file may. */
static bool takes_files(const struct tu_cmd *cmd)
{
    return !(cmd->flags & TU_CMD_WORDS) && (!cmd->subs || cmd->fallback);
}

static const char *sub_of(const struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    return cmd == ctx->top ? "" : cmd->name;
}

/* bash ------------------------------------------------------------------------------- */

/* $(…) that prints the names of a table. */
static void bash_table(struct tu_ctx *ctx, const struct tu_cmd *cmd, const char *table)
{
    tu_print(ctx, "$(\"$1\" %s --list=%s 2>/dev/null | sed 's,\\t.*,,; s,.*/,,')",
             sub_of(ctx, cmd), table);
}

static void bash_value(struct tu_ctx *ctx, const struct tu_cmd *cmd,
                       const struct tu_opt *o)
{
    if (!tu_opt_valued(o))
        return;
    struct values v = values_of(ctx->top, cmd, o);
    tu_print(ctx, "    %s:--%s", sub_of(ctx, cmd), o->name);
    if (o->shortname)
        tu_print(ctx, " | %s:-%c", sub_of(ctx, cmd), o->shortname);
    tu_print(ctx, ") ");
    if (o->flags & TU_OPT_MAYBE) /* after a space comes an operand */
        tu_print(ctx, "if [[ $behind ]]; then ");
    if (v.files)
        tu_print(ctx, "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")");
    else if (v.tables) {
        tu_print(ctx, "mapfile -t COMPREPLY < <(compgen -W \"");
        for (size_t i = 0; i < v.tables; i++) {
            bash_table(ctx, cmd, v.table[i]);
            tu_print(ctx, " ");
        }
        tu_print(ctx, "%s\" -- \"$cur\")", v.words.n ? v.words.data : "");
    } else if (v.words.n)
        tu_print(ctx, "mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")",
                 v.words.data);
    tu_print(ctx, any(&v) ? "; return" : "return");
    tu_print(ctx, o->flags & TU_OPT_MAYBE ? "; fi ;;\n" : " ;;\n");
    tu_buf_release(&v.words);
}

static void bash_word(struct tu_ctx *ctx, const struct tu_cmd *cmd,
                      const struct tu_opt *o)
{
    (void)cmd;
    const bool needs = tu_opt_valued(o) && !(o->flags & TU_OPT_MAYBE);
    tu_print(ctx, " --%s%s", o->name, needs ? "=" : "");
    if (o->flags & TU_OPT_NEGATABLE)
        tu_print(ctx, " --no-%s", o->name);
}

/* What a command's words may be where no option wants a value: options, names, files. */
static void bash_words(struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    const struct tu_listing *operand = tu_names_operand(ctx->top, cmd);
    tu_print(ctx, "    %s) words='", cmd == ctx->top ? "''" : cmd->name);
    each_option(ctx, cmd, bash_word);
    tu_print(ctx, "' files='%s' names=\"", takes_files(cmd) ? "y" : "");
    for (size_t s = 0; cmd->subs && cmd->subs[s]; s++)
        tu_print(ctx, "%s%s", s ? " " : "", cmd->subs[s]->name);
    if (operand)
        bash_table(ctx, cmd, operand->name);
    tu_print(ctx, "\" ;;\n");
}

static void bash_subs(struct tu_ctx *ctx)
{
    const struct tu_cmd *const *subs = ctx->top->subs;
    if (!subs)
        return;
    tu_print(ctx, "    for ((i = 1; i < COMP_CWORD; i++)); do\n        case "
                  "${COMP_WORDS[i]} in\n       ");
    for (size_t i = 0; subs[i]; i++)
        tu_print(ctx, "%s %s", i ? " |" : "", subs[i]->name);
    tu_print(ctx, ") sub=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n");
}

static void bash(struct tu_ctx *ctx)
{
    char fn[64];
    const struct tu_cmd *cmd;
    symbol(ctx->top->name, fn);
    tu_print(ctx,
             "# bash completion for %s, printed by %s --completion=bash\n"
             "# shellcheck shell=bash\n_%s()\n{\n",
             ctx->top->name, ctx->top->name, fn);
    /* bash splits --name=value into three words. */
    tu_print(ctx,
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
             "    local sub='' words='' names='' files='' behind=''%s\n"
             "    if [[ $cur == = ]]; then cur='' behind=1\n"
             "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]} behind=1\n"
             "    elif [[ $cur == : || $prev == : ]]; then return\n" /* keys of a name */
             "    fi\n",
             ctx->top->subs ? " i" : "");
    bash_subs(ctx);
    tu_print(ctx, "    case $sub:$prev in\n");
    for (size_t i = 0; (cmd = nth_cmd(ctx->top, i)); i++)
        each_option(ctx, cmd, bash_value);
    tu_print(ctx, "    esac\n    case $sub in\n");
    for (size_t i = 0; (cmd = nth_cmd(ctx->top, i)); i++)
        bash_words(ctx, cmd);
    tu_print(ctx, "    esac\n"
                  "    if [[ $cur == -* ]]; then\n"
                  "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                  "        compopt +o filenames\n" /* which quotes '=' */
                  "        [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace\n"
                  "        return\n    fi\n"
                  "    mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$cur\")\n"
                  "    [[ -z $files ]] || mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY "
                  "< <(compgen -f -- \"$cur\")\n");
    tu_print(ctx, "}\ncomplete -o filenames -F _%s %s\n", fn, ctx->top->name);
}

/* zsh -------------------------------------------------------------------------------- */

/* Inside '…[help]': quotes, brackets and colons are escaped. */
static void zsh_text(struct tu_ctx *ctx, const char *s)
{
    for (; *s; s++)
        if (*s == '\'')
            tu_print(ctx, "'\\''");
        else
            tu_print(ctx, strchr("[]:", *s) ? "\\%c" : "%c", *s);
}

/* {compadd …} inside the quotes of _arguments. */
static void zsh_table(struct tu_ctx *ctx, const struct tu_cmd *cmd, const char *table)
{
    tu_print(ctx,
             " ${${${(f)\"$(%s %s --list=%s 2>/dev/null)\"}%%%%$'\\''\\t'\\''*}##*/}",
             ctx->top->name, sub_of(ctx, cmd), table);
}

static void zsh_action(struct tu_ctx *ctx, const struct tu_cmd *cmd,
                       const struct tu_opt *o)
{
    struct values v = values_of(ctx->top, cmd, o);
    tu_print(ctx, "%s:value:", o->flags & TU_OPT_MAYBE ? ":" : "");
    if (v.files)
        tu_print(ctx, "_files");
    else if (v.tables) {
        tu_print(ctx, "{compadd -- %s", v.words.n ? v.words.data : "");
        for (size_t i = 0; i < v.tables; i++)
            zsh_table(ctx, cmd, v.table[i]);
        tu_print(ctx, "}");
    } else
        tu_print(ctx, "%s%s%s", v.words.n ? "(" : " ", v.words.n ? v.words.data : "",
                 v.words.n ? ")" : "");
    tu_buf_release(&v.words);
}

static void zsh_option(struct tu_ctx *ctx, const struct tu_cmd *cmd,
                       const struct tu_opt *o)
{
    bool valued = tu_opt_valued(o), maybe = o->flags & TU_OPT_MAYBE;
    for (int s = 0; s < 2; s++) {
        if (s == 0 && !o->shortname)
            continue;
        tu_print(ctx, "        '%s", o->flags & (TU_OPT_LIST | TU_OPT_EACH) ? "*" : "");
        if (s == 0)
            tu_print(ctx, "-%c%s", o->shortname, valued ? "+" : "");
        else
            tu_print(ctx, "--%s%s", o->name, maybe ? "=-" : valued ? "=" : "");
        tu_print(ctx, "[");
        zsh_text(ctx, o->help);
        tu_print(ctx, "]");
        if (valued)
            zsh_action(ctx, cmd, o);
        tu_print(ctx, "' \\\n");
    }
    if (o->flags & TU_OPT_NEGATABLE)
        tu_print(ctx, "        '--no-%s' \\\n", o->name);
}

static void zsh_one(struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    tu_print(ctx, "    _arguments -s -S \\\n");
    each_option(ctx, cmd, zsh_option);
    const struct tu_listing *operand = tu_names_operand(ctx->top, cmd);
    tu_print(ctx, "        '*:operand:");
    if (operand) {
        tu_print(ctx, "{compadd --");
        zsh_table(ctx, cmd, operand->name);
        tu_print(ctx, "}");
    }
    tu_print(ctx, "%s'\n", operand ? "" : takes_files(cmd) ? "_files" : " ");
}

static void zsh(struct tu_ctx *ctx)
{
    const struct tu_cmd *const *subs = ctx->top->subs;
    tu_print(ctx, "#compdef %s\n# zsh completion, printed by %s --completion=zsh\n",
             ctx->top->name, ctx->top->name);
    if (subs) {
        tu_print(ctx, "local sub word\nlocal -a subs=(\n");
        for (size_t i = 0; subs[i]; i++) {
            tu_print(ctx, "    '%s:", subs[i]->name);
            zsh_text(ctx, subs[i]->summary);
            tu_print(ctx, "'\n");
        }
        tu_print(ctx,
                 ")\nfor word in ${words[2,CURRENT-1]}; do\n"
                 "    if (( ${subs[(I)$word:*]} )); then sub=$word; break; fi\ndone\n"
                 "case $sub in\n");
        for (size_t i = 0; subs[i]; i++) {
            tu_print(ctx, "%s)\n    words=(${words:#$sub}); (( CURRENT-- ))\n",
                     subs[i]->name);
            zsh_one(ctx, subs[i]);
            tu_print(ctx, "    ;;\n");
        }
        tu_print(ctx,
                 "*)\n    [[ $words[CURRENT] == -* ]] || _describe subcommand subs\n");
    }
    zsh_one(ctx, ctx->top);
    if (subs)
        tu_print(ctx, "    ;;\nesac\n");
}

/* fish ------------------------------------------------------------------------------- */

static void fish_text(struct tu_ctx *ctx, const char *s)
{
    for (; *s; s++)
        tu_print(ctx, *s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
}

static void fish_condition(struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    if (cmd != ctx->top)
        tu_print(ctx, " -n '__fish_seen_subcommand_from %s'", cmd->name);
    else if (cmd->subs)
        tu_print(ctx, " -n __fish_use_subcommand");
}

/* (…) inside quotes: name, TAB, help. */
static void fish_table(struct tu_ctx *ctx, const struct tu_cmd *cmd, const char *table)
{
    tu_print(ctx, " (%s %s --list=%s 2>/dev/null | string replace -r \"^[^/\\t]*/\" \"\")",
             ctx->top->name, sub_of(ctx, cmd), table);
}

/* Operands that are names of a table, or no files. */
static void fish_operands(struct tu_ctx *ctx, const struct tu_cmd *cmd)
{
    const struct tu_listing *operand = tu_names_operand(ctx->top, cmd);
    if (takes_files(cmd))
        return;
    tu_print(ctx, "complete -c %s", ctx->top->name);
    fish_condition(ctx, cmd);
    tu_print(ctx, " -f");
    if (operand) {
        tu_print(ctx, " -a '");
        fish_table(ctx, cmd, operand->name);
        tu_print(ctx, "'");
    }
    tu_print(ctx, "\n");
}

static void fish_option(struct tu_ctx *ctx, const struct tu_cmd *cmd,
                        const struct tu_opt *o)
{
    tu_print(ctx, "complete -c %s", ctx->top->name);
    fish_condition(ctx, cmd);
    if (o->shortname)
        tu_print(ctx, " -s %c", o->shortname);
    tu_print(ctx, " -l %s", o->name);
    if (tu_opt_valued(o)) {
        struct values v = values_of(ctx->top, cmd, o);
        if (!(o->flags & TU_OPT_MAYBE))
            tu_print(ctx, v.files ? " -r -F" : " -x");
        if (v.words.n || v.tables)
            tu_print(ctx, " -a '%s", v.words.n ? v.words.data : "");
        for (size_t i = 0; i < v.tables; i++)
            fish_table(ctx, cmd, v.table[i]);
        if (v.words.n || v.tables)
            tu_print(ctx, "'");
        tu_buf_release(&v.words);
    }
    tu_print(ctx, " -d '");
    fish_text(ctx, o->help);
    tu_print(ctx, "'\n");
    if (o->flags & TU_OPT_NEGATABLE) {
        tu_print(ctx, "complete -c %s", ctx->top->name);
        fish_condition(ctx, cmd);
        tu_print(ctx, " -l no-%s\n", o->name);
    }
}

static void fish(struct tu_ctx *ctx)
{
    const struct tu_cmd *cmd, *const *subs = ctx->top->subs;
    tu_print(ctx, "# fish completion for %s, printed by %s --completion=fish\n",
             ctx->top->name, ctx->top->name);
    for (size_t i = 0; subs && subs[i]; i++) {
        tu_print(ctx, "complete -c %s -n __fish_use_subcommand -a %s -d '",
                 ctx->top->name, subs[i]->name);
        fish_text(ctx, subs[i]->summary);
        tu_print(ctx, "'\n");
    }
    for (size_t i = 0; (cmd = nth_cmd(ctx->top, i)); i++) {
        fish_operands(ctx, cmd);
        each_option(ctx, cmd, fish_option);
    }
}

void tu_complete(struct tu_ctx *ctx, int shell)
{
    static void (*const print[])(struct tu_ctx *) = {bash, zsh, fish};
    ctx->plain = true;
    print[shell](ctx);
}
