/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c: puts weight gradients into the waits of an order of forwards and input
 * gradients.
 *
 * The order of F and I stays. A W goes where the rank would wait long enough for it,
 * oldest first; what is left of a block runs before the first forward of the next one. */
#include <string.h>
#include "sched/build.h"
#include "sched/index.h"

struct filling {
    const struct tu_sched *s;
    const struct tu_cost *c;
    struct tui_index x;
    struct tui_build b;
    int64_t *end;            /* [ops], -1: not run */
    int64_t *clock;          /* [ranks] */
    uint32_t *next, *oldest; /* [ranks]: next operation; first I whose W is due */
    uint32_t block;
};

static void put_w(struct filling *f, uint32_t rank)
{
    const struct tu_op *list = f->s->op[rank];
    while (list[f->oldest[rank]].kind != TU_OP_I)
        f->oldest[rank]++;
    struct tu_op w = list[f->oldest[rank]++];
    w.kind = TU_OP_W;
    tui_add_op(&f->b, rank, &w);
    f->clock[rank] += tu_cost_time(f->c, TU_OP_W, w.stage, w.mb);
}

/* Is there an I before position `next` whose W has not run? */
static bool due(struct filling *f, uint32_t rank)
{
    const struct tu_op *list = f->s->op[rank];
    uint32_t k = f->oldest[rank];
    while (k < f->next[rank] && list[k].kind != TU_OP_I)
        k++;
    f->oldest[rank] = k;
    return k < f->next[rank];
}

static bool step(struct filling *f, uint32_t rank)
{
    const struct tu_op *op = &f->s->op[rank][f->next[rank]];
    struct tui_need need[TUI_NEEDS];
    unsigned n = tui_needs(&f->x, op, need);
    int64_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        if (need[i].op == TUI_NONE || f->end[need[i].op] < 0)
            return false;
        int64_t t = f->end[need[i].op];
        if (need[i].transfer)
            t += tu_cost_transfer(f->c, need[i].backward, need[i].rank, rank);
        at = t > at ? t : at;
    }
    uint32_t before = f->next[rank];
    bool fresh = op->kind == TU_OP_F && f->block && before &&
                 op->mb / f->block != f->s->op[rank][before - 1].mb / f->block;
    while (due(f, rank)) {
        const struct tu_op *i = &f->s->op[rank][f->oldest[rank]];
        if (!fresh && f->clock[rank] + tu_cost_time(f->c, TU_OP_W, i->stage, i->mb) > at)
            break;
        put_w(f, rank);
    }
    at = f->clock[rank] > at ? f->clock[rank] : at;
    f->clock[rank] = at + tu_cost_time(f->c, op->kind, op->stage, op->mb);
    f->end[f->x.base[rank] + before] = f->clock[rank];
    tui_add_op(&f->b, rank, op);
    f->next[rank]++;
    return true;
}

int tui_fill_w(struct tu_sched **out, const struct tu_sched *base,
               const struct tu_cost *c, uint32_t block, struct tu_err *err)
{
    struct filling f = {.s = base, .c = c, .block = block};
    size_t faults;
    int rc = tui_index_make(&f.x, base, NULL, &faults, err);
    tui_build_begin(&f.b, base->ranks, base->stages, base->pipelines, base->microbatches,
                    err);
    f.end = tu_alloc(f.x.ops, sizeof *f.end, err);
    f.clock = tu_calloc(base->ranks, sizeof *f.clock, err);
    f.next = tu_calloc(base->ranks, sizeof *f.next, err);
    f.oldest = tu_calloc(base->ranks, sizeof *f.oldest, err);
    if (rc || !f.end || !f.clock || !f.next || !f.oldest)
        f.b.code = f.b.code ? f.b.code : rc ? rc : TU_ENOMEM;
    if (!f.b.code) {
        memset(f.end, 0xff, f.x.ops * sizeof *f.end);
        memcpy(f.b.s->place, base->place,
               (size_t)base->stages * base->pipelines * sizeof *base->place);
    }
    for (bool moved = true; moved && !f.b.code;) {
        moved = false;
        for (uint32_t r = 0; r < base->ranks; r++)
            while (f.next[r] < base->n[r] && !f.b.code && step(&f, r))
                moved = true;
    }
    for (uint32_t r = 0; r < base->ranks && !f.b.code; r++)
        while (due(&f, r) && !f.b.code)
            put_w(&f, r);
    tui_index_release(&f.x);
    tu_free(f.end);
    tu_free(f.clock);
    tu_free(f.next);
    tu_free(f.oldest);
    return tui_build_end(&f.b, out);
}
