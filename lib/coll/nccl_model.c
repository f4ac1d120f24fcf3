/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_model.c: latencies as NCCL's tuner computes them, and how many switches a fabric
 * takes.
 *
 * Source: NVIDIA/nccl 2.30.7, src/graph/tuning.cc; W. Wang et al., "Rail-only: a low-cost
 * high-performance network for training LLMs with trillion parameters", 2023. */
#include <math.h>
#include "plan.h"

/* us, by algorithm and protocol: base, one hop inside a node (NVLink), one between nodes.
 */
static const struct {
    double base[3], inside[3], between[3];
} rows[] = {
    [TU_NCCL_TREE] = {{6.8, 14, 8.4}, {0.6, 1.25, 4}, {5, 8.5, 14}},
    [TU_NCCL_RING] = {{6.6, 14, 8.4}, {0.6, 1.9, 3.4}, {2.7, 4, 14}},
};

double tu_nccl_latency(enum tu_nccl_algo a, enum tu_nccl_proto p, uint32_t ranks,
                       uint32_t nodes)
{
    double n = ranks, m = nodes, inside = rows[a].inside[p], between = rows[a].between[p];
    double overhead = (m > 1 ? 1 : 0) * (p == TU_NCCL_SIMPLE ? 3 : 1);
    if (a == TU_NCCL_TREE)
        return rows[a].base[p] + 2 * ((n / m - 1) * inside + floor(log2(m)) * between);
    if (ranks == nodes)
        between = rows[TU_NCCL_TREE].between[p];
    return rows[a].base[p] + (2 * (n - 1) - 2 * (m - 1)) * fmax(inside, overhead) +
           2 * (m - 1) * between;
}

/* Hosts that t tiers of radix k carry, and the switches they take. */
static uint64_t fabric(uint64_t k, uint64_t hosts, unsigned *tiers)
{
    uint64_t reach = k;
    for (*tiers = 1; *tiers <= 3; ++*tiers) {
        if (hosts <= reach)
            return tu_ceil_div((2 * (uint64_t)*tiers - 1) * hosts, k);
        reach *= k / 2;
    }
    *tiers = 0;
    return 0;
}

uint64_t tu_switches(uint32_t radix, uint64_t hosts, uint32_t hb, unsigned *tiers)
{
    uint64_t rails = hb > 1 ? hb : 1;
    *tiers = 0;
    return radix < 2 ? 0 : rails * fabric(radix, tu_ceil_div(hosts, rails), tiers);
}
