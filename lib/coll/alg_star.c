/* SPDX-License-Identifier: Apache-2.0 */
/* alg_star.c: everyone with the root directly: two hops, the root's link carries all.
 *
 * Wins where a message's latency is all that counts. Source: Z. Li et al., "TPI-LLM:
 * Serving 70B-scale LLMs efficiently on low-resource mobile devices", 2024 (star
 * all-reduce). */
#include "plan.h"

#define SOURCE "TPI-LLM, arXiv 2410.00531"

/* In round i of 1 … p-1 the root deals with v = i. */
static void inward(const struct tu_plan *p, uint32_t r, uint32_t i, struct tu_round *o)
{
    uint32_t v = tui_virtual(p, r);
    tui_idle(o);
    if (v == i)
        o->to = p->root;
    else if (v == 0)
        o->from = tui_real(p, i);
}

static void outward(const struct tu_plan *p, uint32_t r, uint32_t i, struct tu_round *o)
{
    uint32_t v = tui_virtual(p, r);
    tui_idle(o);
    if (v == i)
        o->from = p->root;
    else if (v == 0)
        o->to = tui_real(p, i);
}

/* Add the vectors in the order of the ranks behind the root. */
static void add_round(const struct tu_plan *p, uint32_t r, uint32_t i, struct tu_round *o)
{
    inward(p, r, i, o);
    o->send = tui_span(TU_IN, 0, p->count);
    o->recv = tui_span(TU_OUT, 0, p->count);
    o->own = tui_span(i > 1 ? TU_OUT : TU_IN, 0, p->count);
    o->add = o->from != TU_NOBODY;
}

static int plan_allreduce(struct tu_plan *p, const struct tu_spec *spec,
                          struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->root = 0;
    p->rounds = p->ranks == 1 ? 1 : 2 * ((uint64_t)p->ranks - 1);
    return 0;
}

static void round_allreduce(const struct tu_plan *p, uint32_t r, uint64_t k,
                            struct tu_round *o)
{
    if (p->ranks == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
    } else if (k < p->ranks - 1) {
        add_round(p, r, (uint32_t)k + 1, o);
    } else {
        outward(p, r, (uint32_t)(k - (p->ranks - 1)) + 1, o);
        o->send = o->recv = tui_span(TU_OUT, 0, p->count);
    }
}

static uint64_t sent_allreduce(const struct tu_plan *p, uint32_t r)
{
    return p->count * (r ? 1 : p->ranks - 1);
}

static double model_allreduce(const struct tu_plan *p, double bytes, double alpha,
                              double beta, double gamma)
{
    double n = p->ranks;
    return n == 1 ? 0 : 2 * alpha + 2 * (n - 1) * bytes * beta + (n - 1) * bytes * gamma;
}

const struct tu_algorithm tui_ar_star = {
    "star", "all to rank 0 and back", SOURCE,          TU_ALLREDUCE,   tui_coll_no_keys,
    0,      plan_allreduce,           round_allreduce, sent_allreduce, model_allreduce,
};

static int plan_one_way(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    (void)err;
    p->rounds = p->ranks; /* round 0: the root's own part */
    if (p->alg->coll == TU_REDUCE && p->ranks > 1)
        p->rounds--;
    return 0;
}

static void round_reduce(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    if (p->ranks == 1)
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
    else
        add_round(p, r, (uint32_t)k + 1, o);
}

static uint64_t sent_inward(const struct tu_plan *p, uint32_t r)
{
    return r == p->root ? 0 : p->count;
}

static uint64_t sent_outward(const struct tu_plan *p, uint32_t r)
{
    return r == p->root ? p->count * (p->ranks - 1) : 0;
}

/* S is the root's whole: p blocks for gather and scatter. */
static double model_one_way(const struct tu_plan *p, double bytes, double alpha,
                            double beta, double gamma)
{
    double n = p->ranks;
    bool blocks = p->alg->coll == TU_GATHER || p->alg->coll == TU_SCATTER;
    double each = blocks ? bytes / n : bytes;
    bool adds = tu_collective_rows[p->alg->coll].reduces;
    return n == 1 ? 0 : alpha + (n - 1) * each * (beta + (adds ? gamma : 0));
}

const struct tu_algorithm tui_red_star = {
    "star", "all to the root", SOURCE,       TU_REDUCE,   tui_coll_no_keys,
    0,      plan_one_way,      round_reduce, sent_inward, model_one_way,
};

static void round_broadcast(const struct tu_plan *p, uint32_t r, uint64_t k,
                            struct tu_round *o)
{
    struct tu_span in = tui_span(TU_IN, 0, p->count), out = tui_span(TU_OUT, 0, p->count);
    outward(p, r, (uint32_t)k, o);
    if (k == 0 && r == p->root)
        tui_copy(o, r, in, out);
    else if (k == 0)
        tui_idle(o);
    else
        o->send = o->recv = out;
}

const struct tu_algorithm tui_bc_star = {
    "star", "the root to all", SOURCE,          TU_BROADCAST, tui_coll_no_keys,
    0,      plan_one_way,      round_broadcast, sent_outward, model_one_way,
};

static void round_gather(const struct tu_plan *p, uint32_t r, uint64_t k,
                         struct tu_round *o)
{
    struct tu_span in = tui_span(TU_IN, 0, p->count);
    uint32_t other = tui_real(p, (uint32_t)k);
    inward(p, r, (uint32_t)k, o);
    if (k == 0 && r == p->root)
        tui_copy(o, r, in, tui_blocks(TU_OUT, p->count, r, 1));
    else if (k == 0)
        tui_idle(o);
    else {
        o->send = in;
        o->recv = tui_blocks(TU_OUT, p->count, other, 1);
    }
}

const struct tu_algorithm tui_gather_star = {
    "star", "all to the root", SOURCE,       TU_GATHER,   tui_coll_no_keys,
    0,      plan_one_way,      round_gather, sent_inward, model_one_way,
};

static void round_scatter(const struct tu_plan *p, uint32_t r, uint64_t k,
                          struct tu_round *o)
{
    struct tu_span out = tui_span(TU_OUT, 0, p->count);
    uint32_t other = tui_real(p, (uint32_t)k);
    outward(p, r, (uint32_t)k, o);
    if (k == 0 && r == p->root)
        tui_copy(o, r, tui_blocks(TU_IN, p->count, r, 1), out);
    else if (k == 0)
        tui_idle(o);
    else {
        o->send = tui_blocks(TU_IN, p->count, other, 1);
        o->recv = out;
    }
}

const struct tu_algorithm tui_scatter_star = {
    "star", "the root to all", SOURCE,        TU_SCATTER,   tui_coll_no_keys,
    0,      plan_one_way,      round_scatter, sent_outward, model_one_way,
};
