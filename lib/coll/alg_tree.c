/* SPDX-License-Identifier: Apache-2.0 */
/* alg_tree.c: binomial trees: reduce, broadcast, both as an all-reduce, gather, scatter.
 *
 * v is the distance from the root. In round i of a reduction the ranks whose lowest set
 * bit is 2^i send to v - 2^i; a broadcast is the same backwards. Source: R. Thakur, R.
 * Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 * IJHPCA 2005. */
#include "plan.h"

#define SOURCE "Thakur, Rabenseifner, Gropp 2005"

enum role { NONE, SENDS, RECEIVES };

/* What v does in level i of a reduction, and with whom. */
static enum role role_of(const struct tu_plan *p, uint32_t v, uint32_t i, uint32_t *peer)
{
    uint32_t bit = 1u << i;
    *peer = v;
    if (v % (2 * bit) == bit) {
        *peer = v - bit;
        return SENDS;
    }
    if (v % (2 * bit) == 0 && v + bit < p->ranks) {
        *peer = v + bit;
        return RECEIVES;
    }
    return NONE;
}

static struct tu_span segment(const struct tu_plan *p, enum tu_space space, uint32_t s)
{
    return tui_span(space, tui_block_at(p->count, p->segments, s),
                    tui_block_len(p->count, p->segments, s));
}

/* Level i of reducing segment s, results growing in `space`. */
static void reduce_level(const struct tu_plan *p, uint32_t r, uint32_t i, uint32_t s,
                         enum tu_space space, struct tu_round *o)
{
    uint32_t v = tui_virtual(p, r), peer;
    bool inner =
        v % 2 == 0 && v + 1 < p->ranks; /* has received something before it sends */
    enum role role = role_of(p, v, i, &peer);
    tui_idle(o);
    if (role == SENDS) {
        o->to = tui_real(p, peer);
        o->send = segment(p, inner ? space : TU_IN, s);
    } else if (role == RECEIVES) {
        o->from = tui_real(p, peer);
        o->recv = segment(p, space, s);
        o->own = segment(p, i ? space : TU_IN, s);
        o->add = true;
    }
}

static void broadcast_level(const struct tu_plan *p, uint32_t r, uint32_t i, uint32_t s,
                            struct tu_round *o)
{
    uint32_t peer;
    enum role role = role_of(p, tui_virtual(p, r), i, &peer);
    tui_idle(o);
    o->send = o->recv = segment(p, TU_OUT, s);
    if (role == SENDS)
        o->from = tui_real(p, peer);
    else if (role == RECEIVES)
        o->to = tui_real(p, peer);
}

/* Children of v: bits below its lowest set one. */
static uint64_t children(const struct tu_plan *p, uint32_t v)
{
    uint64_t n = 0;
    uint32_t peer;
    for (uint32_t i = 0; i < tui_log2_up(p->ranks); i++)
        n += role_of(p, v, i, &peer) == RECEIVES;
    return n;
}

/* All-reduce
 * --------------------------------------------------------------------------------- */

static int plan_allreduce(struct tu_plan *p, const struct tu_spec *spec,
                          struct tu_err *err)
{
    p->root = 0;
    int code = tui_plan_segments(p, spec, err);
    p->rounds = p->ranks == 1 ? 1 : 2 * (uint64_t)tui_log2_up(p->ranks) * p->segments;
    return code;
}

static void round_allreduce(const struct tu_plan *p, uint32_t r, uint64_t k,
                            struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks);
    uint64_t up = (uint64_t)log * p->segments;
    if (p->ranks == 1)
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
    else if (k < up)
        reduce_level(p, r, (uint32_t)(k % log), (uint32_t)(k / log), TU_OUT, o);
    else
        broadcast_level(p, r, log - 1 - (uint32_t)((k - up) % log),
                        (uint32_t)((k - up) / log), o);
}

static uint64_t sent_allreduce(const struct tu_plan *p, uint32_t r)
{
    return p->count * (children(p, r) + (r != 0));
}

static double model_allreduce(const struct tu_plan *p, double bytes, double alpha,
                              double beta, double gamma)
{
    double log = tui_log2_up(p->ranks), m = p->segments;
    if (m == 1)
        return 2 * log * (alpha + bytes * beta) + log * bytes * gamma;
    return (2 * log + 2 * (m - 1)) * (alpha + bytes / m * beta) +
           (log + m - 1) * bytes / m * gamma;
}

const struct tu_algorithm tui_ar_tree = {
    "tree",
    "binomial reduce, then broadcast (seg=N: in N parts)",
    SOURCE,
    TU_ALLREDUCE,
    tui_coll_seg_keys,
    0,
    plan_allreduce,
    round_allreduce,
    sent_allreduce,
    model_allreduce,
};

/* Reduce
 * -------------------------------------------------------------------------------------
 */

static int plan_reduce(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    int code = tui_plan_segments(p, spec, err);
    p->rounds = p->ranks == 1 ? 1 : (uint64_t)tui_log2_up(p->ranks) * p->segments;
    p->work = p->count;
    return code;
}

static void round_reduce(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks);
    if (p->ranks == 1)
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
    else /* other ranks' output stays untouched */
        reduce_level(p, r, (uint32_t)(k % log), (uint32_t)(k / log),
                     r == p->root ? TU_OUT : TU_WORK, o);
}

static uint64_t sent_reduce(const struct tu_plan *p, uint32_t r)
{
    return r == p->root ? 0 : p->count;
}

static double model_reduce(const struct tu_plan *p, double bytes, double alpha,
                           double beta, double gamma)
{
    double log = tui_log2_up(p->ranks), m = p->segments;
    return (log + m - 1) * (alpha + bytes / m * (beta + gamma));
}

const struct tu_algorithm tui_red_tree = {
    "tree",
    "binomial (seg=N: in N parts)",
    SOURCE,
    TU_REDUCE,
    tui_coll_seg_keys,
    0,
    plan_reduce,
    round_reduce,
    sent_reduce,
    model_reduce,
};

/* Broadcast
 * ---------------------------------------------------------------------------------- */

static int plan_broadcast(struct tu_plan *p, const struct tu_spec *spec,
                          struct tu_err *err)
{
    int code = tui_plan_segments(p, spec, err);
    p->rounds = 1 + (uint64_t)tui_log2_up(p->ranks) * p->segments;
    return code;
}

static void round_broadcast(const struct tu_plan *p, uint32_t r, uint64_t k,
                            struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks);
    if (k) {
        broadcast_level(p, r, log - 1 - (uint32_t)((k - 1) % log),
                        (uint32_t)((k - 1) / log), o);
        return;
    }
    tui_idle(o);
    if (r == p->root)
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
}

static uint64_t sent_broadcast(const struct tu_plan *p, uint32_t r)
{
    return p->count * children(p, tui_virtual(p, r));
}

static double model_broadcast(const struct tu_plan *p, double bytes, double alpha,
                              double beta, double gamma)
{
    (void)gamma;
    double log = tui_log2_up(p->ranks), m = p->segments;
    return (log + m - 1) * (alpha + bytes / m * beta);
}

const struct tu_algorithm tui_bc_tree = {
    "tree",
    "binomial (seg=N: in N parts)",
    SOURCE,
    TU_BROADCAST,
    tui_coll_seg_keys,
    0,
    plan_broadcast,
    round_broadcast,
    sent_broadcast,
    model_broadcast,
};

/* Gather and scatter: v holds the blocks of v, v+1, … in work, v's first
 * ----------------------- */

static uint32_t held(const struct tu_plan *p, uint32_t v, uint32_t i)
{
    return (uint32_t)tu_min(UINT64_C(1) << i, p->ranks - v); /* blocks below level i */
}

static int plan_blocks(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = 3 + tui_log2_up(p->ranks);
    p->work = p->count * p->ranks;
    return 0;
}

/* The root's blocks from the root's number on, and the ones before it: two copies. */
static void turn_blocks(const struct tu_plan *p, bool second, struct tu_span *by_distance,
                        struct tu_span *by_rank, enum tu_space user)
{
    uint64_t c = p->count, head = p->ranks - p->root;
    *by_distance =
        second ? tui_blocks(TU_WORK, c, head, p->root) : tui_blocks(TU_WORK, c, 0, head);
    *by_rank =
        second ? tui_blocks(user, c, 0, p->root) : tui_blocks(user, c, p->root, head);
}

static void round_gather(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks), v = tui_virtual(p, r), peer;
    struct tu_span from, to;
    tui_idle(o);
    if (k == 0) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_WORK, 0, p->count));
    } else if (k > log) {
        turn_blocks(p, k == log + 2, &from, &to, TU_OUT);
        if (v == 0)
            tui_copy(o, r, from, to);
    } else {
        uint32_t i = (uint32_t)k - 1;
        enum role role = role_of(p, v, i, &peer);
        if (role == SENDS) {
            o->to = tui_real(p, peer);
            o->send = tui_blocks(TU_WORK, p->count, 0, held(p, v, i));
        } else if (role == RECEIVES) {
            o->from = tui_real(p, peer);
            o->recv = tui_blocks(TU_WORK, p->count, 1u << i, held(p, peer, i));
        }
    }
}

static void round_scatter(const struct tu_plan *p, uint32_t r, uint64_t k,
                          struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks), v = tui_virtual(p, r), peer;
    struct tu_span from, to;
    tui_idle(o);
    if (k < 2) {
        turn_blocks(p, k == 1, &to, &from, TU_IN);
        if (v == 0)
            tui_copy(o, r, from, to);
    } else if (k == log + 2) {
        tui_copy(o, r, tui_span(TU_WORK, 0, p->count), tui_span(TU_OUT, 0, p->count));
    } else {
        uint32_t i = log + 1 - (uint32_t)k;
        enum role role = role_of(p, v, i, &peer);
        if (role == SENDS) {
            o->from = tui_real(p, peer);
            o->recv = tui_blocks(TU_WORK, p->count, 0, held(p, v, i));
        } else if (role == RECEIVES) {
            o->to = tui_real(p, peer);
            o->send = tui_blocks(TU_WORK, p->count, 1u << i, held(p, peer, i));
        }
    }
}

static uint64_t sent_gather(const struct tu_plan *p, uint32_t r)
{
    uint32_t v = tui_virtual(p, r);
    return v ? p->count * tu_min(v & -v, p->ranks - v) : 0;
}

static uint64_t sent_scatter(const struct tu_plan *p, uint32_t r)
{
    uint32_t v = tui_virtual(p, r);
    uint64_t below = v ? tu_min(v & -v, p->ranks - v) : p->ranks;
    return p->count * (below - 1);
}

static double model_blocks(const struct tu_plan *p, double bytes, double alpha,
                           double beta, double gamma)
{
    (void)gamma;
    double n = p->ranks;
    return tui_log2_up(p->ranks) * alpha + (n - 1) / n * bytes * beta;
}

const struct tu_algorithm tui_gather_tree = {
    "tree", "binomial",  SOURCE,       TU_GATHER,   tui_coll_no_keys,
    0,      plan_blocks, round_gather, sent_gather, model_blocks,
};
const struct tu_algorithm tui_scatter_tree = {
    "tree", "binomial",  SOURCE,        TU_SCATTER,   tui_coll_no_keys,
    0,      plan_blocks, round_scatter, sent_scatter, model_blocks,
};

/* Broadcast as scatter and all-gather, for long messages
 * ------------------------------------- */

static int plan_spread(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = p->ranks == 1 ? 1 : 1 + tui_log2_up(p->ranks) + (p->ranks - 1);
    return 0;
}

/* Blocks v … v+n-1 of the vector cut in p. */
static struct tu_span pieces(const struct tu_plan *p, uint32_t v, uint32_t n)
{
    uint64_t at = tui_block_at(p->count, p->ranks, v);
    return tui_span(TU_OUT, at, tui_block_at(p->count, p->ranks, v + n) - at);
}

static void round_spread(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    uint32_t log = tui_log2_up(p->ranks), v = tui_virtual(p, r), peer;
    tui_idle(o);
    if (k == 0) {
        if (v == 0)
            tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
    } else if (k <= log) {
        uint32_t i = log - (uint32_t)k;
        enum role role = role_of(p, v, i, &peer);
        if (role == SENDS) {
            o->from = tui_real(p, peer);
            o->recv = pieces(p, v, held(p, v, i));
        } else if (role == RECEIVES) {
            o->to = tui_real(p, peer);
            o->send = pieces(p, peer, held(p, peer, i));
        }
    } else {
        int64_t i = (int64_t)(k - log);
        *o = (struct tu_round){.to = tui_turn(r, 1, p->ranks),
                               .from = tui_turn(r, -1, p->ranks),
                               .send = pieces(p, tui_turn(v, 1 - i, p->ranks), 1),
                               .recv = pieces(p, tui_turn(v, -i, p->ranks), 1)};
    }
}

static uint64_t sent_spread(const struct tu_plan *p, uint32_t r)
{
    uint32_t v = tui_virtual(p, r);
    uint32_t below = v ? (uint32_t)tu_min(v & -v, p->ranks - v) : p->ranks;
    if (p->ranks == 1)
        return 0;
    return pieces(p, v, below).n - pieces(p, v, 1).n + p->count -
           pieces(p, tui_turn(v, 1, p->ranks), 1).n;
}

static double model_spread(const struct tu_plan *p, double bytes, double alpha,
                           double beta, double gamma)
{
    (void)gamma;
    double n = p->ranks;
    return (tui_log2_up(p->ranks) + n - 1) * alpha + 2 * (n - 1) / n * bytes * beta;
}

const struct tu_algorithm tui_bc_scatter = {
    "scatter",
    "binomial scatter, then a ring: least bytes",
    "van de Geijn; Thakur, Rabenseifner, Gropp 2005",
    TU_BROADCAST,
    tui_coll_no_keys,
    0,
    plan_spread,
    round_spread,
    sent_spread,
    model_spread,
};
