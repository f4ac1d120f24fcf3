/* SPDX-License-Identifier: Apache-2.0 */
/* sharded.c: every change of what gathers, frees, reduces or recomputes is noticed: one of
 * them gone, one twice, one for another stage, a reduction before the last gradient. */
#include <string.h>
#include "../tap.h"
#include "sched/build.h"

static bool valid(const struct tu_sched *s)
{
    struct tu_cost c;
    struct tu_sim sim;
    size_t faults = 1;
    tu_cost_init(&c);
    int rc = tu_sim_run(&sim, s, &c, NULL, &faults, NULL);
    tu_sim_release(&sim);
    return !rc && !faults;
}

static struct tu_sched *lowered(const char *name, uint32_t v, bool recompute)
{
    struct tu_sched *s = NULL, *out = NULL;
    struct tu_err err;
    struct tu_sched_params q = {.p = 4, .m = 8, .v = v};
    struct tu_lower how = {.depth = 2, .transfers = true, .recompute = recompute};
    if (tu_schedule_make(&s, tu_schedule_find(name), &q, &err) ||
        tu_sched_lower(&out, s, &how, &err))
        out = NULL;
    tu_sched_free(s);
    return out;
}

/* Take the operation at `from` out and put `op` in at `to` of the shorter list. */
static void move(struct tu_op *op, size_t n, size_t from, size_t to, struct tu_op with)
{
    memmove(op + from, op + from + 1, (n - from - 1) * sizeof *op);
    memmove(op + to + 1, op + to, (n - to - 1) * sizeof *op);
    op[to] = with;
}

/* Some other stage of the same rank; the same where there is none. */
static uint32_t another(const struct tu_sched *s, uint32_t stage)
{
    for (uint32_t k = 0; k < s->stages * s->pipelines; k++)
        if (k != stage && s->place[k] == s->place[stage])
            return k;
    return stage;
}

/* Each change of one operation, undone afterwards; how many passed as valid. */
static unsigned unseen(struct tu_sched *s, uint32_t r, size_t i, unsigned *tried)
{
    unsigned missed = 0;
    size_t n = s->n[r];
    struct tu_op *all = s->op[r], op = all[i];
    struct tu_op *copy = tu_alloc(n + 1, sizeof *copy, NULL);
    s->op[r] = copy;
    for (int change = 0; change < 4; change++) {
        memcpy(copy, all, n * sizeof *copy);
        s->n[r] = n;
        if (change == 0) { /* gone */
            memmove(copy + i, copy + i + 1, (n - i - 1) * sizeof *copy);
            s->n[r] = n - 1;
        } else if (change == 1) { /* twice */
            memmove(copy + i + 1, copy + i, (n - i) * sizeof *copy);
            s->n[r] = n + 1;
        } else if (change == 2) { /* of another stage */
            copy[i].stage = another(s, op.stage);
            if (copy[i].stage == op.stage)
                continue;
        } else if (op.kind == TU_OP_REDUCE) {
            move(copy, n, i, 0, op);
        } else {
            continue;
        }
        ++*tried;
        missed += valid(s);
    }
    s->op[r] = all;
    s->n[r] = n;
    tu_free(copy);
    return missed;
}

static void mutations(const char *name, uint32_t v, bool recompute)
{
    struct tu_sched *s = lowered(name, v, recompute);
    unsigned tried = 0, missed = 0;
    ok(s && valid(s), "%s%s, lowered, is valid", name, recompute ? " recomputed" : "");
    for (uint32_t r = 0; s && r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++) {
            uint8_t kind = s->op[r][i].kind;
            if (kind == TU_OP_UNSHARD || kind == TU_OP_RESHARD || kind == TU_OP_REDUCE ||
                kind == TU_OP_R)
                missed += unseen(s, r, i, &tried);
        }
    ok(tried && !missed, "%s: %u of %u changes pass as valid", name, missed, tried);
    tu_sched_free(s);
}

/* Lists by hand, each with whether it may run. */
static void by_hand(void)
{
    static const struct {
        const char *text;
        bool may;
    } list[] = {
        {"0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD", true},
        {"0UNSHARD,0F0,0B0", true}, /* gathered once and kept */
        {"0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD", true},
        {"0UNSHARD,0F0,0I0,0RESHARD,0UNSHARD,0W0,0RESHARD,0REDUCE_GRAD", true},
        {"0RESHARD,0F0,0B0", false},
        {"0F0,0UNSHARD,0B0", false},
        {"0UNSHARD,0F0,0RESHARD,0B0", false},
        {"0UNSHARD,0F0,0R0,0RESHARD,0B0", false},
        {"0UNSHARD,0F0,0RESHARD,0R0,0UNSHARD,0B0", false},
        {"0UNSHARD,0F0,0I0,0REDUCE_GRAD,0W0,0RESHARD", false},
        {"0F0,0REDUCE_GRAD", false},
        {"0F0,0F1,0R0,0B0,0B1", false},
        {"0F0,0F1,0R0,0B0,0R1,0B1", true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct tu_sched *s = NULL;
        struct tu_cost c;
        struct tu_err err;
        tu_cost_init(&c);
        int rc = tu_sched_read(&s, &c, list[i].text, strlen(list[i].text),
                               tu_sched_form_find("csv"), NULL, &err);
        ok(!rc && valid(s) == list[i].may, "%s %s", list[i].text,
           list[i].may ? "runs" : "does not");
        tu_sched_free(s);
    }
}

int main(void)
{
    for (int recompute = 0; recompute < 2; recompute++) {
        mutations("1f1b", 1, recompute);
        mutations("interleaved-1f1b", 3, recompute);
        mutations("zb-v", 2, recompute);
        mutations("dualpipe-v", 2, recompute);
        mutations("chimera", 1, recompute);
    }
    by_hand();
    return tap_done();
}
