/* SPDX-License-Identifier: Apache-2.0 */
/* alg_hfreduce.c: one leader for each node adds what its devices hand it; a double binary
 * tree between the leaders; the leaders hand the result back.
 *
 * A device sends and receives its vector once, whatever their number: the leader is the
 * memory of the host. node=L ranks are a node; the last one may be smaller. Source:
 * Fire-Flyer AI-HPC, arXiv 2408.14158, HFReduce. */
#include "plan.h"

static const char *const keys[] = {"node", NULL};

static uint32_t node_size(const struct tu_plan *p)
{
    return p->level[0];
}

/* The leaders' own all-reduce, as if there were no one else. */
static struct tu_plan between(const struct tu_plan *p)
{
    struct tu_plan q = {.alg = &tui_ar_double_tree,
                        .ranks = p->level[1],
                        .count = p->count,
                        .segments = 1};
    int code = q.alg->plan(&q, NULL, NULL);
    (void)code; /* without keys a tree has nothing to refuse */
    return q;
}

static int plan(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t node = tu_min(8, p->ranks);
    int code = spec ? tu_spec_u64(spec, "node", node, &node, err) : 0;
    if (!code && (!node || node > p->ranks))
        code = tu_fail(err, TU_EUSAGE, "node=%llu: 1 to %u ranks",
                       (unsigned long long)node, (unsigned)p->ranks);
    if (code)
        return code;
    p->levels = 2;
    p->level[0] = (uint32_t)node;
    p->level[1] = (uint32_t)tu_ceil_div(p->ranks, node);
    p->rounds = 1 + 2 * (node - 1) + between(p).rounds;
    return 0;
}

/* Device i of a node and its leader: the vector up, added, or the result down. */
static void handed(const struct tu_plan *p, uint32_t r, uint32_t i, bool down,
                   struct tu_round *o)
{
    uint32_t mine = r % node_size(p), leader = r - mine;
    struct tu_span result = tui_span(TU_OUT, 0, p->count);
    tui_idle(o);
    if ((mine && mine != i) || leader + i >= p->ranks)
        return;
    bool sends = (mine == i) != down;
    uint32_t peer = mine ? leader : leader + i;
    *(sends ? &o->to : &o->from) = peer;
    o->send = down ? result : tui_span(TU_IN, 0, p->count);
    o->recv = o->own = result;
    o->add = !down && !sends;
}

static void round_of(const struct tu_plan *p, uint32_t r, uint64_t k, struct tu_round *o)
{
    uint32_t node = node_size(p), steps = node - 1;
    tui_idle(o);
    if (k == 0) {
        if (r % node == 0)
            tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
    } else if (k <= steps) {
        handed(p, r, (uint32_t)k, false, o);
    } else if (k >= p->rounds - steps) {
        handed(p, r, (uint32_t)(p->rounds - k), true, o);
    } else if (r % node == 0) {
        struct tu_plan q = between(p);
        q.alg->round(&q, r / node, k - 1 - steps, o);
        o->to = o->to == TU_NOBODY ? o->to : o->to * node;
        o->from = o->from == TU_NOBODY ? o->from : o->from * node;
        /* What a leader brings along is the sum of its node. */
        o->send.space = o->own.space = o->recv.space = TU_OUT;
    }
}

static uint64_t sent(const struct tu_plan *p, uint32_t r)
{
    uint32_t node = node_size(p);
    if (r % node)
        return p->count;
    struct tu_plan q = between(p);
    uint64_t others = tu_min(node, p->ranks - r) - 1;
    return p->count * others + (q.ranks > 1 ? q.alg->sent(&q, r / node) : 0);
}

const struct tu_algorithm tui_ar_hfreduce = {
    "hfreduce",
    "leaders add for their node, a double tree between them (node=L)",
    "arXiv 2408.14158",
    TU_ALLREDUCE,
    keys,
    0,
    plan,
    round_of,
    sent,
    NULL,
};
