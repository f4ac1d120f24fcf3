/* SPDX-License-Identifier: Apache-2.0 */
/* form_says.c: what the short forms of other tools have no word for is refused, so that no
 * schedule is written that reads back as another one.
 *
 * All of them have a line for each rank with its operations alone, so what a document says
 * beside the lists (two pipelines, slices, who waits for whom) and communication have no
 * place in any. */
#include "sched/form_says.h"
#include "sched/index.h"

static int whole(const struct tui_says *can, const struct tu_sched *s, struct tu_err *err)
{
    const char *why = s->pipelines > 1 ? "two pipelines"
                      : s->slices > 1  ? "slices of a micro-batch"
                      : s->async       ? "a schedule without a flush"
                      : s->deps != TU_DEPS_TRAIN && s->deps != TU_DEPS_FORWARD
                          ? "this kind of forward-only schedule"
                          : NULL;
    for (uint32_t r = 0; r < s->ranks && !why; r++)
        why = s->n[r] ? NULL : "a rank that does nothing";
    for (uint32_t k = 0; k < s->stages && !why; k++) {
        uint32_t lap = k / s->ranks, at = k % s->ranks;
        uint32_t rank = can->vee && lap % 2 ? s->ranks - 1 - at : at;
        if (s->place[k] != rank || (can->vee && lap > 1))
            why = can->vee ? "stages that are neither one on each rank nor two in a V"
                           : "stages that do not go round the ranks in a loop";
    }
    return why ? tu_fail(err, TU_EUSAGE, "%s: cannot say %s: --to json and csv can",
                         can->form, why)
               : 0;
}

static const char *unsaid(const struct tui_says *can, const struct tu_op *op)
{
    if (op->flags & TU_OP_PAIRED)
        return "overlapped pairs";
    if (op->kind == TU_OP_B && can->halves)
        return "a whole backward, only its halves I and W";
    if ((op->kind == TU_OP_I || op->kind == TU_OP_W) && !can->halves)
        return "the halves of a backward, only a whole B";
    if (op->kind > TU_OP_W)
        return "communication and recomputation (--strip leaves communication out)";
    return NULL;
}

int tui_form_says(const struct tui_says *can, const struct tu_sched *s, struct tu_err *err)
{
    int rc = whole(can, s, err);
    uint32_t *next = rc ? NULL : tu_calloc(2 * (size_t)s->stages, sizeof *next, err);
    if (!next)
        return rc ? rc : TU_ENOMEM;
    for (uint32_t r = 0; r < s->ranks && !rc; r++)
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            const char *why = unsaid(can, op);
            char text[40];
            if (!why && can->counted &&
                next[2 * op->stage + (op->kind != TU_OP_F)]++ != op->mb)
                why = "micro-batches out of their order";
            if (why)
                rc = tu_fail(err, TU_EUSAGE,
                             "%s: rank %u, position %zu (%s): cannot say %s", can->form, r,
                             i, tu_op_text(op, s->slices, text), why);
        }
    tu_free(next);
    return rc;
}

int tui_form_same(const char *form, const struct tu_sched *s, const struct tu_sched *back,
                  struct tu_err *err)
{
    static const char why[] = "it has only the one that follows from rank 0's forwards";
    char text[40];
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (r >= back->ranks || s->n[r] != back->n[r])
            return tu_fail(err, TU_EUSAGE, "%s: rank %u: cannot say its %zu operations: %s",
                           form, r, s->n[r], why);
        for (size_t i = 0; i < s->n[r]; i++) {
            const struct tu_op *a = &s->op[r][i], *b = &back->op[r][i];
            if (a->kind != b->kind || a->stage != b->stage || a->mb != b->mb)
                return tu_fail(err, TU_EUSAGE,
                               "%s: rank %u, position %zu (%s): cannot say this order: %s",
                               form, r, i, tu_op_text(a, s->slices, text), why);
        }
    }
    return 0;
}
