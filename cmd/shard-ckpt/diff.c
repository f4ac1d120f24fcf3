/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c: do two checkpoints hold the same tensors, whatever their layouts? */

#include <string.h>

#include "opts.h"

static const char *from_b;

static const struct tu_opt options[] = {
    {0, "from-b", "LAYOUT", "layout of the second checkpoint (default: what is found)",
     TU_OPT_STRING, &from_b, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"what", "DIFFERENCE", TU_COL_TEXT, 11},
    {"a", "A", TU_COL_TEXT, 24},
    {"b", "B", TU_COL_TEXT, 24},
    {"name", "NAME", TU_COL_NAME, 1},
    {0},
};

struct side {
    struct tu_ckpt *c;
    struct tu_digest *d; /* sorted by name */
    size_t n;
};

static int side_open(struct tu_ctx *ctx, struct side *s, const char *path,
                     const char *from, struct tu_err *err)
{
    const struct tu_shard_opts *o = shard_opts(NULL, false);
    struct tu_buf unused = {0};
    int rc = shard_open(ctx, &s->c, path, from, o, err);
    if (!rc && !(s->d = tu_alloc(s->c->atoms + 1, sizeof *s->d, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = tu_ckpt_agree(s->c, o, shard_job(ctx), err);
    if (!rc)
        rc = tu_ckpt_digest(s->c, o, shard_job(ctx), s->d, err);
    if (!rc)
        rc = tu_digest_write(&unused, s->d, s->c->atoms, err); /* sorts */
    s->n = rc ? 0 : s->c->atoms;
    tu_buf_release(&unused);
    return rc;
}

static int describe(struct tu_buf *b, const struct tu_digest *d)
{
    char dtype[8];
    tu_buf_reset(b);
    int rc = tu_buf_printf(b, NULL, "%08x %s ", d->crc, tu_dtype_text(d->dtype, dtype));
    return rc ? rc : tu_shape_text(b, d->dim, d->rank, NULL);
}

static void row(struct tu_ctx *ctx, const char *what, const struct tu_digest *a,
                const struct tu_digest *b)
{
    struct tu_buf x = {0}, y = {0};
    bool no = (a && describe(&x, a)) || (b && describe(&y, b));
    tu_row(ctx, (struct tu_cell[]){{.s = what},
                                   {.none = !a || no, .s = x.data},
                                   {.none = !b || no, .s = y.data},
                                   {.s = a ? a->name : b->name}});
    tu_buf_release(&x);
    tu_buf_release(&y);
}

static const char *difference(const struct tu_digest *a, const struct tu_digest *b)
{
    if (a->dtype != b->dtype)
        return "dtype";
    if (a->rank != b->rank || memcmp(a->dim, b->dim, a->rank * sizeof *a->dim))
        return "shape";
    return a->crc != b->crc ? "values" : NULL;
}

static uint64_t compare(struct tu_ctx *ctx, const struct side *a, const struct side *b)
{
    uint64_t differ = 0;
    size_t i = 0, j = 0;
    while (i < a->n || j < b->n) {
        int order = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->d[i].name, b->d[j].name);
        const struct tu_digest *x = order <= 0 ? &a->d[i++] : NULL,
                               *y = order >= 0 ? &b->d[j++] : NULL;
        const char *what = !y ? "only in A" : !x ? "only in B" : difference(x, y);
        if (what && !differ++ && !tu_json_wanted(ctx))
            tu_rows_begin(ctx, columns);
        if (what)
            row(ctx, what, x, y);
    }
    return differ;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct side a = {0}, b = {0};
    struct tu_err err;
    uint64_t differ = 0;
    (void)argc;
    int rc = side_open(ctx, &a, argv[0], shard_from(), &err);
    if (!rc)
        rc = side_open(ctx, &b, argv[1], from_b, &err);
    if (!rc) {
        if (tu_json_wanted(ctx))
            tu_rows_begin(ctx, columns);
        differ = compare(ctx, &a, &b);
        if (!differ)
            tu_print(ctx, "equal: %zu tensor%s\n", a.n, a.n == 1 ? "" : "s");
    }
    int status = rc ? shard_error(ctx, &err) : differ ? TU_STATUS_NO : TU_STATUS_YES;
    tu_free(a.d);
    tu_free(b.d);
    tu_ckpt_close(a.c);
    tu_ckpt_close(b.c);
    return status;
}

static const char *const usage[] = {"[option ...] checkpoint-a checkpoint-b", NULL};

const struct tu_cmd cmd_diff = {
    .name = "diff",
    .example = "shard-ckpt diff hf-folder megatron-folder",
    .summary = "compare two checkpoints across layouts",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 2,
    .max = 2,
    .run = run,
};
