/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: a checkpoint into another layout; also save, whose source is a stream. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opts.h"

static struct target_options target;

static const char *part;
static bool resume, files;

static const struct tu_opt options[] = {
    WRITE_OPTIONS(target),
    {0},
};

/* convert alone. */
static const struct tu_opt convert_options[] = {
    WRITE_OPTIONS(target),
    {0, "part", "I/N|auto", "write part I of N; auto: as Slurm, Open MPI or PMI number "
                            "this process",
     TU_OPT_STRING, &part, NULL, 0},
    {0, "resume", NULL, "write file by file; after an interruption keep those that are done",
     TU_OPT_FLAG, &resume, NULL, 0},
    {0},
};

/* save alone. */
static const struct tu_opt save_options[] = {
    WRITE_OPTIONS(target),
    {0, "files", NULL, "standard input names the files of the checkpoint, one a line",
     TU_OPT_FLAG, &files, NULL, 0},
    {0},
};

static void report(struct tu_ctx *ctx, const struct tu_ckpt *from,
                   const struct tu_ckpt *to, double seconds)
{
    char size[16];
    uint64_t bytes = 0;
    for (size_t i = 0; i < to->pieces; i++)
        bytes += to->piece[i].tensor.bytes;
    tu_note(ctx, 1, "%s: %zu tensor%s, %s in %zu file%s", to->root, from->atoms,
            from->atoms == 1 ? "" : "s", tu_size_text(bytes, size), to->files,
            to->files == 1 ? "" : "s");
    if (to->waiting)
        tu_note(ctx, 1, "%s: %u part%s not done", to->root, to->waiting,
                to->waiting == 1 ? " is" : "s are");
    struct tu_jw *w = tu_result_begin(ctx);
    if (!w)
        return;
    tu_jw_str(w, "from", from->layout->name);
    tu_jw_str(w, "to", to->layout->name);
    tu_jw_str(w, "root", to->root);
    tu_jw_u64(w, "tensors", from->atoms);
    tu_jw_u64(w, "files", to->files);
    tu_jw_u64(w, "left_out", from->dropped);
    tu_jw_u64(w, "write_bytes", bytes);
    if (to->waiting)
        tu_jw_u64(w, "parts_missing", to->waiting);
    tu_jw_real(w, "elapsed_s", seconds);
    tu_result_end(ctx);
}

int shard_convert(struct tu_ctx *ctx, const char *source, const char *from_spec,
                  const char *root, const struct target_options *t,
                  const struct tu_shard_opts *o)
{
    struct tu_ckpt *from = NULL, *to = NULL;
    struct tu_err err;
    double begin = tu_clock();
    if (!t->to)
        return tu_usage(ctx, "which layout? (--to LAYOUT)");
    int rc = shard_open(ctx, &from, source, from_spec, o, &err);
    if (!rc)
        rc = tu_ckpt_plan(&to, from, root, t->to, o, &err);
    if (!rc)
        rc = tu_ckpt_convert(from, to, o, shard_job(ctx), NULL, &err);
    if (!rc)
        report(ctx, from, to, tu_clock() - begin);
    int status = rc ? shard_error(ctx, &err) : 0;
    tu_ckpt_close(to);
    tu_ckpt_close(from);
    return status;
}

/* Which of how many, counted from 1; false where neither text nor launcher says. */
static bool part_of(const char *text, uint32_t *i, uint32_t *n)
{
    static const char *const launcher[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
    };
    const char *rank = NULL, *size = NULL;
    char left[16] = "";
    uint64_t a, b;
    for (size_t k = 0; !strcmp(text, "auto") && !size && k < 3; k++)
        if ((rank = getenv(launcher[k][0])))
            size = getenv(launcher[k][1]);
    bool given = strchr(text, '/') && strchr(text, '/') - text < 16;
    if (given) {
        memcpy(left, text, (size_t)(strchr(text, '/') - text));
        rank = left;
        size = strchr(text, '/') + 1;
    }
    if (!rank || !size || tu_parse_u64(rank, &a, NULL) ||
        tu_parse_u64(size, &b, NULL))
        return false;
    a += !given; /* launchers count from 0 */
    *i = (uint32_t)a;
    *n = (uint32_t)b;
    return a && a <= b && b <= 65536;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    struct tu_shard_opts o = *shard_opts(&target, ctx->force);
    if (part && !part_of(part, &o.part, &o.parts))
        return tu_usage(ctx, strcmp(part, "auto")
                                 ? "--part is I/N, I from 1 to N"
                                 : "--part auto: no launcher has numbered this process");
    o.resume = resume;
    if (part && resume)
        return tu_usage(ctx, "a part is resumed without --resume");
    if ((part || resume) && !strcmp(argv[0], "-"))
        return tu_usage(ctx, "a stream is read once");
    return shard_convert(ctx, argv[0], shard_from(), argv[1], &target, &o);
}

static int run_save(struct tu_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    if (isatty(STDIN_FILENO))
        return tu_usage(ctx, "standard input is a terminal; the stream comes by a pipe");
    return shard_convert(ctx, "-", files ? "files" : "tns", argv[0], &target,
                         shard_opts(&target, ctx->force));
}

static int run_prune(struct tu_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    struct tu_shard_opts o = *shard_opts(&target, ctx->force);
    o.weights_only = true;
    if (!target.to)
        target.to = "hf";
    return shard_convert(ctx, argv[0], shard_from(), argv[1], &target, &o);
}

static const char *const usage[] = {"--to layout [option ...] source destination", NULL};
static const char *const prune_usage[] = {"[option ...] source destination", NULL};
static const char *const save_usage[] = {"--to layout [option ...] destination", NULL};

const struct tu_cmd cmd_convert = {
    .name = "convert",
    .example = "shard-ckpt convert --to megatron:tp=2,pp=2 hf-folder out",
    .summary = "write a checkpoint in another layout",
    .usage = usage,
    .opts = convert_options,
    .shared = source_options,
    .min = 2,
    .max = 2,
    .run = run,
};

const struct tu_cmd cmd_save = {
    .name = "save",
    .example = "shard-ckpt cat checkpoint | shard-ckpt save --to meta:tp=2 out",
    .summary = "write a stream from standard input as a checkpoint",
    .usage = save_usage,
    .opts = save_options,
    .shared = source_options,
    .min = 1,
    .max = 1,
    .run = run_save,
};

const struct tu_cmd cmd_prune = {
    .name = "prune",
    .example = "shard-ckpt prune checkpoint weights",
    .summary = "write the weights alone, without the optimizer",
    .usage = prune_usage,
    .opts = options,
    .shared = source_options,
    .min = 2,
    .max = 2,
    .run = run_prune,
};
