/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c: the optimiser's problem, its plain lower bounds, and the value of an order.
 */
#include <string.h>
#include "sched/cost.h"
#include "sched/memory.h"
#include "sched/problem.h"

int tui_problem_make(struct tui_problem *x, const uint32_t *place, uint32_t stages,
                     const struct tu_sched_params *q, struct tu_err *err)
{
    struct tu_cost one;
    tu_cost_init(&one);
    const struct tu_cost *c = q->cost ? q->cost : &one;
    *x = (struct tui_problem){
        .p = q->p, .stages = stages, .m = q->m, .cap = q->cap, .barrier = c->barrier};
    int rc = tui_cost_limit(c, 3 * (uint64_t)stages * q->m, err);
    if (rc)
        return rc;
    x->place = tu_alloc(stages, sizeof *x->place, err);
    x->f = tu_alloc(5 * (size_t)stages + q->p, sizeof *x->f, err);
    if (!x->place || !x->f) {
        tui_problem_release(x);
        return TU_ENOMEM;
    }
    x->i = x->f + stages;
    x->w = x->i + stages;
    x->c_fwd = x->w + stages;
    x->c_bwd = x->c_fwd + stages;
    x->begin = x->c_bwd + stages;
    memcpy(x->place, place, stages * sizeof *place);
    for (uint32_t r = 0; r < q->p; r++)
        x->begin[r] = -1;
    int64_t at = 0;
    for (uint32_t s = 0; s < stages; s++) {
        uint32_t r = place[s];
        x->f[s] = tu_cost_time(c, TU_OP_F, s, UINT32_MAX);
        x->i[s] = tu_cost_time(c, TU_OP_I, s, UINT32_MAX);
        x->w[s] = tu_cost_time(c, TU_OP_W, s, UINT32_MAX);
        x->c_fwd[s] =
            s && place[s - 1] != r ? tu_cost_transfer(c, false, place[s - 1], r) : 0;
        x->c_bwd[s] = s + 1 < stages && place[s + 1] != r
                          ? tu_cost_transfer(c, true, place[s + 1], r)
                          : 0;
        at += x->c_fwd[s];
        if (x->begin[r] < 0)
            x->begin[r] = x->barrier ? 0 : at;
        at += x->f[s];
    }
    x->mem_f = tui_mem_of(c, 1, 1).full;
    x->mem_w = tui_mem_at_w(c);
    x->mem_i = x->mem_f - x->mem_w;
    if (x->cap && x->cap < x->mem_f) {
        tui_problem_release(x);
        return tui_cap_low(c, stages / q->p, q->cap, "one activation of a stage", x->mem_f,
                           err);
    }
    return 0;
}

void tui_problem_release(struct tui_problem *x)
{
    tu_free(x->place);
    tu_free(x->f);
    x->place = NULL;
    x->f = NULL;
}

/* The lowest stage of a rank: all of the rank's F and I come before its last I. */
static bool lowest(const struct tui_problem *x, uint32_t s)
{
    for (uint32_t k = 0; k < s; k++)
        if (x->place[k] == x->place[s])
            return false;
    return true;
}

/* From the first F of stage s out to the rank of stage t, all F and I there, and the last
 * gradient's way back to s, whose W still follows. */
static int64_t out_and_back(const struct tui_problem *x, uint32_t s, uint32_t t)
{
    int64_t way = 0, work = 0;
    for (uint32_t k = s; k < t; k++)
        way += x->f[k] + x->c_fwd[k + 1] + x->c_bwd[k] + x->i[k];
    for (uint32_t k = 0; k < x->stages; k++)
        if (x->place[k] == x->place[t])
            work += x->m * (x->f[k] + x->i[k]);
    return way + work + x->w[s];
}

/* From the first F of stage s to the first I back there no other I of it can run; after
 * that all other I and W, and the F that memory kept waiting. */
static int64_t first_round(const struct tui_problem *x, uint32_t s)
{
    int64_t there = 0, fits = x->cap ? x->cap / x->mem_f : x->m;
    int64_t m = x->m, waiting = m > fits ? m - fits : 0;
    for (uint32_t k = s; k < x->stages; k++)
        there += x->f[k] + x->i[k] + (k > s ? x->c_fwd[k] : 0) + x->c_bwd[k];
    return there + (m - 1) * x->i[s] + waiting * x->f[s] + m * x->w[s];
}

/* A rank's work begins when the first micro-batch has come to its lowest stage; that counts where
 * all line up at the end. */
int64_t tui_bound_work(const struct tui_problem *x)
{
    int64_t most = 0, before = 0;
    for (uint32_t s = 0; s < x->stages; s++) {
        int64_t work = x->barrier ? before : 0;
        before += x->f[s] + (s + 1 < x->stages ? x->c_fwd[s + 1] : 0);
        if (!lowest(x, s))
            continue;
        for (uint32_t k = s; k < x->stages; k++)
            if (x->place[k] == x->place[s])
                work += x->m * (x->f[k] + x->i[k] + x->w[k]);
        most = work > most ? work : most;
    }
    return most;
}

int64_t tui_bound_path(const struct tui_problem *x)
{
    int64_t most = 0, before = 0;
    for (uint32_t s = 0; s < x->stages; s++) {
        int64_t start = x->barrier ? before : 0, t = 0;
        before += x->f[s] + (s + 1 < x->stages ? x->c_fwd[s + 1] : 0);
        if (!lowest(x, s))
            continue;
        if (x->stages == x->p)
            t = first_round(x, s);
        most = start + t > most ? start + t : most;
        for (uint32_t k = s; k < x->stages; k++)
            if (lowest(x, k) && (t = start + out_and_back(x, s, k)) > most)
                most = t;
    }
    return most;
}

void tui_order_release(struct tui_order *o)
{
    tu_free(o->op);
    tu_free(o->base);
    *o = (struct tui_order){0};
}

/* A walk through an order: of each rank what is next, its clock and its memory; of each
 * stage how many F, I and W are done, and when each F and I ended. */
struct walk {
    const struct tui_problem *x;
    struct rank {
        size_t next;
        int64_t clock, mem;
    } *rank;               /* [p] */
    int64_t *f_end, *i_end; /* [stages][m] */
    uint32_t *done;        /* [stages][3] */
};

int tui_order_of(const struct tui_problem *x, const struct tu_sched *s,
                 struct tui_order *o, bool *fits, struct tu_err *err)
{
    *o = (struct tui_order){0};
    o->op = tu_alloc(2 * tu_sched_ops(s), sizeof *o->op, err);
    o->base = tu_calloc((size_t)x->p + 1, sizeof *o->base, err);
    if (!o->op || !o->base)
        return TU_ENOMEM;
    size_t n = 0;
    *fits = s->pipelines == 1 && s->slices == 1 && s->stages == x->stages &&
            !memcmp(s->place, x->place, x->stages * sizeof *x->place);
    for (uint32_t r = 0; r < x->p; r++) {
        for (size_t k = 0; k < s->n[r]; k++) {
            const struct tu_op *op = &s->op[r][k];
            *fits = *fits && op->kind <= TU_OP_W;
            if (op->kind == TU_OP_B) {
                o->op[n++] = op->stage * 4 + TU_OP_I;
                o->op[n++] = op->stage * 4 + TU_OP_W;
            } else {
                o->op[n++] = op->stage * 4 + op->kind;
            }
        }
        o->base[r + 1] = n;
    }
    *fits = *fits && n == 3 * (size_t)x->stages * x->m;
    return 0;
}

/* Run the next operation of a rank; false when what it needs has not run yet. */
static bool run_next(struct walk *w, struct rank *r, uint32_t op)
{
    const struct tui_problem *x = w->x;
    uint32_t s = op / 4, kind = op % 4, *n = &w->done[3 * s];
    size_t row = (size_t)s * x->m;
    bool last = s + 1 == x->stages;
    int64_t in = 0;
    if (kind == TU_OP_F) {
        if (s && n[-3] <= n[0])
            return false;
        in = s ? w->f_end[row - x->m + n[0]] + x->c_fwd[s] : 0;
        r->clock = (in > r->clock ? in : r->clock) + x->f[s];
        w->f_end[row + n[0]++] = r->clock;
        r->mem += x->mem_f;
    } else if (kind == TU_OP_I) {
        if (n[0] <= n[1] || (!last && n[4] <= n[1]))
            return false;
        in = last ? 0 : w->i_end[row + x->m + n[1]] + x->c_bwd[s];
        r->clock = (in > r->clock ? in : r->clock) + x->i[s];
        w->i_end[row + n[1]++] = r->clock;
        r->mem -= x->mem_i;
    } else {
        if (n[1] <= n[2])
            return false;
        n[2]++;
        r->clock += x->w[s];
        r->mem -= x->mem_w;
    }
    r->next++;
    return true;
}

/* All of it; false when it deadlocks or exceeds the cap. */
static bool run_all(struct walk *w, const struct tui_order *o)
{
    const struct tui_problem *x = w->x;
    bool moved = true, ended = true;
    while (moved) {
        moved = false;
        for (uint32_t k = 0; k < x->p; k++) {
            struct rank *r = &w->rank[k];
            while (o->base[k] + r->next < o->base[k + 1] &&
                   run_next(w, r, o->op[o->base[k] + r->next])) {
                moved = true;
                if (x->cap && r->mem > x->cap)
                    return false;
            }
        }
    }
    for (uint32_t k = 0; k < x->p; k++)
        ended = ended && o->base[k] + w->rank[k].next == o->base[k + 1];
    return ended;
}

int tui_order_value(const struct tui_problem *x, struct tui_order *o, struct tu_err *err)
{
    size_t cells = (size_t)x->stages * x->m;
    struct walk w = {.x = x};
    w.f_end = tu_alloc(2 * cells, sizeof *w.f_end, err);
    w.done = tu_calloc(3 * (size_t)x->stages, sizeof *w.done, err);
    w.rank = tu_calloc(x->p, sizeof *w.rank, err);
    int rc = w.f_end && w.done && w.rank ? 0 : TU_ENOMEM;
    o->value = INT64_MAX;
    if (!rc) {
        w.i_end = w.f_end + cells;
        if (run_all(&w, o))
            o->value = 0;
        for (uint32_t k = 0; k < x->p && o->value < INT64_MAX; k++)
            if (w.rank[k].clock - x->begin[k] > o->value)
                o->value = w.rank[k].clock - x->begin[k];
    }
    tu_free(w.f_end);
    tu_free(w.done);
    tu_free(w.rank);
    return rc;
}

int tui_order_sched(struct tu_sched **out, const struct tui_problem *x,
                    const struct tui_order *o, struct tu_err *err)
{
    struct tui_build b;
    uint32_t *next = tu_calloc(3 * (size_t)x->stages, sizeof *next, err);
    static const enum tu_op_kind kind[] = {TU_OP_F, TU_OP_B, TU_OP_I, TU_OP_W};
    static const uint8_t slot[] = {0, 0, 1, 2};
    tui_build_begin(&b, x->p, x->stages, 1, x->m, err);
    if (!next)
        b.code = TU_ENOMEM;
    if (!b.code)
        memcpy(b.s->place, x->place, x->stages * sizeof *x->place);
    for (uint32_t r = 0; r < x->p && !b.code; r++)
        for (size_t k = o->base[r]; k < o->base[r + 1]; k++) {
            uint32_t s = o->op[k] / 4, q = o->op[k] % 4;
            tui_add(&b, r, kind[q], s, next[3 * s + slot[q]]++);
        }
    tu_free(next);
    return tui_build_end(&b, out);
}

/* Is a schedule one of those that the bound of a path speaks of: one pipeline that trains, whose
 * ranks begin as early as they can, and whole backwards that are no shorter than their halves? */
static bool has_path(const struct tui_problem *x, const struct tu_sim *r,
                     const struct tu_sched *s, const struct tu_cost *c)
{
    for (uint32_t k = 0; k < s->stages; k++)
        if (tu_cost_time(c, TU_OP_B, k, UINT32_MAX) < x->i[k] + x->w[k])
            return false;
    for (uint32_t k = 0; k < s->ranks; k++)
        if (!x->barrier && r->first[k] != x->begin[k])
            return false;
    return true;
}

int tu_sim_bound(int64_t *bound, const struct tu_sim *r, const struct tu_sched *s,
                 const struct tu_cost *c, struct tu_err *err)
{
    struct tui_problem x;
    struct tu_sched_params q = {.p = s->ranks, .m = s->microbatches, .cost = c};
    *bound = 0;
    for (uint32_t k = 0; k < s->ranks; k++)
        *bound = r->busy[k] > *bound ? r->busy[k] : *bound;
    if (s->deps != TU_DEPS_TRAIN || s->pipelines > 1 || s->slices > 1 || s->async ||
        c->pair >= 0 || c->weight)
        return 0;
    int rc = tui_problem_make(&x, s->place, s->stages, &q, err);
    if (rc)
        return rc;
    bool known = has_path(&x, r, s, c);
    int64_t path = known ? tui_bound_path(&x) : 0, work = known ? tui_bound_work(&x) : 0;
    *bound = path > *bound ? path : *bound;
    *bound = work > *bound ? work : *bound;
    tui_problem_release(&x);
    return 0;
}
