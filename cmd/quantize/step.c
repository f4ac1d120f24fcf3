/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: coding with state. Whole tensors are in memory. */
#include "quantize/step.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "quantize/meta.h"
#include "tensorutils/quant/gradient.h"

static int check_finite(const struct task *t, const float *x, uint64_t n, struct tu_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return tu_fail(err, TU_EUNSUP, "row %" PRIu64 ", column %" PRIu64 ": not finite",
                           i / t->coding.cols, i % t->coding.cols);
    return 0;
}

/* A key of the method that is a number. */
static int number(const char *key, double fallback, double *out, struct tu_err *err)
{
    const char *text = tu_spec_get(&choosing.calib->spec, key);
    *out = fallback;
    return text ? tu_parse_double(text, out, err) : 0;
}

/* PowerSGD goes on from its last factor. */
static bool is_warm(const struct task *t)
{
    return strcmp(t->coding.codec->name, "powersgd") == 0;
}

/* error = decay·error + rate·x is coded; what codes do not say of it stays. */
static int send_feedback(struct coder *c, struct task *t, const float *x, void *code, void **side,
                         struct tu_err *err)
{
    const struct tu_tensor *r = &c->in->tensor;
    const struct tu_part *q = &t->coding.side[0];
    const uint64_t n = t->coding.elements;
    float *error = NULL, *warm = NULL, *sent = NULL, *g = tu_alloc((size_t)n, sizeof *g, err);
    double decay, rate;
    int rc = g ? number("decay", 1, &decay, err) : TU_ENOMEM;
    if (!rc)
        rc = number("rate", 1, &rate, err);
    if (!rc)
        rc = state_get(c->state, r->name, "error", n, &error, err);
    if (!rc && is_warm(t))
        rc = state_get(c->state, r->name, q->suffix, q->bytes / sizeof *warm, &warm, err);
    if (!rc && ((!error && !(error = tu_calloc((size_t)n, sizeof *error, err))) ||
                !(sent = tu_alloc((size_t)n, sizeof *sent, err))))
        rc = TU_ENOMEM;
    for (uint64_t i = 0; !rc && i < n; i++) {
        error[i] *= (float)decay;
        g[i] = (float)rate * x[i];
    }
    t->coding.warm = warm;
    if (!rc)
        rc = tu_feedback_step(&t->coding, g, error, code, side, sent, tu_ctx_pool(c->ctx), err);
    if (!rc && c->measure)
        tu_measure_add(c->measure, x, sent, 0, (size_t)n, t->coding.atom);
    if (!rc)
        rc = state_put(c->state, r->name, "error", r->dim, r->rank, error, err);
    if (!rc && is_warm(t))
        rc = state_put(c->state, r->name, q->suffix, q->dim, q->rank, side[0], err);
    if (!rc)
        rc = coder_emit(c, t, r, code, side, err);
    t->coding.warm = NULL;
    tu_free(g);
    tu_free(error);
    tu_free(warm);
    tu_free(sent);
    return rc;
}

/* Numbers x, which are the tensor at hand, as they are. */
static int send_whole(struct target *to, const struct tu_tensor *r, const float *x, uint64_t n,
                      struct tu_err *err)
{
    unsigned char *raw = tu_alloc((size_t)r->bytes, 1, err);
    int rc = raw ? tu_cast(r->dtype, raw, TU_F32, x, (size_t)n, err) : TU_ENOMEM;
    if (!rc)
        rc = target_record(to, r->name, r->dtype, r->dim, r->rank, r->meta, err);
    if (!rc)
        rc = target_write(to, raw, (size_t)r->bytes, err);
    tu_free(raw);
    return rc;
}

static int send_change(struct coder *c, struct task *t, const float *x, void *code, void **side,
                       struct tu_err *err)
{
    const struct tu_tensor *r = &c->in->tensor;
    struct tu_tensor marked = *r;
    struct tu_buf meta = {0};
    float *m;
    int rc = state_get(c->state, r->name, NULL, t->coding.elements, &m, err);
    if (rc)
        return rc;
    if (!m) {
        rc = send_whole(c->target, r, x, t->coding.elements, err);
        return rc ? rc : state_put(c->state, r->name, NULL, r->dim, r->rank, x, err);
    }
    rc = tu_change_send(&t->coding, x, m, code, side, tu_ctx_pool(c->ctx), err);
    if (!rc && c->measure)
        tu_measure_add(c->measure, x, m, 0, (size_t)t->coding.elements, t->coding.atom);
    if (!rc)
        rc = state_put(c->state, r->name, NULL, r->dim, r->rank, m, err);
    if (!rc)
        rc = quant_change(r->meta, &meta, err);
    marked.meta = meta.data;
    if (!rc)
        rc = coder_emit(c, t, &marked, code, side, err);
    tu_buf_release(&meta);
    tu_free(m);
    return rc;
}

int step_send(struct coder *c, struct task *t, struct tu_err *err)
{
    void *side[TU_CODING_SIDES] = {NULL};
    float *x = NULL;
    uint64_t n;
    if (!c->state)
        return tu_fail(err, TU_EUSAGE, "method '%s' goes on from a state: encode --state",
                       choosing.calib->spec.name);
    int rc = coder_load(c->in, &x, &n, err);
    if (!rc)
        rc = check_finite(t, x, n, err);
    void *code = rc ? NULL : tu_alloc((size_t)t->coding.code.bytes, 1, err);
    if (!rc)
        rc = code ? coder_sides(&t->coding, side, err) : TU_ENOMEM;
    if (!rc)
        rc = choosing.calib->method == METHOD_CHANGE ? send_change(c, t, x, code, side, err)
                                                     : send_feedback(c, t, x, code, side, err);
    coder_free_sides(&t->coding, side);
    tu_free(code);
    tu_free(x);
    return rc;
}

/* Receiving ------------------------------------------------------------------------------- */

int step_receive(const struct step *s, uint32_t dtype, struct tu_err *err)
{
    const struct tu_coding *c = &s->coded->coding;
    const struct tu_tensor *t = &s->coded->tensor;
    struct tu_tensor to = {.dtype = dtype};
    float *m = NULL;
    if (!s->state->writer)
        return tu_fail(err, TU_EUSAGE, "a change since the step before: give --state");
    int rc = state_get(s->state, t->name, NULL, c->elements, &m, err);
    if (!rc && !m)
        rc = tu_fail(err, TU_EINCOMPLETE, "a change, but %s knows no step before it",
                     s->state->path);
    if (!rc)
        rc = tu_tensor_bytes(dtype, t->dim, t->rank, &to.bytes, err);
    unsigned char *raw = rc ? NULL : tu_alloc((size_t)to.bytes, 1, err);
    unsigned char *code = raw ? tu_alloc((size_t)c->code.bytes, 1, err) : NULL;
    if (!rc)
        rc = code ? coded_read(s->coded, s->in, code, (size_t)c->code.bytes, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_change_receive(c, code, (const void *const *)s->coded->side, m,
                               tu_ctx_pool(s->ctx), err);
    if (!rc)
        rc = state_put(s->state, t->name, NULL, t->dim, t->rank, m, err);
    if (!rc)
        rc = tu_cast(dtype, raw, TU_F32, m, (size_t)c->elements, err);
    if (!rc)
        rc = target_write(s->target, raw, (size_t)to.bytes, err);
    tu_free(code);
    tu_free(raw);
    tu_free(m);
    return rc;
}

int step_first(const struct step *s, struct tu_err *err)
{
    const struct tu_tensor *t = &s->in->tensor;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    float *x = NULL;
    uint64_t n;
    if (!d || !tu_dtype_is_float(t->dtype) || d->block_elems != 1)
        return target_copy(s->target, s->in, err);
    int rc = coder_load(s->in, &x, &n, err);
    if (!rc)
        rc = send_whole(s->target, t, x, n, err);
    if (!rc)
        rc = state_put(s->state, t->name, NULL, t->dim, t->rank, x, err);
    tu_free(x);
    return rc;
}
