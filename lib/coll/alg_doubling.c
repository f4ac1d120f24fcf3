/* SPDX-License-Identifier: Apache-2.0 */
/* alg_doubling.c: partners at distances 1, 2, 4, …: recursive doubling, recursive
 * halving, Rabenseifner's all-reduce, dissemination.
 *
 * Where the number of ranks is no power of two, the first 2 (p - pof2) ranks fold in
 * pairs: the even one hands its vector to the odd one and gets the result at the end.
 * Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
 * operations in MPICH", IJHPCA 2005. */
#include "plan.h"

#define SOURCE "Thakur, Rabenseifner, Gropp 2005"

static uint32_t remainder_of(const struct tu_plan *p)
{
    return p->ranks - tui_pow2_below(p->ranks);
}

/* Number among the pof2 that work, TU_NOBODY for those that have folded. */
static uint32_t number(const struct tu_plan *p, uint32_t r)
{
    uint32_t rem = remainder_of(p);
    if (r >= 2 * rem)
        return r - rem;
    return r % 2 ? r / 2 : TU_NOBODY;
}

static uint32_t rank_of(const struct tu_plan *p, uint32_t v)
{
    uint32_t rem = remainder_of(p);
    return v < rem ? 2 * v + 1 : v + rem;
}

/* Rounds of folding (first, last) around `inner` ones; true when k is one of them and o
 * is set. */
static bool fold(const struct tu_plan *p, uint32_t r, uint64_t k, struct tu_round *o)
{
    uint32_t rem = remainder_of(p);
    if (!rem || (k && k + 1 < p->rounds))
        return false;
    tui_idle(o);
    if (r >= 2 * rem)
        return true;
    struct tu_span in = tui_span(TU_IN, 0, p->count), out = tui_span(TU_OUT, 0, p->count);
    if ((r % 2 == 0) == (k == 0)) {
        o->to = r % 2 ? r - 1 : r + 1;
        o->send = k ? out : in;
    } else {
        o->from = r % 2 ? r - 1 : r + 1;
        o->recv = out;
        o->own = in;
        o->add = o->left = k == 0;
    }
    return true;
}

/* Recursive doubling all-reduce
 * ---------------------------------------------------------- */

static int plan_doubling(struct tu_plan *p, const struct tu_spec *spec,
                         struct tu_err *err)
{
    (void)spec;
    (void)err;
    uint32_t rem = remainder_of(p);
    p->rounds = p->ranks == 1 ? 1 : tui_log2_up(tui_pow2_below(p->ranks)) + (rem ? 2 : 0);
    return 0;
}

static void round_doubling(const struct tu_plan *p, uint32_t r, uint64_t k,
                           struct tu_round *o)
{
    struct tu_span in = tui_span(TU_IN, 0, p->count), out = tui_span(TU_OUT, 0, p->count);
    uint32_t rem = remainder_of(p), v = number(p, r);
    if (p->ranks == 1) {
        tui_copy(o, r, in, out);
        return;
    }
    if (fold(p, r, k, o))
        return;
    tui_idle(o);
    if (v == TU_NOBODY)
        return;
    uint64_t i = k - (rem ? 1 : 0);
    struct tu_span mine = i || v < rem ? out : in;
    uint32_t peer = rank_of(p, v ^ 1u << i);
    *o = (struct tu_round){.to = peer,
                           .from = peer,
                           .send = mine,
                           .recv = out,
                           .own = mine,
                           .add = true,
                           .left = peer < r};
}

static uint64_t sent_doubling(const struct tu_plan *p, uint32_t r)
{
    uint32_t rem = remainder_of(p), steps = tui_log2_up(tui_pow2_below(p->ranks));
    if (r >= 2 * rem)
        return p->count * steps;
    return r % 2 ? p->count * (steps + 1) : p->count;
}

static double model_doubling(const struct tu_plan *p, double bytes, double alpha,
                             double beta, double gamma)
{
    double steps = (double)p->rounds;
    bool folds =
        remainder_of(p) != 0; /* the last round brings a result: nothing is added */
    return p->ranks == 1
               ? 0
               : steps * (alpha + bytes * beta) + (steps - folds) * bytes * gamma;
}

const struct tu_algorithm tui_ar_doubling = {
    "doubling",       "recursive doubling: whole vectors, fewest steps",
    SOURCE,           TU_ALLREDUCE,
    tui_coll_no_keys, 0,
    plan_doubling,    round_doubling,
    sent_doubling,    model_doubling,
};

/* Rabenseifner: halve and add, then double
 * --------------------------------------------------- */

static int plan_rab(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    uint32_t rem = remainder_of(p);
    p->rounds =
        p->ranks == 1 ? 1 : 2 * tui_log2_up(tui_pow2_below(p->ranks)) + (rem ? 2 : 0);
    return 0;
}

/* The window of blocks that v holds after `steps` halvings, as elements. */
static struct tu_span window(const struct tu_plan *p, enum tu_space space, uint32_t v,
                             uint32_t steps)
{
    uint32_t pof2 = tui_pow2_below(p->ranks), first = 0;
    for (uint32_t j = 0; j < steps; j++)
        first += (v >> j & 1) * (pof2 >> (j + 1));
    uint64_t at = tui_block_at(p->count, pof2, first);
    return tui_span(space, at,
                    tui_block_at(p->count, pof2, first + (pof2 >> steps)) - at);
}

static void round_rab(const struct tu_plan *p, uint32_t r, uint64_t k, struct tu_round *o)
{
    uint32_t rem = remainder_of(p), v = number(p, r),
             log = tui_log2_up(tui_pow2_below(p->ranks));
    if (p->ranks == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
        return;
    }
    if (fold(p, r, k, o))
        return;
    tui_idle(o);
    if (v == TU_NOBODY)
        return;
    uint32_t i = (uint32_t)k - (rem ? 1 : 0);
    if (i < log) {
        uint32_t peer = v ^ 1u << i;
        enum tu_space mine = i || v < rem ? TU_OUT : TU_IN;
        o->to = o->from = rank_of(p, peer);
        o->send = window(p, mine, peer, i + 1);
        o->recv = window(p, TU_OUT, v, i + 1);
        o->own = window(p, mine, v, i + 1);
        o->add = true;
        o->left = peer < v;
    } else {
        uint32_t j = 2 * log - 1 - i, peer = v ^ 1u << j;
        o->to = o->from = rank_of(p, peer);
        o->send = window(p, TU_OUT, v, j + 1);
        o->recv = window(p, TU_OUT, peer, j + 1);
    }
}

static uint64_t sent_rab(const struct tu_plan *p, uint32_t r)
{
    uint32_t rem = remainder_of(p), v = number(p, r),
             log = tui_log2_up(tui_pow2_below(p->ranks));
    if (v == TU_NOBODY)
        return p->count;
    /* What it does not keep, then what the others lack: the complements of nested
     * windows. */
    uint64_t n = p->count - window(p, TU_OUT, v, log).n;
    for (uint32_t j = 0; j < log; j++)
        n += window(p, TU_OUT, v, j + 1).n;
    return n + (v < rem ? p->count : 0);
}

static double model_rab(const struct tu_plan *p, double bytes, double alpha, double beta,
                        double gamma)
{
    double n = tui_pow2_below(p->ranks);
    double t =
        2 * tui_log2_up((uint32_t)n) * alpha + (n - 1) / n * bytes * (2 * beta + gamma);
    return remainder_of(p) ? t + 2 * alpha + bytes * (2 * beta + gamma) : t;
}

const struct tu_algorithm tui_ar_rabenseifner = {
    "rabenseifner",   "recursive halving, then doubling: few steps and least bytes",
    SOURCE,           TU_ALLREDUCE,
    tui_coll_no_keys, 0,
    plan_rab,         round_rab,
    sent_rab,         model_rab,
};

/* Recursive halving reduce-scatter and doubling all-gather, powers of two
 * ------------------- */

static int only_powers(const struct tu_plan *p, struct tu_err *err)
{
    if (remainder_of(p))
        return tu_fail(err, TU_EUSAGE, "%u ranks are no power of two",
                       (unsigned)p->ranks);
    return 0;
}

static int plan_halving(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    p->rounds = p->ranks == 1 ? 1 : tui_log2_up(p->ranks);
    p->work = p->count * p->ranks;
    return only_powers(p, err);
}

static void round_halving(const struct tu_plan *p, uint32_t r, uint64_t k,
                          struct tu_round *o)
{
    uint64_t c = p->count;
    if (p->ranks == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, c), tui_span(TU_OUT, 0, c));
        return;
    }
    uint32_t half = p->ranks >> (k + 1), peer = r ^ half;
    uint32_t mine = r & ~(half - 1), theirs = peer & ~(half - 1);
    enum tu_space held = k ? TU_WORK : TU_IN;
    *o = (struct tu_round){.to = peer, .from = peer, .add = true, .left = peer < r};
    o->send = tui_blocks(held, c, theirs, half);
    o->own = tui_blocks(held, c, mine, half);
    o->recv = half == 1 ? tui_span(TU_OUT, 0, c) : tui_blocks(TU_WORK, c, mine, half);
}

static uint64_t sent_others(const struct tu_plan *p, uint32_t r)
{
    (void)r;
    return p->count * (p->ranks - 1);
}

static double model_powers(const struct tu_plan *p, double bytes, double alpha,
                           double beta, double gamma)
{
    double n = p->ranks;
    bool adds = tu_collective_rows[p->alg->coll].reduces;
    return tui_log2_up(p->ranks) * alpha +
           (n - 1) / n * bytes * (beta + (adds ? gamma : 0));
}

const struct tu_algorithm tui_rs_halving = {
    "halving",        "recursive halving, powers of two only",
    SOURCE,           TU_REDUCE_SCATTER,
    tui_coll_no_keys, 0,
    plan_halving,     round_halving,
    sent_others,      model_powers,
};

static int plan_gather(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    p->rounds = 1 + tui_log2_up(p->ranks);
    return only_powers(p, err);
}

static void round_gather(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint64_t c = p->count;
    if (!k) {
        tui_copy(o, r, tui_span(TU_IN, 0, c), tui_blocks(TU_OUT, c, r, 1));
        return;
    }
    uint32_t have = 1u << (k - 1), peer = r ^ have;
    *o = (struct tu_round){.to = peer, .from = peer};
    o->send = tui_blocks(TU_OUT, c, r & ~(have - 1), have);
    o->recv = tui_blocks(TU_OUT, c, peer & ~(have - 1), have);
}

const struct tu_algorithm tui_ag_doubling = {
    "doubling",       "recursive doubling, powers of two only",
    SOURCE,           TU_ALLGATHER,
    tui_coll_no_keys, 0,
    plan_gather,      round_gather,
    sent_others,      model_powers,
};

/* Barrier: in round k everyone tells r + 2^k
 * -------------------------------------------------- */

static int plan_barrier(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = tui_log2_up(p->ranks);
    p->work = 2;
    return 0;
}

static void round_barrier(const struct tu_plan *p, uint32_t r, uint64_t k,
                          struct tu_round *o)
{
    int64_t d = (int64_t)1 << k;
    *o = (struct tu_round){.to = tui_turn(r, d, p->ranks),
                           .from = tui_turn(r, -d, p->ranks),
                           .send = tui_span(TU_WORK, 0, 1),
                           .recv = tui_span(TU_WORK, 1, 1)};
}

static uint64_t sent_barrier(const struct tu_plan *p, uint32_t r)
{
    (void)r;
    return tui_log2_up(p->ranks);
}

static double model_barrier(const struct tu_plan *p, double bytes, double alpha,
                            double beta, double gamma)
{
    (void)bytes;
    (void)beta;
    (void)gamma;
    return tui_log2_up(p->ranks) * alpha;
}

const struct tu_algorithm tui_dissemination = {
    "dissemination",
    "in round k everyone tells the rank 2^k further",
    "Hensgen, Finkel, Manber 1988",
    TU_BARRIER,
    tui_coll_no_keys,
    0,
    plan_barrier,
    round_barrier,
    sent_barrier,
    model_barrier,
};
