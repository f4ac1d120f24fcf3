/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: what convert would do: bytes, memory, space, files. Nothing is written. */

#include <stdio.h>

#include "opts.h"

static struct target_options target;

static const struct tu_opt options[] = {
    TARGET_OPTIONS(target),
    {0},
};

static const struct tu_column refused_columns[] = {
    {"refused", "REFUSED", TU_COL_TEXT, 0},
    {"name", "NAME", TU_COL_NAME, 0},
    {0},
};

static void refused(struct tu_ctx *ctx, const char *why, const char *name)
{
    tu_row(ctx, (struct tu_cell[]){{.s = why}, {.s = name}});
}

/* All tensors of a refusal that counts them; no table of none below the error. */
static int refuse(struct tu_ctx *ctx, const struct tu_err *err)
{
    int status = tu_error(ctx, err);
    tu_rows_begin(ctx, refused_columns);
    ctx->told = shard_each_refused(ctx, refused);
    tu_rows_end(ctx);
    return status;
}

/* Of the tensors of a file. */
static uint64_t file_bytes(const struct tu_ckpt_file *f)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < f->save.n; i++)
        bytes += f->save.tensor[i].bytes;
    return bytes;
}

static void text(struct tu_ctx *ctx, const struct tu_ckpt *to,
                 const struct tu_plan_cost *cost)
{
    char a[16], b[16], c[16], d[16], e[16];
    tu_print(ctx, "read %s, write %s, space %s, memory %s, free %s\n",
             tu_size_text(cost->read_bytes, a), tu_size_text(cost->write_bytes, b),
             tu_size_text(cost->space_bytes, c), tu_size_text(cost->memory_bytes, d),
             tu_size_text(cost->free_bytes, e));
    for (size_t f = 0; f < to->files; f++)
        tu_print(ctx, "%10s  %5zu tensor%s  %s%s%s\n",
                 tu_size_text(file_bytes(&to->file[f]), a), to->file[f].save.n,
                 to->file[f].save.n == 1 ? " " : "s", to->root,
                 *to->file[f].path ? "/" : "", to->file[f].path);
    const char *folder = to->layout->side_folder;
    for (size_t i = 0; i < to->sides && folder; i++)
        tu_print(ctx, "%10s                 %s/%s%s%s\n", tu_size_text(to->side[i].n, a),
                 to->root, folder, *folder ? "/" : "", to->side[i].name);
    if (cost->space_bytes > cost->free_bytes)
        tu_print(ctx, "does not fit: %s are lacking\n",
                 tu_size_text(cost->space_bytes - cost->free_bytes, a));
}

static void json(struct tu_ctx *ctx, const struct tu_ckpt *to,
                 const struct tu_plan_cost *cost)
{
    struct tu_jw *w = tu_result_begin(ctx);
    if (!w)
        return;
    tu_jw_u64(w, "read_bytes", cost->read_bytes);
    tu_jw_u64(w, "write_bytes", cost->write_bytes);
    tu_jw_u64(w, "space_bytes", cost->space_bytes);
    tu_jw_u64(w, "memory_bytes", cost->memory_bytes);
    tu_jw_u64(w, "free_bytes", cost->free_bytes);
    tu_jw_bool(w, "fits", cost->space_bytes <= cost->free_bytes);
    tu_jw_open(w, "files", '[');
    for (size_t f = 0; f < to->files; f++) {
        tu_jw_open(w, NULL, '{');
        tu_jw_str(w, "path", to->file[f].path);
        tu_jw_u64(w, "tensors", to->file[f].save.n);
        tu_jw_u64(w, "bytes", file_bytes(&to->file[f]));
        tu_jw_close(w, '}');
    }
    const char *folder = to->layout->side_folder;
    for (size_t i = 0; i < to->sides && folder; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", to->side[i].name);
        tu_jw_open(w, NULL, '{');
        tu_jw_str(w, "path", path);
        tu_jw_u64(w, "tensors", 0);
        tu_jw_u64(w, "bytes", to->side[i].n);
        tu_jw_close(w, '}');
    }
    tu_jw_close(w, ']');
    tu_result_end(ctx);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    const struct tu_shard_opts *o = shard_opts(&target, ctx->force);
    struct tu_ckpt *from = NULL, *to = NULL;
    struct tu_plan_cost cost;
    struct tu_err err;
    (void)argc;
    if (!target.to)
        return tu_usage(ctx, "which layout? (--to LAYOUT)");
    int rc = shard_open(ctx, &from, argv[0], shard_from(), o, &err);
    if (!rc)
        rc = tu_ckpt_plan(&to, from, argv[1], target.to, o, &err);
    if (!rc)
        rc = tu_plan_cost(from, to, shard_job(ctx), &cost, &err);
    if (!rc && tu_text_wanted(ctx))
        text(ctx, to, &cost);
    if (!rc)
        json(ctx, to, &cost);
    int status = rc                                   ? refuse(ctx, &err)
                 : cost.space_bytes > cost.free_bytes ? TU_STATUS_NO
                                                      : TU_STATUS_YES;
    tu_ckpt_close(to);
    tu_ckpt_close(from);
    return status;
}

static const char *const usage[] = {"--to layout [option ...] source destination", NULL};

const struct tu_cmd cmd_plan = {
    .name = "plan",
    .example = "shard-ckpt plan --to megatron:tp=2 checkpoint new",
    .summary = "what convert would read and write",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 2,
    .max = 2,
    .run = run,
};
