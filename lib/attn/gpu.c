/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: the operands of a mixer mirrored on a device, its kernels, the results back.
 *
 * Everything a problem points to gets a twin on the device; kernels see twins only. What
 * they do not do is TU_EUNSUP, before anything is copied. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tensorutils/device/kernels.h>
#include "attn/gpu.h"
#include "attn/recur.h"

struct twin {
    void *host, *dev;
    uint64_t bytes;
    bool back; /* a result */
};

struct mirror {
    const struct tu_device *d;
    const struct tu_mixer_args *m;
    struct twin *twin;
    size_t n, cap;
    int code; /* the first failure */
    struct tu_err *err;
};

static void mirror_free(struct mirror *x)
{
    for (size_t i = 0; i < x->n; i++)
        x->d->free(x->twin[i].dev);
    tu_free(x->twin);
}

/* The twin of memory; without `in` it is not filled, host NULL: of nothing. */
static void *twin(struct mirror *x, const void *host, uint64_t bytes, bool in, bool back)
{
    for (size_t i = 0; host && i < x->n; i++)
        if (x->twin[i].host == host && x->twin[i].bytes == bytes)
            return x->twin[i].dev;
    if (x->code || (x->code = TU_GROW(&x->twin, &x->cap, x->n + 1, x->err)))
        return NULL;
    struct twin *t = &x->twin[x->n];
    *t = (struct twin){.bytes = bytes, .back = back};
    memcpy(&t->host, &host, sizeof host);
    if ((x->code = x->d->alloc(&t->dev, bytes, x->err)))
        return NULL;
    x->n++;
    if (in)
        x->code = x->d->copy(t->dev, host, bytes, NULL, x->err);
    return t->dev;
}

static void *twin_in(struct mirror *x, const void *host, uint64_t bytes)
{
    return host ? twin(x, host, bytes, true, false) : NULL;
}

static int results_back(struct mirror *x)
{
    for (size_t i = 0; !x->code && i < x->n; i++)
        if (x->twin[i].back)
            x->code = x->d->copy(x->twin[i].host, x->twin[i].dev, x->twin[i].bytes, NULL,
                                 x->err);
    return x->code;
}

static uint64_t bytes_of(const struct tu_operand *o)
{
    uint64_t n = 0;
    return tu_elements(o->dim, o->rank, &n, NULL) ? 0
                                                  : n * tu_dtype_find(o->dtype)->block_bytes;
}

/* Bytes of the operand, in or out, whose data this is; otherwise as many as q has rows.
 * Empty operands may share their address with others. */
static uint64_t extent(const struct mirror *x, const struct tu_rows *r)
{
    const struct tu_mixer_args *m = x->m;
    for (size_t i = 0; i < m->n_in; i++)
        if (m->in[i].data == (void *)r->data && bytes_of(&m->in[i]))
            return bytes_of(&m->in[i]);
    for (size_t i = 0; i < m->n_out; i++)
        if (m->out[i].data == (void *)r->data && bytes_of(&m->out[i]))
            return bytes_of(&m->out[i]);
    const struct tu_operand *q = tu_operand_find(m->in, m->n_in, "q");
    return bytes_of(q) / tu_dtype_find(q->dtype)->block_bytes / q->dim[q->rank - 1] * r->dim *
           r->elem;
}

static struct tu_kernel_rows rows(struct mirror *x, const struct tu_rows *r, bool back)
{
    struct tu_kernel_rows k = {.dtype = r->dtype,
                               .elem = r->elem,
                               .batch = r->batch,
                               .token = r->token,
                               .head = r->head};
    if (r->data)
        k.data = twin(x, r->data, extent(x, r), true, back);
    return k;
}

static bool loads(uint32_t dtype)
{
    return dtype == TU_F32 || dtype == TU_F16 || dtype == TU_BF16 || dtype == TU_F8_E4M3FN ||
           dtype == TU_F8_E5M2;
}

static bool stores(const struct tu_rows *r)
{
    return !r->data || r->dtype == TU_F32 || r->dtype == TU_F16 || r->dtype == TU_BF16;
}

static int check(const struct tu_attn *a, struct tu_err *err)
{
    if (!loads(a->q.dtype) || !loads(a->k.dtype) || !loads(a->v.dtype) ||
        (a->dout.data && !loads(a->dout.dtype)))
        return tu_fail(err, TU_EUNSUP, "no kernel reads this dtype");
    if (!stores(&a->o) || !stores(&a->dq) || !stores(&a->dk) || !stores(&a->dv_) ||
        (a->lse && a->lse_dtype != TU_F32))
        return tu_fail(err, TU_EUNSUP, "no kernel writes this dtype");
    if (a->dbias || a->dslope)
        return tu_fail(err, TU_EUNSUP, "no kernel has gradients of biases and slopes");
    if (a->q_at || a->k_at)
        return tu_fail(err, TU_EUNSUP, "no kernel takes shards at a place of their own");
    return 0;
}

static void fill_options(struct tu_kernel_attn *k, const struct tu_attn *a)
{
    const struct tu_attn_opts *o = &a->opt;
    k->batch = a->batch;
    k->hq = a->hq;
    k->hkv = a->hkv;
    k->d = a->d;
    k->dv = a->dv;
    k->sq_max = a->sq_max;
    k->sk_max = a->sk_max;
    k->page = a->page;
    k->lse_head = a->lse_head;
    k->slopes_batch = a->slopes_batch;
    k->docs_n = a->docs_n;
    k->h_first = a->h_first;
    k->h_all = a->h_all;
    k->scale = (float)a->scale;
    k->softcap = (float)o->softcap;
    k->dropout = (float)o->dropout;
    k->drop_below = (uint64_t)(o->dropout * 4294967296.0);
    k->left = o->left;
    k->right = o->right;
    k->sink_tokens = o->sink_tokens;
    k->chunk = o->chunk;
    k->mask_q = o->mask_q;
    k->mask_k = o->mask_k;
    k->seed = o->seed;
    k->causal = (uint32_t)o->causal;
    memcpy(k->bias_at, a->bias_at, sizeof k->bias_at);
    memcpy(k->mask_at, a->mask_at, sizeof k->mask_at);
    memcpy(k->blocks_at, a->blocks_at, sizeof k->blocks_at);
}

/* Elements of an operand by name. */
static uint64_t elements(const struct mirror *x, const char *name)
{
    const struct tu_operand *o = tu_operand_find(x->m->in, x->m->n_in, name);
    uint64_t n = 0;
    return o && !tu_elements(o->dim, o->rank, &n, NULL) ? n : 0;
}

static void fill_beside(struct tu_kernel_attn *k, const struct tu_attn *a, struct mirror *x)
{
    uint64_t f = sizeof(float), kv = a->batch * a->hkv * f;
    k->slopes = twin_in(x, a->slopes, a->hq * (a->slopes_batch ? a->batch : 1) * f);
    k->sinks = twin_in(x, a->sinks, a->hq * f);
    k->bias = twin_in(x, a->bias, elements(x, "bias") * f);
    k->q_scale = twin_in(x, a->q_scale, kv);
    k->k_scale = twin_in(x, a->k_scale, kv);
    k->v_scale = twin_in(x, a->v_scale, kv);
    k->mask = twin_in(x, a->mask, elements(x, "mask"));
    k->blocks = twin_in(x, a->blocks, elements(x, "block_mask"));
    k->docs = twin_in(x, a->docs, a->batch * a->docs_n * sizeof *a->docs);
}

/* The sequences, with the twins of their pages. */
static void fill_seqs(struct tu_kernel_attn *k, const struct tu_attn *a, struct mirror *x)
{
    struct tu_kernel_seq *s = tu_calloc(a->batch, sizeof *s, x->err);
    if (!s) {
        x->code = TU_ENOMEM;
        return;
    }
    for (uint64_t b = 0; b < a->batch; b++) {
        const struct tu_attn_seq *q = &a->seq[b];
        s[b] = (struct tu_kernel_seq){.q_batch = q->q_batch,
                                      .q_token = q->q_token,
                                      .sq = q->sq,
                                      .k_batch = q->k_batch,
                                      .k_token = q->k_token,
                                      .sk = q->sk,
                                      .lse_at = q->lse_at,
                                      .off = q->off,
                                      .prefix = q->prefix};
        if (q->page && q->sk)
            s[b].page = twin_in(x, q->page, tu_ceil_div(q->sk, a->page) * sizeof *q->page);
    }
    k->seq = twin(x, s, a->batch * sizeof *s, true, false);
    tu_free(s);
}

/* lse, of rows: all heads of all tokens. */
static uint64_t lse_bytes(const struct mirror *x)
{
    const struct tu_operand *q = tu_operand_find(x->m->in, x->m->n_in, "q");
    return elements(x, "q") / q->dim[q->rank - 1] * sizeof(float);
}

static void fill_results(struct tu_kernel_attn *k, const struct tu_attn *a, struct mirror *x,
                         bool back)
{
    uint64_t lse = lse_bytes(x);
    k->lse = twin(x, a->lse, lse, a->lse != NULL, a->lse != NULL);
    if (!back)
        return;
    k->delta = twin(x, NULL, lse, false, false);
    k->dlse = twin_in(x, a->dlse, lse);
    k->dsink = a->dsink ? twin(x, a->dsink, a->hq * sizeof(float), true, true) : NULL;
}

/* Few queries against many keys: parts of the keys side by side, so that all of the device
 * reads. Their number follows from the shape. */
static void fill_splits(struct tu_kernel_attn *k, const struct tu_attn *a, struct mirror *x)
{
    enum { TILE = 64, LEAST = 256, BLOCKS = 264 };
    uint64_t blocks = tu_max(1, tu_ceil_div(a->sq_max, TILE) * a->hq * a->batch),
             most = tu_max(1, tu_ceil_div(a->sk_max, a->opt.splits ? TILE : LEAST)),
             want = a->opt.splits ? a->opt.splits : BLOCKS / blocks;
    if (a->d > 128) /* the kernel has no registers left for it */
        want = 1;
    k->splits = (uint32_t)tu_max(1, tu_min(tu_min(want, most), BLOCKS));
    if (k->splits == 1)
        return;
    uint64_t rows = k->splits * a->batch * a->hq * a->sq_max * sizeof(float);
    k->o_part = twin(x, NULL, rows * a->dv, false, false);
    k->lse_part = twin(x, NULL, rows, false, false);
}

/* Tensor cores where they fit, else the plain kernel, with the reason. */
static int launch_forward(struct mirror *x, const struct tu_kernel_attn *k)
{
    struct tu_err why = {0};
    int code = x->d->launch("attn.forward.mma", k, NULL, &why);
    if (code != TU_EUNSUP) {
        if (code && x->err)
            *x->err = why;
        return code;
    }
    if (x->m->note)
        snprintf(x->m->note, TU_MIXER_NOTE, "plain kernel: %.100s", why.msg);
    return x->d->launch("attn.forward", k, NULL, x->err);
}

int tui_gpu_softmax(const struct tu_attn *a, const struct tu_mixer_args *m, bool forward,
                    struct tu_err *err)
{
    struct mirror x = {.d = m->device, .m = m, .err = err};
    struct tu_kernel_attn k = {0};
    bool back = m->pass & TU_PASS_BWD;
    int code = check(a, err);
    if (code)
        return code;
    fill_options(&k, a);
    fill_beside(&k, a, &x);
    fill_seqs(&k, a, &x);
    k.q = rows(&x, &a->q, false);
    k.k = rows(&x, &a->k, false);
    k.v = rows(&x, &a->v, false);
    k.o = rows(&x, &a->o, forward);
    if (back) {
        k.dout = rows(&x, &a->dout, false);
        k.dq = rows(&x, &a->dq, true);
        k.dk = rows(&x, &a->dk, true);
        k.dv_ = rows(&x, &a->dv_, true);
    }
    fill_results(&k, a, &x, back);
    fill_splits(&k, a, &x);
    if (!x.code && forward)
        x.code = launch_forward(&x, &k);
    if (!x.code && back)
        x.code = x.d->launch("attn.backward", &k, NULL, err);
    code = results_back(&x);
    mirror_free(&x);
    return code;
}

/* An operand as floats, with its twin. */
static float *floats(struct mirror *x, const char *name, uint64_t *n)
{
    const struct tu_operand *o = tu_operand_find(x->m->in, x->m->n_in, name);
    *n = elements(x, name);
    if (!o || x->code)
        return NULL;
    float *f = tu_alloc(*n, sizeof *f, x->err);
    x->code = f ? tu_to_float(o->dtype, o->data, f, *n, x->err) : TU_ENOMEM;
    float *d = x->code ? NULL : twin(x, f, *n * sizeof *f, true, false);
    tu_free(f);
    if (d)
        x->twin[x->n - 1].host = NULL;
    return d;
}

/* Floats of the device to a result of any dtype. */
static void put_floats(struct mirror *x, const char *name, const float *dev)
{
    const struct tu_operand *o = tu_operand_find(x->m->out, x->m->n_out, name);
    uint64_t n;
    if (!o || x->code || (x->code = tu_elements(o->dim, o->rank, &n, x->err)))
        return;
    float *f = tu_alloc(n, sizeof *f, x->err);
    x->code = f ? x->d->copy(f, dev, n * sizeof *f, NULL, x->err) : TU_ENOMEM;
    if (!x->code)
        x->code = tu_cast(o->dtype, o->data, TU_F32, f, n, x->err);
    tu_free(f);
}

int tui_gpu_scan(const struct tu_mixer_args *m, const char *kernel, const float *decay,
                 struct tu_err *err)
{
    struct mirror x = {.d = m->device, .m = m, .err = err};
    struct tui_recur r;
    uint64_t n;
    int code = tui_recur_init(&r, m, err);
    if (code)
        return code;
    if (m->pass != TU_PASS_FWD || m->opt->bidirectional)
        return tu_fail(err, TU_EUNSUP, "no kernel has this pass of the operator");
    struct tu_kernel_scan k = {.batch = r.batch,
                               .time = r.n,
                               .heads = r.heads,
                               .d = r.d,
                               .e = r.dv,
                               .scale = isnan(m->opt->scale) ? 1 : (float)m->opt->scale};
    k.q = floats(&x, "q", &n);
    k.k = floats(&x, "k", &n);
    k.v = floats(&x, "v", &n);
    k.o = twin(&x, NULL, n * sizeof(float), false, false);
    k.gate = floats(&x, "gate", &n);
    k.state = floats(&x, "state_in", &n);
    k.slope = twin_in(&x, decay, r.heads * sizeof *decay);
    k.state_out =
        twin(&x, NULL, r.batch * r.heads * r.d * r.dv * sizeof(float), false, false);
    if (!x.code)
        x.code = x.d->launch(kernel, &k, NULL, err);
    put_floats(&x, "o", k.o);
    put_floats(&x, "state_out", k.state_out);
    mirror_free(&x);
    return x.code;
}

bool tui_gpu_done(const struct tu_mixer_args *m, int *code, struct tu_err *err)
{
    if (*code != TU_EUNSUP)
        return true;
    if (m->note)
        snprintf(m->note, TU_MIXER_NOTE, "on the CPU: %.100s", err ? err->msg : "");
    *code = 0;
    return false;
}
