/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: allreduce-bench run: measure and verify collectives. */
#include <stdio.h>
#include "allreduce-bench/bench.h"

static const char *const timings[] = {"loop", "each", NULL};
static const char *const buffers[] = {"shared", "private", NULL};
static const char *const caches[] = {"hot", "cold", NULL};
static const char *const formats[] = {"nccl", "nccl-json", "osu", "csv", NULL};

static struct {
    const char *transport, *op, *rendezvous, *iface, *trace, *pattern, *check;
    struct tu_list coll, dtype, algo, inject;
    uint64_t ranks, rank, min, max, factor, step, iters, warmup, root, timeout, unalign;
    double min_time, min_bw, premul;
    int timing, buffers, cache, data, order;
    bool out_only;
} opt = {.transport = "shm",
         .op = "sum",
         .ranks = 2,
         .rank = UINT64_MAX,
         .min = 1024,
         .max = 4 << 20,
         .factor = 4,
         .iters = 20,
         .warmup = 5,
         .check = "1",
         .premul = 2,
         .timeout = UINT64_C(30000000000)};

static const struct tu_opt options[] = {
    {0, "coll", "COLLECTIVE|all", "what is measured (default allreduce)", TU_OPT_STRING, &opt.coll,
     NULL, TU_OPT_LIST},
    {0, "transport", "TRANSPORT", "how bytes move (default shm)", TU_OPT_STRING,
     &opt.transport, NULL, 0},
    {'n', "ranks", NULL, "ranks (default 2)", TU_OPT_U64, &opt.ranks, NULL, 0},
    {'b', "min", NULL, "smallest size (default 1K)", TU_OPT_SIZE, &opt.min, NULL, 0},
    {'e', "max", NULL, "largest size (default 4M)", TU_OPT_SIZE, &opt.max, NULL, 0},
    {0, "factor", NULL, "each size is so many times the one before (default 4)",
     TU_OPT_U64, &opt.factor, NULL, 0},
    {0, "step", NULL, "each size is so many bytes larger instead", TU_OPT_SIZE, &opt.step,
     NULL, 0},
    {'d', "dtype", NULL, "element types (default f32)", TU_OPT_DTYPE, &opt.dtype, NULL,
     TU_OPT_LIST},
    {0, "op", "sum|prod|min|max|avg|mulsum", "what is done to the elements (default sum)",
     TU_OPT_STRING, &opt.op, NULL, 0},
    {0, "premul", NULL, "factor of mulsum (default 2)", TU_OPT_DOUBLE, &opt.premul, NULL,
     0},
    {0, "root", NULL, "root of the rooted collectives (default 0)", TU_OPT_U64, &opt.root,
     NULL, 0},
    {0, "algo", "ALGORITHM[:KEY=VALUE,...]|auto|all",
     "how it is done; several with commas (default auto)", TU_OPT_STRING, &opt.algo, NULL,
     TU_OPT_EACH | TU_OPT_SPECS},
    {0, "reduce-order", NULL, "order of additions: the algorithm's, a tree, or exact",
     TU_OPT_CHOICE, &opt.order, tu_order_names, 0},
    {0, "iters", NULL, "operations timed for a size (default 20)", TU_OPT_U64, &opt.iters,
     NULL, 0},
    {0, "warmup", NULL, "operations before (default 5)", TU_OPT_U64, &opt.warmup, NULL,
     0},
    {0, "min-time", "SECONDS", "raise --iters until a size takes this long",
     TU_OPT_DOUBLE, &opt.min_time, NULL, 0},
    {0, "timing", NULL, "back to back, or one by one with barriers", TU_OPT_CHOICE,
     &opt.timing, timings, 0},
    {0, "buffers", NULL, "memory that peers see, or ordinary memory", TU_OPT_CHOICE,
     &opt.buffers, buffers, 0},
    {0, "cache", NULL, "the same buffer each time, or the next part of it", TU_OPT_CHOICE,
     &opt.cache, caches, 0},
    {0, "check", "N", "untimed operations that are verified (default 1), or timed: all",
     TU_OPT_STRING, &opt.check, NULL, 0},
    {0, "data", NULL, "what is sent", TU_OPT_CHOICE, &opt.data, tu_fill_names, 0},
    {0, "unalign", NULL, "elements that buffers are off their alignment", TU_OPT_U64,
     &opt.unalign, NULL, 0},
    {0, "out-of-place", NULL, "leave out the in-place runs", TU_OPT_FLAG, &opt.out_only,
     NULL, 0},
    {0, "min-bw", NULL, "status 1 if a bus bandwidth is lower", TU_OPT_RATE, &opt.min_bw,
     NULL, 0},
    {0, "timeout", NULL, "without progress the group gives up (default 30s)",
     TU_OPT_DURATION, &opt.timeout, NULL, 0},
    {0, "inject", "FAULT", "play a fault: slow link kill stop stall close flip",
     TU_OPT_STRING, &opt.inject, NULL, TU_OPT_EACH},
    {0, "trace", NULL, "what each rank saw of each operation, for diagnose",
     TU_OPT_FILE_OUT, &opt.trace, NULL, 0},
    {0, "pattern", "PATTERN[:KEY=VALUE,...]", "replay a training pattern instead",
     TU_OPT_STRING, &opt.pattern, NULL, 0},
    {0, "rendezvous", "WHERE", "HOST:PORT or file:FOLDER: ranks started by a launcher",
     TU_OPT_STRING, &opt.rendezvous, NULL, 0},
    {0, "rank", NULL, "which one this is (default: what mpirun or srun says)", TU_OPT_U64,
     &opt.rank, NULL, 0},
    {0, "iface", "ADDRESS", "address to listen at (transport tcp)", TU_OPT_STRING,
     &opt.iface, NULL, 0},
    {0},
};

struct run {
    struct tu_ctx *ctx;
    struct tu_bench bench;
    struct bench_facts facts;
    struct tu_tasks tasks; /* of --pattern */
    struct tu_out *trace;
    struct tu_err trace_err;
    double busbw;
    uint64_t rows, wrong, slow, differ;
};

static void take_trace(struct run *r, const char *line, size_t n)
{
    if (strcmp(opt.trace, "-") == 0)
        tu_print(r->ctx, "%.*s\n", (int)n, line);
    else if (r->trace && !r->trace_err.code &&
             (tu_out_write(r->trace, line, n, &r->trace_err) ||
              tu_out_write(r->trace, "\n", 1, &r->trace_err)))
        return;
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct run *r = ctx;
    struct tu_bench_row row;
    (void)rank;
    if (n < 4)
        return;
    if (tu_le32(p) == TU_BENCH_TRACE) {
        take_trace(r, (const char *)p + 4, n - 4);
        return;
    }
    if (opt.pattern) {
        struct tu_replay_result res = {0};
        memcpy(&res, (const char *)p + 4, tu_min(n - 4, sizeof res));
        r->wrong += res.wrong;
        bench_pattern_row(r->ctx, opt.pattern, r->facts.ranks, &res);
        return;
    }
    memcpy(&row, (const char *)p + 4, tu_min(n - 4, sizeof row));
    bool first = !r->rows;
    for (int i = 0; i < 2; i++) {
        const struct tu_timing *t = &row.place[i];
        if (!t->done)
            continue;
        r->busbw += t->busbw;
        r->rows++;
        r->wrong += t->wrong > 0 ? (uint64_t)t->wrong : 0;
        r->differ += t->differ;
        r->slow += opt.min_bw > 0 && row.bytes && t->busbw < opt.min_bw;
    }
    if (!opt.trace || strcmp(opt.trace, "-") != 0)
        bench_row(r->ctx, &r->facts, &row, first);
}

static int in_rank(struct tu_rank *rank, void *ctx, struct tu_err *err)
{
    const struct run *r = ctx;
    if (opt.pattern)
        return bench_pattern_rank(rank, &r->tasks, opt.iters, r->ctx->seed, err);
    return tu_bench_rank(rank, &r->bench, err);
}

/* Sizes from -b, -e and --factor or --step. */
static int list_collectives(enum tu_collective *c, size_t *n, struct tu_err *err)
{
    *n = 0;
    for (size_t i = 0; i < opt.coll.n; i++) {
        const char *name = TU_LIST(&opt.coll, const char *)[i];
        if (strcmp(name, "all") == 0) {
            for (*n = 0; *n < TU_BARRIER; ++*n)
                c[*n] = (enum tu_collective) * n;
            return 0;
        }
        int code = bench_collective(name, &c[*n], err);
        if (code)
            return code;
        if (++*n > TU_COLLECTIVES)
            return tu_fail(err, TU_EUSAGE, "--coll names one twice");
    }
    if (!*n)
        c[(*n)++] = TU_ALLREDUCE;
    return 0;
}

/* --check N, off or timed. */
static int read_check(struct tu_bench *b, struct tu_err *err)
{
    b->check_timed = strcmp(opt.check, "timed") == 0;
    b->check = 0;
    if (b->check_timed && (opt.iters > 10000 || opt.min_time > 0))
        return tu_fail(err, TU_EUSAGE, "--check timed: at most 10000 --iters");
    return b->check_timed || !strcmp(opt.check, "off")
               ? 0
               : tu_parse_u64(opt.check, &b->check, err);
}

static int check_options(const struct tu_bench *b, struct tu_err *err)
{
    if (!opt.iters)
        return tu_fail(err, TU_EUSAGE, "--iters 0 times nothing");
    if (opt.ranks < 1 || opt.ranks > TU_RANKS_MAX)
        return tu_fail(err, TU_EUSAGE, "--ranks %llu: 1 to %u",
                       (unsigned long long)opt.ranks, TU_RANKS_MAX);
    if (opt.root >= opt.ranks)
        return tu_fail(err, TU_EUSAGE, "--root %llu of %llu ranks",
                       (unsigned long long)opt.root, (unsigned long long)opt.ranks);
    if (opt.unalign > 64)
        return tu_fail(err, TU_EUSAGE, "--unalign %llu: at most 64 elements",
                       (unsigned long long)opt.unalign);
    int code = 0;
    for (size_t i = 0; i < b->dtypes && !code; i++) {
        if (!tu_dtype_is_plain(b->dtype[i]))
            code = tu_fail(err, TU_EUSAGE, "collectives move whole elements, no blocks");
        for (size_t k = 0; k < b->colls && !code; k++)
            if (tu_collective_rows[b->coll[k]].reduces)
                code = tu_reduce_check(b->dtype[i], b->op, err);
    }
    for (size_t i = 0; i < b->algos && !code; i++) {
        struct tu_spec s;
        bool known = !strcmp(b->algo[i], "auto") || !strcmp(b->algo[i], "all");
        if ((code = tu_spec_parse(&s, b->algo[i], err)))
            break;
        for (size_t k = 0; k < b->colls && !known; k++)
            known = tu_algorithm_find(b->coll[k], s.name) != NULL;
        if (!known)
            code = tu_fail(err, TU_EUSAGE, "--coll has no algorithm '%s'", s.name);
        tu_spec_release(&s);
    }
    return code;
}

static int run_group(struct run *r, struct tu_err *err)
{
    struct tu_group g = {.transport = opt.transport,
                         .size = (uint32_t)opt.ranks,
                         .timeout = opt.timeout,
                         .rendezvous = opt.rendezvous,
                         .host = opt.iface,
                         .ctx = r,
                         .fn = in_rank,
                         .post = posted,
                         .job = tu_ctx_alone(r->ctx)};
    char agree[200];
    snprintf(agree, sizeof agree,
             "%s %s %s b=%llu e=%llu f=%llu s=%llu i=%llu o=%d %.60s",
             opt.coll.n ? TU_LIST(&opt.coll, const char *)[0] : "allreduce", opt.op,
             r->bench.algo[0], (unsigned long long)opt.min, (unsigned long long)opt.max,
             (unsigned long long)opt.factor, (unsigned long long)opt.step,
             (unsigned long long)opt.iters, opt.order, opt.pattern ? opt.pattern : "");
    g.agree = agree;
    int code = opt.rendezvous ? bench_launched(&g, opt.rank, opt.ranks, err) : 0;
    struct tu_fault *fault = tu_calloc(opt.inject.n, sizeof *fault, err);
    if (!fault)
        return TU_ENOMEM;
    for (size_t i = 0; i < opt.inject.n && !code; i++)
        code = tu_fault_parse(&fault[i], TU_LIST(&opt.inject, const char *)[i], err);
    g.fault = fault;
    g.faults = opt.inject.n;
    if (!code)
        code = tu_bench_shared(&r->bench, g.size, &g.shared, err);
    r->facts.ranks = g.size;
    if (!code && opt.pattern)
        code = tu_tasks_make(&r->tasks, opt.pattern, g.size, err);
    bool head = !opt.pattern && !g.rank && !(opt.trace && !strcmp(opt.trace, "-"));
    const struct tu_transport *row;
    if (!code)
        code = tu_transport_find(&row, opt.transport, err);
    head = head && !code;
    if (head)
        bench_head(r->ctx, &r->facts);
    if (!code && opt.pattern)
        bench_pattern_head(r->ctx);
    if (!code)
        code = tu_group_run(&g, err);
    tu_free(fault);
    if (head)
        bench_foot(r->ctx, &r->facts, r->rows ? r->busbw / (double)r->rows : 0, r->wrong,
                   opt.min_bw, code ? err->msg : NULL);
    return code;
}

static int verdict(struct run *r)
{
    if (r->wrong)
        tu_warn(r->ctx, "%llu elements are wrong", (unsigned long long)r->wrong);
    if (r->differ)
        tu_warn(r->ctx, "ranks hold different bits in %llu rows",
                (unsigned long long)r->differ);
    if (r->slow)
        tu_warn(r->ctx, "%llu rows are below %g GB/s", (unsigned long long)r->slow,
                opt.min_bw / 1e9);
    return r->wrong || r->differ || r->slow ? TU_STATUS_NO : TU_STATUS_YES;
}

/* The measurement that the options ask for, but for its lists of sizes and collectives. */
static void describe_bench(const struct tu_ctx *ctx, struct tu_bench *b)
{
    static const char *const automatic[] = {"auto"};
    static const uint32_t f32[] = {TU_F32};
    *b = (struct tu_bench){
        .dtype = opt.dtype.n ? TU_LIST(&opt.dtype, uint32_t) : f32,
        .dtypes = opt.dtype.n ? opt.dtype.n : 1,
        .algo = opt.algo.n ? TU_LIST(&opt.algo, const char *) : automatic,
        .algos = opt.algo.n ? opt.algo.n : 1,
        .op = (enum tu_op)bench_index(tu_op_names, opt.op),
        .order = (enum tu_order)opt.order,
        .fill = (enum tu_fill)opt.data,
        .root = (uint32_t)opt.root,
        .unalign = (uint32_t)opt.unalign,
        .premul = opt.premul,
        .min_time = opt.min_time,
        .iters = opt.iters,
        .warmup = opt.warmup,
        .seed = ctx->seed,
        .each = opt.timing == 1,
        .hidden = opt.buffers == 1,
        .cold = opt.cache == 1,
        .trace = opt.trace != NULL,
        .out_only = opt.out_only || opt.trace,
    };
}

/* What the reports say of it. */
static struct bench_facts facts_of(const struct tu_bench *b)
{
    return (struct bench_facts){
        .transport = opt.transport,
        .op = opt.op,
        .iters = opt.iters,
        .warmup = opt.warmup,
        .min = opt.min,
        .max = opt.max,
        .factor = opt.factor,
        .step = opt.step,
        .check = b->check_timed ? b->iters : b->check,
        .each = b->each,
        .cold = b->cold,
        .private_buffers = b->hidden,
        .root = b->root,
        .reduce_order = tu_order_names[opt.order],
    };
}

/* The lists are the caller's. */
static int prepare(struct run *r, enum tu_collective *coll, uint64_t **sizes,
                   struct tu_err *err)
{
    struct tu_bench *b = &r->bench;
    describe_bench(r->ctx, b);
    int code = list_collectives(coll, &b->colls, err);
    if (!code)
        code = read_check(b, err);
    r->facts = facts_of(b);
    if (!code)
        code = bench_sizes(&r->facts, sizes, &b->sizes, err);
    b->coll = coll;
    b->bytes = *sizes;
    if (!code)
        code = check_options(b, err);
    if (!code && opt.trace && strcmp(opt.trace, "-") != 0)
        code = tu_out_open(&r->trace, opt.trace, tu_ctx_alone(r->ctx), err);
    return code;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    enum tu_collective coll[TU_COLLECTIVES + 1];
    struct run r = {.ctx = ctx};
    struct tu_err err = {0};
    uint64_t *sizes = NULL;
    (void)argc;
    (void)argv;
    if (bench_index(tu_op_names, opt.op) < 0)
        return tu_usage(ctx, "no operation '%s'", opt.op);
    int code = prepare(&r, coll, &sizes, &err);
    if (!code)
        code = run_group(&r, &err);
    if (r.trace_err.code && !code)
        code = (err = r.trace_err).code;
    /* The trace of a run that failed is what diagnose needs. */
    struct tu_err late;
    if (r.trace && tu_out_commit(r.trace, false, &late))
        tu_error(ctx, &late);
    tu_free(sizes);
    tu_tasks_release(&r.tasks);
    return code ? tu_error(ctx, &err) : verdict(&r);
}

static const char *const usage[] = {"[option ...]", NULL};

const struct tu_cmd bench_run = {
    .name = "run",
    .example = "allreduce-bench run -n 4 -b 1K -e 64K --algo ring",
    .summary = "measure and verify collectives",
    .usage = usage,
    .opts = options,
    .formats = formats,
    .run = run,
};
