/* SPDX-License-Identifier: Apache-2.0 */
/* ls.c: what is here: layout, mesh, model, files, and the tensors. */

#include <stdio.h>

#include "opts.h"

static bool files, pieces;

static const struct tu_opt options[] = {
    {0, "files", NULL, "list the files instead of the tensors", TU_OPT_FLAG, &files, NULL,
     0},
    {0, "pieces", NULL, "list the tensors as they lie in the files", TU_OPT_FLAG, &pieces,
     NULL, 0},
    {0},
};

static const struct tu_column atom_columns[] = {
    {"dtype", "DTYPE", TU_COL_TEXT, 0}, {"shape", "SHAPE", TU_COL_SHAPE, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},  {"pieces", "PIECES", TU_COL_U64, 0},
    {"name", "NAME", TU_COL_NAME, 0},   {0},
};
static const struct tu_column piece_columns[] = {
    {"dtype", "DTYPE", TU_COL_TEXT, 0},
    {"shape", "SHAPE", TU_COL_SHAPE, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},
    {"tp", "TP", TU_COL_U64, 0},
    {"pp", "PP", TU_COL_U64, 0},
    {"vp", "VP", TU_COL_U64, 0},
    {"ep", "EP", TU_COL_U64, 0},
    {"replica", "REPLICA", TU_COL_BOOL, 0},
    {"file", "FILE", TU_COL_TEXT, 0},
    {"name", "NAME", TU_COL_NAME, 0},
    {0},
};
static const struct tu_column file_columns[] = {
    {"tensors", "TENSORS", TU_COL_U64, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},
    {"referenced_bytes", "USED", TU_COL_U64, 0},
    {"file", "FILE", TU_COL_NAME, 0},
    {0},
};

static void head(struct tu_ctx *ctx, const struct tu_ckpt *c)
{
    char size[16];
    uint64_t bytes = 0;
    for (size_t a = 0; a < c->atoms; a++)
        bytes += c->atom[a].tensor.bytes;
    tu_print(ctx, "%s: %s", c->root, c->layout->name);
    if (c->tp * c->pp * c->ep > 1)
        tu_print(ctx, " tp=%u pp=%u vpp=%u ep=%u", c->tp, c->pp, c->vpp, c->ep);
    if (*c->model.family)
        tu_print(ctx, ", family %s%s", c->model.family, c->model.tied ? ", tied" : "");
    if (c->iteration >= 0)
        tu_print(ctx, ", iteration %lld", (long long)c->iteration);
    tu_print(ctx, ", %zu tensor%s%s, %s in %zu file%s", c->atoms, c->atoms == 1 ? "" : "s",
             c->part ? " of a part" : "", tu_size_text(bytes, size), c->files,
             c->files == 1 ? "" : "s");
    if (c->dropped)
        tu_print(ctx, ", %llu left out", (unsigned long long)c->dropped);
    tu_print(ctx, "\n");
}

/* The same as a JSON line before the rows. */
static void head_json(struct tu_ctx *ctx, const struct tu_ckpt *c)
{
    struct tu_jw *w = tu_line_begin(ctx);
    if (!w)
        return;
    tu_jw_str(w, "layout", c->layout->name);
    tu_jw_str(w, "root", c->root);
    tu_jw_str(w, "family", c->model.family);
    tu_jw_u64(w, "tp", c->tp);
    tu_jw_u64(w, "pp", c->pp);
    tu_jw_u64(w, "vpp", c->vpp);
    tu_jw_u64(w, "ep", c->ep);
    tu_jw_i64(w, "iteration", c->iteration);
    tu_jw_u64(w, "tensors", c->atoms);
    tu_jw_u64(w, "files", c->files);
    tu_jw_u64(w, "left_out", c->dropped);
    tu_jw_bool(w, "part", c->part);
    tu_line_end(ctx);
}

static void list_atoms(struct tu_ctx *ctx, const struct tu_ckpt *c)
{
    char dtype[8];
    for (size_t a = 0; a < c->atoms; a++) {
        const struct tu_tensor *t = &c->atom[a].tensor;
        tu_row(ctx, (struct tu_cell[]){{.s = tu_dtype_text(t->dtype, dtype)},
                                       {.dim = t->dim, .rank = t->rank},
                                       {.u = t->bytes},
                                       {.u = c->atom[a].n},
                                       {.s = t->name}});
    }
}

static void list_pieces(struct tu_ctx *ctx, const struct tu_ckpt *c)
{
    char dtype[8];
    for (size_t i = 0; i < c->pieces; i++) {
        const struct tu_piece *p = &c->piece[i];
        tu_row(ctx, (struct tu_cell[]){{.s = tu_dtype_text(p->tensor.dtype, dtype)},
                                       {.dim = p->tensor.dim, .rank = p->tensor.rank},
                                       {.u = p->tensor.bytes},
                                       {.u = p->at.tp},
                                       {.u = p->at.pp},
                                       {.u = p->at.vp},
                                       {.u = p->at.ep},
                                       {.b = p->replica},
                                       {.s = c->file[p->file].path},
                                       {.s = p->tensor.name}});
    }
}

static void list_files(struct tu_ctx *ctx, const struct tu_ckpt *c)
{
    for (size_t f = 0; f < c->files; f++) {
        const struct tu_source *s = c->file[f].source;
        tu_row(ctx,
               (struct tu_cell[]){
                   {.u = s->n}, {.u = s->stored}, {.u = s->referenced}, {.s = s->path}});
    }
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    const struct tu_shard_opts *o = shard_opts(NULL, false);
    for (int i = 0; i < argc; i++) {
        struct tu_ckpt *c;
        struct tu_err err;
        if (shard_open(ctx, &c, argv[i], shard_from(), o, &err)) {
            shard_error(ctx, &err);
            continue;
        }
        head(ctx, c);
        tu_rows_begin(ctx, files ? file_columns : pieces ? piece_columns : atom_columns);
        head_json(ctx, c);
        if (files)
            list_files(ctx, c);
        else if (pieces)
            list_pieces(ctx, c);
        else
            list_atoms(ctx, c);
        tu_rows_end(ctx);
        tu_ckpt_close(c);
    }
    return 0;
}

static const char *const usage[] = {"[option ...] checkpoint ...", NULL};

const struct tu_cmd cmd_ls = {
    .name = "ls",
    .example = "shard-ckpt ls checkpoint",
    .summary = "layout, ranks, files and tensors of checkpoints",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 1,
    .max = TU_ANY,
    .run = run,
};
