/* SPDX-License-Identifier: Apache-2.0 */
/* coder.c: coding one tensor. */
#include "quantize/coder.h"
#include <inttypes.h>
#include <string.h>
#include "quantize/step.h"

static int flow_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    return input_read(((struct coder *)ctx)->in, buf, n, err);
}

static int flow_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    return target_write(((struct coder *)ctx)->target, p, n, err);
}

static int flow_rewind(void *ctx, struct tu_err *err)
{
    return input_rewind(((struct coder *)ctx)->in, err);
}

int coder_sides(const struct tu_coding *c, void **side, struct tu_err *err)
{
    for (unsigned k = 0; k < c->sides; k++)
        if (!(side[k] = tu_calloc((size_t)c->side[k].bytes, 1, err)))
            return TU_ENOMEM;
    return 0;
}

void coder_free_sides(const struct tu_coding *c, void **side)
{
    for (unsigned k = 0; k < c->sides; k++)
        tu_free(side[k]);
}

/* Each codec that stays on the CPU is told of once in a row. */
static void tell_device(struct coder *c, const struct task *t)
{
    static const struct tu_codec *told;
    if (!c->device || t->coding.codec == told || tu_coding_on(&t->coding, c->device, true))
        return;
    tu_warn(c->ctx, "'%s' has no kernel for %s: on the CPU", t->choice.type, c->ctx->device);
    told = t->coding.codec;
}

/* Streaming ------------------------------------------------------------------------------ */

/* Experts that are stacked, each under its own importance; such codecs have no sides. */
static int stream_parts(struct coder *c, struct task *t, struct tu_coding_run *run,
                        struct tu_err *err)
{
    int rc = 0;
    for (uint64_t k = 0; k < t->parts && !rc; k++) {
        struct tu_coding part = t->coding;
        void *none[TU_CODING_SIDES] = {NULL};
        part.importance = t->importance + k * part.cols;
        rc = tu_coding_init(&part, &t->spec, c->in->tensor.dim + 1, 2, err);
        if (!rc)
            rc = tu_coding_encode(&part, run, none, tu_ctx_job(c->ctx), err);
    }
    return rc;
}

static int stream(struct coder *c, struct task *t, uint64_t *replaced, struct tu_err *err)
{
    struct tu_flow flow = {c, flow_read, flow_write, flow_rewind};
    struct tu_coding_run run = {.flow = &flow,
                                .dtype = c->in->tensor.dtype,
                                .nonfinite = (enum tu_nonfinite)choosing.nonfinite,
                                .measure = c->measure,
                                .device = c->device};
    void *side[TU_CODING_SIDES] = {NULL};
    int rc = coder_sides(&t->coding, side, err);
    tell_device(c, t);
    if (!rc && t->coding.two_pass)
        rc = input_spool(c->in, err);
    if (!rc)
        rc = target_begin(c->target, &t->coding, &t->spec, &c->in->tensor, err);
    if (!rc && t->parts > 1)
        rc = stream_parts(c, t, &run, err);
    else if (!rc)
        rc = tu_coding_encode(&t->coding, &run, side, tu_ctx_job(c->ctx), err);
    if (!rc)
        rc = target_sides(c->target, &t->coding, c->in->tensor.name, side, err);
    *replaced = run.replaced;
    coder_free_sides(&t->coding, side);
    return rc;
}

/* A tensor that is only cast. */
static int cast(struct coder *c, uint32_t to, struct tu_err *err)
{
    enum { N = 16384 };
    static unsigned char in[N * 16], out[N * 16];
    const struct tu_tensor *x = &c->in->tensor;
    const struct tu_dtype *from = tu_dtype_find(x->dtype), *d = tu_dtype_find(to);
    int rc = target_record(c->target, x->name, to, x->dim, x->rank, x->meta, err);
    for (uint64_t left = x->bytes; !rc && left;) {
        size_t n = (size_t)tu_min(left, N * (uint64_t)from->block_bytes);
        size_t blocks = n / from->block_bytes;
        rc = input_read(c->in, in, n, err);
        if (!rc)
            rc = tu_cast(to, out, x->dtype, in, blocks, err);
        if (!rc)
            rc = target_write(c->target, out, blocks * d->block_bytes, err);
        left -= n;
    }
    return rc;
}

/* In memory ------------------------------------------------------------------------------ */

int coder_load(struct input *in, float **out, uint64_t *n, struct tu_err *err)
{
    const struct tu_tensor *x = &in->tensor;
    int rc = tu_elements(x->dim, x->rank, n, err);
    unsigned char *raw = rc ? NULL : tu_alloc((size_t)x->bytes, 1, err);
    *out = raw ? tu_alloc((size_t)*n, sizeof **out, err) : NULL;
    rc = *out ? input_read(in, raw, (size_t)x->bytes, err) : rc ? rc : TU_ENOMEM;
    if (!rc)
        rc = tu_to_float(x->dtype, raw, *out, (size_t)*n, err);
    tu_free(raw);
    return rc;
}

int coder_emit(struct coder *c, struct task *t, const struct tu_tensor *x, const void *code,
               void *const *side, struct tu_err *err)
{
    struct tu_coding *g = &t->coding;
    int rc = target_begin(c->target, g, &t->spec, x, err);
    if (!rc)
        rc = target_write(c->target, code, (size_t)g->code.bytes, err);
    return rc ? rc : target_sides(c->target, g, x->name, side, err);
}

/* Codes of w as the target wants them, and their error against `was`. */
static int put(struct coder *c, struct task *t, const void *code, void *const *side,
               const float *was, struct tu_err *err)
{
    struct tu_coding *g = &t->coding;
    int rc = coder_emit(c, t, &c->in->tensor, code, side, err);
    if (rc || !c->measure)
        return rc;
    float *y = tu_alloc((size_t)g->elements, sizeof *y, err);
    rc = y ? tu_coding_decode_mem(g, code, (const void *const *)side, y, tu_ctx_pool(c->ctx),
                                  err)
           : TU_ENOMEM;
    if (!rc)
        tu_measure_add(c->measure, was, y, 0, (size_t)g->elements, g->atom);
    tu_free(y);
    return rc;
}

/* GPTQ: w is replaced by what was chosen, so its error is taken against a copy. */
static int gptq(struct coder *c, struct task *t, size_t input, struct tu_err *err)
{
    void *side[TU_CODING_SIDES] = {NULL};
    uint64_t n;
    float *w = NULL, *was = NULL;
    int rc = coder_load(c->in, &w, &n, err);
    void *code = rc ? NULL : tu_alloc((size_t)t->coding.code.bytes, 1, err);
    if (!rc && !(code && (was = tu_alloc((size_t)n, sizeof *was, err))))
        rc = TU_ENOMEM;
    if (!rc)
        memcpy(was, w, (size_t)n * sizeof *w);
    if (!rc)
        rc = coder_sides(&t->coding, side, err);
    if (!rc)
        rc = calib_gptq(choosing.calib, input, &t->coding, w, code, side, err);
    if (!rc)
        rc = put(c, t, code, side, was, err);
    coder_free_sides(&t->coding, side);
    tu_free(code);
    tu_free(w);
    tu_free(was);
    return rc;
}

/* Elements times the scales of their row and column; codes of that, or the tensor itself. */
static int scaled(struct coder *c, struct task *t, const struct fold_scales *scale,
                  struct tu_err *err)
{
    const struct tu_tensor *x = &c->in->tensor;
    void *side[TU_CODING_SIDES] = {NULL};
    uint64_t n, cols = x->dim[x->rank - 1];
    float *w = NULL;
    int rc = coder_load(c->in, &w, &n, err);
    for (uint64_t i = 0; !rc && i < n; i++)
        w[i] *= (scale->row ? scale->row[i / cols] : 1) * (scale->col ? scale->col[i % cols] : 1);
    uint32_t dtype = t->cast ? t->cast : x->dtype;
    uint64_t bytes = t->codec ? t->coding.code.bytes : 0;
    if (!rc && !t->codec)
        rc = tu_tensor_bytes(dtype, x->dim, x->rank, &bytes, err);
    void *code = rc ? NULL : tu_alloc((size_t)bytes, 1, err);
    if (!rc && !code)
        rc = TU_ENOMEM;
    if (!rc && !t->codec) {
        rc = tu_cast(dtype, code, TU_F32, w, (size_t)n, err);
        if (!rc)
            rc = target_record(c->target, x->name, dtype, x->dim, x->rank, x->meta, err);
        if (!rc)
            rc = target_write(c->target, code, (size_t)bytes, err);
    } else if (!rc) {
        rc = coder_sides(&t->coding, side, err);
        if (!rc)
            rc = tu_coding_encode_mem(&t->coding, w, code, side, tu_ctx_pool(c->ctx), err);
        if (!rc)
            rc = put(c, t, code, side, w, err);
        coder_free_sides(&t->coding, side);
    }
    tu_free(code);
    tu_free(w);
    return rc;
}

int coder_run(struct coder *c, struct task *t, uint64_t *replaced, struct tu_err *err)
{
    const struct tu_tensor *x = &c->in->tensor;
    struct fold_scales scale = {NULL, NULL};
    size_t input = SIZE_MAX;
    *replaced = 0;
    int rc = c->fold ? fold_find(c->fold, x, &scale, err) : 0;
    if (rc)
        return rc;
    if (scale.row || scale.col)
        return scaled(c, t, &scale, err);
    if (t->codec && calib_remembers(choosing.calib))
        return step_send(c, t, err);
    if (t->codec && choosing.calib && choosing.calib->method == METHOD_GPTQ)
        input = calib_find(choosing.calib, x->name);
    if (input != SIZE_MAX)
        return gptq(c, t, input, err);
    if (t->codec && choosing.calib && choosing.calib->method == METHOD_GPTQ)
        tu_warn(c->ctx, "'%.80s': no inputs of this layer: rounded to nearest", x->name);
    if (t->codec)
        return stream(c, t, replaced, err);
    if (!c->target->writer)
        return 0;
    if (t->cast)
        return cast(c, t->cast, err);
    if (!c->in->spooled)
        return target_copy(c->target, c->in, err);
    return tu_fail(err, TU_EBUG, "a tensor to keep was unpacked");
}

/* Codes as numbers ------------------------------------------------------------------------- */

struct unpacking {
    struct input *in;
    struct coded *coded;
};

static int unpack_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    struct unpacking *u = ctx;
    return coded_read(u->coded, u->in, buf, n, err);
}

static int unpack_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    struct unpacking *u = ctx;
    return fwrite(p, 1, n, u->in->spool) == n ? 0 : tu_fail_errno(err, "temporary file");
}

int coder_unpack(struct input *in, struct coded *coded, const struct tu_job *job,
                 struct tu_err *err)
{
    struct unpacking u = {in, coded};
    struct tu_flow flow = {&u, unpack_read, unpack_write, NULL};
    struct tu_coding_run run = {.flow = &flow, .dtype = coded->tensor.dtype};
    if (!in->spool && !(in->spool = tmpfile()))
        return tu_fail_errno(err, "temporary file");
    rewind(in->spool);
    int rc = tu_coding_decode(&coded->coding, &run, (const void *const *)coded->side, job, err);
    in->spooled = true;
    return rc ? rc : input_rewind(in, err);
}
