/* SPDX-License-Identifier: Apache-2.0 */
/* tns-import: tensor files of any format as a tensor stream, one segment per file. */
#include <inttypes.h>
#include <string.h>
#include "common/formats.h"
#include "common/main.h"

static struct {
    int from;
    struct tu_open open;
    bool contents, globals;
} opt = {.from = -1};

static const struct tu_opt options[] = {
    {0, "from", "FORMAT", "format of the files; default: by their contents", TU_OPT_CHOICE,
     &opt.from, tu_readable, 0},
    {0, "keep-header", NULL, "keep the header's text, so that tns-export restores every byte",
     TU_OPT_FLAG, &opt.open.keep_header, NULL, 0},
    {0, "skip-unreadable", NULL, "npz: leave out arrays that are no numbers, with a warning each",
     TU_OPT_FLAG, &opt.open.partial, NULL, 0},
    TU_OPEN_OPTIONS(opt.open),
    {0, "contents", NULL, "open each segment with META contents, so that nothing has to spool",
     TU_OPT_FLAG, &opt.contents, NULL, 0},
    {0, "globals", NULL, "torch: list the globals that the pickles name, and import nothing",
     TU_OPT_FLAG, &opt.globals, NULL, 0},
    {0},
};

static const struct tu_column file_columns[] = {
    {"format", "FORMAT", TU_COL_TEXT, 0},   {"tensors", "TENSORS", TU_COL_U64, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},      {"stored_bytes", "STORED", TU_COL_U64, 0},
    {"file", "FILE", TU_COL_NAME, 0},       {0},
};

static const struct tu_column global_columns[] = {
    {"offset", "OFFSET", TU_COL_U64, 0}, {"known", "KNOWN", TU_COL_BOOL, 0},
    {"file", NULL, TU_COL_TEXT, 0},      {"global", "GLOBAL", TU_COL_NAME, 0},
    {0},
};

static int open_file(struct tu_ctx *ctx, struct tu_source **s, const char *path,
                     struct tu_err *err)
{
    return tu_source_open(s, path, tu_format_chosen(tu_readable, opt.from), &opt.open,
                          tu_ctx_job(ctx), err);
}

static void list_globals(struct tu_ctx *ctx, const struct tu_source *s)
{
    const struct tu_pglobal *list = NULL;
    size_t n = s->pickle ? tu_pickle_globals(s->pickle, &list) : 0;
    if (!s->pickle)
        tu_warn(ctx, "%s: format %s has no pickle", s->path, s->format->name);
    for (size_t i = 0; i < n; i++)
        tu_row(ctx, (const struct tu_cell[]){{.u = list[i].offset},
                                             {.b = list[i].known},
                                             {.s = s->path},
                                             {.s = list[i].name}});
}

static void describe(struct tu_ctx *ctx, const struct tu_source *s)
{
    tu_note(ctx, 1, "%s: %s, %zu tensor%s of %" PRIu64 " bytes, %" PRIu64 " bytes stored", s->path,
            s->format->name, s->n, s->n == 1 ? "" : "s", s->referenced, s->stored);
    if (tu_report_wanted(ctx))
        tu_row(ctx, (const struct tu_cell[]){{.s = s->format->name},
                                             {.u = s->n},
                                             {.u = s->referenced},
                                             {.u = s->stored},
                                             {.s = s->path}});
}

static int run_globals(struct tu_ctx *ctx, int argc, const char *const *path)
{
    struct tu_err err;
    tu_rows_begin(ctx, global_columns);
    for (int i = 0; i < argc; i++) {
        struct tu_source *s;
        if (open_file(ctx, &s, path[i], &err)) {
            tu_error(ctx, &err); /* the other files are still listed */
            continue;
        }
        list_globals(ctx, s);
        tu_source_close(s);
    }
    return 0;
}

static int import_file(struct tu_ctx *ctx, const char *path, struct tu_writer *w,
                       struct tu_err *err)
{
    struct tu_source *s;
    int rc = open_file(ctx, &s, path, err);
    if (rc)
        return rc;
    describe(ctx, s);
    rc = tu_source_write(s, w, opt.contents, tu_ctx_job(ctx), err);
    tu_source_close(s);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct tu_err err;
    struct tu_out *out;
    struct tu_writer *w = NULL;
    argc = argc ? argc : 1;
    if (opt.globals)
        return run_globals(ctx, argc, path);
    if (tu_report_wanted(ctx))
        tu_rows_begin(ctx, file_columns);
    int rc = tu_ctx_output(ctx, &out, &err);
    if (!rc)
        rc = tu_writer_new(&w, out, &err);
    for (int i = 0; !rc && i < argc; i++)
        rc = import_file(ctx, path[i], w, &err);
    if (!rc)
        rc = tu_writer_close(w, false, &err);
    else
        tu_writer_abort(w);
    return rc ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

static const struct tu_cmd command = {
    .name = "tns-import",
    .example = "tns-import m.safetensors | tns-cat -d bf16 -o m.tns",
    .summary = "turn tensor files into a tensor stream",
    .usage = usage,
    .opts = options,
    .listings = tu_format_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .text = &opt.globals,
    .max = TU_ANY,
    .run = run,
};

int main(int argc, char **argv)
{
    tu_formats_begin();
    return tu_main(&command, argc, argv);
}
