/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c: runs a schedule as soon as possible, in exact integer time.
 *
 * A rank runs its list in order. Compute occupies it; transfers of parameters and of
 * activations to the host run beside it, each kind on a queue of its own, from the moment
 * at which the list reaches them. One pass over the operations: a rank that must wait is
 * put on the list of the operation that it waits for. When no rank can go on there is a
 * deadlock. */
#include <stdio.h>
#include <string.h>
#include "sched/build.h"
#include "sched/cost.h"
#include "sched/index.h"
#include "sched/memory.h"

enum queue { ON_RANK, ON_NETWORK, ON_HOST, QUEUES };

static const uint8_t queue_of[TU_OP_KINDS] = {
    [TU_OP_UNSHARD] = ON_NETWORK,
    [TU_OP_REDUCE] = ON_NETWORK,
    [TU_OP_OFFLOAD] = ON_HOST,
    [TU_OP_FETCH] = ON_HOST,
};

struct run {
    const struct tu_sched *s;
    const struct tu_cost *c;
    struct tui_index x;
    struct tu_sim *r;
    int64_t *clock[QUEUES]; /* [ranks]: when each queue is free */
    int64_t *link;          /* [ranks][ranks]: when each link is free, with contention */
    int64_t *arrive;        /* [ops]: when the receiver has the result, with contention */
    int64_t *gathered;      /* [stages]: end of the last UNSHARD */
    uint32_t *next;         /* [ranks]: position in the list */
    uint32_t *first_waiter; /* [ops]: rank, TUI_NONE */
    uint32_t *next_waiter;  /* [ranks] */
    uint32_t *ready;        /* [ranks]: a ring */
    uint32_t head, count;
};

/* When the inputs of an operation are there; TUI_NONE in *missing, else the operation
 * that has not run yet. */
static int64_t inputs(struct run *w, const struct tu_op *op, uint32_t rank,
                      uint32_t *missing)
{
    struct tui_need need[TUI_NEEDS];
    unsigned n = tui_needs(&w->x, op, need);
    int64_t at = 0;
    *missing = TUI_NONE;
    for (unsigned i = 0; i < n; i++) {
        uint32_t id = need[i].op;
        if (id == TUI_NONE || w->r->end[id] < 0) {
            *missing = id == TUI_NONE ? TUI_NONE - 1 : id;
            return 0;
        }
        int64_t t = w->r->end[id];
        if (need[i].transfer) {
            if (w->arrive)
                t = w->arrive[id];
            else
                t += tu_cost_transfer(w->c, need[i].backward, need[i].rank, rank);
        }
        at = t > at ? t : at;
    }
    if (op->kind == TU_OP_F && w->c->arrive && op->mb < w->c->arrivals &&
        !tui_within(w->s, op->stage))
        at = w->c->arrive[op->mb] > at ? w->c->arrive[op->mb] : at;
    if (op->kind <= TU_OP_R && w->gathered[op->stage] > at)
        at = w->gathered[op->stage];
    return at;
}

/* Rank that takes the result of an operation over a link, or the rank itself. */
static uint32_t receiver(const struct run *w, const struct tu_op *op, uint32_t rank)
{
    const struct tu_sched *s = w->s;
    uint32_t k = tui_within(s, op->stage);
    if (s->deps == TU_DEPS_DIFFUSION) /* a broadcast, on the link to the next rank */
        return op->mb >= s->warm && s->ranks > 1 ? (rank + 1) % s->ranks : rank;
    bool lowered = w->x.at[TUI_AT_SEND_F] || w->x.at[TUI_AT_SEND_B];
    bool fwd = lowered ? op->kind == TU_OP_SEND_F : op->kind == TU_OP_F;
    bool bwd =
        lowered ? op->kind == TU_OP_SEND_B : op->kind == TU_OP_B || op->kind == TU_OP_I;
    if (fwd && k + 1 < s->stages)
        return s->place[op->stage + 1];
    if (bwd && k)
        return s->place[op->stage - 1];
    return rank;
}

/* What happens to a result that leaves its rank. */
static void send(struct run *w, const struct tu_op *op, uint32_t rank, uint32_t id)
{
    uint32_t to;
    if (!w->arrive || (to = receiver(w, op, rank)) == rank)
        return;
    bool back = op->kind != TU_OP_F && op->kind != TU_OP_SEND_F;
    int64_t t = w->r->end[id], busy = tu_cost_transfer(w->c, back, rank, to);
    if (w->link) {
        int64_t *link = &w->link[(size_t)rank * w->s->ranks + to];
        t = *link > t ? *link : t;
        *link = t + busy;
    }
    w->arrive[id] = t + busy;
    if (w->c->blocking)
        w->clock[ON_RANK][rank] = t + busy;
}

static void finish(struct run *w, uint32_t rank, uint32_t id, int64_t start, int64_t end)
{
    struct tu_sim *r = w->r;
    const struct tu_op *op = &w->s->op[rank][w->next[rank]];
    r->start[id] = start;
    r->end[id] = end;
    if (op->kind == TU_OP_UNSHARD)
        w->gathered[op->stage] = end;
    send(w, op, rank, id);
    w->next[rank]++;
    for (uint32_t i = w->first_waiter[id]; i != TUI_NONE; i = w->next_waiter[i])
        w->ready[(w->head + w->count++) % w->s->ranks] = i;
    w->first_waiter[id] = TUI_NONE;
}

static int64_t duration(const struct run *w, const struct tu_op *op)
{
    if (op->kind == TU_OP_RECV_F || op->kind == TU_OP_RECV_B ||
        op->kind == TU_OP_SEND_F || op->kind == TU_OP_SEND_B || op->kind == TU_OP_RESHARD)
        return 0;
    return tu_cost_time(w->c, op->kind, op->stage, op->mb);
}

/* Run the next operation of a rank, or both of a pair; TUI_NONE when done, else what it
 * waits for. */
static uint32_t step(struct run *w, uint32_t rank)
{
    const struct tu_op *op = &w->s->op[rank][w->next[rank]];
    uint32_t id = (uint32_t)w->x.base[rank] + w->next[rank], missing;
    int64_t at = inputs(w, op, rank, &missing);
    if (missing != TUI_NONE)
        return missing;
    int64_t took = duration(w, op);
    enum queue q = (enum queue)queue_of[op->kind];
    int64_t *clock = &w->clock[q][rank], here = w->clock[ON_RANK][rank];
    if (op->flags & TU_OP_PAIRED) {
        int64_t other = inputs(w, op + 1, rank, &missing);
        if (missing != TUI_NONE)
            return missing;
        at = other > at ? other : at;
        took = w->c->pair >= 0 ? w->c->pair : took + duration(w, op + 1);
    }
    int64_t start = at > here ? at : here;
    start = *clock > start ? *clock : start;
    if (op->kind == TU_OP_RECV_F || op->kind == TU_OP_RECV_B)
        w->r->blocked[rank] += start - here;
    *clock = start + took;
    if (q == ON_RANK)
        w->r->busy[rank] += took;
    bool paired = op->flags & TU_OP_PAIRED;
    finish(w, rank, id, start, start + took);
    if (paired)
        finish(w, rank, id + 1, start, start + took);
    return TUI_NONE;
}

/* A transfer between ranks may be paid by a rank's own clock or by a link: kept apart. */
static int prepare(struct run *w, struct tu_err *err)
{
    const struct tu_sched *s = w->s;
    struct tu_sim *r = w->r;
    size_t ops = w->x.ops, ranks = s->ranks;
    r->ops = ops;
    r->ranks = s->ranks;
    r->start = tu_alloc(ops, sizeof *r->start, err);
    r->end = tu_alloc(ops, sizeof *r->end, err);
    r->busy = tu_calloc(ranks, sizeof *r->busy, err);
    r->first = tu_calloc(ranks, sizeof *r->first, err);
    r->last = tu_calloc(ranks, sizeof *r->last, err);
    r->blocked = tu_calloc(ranks, sizeof *r->blocked, err);
    for (int q = 0; q < QUEUES; q++)
        if (!(w->clock[q] = tu_calloc(ranks, sizeof *w->clock[q], err)))
            return TU_ENOMEM;
    w->gathered = tu_calloc((size_t)s->pipelines * s->stages, sizeof *w->gathered, err);
    w->next = tu_calloc(ranks, sizeof *w->next, err);
    w->first_waiter = tu_alloc(ops, sizeof *w->first_waiter, err);
    w->next_waiter = tu_alloc(ranks, sizeof *w->next_waiter, err);
    w->ready = tu_alloc(ranks, sizeof *w->ready, err);
    if (!r->start || !r->end || !r->busy || !r->first || !r->last || !r->blocked ||
        !w->gathered || !w->next || !w->first_waiter || !w->next_waiter || !w->ready)
        return TU_ENOMEM;
    if (w->c->contend || w->c->blocking) {
        w->arrive = tu_calloc(ops, sizeof *w->arrive, err);
        if (w->c->contend && w->arrive)
            w->link = tu_calloc(ranks * ranks, sizeof *w->link, err);
        if (!w->arrive || (w->c->contend && !w->link))
            return TU_ENOMEM;
    }
    memset(r->end, 0xff, ops * sizeof *r->end);
    memset(w->first_waiter, 0xff, ops * sizeof *w->first_waiter);
    for (uint32_t i = 0; i < s->ranks; i++)
        w->ready[w->count++] = i;
    return 0;
}

static int deadlock(struct run *w, struct tu_buf *report, struct tu_err *err)
{
    const struct tu_sched *s = w->s;
    int rc = report ? tu_buf_text(report, "deadlock: no rank can go on\n", err) : 0;
    for (uint32_t r = 0; report && r < s->ranks && !rc; r++) {
        if (w->next[r] >= s->n[r]) {
            rc = tu_buf_printf(report, err, "rank %u: done\n", r);
            continue;
        }
        const struct tu_op *op = &s->op[r][w->next[r]];
        uint32_t missing = TUI_NONE, on = 0;
        inputs(w, op, r, &missing);
        if (missing == TUI_NONE && op->flags & TU_OP_PAIRED)
            inputs(w, op + 1, r, &missing);
        char text[40];
        rc = tui_where(report, s, r, w->next[r], err);
        if (rc)
            break;
        if (missing == TUI_NONE - 1)
            rc = tu_buf_text(report, "its input is never made\n", err);
        else {
            const struct tu_op *dep = tui_op(&w->x, missing, &on);
            rc = tu_buf_printf(report, err, "waits for %s, position %zu of rank %u\n",
                               tu_op_text(dep, s->slices, text), missing - w->x.base[on],
                               on);
        }
    }
    return rc;
}

static bool advance(struct run *w)
{
    size_t left = w->x.ops;
    while (w->count) {
        uint32_t rank = w->ready[w->head];
        w->head = (w->head + 1) % w->s->ranks;
        w->count--;
        while (w->next[rank] < w->s->n[rank]) {
            uint32_t before = w->next[rank], missing = step(w, rank);
            if (missing == TUI_NONE) {
                left -= w->next[rank] - before;
                continue;
            }
            if (missing != TUI_NONE - 1) {
                w->next_waiter[rank] = w->first_waiter[missing];
                w->first_waiter[missing] = rank;
            }
            break;
        }
    }
    return left == 0;
}

/* First and last moment of each rank, and what follows from them. */
static void totals(struct run *w)
{
    struct tu_sim *r = w->r;
    for (uint32_t k = 0; k < w->s->ranks; k++) {
        int64_t lo = INT64_MAX, hi = 0;
        for (size_t i = w->x.base[k]; i < w->x.base[k + 1]; i++) {
            lo = r->start[i] < lo ? r->start[i] : lo;
            hi = r->end[i] > hi ? r->end[i] : hi;
        }
        r->first[k] = lo == INT64_MAX ? 0 : lo;
        r->last[k] = hi;
        r->makespan = hi > r->makespan ? hi : r->makespan;
        r->span = hi - r->first[k] > r->span ? hi - r->first[k] : r->span;
        r->ideal = r->busy[k] > r->ideal ? r->busy[k] : r->ideal;
    }
    for (uint32_t k = 0; k < w->s->ranks; k++)
        for (size_t i = 0; i < w->s->n[k]; i++)
            r->sent += receiver(w, &w->s->op[k][i], k) != k;
}

int tu_sim_run(struct tu_sim *out, const struct tu_sched *s, const struct tu_cost *c,
               struct tu_buf *report, size_t *faults, struct tu_err *err)
{
    struct tu_sim r = {0};
    struct run w = {.s = s, .c = c, .r = &r};
    *faults = 0;
    int rc = tui_index_make(&w.x, s, report, faults, err);
    if (!rc && !*faults)
        rc = tui_cost_limit(c, w.x.ops, err);
    if (!rc && !*faults)
        rc = prepare(&w, err);
    if (!rc && !*faults && !advance(&w)) {
        *faults = 1;
        rc = deadlock(&w, report, err);
    }
    if (!rc && !*faults) {
        totals(&w);
        r.base = w.x.base;
        w.x.base = NULL;
        rc = tui_memory_peaks(&r, s, c, err);
    }
    tui_index_release(&w.x);
    for (int q = 0; q < QUEUES; q++)
        tu_free(w.clock[q]);
    tu_free(w.link);
    tu_free(w.arrive);
    tu_free(w.gathered);
    tu_free(w.next);
    tu_free(w.first_waiter);
    tu_free(w.next_waiter);
    tu_free(w.ready);
    if (rc || *faults)
        tu_sim_release(&r);
    *out = r;
    return rc;
}

void tu_sim_release(struct tu_sim *r)
{
    tu_free(r->base);
    tu_free(r->start);
    tu_free(r->end);
    tu_free(r->busy);
    tu_free(r->first);
    tu_free(r->last);
    tu_free(r->blocked);
    tu_free(r->peak);
    tu_free(r->versions);
    tu_free(r->staleness);
    *r = (struct tu_sim){0};
}

double tu_sim_bubble(const struct tu_sim *r, bool makespan)
{
    int64_t x = makespan ? r->makespan : r->span;
    return x ? (double)(x - r->ideal) / (double)x : 0;
}
