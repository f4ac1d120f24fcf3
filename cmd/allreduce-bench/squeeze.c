/* SPDX-License-Identifier: Apache-2.0 */
/* squeeze.c: allreduce-bench squeeze: all-reduce of compressed vectors, its bytes and its
 * error. */
#include "allreduce-bench/bench.h"

static struct {
    const char *transport;
    struct tu_list compress;
    uint64_t ranks, bytes, steps, timeout;
} opt = {.transport = "shm",
         .ranks = 2,
         .bytes = 1 << 20,
         .steps = 1,
         .timeout = UINT64_C(30000000000)};

static const struct tu_opt options[] = {
    {0, "compress", "COMPRESSION|CODEC", "with [:KEY=VALUE,...]; repeatable (default all of ours)",
     TU_OPT_STRING, &opt.compress, NULL, TU_OPT_EACH},
    {0, "transport", "TRANSPORT", "how bytes move (default shm)", TU_OPT_STRING,
     &opt.transport, NULL, 0},
    {'n', "ranks", NULL, "ranks (default 2)", TU_OPT_U64, &opt.ranks, NULL, 0},
    {'b', "bytes", NULL, "size of a rank's f32 vector (default 1M)", TU_OPT_SIZE,
     &opt.bytes, NULL, 0},
    {0, "steps", NULL, "repeat so often with error feedback (default 1)", TU_OPT_U64,
     &opt.steps, NULL, 0},
    {0, "timeout", NULL, "without progress the group gives up (default 30s)",
     TU_OPT_DURATION, &opt.timeout, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"compress", "COMPRESS", TU_COL_TEXT, 20},
    {"ranks", "RANKS", TU_COL_U64, 5},
    {"bytes", "BYTES", TU_COL_U64, 11},
    {"wire_bytes", "WIRE_BYTES", TU_COL_U64, 11},
    {"ratio", "RATIO", TU_COL_REAL, 8},
    {"time_us", "TIME_US", TU_COL_REAL, 10},
    {"max_abs", "MAX_ABS", TU_COL_REAL, 11},
    {"relative", "RELATIVE", TU_COL_REAL, 11},
    {"cosine", "COSINE", TU_COL_REAL, 9},
    {"bias", "BIAS", TU_COL_REAL, 12},
    {"steps", NULL, TU_COL_U64, 0},
    {"averaged", "AVERAGED", TU_COL_REAL, 11},
    {NULL, NULL, TU_COL_TEXT, 0},
};

struct job {
    struct tu_ctx *ctx;
    const char *text;
};

static int in_rank(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    const struct job *j = ctx;
    struct tu_squeeze_result res;
    int code = tu_squeeze_run(r, j->text, opt.bytes / sizeof(float), (uint32_t)opt.steps,
                              j->ctx->seed, &res, err);
    return code || tu_rank_id(r) ? code : tu_rank_post(r, &res, sizeof res, err);
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    const struct job *j = ctx;
    struct tu_squeeze_result r;
    (void)rank;
    memcpy(&r, p, tu_min(n, sizeof r));
    double ratio = r.wire_bytes ? (double)r.plain_bytes / (double)r.wire_bytes : 0;
    const struct tu_cell cells[] = {
        {.s = j->text},
        {.u = r.ranks},
        {.u = r.count * sizeof(float)},
        {.u = r.wire_bytes},
        {.none = !r.wire_bytes, .f = ratio},
        {.f = r.seconds * 1e6},
        {.f = r.max_abs},
        {.f = r.relative},
        {.f = r.cosine},
        {.f = r.bias},
        {.u = r.steps},
        {.f = r.averaged},
    };
    tu_row(j->ctx, cells);
}

static int one(struct tu_ctx *ctx, const char *text, struct tu_err *err)
{
    struct job j = {ctx, text};
    struct tu_squeeze *s = NULL;
    struct tu_group g = {.transport = opt.transport,
                         .size = (uint32_t)opt.ranks,
                         .timeout = opt.timeout,
                         .ctx = &j,
                         .fn = in_rank,
                         .post = posted,
                         .job = tu_ctx_alone(ctx)};
    int code = tu_squeeze_new(&s, text, 0, 0, err); /* before ranks are started for it */
    tu_squeeze_free(s);
    return code ? code : tu_group_run(&g, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err = {0};
    int code = 0;
    (void)argc;
    (void)argv;
    if (opt.ranks < 1 || opt.ranks > TU_RANKS_MAX)
        return tu_usage(ctx, "--ranks %llu: 1 to %u", (unsigned long long)opt.ranks,
                        TU_RANKS_MAX);
    if (!opt.steps || opt.steps > 1000000 || opt.bytes > UINT64_C(1) << 40)
        return tu_usage(ctx, "--steps 1 to 1000000, --bytes up to 1T");
    tu_rows_begin(ctx, columns);
    for (size_t i = 0; i < opt.compress.n && !code; i++)
        code = one(ctx, TU_LIST(&opt.compress, const char *)[i], &err);
    for (size_t i = 0; tu_squeeze_rows[i].name && !opt.compress.n && !code; i++)
        code = one(ctx, tu_squeeze_rows[i].name, &err);
    return code ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...]", NULL};

const struct tu_cmd bench_squeeze = {
    .name = "squeeze",
    .example = "allreduce-bench squeeze -n 4 --compress int8:block=256",
    .summary = "all-reduce compressed vectors and report the error",
    .usage = usage,
    .opts = options,
    .run = run,
};
