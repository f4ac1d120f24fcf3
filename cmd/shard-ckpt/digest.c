/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c: a line per canonical tensor that is the same in every layout. */

#include <stdio.h>

#include "opts.h"

static bool sha256;

static const struct tu_opt options[] = {
    {0, "sha256", NULL, "SHA-256 beside the CRC-32", TU_OPT_FLAG, &sha256, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"crc32", NULL, TU_COL_TEXT, 0}, {"sha256", NULL, TU_COL_TEXT, 0},
    {"dtype", NULL, TU_COL_TEXT, 0}, {"shape", NULL, TU_COL_SHAPE, 0},
    {"name", NULL, TU_COL_TEXT, 0},  {0},
};

static void rows(struct tu_ctx *ctx, const struct tu_digest *d, size_t n)
{
    char crc[12], sha[TU_SHA256_HEX], dtype[8];
    tu_rows_begin(ctx, columns);
    for (size_t i = 0; i < n; i++) {
        snprintf(crc, sizeof crc, "%08x", d[i].crc);
        if (d[i].has_sha)
            tu_sha256_hex(d[i].sha, sha);
        tu_row(ctx, (struct tu_cell[]){{.s = crc},
                                       {.none = !d[i].has_sha, .s = sha},
                                       {.s = tu_dtype_text(d[i].dtype, dtype)},
                                       {.dim = d[i].dim, .rank = d[i].rank},
                                       {.s = d[i].name}});
    }
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    const struct target_options t = {.sha256 = sha256};
    const struct tu_shard_opts *o = shard_opts(&t, false);
    struct tu_ckpt *c = NULL;
    struct tu_digest *d = NULL;
    struct tu_buf text = {0};
    struct tu_err err;
    (void)argc;
    int rc = shard_open(ctx, &c, argv[0], shard_from(), o, &err);
    if (!rc && !(d = tu_alloc(c->atoms + 1, sizeof *d, &err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = tu_ckpt_agree(c, o, shard_job(ctx), &err);
    if (!rc)
        rc = tu_ckpt_digest(c, o, shard_job(ctx), d, &err);
    if (!rc)
        rc = tu_digest_write(&text, d, c->atoms, &err);
    if (!rc) {
        tu_print(ctx, "%s", text.data ? text.data : "");
        if (tu_json_wanted(ctx))
            rows(ctx, d, c->atoms);
    }
    int status = rc ? shard_error(ctx, &err) : 0;
    tu_buf_release(&text);
    tu_free(d);
    tu_ckpt_close(c);
    return status;
}

static const char *const usage[] = {"[option ...] checkpoint", NULL};

const struct tu_cmd cmd_digest = {
    .name = "digest",
    .example = "shard-ckpt digest checkpoint > digests.txt",
    .summary = "checksums of all tensors, independent of the layout",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 1,
    .max = 1,
    .run = run,
};
