/* SPDX-License-Identifier: Apache-2.0 */
/* quantize decode: codes back to numbers.
 *
 * What a tensor was is in its dtype (ggml's blocks) or in its `quant` metadata. Codes
 * whose side tensors follow are kept aside until those have come. */
#include <jansson.h>
#include <string.h>
#include "quantize/quantize.h"

static uint32_t to_dtype;

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct tu_writer *writer;
    struct tu_arena *arena; /* of the tensor being decoded */
    /* A tensor that is waited for. */
    bool pending;
    struct tu_tensor tensor; /* as it will be */
    struct tu_spec spec;
    struct tu_coding coding;
    void *side[TU_CODING_SIDES];
    bool have[TU_CODING_SIDES];
    FILE *codes; /* NULL: read from the input */
};

static void forget(struct run *r)
{
    for (unsigned k = 0; k < TU_CODING_SIDES; k++) {
        tu_free(r->side[k]);
        r->side[k] = NULL;
        r->have[k] = false;
    }
    if (r->spec.name)
        tu_spec_release(&r->spec);
    memset(&r->spec, 0, sizeof r->spec);
    if (r->codes)
        fclose(r->codes);
    r->codes = NULL;
    tu_arena_free(r->arena);
    r->arena = NULL;
    r->pending = false;
}

/* Dtype, shape and scheme that metadata names; *yes false where there is no `quant`. */
static int read_quant(struct run *r, uint32_t *dtype, uint64_t *dim, unsigned *rank,
                      bool *yes, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    json_t *o;
    *yes = false;
    if (!t->meta || !*t->meta)
        return 0;
    int rc = tu_json_parse(&o, t->meta, strlen(t->meta), NULL, err);
    if (rc)
        return rc;
    const json_t *q = json_object_get(o, "quant"), *shape = json_object_get(q, "shape");
    const char *scheme = json_string_value(json_object_get(q, "scheme"));
    const char *name = json_string_value(json_object_get(q, "dtype"));
    const struct tu_dtype *d = name ? tu_dtype_named(name) : NULL;
    if (!scheme)
        goto out;
    *yes = true;
    *rank = (unsigned)json_array_size(shape);
    if (!d || !json_is_array(shape) || *rank > TU_RANK_MAX)
        rc = tu_fail(err, TU_EMETA, "quant: dtype or shape missing");
    for (unsigned i = 0; !rc && i < *rank; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            rc = tu_fail(err, TU_EMETA, "quant: shape holds no whole numbers");
        dim[i] = (uint64_t)json_integer_value(v);
    }
    *dtype = d ? d->code : 0;
    if (!rc)
        rc = tu_spec_parse(&r->spec, scheme, err);
out:
    json_decref(o);
    return rc;
}

/* The coding of the tensor at hand; *yes false where it is not coded. */
static int plan(struct run *r, bool *yes, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    uint64_t dim[TU_RANK_MAX];
    uint32_t dtype = TU_F32;
    unsigned rank = t->rank;
    int rc = read_quant(r, &dtype, dim, &rank, yes, err);
    if (!rc && !*yes && t->dtype & TU_DTYPE_GGML && t->dtype < TU_DTYPE_PRIVATE) {
        const struct tu_dtype *d = tu_dtype_find(t->dtype);
        *yes = true;
        memcpy(dim, t->dim, rank * sizeof *dim);
        rc = d ? tu_spec_parse(&r->spec, d->name, err)
               : tu_fail(err, TU_EDTYPE, "unknown block format 0x%04x",
                         (unsigned)t->dtype);
    }
    if (rc || !*yes)
        return rc;
    r->coding = (struct tu_coding){.compat = false};
    if ((rc = tu_coding_init(&r->coding, &r->spec, dim, rank, err)))
        return rc;
    if (r->coding.code.dtype != t->dtype || r->coding.code.bytes != t->bytes)
        return tu_fail(err, TU_EMETA, "quant: %llu bytes of codes, expected %llu",
                       (unsigned long long)t->bytes,
                       (unsigned long long)r->coding.code.bytes);
    if (!(r->arena = tu_arena_new(err)))
        return TU_ENOMEM;
    return tu_tensor_make(&r->tensor, r->arena, t->name, to_dtype ? to_dtype : dtype, dim,
                          rank, NULL, err);
}

static int flow_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    struct run *r = ctx;
    if (!r->codes)
        return input_read(&r->in, buf, n, err);
    return fread(buf, 1, n, r->codes) == n ? 0 : tu_fail_errno(err, "temporary file");
}

static int flow_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    return tu_writer_write(((struct run *)ctx)->writer, p, n, err);
}

static int decode_now(struct run *r, struct tu_err *err)
{
    struct tu_flow flow = {r, flow_read, flow_write, NULL};
    struct tu_coding_run run = {.flow = &flow, .dtype = r->tensor.dtype};
    struct tu_record rec;
    tu_record_of(&rec, &r->tensor);
    int rc = tu_writer_record(r->writer, &rec, err);
    if (!rc)
        rc = tu_coding_decode(&r->coding, &run, (const void *const *)r->side,
                              tu_ctx_job(r->ctx), err);
    if (rc)
        tu_err_prefix(err, "'%.80s'", r->tensor.name);
    forget(r);
    return rc;
}

/* Keep the codes until the sides are there. */
static int put_aside(struct run *r, struct tu_err *err)
{
    char buf[65536];
    if (!(r->codes = tmpfile()))
        return tu_fail_errno(err, "temporary file");
    for (uint64_t left = r->in.tensor.bytes; left;) {
        size_t n = (size_t)tu_min(left, sizeof buf);
        int rc = input_read(&r->in, buf, n, err);
        if (rc)
            return rc;
        if (fwrite(buf, 1, n, r->codes) != n)
            return tu_fail_errno(err, "temporary file");
        left -= n;
    }
    rewind(r->codes);
    r->pending = true;
    return 0;
}

/* A record that may be a side of the tensor that waits. */
static int take_side(struct run *r, bool *taken, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    size_t n = strlen(r->tensor.name);
    *taken = false;
    if (strncmp(t->name, r->tensor.name, n) != 0 || t->name[n] != '.')
        return 0;
    for (unsigned k = 0; k < r->coding.sides; k++) {
        const struct tu_part *p = &r->coding.side[k];
        if (r->have[k] || strcmp(t->name + n + 1, p->suffix) != 0)
            continue;
        if (t->dtype != p->dtype || t->bytes != p->bytes)
            return tu_fail(err, TU_EMETA, "'%.80s': %llu bytes, expected %llu", t->name,
                           (unsigned long long)t->bytes, (unsigned long long)p->bytes);
        if (!(r->side[k] = tu_alloc((size_t)p->bytes, 1, err)))
            return TU_ENOMEM;
        *taken = r->have[k] = true;
        return input_read(&r->in, r->side[k], (size_t)p->bytes, err);
    }
    return 0;
}

static int missing(const struct run *r, struct tu_err *err)
{
    unsigned k = 0;
    while (r->have[k])
        k++;
    return tu_fail(err, TU_EINCOMPLETE, "'%.80s': its side tensor '.%s' does not follow",
                   r->tensor.name, r->coding.side[k].suffix);
}

static int decode_tensor(struct run *r, struct tu_err *err)
{
    bool yes = false;
    if (r->pending) {
        int rc = take_side(r, &yes, err);
        if (rc)
            return rc;
        if (!yes)
            return missing(r, err);
        for (unsigned k = 0; k < r->coding.sides; k++)
            if (!r->have[k])
                return 0;
        return decode_now(r, err);
    }
    int rc = plan(r, &yes, err);
    if (rc)
        return tu_err_prefix(err, "'%.80s'", r->in.tensor.name);
    if (!yes)
        return tu_feed_copy(r->in.feed, r->writer, err);
    return r->coding.sides ? put_aside(r, err) : decode_now(r, err);
}

static int decode_input(struct run *r, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = input_open(&r->in, path, r->ctx, err);
    if (rc)
        return rc;
    while (!rc && what != ITEM_DONE && (rc = input_next(&r->in, &what, err)) == 0) {
        if (r->pending && what != ITEM_TENSOR)
            rc = missing(r, err);
        else if (what == ITEM_TENSOR)
            rc = decode_tensor(r, err);
        else if (what == ITEM_META && strcmp(r->in.topic, "contents") != 0)
            rc = tu_writer_meta(r->writer, r->in.topic, r->in.json, r->in.json_len, err);
        else if (what == ITEM_OTHER)
            rc = tu_feed_copy(r->in.feed, r->writer, err);
        else if (what == ITEM_END)
            rc = tu_writer_end(r->writer, false, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(&r->in);
    forget(r);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct run r = {.ctx = ctx};
    struct tu_err err;
    struct tu_out *out;
    int rc = tu_ctx_output(ctx, &out, &err);
    if (!rc)
        rc = tu_writer_new(&r.writer, out, &err);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = decode_input(&r, path[i], &err);
    if (!rc) {
        rc = tu_writer_close(r.writer, false, &err);
        r.writer = NULL;
    }
    int status = rc ? tu_error(ctx, &err) : 0;
    tu_writer_abort(r.writer);
    return status;
}

static const struct tu_opt options[] = {
    {'d', "dtype", "DTYPE",
     "of the result; default: what the tensor was, f32 where that is not "
     "known",
     TU_OPT_DTYPE, &to_dtype, NULL, 0},
    {0},
};

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_decode = {
    .name = "decode",
    .summary = "turn codes back into numbers",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_NO_DEVICE | TU_CMD_NO_SEED |
             TU_CMD_NO_REPORT,
    .max = TU_ANY,
    .run = run,
};
