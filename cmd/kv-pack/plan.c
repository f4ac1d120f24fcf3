/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: kv-pack plan: what caches of a model take, who fits, what moving them costs. */
#include <inttypes.h>
#include <string.h>
#include "kv-pack/pack.h"

static struct {
    const char *config, *dtype;
    struct tu_list ctx;
    uint64_t hbm, tp, answer, page;
    double link, bandwidth, flops, params;
} opt = {.dtype = "bf16", .hbm = UINT64_C(80000000000), .tp = 1, .answer = 250,
         .link = 20e9, .bandwidth = 2e12, .flops = 312e12};

static const struct tu_opt options[] = {
    {0, "config", "FILE", "config.json of the model", TU_OPT_FILE_IN, &opt.config, NULL, 0},
    {0, "ctx", "N,...", "tokens of a context, 4K is 4096; default: 4K,128K", TU_OPT_SIZE,
     &opt.ctx, NULL, TU_OPT_LIST},
    {0, "store", "TYPE", "what a number is kept as: a dtype, kivi2, kivi4, kv4, fp8, split16",
     TU_OPT_STRING, &opt.dtype, NULL, 0},
    {0, "tp", "N", "ranks that share the heads; default: 1", TU_OPT_U64, &opt.tp, NULL, 0},
    {0, "hbm", "SIZE", "memory of the device; default: 80GB", TU_OPT_SIZE, &opt.hbm, NULL, 0},
    {0, "bandwidth", "RATE", "of that memory; default: 2000GB/s", TU_OPT_RATE, &opt.bandwidth,
     NULL, 0},
    {0, "flops", "X", "of the device, a second; default: 312e12", TU_OPT_DOUBLE, &opt.flops,
     NULL, 0},
    {0, "link", "RATE", "to where caches are moved; default: 20GB/s", TU_OPT_RATE, &opt.link,
     NULL, 0},
    {0, "params", "X", "parameters; default: estimated from the configuration", TU_OPT_DOUBLE,
     &opt.params, NULL, 0},
    {0, "answer", "N", "tokens of an answer; default: 250", TU_OPT_U64, &opt.answer, NULL, 0},
    {0, "page", "SIZE", "vAttention: tokens that a page of physical memory holds",
     TU_OPT_SIZE, &opt.page, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"tokens", "TOKENS", TU_COL_U64, 0},
    {"kv_bytes", "KV-BYTES", TU_COL_U64, 0},
    {"kv_gib", "KV-GiB", TU_COL_REAL, 0},
    {"users", "USERS", TU_COL_U64, 0},
    {"prefill_s", "PREFILL-S", TU_COL_REAL, 0},
    {"decode_s", "DECODE-S", TU_COL_REAL, 0},
    {"switch_s", "SWITCH-S", TU_COL_REAL, 0},
    {"load_above_gbs", "LOAD>GB/S", TU_COL_REAL, 0},
    {"page_tokens", NULL, TU_COL_U64, 0},
    {0},
};

static int one(struct tu_ctx *ctx, const struct tu_kv_sizes *s, const struct tu_kv_device *d,
               uint64_t n, double bits, struct tu_err *err)
{
    struct tu_kv_context c;
    uint64_t kv, heads = tu_max(1, s->heads / opt.tp);
    int rc = n ? tu_kv_bytes(s, n, bits, opt.tp, &kv, err)
               : tu_fail(err, TU_EUSAGE, "--ctx 0");
    if (rc)
        return rc;
    tu_kv_context(&c, s, d, n, kv);
    uint64_t token = (uint64_t)((double)(heads * s->dim_k) * bits / 8);
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = n},
                    {.u = c.kv},
                    {.f = (double)c.kv / 1073741824.0},
                    {.u = c.users},
                    {.f = c.prefill},
                    {.f = c.decode},
                    {.f = c.swap},
                    {.f = c.load_above / 1e9},
                    {.none = !opt.page || !token, .u = token ? opt.page / token : 0},
                });
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const uint64_t usual[] = {4096, 131072};
    struct tu_err err;
    struct tu_kv_sizes s;
    char *text;
    size_t n;
    (void)argc;
    (void)argv;
    if (!opt.config || !opt.tp)
        return tu_usage(ctx, "plan: --config is needed, and --tp is at least 1");
    int rc = tu_file_read(opt.config, (size_t)16 << 20, &text, &n, &err);
    if (rc)
        return tu_error(ctx, &err);
    rc = tu_kv_sizes_from_hf(&s, text, n, &err);
    tu_free(text);
    if (rc) {
        tu_err_prefix(&err, "%s", opt.config);
        return tu_error(ctx, &err);
    }
    double bits = tu_kv_bits(opt.dtype, s.dim_k);
    if (!(bits > 0))
        return tu_usage(ctx, "plan: --store '%s' is no dtype or codec", opt.dtype);
    struct tu_kv_device d = {.hbm = (double)opt.hbm, .bandwidth = opt.bandwidth,
                             .flops = opt.flops, .link = opt.link, .answer = opt.answer,
                             .params = opt.params > 0 ? opt.params : s.params};
    d.weight_bytes = 2 * d.params;
    tu_note(ctx, 1, "%" PRIu64 " layers (%" PRIu64 " with a window of %" PRIu64 "), %" PRIu64
                    " KV heads, %.4g parameters, %.4g bits a number; GB is 1e9 bytes",
            s.layers, s.local, s.window, s.heads, d.params, bits);
    tu_rows_begin(ctx, columns);
    for (size_t i = 0; !rc && i < (opt.ctx.n ? opt.ctx.n : 2); i++)
        rc = one(ctx, &s, &d, opt.ctx.n ? TU_LIST(&opt.ctx, uint64_t)[i] : usual[i], bits, &err);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"--config file [option ...]", NULL};

const struct tu_cmd kv_plan = {
    .name = "plan",
    .example = "kv-pack plan --config config.json --ctx 8K",
    .summary = "what caches of a model take: memory, users, prefill, decode, moving",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_NO_FORCE | TU_CMD_NO_THREADS | TU_CMD_NO_PROGRESS | TU_CMD_NO_SEED |
             TU_CMD_NO_DEVICE,
    .max = 0,
    .run = run,
};
