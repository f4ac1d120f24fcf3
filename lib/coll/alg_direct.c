/* SPDX-License-Identifier: Apache-2.0 */
/* alg_direct.c: every pair exchanges: pairwise all-to-all and all-gather, and the
 * reductions whose order is fixed: each rank collects all inputs of its block and folds
 * them itself.
 *
 * As many bytes as a ring, p-1 messages, and an order that no algorithm, size or
 * transport can change. Source: pairwise exchange as in Thakur, Rabenseifner, Gropp 2005.
 */
#include "plan.h"

#define SOURCE "Thakur, Rabenseifner, Gropp 2005"

static bool by_xor(const struct tu_plan *p)
{
    return (p->ranks & (p->ranks - 1)) == 0;
}

/* Partners in step 1 … p-1. */
static uint32_t send_to(const struct tu_plan *p, uint32_t r, uint32_t step)
{
    return by_xor(p) ? r ^ step : tui_turn(r, step, p->ranks);
}

static uint32_t recv_from(const struct tu_plan *p, uint32_t r, uint32_t step)
{
    return by_xor(p) ? r ^ step : tui_turn(r, -(int64_t)step, p->ranks);
}

/* All-to-all and all-gather
 * ------------------------------------------------------------------ */

static int plan_pairs(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = p->ranks;
    return 0;
}

static void round_pairs(const struct tu_plan *p, uint32_t r, uint64_t k,
                        struct tu_round *o)
{
    uint64_t c = p->count;
    bool all_to_all = p->alg->coll == TU_ALLTOALL;
    uint32_t to = k ? send_to(p, r, (uint32_t)k) : r,
             from = k ? recv_from(p, r, (uint32_t)k) : r;
    *o = (struct tu_round){.to = to,
                           .from = from,
                           .send = tui_blocks(TU_IN, c, all_to_all ? to : 0, 1),
                           .recv = tui_blocks(TU_OUT, c, from, 1)};
}

static uint64_t sent_pairs(const struct tu_plan *p, uint32_t r)
{
    (void)r;
    return p->count * (p->ranks - 1);
}

static double model_pairs(const struct tu_plan *p, double bytes, double alpha,
                          double beta, double gamma)
{
    double n = p->ranks;
    bool adds = tu_collective_rows[p->alg->coll].reduces;
    return (n - 1) * (alpha + bytes / n * beta) +
           (adds ? (n - 1) / n * bytes * gamma : 0);
}

const struct tu_algorithm tui_a2a_pairwise = {
    "pairwise",       "one partner after the other",
    SOURCE,           TU_ALLTOALL,
    tui_coll_no_keys, 0,
    plan_pairs,       round_pairs,
    sent_pairs,       model_pairs,
};
const struct tu_algorithm tui_ag_pairwise = {
    "pairwise",       "one partner after the other",
    SOURCE,           TU_ALLGATHER,
    tui_coll_no_keys, 0,
    plan_pairs,       round_pairs,
    sent_pairs,       model_pairs,
};

/* Reductions: slot q of work holds rank q's input of this rank's block.
 * ---------------------- */

static uint64_t slot_size(const struct tu_plan *p)
{
    return p->alg->coll == TU_ALLREDUCE ? tu_ceil_div(p->count, p->ranks) : p->count;
}

static int plan_direct(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->work = slot_size(p) * p->ranks;
    p->rounds = p->alg->coll == TU_ALLREDUCE ? 2 * (uint64_t)p->ranks - 1 : p->ranks;
    return 0;
}

/* Block b of an input (or of the all-reduce's output). */
static struct tu_span block_of(const struct tu_plan *p, enum tu_space space, uint32_t b)
{
    if (p->alg->coll != TU_ALLREDUCE)
        return tui_blocks(space, p->count, b, 1);
    return tui_span(space, tui_block_at(p->count, p->ranks, b),
                    tui_block_len(p->count, p->ranks, b));
}

static void round_direct(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint32_t n = p->ranks;
    bool all = p->alg->coll == TU_ALLREDUCE;
    struct tu_span mine = block_of(p, TU_IN, r);
    if (k + 1 < n) {
        uint32_t to = send_to(p, r, (uint32_t)k + 1),
                 from = recv_from(p, r, (uint32_t)k + 1);
        *o = (struct tu_round){.to = to,
                               .from = from,
                               .send = block_of(p, TU_IN, to),
                               .recv = tui_span(TU_WORK, from * slot_size(p), mine.n)};
    } else if (k + 1 == n) {
        *o = (struct tu_round){.to = r,
                               .from = r,
                               .combine = true,
                               .own = mine,
                               .send = tui_span(TU_WORK, 0, slot_size(p)),
                               .recv = all ? block_of(p, TU_OUT, r)
                                           : tui_span(TU_OUT, 0, mine.n)};
    } else {
        int64_t i = (int64_t)(k - n);
        *o = (struct tu_round){.to = tui_turn(r, 1, n),
                               .from = tui_turn(r, -1, n),
                               .send = block_of(p, TU_OUT, tui_turn(r, -i, n)),
                               .recv = block_of(p, TU_OUT, tui_turn(r, -i - 1, n))};
    }
}

static uint64_t sent_direct(const struct tu_plan *p, uint32_t r)
{
    if (p->alg->coll != TU_ALLREDUCE)
        return p->count * (p->ranks - 1);
    uint64_t mine = tui_block_len(p->count, p->ranks, r);
    uint64_t next = tui_block_len(p->count, p->ranks, tui_turn(r, 1, p->ranks));
    return p->ranks == 1 ? 0 : 2 * p->count - mine - next;
}

static double model_direct(const struct tu_plan *p, double bytes, double alpha,
                           double beta, double gamma)
{
    double t = model_pairs(p, bytes, alpha, beta, gamma), n = p->ranks;
    return p->alg->coll == TU_ALLREDUCE ? t + (n - 1) * (alpha + bytes / n * beta) : t;
}

const struct tu_algorithm tui_ar_direct = {
    "direct",
    "each rank folds its block of all inputs, then a ring; keeps any --reduce-order",
    SOURCE,
    TU_ALLREDUCE,
    tui_coll_no_keys,
    TU_ALG_ORDERED,
    plan_direct,
    round_direct,
    sent_direct,
    model_direct,
};
const struct tu_algorithm tui_rs_direct = {
    "direct",         "each rank folds its block of all inputs; keeps any --reduce-order",
    SOURCE,           TU_REDUCE_SCATTER,
    tui_coll_no_keys, TU_ALG_ORDERED,
    plan_direct,      round_direct,
    sent_direct,      model_direct,
};
