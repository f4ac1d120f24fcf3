/* SPDX-License-Identifier: Apache-2.0 */
/* anneal.c: simulated annealing over the orders of all ranks.
 *
 * A move takes one operation of a rank to another place in its list, a near one mostly.
 * An order is judged by its worst rank and, less, by the sum of all ranks. Evaluation is
 * one pass in a fixed topological order of the present solution where that is still one,
 * else a general one. Numbers come from Philox; temperatures are integers: the result is
 * the same everywhere. */
#include <string.h>
#include "sched/anneal.h"

struct eval {
    const struct tui_problem *x;
    struct tui_order *o;
    int64_t *f_end, *i_end; /* [stages][m] */
    uint32_t *n;            /* [stages][3] */
    size_t *next;           /* [p] */
    int64_t *clock, *mem;   /* [p] */
    uint32_t *queue;        /* [p]: ranks that may go on */
    uint32_t *waiter;       /* [2][stages][m]: rank that waits for an F or I, +1 */
    uint8_t *queued;        /* [p] */
};

struct score {
    int64_t worst, sum;
};

/* Run one rank as far as it goes. False when memory overflows. */
static bool advance(struct eval *e, uint32_t r, uint32_t *tail)
{
    const struct tui_problem *x = e->x;
    const struct tui_order *o = e->o;
    size_t m = x->m, cells = (size_t)x->stages * m;
    for (; o->base[r] + e->next[r] < o->base[r + 1]; e->next[r]++) {
        uint32_t v = o->op[o->base[r] + e->next[r]], s = v / 4, kind = v % 4;
        uint32_t *n = &e->n[3 * s];
        int64_t at = e->clock[r];
        uint32_t wake = 0;
        if (kind == TU_OP_F) {
            size_t mb = n[0];
            if (s && e->n[3 * (s - 1)] <= mb) {
                e->waiter[(s - 1) * m + mb] = r + 1;
                return true;
            }
            int64_t in = s ? e->f_end[(s - 1) * m + mb] + x->c_fwd[s] : 0;
            at = in > at ? in : at;
            e->mem[r] += x->mem_f;
            if (x->cap && e->mem[r] > x->cap)
                return false;
            e->clock[r] = e->f_end[s * m + mb] = at + x->f[s];
            wake = e->waiter[s * m + mb];
            n[0]++;
        } else if (kind == TU_OP_I) {
            size_t mb = n[1];
            bool last = s + 1 == x->stages;
            if (n[0] <= mb)
                return false; /* its own F stands behind it */
            if (!last && e->n[3 * (s + 1) + 1] <= mb) {
                e->waiter[cells + (s + 1) * m + mb] = r + 1;
                return true;
            }
            int64_t in = last ? 0 : e->i_end[(s + 1) * m + mb] + x->c_bwd[s];
            at = in > at ? in : at;
            e->mem[r] -= x->mem_i;
            e->clock[r] = e->i_end[s * m + mb] = at + x->i[s];
            wake = e->waiter[cells + s * m + mb];
            n[1]++;
        } else {
            if (n[1] <= n[2])
                return false;
            e->mem[r] -= x->mem_w;
            e->clock[r] = at + x->w[s];
            n[2]++;
        }
        if (wake && wake != r + 1 && !e->queued[wake - 1]) {
            e->queued[wake - 1] = 1;
            e->queue[(*tail)++ % x->p] = wake - 1;
        }
    }
    return true;
}

static bool evaluate(struct eval *e, struct score *out)
{
    const struct tui_problem *x = e->x;
    size_t cells = (size_t)x->stages * x->m;
    uint32_t head = 0, tail = 0;
    memset(e->n, 0, 3 * x->stages * sizeof *e->n);
    memset(e->next, 0, x->p * sizeof *e->next);
    memset(e->clock, 0, x->p * sizeof *e->clock);
    memset(e->mem, 0, x->p * sizeof *e->mem);
    memset(e->waiter, 0, 2 * cells * sizeof *e->waiter);
    for (uint32_t r = 0; r < x->p; r++) {
        e->queue[tail++ % x->p] = r;
        e->queued[r] = 1;
    }
    while (head != tail) {
        uint32_t r = e->queue[head++ % x->p];
        e->queued[r] = 0;
        if (!advance(e, r, &tail))
            return false;
    }
    *out = (struct score){0, 0};
    for (uint32_t r = 0; r < x->p; r++) {
        if (e->o->base[r] + e->next[r] < e->o->base[r + 1])
            return false;
        int64_t t = e->clock[r] - x->begin[r];
        out->worst = t > out->worst ? t : out->worst;
        out->sum += t;
    }
    return true;
}

/* A stream of 32-bit numbers. */
struct dice {
    struct tu_rng rng;
    uint64_t i;
};

static uint32_t below(struct dice *d, uint32_t n)
{
    return (uint32_t)((uint64_t)tu_rng_u32(&d->rng, d->i++) * n >> 32);
}

/* Take the operation at `from` to `to`; the ones between move by one. */
static void shift(uint32_t *op, size_t from, size_t to)
{
    uint32_t v = op[from];
    if (from < to)
        memmove(op + from, op + from + 1, (to - from) * sizeof *op);
    else
        memmove(op + to + 1, op + to, (from - to) * sizeof *op);
    op[to] = v;
}

/* worst·64 + share of the sum: what annealing compares. */
static int64_t energy(const struct score *s, uint32_t p)
{
    return s->worst * 64 + s->sum * 16 / p;
}

static void search(struct eval *e, struct tui_order *best, const struct tui_moves *how,
                   struct dice *d)
{
    uint64_t tries = how->tries;
    const struct tui_problem *x = e->x;
    struct tui_order *o = e->o;
    size_t ops = o->base[x->p];
    struct score now, s;
    if (!evaluate(e, &now))
        return;
    int64_t present = energy(&now, x->p), unit = x->f[0] + x->i[0] + x->w[0];
    best->value = now.worst;
    for (uint64_t t = 0; t < tries && best->value > how->target; t++) {
        if (how->pace && t % 256 == 0)
            tu_job_progress(how->pace->job, how->pace->done + t, how->pace->total);
        uint32_t r = below(d, x->p);
        size_t len = o->base[r + 1] - o->base[r];
        if (len < 2)
            continue;
        size_t from = below(d, (uint32_t)len), span = below(d, 4) ? 3 : 24;
        size_t step = 1 + below(d, (uint32_t)span), to;
        if (below(d, 2))
            to = from + step < len ? from + step : len - 1;
        else
            to = from > step ? from - step : 0;
        uint32_t *op = o->op + o->base[r];
        if (to == from || op[from] == op[to])
            continue;
        shift(op, from, to);
        /* Temperature falls from a third of a micro-batch's time to nothing. */
        int64_t heat = unit * 64 / 12 / 64 * (int64_t)(64 - 64 * t / tries);
        int64_t limit =
            present + (heat > 0 ? (int64_t)below(d, 1u << 16) * heat / (1 << 16) *
                                      (int64_t)below(d, 1u << 8) / (1 << 8)
                                : 0);
        if (evaluate(e, &s) && energy(&s, x->p) <= limit) {
            present = energy(&s, x->p);
            if (s.worst < best->value) {
                best->value = s.worst;
                memcpy(best->op, o->op, ops * sizeof *o->op);
            }
        } else {
            shift(op, to, from);
        }
    }
}

int tui_anneal(const struct tui_problem *x, struct tui_order *o,
               const struct tui_moves *how, struct tu_err *err)
{
    size_t cells = (size_t)x->stages * x->m, ops = o->base[x->p];
    struct tui_order work = {.base = o->base};
    struct eval e = {.x = x, .o = &work};
    struct dice d = {{how->seed, tu_rng_stream("anneal")}, 0};
    e.f_end = tu_alloc(2 * cells, sizeof *e.f_end, err);
    e.n = tu_alloc(3 * (size_t)x->stages, sizeof *e.n, err);
    e.next = tu_alloc(x->p, sizeof *e.next, err);
    e.clock = tu_alloc(2 * (size_t)x->p, sizeof *e.clock, err);
    e.queue = tu_alloc(x->p, sizeof *e.queue, err);
    e.waiter = tu_alloc(2 * cells, sizeof *e.waiter, err);
    e.queued = tu_calloc(x->p, 1, err);
    work.op = tu_alloc(ops, sizeof *work.op, err);
    int rc =
        e.f_end && e.n && e.next && e.clock && e.queue && e.waiter && e.queued && work.op
            ? 0
            : TU_ENOMEM;
    if (!rc) {
        e.i_end = e.f_end + cells;
        e.mem = e.clock + x->p;
        memcpy(work.op, o->op, ops * sizeof *o->op);
        search(&e, o, how, &d);
    }
    tu_free(e.f_end);
    tu_free(e.n);
    tu_free(e.next);
    tu_free(e.clock);
    tu_free(e.queue);
    tu_free(e.waiter);
    tu_free(e.queued);
    tu_free(work.op);
    return rc;
}
