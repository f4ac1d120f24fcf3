/* SPDX-License-Identifier: Apache-2.0 */
/* quantize encode and measure: tensors in, codes out, or their error alone. */
#include <inttypes.h>
#include <string.h>
#include "quantize/quantize.h"
#include "quantize/meta.h"

static bool with_error;

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct tu_writer *writer; /* NULL: measure only */
    bool measure;
    struct tu_measure total;
    uint64_t from, to; /* bytes */
};

static const struct tu_column columns[] = {
    {"dtype", "FROM", TU_COL_TEXT, 0},
    {"type", "TYPE", TU_COL_TEXT, 0},
    {"bpw", "BPW", TU_COL_REAL, 0},
    {"rmse", "RMSE", TU_COL_REAL, 0},
    {"relative", "RELATIVE", TU_COL_REAL, 0},
    {"sqnr_db", "SQNR", TU_COL_REAL, 0},
    {"max_abs", "MAX", TU_COL_REAL, 0},
    {"max_at", NULL, TU_COL_U64, 0},
    {"cosine", "COSINE", TU_COL_REAL, 0},
    {"bias", NULL, TU_COL_REAL, 0},
    {"clipped", NULL, TU_COL_REAL, 0},
    {"zeros", NULL, TU_COL_REAL, 0},
    {"nan", NULL, TU_COL_U64, 0},
    {"inf", NULL, TU_COL_U64, 0},
    {"replaced", NULL, TU_COL_U64, 0},
    {"fallback_from", NULL, TU_COL_TEXT, 0},
    {"why", NULL, TU_COL_TEXT, 0},
    {"bytes", NULL, TU_COL_U64, 0},
    {"name", "NAME", TU_COL_NAME, 0},
    {0},
};

static void tell(struct run *r, const char *name, const char *dtype, const struct task *t,
                 uint64_t bytes, uint64_t replaced, const struct tu_measure *m)
{
    const bool none = m->n == 0;
    const double n = none ? 1 : (double)m->n;
    const uint64_t elements = t ? t->coding.elements : m->n;
    if (!r->measure && !tu_json_wanted(r->ctx))
        return;
    tu_row(r->ctx,
           (const struct tu_cell[]){
               {.s = dtype},
               {.s = t ? t->choice.type : "-"},
               {.f = elements ? 8 * (double)bytes / (double)elements : 0},
               {.none = none, .f = tu_measure_rmse(m)},
               {.none = none, .f = tu_measure_relative(m)},
               {.none = none, .f = tu_measure_sqnr(m)},
               {.none = none, .f = m->max_abs},
               {.none = none, .u = m->max_at},
               {.none = none, .f = tu_measure_cosine(m)},
               {.none = none, .f = m->sum_e / n},
               {.none = none, .f = (double)m->clipped / n},
               {.none = none, .f = (double)m->zeros / n},
               {.none = none, .u = m->nan},
               {.none = none, .u = m->inf},
               {.u = replaced},
               {.none = !t || !t->choice.fallback, .s = t ? t->choice.wanted : NULL},
               {.s = t ? t->choice.why : "all coded tensors"},
               {.u = bytes},
               {.s = name},
           });
}

static int flow_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    return input_read(&((struct run *)ctx)->in, buf, n, err);
}

static int flow_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    struct run *r = ctx;
    return r->writer ? tu_writer_write(r->writer, p, n, err) : 0;
}

static int flow_rewind(void *ctx, struct tu_err *err)
{
    return input_rewind(&((struct run *)ctx)->in, err);
}

static int begin_record(struct run *r, const char *name, uint32_t dtype,
                        const uint64_t *dim, unsigned rank, const char *meta,
                        struct tu_err *err)
{
    struct tu_tensor t = {
        .name = name, .dtype = dtype, .rank = rank, .dim = dim, .meta = meta};
    struct tu_record rec;
    int rc = tu_tensor_bytes(dtype, dim, rank, &t.bytes, err);
    if (rc || !r->writer)
        return rc;
    tu_record_of(&rec, &t);
    return tu_writer_record(r->writer, &rec, err);
}

/* The side tensors, after the codes. */
static int put_sides(struct run *r, const struct task *t, void *const *side,
                     struct tu_err *err)
{
    struct tu_buf name = {0};
    int rc = 0;
    for (unsigned k = 0; !rc && k < t->coding.sides; k++) {
        const struct tu_part *p = &t->coding.side[k];
        tu_buf_reset(&name);
        rc = tu_buf_printf(&name, err, "%s.%s", r->in.tensor.name, p->suffix);
        if (!rc)
            rc = begin_record(r, name.data, p->dtype, p->dim, p->rank, NULL, err);
        if (!rc)
            rc = flow_write(r, side[k], (size_t)p->bytes, err);
    }
    tu_buf_release(&name);
    return rc;
}

static int encode_codec(struct run *r, struct task *t, struct tu_measure *m,
                        uint64_t *replaced, struct tu_err *err)
{
    const struct tu_tensor *x = &r->in.tensor;
    struct tu_flow flow = {r, flow_read, flow_write, flow_rewind};
    struct tu_coding_run run = {.flow = &flow,
                                .dtype = x->dtype,
                                .nonfinite = (enum tu_nonfinite)choosing.nonfinite,
                                .measure = r->measure ? m : NULL};
    void *side[TU_CODING_SIDES] = {NULL};
    struct tu_buf meta = {0};
    int rc = quant_meta(&t->coding, &t->spec, x, &meta, err);
    for (unsigned k = 0; !rc && k < t->coding.sides; k++)
        if (!(side[k] = tu_calloc((size_t)t->coding.side[k].bytes, 1, err)))
            rc = TU_ENOMEM;
    if (!rc && t->coding.two_pass)
        rc = input_spool(&r->in, err);
    if (!rc)
        rc = begin_record(r, x->name, t->coding.code.dtype, t->coding.code.dim,
                          t->coding.code.rank, meta.data, err);
    if (!rc)
        rc = tu_coding_encode(&t->coding, &run, side, tu_ctx_job(r->ctx), err);
    if (!rc)
        rc = put_sides(r, t, side, err);
    *replaced = run.replaced;
    for (unsigned k = 0; k < t->coding.sides; k++)
        tu_free(side[k]);
    tu_buf_release(&meta);
    return rc;
}

/* A tensor that is only cast. */
static int encode_cast(struct run *r, uint32_t to, struct tu_err *err)
{
    enum { N = 16384 };
    static unsigned char in[N * 16], out[N * 16];
    const struct tu_tensor *x = &r->in.tensor;
    const struct tu_dtype *from = tu_dtype_find(x->dtype), *d = tu_dtype_find(to);
    int rc = begin_record(r, x->name, to, x->dim, x->rank, x->meta, err);
    for (uint64_t left = x->bytes; !rc && left;) {
        size_t n = (size_t)tu_min(left, N * (uint64_t)from->block_bytes);
        size_t blocks = n / from->block_bytes;
        rc = input_read(&r->in, in, n, err);
        if (!rc)
            rc = tu_cast(to, out, x->dtype, in, blocks, err);
        if (!rc)
            rc = flow_write(r, out, blocks * d->block_bytes, err);
        left -= n;
    }
    return rc;
}

static void warn_of(struct run *r, const struct task *t, uint64_t replaced)
{
    const char *name = r->in.tensor.name;
    if (t->choice.fallback)
        tu_warn(r->ctx, "%s: '%.80s': %s instead of %s: %s", r->in.path, name,
                t->choice.type, t->choice.wanted, t->choice.why);
    if (replaced)
        tu_warn(r->ctx, "%s: '%.80s': %" PRIu64 " elements that are not finite set to 0",
                r->in.path, name, replaced);
    if (t->repaired)
        tu_warn(r->ctx,
                "%s: '%.80s': %" PRIu64
                " runs of importance weights are all 0, taken as 1",
                r->in.path, name, t->repaired);
}

static int encode_tensor(struct run *r, struct tu_err *err)
{
    const struct tu_tensor *x = &r->in.tensor;
    struct task t;
    struct tu_measure m = {0};
    uint64_t replaced = 0;
    char code[8];
    int rc = task_begin(&t, &choosing, x, err);
    if (rc)
        return rc;
    uint64_t bytes = task_bytes(&t, x);
    if (t.codec)
        rc = encode_codec(r, &t, &m, &replaced, err);
    else if (r->writer)
        rc = t.cast ? encode_cast(r, t.cast, err)
                    : tu_feed_copy(r->in.feed, r->writer, err);
    if (rc) {
        tu_err_prefix(err, "'%.80s'", x->name);
    } else {
        warn_of(r, &t, replaced);
        r->from += x->bytes;
        r->to += bytes;
        if (r->measure && t.codec)
            tu_measure_merge(&r->total, &m);
        if (!r->measure || t.codec)
            tell(r, x->name, tu_dtype_text(x->dtype, code), &t, bytes, replaced, &m);
    }
    task_end(&t);
    return rc;
}

static int encode_meta(struct run *r, struct tu_err *err)
{
    struct tu_buf json = {0};
    int rc = 0;
    tu_recipe_model(choosing.recipe, &r->in.model);
    if (!r->writer)
        return 0;
    if (strcmp(r->in.topic, "contents") == 0)
        rc = quant_contents(&choosing, r->in.json, r->in.json_len, &json, err);
    else if (strcmp(r->in.topic, "gguf") == 0)
        rc = quant_gguf(&choosing, r->in.json, r->in.json_len, &json, err);
    else
        rc = tu_buf_add(&json, r->in.json, r->in.json_len, err);
    if (!rc)
        rc = tu_writer_meta(r->writer, r->in.topic, json.data, json.n, err);
    tu_buf_release(&json);
    return rc;
}

static int encode_input(struct run *r, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = input_open(&r->in, path, r->ctx, err);
    if (rc)
        return rc;
    while (!rc && what != ITEM_DONE && (rc = input_next(&r->in, &what, err)) == 0) {
        if (choosing.layers)
            r->in.model.layers = choosing.layers;
        r->in.model.importance = choosing.imatrix != NULL;
        tu_recipe_model(choosing.recipe, &r->in.model);
        if (what == ITEM_TENSOR)
            rc = encode_tensor(r, err);
        else if (what == ITEM_META)
            rc = encode_meta(r, err);
        else if (what == ITEM_OTHER && r->writer)
            rc = tu_feed_copy(r->in.feed, r->writer, err);
        else if (what == ITEM_END && !(rc = tu_recipe_check(choosing.recipe, err)) &&
                 r->writer)
            rc = tu_writer_end(r->writer, false, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(&r->in);
    return rc;
}

static int run_all(struct run *r, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct tu_err err;
    struct tu_out *out;
    int rc = choosing_begin(&choosing, r->ctx, &err);
    if (!rc && !r->measure)
        rc = tu_ctx_output(r->ctx, &out, &err);
    if (!rc && !r->measure)
        rc = tu_writer_new(&r->writer, out, &err);
    r->measure |= with_error;
    if (!rc && (r->measure || tu_json_wanted(r->ctx)))
        tu_rows_begin(r->ctx, columns);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = encode_input(r, path[i], &err);
    if (!rc && r->measure && r->total.n)
        tell(r, "(all)", "-", NULL, r->to, 0, &r->total);
    if (!rc && r->writer) {
        rc = tu_writer_close(r->writer, false, &err);
        r->writer = NULL;
    }
    int status = rc ? tu_error(r->ctx, &err) : 0;
    tu_writer_abort(r->writer);
    choosing_end(&choosing);
    return status;
}

static int run_encode(struct tu_ctx *ctx, int argc, char **argv)
{
    struct run r = {.ctx = ctx};
    return run_all(&r, argc, argv);
}

static int run_measure(struct tu_ctx *ctx, int argc, char **argv)
{
    struct run r = {.ctx = ctx, .measure = true};
    return run_all(&r, argc, argv);
}

static const struct tu_opt options[] = {
    {0, "error", NULL, "decode again and report the error (--report FILE)", TU_OPT_FLAG,
     &with_error, NULL, 0},
    {0},
};

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_encode = {
    .name = "encode",
    .summary = "quantize tensors",
    .usage = usage,
    .opts = options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_NO_DEVICE,
    .max = TU_ANY,
    .run = run_encode,
};

const struct tu_cmd quantize_measure = {
    .name = "measure",
    .summary = "show the error that quantizing makes, and write nothing",
    .usage = usage,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_NO_DEVICE,
    .max = TU_ANY,
    .run = run_measure,
};
