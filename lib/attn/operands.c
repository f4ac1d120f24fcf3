/* SPDX-License-Identifier: Apache-2.0 */
/* operands.c: what stands beside q, k and v: pages, lengths, masks, biases, slopes,
 * sinks. */
#include <inttypes.h>
#include <string.h>
#include "attn/problem.h"

/* int32 copies, since tables may come as int64. */
static int table(struct tu_attn *a, const struct tu_operand *op, unsigned rank,
                 int32_t **out, struct tu_err *err)
{
    int64_t *wide;
    int code = tui_integers(a, op, rank, &wide, err);
    if (code)
        return code;
    uint64_t n = rank == 2 ? op->dim[0] * op->dim[1] : op->dim[0];
    *out = tu_arena_alloc(a->arena, n, sizeof **out, err);
    if (!*out)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < n;
         i++) /* what does not fit is no page; -1 is caught when used */
        (*out)[i] = wide[i] < 0 || wide[i] > INT32_MAX ? -1 : (int32_t)wide[i];
    return 0;
}

static int check_pages(const struct tu_attn *a, const char *name, uint64_t b,
                       uint64_t pages, struct tu_err *err)
{
    const struct tu_attn_seq *s = &a->seq[b];
    for (uint64_t c = 0; c < tu_ceil_div(s->sk, a->page); c++)
        if (s->page[c] < 0 || (uint64_t)s->page[c] >= pages)
            return tu_fail(err, TU_ESIZE,
                           "'%s': sequence %" PRIu64 ", column %" PRIu64
                           ": page %d, the pool has %" PRIu64,
                           name, b, c, s->page[c], pages);
    return 0;
}

static int bind_table(struct tu_attn *a, const struct tu_bind *in, uint64_t pages,
                      struct tu_err *err)
{
    const struct tu_operand *t = tui_in(in, "block_table"), *l = tui_in(in, "seqlens_k");
    int32_t *page;
    int64_t *len;
    int code;
    if (!l)
        return tui_missing("seqlens_k", err);
    if ((code = table(a, t, 2, &page, err)) || (code = tui_integers(a, l, 1, &len, err)))
        return code;
    if (t->dim[0] != a->batch || l->dim[0] != a->batch)
        return tu_fail(err, TU_ESIZE,
                       "'q' has %" PRIu64 " sequences, 'block_table' %" PRIu64
                       ", 'seqlens_k' %" PRIu64,
                       a->batch, t->dim[0], l->dim[0]);
    for (uint64_t b = 0; b < a->batch; b++) {
        if (len[b] < 0 || tu_ceil_div((uint64_t)len[b], a->page) > t->dim[1])
            return tu_fail(err, TU_ESIZE,
                           "'seqlens_k': sequence %" PRIu64 " has length %" PRId64
                           ", its row of 'block_table' holds %" PRIu64,
                           b, len[b], t->dim[1] * a->page);
        a->seq[b].page = page + b * t->dim[1];
        a->seq[b].sk = (uint64_t)len[b];
        if ((code = check_pages(a, "block_table", b, pages, err)))
            return code;
    }
    return 0;
}

/* FlashInfer's lists: indices of all sequences in a row, and the fill of each last page.
 */
static int bind_lists(struct tu_attn *a, const struct tu_bind *in, uint64_t pages,
                      struct tu_err *err)
{
    const struct tu_operand *p = tui_in(in, "kv_indptr"), *x = tui_in(in, "kv_indices"),
                            *l = tui_in(in, "kv_last_page_len");
    int64_t *ptr, *last;
    int32_t *page;
    int code;
    if (!x || !l)
        return tui_missing(x ? "kv_last_page_len" : "kv_indices", err);
    if ((code = tui_integers(a, p, 1, &ptr, err)) ||
        (code = table(a, x, 1, &page, err)) || (code = tui_integers(a, l, 1, &last, err)))
        return code;
    if (p->dim[0] != a->batch + 1 || l->dim[0] != a->batch)
        return tu_fail(err, TU_ESIZE,
                       "'q' has %" PRIu64 " sequences, 'kv_indptr' %" PRIu64
                       " entries, 'kv_last_page_len' %" PRIu64,
                       a->batch, p->dim[0], l->dim[0]);
    for (uint64_t b = 0; b < a->batch; b++) {
        if (ptr[b] < 0 || ptr[b + 1] < ptr[b] || (uint64_t)ptr[b + 1] > x->dim[0])
            return tu_fail(err, TU_ESIZE, "'kv_indptr': entry %" PRIu64 " is %" PRId64,
                           b + (ptr[b] >= 0), ptr[b + (ptr[b] >= 0)]);
        uint64_t n = (uint64_t)(ptr[b + 1] - ptr[b]);
        if (n && (last[b] < 1 || (uint64_t)last[b] > a->page))
            return tu_fail(err, TU_ESIZE,
                           "'kv_last_page_len': sequence %" PRIu64 " has %" PRId64
                           ", pages hold %" PRIu64,
                           b, last[b], a->page);
        a->seq[b].page = page + ptr[b];
        a->seq[b].sk = n ? a->page * (n - 1) + (uint64_t)last[b] : 0;
        if ((code = check_pages(a, "kv_indices", b, pages, err)))
            return code;
    }
    return 0;
}

int tui_bind_pages(struct tu_attn *a, const struct tu_bind *in, const uint64_t kd[4],
                   struct tu_err *err)
{
    if (tui_in(in, "k")->rank != 4)
        return tu_fail(err, TU_ESIZE, "paged 'k' must be [pages, page, heads, dim]");
    a->page = kd[1];
    if (a->page == 0)
        return tu_fail(err, TU_ESIZE, "the page size of 'k' is 0");
    int code = tui_in(in, "block_table") ? bind_table(a, in, kd[0], err)
                                         : bind_lists(a, in, kd[0], err);
    a->sk_max = 0;
    for (uint64_t b = 0; !code && b < a->batch; b++)
        a->sk_max = tu_max(a->sk_max, a->seq[b].sk);
    return code;
}

/* One integer per sequence, NULL when absent. */
static int per_sequence(struct tu_attn *a, const struct tu_bind *in, const char *name,
                        int64_t **out, struct tu_err *err)
{
    const struct tu_operand *op = tui_in(in, name);
    *out = NULL;
    if (!op)
        return 0;
    int code = tui_integers(a, op, 1, out, err);
    if (!code && op->dim[0] != a->batch)
        code = tu_fail(err, TU_ESIZE,
                       "'%s' has %" PRIu64 " entries, 'q' %" PRIu64 " sequences", name,
                       op->dim[0], a->batch);
    return code;
}

int tui_bind_lengths(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err)
{
    int64_t *len, *pad, *prefix;
    int code;
    if ((code = per_sequence(a, in, "seqlens_k", &len, err)) ||
        (code = per_sequence(a, in, "leftpad", &pad, err)) ||
        (code = per_sequence(a, in, "prefix", &prefix, err)))
        return code;
    for (uint64_t b = 0; b < a->batch; b++) {
        struct tu_attn_seq *s = &a->seq[b];
        uint64_t p = pad && !in->paged ? (uint64_t)pad[b] : 0;
        if (pad && (pad[b] < 0 || p > s->sk))
            return tu_fail(err, TU_ESIZE,
                           "'leftpad': entry %" PRIu64 " is %" PRId64 ", 'k' has %" PRIu64
                           " tokens",
                           b, pad[b], s->sk);
        s->k_token += p;
        s->sk -= p;
        if (len && !in->paged) {
            if (len[b] < 0 || (uint64_t)len[b] > s->sk)
                return tu_fail(err, TU_ESIZE,
                               "'seqlens_k': entry %" PRIu64 " is %" PRId64
                               ", 'k' has %" PRIu64 " tokens",
                               b, len[b], s->sk);
            s->sk = (uint64_t)len[b];
        }
        s->off = a->opt.causal == TU_CAUSAL_TL ? 0 : (int64_t)s->sk - (int64_t)s->sq;
        s->prefix = prefix && prefix[b] > 0 ? (uint64_t)prefix[b] : 0;
    }
    return 0;
}

/* A float operand as f32: its own data where it is f32 already. */
static int floats(struct tu_attn *a, const struct tu_operand *op, const float **out,
                  struct tu_err *err)
{
    *out = op->data;
    if (op->dtype == TU_F32)
        return 0;
    if (!tu_dtype_is_float(op->dtype))
        return tu_fail(err, TU_EDTYPE, "'%s' is no float dtype", op->name);
    uint64_t n;
    int code = tu_elements(op->dim, op->rank, &n, err);
    if (code)
        return code;
    float *v = tu_arena_alloc(a->arena, n, sizeof *v, err);
    if (!v)
        return TU_ENOMEM;
    *out = v;
    return tu_to_float(op->dtype, op->data, v, n, err);
}

static int shape_is(const struct tu_operand *op, unsigned rank, uint64_t x, uint64_t y,
                    struct tu_err *err)
{
    if (op->rank == rank && op->dim[0] == x && (rank < 2 || op->dim[1] == y))
        return 0;
    return rank == 1 ? tu_fail(err, TU_ESIZE, "'%s' must be [%" PRIu64 "]", op->name, x)
                     : tu_fail(err, TU_ESIZE, "'%s' must be [%" PRIu64 ", %" PRIu64 "]",
                               op->name, x, y);
}

/* Strides of something over (b, h, i, j), where a dimension may be 1; rank 2 is [i, j].
 */
static int broadcast(const struct tu_attn *a, const struct tu_operand *op,
                     const uint64_t want[4], int64_t at[4], uint64_t dim[4],
                     struct tu_err *err)
{
    (void)a;
    for (unsigned i = 0; i < 4; i++)
        dim[i] = op->rank == 4             ? op->dim[i]
                 : op->rank == 2 && i >= 2 ? op->dim[i - 2]
                                           : 1;
    int64_t stride = 1;
    bool fits = op->rank == 2 || op->rank == 4;
    for (unsigned i = 4; i-- > 0;) {
        at[i] = dim[i] == 1 ? 0 : stride;
        fits = fits && (dim[i] == 1 || dim[i] == want[i]);
        stride *= (int64_t)dim[i];
    }
    return fits ? 0
                : tu_fail(err, TU_ESIZE,
                          "'%s' must be [%" PRIu64 "|1, %" PRIu64 "|1, %" PRIu64
                          "|1, %" PRIu64 "|1]",
                          op->name, want[0], want[1], want[2], want[3]);
}

static int bind_masks(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err)
{
    const struct tu_operand *m = tui_in(in, "mask"), *bias = tui_in(in, "bias"),
                            *bl = tui_in(in, "block_mask");
    uint64_t want[4] = {a->batch, a->hq, a->sq_max, a->sk_max}, dim[4];
    bool additive = m && m->dtype != TU_BOOL && m->dtype != TU_U8;
    int code = 0;
    if (additive && bias)
        return tu_fail(err, TU_EUSAGE, "an additive 'mask' and a 'bias' at once");
    if (additive)
        bias = m;
    else if (m && !(code = broadcast(a, m, want, a->mask_at, dim, err)))
        a->mask = m->data;
    if (!code && bias && !(code = broadcast(a, bias, want, a->bias_at, a->bias_dim, err)))
        code = floats(a, bias, &a->bias, err);
    if (code || !bl)
        return code;
    if (bl->dtype != TU_BOOL && bl->dtype != TU_U8)
        return tu_fail(err, TU_EDTYPE, "'block_mask' must be bool");
    uint64_t nq = bl->dim[bl->rank > 1 ? bl->rank - 2 : 0],
             nk = bl->dim[bl->rank ? bl->rank - 1 : 0];
    if (!nq || !nk)
        return tu_fail(err, TU_ESIZE, "'block_mask' is empty");
    if (!a->opt.mask_q)
        a->opt.mask_q = tu_max(1, tu_ceil_div(a->sq_max, nq));
    if (!a->opt.mask_k)
        a->opt.mask_k = tu_max(1, tu_ceil_div(a->sk_max, nk));
    want[2] = tu_ceil_div(a->sq_max, a->opt.mask_q);
    want[3] = tu_ceil_div(a->sk_max, a->opt.mask_k);
    a->blocks = bl->data;
    return broadcast(a, bl, want, a->blocks_at, dim, err);
}

/* Slopes, sinks, scales, documents. */
static int bind_small(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err)
{
    const struct tu_operand *op;
    int code = 0;
    if ((op = tui_in(in, "alibi_slopes"))) {
        a->slopes_batch = op->rank == 2 ? a->hq : 0;
        code = op->rank == 2 ? shape_is(op, 2, a->batch, a->hq, err)
                             : shape_is(op, 1, a->hq, 0, err);
        if (code || (code = floats(a, op, &a->slopes, err)))
            return code;
    } else if (a->opt.alibi) {
        float *s = tu_arena_alloc(a->arena, a->hq, sizeof *s, err);
        if (!s)
            return TU_ENOMEM;
        for (uint64_t h = 0; h < a->hq; h++)
            s[h] = (float)tu_alibi_slope(h, a->hq);
        a->slopes = s;
    }
    if ((op = tui_in(in, "sinks")) && !a->opt.partial)
        if ((code = shape_is(op, 1, a->hq, 0, err)) ||
            (code = floats(a, op, &a->sinks, err)))
            return code;
    const char *name[] = {"q.scale", "k.scale", "v.scale"};
    const float **to[] = {&a->q_scale, &a->k_scale, &a->v_scale};
    for (unsigned i = 0; i < 3; i++)
        if ((op = tui_in(in, name[i])))
            if ((code = shape_is(op, 2, a->batch, a->hkv, err)) ||
                (code = floats(a, op, to[i], err)))
                return code;
    int64_t *docs;
    if ((op = tui_in(in, "doc_ids"))) {
        if ((code = tui_integers(a, op, 2, &docs, err)) ||
            (code = shape_is(op, 2, a->batch, a->sk_max, err)))
            return code;
        a->docs = docs;
        a->docs_n = a->sk_max;
    }
    return 0;
}

/* o, lse, do, dlse, as the backward reads them. */
static int bind_results(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err)
{
    const struct tu_operand *q = tui_in(in, "q"), *o = tui_in(in, "o"),
                            *dout = tui_in(in, "do"), *lse = tui_in(in, "lse"),
                            *dlse = tui_in(in, "dlse");
    uint64_t dim[4];
    int code;
    for (unsigned i = 0; i < 2; i++) {
        const struct tu_operand *x = i ? dout : o;
        if (!x)
            continue;
        for (unsigned k = 0; k < q->rank; k++)
            if (x->rank != q->rank || x->dim[k] != (k + 1 == q->rank ? a->dv : q->dim[k]))
                return tu_fail(err, TU_ESIZE,
                               "'%s' must have the shape of 'q' with the last "
                               "dimension of 'v'",
                               x->name);
        if ((code = tui_rows_of(i ? &a->dout : &a->o, dim, x, a->opt.layout, err)))
            return code;
    }
    uint64_t want[3] = {a->batch, a->hq, a->sq_max};
    if (q->rank == 3)
        memcpy(want, (uint64_t[3]){a->hq, q->dim[0], 0}, sizeof want);
    for (unsigned i = 0; i < 2; i++) {
        const struct tu_operand *x = i ? dlse : lse;
        if (!x)
            continue;
        if (x->dtype != TU_F32 && (x->dtype != TU_F64 || i))
            return tu_fail(err, TU_EDTYPE, "'%s' must be f32", x->name);
        for (unsigned k = 0; k < q->rank - 1; k++)
            if (x->rank != q->rank - 1 || x->dim[k] != want[k])
                return tu_fail(err, TU_ESIZE, "'%s' must be %s", x->name,
                               q->rank == 3 ? "[heads, tokens]"
                                            : "[batch, heads, tokens]");
    }
    if (lse) {
        a->lse = lse->data;
        a->lse_dtype = lse->dtype;
    }
    a->dlse = dlse ? dlse->data : NULL;
    a->chain = o && lse;
    return 0;
}

/* Positions that were told rather than found: global indices of both sides. */
static int bind_places(struct tu_attn *a, struct tu_err *err)
{
    uint64_t n = tu_max(a->sq_max, a->sk_max);
    if (a->mask || a->bias || a->blocks || a->docs)
        return tu_fail(err, TU_EUSAGE, "masks, biases and documents with shard offsets");
    int64_t *q = tu_arena_alloc(a->arena, n, sizeof *q, err);
    int64_t *k = q ? tu_arena_alloc(a->arena, n, sizeof *k, err) : NULL;
    if (!k)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        q[i] = a->opt.q_first + (int64_t)i;
        k[i] = a->opt.k_first + (int64_t)i;
    }
    a->q_at = q;
    a->k_at = k;
    for (uint64_t b = 0; b < a->batch; b++)
        a->seq[b].off = 0;
    return 0;
}

int tui_bind_beside(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err)
{
    int code;
    if ((code = bind_masks(a, in, err)) || (code = bind_small(a, in, err)))
        return code;
    if (a->opt.placed && (code = bind_places(a, err)))
        return code;
    return bind_results(a, in, err);
}
