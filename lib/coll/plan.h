/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: what the algorithms share: blocks, spans, roots, the rows of each file. */
#ifndef TENSORUTILS_COLL_PLAN_H
#define TENSORUTILS_COLL_PLAN_H

#include <tensorutils/coll.h>

/* Block i of n elements cut in `parts`: the first n % parts are one longer. */
static inline uint64_t tui_block_at(uint64_t n, uint64_t parts, uint64_t i)
{
    return n / parts * i + tu_min(i, n % parts);
}

static inline uint64_t tui_block_len(uint64_t n, uint64_t parts, uint64_t i)
{
    return n / parts + (i < n % parts);
}

static inline struct tu_span tui_span(enum tu_space space, uint64_t at, uint64_t n)
{
    return (struct tu_span){.space = space, .at = at, .n = n};
}

/* Blocks first … first+blocks-1 of `count` elements each. */
static inline struct tu_span tui_blocks(enum tu_space space, uint64_t count,
                                        uint64_t first, uint64_t blocks)
{
    return tui_span(space, first * count, blocks * count);
}

static inline void tui_idle(struct tu_round *o)
{
    *o = (struct tu_round){.to = TU_NOBODY, .from = TU_NOBODY};
}

static inline void tui_copy(struct tu_round *o, uint32_t rank, struct tu_span from,
                            struct tu_span to)
{
    *o = (struct tu_round){.to = rank, .from = rank, .send = from, .recv = to};
}

/* (a + d) mod p for d of either sign, |d| ≤ p. */
static inline uint32_t tui_turn(uint32_t a, int64_t d, uint32_t p)
{
    return (uint32_t)(((int64_t)a + d + p) % p);
}

/* A rank as its distance from the root, and back. */
static inline uint32_t tui_virtual(const struct tu_plan *p, uint32_t rank)
{
    return tui_turn(rank, -(int64_t)p->root, p->ranks);
}

static inline uint32_t tui_real(const struct tu_plan *p, uint32_t v)
{
    return tui_turn(v, p->root, p->ranks);
}

/* Smallest k with 2^k ≥ p. */
static inline uint32_t tui_log2_up(uint32_t p)
{
    uint32_t k = 0;
    while ((UINT64_C(1) << k) < p)
        k++;
    return k;
}

static inline uint32_t tui_pow2_below(uint32_t p)
{
    uint32_t v = 1;
    while (v <= p / 2)
        v *= 2;
    return v;
}

/* The level at which two ranks meet. */
uint32_t tui_topo_level(const struct tu_topo *t, uint32_t a, uint32_t b);
int tui_plan_segments(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err);
extern const char *const tui_coll_no_keys[], *const tui_coll_seg_keys[];

/* One element type for the model: bytes of the whole, ranks as doubles. */
extern const struct tu_algorithm tui_ar_ring, tui_ar_doubling, tui_ar_rabenseifner,
    tui_ar_tree, tui_ar_double_tree, tui_ar_star, tui_ar_hier, tui_ar_hfreduce,
    tui_ar_direct, tui_ar_fused;
extern const struct tu_algorithm tui_rs_ring, tui_rs_halving, tui_rs_direct, tui_rs_pat;
extern const struct tu_algorithm tui_ag_ring, tui_ag_doubling, tui_ag_bruck, tui_ag_pat,
    tui_ag_pairwise;
extern const struct tu_algorithm tui_a2a_pairwise, tui_a2a_bruck;
extern const struct tu_algorithm tui_bc_tree, tui_bc_star, tui_bc_chain, tui_bc_scatter;
extern const struct tu_algorithm tui_red_tree, tui_red_star;
extern const struct tu_algorithm tui_gather_star, tui_gather_tree, tui_scatter_star,
    tui_scatter_tree;
extern const struct tu_algorithm tui_shift, tui_dissemination;

#endif
