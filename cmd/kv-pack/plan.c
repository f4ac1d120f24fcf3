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
    bool map;
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
    {0, "map", NULL, "vAttention here: sizes of pages, and what mapping one takes",
     TU_OPT_FLAG, &opt.map, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"tokens", "TOKENS", TU_COL_U64, 0},
    {"kv_bytes", "KV_BYTES", TU_COL_U64, 0},
    {"kv_gib", "KV_GIB", TU_COL_REAL, 0},
    {"users", "USERS", TU_COL_U64, 0},
    {"prefill_s", "PREFILL_S", TU_COL_REAL, 0},
    {"decode_s", "DECODE_S", TU_COL_REAL, 0},
    {"switch_s", "SWITCH_S", TU_COL_REAL, 0},
    {"load_above_gbs", "LOAD_GB/S", TU_COL_REAL, 0},
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

static const struct tu_column mapped[] = {
    {"tokens", "TOKENS", TU_COL_U64, 0},
    {"page", "PAGE", TU_COL_U64, 0},
    {"huge", "HUGE", TU_COL_BOOL, 0},
    {"page_tokens", "PAGE_TOKENS", TU_COL_U64, 0},
    {"group_bytes", "GROUP_BYTES", TU_COL_U64, 0},
    {"groups", "GROUPS", TU_COL_U64, 0},
    {"reserved", "RESERVED_BYTES", TU_COL_U64, 0},
    {"waste", "WASTE", TU_COL_REAL, 0},
    {"map_us", "MAP_US", TU_COL_REAL, 0},
    {"touch_us", "TOUCH_US", TU_COL_REAL, 0},
    {"ahead_us", "AHEAD_US", TU_COL_REAL, 0},
    {0},
};

/* Seconds for each page of `how`. */
struct mapping {
    double map, touch; /* a step that needs a page: mapping it, and its first writes */
    double ahead;      /* both, where a thread has mapped it before */
};

/* Write to every small page of group g. */
static void touch(const struct tu_kv_reserve *r, const struct tu_kv_reserve_how *how,
                  uint64_t g)
{
    for (uint64_t t = 0; t < how->tensors; t++) {
        unsigned char *p = tu_kv_reserve_at(r, t, 0, NULL);
        for (uint64_t i = g * how->page; i < (g + 1) * how->page; i += 4096)
            *(volatile unsigned char *)(p + i) = 1;
    }
}

/* A request that grows by a group at a time; the first one cannot be mapped ahead and does
 * not count. */
static int grow(const struct tu_kv_reserve_how *how, double *map, double *first,
                struct tu_err *err)
{
    struct tu_kv_reserve *r;
    uint64_t request, each = tu_kv_reserve_tokens(how);
    int rc = tu_kv_reserve_new(&r, how, err);
    if (!rc)
        rc = tu_kv_reserve_begin(r, &request, err);
    *map = *first = 0;
    for (uint64_t g = 0; !rc && g < how->groups; g++) {
        double begin = tu_clock();
        rc = tu_kv_reserve_grow(r, request, tu_min((g + 1) * each, how->context), err);
        double then = tu_clock();
        *map += g ? then - begin : 0;
        if (!rc)
            touch(r, how, g);
        *first += g ? tu_clock() - then : 0;
        if (!rc)
            tu_kv_reserve_settle(r); /* the step's own work */
    }
    if (!rc) {
        *map /= (double)((how->groups - 1) * how->tensors);
        *first /= (double)((how->groups - 1) * how->tensors);
    }
    tu_kv_reserve_free(r);
    return rc;
}

/* Four groups or more, in as many of the tensors as there is room for. */
static int measure(struct tu_kv_reserve_how how, struct mapping *out, struct tu_err *err)
{
    enum { MOST = 64 << 20, LEAST = 4 };
    double map, first;
    how.tensors = tu_max(1, tu_min(how.tensors, MOST / (LEAST * how.page)));
    how.groups = tu_max(LEAST, MOST / (how.page * how.tensors));
    how.context = tu_max(how.context, how.groups * tu_kv_reserve_tokens(&how));
    int rc = grow(&how, &out->map, &out->touch, err);
    how.ahead = true;
    if (!rc)
        rc = grow(&how, &map, &first, err);
    out->ahead = map + first;
    return rc;
}

static int one_map(struct tu_ctx *ctx, const struct tu_kv_sizes *s, uint64_t n, double bits,
                   uint64_t page, bool huge, struct tu_err *err)
{
    uint64_t heads = tu_max(1, s->heads / opt.tp), slot;
    double row = (double)(s->latent ? s->latent : heads * s->dim_k) * bits / 8;
    struct tu_kv_reserve_how how = {.row = (uint64_t)row, .page = page, .requests = 1,
                                    .tensors = s->layers * (s->latent ? 1 : 2),
                                    .context = n, .huge = huge};
    uint64_t each = tu_kv_reserve_tokens(&how);
    if (!n || !how.row || !each || page > 64 << 20)
        return tu_fail(err, TU_EUSAGE, "--map: %" PRIu64 " tokens of %" PRIu64
                       " bytes on pages of %" PRIu64 " (64 MiB at most)", n, how.row, page);
    how.groups = n / each + (n % each != 0);
    struct mapping m;
    int rc = tu_kv_reserve_slot(&how, &slot, err);
    if (!rc)
        rc = measure(how, &m, err);
    if (rc)
        return rc;
    double held = (double)how.groups * (double)page;
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = n},
                    {.u = page},
                    {.b = huge},
                    {.u = each},
                    {.u = page * how.tensors},
                    {.u = how.groups},
                    {.u = slot},
                    {.f = 1 - (double)n * (double)how.row / held},
                    {.f = m.map * 1e6},
                    {.f = m.touch * 1e6},
                    {.f = m.ahead * 1e6},
                });
    return 0;
}

static int maps(struct tu_ctx *ctx, const struct tu_kv_sizes *s, uint64_t n, double bits,
                struct tu_err *err)
{
    static const uint64_t usual[] = {64 << 10, 128 << 10, 256 << 10, 2 << 20};
    int rc = 0;
    for (size_t i = 0; !rc && i < (opt.page ? 1 : 4); i++) {
        uint64_t page = opt.page ? opt.page : usual[i];
        rc = one_map(ctx, s, n, bits, page, false, err);
        if (!rc && page % (2 << 20) == 0)
            rc = one_map(ctx, s, n, bits, page, true, err);
    }
    return rc;
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
    if (!opt.config)
        return tu_usage(ctx, "plan: --config is needed");
    if (!opt.tp)
        return tu_usage(ctx, "plan: --tp is at least 1");
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
    tu_rows_begin(ctx, opt.map ? mapped : columns);
    for (size_t i = 0; !rc && i < (opt.ctx.n ? opt.ctx.n : 2); i++) {
        uint64_t tokens = opt.ctx.n ? TU_LIST(&opt.ctx, uint64_t)[i] : usual[i];
        rc = opt.map ? maps(ctx, &s, tokens, bits, &err)
                     : one(ctx, &s, &d, tokens, bits, &err);
    }
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"--config file [option ...]", NULL};

const struct tu_cmd kv_plan = {
    .name = "plan",
    .example = "kv-pack plan --config config.json --ctx 8K",
    .summary = "what caches of a model take: memory, users, prefill, decode, moving",
    .usage = usage,
    .opts = options,
    .max = 0,
    .run = run,
};
