/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c: fa-run bench: time made-up problems, beside the ceilings measured in the same
 * run.
 *
 * FLOPs are exact: visible pairs, not half of N². Inputs are N(0,1) from the seed; caches
 * are not flushed. Results of the first run are checked against float64 where --check
 * asks for it. */
#include <math.h>
#include <string.h>
#include "fa-run/compare.h"

static struct {
    struct tu_list seqlen, headdim;
    uint64_t heads, heads_kv, batch, total, warmup, reps, keys;
    const char *dtype;
    bool verify;
} opt = {.heads = 8, .total = 16 << 10, .warmup = 2, .reps = 10, .dtype = "bf16"};

static const struct tu_opt options[] = {
    {0, "seqlen", NULL, "queries and keys; default 512,1k,2k,4k", TU_OPT_SIZE,
     &opt.seqlen, NULL, TU_OPT_LIST},
    {0, "keys", NULL, "keys, when they are not as many as the queries", TU_OPT_SIZE,
     &opt.keys, NULL, 0},
    {0, "headdim", NULL, "head dimensions; default 64,128", TU_OPT_U64, &opt.headdim,
     NULL, TU_OPT_LIST},
    {0, "heads", NULL, "query heads; default 8", TU_OPT_U64, &opt.heads, NULL, 0},
    {0, "heads-kv", NULL, "key heads; default: the query heads", TU_OPT_U64,
     &opt.heads_kv, NULL, 0},
    {0, "batch", NULL, "sequences; default: by --total", TU_OPT_U64, &opt.batch, NULL, 0},
    {0, "total", NULL, "tokens: batch is total/seqlen; default 16k", TU_OPT_SIZE,
     &opt.total, NULL, 0},
    {0, "storage", "DTYPE", "dtype of q, k and v; default bf16", TU_OPT_STRING,
     &opt.dtype, NULL, 0},
    {0, "warmup", NULL, "runs before timing; default 2", TU_OPT_U64, &opt.warmup, NULL,
     0},
    {0, "reps", NULL, "timed runs; default 10", TU_OPT_U64, &opt.reps, NULL, 0},
    {0, "check", NULL, "compare with float64 too", TU_OPT_FLAG, &opt.verify, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"op", NULL, TU_COL_TEXT, 0},
    {"pass", "PASS", TU_COL_TEXT, 0},
    {"dtype", "DTYPE", TU_COL_TEXT, 0},
    {"kernel", "KERNEL", TU_COL_TEXT, 0},
    {"batch", "B", TU_COL_U64, 0},
    {"heads", "HQ", TU_COL_U64, 0},
    {"heads_kv", "HKV", TU_COL_U64, 0},
    {"seqlen", "SQ", TU_COL_U64, 0},
    {"keys", "SK", TU_COL_U64, 0},
    {"headdim", "D", TU_COL_U64, 0},
    {"causal", "CAUSAL", TU_COL_BOOL, 0},
    {"threads", NULL, TU_COL_U64, 0},
    {"ms_min", "MIN_MS", TU_COL_REAL, 0},
    {"ms_med", "MED_MS", TU_COL_REAL, 0},
    {"ms_p95", "P95_MS", TU_COL_REAL, 0},
    {"gflops", "GFLOP/S", TU_COL_REAL, 0},
    {"pct_peak", "PEAK_%", TU_COL_REAL, 0},
    {"gbytes_s", "GB/S", TU_COL_REAL, 0},
    {"pct_read", "READ_%", TU_COL_REAL, 0},
    {"max_err", "MAX_ERR", TU_COL_REAL, 0},
    {"seed", NULL, TU_COL_U64, 0},
    {"flop_convention", NULL, TU_COL_TEXT, 0},
    {NULL, NULL, 0, 0},
};

struct shape {
    uint64_t batch, sq, sk, hq, hkv, d;
};

enum { MADE_MAX = 6, MAMBA_STATE = 16 };

/* An operator's inputs. dims: b batch, q queries, k keys, h heads, g key heads, d head
 * dimension, c channels (heads times head dimension), n states. fold: N(0,1), or this
 * times its magnitude, in f32, where the operator wants a sign. `do` is the last one. */
static const struct {
    const char *op;
    struct made {
        const char *name, *dims;
        double fold;
    } in[MADE_MAX];
} made[] = {
    {"softmax",
     {{"q", "bqhd", 0}, {"k", "bkgd", 0}, {"v", "bkgd", 0}, {"do", "bqhd", 0}}},
    {"linear",
     {{"q", "bqhd", 0}, {"k", "bkgd", 0}, {"v", "bkgd", 0}, {"do", "bqhd", 0}}},
    {"gla",
     {{"q", "bqhd", 0},
      {"k", "bkgd", 0},
      {"v", "bkgd", 0},
      {"gate", "bqhd", -0.1},
      {"do", "bqhd", 0}}},
    {"ssd",
     {{"x", "bqhd", 0},
      {"dt", "bqh", 0.1},
      {"A", "h", -1},
      {"B", "bqgd", 0},
      {"C", "bqgd", 0},
      {"do", "bqhd", 0}}},
    {"mamba",
     {{"u", "bqc", 0},
      {"dt", "bqc", 0.1},
      {"A", "cn", -1},
      {"B", "bqn", 0},
      {"C", "bqn", 0},
      {"do", "bqc", 0}}},
};

static uint64_t extent(const struct shape *s, char dim)
{
    switch (dim) {
    case 'b': return s->batch;
    case 'q': return s->sq;
    case 'k': return s->sk;
    case 'h': return s->hq;
    case 'g': return s->hkv;
    case 'd': return s->d;
    case 'c': return s->hq * s->d;
    default: return MAMBA_STATE;
    }
}

static int fill(struct tu_operand *o, const struct made *m, uint32_t dtype,
                const struct shape *s, uint64_t seed, struct tu_err *err)
{
    bool folds = m->fold < 0 || m->fold > 0;
    *o = (struct tu_operand){.name = m->name, .dtype = folds ? TU_F32 : dtype};
    for (; m->dims[o->rank]; o->rank++)
        o->dim[o->rank] = extent(s, m->dims[o->rank]);
    uint64_t n, bytes;
    int code = tu_elements(o->dim, o->rank, &n, err);
    if (code || (code = tu_tensor_bytes(o->dtype, o->dim, o->rank, &bytes, err)))
        return code;
    float *wide = tu_alloc(n, sizeof *wide, err);
    o->data = wide ? tu_alloc(bytes, 1, err) : NULL;
    code = o->data ? 0 : TU_ENOMEM;
    if (!code) {
        struct tu_rng rng = {seed, tu_rng_stream(m->name)};
        tu_rng_normal(&rng, 0, wide, n);
        for (uint64_t i = 0; folds && i < n; i++)
            wide[i] = (float)m->fold * fabsf(wide[i]);
        code = tu_cast(o->dtype, o->data, TU_F32, wide, n, err);
    }
    tu_free(wide);
    return code;
}

/* The inputs of the operator; those made so far are the caller's, also on failure. */
static int fill_all(struct tu_operand *in, size_t *n, const char *op, uint32_t dtype,
                    const struct shape *s, uint64_t seed, struct tu_err *err)
{
    int code = 0;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (!strcmp(made[i].op, op)) {
            const struct made *m = made[i].in;
            for (*n = 0; !code && *n < MADE_MAX && m[*n].name; ++*n)
                code = fill(&in[*n], &m[*n], dtype, s, seed, err);
            return code;
        }
    return tu_fail(err, TU_EUSAGE, "bench makes no problems for --op %s", op);
}

/* Bytes that must be read and written at least once. */
static double traffic(const struct tu_mixer_args *a)
{
    uint64_t bytes;
    double sum = 0;
    for (size_t i = 0; i < a->n_in; i++)
        if (!tu_tensor_bytes(a->in[i].dtype, a->in[i].dim, a->in[i].rank, &bytes, NULL))
            sum += (double)bytes;
    for (size_t i = 0; i < a->n_out; i++)
        if (!tu_tensor_bytes(a->out[i].dtype, a->out[i].dim, a->out[i].rank, &bytes,
                             NULL))
            sum += (double)bytes;
    return sum;
}

static int error_of(const struct tu_mixer *row, const struct tu_mixer_args *a,
                    double *out, struct tu_err *err)
{
    struct tu_mixer_args ref = *a;
    ref.algo = "ref";
    *out = 0;
    int code = fa_outputs(row, &ref, true, err);
    code = code ? code : row->run(&ref, err);
    for (size_t i = 0; !code && i < a->n_out; i++) {
        uint64_t n;
        struct fa_diff d;
        double *x = fa_doubles(&a->out[i], &n, err),
               *y = x ? fa_doubles(&ref.out[i], &n, err) : NULL;
        code = x && y ? 0 : err->code;
        if (!code)
            fa_compare(&d, x, y, n);
        if (!code)
            *out = fmax(*out, d.odd ? INFINITY : d.max_abs);
        tu_free(x);
        tu_free(y);
    }
    fa_outputs_free(&ref);
    return code;
}

/* Softmax is where it is asked for, a recurrence unless it is told otherwise. */
static bool is_causal(const struct tu_mixer *row, const struct tu_attn_opts *o)
{
    return strcmp(row->name, "softmax") ? !o->bidirectional : o->causal != 0;
}

static int time_it(struct tu_ctx *ctx, const struct tu_mixer *row,
                   const struct tu_mixer_args *a, const struct shape *s,
                   const struct tu_attn_peaks *peak, struct tu_err *err)
{
    double *ms = tu_alloc(opt.reps, sizeof *ms, err), worst = 0;
    int code = ms ? 0 : TU_ENOMEM;
    for (uint64_t i = 0; !code && i < opt.warmup + opt.reps; i++) {
        double start = tu_clock();
        code = row->run(a, err);
        if (i >= opt.warmup)
            ms[i - opt.warmup] = (tu_clock() - start) * 1e3;
    }
    if (!code && opt.verify)
        code = error_of(row, a, &worst, err);
    if (!code) {
        struct tu_stats st;
        struct tu_attn at;
        const char *kernel = "";
        if (!strcmp(row->name, "softmax") &&
            !tu_attn_init(&at, a->opt, a->in, a->n_in, NULL)) {
            kernel = tu_attn_kernel(&at);
            tu_attn_release(&at);
        }
        tu_stats_of(ms, opt.reps, &st);
        double gf = row->flops(a) / st.min / 1e6, gb = traffic(a) / st.min / 1e6;
        double top = !strcmp(kernel, "amx") ? peak->amx_gflops : peak->fma_gflops;
        tu_row(ctx, (struct tu_cell[]){{.s = row->name},
                                       {.s = a->pass == TU_PASS_FWD   ? "fwd"
                                             : a->pass == TU_PASS_BWD ? "bwd"
                                                                      : "both"},
                                       {.s = tu_dtype_find(a->in[0].dtype)->name},
                                       {.s = kernel},
                                       {.u = s->batch},
                                       {.u = s->hq},
                                       {.u = s->hkv},
                                       {.u = s->sq},
                                       {.u = s->sk},
                                       {.u = s->d},
                                       {.b = is_causal(row, a->opt)},
                                       {.u = tu_pool_size(ctx->job.pool)},
                                       {.f = st.min},
                                       {.f = st.median},
                                       {.f = st.p95},
                                       {.f = gf},
                                       {.f = 100 * gf / top},
                                       {.f = gb},
                                       {.f = 100 * gb / peak->read_gbs},
                                       {.none = !opt.verify, .f = worst},
                                       {.u = ctx->seed},
                                       {.s = "exact"}});
    }
    tu_free(ms);
    return code;
}

static int bench_one(struct tu_ctx *ctx, const struct tu_mixer *row,
                     const struct tu_attn_opts *o, const struct shape *s, uint32_t dtype,
                     const struct tu_attn_peaks *peak, struct tu_err *err)
{
    static const int pass[] = {TU_PASS_FWD, TU_PASS_BWD, TU_PASS_BOTH};
    struct tu_operand in[MADE_MAX] = {{0}};
    struct tu_mixer_args a = {.opt = o,
                              .in = in,
                              .pass = pass[fa_opts.pass],
                              .algo = fa_opts.algo,
                              .job = tu_ctx_job(ctx)};
    int code = fill_all(in, &a.n_in, row->name, dtype, s, ctx->seed, err);
    if (!(a.pass & TU_PASS_BWD) && a.n_in)
        a.n_in--;
    code = code ? code : fa_outputs(row, &a, false, err);
    code = code ? code : time_it(ctx, row, &a, s, peak, err);
    fa_outputs_free(&a);
    for (unsigned i = 0; i < MADE_MAX; i++)
        tu_free(in[i].data);
    return code;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static uint64_t lens[] = {512, 1024, 2048, 4096}, dims[] = {64, 128};
    const struct tu_mixer *row;
    struct tu_attn_opts o;
    struct tu_attn_peaks peak;
    struct tu_err err = {0};
    const struct tu_dtype *dtype = tu_dtype_called(opt.dtype);
    (void)argc;
    (void)argv;
    if (!dtype || !tu_dtype_is_float(dtype->code) || !tu_dtype_is_plain(dtype->code))
        return tu_usage(ctx, "--storage: '%.40s' is no plain float dtype", opt.dtype);
    if (opt.reps == 0 || opt.heads == 0)
        return tu_usage(ctx, "--reps and --heads must be at least 1");
    int code = fa_resolve(ctx, &row, &o, &err);
    code = code ? code : tu_attn_peaks_measure(&peak, 0.2, tu_ctx_job(ctx), &err);
    if (code)
        return tu_error(ctx, &err);
    uint64_t nl = opt.seqlen.n ? opt.seqlen.n : 4, nd = opt.headdim.n ? opt.headdim.n : 2;
    const uint64_t *len = opt.seqlen.n ? TU_LIST(&opt.seqlen, uint64_t) : lens;
    const uint64_t *dim = opt.headdim.n ? TU_LIST(&opt.headdim, uint64_t) : dims;
    tu_rows_begin(ctx, columns);
    for (uint64_t i = 0; !code && i < nd; i++)
        for (uint64_t k = 0; !code && k < nl; k++) {
            struct shape s = {.sq = len[k],
                              .sk = opt.keys ? opt.keys : len[k],
                              .hq = opt.heads,
                              .hkv = opt.heads_kv ? opt.heads_kv : opt.heads,
                              .d = dim[i]};
            s.batch = opt.batch ? opt.batch : tu_max(1, opt.total / tu_max(1, s.sq));
            code = bench_one(ctx, row, &o, &s, dtype->code, &peak, &err);
        }
    return code ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"[option ...]", NULL};

const struct tu_cmd fa_bench = {
    .name = "bench",
    .example = "fa-run bench --causal",
    .summary = "time made-up problems beside measured peaks",
    .usage = usage,
    .opts = options,
    .shared = fa_shared,
    .flags = TU_CMD_COUNTS,
    .min = 0,
    .max = 0,
    .run = run,
};
