/* SPDX-License-Identifier: Apache-2.0 */
/* order.c: load-order: what to read for each layer, in the order that a forward pass
 * wants it: for loaders that keep a window of layers in memory. */

#include "opts.h"

static uint64_t window = 1;

static const struct tu_opt options[] = {
    {0, "window", NULL, "layers that are in memory at a time", TU_OPT_U64, &window, NULL,
     0},
    {0},
};

static const struct tu_column columns[] = {
    {"step", "STEP", TU_COL_U64, 0},   {"drop", "DROP", TU_COL_I64, 0},
    {"layer", "LAYER", TU_COL_I64, 0}, {"offset", "OFFSET", TU_COL_U64, 0},
    {"bytes", "BYTES", TU_COL_U64, 0}, {"file", "FILE", TU_COL_TEXT, 0},
    {"name", "NAME", TU_COL_NAME, 0},  {0},
};

static int64_t layer_of(const struct tu_ckpt *c, const struct tu_atom *a)
{
    return c->role[a->fuse.role[0]].layer;
}

/* Pieces of an atom: step numbers layers as they come; `drop` is the layer that leaves
 * the window for it. */
static void list(struct tu_ctx *ctx, const struct tu_ckpt *c, const struct tu_atom *a,
                 uint64_t step)
{
    int64_t layer = layer_of(c, a);
    for (size_t i = 0; i < a->n; i++) {
        const struct tu_piece *p = &c->piece[a->piece[i]];
        const struct tu_source *s = p->data ? NULL : c->file[p->file].source;
        bool place = s && s->extent && s->extent[p->index].in;
        size_t elem = tu_dtype_find(p->tensor.dtype)->block_bytes;
        if (!s || p->replica)
            continue;
        tu_row(ctx, (struct tu_cell[]){
                        {.u = step},
                        {.none = layer < (int64_t)window, .i = layer - (int64_t)window},
                        {.none = layer < 0, .i = layer},
                        {.none = !place,
                         .u = place ? s->extent[p->index].off + p->flat.at * elem : 0},
                        {.u = p->flat.yes ? p->flat.n * elem : s->tensor[p->index].bytes},
                        {.s = place ? tu_in_name(s->extent[p->index].in) : s->path},
                        {.s = a->tensor.name}});
    }
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_ckpt *c = NULL;
    struct tu_err err;
    uint64_t step = 0;
    (void)argc;
    if (!window)
        return tu_usage(ctx, "--window is at least 1");
    int rc = shard_open(ctx, &c, argv[0], shard_from(), shard_opts(NULL, false), &err);
    if (!rc)
        tu_rows_begin(ctx, columns);
    for (size_t a = 0; !rc && a < c->atoms; a++) {
        step += a && layer_of(c, &c->atom[a]) != layer_of(c, &c->atom[a - 1]);
        list(ctx, c, &c->atom[a], step);
    }
    int status = rc ? shard_error(ctx, &err) : 0;
    tu_ckpt_close(c);
    return status;
}

static const char *const usage[] = {"[option ...] checkpoint", NULL};

const struct tu_cmd cmd_order = {
    .name = "load-order",
    .example = "shard-ckpt load-order checkpoint",
    .summary = "what to read for each layer, in order",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 1,
    .max = 1,
    .run = run,
};
