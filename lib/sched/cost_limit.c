/* SPDX-License-Identifier: Apache-2.0 */
/* cost_limit.c: may times and memory be added up? Asked once, before a schedule is made,
 * simulated or searched: past this no sum of durations overflows.
 *
 * A step is never longer than all of its operations one after another, each with its
 * transfer, after the last arrival. The longest of each stands for all, so the question
 * costs as much as the tables are long. */
#include "sched/cost.h"

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t greatest(const int64_t *v, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; v && i < n; i++)
        most = greater(most, v[i]);
    return most;
}

/* Of computation, before weights. */
static int64_t longest_compute(const struct tu_cost *c)
{
    int64_t most = 0;
    for (uint32_t s = 0; s <= c->stages; s++) /* the last: stages without a row */
        for (unsigned k = 0; k <= TU_OP_R; k++)
            most = greater(most, tui_cost_plain(c, k, s));
    return most;
}

int tui_cost_limit(const struct tu_cost *c, uint64_t ops, struct tu_err *err)
{
    int64_t weight = greater(c->weight_one, greatest(c->weight, c->microbatches));
    int64_t other = greater(c->pair, greatest(c->time + TU_OP_OPT, TU_OP_KINDS - TU_OP_OPT));
    int64_t transfer = greater(greatest(c->transfer, 2),
                               greatest(c->link, (size_t)c->ranks * c->ranks));
    uint64_t each, all, memory;
    if (tu_mul_over((uint64_t)longest_compute(c), (uint64_t)weight, &each) ||
        tu_add_over(tu_max(each, (uint64_t)greater(other, 0)), (uint64_t)transfer, &each) ||
        tu_mul_over(each, ops, &all) ||
        tu_add_over(all, (uint64_t)greatest(c->arrive, c->arrivals), &all) ||
        all > INT64_MAX / 4)
        return tu_fail(err, TU_ESIZE, "times are too large to be added");
    if (tu_mul_over((uint64_t)greater(c->mem_b, c->mem_unit), ops, &memory) ||
        memory > INT64_MAX / 4)
        return tu_fail(err, TU_ESIZE, "memory: sizes are too large to be added");
    return 0;
}
