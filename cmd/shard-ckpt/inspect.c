/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c: is this checkpoint consistent, and if not, why? One sentence for each
 * reason. */

#include <stdio.h>
#include <string.h>

#include "opts.h"

static bool why;

static const struct tu_opt options[] = {
    {0, "why", NULL,
     "read the tensors too: checksums, replicas, weights against their master copies",
     TU_OPT_FLAG, &why, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"check", "CHECK", TU_COL_TEXT, 10},
    {"ok", "OK", TU_COL_BOOL, 0},
    {"reason", "REASON", TU_COL_NAME, 0},
    {0},
};

static bool row(struct tu_ctx *ctx, const char *check, int rc, const struct tu_err *err)
{
    tu_row(ctx, (struct tu_cell[]){{.s = check}, {.b = !rc}, {.s = rc ? err->msg : "-"}});
    return rc != 0;
}

/* The tensors that the structure's reason counts. */
static void refused(struct tu_ctx *ctx, const char *reason, const char *name)
{
    tu_row(ctx, (struct tu_cell[]){{.s = reason}, {.b = false}, {.s = name}});
}

/* The CRC-32 of an atom's bytes, cast on the way. */
struct sum {
    uint32_t crc, from, to;
};

static int add(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    struct sum *s = ctx;
    char out[4096];
    size_t in = tu_dtype_find(s->from)->block_bytes,
           width = tu_dtype_find(s->to)->block_bytes;
    for (size_t at = 0; at < n / in;) {
        size_t count = tu_min(n / in - at, sizeof out / 8);
        int rc = tu_cast(s->to, out, s->from, (const char *)p + at * in, count, err);
        if (rc)
            return rc;
        s->crc = tu_crc32(s->crc, out, count * width);
        at += count;
    }
    return 0;
}

static size_t find(const struct tu_ckpt *c, const char *name)
{
    size_t a = 0;
    while (a < c->atoms && strcmp(c->atom[a].tensor.name, name))
        a++;
    return a;
}

/* A weight that is not its master copy rounded was not saved at the same moment. */
static int masters(struct tu_ctx *ctx, const struct tu_ckpt *c, struct tu_err *err)
{
    int rc = 0;
    for (size_t a = 0; a < c->atoms && !rc; a++) {
        const struct tu_tensor *t = &c->atom[a].tensor;
        size_t w = strncmp(t->name, "optim.fp32.", 11) ? c->atoms : find(c, t->name + 11);
        if (w == c->atoms)
            continue;
        uint32_t dtype = c->atom[w].tensor.dtype;
        struct sum master = {0, t->dtype, dtype}, weight = {0, dtype, dtype};
        rc = tu_ckpt_walk(c, (uint32_t)a, shard_job(ctx), add, &master, err);
        if (!rc)
            rc = tu_ckpt_walk(c, (uint32_t)w, shard_job(ctx), add, &weight, err);
        if (!rc && master.crc != weight.crc)
            rc = tu_fail(
                err, TU_EINCOMPLETE,
                "'%.100s' is not its master copy rounded: they are of different steps",
                c->atom[w].tensor.name);
    }
    return rc;
}

/* What is no checkpoint at all is an error, not one that is inconsistent. */
static int inspect(struct tu_ctx *ctx, const char *path, bool *yes)
{
    struct tu_ckpt *c = NULL;
    struct tu_err err;
    int rc = shard_open(ctx, &c, path, shard_from(), shard_opts(NULL, false), &err);
    if (rc == TU_EIO || rc == TU_EMAGIC)
        return tu_error(ctx, &err);
    if (!rc && c->stray)
        rc = tu_fail(&err, TU_EINCOMPLETE, "%.200s: belongs to no rank", c->stray);
    bool bad = row(ctx, "structure", rc, &err);
    shard_each_refused(ctx, refused);
    if (!rc && why) {
        uint64_t sums = 0, bytes = 0;
        bad |= row(ctx, "checksums", shard_checksums(ctx, c, &sums, &bytes, &err), &err);
        bad |=
            row(ctx, "replicas", tu_ckpt_replicas(c, false, shard_job(ctx), &err), &err);
        uint64_t compared;
        bad |= row(ctx, "digests",
                   tu_ckpt_verify_digests(c, shard_opts(NULL, false), shard_job(ctx),
                                          &compared, &err),
                   &err);
        bad |= row(ctx, "masters", masters(ctx, c, &err), &err);
    }
    tu_ckpt_close(c);
    *yes = *yes && !bad;
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    bool yes = true;
    int status = 0;
    tu_rows_begin(ctx, columns);
    for (int i = 0; i < argc && !status; i++)
        status = inspect(ctx, argv[i], &yes);
    return status ? status : yes ? TU_STATUS_YES : TU_STATUS_NO;
}

static const char *const usage[] = {"[option ...] checkpoint ...", NULL};

const struct tu_cmd cmd_inspect = {
    .name = "inspect",
    .example = "shard-ckpt inspect checkpoint",
    .summary = "is a checkpoint consistent, and if not, why",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 1,
    .max = TU_ANY,
    .run = run,
};
