/* SPDX-License-Identifier: Apache-2.0 */
/* tns-gen: made-up tensors as a stream: for tests, benchmarks and examples. */
#include <limits.h>
#include <string.h>
#include <tensorutils/stream.h>
#include "common/main.h"

static struct {
    struct tu_gen gen;
    struct tu_shape shape;
    uint32_t dtype;
    const char *dist;
    bool index;
} opt = {.gen = {.std = 1, .hi = 1, .step = 1, .channels = 4, .scale = 20},
         .dtype = TU_F32,
         .dist = "normal"};

static const struct tu_opt options[] = {
    {'s', "shape", NULL, "shape of tensors that give none: 2,3 or 2x3", TU_OPT_SHAPE,
     &opt.shape, NULL, 0},
    {'d', "dtype", NULL, "dtype of tensors that give none; default f32", TU_OPT_DTYPE,
     &opt.dtype, NULL, 0},
    {0, "dist", "DIST", "distribution; --list shows them", TU_OPT_STRING, &opt.dist, NULL,
     0},
    {0, "mean", NULL, "normal: mean; default 0", TU_OPT_DOUBLE, &opt.gen.mean, NULL, 0},
    {0, "std", NULL, "normal: deviation; default 1", TU_OPT_DOUBLE, &opt.gen.std, NULL,
     0},
    {0, "lo", NULL, "uniform, arange: first value; default 0", TU_OPT_DOUBLE, &opt.gen.lo,
     NULL, 0},
    {0, "hi", NULL, "uniform: end; default 1", TU_OPT_DOUBLE, &opt.gen.hi, NULL, 0},
    {0, "step", NULL, "arange: step; default 1", TU_OPT_DOUBLE, &opt.gen.step, NULL, 0},
    {0, "value", NULL, "constant: value; default 0", TU_OPT_DOUBLE, &opt.gen.value, NULL,
     0},
    {0, "channels", NULL, "outlier: how many channels; default 4", TU_OPT_U64,
     &opt.gen.channels, NULL, 0},
    {0, "scale", NULL, "outlier: factor; default 20", TU_OPT_DOUBLE, &opt.gen.scale, NULL,
     0},
    {'i', "index", NULL, "an INDEX at the end", TU_OPT_FLAG, &opt.index, NULL, 0},
    {0},
};

/* One tensor to make. */
struct job {
    struct tu_gen gen;
    struct tu_tensor t;
    uint64_t dim[TU_RANK_MAX];
    uint64_t elements;
};

/* A number of a spec. */
static int take_double(const struct tu_spec *s, const char *key, double *out,
                       struct tu_err *err)
{
    const char *text = tu_spec_get(s, key);
    int rc = text ? tu_parse_double(text, out, err) : 0;
    if (rc)
        tu_err_prefix(err, "%s", key);
    return rc;
}

static int take_dtype(const struct tu_spec *s, uint32_t *out, struct tu_err *err)
{
    const char *text = tu_spec_get(s, "dtype");
    int rc = text ? tu_parse_dtype(text, out, err) : 0;
    if (rc)
        tu_err_prefix(err, "dtype");
    return rc;
}

static int take_spec(struct job *j, const struct tu_spec *s, struct tu_err *err)
{
    static const char *const keys[] = {"shape", "dtype", "dist", "mean",  "std",
                                       "lo",    "hi",    "step", "value", "channels",
                                       "scale", "seed",  NULL};
    const struct {
        const char *key;
        double *out;
    } numbers[] = {
        {"mean", &j->gen.mean}, {"std", &j->gen.std},     {"lo", &j->gen.lo},
        {"hi", &j->gen.hi},     {"step", &j->gen.step},   {"value", &j->gen.value},
        {"scale", &j->gen.scale},
    };
    unsigned rank = opt.shape.rank;
    const char *shape = tu_spec_get(s, "shape"), *dist = tu_spec_get(s, "dist");
    memcpy(j->dim, opt.shape.dim, sizeof j->dim);
    int rc = tu_spec_check(s, keys, err);
    if (!rc && shape)
        rc = tu_parse_shape(shape, j->dim, &rank, TU_RANK_MAX, err);
    else if (!rc && !opt.shape.given)
        rc = tu_fail(err, TU_EUSAGE, "no shape; use --shape or %.60s:shape=2x3", s->name);
    if (!rc)
        rc = take_dtype(s, &j->t.dtype, err);
    if (!rc)
        rc = tu_gen_find(&j->gen.dist, dist ? dist : opt.dist, err);
    for (size_t i = 0; !rc && i < sizeof numbers / sizeof *numbers; i++)
        rc = take_double(s, numbers[i].key, numbers[i].out, err);
    if (!rc)
        rc = tu_spec_u64(s, "channels", j->gen.channels, &j->gen.channels, err);
    if (!rc)
        rc = tu_spec_u64(s, "seed", j->gen.seed, &j->gen.seed, err);
    j->t.rank = rank;
    j->t.dim = j->dim;
    j->t.name = s->name;
    return rc;
}

/* Fill a wave of chunks, a task each. */
struct wave {
    const struct job *j;
    uint64_t first, n;     /* elements */
    uint64_t chunk;        /* elements of a task */
    size_t chunk_bytes;
    unsigned char *buf;
};

static int fill(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    const struct wave *w = ctx;
    const uint64_t at = task * w->chunk;
    (void)worker;
    return tu_gen_fill(&w->j->gen, &w->j->t, w->first + at,
                       (size_t)tu_min(w->chunk, w->n - at),
                       w->buf + task * w->chunk_bytes, err);
}

#define CHUNK_BYTES ((size_t)1 << 20)

static int write_values(struct tu_ctx *ctx, const struct job *j, struct tu_writer *w,
                        struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(j->t.dtype);
    struct tu_pool *pool = tu_ctx_pool(ctx);
    const unsigned tasks = 2 * tu_pool_size(pool);
    struct wave wave = {.j = j,
                        .chunk = CHUNK_BYTES / 64 / d->block_bytes * 64 * d->block_elems};
    wave.chunk_bytes = (size_t)(wave.chunk / d->block_elems * d->block_bytes);
    wave.buf = tu_alloc(tasks, wave.chunk_bytes, err);
    int rc = wave.buf ? 0 : TU_ENOMEM;
    for (; !rc && wave.first < j->elements; wave.first += wave.n) {
        wave.n = tu_min(j->elements - wave.first, tasks * wave.chunk);
        rc = tu_pool_run(pool, tu_ceil_div(wave.n, wave.chunk), fill, &wave, err);
        if (rc)
            break;
        uint64_t bytes = tu_ceil_div(wave.n, d->block_elems) * d->block_bytes;
        rc = tu_writer_write(w, wave.buf, (size_t)bytes, err);
        tu_job_progress(tu_ctx_job(ctx), wave.first + wave.n, j->elements);
    }
    tu_free(wave.buf);
    return rc;
}

static int generate(struct tu_ctx *ctx, const char *text, struct tu_writer *w,
                    struct tu_err *err)
{
    struct job j = {.gen = opt.gen, .t.dtype = opt.dtype};
    struct tu_spec spec;
    struct tu_record rec;
    j.gen.seed = ctx->seed;
    int rc = tu_spec_parse(&spec, text, err);
    if (rc)
        return rc;
    rc = take_spec(&j, &spec, err);
    if (!rc)
        rc = tu_elements(j.dim, j.t.rank, &j.elements, err);
    if (!rc)
        rc = tu_tensor_bytes(j.t.dtype, j.dim, j.t.rank, &j.t.bytes, err);
    if (!rc && (j.t.dtype & TU_DTYPE_GGML))
        rc = tu_fail(err, TU_EUSAGE, "block formats are made by quantize");
    if (!rc && tu_name_check(spec.name, strlen(spec.name)) < strlen(spec.name))
        rc = tu_fail(err, TU_ENAME, "a name with a control byte or ill-formed UTF-8");
    if (rc) {
        /* Sizes and names that cannot be are a wrong request here, not wrong data. */
        if (rc == TU_ESIZE || rc == TU_ELIMIT || rc == TU_ENAME)
            err->code = rc = TU_EUSAGE;
        tu_err_prefix(err, "'%.80s'", text);
        goto out;
    }
    tu_record_of(&rec, &j.t);
    rc = tu_writer_record(w, &rec, err);
    if (!rc)
        rc = write_values(ctx, &j, w, err);
out:
    tu_spec_release(&spec);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_out *out;
    struct tu_writer *w = NULL;
    int rc = tu_ctx_output(ctx, &out, &err);
    if (!rc)
        rc = tu_writer_new(&w, out, &err);
    for (int i = 0; !rc && i < argc; i++)
        rc = generate(ctx, argv[i], w, &err);
    if (!rc)
        rc = tu_writer_end(w, opt.index, &err);
    if (!rc) {
        rc = tu_writer_close(w, false, &err);
        w = NULL;
    }
    int status = rc ? tu_error(ctx, &err) : 0;
    tu_writer_abort(w);
    return status;
}

static const char *const usage[] = {"[option ...] tensor[:key=value,...] ...", NULL};
static const struct tu_listing listings[] = {
    {"dists", "distributions of values", tu_gen_name, NULL},
    {0},
};

static const struct tu_cmd command = {
    .name = "tns-gen",
    .example = "tns-gen q k v --shape 1,128,4,64 --dtype bf16 -o qkv.tns",
    .summary = "make up tensors",
    .usage = usage,
    .opts = options,
    .listings = listings,
    .flags = TU_CMD_STREAM | TU_CMD_WORDS | TU_CMD_COUNTS,
    .min = 1,
    .max = TU_ANY,
    .run = run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
