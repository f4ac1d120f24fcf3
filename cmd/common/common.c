/* SPDX-License-Identifier: Apache-2.0 */
/* common.c: the options that every command has. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/front.h"
#include "common/names.h"

struct tu_ctx tu_ctx_only = {.output = "-", .device = "cpu"};
struct tu_common tu_common = {.completion = -1, .progress = 1 /* auto */, .color = 1};

static const char *const whens[] = {"always", "auto", "never", NULL};
enum { ALWAYS, AUTO, NEVER };

static const struct tu_opt block[] = {
    {'h', "help", NULL, "show this help", TU_OPT_FLAG, &tu_common.help, NULL, 0},
    {'V', "version", NULL, "show the version and what was built in", TU_OPT_FLAG,
     &tu_common.version, NULL, 0},
    {'o', "output", NULL, "write to FILE instead of standard output", TU_OPT_FILE_OUT,
     &tu_ctx_only.output, NULL, 0},
    {'f', "force", NULL, "replace an output directory; binary to a terminal", TU_OPT_FLAG,
     &tu_ctx_only.force, NULL, 0},
    {'j', "threads", NULL, "use N threads; 0: all CPUs", TU_OPT_U64, &tu_ctx_only.threads,
     NULL, 0},
    {'q', "quiet", NULL, "no warnings", TU_OPT_COUNT, &tu_ctx_only.quiet, NULL, 0},
    {'v', "verbose", NULL, "more messages; repeatable", TU_OPT_COUNT,
     &tu_ctx_only.verbose, NULL, 0},
    {0, "json", NULL, "report as JSON", TU_OPT_FLAG, &tu_common.json, NULL, 0},
    {0, "format", NULL, "form of the report", TU_OPT_CHOICE, &tu_common.format, NULL, 0},
    {0, "report", NULL, "write the JSON report to FILE", TU_OPT_FILE_OUT,
     &tu_ctx_only.report, NULL, 0},
    {0, "progress", NULL, "show a progress bar", TU_OPT_CHOICE, &tu_common.progress,
     whens, TU_OPT_MAYBE | TU_OPT_NEGATABLE},
    {0, "color", NULL, "use colours", TU_OPT_CHOICE, &tu_common.color, whens,
     TU_OPT_MAYBE},
    {0, "seed", NULL, "seed of all randomness; default 0", TU_OPT_U64, &tu_ctx_only.seed,
     NULL, 0},
    {0, "device", NULL, "where to compute; default cpu", TU_OPT_DEVICE,
     &tu_ctx_only.device, NULL, 0},
    {0, "list", "TABLE", "list the tables, or what there is to choose from in one", TU_OPT_STRING,
     &tu_common.list, NULL, TU_OPT_MAYBE},
    {0, "completion", NULL, "print a completion script", TU_OPT_CHOICE,
     &tu_common.completion, tu_shells, TU_OPT_HIDDEN},
    {0, "dump-options", NULL, "print the option table", TU_OPT_FLAG, &tu_common.dump,
     NULL, TU_OPT_HIDDEN},
    {0},
};
#define BLOCK (sizeof block / sizeof *block)
#define FORMATS_MAX 16

/* The block for one command; filled anew by each tu_tables_of. */
static struct tu_opt kept[BLOCK];
static const char *formats[FORMATS_MAX];

void tu_tables_of(const struct tu_cmd *top, const struct tu_cmd *cmd,
                  const struct tu_opt *tables[TU_TABLES_MAX])
{
    size_t n = 0, f = 0;
    formats[f++] = "text";
    formats[f++] = "json";
    for (size_t i = 0; cmd->formats && cmd->formats[i] && f < FORMATS_MAX - 1; i++)
        formats[f++] = cmd->formats[i];
    formats[f] = NULL;
    for (const struct tu_opt *o = block; o->type != TU_OPT_END; o++) {
        if (!strcmp(o->name, "list") && !top->subs && !tu_listing_nth(top, cmd, 0))
            continue; /* nothing to list */
        kept[n] = *o;
        if (!strcmp(o->name, "format"))
            kept[n].choices = formats;
        n++;
    }
    kept[n] = (struct tu_opt){0};
    n = 0;
    if (cmd->opts)
        tables[n++] = cmd->opts;
    if (cmd->shared)
        tables[n++] = cmd->shared;
    tables[n++] = kept;
    tables[n] = NULL;
}

bool tu_is_common(const struct tu_opt *o)
{
    return o >= kept && o < kept + BLOCK;
}

static bool want_color(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (tu_common.color != AUTO)
        return tu_common.color == ALWAYS;
    return isatty(STDOUT_FILENO) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

void tu_common_apply(struct tu_ctx *ctx)
{
    ctx->format = tu_common.json ? "json" : formats[tu_common.format];
    ctx->json = !strcmp(ctx->format, "json");
    ctx->color = want_color();
    if (tu_common.progress == ALWAYS ||
        (tu_common.progress == AUTO && isatty(STDERR_FILENO)))
        tu_progress_begin(ctx, tu_common.progress == ALWAYS);
}

bool tu_streams(const struct tu_ctx *ctx)
{
    const struct tu_cmd *cmd = ctx->cmd;
    return cmd->flags & (TU_CMD_STREAM | TU_CMD_DOCUMENT) && !(cmd->text && *cmd->text);
}
