/* SPDX-License-Identifier: Apache-2.0 */
/* versions.c: which version of its weights each micro-batch meets where nothing is flushed,
 * how many are kept, and how old they are when the gradient comes.
 *
 * Versions are numbered by the updates behind them. A stage keeps each version from the
 * oldest that a micro-batch under way, or one still to come, uses to the newest.
 * Sources: Narayanan et al., "PipeDream", 2019 (stashing: a micro-batch keeps the version of
 * its forward; vertical sync: all stages use the one that was the first stage's when it
 * came in), and "Memory-Efficient Pipeline-Parallel DNN Training", 2021 (two versions:
 * gradients of a whole batch are applied at once, a batch later). */
#include "sched/versions.h"

/* The version that the n-th micro-batch of a stage uses, by a rule or by what there is. */
static uint32_t version_of(const struct tu_sched *s, uint32_t n, uint32_t updates)
{
    uint32_t depth = s->stages - 1, batch = n / s->accumulate;
    switch (s->weights) {
    case TU_WEIGHTS_VERTICAL: return n > depth ? n - depth : 0;
    case TU_WEIGHTS_DOUBLE: return batch ? batch - 1 : 0;
    case TU_WEIGHTS_STASHED: break;
    }
    return updates;
}

/* One stage: used[n] is the version of its n-th micro-batch. */
static void one_stage(struct tu_sim *r, const struct tu_sched *s, uint32_t stage,
                      uint32_t *used)
{
    uint32_t rank = s->place[stage], forwards = 0, done = 0, updates = 0;
    for (size_t i = 0; i < s->n[rank]; i++) {
        const struct tu_op *op = &s->op[rank][i];
        if (op->stage != stage)
            continue;
        if (op->kind == TU_OP_F) {
            used[forwards] = version_of(s, forwards, updates);
            forwards++;
        } else if (op->kind == TU_OP_B || op->kind == TU_OP_W) {
            uint32_t age = updates - used[done];
            if (age > r->staleness[rank])
                r->staleness[rank] = age;
            updates += ++done % s->accumulate == 0;
        }
        uint32_t oldest = done < forwards ? used[done] : version_of(s, done, updates);
        if (updates - oldest + 1 > r->versions[rank])
            r->versions[rank] = updates - oldest + 1;
    }
}

int tui_weight_versions(struct tu_sim *r, const struct tu_sched *s, struct tu_err *err)
{
    uint32_t *used = tu_calloc((size_t)s->microbatches * s->slices + 1, sizeof *used, err);
    if (!used)
        return TU_ENOMEM;
    for (uint32_t k = 0; k < s->stages * s->pipelines; k++)
        one_stage(r, s, k, used);
    tu_free(used);
    return 0;
}
