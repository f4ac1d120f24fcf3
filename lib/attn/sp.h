/* SPDX-License-Identifier: Apache-2.0 */
/* sp.h: one rank of a sequence-parallel problem, between the files sp*.c.
 *
 * A rank holds some tokens and some heads as [batch, head, token, dim]. Ranks of a ring
 * hold other tokens of the same heads; those of an exchange trade heads (or sequences)
 * for tokens. */
#ifndef ATTN_SP_H
#define ATTN_SP_H

#include <tensorutils/coll.h>
#include "attn/problem.h"

/* Members of a group that talk to each other. */
struct tui_comm {
    struct tu_rank *rank;
    uint32_t n, me;
    uint32_t first, step; /* member i is rank first + i · step */
};

static inline uint32_t tui_member(const struct tui_comm *c, uint32_t i)
{
    return c->first + i * c->step;
}

/* Who computes what: at step t rank r multiplies the queries of *q with the keys of *k.
 */
struct tui_plan_sp {
    uint32_t (*steps)(uint32_t n);
    bool (*pair)(uint32_t n, uint32_t r, uint32_t t, uint32_t *q, uint32_t *k);
    bool forwards; /* keys come from the neighbour below, not from their owner */
};

/* Tokens and heads of this rank; keys as many as queries. */
struct tui_shard {
    const struct tu_attn *all; /* the whole problem */
    uint64_t batch, n;         /* tokens of the block that this rank owns */
    uint64_t b0, h0, hq, hkv0, hkv;
    int64_t **at; /* [members] global tokens of each member's block, [n] */
    size_t e;     /* bytes of an element of q, k, v */
    unsigned char *q, *k, *v, *dout; /* [batch, heads, n, dim] */
    float *o, *lse;                  /* f32 [batch, hq, n, dv], [batch, hq, n] */
    float *dq, *dk, *dv;             /* f32 */
    float *dsink;                    /* [all heads] */
    struct tu_arena *arena;
};

static inline uint64_t tui_shard_kv(const struct tui_shard *s) /* bytes of k and v */
{
    return s->batch * s->hkv * s->n * (s->all->d + s->all->dv) * s->e;
}

/* (o, lse) of queries against keys, both blocks of the members given; f32. */
int tui_sp_forward(const struct tui_shard *s, const unsigned char *q, const int64_t *q_at,
                   uint64_t nq, const unsigned char *kv, const int64_t *k_at, uint64_t nk,
                   float *o, float *lse, struct tu_err *err);
/* What the queries of a block take along: q, do, o (f32), lse. */
struct tui_queries {
    const unsigned char *q, *dout;
    const float *o, *lse;
    const int64_t *at;
    uint64_t n;
};
/* dq, dk, dv (f32) of one pair of blocks; dq or dk and dv may be NULL. */
int tui_sp_backward(const struct tui_shard *s, const struct tui_queries *q,
                    const unsigned char *kv, const int64_t *k_at, uint64_t nk, float *dq,
                    float *dk, float *dv, struct tu_err *err);

/* Forward and backward over a ring by a plan; o, lse and the gradients of s are filled.
 */
int tui_ring_forward(struct tui_shard *s, const struct tui_comm *c,
                     const struct tui_plan_sp *plan, struct tu_err *err);
int tui_ring_backward(struct tui_shard *s, const struct tui_comm *c,
                      const struct tui_plan_sp *plan, struct tu_err *err);
/* The same after all blocks have been brought together: one call in global order. */
int tui_gather_forward(struct tui_shard *s, const struct tui_comm *c, struct tu_err *err);
int tui_gather_backward(struct tui_shard *s, const struct tui_comm *c, bool deterministic,
                        struct tu_err *err);
void *tui_sp_alloc(const struct tui_shard *s, uint64_t n, size_t size,
                   struct tu_err *err);

#endif
