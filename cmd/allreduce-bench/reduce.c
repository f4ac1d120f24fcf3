/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c: allreduce-bench reduce: each segment of the input is one rank's tensors; the
 * result is their reduction.
 *
 * In the tree's order (the default) the workers share the elements and their number
 * cannot be seen in the result. With --reduce-order any the segments are ranks and run
 * the algorithm. */
#include <tensorutils/stream.h>
#include "allreduce-bench/bench.h"

static struct {
    const char *op, *algo;
    uint64_t ranks, memory;
    double premul;
    int order;
} opt = {.op = "sum",
         .algo = "auto",
         .ranks = 2,
         .memory = UINT64_C(1) << 32,
         .premul = 2,
         .order = TU_ORDER_FIXED};

static const struct tu_opt options[] = {
    {0, "op", "sum|prod|min|max|avg|mulsum", "what is done to the elements (default sum)",
     TU_OPT_STRING, &opt.op, NULL, 0},
    {0, "premul", NULL, "factor of mulsum (default 2)", TU_OPT_DOUBLE, &opt.premul, NULL,
     0},
    {'n', "ranks", NULL, "workers (default 2)", TU_OPT_U64, &opt.ranks, NULL, 0},
    {0, "algo", "ALGORITHM[:KEY=VALUE,...]|auto", "algorithm of --reduce-order any (default auto)",
     TU_OPT_STRING, &opt.algo, NULL, 0},
    {0, "reduce-order", NULL, "order of additions (default fixed: a tree)", TU_OPT_CHOICE,
     &opt.order, tu_order_names, 0},
    {0, "memory", NULL, "what the inputs may take (default 4G)", TU_OPT_SIZE, &opt.memory,
     NULL, 0},
    {0},
};

struct item {
    struct tu_tensor tensor;
    void *data;
    uint64_t count;
};

struct inputs {
    struct tu_arena *arena;
    struct item *item; /* segment after segment, each in the order of the first */
    size_t n, cap, per, segments, in_segment;
    uint64_t bytes;
};

static bool same_shape(const struct tu_tensor *a, const struct tu_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0;
}

/* Where a record of a later segment belongs: the place of its name in the first. */
static int place_of(struct inputs *in, const struct tu_tensor *t, size_t *place,
                    struct tu_err *err)
{
    for (size_t i = 0; i < in->per; i++) {
        if (strcmp(in->item[i].tensor.name, t->name) != 0)
            continue;
        *place = in->segments * in->per + i;
        if (!same_shape(&in->item[i].tensor, t))
            return tu_fail(err, TU_EINCOMPLETE,
                           "segment %zu: '%s' has another dtype or shape "
                           "than in segment 0",
                           in->segments, t->name);
        if (in->item[*place].data)
            return tu_fail(err, TU_EINCOMPLETE, "segment %zu: '%s' comes twice",
                           in->segments, t->name);
        return 0;
    }
    return tu_fail(err, TU_EINCOMPLETE, "segment %zu: '%s' is not in segment 0",
                   in->segments, t->name);
}

static int room(struct inputs *in, size_t n, struct tu_err *err)
{
    while (in->cap < n) {
        size_t before = in->cap;
        int code = TU_GROW(&in->item, &in->cap, tu_max(in->cap, 1), err);
        if (code)
            return code;
        memset(in->item + before, 0, (in->cap - before) * sizeof *in->item);
    }
    return 0;
}

static int take(struct inputs *in, struct tu_reader *r, const struct tu_record *rec,
                struct tu_err *err)
{
    struct tu_tensor t;
    size_t place = in->n;
    tu_record_tensor(rec, &t);
    int op = bench_index(tu_op_names, opt.op);
    int code = tu_reduce_check(t.dtype, (enum tu_op)op, err);
    if (code) {
        tu_err_prefix(err, "'%s'", t.name);
        return code;
    }
    for (size_t i = 0; i < in->n && !in->segments && !code; i++)
        if (strcmp(in->item[i].tensor.name, t.name) == 0)
            code = tu_fail(err, TU_EINCOMPLETE, "'%s' comes twice", t.name);
    if (!code && in->segments)
        code = place_of(in, &t, &place, err);
    if (!code)
        code = room(in, place + 1, err);
    if (code)
        return code;
    struct item *item = &in->item[place];
    if (in->bytes + t.bytes > opt.memory)
        return tu_fail(err, TU_ENOMEM, "the inputs take more than --memory %llu",
                       (unsigned long long)opt.memory);
    code = tu_tensor_make(&item->tensor, in->arena, t.name, t.dtype, t.dim, t.rank,
                          t.meta, err);
    if (!code)
        code = tu_elements(t.dim, t.rank, &item->count, err);
    if (!code)
        code = tu_reader_load(r, t.bytes, &item->data, err);
    in->bytes += t.bytes;
    in->in_segment++;
    in->n = tu_max(in->n, place + 1);
    return code;
}

static int read_one(struct inputs *in, const char *path, struct tu_err *err)
{
    struct tu_in *file;
    struct tu_reader *r;
    const struct tu_record *rec;
    int code = tu_in_open(&file, path, err);
    if (!code)
        code = tu_reader_new(&r, file, 0, NULL, err);
    if (code)
        return code;
    while (!(code = tu_reader_next(r, &rec, err)) && rec) {
        if (rec->type == TU_REC_TENSOR) {
            code = take(in, r, rec, err);
        } else if (rec->type == TU_REC_END) {
            if (!in->segments)
                in->per = in->n;
            if (in->in_segment != in->per)
                code = tu_fail(err, TU_EINCOMPLETE,
                               "segment %zu has %zu tensors, segment 0 %zu", in->segments,
                               in->in_segment, in->per);
            in->segments++;
            in->in_segment = 0;
        }
        if (code)
            break;
    }
    if (code)
        tu_err_prefix(err, "%s", tu_reader_name(r));
    tu_reader_free(r);
    return code;
}

/* One tensor, by a group of ranks that are threads. */
struct job {
    const struct inputs *in;
    size_t item;
    enum tu_op op, fold;
    void *out;
    const void **src; /* [segments] */
    struct tu_plan plan;
};

static const struct item *input(const struct job *j, size_t segment)
{
    return &j->in->item[segment * j->in->per + j->item];
}

/* A worker's share of the elements. */
static int share(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    const struct job *j = ctx;
    size_t size = tu_dtype_find(input(j, 0)->tensor.dtype)->block_bytes,
           n = j->in->segments;
    uint64_t count = input(j, 0)->count, ranks = tu_rank_size(r), me = tu_rank_id(r);
    uint64_t from = count / ranks * me + tu_min(me, count % ranks);
    uint64_t len = count / ranks + (me < count % ranks);
    const void **src = tu_calloc(n, sizeof *src, err);
    if (!src)
        return TU_ENOMEM;
    for (size_t s = 0; s < n; s++)
        src[s] = (const unsigned char *)j->src[s] + from * size;
    int code =
        tu_combine((unsigned char *)j->out + from * size, src, (uint32_t)n, len,
                   input(j, 0)->tensor.dtype, j->fold, (enum tu_order)opt.order, err);
    tu_free(src);
    return code;
}

/* A segment's rank. */
static int as_rank(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    const struct job *j = ctx;
    const struct item *mine = input(j, tu_rank_id(r));
    struct tu_exec *x;
    int code = tu_exec_new(&x, r, &j->plan, mine->tensor.dtype, j->op, TU_ORDER_ANY,
                           opt.premul, err);
    void *out = code || !tu_rank_id(r) ? j->out : tu_alloc(mine->tensor.bytes, 1, err);
    if (!out)
        code = TU_ENOMEM;
    if (!code)
        code = tu_exec_run(x, mine->data, out, err);
    if (out != j->out)
        tu_free(out);
    if (!code)
        tu_exec_free(x);
    return code;
}

static int reduce_tensor(struct tu_ctx *ctx, struct job *j, struct tu_err *err)
{
    const struct item *first = input(j, 0);
    size_t n = j->in->segments;
    bool ranks = opt.order == TU_ORDER_ANY;
    struct tu_group g = {.transport = "threads",
                         .size = (uint32_t)(ranks ? n : opt.ranks),
                         .ctx = j,
                         .fn = ranks ? as_rank : share,
                         .job = tu_ctx_alone(ctx)};
    int code = 0;
    if (ranks) {
        struct tu_spec spec;
        const char *name = opt.algo;
        if (strcmp(name, "auto") == 0)
            name = tu_algorithm_auto(TU_ALLREDUCE, g.size, (double)first->tensor.bytes,
                                     true, TU_ORDER_ANY);
        if ((code = tu_spec_parse(&spec, name, err)))
            return code;
        code = tu_plan_make(&j->plan, TU_ALLREDUCE, &spec, g.size, 0, first->count, err);
        tu_spec_release(&spec);
        return code ? code : tu_group_run(&g, err);
    }
    if (j->op == TU_PREMUL)
        for (size_t s = 0; s < n; s++)
            tu_reduce_scale(first->tensor.dtype, input(j, s)->data, (size_t)first->count,
                            opt.premul);
    for (size_t s = 0; s < n; s++)
        j->src[s] = input(j, s)->data;
    code = tu_group_run(&g, err);
    if (!code && j->op == TU_AVG)
        tu_reduce_scale(first->tensor.dtype, j->out, (size_t)first->count,
                        1.0 / (double)n);
    return code;
}

static int write_all(struct tu_ctx *ctx, const struct inputs *in, enum tu_op op,
                     struct tu_err *err)
{
    struct tu_out *out;
    struct tu_writer *w;
    struct job j = {
        .in = in, .op = op, .fold = op == TU_AVG || op == TU_PREMUL ? TU_SUM : op};
    int code = tu_ctx_output(ctx, &out, err);
    if (!code)
        code = tu_writer_new(&w, out, err);
    if (code)
        return code;
    j.src = tu_calloc(in->segments, sizeof *j.src, err);
    if (!j.src)
        code = TU_ENOMEM;
    for (j.item = 0; j.item < in->per && !code; j.item++) {
        const struct item *first = input(&j, 0);
        j.out = tu_alloc((size_t)first->tensor.bytes, 1, err);
        code = j.out ? reduce_tensor(ctx, &j, err) : TU_ENOMEM;
        if (!code)
            code = tu_writer_tensor(w, &first->tensor, j.out, err);
        tu_free(j.out);
    }
    tu_free(j.src);
    if (!code)
        code = tu_writer_end(w, false, err);
    if (code)
        tu_writer_abort(w);
    else
        code = tu_writer_close(w, false, err);
    return code;
}

static void report(struct tu_ctx *ctx, const struct inputs *in)
{
    struct tu_jw *w = tu_result_begin(ctx);
    if (!w)
        return;
    tu_jw_u64(w, "segments", in->segments);
    tu_jw_u64(w, "tensors", in->per);
    tu_jw_u64(w, "bytes", in->bytes);
    tu_jw_str(w, "op", opt.op);
    tu_jw_str(w, "reduce_order", tu_order_names[opt.order]);
    tu_jw_u64(w, "workers", opt.order == TU_ORDER_ANY ? in->segments : opt.ranks);
    tu_result_end(ctx);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static char dash[] = "-";
    char *standard[] = {dash};
    struct inputs in = {0};
    struct tu_err err;
    int op = bench_index(tu_op_names, opt.op);
    if (op < 0)
        return tu_usage(ctx, "no operation '%s'", opt.op);
    if (opt.ranks < 1 || opt.ranks > TU_RANKS_MAX)
        return tu_usage(ctx, "--ranks %llu: 1 to %u", (unsigned long long)opt.ranks,
                        TU_RANKS_MAX);
    in.arena = tu_arena_new(&err);
    int code = in.arena ? 0 : TU_ENOMEM;
    if (!argc) {
        argv = standard;
        argc = 1;
    }
    for (int i = 0; i < argc && !code; i++)
        code = read_one(&in, argv[i], &err);
    if (!code && in.segments > TU_RANKS_MAX)
        code = tu_fail(&err, TU_ELIMIT, "%zu segments: at most %u", in.segments,
                       TU_RANKS_MAX);
    if (!code)
        code = write_all(ctx, &in, (enum tu_op)op, &err);
    if (!code)
        report(ctx, &in);
    for (size_t i = 0; i < in.n; i++)
        tu_free(in.item[i].data);
    tu_free(in.item);
    tu_arena_free(in.arena);
    return code ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd bench_reduce = {
    .name = "reduce",
    .example = "cat rank*.tns | allreduce-bench reduce --op avg -o mean.tns",
    .summary = "reduce the tensors of the segments of a stream",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run,
};
