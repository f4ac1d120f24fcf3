/* SPDX-License-Identifier: Apache-2.0 */
/* alg_ring.c: neighbours only: ring all-reduce, reduce-scatter, all-gather, chain, shift.
 *
 * Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters
 * of workstations", JPDC 2009; the segmented ring as in Open MPI's coll_base_allreduce.c.
 */
#include "plan.h"

#define SOURCE "Patarasuk and Yuan 2009"

/* All-reduce: (p-1) rounds of reduce-scatter for each segment, then (p-1) of all-gather.
 */
static int plan_allreduce(struct tu_plan *p, const struct tu_spec *spec,
                          struct tu_err *err)
{
    p->rounds = 1;
    int code = tui_plan_segments(p, spec, err);
    if (!code && p->ranks > 1)
        p->rounds = ((uint64_t)p->segments + 1) * (p->ranks - 1);
    return code;
}

/* Segment s of block b. */
static struct tu_span part(const struct tu_plan *p, enum tu_space space, uint32_t b,
                           uint32_t s)
{
    uint64_t at = tui_block_at(p->count, p->ranks, b),
             n = tui_block_len(p->count, p->ranks, b);
    return tui_span(space, at + tui_block_at(n, p->segments, s),
                    tui_block_len(n, p->segments, s));
}

static struct tu_span whole(const struct tu_plan *p, uint32_t b)
{
    return tui_span(TU_OUT, tui_block_at(p->count, p->ranks, b),
                    tui_block_len(p->count, p->ranks, b));
}

static void round_allreduce(const struct tu_plan *p, uint32_t r, uint64_t k,
                            struct tu_round *o)
{
    uint32_t n = p->ranks;
    if (n == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
        return;
    }
    *o = (struct tu_round){.to = tui_turn(r, 1, n), .from = tui_turn(r, -1, n)};
    uint64_t scatter = (uint64_t)p->segments * (n - 1);
    if (k < scatter) {
        uint32_t s = (uint32_t)(k / (n - 1));
        int64_t i = (int64_t)(k % (n - 1));
        o->send = part(p, i ? TU_OUT : TU_IN, tui_turn(r, -i, n), s);
        o->recv = part(p, TU_OUT, tui_turn(r, -i - 1, n), s);
        o->own = part(p, TU_IN, tui_turn(r, -i - 1, n), s);
        o->add = o->left = true;
    } else {
        int64_t i = (int64_t)(k - scatter);
        o->send = whole(p, tui_turn(r, 1 - i, n));
        o->recv = whole(p, tui_turn(r, -i, n));
    }
}

static uint64_t sent_allreduce(const struct tu_plan *p, uint32_t r)
{
    if (p->ranks == 1)
        return 0;
    /* All blocks but one, twice: r+1 is not sent in the first half, r+2 not in the
     * second. */
    return 2 * p->count - tui_block_len(p->count, p->ranks, tui_turn(r, 1, p->ranks)) -
           tui_block_len(p->count, p->ranks, (r + 2) % p->ranks);
}

static double model_allreduce(const struct tu_plan *p, double bytes, double alpha,
                              double beta, double gamma)
{
    double n = p->ranks, m = p->segments;
    return (m + 1) * (n - 1) * alpha + (n - 1) / n * bytes * (2 * beta + gamma);
}

const struct tu_algorithm tui_ar_ring = {
    "ring",
    "neighbours only; least bytes (seg=N: each block in N parts)",
    SOURCE,
    TU_ALLREDUCE,
    tui_coll_seg_keys,
    0,
    plan_allreduce,
    round_allreduce,
    sent_allreduce,
    model_allreduce,
};

/* Reduce-scatter: one step further round the ring, so that block r ends at rank r. Two
 * blocks of work: one is sent while the next comes in. */
static int plan_scatter(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = p->ranks > 1 ? p->ranks - 1 : 1;
    p->work = 2 * p->count;
    return 0;
}

static void round_scatter(const struct tu_plan *p, uint32_t r, uint64_t k,
                          struct tu_round *o)
{
    uint32_t n = p->ranks;
    uint64_t c = p->count;
    if (n == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, c), tui_span(TU_OUT, 0, c));
        return;
    }
    int64_t i = (int64_t)k;
    *o = (struct tu_round){
        .to = tui_turn(r, 1, n), .from = tui_turn(r, -1, n), .add = true, .left = true};
    o->send = k ? tui_blocks(TU_WORK, c, (k - 1) % 2, 1)
                : tui_blocks(TU_IN, c, tui_turn(r, -1, n), 1);
    o->recv = k + 2 == n ? tui_span(TU_OUT, 0, c) : tui_blocks(TU_WORK, c, k % 2, 1);
    o->own = tui_blocks(TU_IN, c, tui_turn(tui_turn(r, -i, n), -2, n), 1);
}

static uint64_t sent_blocks(const struct tu_plan *p, uint32_t r)
{
    (void)r;
    return p->count * (p->ranks - 1);
}

static double model_half(const struct tu_plan *p, double bytes, double alpha, double beta,
                         double gamma)
{
    double n = p->ranks;
    bool adds = tu_collective_rows[p->alg->coll].reduces;
    return (n - 1) * alpha + (n - 1) / n * bytes * (beta + (adds ? gamma : 0));
}

const struct tu_algorithm tui_rs_ring = {
    "ring", "neighbours only", SOURCE,        TU_REDUCE_SCATTER, tui_coll_no_keys,
    0,      plan_scatter,      round_scatter, sent_blocks,       model_half,
};

/* All-gather. */
static int plan_gather(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = p->ranks;
    return 0;
}

static void round_gather(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint32_t n = p->ranks;
    if (!k) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_blocks(TU_OUT, p->count, r, 1));
        return;
    }
    *o = (struct tu_round){.to = tui_turn(r, 1, n), .from = tui_turn(r, -1, n)};
    o->send = tui_blocks(TU_OUT, p->count, tui_turn(r, 1 - (int64_t)k, n), 1);
    o->recv = tui_blocks(TU_OUT, p->count, tui_turn(r, -(int64_t)k, n), 1);
}

const struct tu_algorithm tui_ag_ring = {
    "ring", "neighbours only", SOURCE,       TU_ALLGATHER, tui_coll_no_keys,
    0,      plan_gather,       round_gather, sent_blocks,  model_half,
};

/* Broadcast along a chain, in segments. */
static int plan_chain(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    int code = tui_plan_segments(p, spec, err);
    p->rounds = 1 + (uint64_t)p->segments * (p->ranks - 1);
    return code;
}

static void round_chain(const struct tu_plan *p, uint32_t r, uint64_t k,
                        struct tu_round *o)
{
    uint32_t v = tui_virtual(p, r);
    tui_idle(o);
    if (!k) {
        if (!v)
            tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
        return;
    }
    uint32_t s = (uint32_t)((k - 1) / (p->ranks - 1)),
             hop = (uint32_t)((k - 1) % (p->ranks - 1));
    struct tu_span piece = tui_span(TU_OUT, tui_block_at(p->count, p->segments, s),
                                    tui_block_len(p->count, p->segments, s));
    o->send = o->recv = piece;
    if (v == hop)
        o->to = tui_real(p, v + 1);
    else if (v == hop + 1)
        o->from = tui_real(p, v - 1);
}

static uint64_t sent_chain(const struct tu_plan *p, uint32_t r)
{
    return tui_virtual(p, r) + 1 < p->ranks ? p->count : 0;
}

static double model_chain(const struct tu_plan *p, double bytes, double alpha,
                          double beta, double gamma)
{
    (void)gamma;
    double m = p->segments;
    return (m + p->ranks - 2) * (alpha + bytes / m * beta);
}

const struct tu_algorithm tui_bc_chain = {
    "chain",           "one after the other (seg=N: pipelined in N parts)",
    "pipelined chain", TU_BROADCAST,
    tui_coll_seg_keys, 0,
    plan_chain,        round_chain,
    sent_chain,        model_chain,
};

/* Everyone to the right-hand neighbour. */
static int plan_shift(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = 1;
    return 0;
}

static void round_shift(const struct tu_plan *p, uint32_t r, uint64_t k,
                        struct tu_round *o)
{
    (void)k;
    *o = (struct tu_round){.to = tui_turn(r, 1, p->ranks),
                           .from = tui_turn(r, -1, p->ranks),
                           .send = tui_span(TU_IN, 0, p->count),
                           .recv = tui_span(TU_OUT, 0, p->count)};
}

static uint64_t sent_shift(const struct tu_plan *p, uint32_t r)
{
    (void)r;
    return p->ranks > 1 ? p->count : 0;
}

static double model_shift(const struct tu_plan *p, double bytes, double alpha,
                          double beta, double gamma)
{
    (void)p;
    (void)gamma;
    return alpha + bytes * beta;
}

const struct tu_algorithm tui_shift = {
    "shift",
    "each to its right-hand neighbour",
    "nccl-tests, sendrecv",
    TU_SENDRECV,
    tui_coll_no_keys,
    0,
    plan_shift,
    round_shift,
    sent_shift,
    model_shift,
};
