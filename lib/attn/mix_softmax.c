/* SPDX-License-Identifier: Apache-2.0 */
/* mix_softmax.c: softmax attention as a row of the mixers: operands in, operands out. */
#include <string.h>
#include "attn/forms.h"
#include "attn/gpu.h"
#include "attn/mix.h"

static const char *const names[] = {
    "q",
    "k",
    "v?",
    "o?",
    "lse?",
    "do?",
    "dlse?",
    "mask?",
    "bias?",
    "block_mask?",
    "alibi_slopes?",
    "sinks?",
    "cu_seqlens_q?",
    "cu_seqlens_k?",
    "seqlens_k?",
    "leftpad?",
    "block_table?",
    "kv_indptr?",
    "kv_indices?",
    "kv_last_page_len?",
    "doc_ids?",
    "prefix?",
    "q.scale?",
    "k.scale?",
    "v.scale?",
    NULL,
};
static const char *const algos[] = {"tiles", "online", "naive2", "naive3",
                                    "low",   "ref",    NULL};

static struct tu_operand *add(struct tu_mixer_args *a, const char *name, uint32_t dtype,
                              unsigned rank, const uint64_t *dim)
{
    struct tu_operand *o = &a->out[a->n_out++];
    *o = (struct tu_operand){.name = name, .dtype = dtype, .rank = rank};
    memcpy(o->dim, dim, rank * sizeof *dim);
    return o;
}

static void infer_forward(struct tu_mixer_args *m, const struct tu_attn *a)
{
    const struct tu_operand *q = tu_operand_find(m->in, m->n_in, "q");
    bool packed = q->rank == 3;
    uint32_t store = m->opt->partial ? TU_F32 : m->opt->store ? m->opt->store : q->dtype;
    uint64_t lse[3] = {packed ? a->hq : a->batch, packed ? q->dim[0] : a->hq, a->sq_max};
    add(m, "o", store, q->rank, q->dim)->dim[q->rank - 1] = a->dv;
    add(m, "lse", TU_F32, q->rank - 1, lse);
}

static int infer_backward(struct tu_mixer_args *m, const struct tu_attn *a,
                          struct tu_err *err)
{
    const struct tu_operand *q = tu_operand_find(m->in, m->n_in, "q"),
                            *k = tu_operand_find(m->in, m->n_in, "k"), *x;
    uint32_t store = m->opt->store ? m->opt->store : q->dtype;
    if (!tu_operand_find(m->in, m->n_in, "do"))
        return tui_missing("do", err);
    add(m, "dq", store, q->rank, q->dim);
    add(m, "dk", store, k->rank, k->dim);
    add(m, "dv", store, k->rank, k->dim)->dim[k->rank - 1] = a->dv;
    if (a->sinks)
        add(m, "dsink", TU_F32, 1, &a->hq);
    if ((x = tu_operand_find(m->in, m->n_in, "bias")))
        add(m, "dbias", TU_F32, x->rank, x->dim);
    if ((x = tu_operand_find(m->in, m->n_in, "alibi_slopes")))
        add(m, "dslopes", TU_F32, x->rank, x->dim);
    return 0;
}

static int infer(struct tu_mixer_args *m, struct tu_err *err)
{
    struct tu_attn a;
    int code = tu_attn_init(&a, m->opt, m->in, m->n_in, err);
    if (code)
        return code;
    m->n_out = 0;
    if (m->pass & TU_PASS_FWD)
        infer_forward(m, &a);
    if (m->pass & TU_PASS_BWD)
        code = infer_backward(m, &a, err);
    tu_attn_release(&a);
    return code;
}

static int point(struct tu_rows *r, const struct tu_mixer_args *m, const char *name,
                 int layout, struct tu_err *err)
{
    const struct tu_operand *o = tu_operand_find(m->out, m->n_out, name);
    uint64_t dim[4];
    return o ? tui_rows_of(r, dim, o, layout, err) : 0;
}

static float *zeroed(const struct tu_mixer_args *m, const char *name)
{
    const struct tu_operand *o = tu_operand_find(m->out, m->n_out, name);
    uint64_t n = 0;
    if (!o || tu_elements(o->dim, o->rank, &n, NULL))
        return NULL;
    memset(o->data, 0, n * sizeof(float));
    return o->data;
}

int tui_aim(struct tu_attn *a, const struct tu_mixer_args *m, struct tu_err *err)
{
    int layout = m->opt->layout, k_layout = a->page ? TU_ATTN_BSHD : layout, code;
    const struct tu_operand *lse = tu_operand_find(m->out, m->n_out, "lse");
    if ((code = point(&a->o, m, "o", layout, err)) ||
        (code = point(&a->dq, m, "dq", layout, err)) ||
        (code = point(&a->dk, m, "dk", k_layout, err)) ||
        (code = point(&a->dv_, m, "dv", k_layout, err)))
        return code;
    if (lse) {
        a->lse = lse->data;
        a->lse_dtype = lse->dtype;
    }
    a->dsink = zeroed(m, "dsink");
    a->dbias = zeroed(m, "dbias");
    a->dslope = zeroed(m, "dslopes");
    return 0;
}

static const struct tui_form {
    const char *name;
    int (*forward)(const struct tu_attn *, const struct tu_job *, struct tu_err *);
    int (*backward)(const struct tu_attn *, const struct tu_job *, struct tu_err *);
} forms[] = {
    {"tiles", tu_attn_forward, tu_attn_backward},
    {"online", tui_form_online, tu_attn_backward},
    {"naive2", tui_form_naive2, tu_attn_backward},
    {"naive3", tui_form_naive3, tu_attn_backward},
    {"low", tui_form_low, tu_attn_backward},
    {"ref", tu_attn_forward_ref, tu_attn_backward_ref},
};

/* The backward alone computes o and lse when they are not given. */
static int own_results(struct tu_attn *a, const struct tu_operand *q, void *mem[2],
                       struct tu_err *err)
{
    struct tu_operand o = *q;
    uint64_t n, dim[4];
    o.dim[q->rank - 1] = a->dv;
    o.dtype = q->dtype == TU_F64 ? TU_F64 : TU_F32;
    int code = tu_elements(o.dim, o.rank, &n, err);
    if (code)
        return code;
    mem[0] = o.data = tu_alloc(n, 8, err);
    mem[1] = a->lse = tu_alloc(n / a->dv, 8, err);
    if (!mem[0] || !mem[1])
        return TU_ENOMEM;
    a->lse_dtype = o.dtype;
    return tui_rows_of(&a->o, dim, &o, a->opt.layout, err);
}

static int run(const struct tu_mixer_args *m, struct tu_err *err)
{
    struct tu_attn a;
    void *mem[2] = {NULL, NULL};
    const struct tui_form *f = forms;
    while (m->algo && strcmp(f->name, m->algo))
        f++;
    int code = tu_attn_init(&a, m->opt, m->in, m->n_in, err);
    if (code)
        return code;
    bool given = a.chain;
    if ((code = tui_aim(&a, m, err)))
        goto out;
    if (!(m->pass & TU_PASS_FWD) && !given &&
        (code = own_results(&a, tu_operand_find(m->in, m->n_in, "q"), mem, err)))
        goto out;
    if (m->device) {
        code = tui_gpu_softmax(&a, m, (m->pass & TU_PASS_FWD) || !given, err);
        if (tui_gpu_done(m, &code, err))
            goto out;
    }
    if ((m->pass & TU_PASS_FWD) || !given)
        code = f->forward(&a, m->job, err);
    if (!code && (m->pass & TU_PASS_BWD))
        code = f->backward(&a, m->job, err);
out:
    tu_free(mem[0]);
    tu_free(mem[1]);
    tu_attn_release(&a);
    return code;
}

static double flops(const struct tu_mixer_args *m)
{
    struct tu_attn a;
    if (tu_attn_init(&a, m->opt, m->in, m->n_in, NULL))
        return 0;
    double n = tu_attn_flops(&a, m->pass);
    tu_attn_release(&a);
    return n;
}

const struct tu_mixer tui_mix_softmax = {
    .name = "softmax",
    .help = "softmax attention",
    .source = "Dao, FlashAttention-2, 2023",
    .in = names,
    .algo = algos,
    .device = true,
    .infer = infer,
    .run = run,
    .flops = flops,
};
