/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c: bind the operands of softmax attention and refuse every inconsistency.
 *
 * After tu_attn_init the shapes, offsets and tables can be trusted: kernels check
 * nothing. What stands beside q, k and v is in operands.c. */
#include <math.h>
#include <string.h>
#include "attn/problem.h"

void tu_attn_opts_init(struct tu_attn_opts *o)
{
    *o = (struct tu_attn_opts){.scale = NAN, .left = -1, .right = -1};
}

const struct tu_operand *tu_operand_find(const struct tu_operand *op, size_t n,
                                         const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(op[i].name, name))
            return &op[i];
    return NULL;
}

double tu_alibi_slope(uint64_t h, uint64_t n)
{
    uint64_t p = 1;
    while (2 * p <= n)
        p *= 2;
    return h < p ? exp2(-8.0 * (double)(h + 1) / (double)p)
                 : exp2(-4.0 * (double)(2 * (h - p) + 1) / (double)p);
}

int tui_missing(const char *name, struct tu_err *err)
{
    return tu_fail(err, TU_EINCOMPLETE, "record '%s' is missing", name);
}

/* [batch, tokens, heads, dim] of an operand in a layout, and the strides to walk it. */
int tui_rows_of(struct tu_rows *r, uint64_t dim[4], const struct tu_operand *op,
                int layout, struct tu_err *err)
{
    const struct tu_dtype *type = tu_dtype_find(op->dtype);
    if (!type || !tu_dtype_is_float(op->dtype) || !tu_dtype_is_plain(op->dtype))
        return tu_fail(err, TU_EDTYPE, "'%s' is %s: a plain float dtype is needed",
                       op->name, type ? type->name : "of an unknown dtype");
    bool packed = op->rank == 3;
    if (!packed && op->rank != 4)
        return tu_fail(err, TU_ESIZE, "'%s' has %u dimensions: 3 or 4 are needed",
                       op->name, op->rank);
    const uint64_t *d = op->dim;
    bool heads_first = layout == TU_ATTN_BHSD && !packed;
    uint64_t b = packed ? 1 : d[0], s = packed ? d[0] : heads_first ? d[2] : d[1];
    uint64_t h = packed ? d[1] : heads_first ? d[1] : d[2], n = d[op->rank - 1];
    uint64_t elements;
    int code = tu_elements(op->dim, op->rank, &elements, err);
    if (code)
        return code;
    if (n == 0 || h == 0)
        return tu_fail(err, TU_ESIZE, "'%s' has %s 0", op->name,
                       n ? "heads" : "head dimension");
    memcpy(dim, (uint64_t[4]){b, s, h, n}, 4 * sizeof *dim);
    *r = (struct tu_rows){.data = op->data,
                          .dtype = op->dtype,
                          .elem = type->block_bytes,
                          .dim = n,
                          .batch = packed ? 0 : (int64_t)(s * h * n),
                          .token = (int64_t)(heads_first ? n : h * n),
                          .head = (int64_t)(heads_first ? s * n : n)};
    return 0;
}

static int same(const char *what, const char *a, uint64_t x, const char *b, uint64_t y,
                struct tu_err *err)
{
    if (x == y)
        return 0;
    return tu_fail(err, TU_ESIZE, "%s of '%s' is %llu, of '%s' %llu", what, a,
                   (unsigned long long)x, b, (unsigned long long)y);
}

static int check_options(const struct tu_attn_opts *o, struct tu_err *err)
{
    if (isinf(o->scale))
        return tu_fail(err, TU_EUSAGE, "--scale must be finite");
    if (o->left < -1 || o->right < -1)
        return tu_fail(err, TU_EUSAGE, "--window: a side is -1 (no limit) or a distance");
    if (isnan(o->softcap) || o->softcap < 0 || isinf(o->softcap))
        return tu_fail(err, TU_EUSAGE, "--softcap must be above 0");
    if (!(o->dropout >= 0 && o->dropout < 1))
        return tu_fail(err, TU_EUSAGE, "--dropout must be in [0, 1)");
    return 0;
}

/* Shapes of q, k and v against each other. */
static int bind_qkv(struct tu_attn *a, const struct tu_bind *in, uint64_t kd[4],
                    struct tu_err *err)
{
    const struct tu_operand *q = tui_in(in, "q"), *k = tui_in(in, "k"),
                            *v = tui_in(in, "v");
    uint64_t qd[4], vd[4];
    int code;
    if (!q || !k || (!v && !a->opt.v_from_k))
        return tui_missing(!q ? "q" : !k ? "k" : "v", err);
    int layout = a->opt.layout, k_layout = in->paged ? TU_ATTN_BSHD : layout;
    if ((code = tui_rows_of(&a->q, qd, q, layout, err)) ||
        (code = tui_rows_of(&a->k, kd, k, k_layout, err)))
        return code;
    if (a->opt.v_from_k) {
        if (a->opt.v_from_k > kd[3])
            return tu_fail(err, TU_EUSAGE, "--v-from-k %llu: 'k' has %llu columns",
                           (unsigned long long)a->opt.v_from_k,
                           (unsigned long long)kd[3]);
        a->v = a->k;
        memcpy(vd, kd, sizeof vd);
        vd[3] = a->v.dim = a->opt.v_from_k;
    } else if ((code = tui_rows_of(&a->v, vd, v, k_layout, err))) {
        return code;
    }
    if (q->dtype != k->dtype || (v && v->dtype != k->dtype))
        return tu_fail(err, TU_EDTYPE,
                       "'q' is %s, 'k' %s, 'v' %s: one dtype is needed (--cast)",
                       tu_dtype_find(q->dtype)->name, tu_dtype_find(k->dtype)->name,
                       v ? tu_dtype_find(v->dtype)->name : tu_dtype_find(k->dtype)->name);
    if (q->rank == 4 && !in->paged && k->rank == 4 &&
        (code = same("the batch", "q", qd[0], "k", kd[0], err)))
        return code;
    if (!in->paged && q->rank != k->rank)
        return tu_fail(err, TU_ESIZE, "'q' has %u dimensions, 'k' %u", q->rank, k->rank);
    if ((code = same("the head dimension", "q", qd[3], "k", kd[3], err)) ||
        (code = same("the token count", "k", kd[1], "v", vd[1], err)) ||
        (code = same("the batch", "k", kd[0], "v", vd[0], err)) ||
        (code = same("the number of heads", "k", kd[2], "v", vd[2], err)))
        return code;
    if (qd[2] % kd[2])
        return tu_fail(err, TU_ESIZE,
                       "'q' has %llu heads, not a multiple of the %llu of 'k'",
                       (unsigned long long)qd[2], (unsigned long long)kd[2]);
    a->batch = qd[0];
    a->hq = a->h_all = qd[2];
    a->hkv = kd[2];
    a->d = qd[3];
    a->dv = vd[3];
    a->sq_max = qd[1];
    a->sk_max = kd[1];
    a->scale = isnan(a->opt.scale) ? 1 / sqrt((double)a->d) : a->opt.scale;
    return 0;
}

/* cu_seqlens and the like as int64, checked to be integers. */
int tui_integers(struct tu_attn *a, const struct tu_operand *op, unsigned rank,
                 int64_t **out, struct tu_err *err)
{
    if (op->dtype != TU_I32 && op->dtype != TU_I64)
        return tu_fail(err, TU_EDTYPE, "'%s' must be i32 (i64 is accepted)", op->name);
    if (op->rank != rank)
        return tu_fail(err, TU_ESIZE, "'%s' has %u dimensions: %u needed", op->name,
                       op->rank, rank);
    uint64_t n = 1;
    for (unsigned i = 0; i < rank; i++)
        n *= op->dim[i];
    int64_t *v = tu_arena_alloc(a->arena, n, sizeof *v, err);
    if (!v)
        return TU_ENOMEM;
    *out = v;
    return tu_cast(TU_I64, v, op->dtype, op->data, n, err);
}

/* Offsets of packed sequences: 0 first, never falling, all T tokens used. */
static int offsets(struct tu_attn *a, const struct tu_operand *op, uint64_t total,
                   const char *of, int64_t **out, struct tu_err *err)
{
    int code = tui_integers(a, op, 1, out, err);
    if (code)
        return code;
    const int64_t *c = *out;
    uint64_t n = op->dim[0];
    if (n == 0 || c[0] != 0)
        return tu_fail(err, TU_ESIZE, "'%s' must start with 0%s", op->name,
                       n ? ", its entry 0 is another" : "; it is empty");
    for (uint64_t i = 1; i < n; i++)
        if (c[i] < c[i - 1])
            return tu_fail(err, TU_ESIZE,
                           "'%s': entry %llu is %lld, below the one before", op->name,
                           (unsigned long long)i, (long long)c[i]);
    if ((uint64_t)c[n - 1] != total)
        return tu_fail(err, TU_ESIZE, "'%s': entry %llu is %lld, '%s' has %llu tokens",
                       op->name, (unsigned long long)(n - 1), (long long)c[n - 1], of,
                       (unsigned long long)total);
    return 0;
}

/* The sequences of packed q (and k): by cu_seqlens, or all tokens are one. */
static int bind_packed(struct tu_attn *a, const struct tu_bind *in, uint64_t k_tokens,
                       struct tu_err *err)
{
    const struct tu_operand *cq = tui_in(in, "cu_seqlens_q"),
                            *ck = tui_in(in, "cu_seqlens_k");
    uint64_t q_tokens = a->sq_max;
    int64_t one_q[2] = {0, (int64_t)q_tokens}, one_k[2] = {0, (int64_t)k_tokens};
    int64_t *q = one_q, *k = one_k;
    int code;
    if (cq && (code = offsets(a, cq, q_tokens, "q", &q, err)))
        return code;
    a->batch = cq ? cq->dim[0] - 1 : 1;
    if (!in->paged && !ck && cq && q_tokens == k_tokens)
        k = q;
    else if (!in->paged && ck && (code = offsets(a, ck, k_tokens, "k", &k, err)))
        return code;
    uint64_t k_batch = k == q ? a->batch : ck ? ck->dim[0] - 1 : 1;
    if (!in->paged && k_batch != a->batch)
        return tu_fail(err, TU_ESIZE, "%llu sequences of 'q', %llu of 'k'",
                       (unsigned long long)a->batch, (unsigned long long)k_batch);
    a->seq = tu_arena_alloc(a->arena, a->batch, sizeof *a->seq, err);
    if (!a->seq)
        return TU_ENOMEM;
    a->sq_max = a->sk_max = 0;
    for (uint64_t b = 0; b < a->batch; b++) {
        struct tu_attn_seq *s = &a->seq[b];
        *s = (struct tu_attn_seq){.q_token = (uint64_t)q[b],
                                  .sq = (uint64_t)(q[b + 1] - q[b]),
                                  .lse_at = (uint64_t)q[b]};
        if (!in->paged) {
            s->k_token = (uint64_t)k[b];
            s->sk = (uint64_t)(k[b + 1] - k[b]);
        }
        a->sq_max = tu_max(a->sq_max, s->sq);
        a->sk_max = tu_max(a->sk_max, s->sk);
    }
    a->lse_head = q_tokens;
    return 0;
}

static int bind_dense(struct tu_attn *a, struct tu_err *err)
{
    a->seq = tu_arena_alloc(a->arena, a->batch, sizeof *a->seq, err);
    if (!a->seq)
        return TU_ENOMEM;
    for (uint64_t b = 0; b < a->batch; b++)
        a->seq[b] = (struct tu_attn_seq){.q_batch = b,
                                         .sq = a->sq_max,
                                         .k_batch = b,
                                         .sk = a->sk_max,
                                         .lse_at = b * a->hq * a->sq_max};
    a->lse_head = a->sq_max;
    return 0;
}

int tu_attn_init(struct tu_attn *a, const struct tu_attn_opts *opt,
                 const struct tu_operand *op, size_t n, struct tu_err *err)
{
    *a = (struct tu_attn){.opt = *opt, .lse_dtype = TU_F32};
    struct tu_bind in = {op, n, false};
    uint64_t kd[4];
    int code = check_options(opt, err);
    if (code)
        return code;
    a->arena = tu_arena_new(err);
    if (!a->arena)
        return TU_ENOMEM;
    in.paged = tui_in(&in, "block_table") || tui_in(&in, "kv_indptr");
    if ((code = bind_qkv(a, &in, kd, err)))
        goto out;
    bool packed = tui_in(&in, "q")->rank == 3;
    if (!packed && (tui_in(&in, "cu_seqlens_q") || tui_in(&in, "cu_seqlens_k"))) {
        code = tu_fail(err, TU_ESIZE, "cu_seqlens need packed q, k, v of 3 dimensions");
        goto out;
    }
    code = packed ? bind_packed(a, &in, kd[1], err) : bind_dense(a, err);
    if (!code && in.paged)
        code = tui_bind_pages(a, &in, kd, err);
    if (!code)
        code = tui_bind_lengths(a, &in, err);
    if (!code)
        code = tui_bind_beside(a, &in, err);
out:
    if (code)
        tu_attn_release(a);
    return code;
}

void tu_attn_release(struct tu_attn *a)
{
    tu_arena_free(a->arena);
    a->arena = NULL;
}
