/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: the collectives, the table of algorithms, and plans made from it. */
#include "plan.h"

const struct tu_collective_row tu_collective_rows[TU_COLLECTIVES] = {
    [TU_ALLREDUCE] = {"allreduce", "every rank gets the reduction", "AllReduce", true,
                      false, 1, 1},
    [TU_REDUCE_SCATTER] = {"reduce_scatter", "rank r gets block r of the reduction",
                           "ReduceScatter", true, false, 2, 1},
    [TU_ALLGATHER] = {"allgather", "every rank gets all blocks", "AllGather", false,
                      false, 1, 2},
    [TU_ALLTOALL] = {"alltoall", "rank r gets block r of every rank", "AlltoAll", false,
                     false, 2, 2},
    [TU_BROADCAST] = {"broadcast", "every rank gets the root's buffer", "Broadcast",
                      false, true, 1, 1},
    [TU_REDUCE] = {"reduce", "the root gets the reduction", "Reduce", true, true, 1, 1},
    [TU_GATHER] = {"gather", "the root gets all blocks", "Gather", false, true, 1, 2},
    [TU_SCATTER] = {"scatter", "rank r gets block r of the root", "Scatter", false, true,
                    2, 1},
    [TU_SENDRECV] = {"sendrecv", "rank r gets the buffer of rank r-1", "SendRecv", false,
                     false, 1, 1},
    [TU_BARRIER] = {"barrier", "nobody goes on before all have come", "Barrier", false,
                    false, 1, 1},
};

const struct tu_algorithm *const tu_algorithms[] = {
    &tui_ar_ring,      &tui_ar_doubling,    &tui_ar_rabenseifner,
    &tui_ar_tree,      &tui_ar_double_tree, &tui_ar_star,
    &tui_ar_hier,      &tui_ar_hfreduce,   &tui_ar_direct,
    &tui_ar_fused,
    &tui_rs_ring,      &tui_rs_halving,     &tui_rs_direct,
    &tui_rs_pat,       &tui_ag_ring,        &tui_ag_doubling,
    &tui_ag_bruck,     &tui_ag_pat,         &tui_ag_pairwise,
    &tui_a2a_pairwise, &tui_a2a_bruck,      &tui_bc_tree,
    &tui_bc_star,      &tui_bc_chain,       &tui_bc_scatter,
    &tui_red_tree,     &tui_red_star,       &tui_gather_star,
    &tui_gather_tree,  &tui_scatter_star,   &tui_scatter_tree,
    &tui_shift,        &tui_dissemination,  NULL,
};

const char *const tui_coll_no_keys[] = {NULL};
const char *const tui_coll_seg_keys[] = {"seg", NULL};

double tu_bus_factor(enum tu_collective c, uint32_t ranks)
{
    double n = ranks;
    switch (c) {
    case TU_ALLREDUCE: return 2 * (n - 1) / n;
    case TU_REDUCE_SCATTER:
    case TU_ALLGATHER:
    case TU_ALLTOALL:
    case TU_GATHER:
    case TU_SCATTER: return (n - 1) / n;
    default: return 1;
    }
}

const struct tu_algorithm *tu_algorithm_find(enum tu_collective c, const char *name)
{
    for (size_t i = 0; tu_algorithms[i]; i++)
        if (tu_algorithms[i]->coll == c && strcmp(tu_algorithms[i]->name, name) == 0)
            return tu_algorithms[i];
    return NULL;
}

int tui_plan_segments(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t n = 1;
    int code = spec ? tu_spec_u64(spec, "seg", 1, &n, err) : 0;
    if (!code && (n < 1 || n > 4096))
        code = tu_fail(err, TU_EUSAGE, "seg=%llu: 1 to 4096 segments",
                       (unsigned long long)n);
    p->segments = code ? 1 : (uint32_t)n;
    return code;
}

int tu_plan_make(struct tu_plan *p, enum tu_collective c, const struct tu_spec *spec,
                 uint32_t ranks, uint32_t root, uint64_t count, struct tu_err *err)
{
    *p = (struct tu_plan){.ranks = ranks, .root = root, .count = count, .segments = 1};
    p->alg = tu_algorithm_find(c, spec->name);
    if (!p->alg)
        return tu_fail(err, TU_EUSAGE, "%s has no algorithm '%s'",
                       tu_collective_rows[c].name, spec->name);
    uint64_t total;
    if (!ranks || root >= ranks)
        return tu_fail(err, TU_EUSAGE, "root %u of %u ranks", (unsigned)root,
                       (unsigned)ranks);
    if (tu_mul_over(count, 64 * (uint64_t)ranks, &total))
        return tu_fail(err, TU_EUSAGE, "%llu elements for each of %u ranks",
                       (unsigned long long)count, (unsigned)ranks);
    int code = tu_spec_check(spec, p->alg->key, err);
    if (!code)
        code = p->alg->plan(p, spec, err);
    if (code)
        tu_err_prefix(err, "%s", spec->name);
    return code;
}
