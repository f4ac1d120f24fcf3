/* SPDX-License-Identifier: Apache-2.0 */
/* alg_double_tree.c: two binary trees, each with half of the data, nobody inner in both.
 *
 * Source: P. Sanders, J. Speck, J. Träff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009; the trees are those of NVIDIA/nccl,
 * src/graph/trees.cc. */
#include "plan.h"

/* Tree over ranks 0 … p-1 by bits: parent and children of v. */
static void bit_tree(uint32_t p, uint32_t v, int32_t out[3])
{
    out[0] = out[1] = out[2] = -1;
    if (v == 0) {
        if (p > 1) {
            uint32_t top = tui_pow2_below(p);
            out[2] = (int32_t)(top == p ? top / 2 : top);
        }
        return;
    }
    uint32_t bit = v & -v, up = (v ^ bit) | bit << 1;
    out[0] = (int32_t)(up < p ? up : v ^ bit);
    uint32_t low = bit / 2;
    if (!low)
        return;
    out[1] = (int32_t)(v - low);
    while (low && v + low >= p)
        low /= 2;
    out[2] = low ? (int32_t)(v + low) : -1;
}

/* A rank's number in tree t, and back. */
static uint32_t to_tree(uint32_t p, uint32_t r, unsigned t)
{
    return !t ? r : p % 2 ? tui_turn(r, -1, p) : p - 1 - r;
}

static uint32_t from_tree(uint32_t p, uint32_t v, unsigned t)
{
    return !t ? v : p % 2 ? tui_turn(v, 1, p) : p - 1 - v;
}

void tu_double_tree(uint32_t ranks, uint32_t rank, unsigned tree, int32_t out[3])
{
    bit_tree(ranks, to_tree(ranks, rank, tree), out);
    for (int i = 0; i < 3; i++)
        if (out[i] >= 0)
            out[i] = (int32_t)from_tree(ranks, (uint32_t)out[i], tree);
}

/* A node sends up in slot 2 × (its lowest bit) + (it is the second child): after its
 * children, and no two children of one node at once. */
static uint32_t slot(uint32_t p, uint32_t child)
{
    int32_t node[3];
    bit_tree(p, child, node);
    return 2 * (uint32_t)__builtin_ctz(child) + ((int32_t)child > node[0]);
}

static uint32_t slots(uint32_t p)
{
    return 2 * tui_log2_up(p);
}

/* Rounds: for each segment and slot, tree 0 and tree 1; up, then down backwards. */
static int plan(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    int code = tui_plan_segments(p, spec, err);
    p->root = 0;
    p->rounds = p->ranks == 1 ? 1 : 4 * (uint64_t)slots(p->ranks) * p->segments;
    return code;
}

static struct tu_span share(const struct tu_plan *p, enum tu_space space, unsigned tree,
                            uint32_t s)
{
    uint64_t at = tui_block_at(p->count, 2, tree), n = tui_block_len(p->count, 2, tree);
    return tui_span(space, at + tui_block_at(n, p->segments, s),
                    tui_block_len(n, p->segments, s));
}

static void round_of(const struct tu_plan *p, uint32_t r, uint64_t k, struct tu_round *o)
{
    uint32_t n = p->ranks, per = slots(n);
    if (n == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
        return;
    }
    bool down = k >= p->rounds / 2;
    unsigned tree = (unsigned)(k % 2);
    uint64_t i = (down ? k - p->rounds / 2 : k) / 2;
    uint32_t s = (uint32_t)(i / per), at = (uint32_t)(i % per);
    uint32_t v = to_tree(n, r, tree), peer = TU_NOBODY;
    int32_t node[3];
    if (down)
        at = per - 1 - at;
    bit_tree(n, v, node);
    bool child = v && slot(n, v) == at, parent = false, first = true;
    uint32_t other = UINT32_MAX; /* slot of the other child */
    for (int c = 1; c <= 2; c++) {
        if (node[c] >= 0 && slot(n, (uint32_t)node[c]) == at) {
            parent = true;
            peer = (uint32_t)node[c];
            other = node[3 - c] >= 0 ? slot(n, (uint32_t)node[3 - c]) : UINT32_MAX;
        }
    }
    tui_idle(o);
    if (child) {
        peer = (uint32_t)node[0];
        first = node[1] < 0 && node[2] < 0; /* a leaf sends its input */
    } else if (parent) {
        first = other == UINT32_MAX || at < other;
    } else {
        return;
    }
    peer = from_tree(n, peer, tree);
    struct tu_span result = share(p, TU_OUT, tree, s);
    struct tu_span mine = share(p, first ? TU_IN : TU_OUT, tree, s);
    if (child != down)
        o->to = peer;
    else
        o->from = peer;
    o->send = down ? result : mine;
    o->recv = result;
    o->own = mine;
    o->add = !down && !child;
}

static uint64_t sent(const struct tu_plan *p, uint32_t r)
{
    uint64_t n = 0;
    for (unsigned t = 0; t < 2; t++) {
        int32_t node[3];
        tu_double_tree(p->ranks, r, t, node);
        n += tui_block_len(p->count, 2, t) *
             (uint64_t)((node[0] >= 0) + (node[1] >= 0) + (node[2] >= 0));
    }
    return n;
}

const struct tu_algorithm tui_ar_double_tree = {
    "dbtree",
    "double binary tree, half of the data on each (seg=N: in N parts)",
    "Sanders, Speck, Träff 2009; NCCL",
    TU_ALLREDUCE,
    tui_coll_seg_keys,
    0,
    plan,
    round_of,
    sent,
    NULL,
};
