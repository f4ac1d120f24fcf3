/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c: is a checkpoint whole: structure, stored checksums, equal replicas, the digests
 * that a conversion left. */

#include "opts.h"

static const struct tu_column columns[] = {
    {"valid", "VALID", TU_COL_BOOL, 5},
    {"tensors", "TENSORS", TU_COL_U64, 8},
    {"files", "FILES", TU_COL_U64, 6},
    {"checksums", "CHECKSUMS", TU_COL_U64, 9},
    {"replicas", "REPLICAS", TU_COL_U64, 8},
    {"digests", "DIGESTS", TU_COL_U64, 8},
    {"bytes", "BYTES", TU_COL_U64, 14},
    {"checkpoint", "CHECKPOINT", TU_COL_NAME, 1},
    {0},
};

struct seen {
    uint64_t checksums, replicas, digests, bytes;
};

static int verify(struct tu_ctx *ctx, const struct tu_ckpt *c,
                  const struct tu_shard_opts *o, struct seen *s, struct tu_err *err)
{
    const struct tu_job *job = shard_job(ctx);
    int rc = c->stray ? tu_fail(err, TU_EINCOMPLETE, "%.200s: belongs to no rank", c->stray) : 0;
    if (!rc)
        rc = shard_checksums(ctx, c, &s->checksums, &s->bytes, err);
    for (size_t i = 0; i < c->pieces; i++)
        s->replicas += c->piece[i].replica;
    if (!rc)
        rc = tu_ckpt_replicas(c, false, job, err);
    return rc ? rc : tu_ckpt_verify_digests(c, o, job, &s->digests, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    const struct tu_shard_opts *o = shard_opts(NULL, false);
    tu_rows_begin(ctx, columns);
    for (int i = 0; i < argc; i++) {
        struct tu_ckpt *c = NULL;
        struct tu_err err;
        struct seen s = {0};
        int rc = shard_open(ctx, &c, argv[i], shard_from(), o, &err);
        if (!rc)
            rc = verify(ctx, c, o, &s, &err);
        if (rc)
            shard_error(ctx, &err);
        tu_row(ctx, (struct tu_cell[]){{.b = !rc},
                                       {.none = !c, .u = c ? c->atoms : 0},
                                       {.none = !c, .u = c ? c->files : 0},
                                       {.u = s.checksums},
                                       {.u = s.replicas},
                                       {.u = s.digests},
                                       {.u = s.bytes},
                                       {.s = argv[i]}});
        tu_ckpt_close(c);
    }
    ctx->told = true;
    return 0;
}

static const char *const usage[] = {"[option ...] checkpoint ...", NULL};

const struct tu_cmd cmd_verify = {
    .name = "verify",
    .example = "shard-ckpt verify checkpoint",
    .summary = "check structure, stored checksums, replicas and digests",
    .usage = usage,
    .shared = source_options,
    .min = 1,
    .max = TU_ANY,
    .run = run,
};
