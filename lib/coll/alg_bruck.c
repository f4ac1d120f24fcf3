/* SPDX-License-Identifier: Apache-2.0 */
/* alg_bruck.c: logarithmic steps for any number of ranks: Bruck all-gather and
 * all-to-all, PAT.
 *
 * Source: J. Bruck et al., "Efficient algorithms for all-to-all communications in
 * multiport message-passing systems", 1997. PAT (parallel aggregated trees): S. Jeaugey,
 * arXiv 2506.20252: Bruck with the distances reversed, so that far messages are the small
 * ones. */
#include "plan.h"

static int plan_gather(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = 3 + tui_log2_up(p->ranks);
    p->work = p->count * p->ranks;
    return 0;
}

/* The last two rounds: work holds the blocks of r, r+1, … (or r, r-1, … for PAT's
 * offsets). */
static void unturn(const struct tu_plan *p, uint32_t r, bool second, struct tu_round *o)
{
    uint64_t c = p->count, head = p->ranks - r;
    if (second)
        tui_copy(o, r, tui_blocks(TU_WORK, c, head, r), tui_blocks(TU_OUT, c, 0, r));
    else
        tui_copy(o, r, tui_blocks(TU_WORK, c, 0, head), tui_blocks(TU_OUT, c, r, head));
}

static void round_gather(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks);
    uint64_t c = p->count;
    if (k == 0) {
        tui_copy(o, r, tui_span(TU_IN, 0, c), tui_span(TU_WORK, 0, c));
    } else if (k > log) {
        unturn(p, r, k == log + 2, o);
    } else {
        uint32_t have = 1u << (k - 1), n = (uint32_t)tu_min(have, p->ranks - have);
        *o = (struct tu_round){.to = tui_turn(r, -(int64_t)have, p->ranks),
                               .from = tui_turn(r, have, p->ranks),
                               .send = tui_blocks(TU_WORK, c, 0, n),
                               .recv = tui_blocks(TU_WORK, c, have, n)};
    }
}

static uint64_t sent_others(const struct tu_plan *p, uint32_t r)
{
    (void)r;
    return p->count * (p->ranks - 1);
}

static double model_log(const struct tu_plan *p, double bytes, double alpha, double beta,
                        double gamma)
{
    double n = p->ranks;
    bool adds = tu_collective_rows[p->alg->coll].reduces;
    return tui_log2_up(p->ranks) * alpha +
           (n - 1) / n * bytes * (beta + (adds ? gamma : 0));
}

const struct tu_algorithm tui_ag_bruck = {
    "bruck",
    "logarithmic steps, any number of ranks",
    "Bruck et al. 1997",
    TU_ALLGATHER,
    tui_coll_no_keys,
    0,
    plan_gather,
    round_gather,
    sent_others,
    model_log,
};

/* PAT. Offset s of rank r is the block of rank r-s. At distance d everyone sends the
 * offsets it holds, the multiples of 2d, and gets those that are d larger. */

/* Offsets below p that are d modulo 2d. */
static uint64_t gained(uint32_t p, uint32_t d)
{
    return p > d ? (p - d - 1) / (2 * (uint64_t)d) + 1 : 0;
}

static struct tu_span offsets(const struct tu_plan *p, uint32_t first, uint32_t d)
{
    uint64_t c = p->count;
    return (struct tu_span){.space = TU_WORK,
                            .at = first * c,
                            .n = gained(p->ranks, d) * c,
                            .run = c,
                            .period = 2 * (uint64_t)d * c};
}

static int plan_pat(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->work = p->count * p->ranks;
    p->rounds = (uint64_t)tui_log2_up(p->ranks) + p->ranks + 1;
    return 0;
}

static void round_pat_gather(const struct tu_plan *p, uint32_t r, uint64_t k,
                             struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks), n = p->ranks;
    uint64_t c = p->count;
    if (k == 0) {
        tui_copy(o, r, tui_span(TU_IN, 0, c), tui_span(TU_WORK, 0, c));
    } else if (k <= log) {
        uint32_t d = 1u << (log - k);
        *o = (struct tu_round){.to = tui_turn(r, d, n),
                               .from = tui_turn(r, -(int64_t)d, n),
                               .send = offsets(p, 0, d),
                               .recv = offsets(p, d, d)};
    } else {
        uint32_t s = (uint32_t)(k - log - 1);
        tui_copy(o, r, tui_blocks(TU_WORK, c, s, 1),
                 tui_blocks(TU_OUT, c, tui_turn(r, -(int64_t)s, n), 1));
    }
}

const struct tu_algorithm tui_ag_pat = {
    "pat",
    "logarithmic steps, the far messages small",
    "arXiv 2506.20252",
    TU_ALLGATHER,
    tui_coll_no_keys,
    0,
    plan_pat,
    round_pat_gather,
    sent_others,
    model_log,
};

/* The mirror: first the inputs by offset (s: meant for rank r-s), then the distances
 * upwards, each adding what comes in; offset 0 is the result. */
static void round_pat_scatter(const struct tu_plan *p, uint32_t r, uint64_t k,
                              struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks), n = p->ranks;
    uint64_t c = p->count;
    if (k < n) {
        tui_copy(o, r, tui_blocks(TU_IN, c, tui_turn(r, -(int64_t)k, n), 1),
                 tui_blocks(TU_WORK, c, k, 1));
    } else if (k < (uint64_t)n + log) {
        uint32_t d = 1u << (k - n);
        *o = (struct tu_round){.to = tui_turn(r, -(int64_t)d, n),
                               .from = tui_turn(r, d, n),
                               .send = offsets(p, d, d),
                               .recv = offsets(p, 0, d),
                               .own = offsets(p, 0, d),
                               .add = true};
    } else {
        tui_copy(o, r, tui_span(TU_WORK, 0, c), tui_span(TU_OUT, 0, c));
    }
}

const struct tu_algorithm tui_rs_pat = {
    "pat",
    "logarithmic steps, the far messages small",
    "arXiv 2506.20252",
    TU_REDUCE_SCATTER,
    tui_coll_no_keys,
    0,
    plan_pat,
    round_pat_scatter,
    sent_others,
    model_log,
};

/* All-to-all: after a local turn block j is for rank r+j; bit i of j says whether it
 * moves by 2^i in step i. */
static uint64_t with_bit(uint32_t p, uint32_t bit)
{
    uint64_t full = p / (2 * (uint64_t)bit) * bit, rest = p % (2 * (uint64_t)bit);
    return full + (rest > bit ? rest - bit : 0);
}

static int plan_a2a(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->work = p->count * p->ranks;
    p->rounds = 2 + (uint64_t)tui_log2_up(p->ranks) + p->ranks;
    return 0;
}

static void round_a2a(const struct tu_plan *p, uint32_t r, uint64_t k, struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks), n = p->ranks;
    uint64_t c = p->count, head = n - r;
    if (k == 0) {
        tui_copy(o, r, tui_blocks(TU_IN, c, r, head), tui_blocks(TU_WORK, c, 0, head));
    } else if (k == 1) {
        tui_copy(o, r, tui_blocks(TU_IN, c, 0, r), tui_blocks(TU_WORK, c, head, r));
    } else if (k < 2 + log) {
        uint64_t bit = UINT64_C(1) << (k - 2);
        struct tu_span s = {.space = TU_WORK,
                            .at = bit * c,
                            .n = with_bit(n, (uint32_t)bit) * c,
                            .run = bit * c,
                            .period = 2 * bit * c};
        *o = (struct tu_round){.to = tui_turn(r, (int64_t)bit, n),
                               .from = tui_turn(r, -(int64_t)bit, n),
                               .send = s,
                               .recv = s};
    } else {
        uint32_t j = (uint32_t)(k - 2 - log);
        tui_copy(o, r, tui_blocks(TU_WORK, c, j, 1),
                 tui_blocks(TU_OUT, c, tui_turn(r, -(int64_t)j, n), 1));
    }
}

static uint64_t sent_a2a(const struct tu_plan *p, uint32_t r)
{
    uint64_t n = 0;
    (void)r;
    for (uint32_t i = 0; i < tui_log2_up(p->ranks); i++)
        n += with_bit(p->ranks, 1u << i);
    return n * p->count;
}

static double model_a2a(const struct tu_plan *p, double bytes, double alpha, double beta,
                        double gamma)
{
    (void)gamma;
    struct tu_plan one = *p;
    one.count = 1;
    return tui_log2_up(p->ranks) * alpha +
           (double)sent_a2a(&one, 0) * bytes / p->ranks * beta;
}

const struct tu_algorithm tui_a2a_bruck = {
    "bruck",
    "logarithmic steps for small blocks",
    "Bruck et al. 1997",
    TU_ALLTOALL,
    tui_coll_no_keys,
    0,
    plan_a2a,
    round_a2a,
    sent_a2a,
    model_a2a,
};
