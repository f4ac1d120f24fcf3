/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: kv-pack convert: another layout, dtype, number of ranks, part or position. */
#include <string.h>
#include "kv-pack/pack.h"

static struct {
    const char *layout, *tp, *layers, *tokens, *heads;
    uint64_t block, rope_dim;
    uint32_t dtype;
    int64_t shift, rot;
    double theta;
    bool interleaved;
} opt = {.rot = -1};

static const struct tu_opt options[] = {
    {'l', "layout", "LAYOUT", "layout of the result; default: by tokens", TU_OPT_STRING,
     &opt.layout, NULL, 0},
    {'b', "block", "N", "tokens of a page; default: 16", TU_OPT_U64, &opt.block, NULL, 0},
    {'d', "dtype", "DTYPE", "of the result: plain, or blocks such as q8_0", TU_OPT_DTYPE,
     &opt.dtype, NULL, 0},
    {0, "tp", "N[:R]", "share the heads out over N ranks, a segment each; R: that one alone",
     TU_OPT_STRING, &opt.tp, NULL, 0},
    {0, "layers", "A-B", "layers A to B-1", TU_OPT_STRING, &opt.layers, NULL, 0},
    {0, "tokens", "A-B", "tokens A to B-1", TU_OPT_STRING, &opt.tokens, NULL, 0},
    {0, "heads", "A-B", "KV heads A to B-1", TU_OPT_STRING, &opt.heads, NULL, 0},
    {0, "shift", "N", "move positions by N and turn the keys along", TU_OPT_I64, &opt.shift,
     NULL, 0},
    {0, "rope", "THETA", "base of the rotary embedding, where META kv has none",
     TU_OPT_DOUBLE, &opt.theta, NULL, 0},
    {0, "rope-dim", "N", "columns that are rotated; default: all", TU_OPT_U64, &opt.rope_dim,
     NULL, 0},
    {0, "interleaved", NULL, "rotated pairs are neighbours", TU_OPT_FLAG, &opt.interleaved,
     NULL, 0},
    {0, "rot", "N", "size of the result's Hadamard rotation; 0: take it back", TU_OPT_I64, &opt.rot,
     NULL, 0},
    {0},
};

static int choose(struct tu_kv_convert *c, struct tu_err *err)
{
    tu_kv_convert_init(c);
    c->block = opt.block;
    c->dtype = opt.dtype;
    c->shift = opt.shift;
    c->theta = opt.theta;
    c->rope_dim = opt.rope_dim;
    c->interleaved = opt.interleaved;
    c->rot = opt.rot;
    int rc = opt.rot > 0 && (opt.rot & (opt.rot - 1))
                 ? tu_fail(err, TU_EUSAGE, "--rot: no power of two")
                 : 0;
    if (!rc && opt.layout)
        rc = tu_kv_layout_find(&c->layout, opt.layout, err);
    if (!rc && opt.tp)
        rc = kv_tp(opt.tp, &c->tp, &c->tp_rank, err);
    if (!rc)
        rc = kv_range(opt.layers, "--layers", &c->layers, err);
    if (!rc)
        rc = kv_range(opt.tokens, "--tokens", &c->tokens, err);
    return rc ? rc : kv_range(opt.heads, "--heads", &c->heads, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    struct tu_kv_convert how;
    struct tu_writer *w = NULL;
    int rc = choose(&how, &err);
    if (!rc)
        rc = kv_streams(argc, argv, &set, &err);
    if (!rc)
        rc = kv_writer(ctx, &w, &err);
    for (size_t i = 0, n; !rc && i < set.n; i += n) {
        n = tu_kv_ranks(set.kv + i, set.n - i);
        rc = tu_kv_convert_run(set.kv + i, n, &how, w, tu_ctx_job(ctx), &err);
    }
    tu_kv_set_release(&set);
    return kv_written(ctx, w, rc, &err);
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd kv_convert = {
    .name = "convert",
    .example = "kv-pack convert --layout hnd cache.tns -o heads.tns",
    .summary = "change layout, dtype, ranks or positions, or take a part",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run,
};
