/* SPDX-License-Identifier: Apache-2.0 */
/* sharded.c: rules of sharded parameters and of recomputation, which hold in the order of
 * one rank and need no times.
 *
 * Parameters: where any are gathered, a stage computes only between its UNSHARD and its
 * RESHARD, none of which comes twice in a row; where any are freed, all are in the end.
 * Gradients: where any are reduced, those of each stage are, once, behind the last of them.
 * Recomputation: a rank that recomputes does so for each unit, for its forwards keep
 * checkpoints alone. */
#include "sched/sharded.h"

/* A stage on its rank, while the list of that rank is read. */
struct state {
    bool gathered, reduced, trained;
    uint32_t left; /* gradients to come */
};

struct check {
    const struct tui_index *x;
    struct tui_faults *f;
    struct state *of; /* [stages] */
};

static bool is_gradient(const struct tu_op *op)
{
    return op->kind == TU_OP_B || op->kind == TU_OP_W;
}

static const char *gather(const struct check *c, const struct tu_op *op, struct state *k)
{
    bool unshard = op->kind == TU_OP_UNSHARD;
    const char *why = NULL;
    if (unshard && k->gathered)
        why = "its parameters are gathered already";
    else if (!unshard && !k->gathered)
        why = tui_occurs(c->x, TU_OP_UNSHARD) ? "its parameters are not gathered (UNSHARD)"
                                              : "nothing gathered them: no UNSHARD";
    k->gathered = unshard;
    return why;
}

static const char *reduce(struct state *k)
{
    const char *why = !k->trained  ? "this stage has no gradients"
                      : k->reduced ? "its gradients are reduced already"
                      : k->left    ? "before the last gradient of this stage"
                                   : NULL;
    k->reduced = true;
    return why;
}

static const char *one(const struct check *c, const struct tu_op *op)
{
    struct state *k = &c->of[op->stage];
    switch ((enum tu_op_kind)op->kind) {
    case TU_OP_UNSHARD:
    case TU_OP_RESHARD: return gather(c, op, k);
    case TU_OP_REDUCE: return reduce(k);
    default: break;
    }
    k->left -= is_gradient(op);
    if (op->kind <= TU_OP_R && tui_occurs(c->x, TU_OP_UNSHARD) && !k->gathered)
        return "its parameters are not gathered (UNSHARD)";
    return NULL;
}

static void read_rank(const struct check *c, uint32_t rank)
{
    const struct tu_sched *s = c->x->s;
    bool again = false;
    for (size_t i = 0; i < s->n[rank]; i++) {
        const struct tu_op *op = &s->op[rank][i];
        again = again || op->kind == TU_OP_R;
        const char *why = op->kind == TU_OP_OPT ? NULL : one(c, op);
        if (why)
            tui_op_fault(c->f, s, rank, i, why);
    }
    for (size_t i = 0; again && i < s->n[rank]; i++) {
        const struct tu_op *op = &s->op[rank][i];
        if ((op->kind == TU_OP_B || op->kind == TU_OP_I) &&
            tui_find(c->x, TUI_AT_R, op->stage, tui_unit(s, op)) == TUI_NONE)
            tui_op_fault(c->f, s, rank, i, "without R, on a rank that recomputes");
    }
}

/* What is open when all lists are read. */
static void read_end(const struct check *c)
{
    const struct tu_sched *s = c->x->s;
    bool frees = tui_occurs(c->x, TU_OP_RESHARD), reduces = tui_occurs(c->x, TU_OP_REDUCE);
    for (uint32_t k = 0; k < s->stages * s->pipelines; k++) {
        if (frees && c->of[k].gathered)
            tui_stage_fault(c->f, s, k, "its parameters are not freed in the end (RESHARD)");
        if (reduces && c->of[k].trained && !c->of[k].reduced)
            tui_stage_fault(c->f, s, k, "its gradients are not reduced (REDUCE_GRAD)");
    }
}

int tui_sharded_check(const struct tui_index *x, struct tui_faults *f)
{
    const struct tu_sched *s = x->s;
    const uint32_t kinds = 1u << TU_OP_UNSHARD | 1u << TU_OP_RESHARD | 1u << TU_OP_REDUCE |
                           1u << TU_OP_R;
    struct check c = {x, f, NULL};
    if (!(x->kinds & kinds))
        return 0;
    c.of = tu_calloc((size_t)s->stages * s->pipelines, sizeof *c.of, f->err);
    if (!c.of)
        return TU_ENOMEM;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++)
            if (is_gradient(&s->op[r][i])) {
                c.of[s->op[r][i].stage].left++;
                c.of[s->op[r][i].stage].trained = true;
            }
    for (uint32_t r = 0; r < s->ranks; r++)
        read_rank(&c, r);
    read_end(&c);
    tu_free(c.of);
    return 0;
}
