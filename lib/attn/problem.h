/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h: how operands become a struct tu_attn, and how kernels find their rows. */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include <tensorutils/attn.h>

/* The operands of a call. */
struct tu_bind {
    const struct tu_operand *op;
    size_t n;
    bool paged; /* k and v are pools of pages */
};

static inline const struct tu_operand *tui_in(const struct tu_bind *in, const char *name)
{
    return tu_operand_find(in->op, in->n, name);
}

int tui_missing(const char *name, struct tu_err *err);
int tui_rows_of(struct tu_rows *r, uint64_t dim[4], const struct tu_operand *op,
                int layout, struct tu_err *err);
int tui_integers(struct tu_attn *a, const struct tu_operand *op, unsigned rank,
                 int64_t **out, struct tu_err *err);
/* Block tables or CSR lists of pages: fills page, seq[].page, seq[].sk. */
int tui_bind_pages(struct tu_attn *a, const struct tu_bind *in, const uint64_t kd[4],
                   struct tu_err *err);
/* Key lengths, left padding, positions. */
int tui_bind_lengths(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err);
/* Masks, biases, slopes, sinks, scales, documents; o, lse, do, dlse. */
int tui_bind_beside(struct tu_attn *a, const struct tu_bind *in, struct tu_err *err);

/* The reference for one KV head of one sequence. */
int tui_forward_ref_head(const struct tu_attn *a, uint64_t b, uint64_t hkv,
                         struct tu_err *err);

/* Point the outputs of a at those of the call; without outputs of the forward, its o and
 * lse stay. */
int tui_aim(struct tu_attn *a, const struct tu_mixer_args *m, struct tu_err *err);
/* dsink from o, lse and do: the sum over rows of exp(sink - LSE) (dLSE - Delta), in
 * order. */
int tui_sink_gradient(const struct tu_attn *a, struct tu_err *err);

/* What products are computed in: as asked, else bf16 where the storage is that short. */
static inline uint32_t tui_compute(const struct tu_attn_opts *o, uint32_t storage)
{
    bool narrow = storage != TU_F32 && storage != TU_F64 && storage != TU_F16;
    return o->compute ? o->compute : narrow ? TU_BF16 : TU_F32;
}

/* Where rows are: query i of sequence b, head h; key j of sequence b, KV head h. */
static inline unsigned char *tui_q_row(const struct tu_rows *r,
                                       const struct tu_attn_seq *s, uint64_t i,
                                       uint64_t h)
{
    return r->data + (int64_t)r->elem *
                         ((int64_t)s->q_batch * r->batch +
                          (int64_t)(s->q_token + i) * r->token + (int64_t)h * r->head);
}

static inline unsigned char *tui_k_row(const struct tu_attn *a, const struct tu_rows *r,
                                       const struct tu_attn_seq *s, uint64_t j,
                                       uint64_t h)
{
    uint64_t batch = s->k_batch, token = s->k_token + j;
    if (s->page) {
        batch = (uint64_t)s->page[j / a->page];
        token = j % a->page;
    }
    return r->data +
           (int64_t)r->elem * ((int64_t)batch * r->batch + (int64_t)token * r->token +
                               (int64_t)h * r->head);
}

/* Global index of a row. */
static inline int64_t tui_at(const int64_t *at, uint64_t i)
{
    return at ? at[i] : (int64_t)i;
}

static inline uint64_t tui_lse_at(const struct tu_attn *a, const struct tu_attn_seq *s,
                                  uint64_t i, uint64_t h)
{
    return s->lse_at + h * a->lse_head + i;
}

static inline double tui_factor(const float *scale, const struct tu_attn *a, uint64_t b,
                                uint64_t hkv)
{
    return scale ? (double)scale[b * a->hkv + hkv] : 1;
}

/* Logit of q·k = 1 for a KV head. */
static inline double tui_scale(const struct tu_attn *a, uint64_t b, uint64_t hkv)
{
    return a->scale * tui_factor(a->q_scale, a, b, hkv) *
           tui_factor(a->k_scale, a, b, hkv);
}

#endif
