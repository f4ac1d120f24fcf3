/* SPDX-License-Identifier: Apache-2.0 */
/* optimize.c: the best schedule found for the given times under a memory cap, with a
 * proof or a gap.
 *
 * Starts are the schedules of the table that fit; then beams of growing width, which are
 * exact when nothing is dropped; then annealing. Effort is counted in states, not in
 * time, so the result is the same everywhere. */
#include <string.h>
#include "sched/anneal.h"
#include "sched/families.h"
#include "sched/problem.h"

#define BEAM_CELLS 128 /* stages times micro-batches that beams search with full effort */
#define STATE_CELLS 4096 /* so many that they search at all */
#define MOVE_CELLS 512   /* so many that annealing moves with full effort */

struct attempt {
    const struct tui_problem *x;
    const struct tu_optimize *how;
    struct tui_order best;
    const char *method;
    int64_t bound, stop; /* stop: good enough */
    uint64_t states;
    bool optimal;
    struct tui_pace pace;
};

static void take(struct attempt *a, struct tui_order *o, const char *method)
{
    if (a->best.op && a->best.value <= o->value) {
        tui_order_release(o);
        return;
    }
    tui_order_release(&a->best);
    a->best = *o;
    a->method = method;
    *o = (struct tui_order){0};
}

/* A row of the table as a start; one that is not legal here is passed over. */
static int start(struct attempt *a, const struct tu_schedule *row,
                 const struct tu_sched_params *q, struct tu_err *err)
{
    struct tu_sched *s = NULL;
    struct tui_order o = {0};
    bool fits = false;
    int rc = tu_schedule_make(&s, row, q, err);
    if (rc)
        return rc == TU_EUSAGE ? 0 : rc;
    rc = tui_order_of(a->x, s, &o, &fits, err);
    if (!rc && fits)
        rc = tui_order_value(a->x, &o, err);
    if (!rc && fits && o.value < INT64_MAX)
        take(a, &o, row->name);
    tui_order_release(&o);
    tu_sched_free(s);
    return rc;
}

/* Rows that search for seconds; v-search has all that v-zb finds. */
static bool slow(const struct tu_schedule *row)
{
    return row == &tui_v_search || row == &tui_v_zb;
}

static bool done(const struct attempt *a)
{
    return a->best.op && (a->best.value <= a->bound || a->best.value <= a->stop);
}

/* States that beams may look at: each takes as long as it has operations, and of large
 * problems no beam sees more than a sliver. Past STATE_CELLS not even a narrow one ends. */
static uint64_t beam_effort(const struct attempt *a)
{
    uint64_t cells = (uint64_t)a->x->stages * a->x->m, most = BEAM_CELLS;
    if (cells <= most)
        return a->how->effort;
    if (cells > STATE_CELLS)
        return 0;
    return (uint64_t)((double)a->how->effort * (double)(most * most) /
                      (double)(cells * cells));
}

static int beams(struct attempt *a, struct tu_err *err)
{
    static const uint32_t width[] = {1, 8, 64, 512, 4096, 32768};
    uint64_t effort = beam_effort(a);
    int rc = 0;
    for (size_t k = 0; k < sizeof width / sizeof *width && !rc && !done(a) && !a->optimal;
         k++) {
        struct tui_order o = {0};
        struct tui_beam_result r;
        if (a->states >= effort)
            break;
        int64_t below = a->best.op ? a->best.value : INT64_MAX;
        rc = tui_beam_search(a->x,
                             &(struct tui_beam){width[k], effort - a->states, &a->pace},
                             below, &o, &r, err);
        a->states += r.states;
        a->pace.done = a->states;
        if (!rc && r.found && o.value < INT64_MAX)
            take(a, &o, "beam");
        tui_order_release(&o);
        a->optimal = !rc && r.exact;
    }
    return rc;
}

static uint64_t move_effort(const struct attempt *a)
{
    uint64_t cells = (uint64_t)a->x->stages * a->x->m, tries = a->how->effort / 4;
    if (cells > MOVE_CELLS) /* each takes as long as it has operations */
        tries = (uint64_t)((double)tries * MOVE_CELLS / (double)cells);
    return tries;
}

static int improve(struct attempt *a, struct tu_err *err)
{
    uint64_t tries = move_effort(a);
    if (done(a) || a->optimal || !a->best.op || !tries)
        return 0;
    int64_t target = a->bound > a->stop ? a->bound : a->stop, before = a->best.value;
    a->pace.done = a->pace.total - tries;
    int rc = tui_anneal(
        a->x, &a->best,
        &(struct tui_moves){
            .tries = tries, .target = target, .seed = a->how->seed, .pace = &a->pace},
        err);
    if (!rc && a->best.value < before)
        a->method = "annealing";
    return rc;
}

static int attempt(struct attempt *a, const struct tu_sched_params *q, struct tu_err *err)
{
    const struct tui_problem *x = a->x;
    bool v = x->stages == 2 * x->p && x->place[x->stages - 1] == 0;
    int64_t work = tui_bound_work(x), path = tui_bound_path(x);
    int rc = 0;
    a->bound = work > path ? work : path;
    a->pace = (struct tui_pace){a->how->job, 0, beam_effort(a) + move_effort(a)};
    for (size_t k = 0; tu_schedules[k] && !rc; k++)
        if (!tu_schedules[k]->rank && !slow(tu_schedules[k]))
            rc = start(a, tu_schedules[k], q, err);
    if (!rc && v && !done(a) && a->how->effort >= 100000)
        rc = start(a, &tui_v_search, q, err);
    if (!rc)
        rc = beams(a, err);
    if (!rc)
        rc = improve(a, err);
    a->optimal = a->optimal || (a->best.op && a->best.value <= a->bound);
    if (a->optimal && a->best.op)
        a->bound = a->best.value;
    return rc;
}

static int placement(const struct tu_optimize *how, uint32_t **place, uint32_t *stages,
                     struct tu_err *err)
{
    uint32_t p = how->q->p, v = how->q->v ? how->q->v : 1;
    *stages = p * v;
    *place = tu_alloc(*stages, sizeof **place, err);
    for (uint32_t k = 0; *place && k < *stages; k++)
        (*place)[k] = how->snake && k / p % 2 ? p - 1 - k % p : k % p;
    return *place ? 0 : TU_ENOMEM;
}

static int fill(struct tu_optimized *out, struct attempt *a, int64_t cap,
                struct tu_err *err)
{
    out->value = a->best.value;
    out->bound = a->bound;
    out->optimal = a->optimal;
    out->states += a->states;
    out->method = a->method;
    out->cap = cap;
    int rc = tui_order_sched(&out->sched, a->x, &a->best, err);
    if (!rc)
        memcpy(out->sched->name, "optimized", 10);
    return rc;
}

/* One optimisation under one cap; out->sched stays NULL when no schedule was found. */
static int under(struct tu_optimized *out, const struct tu_optimize *how, int64_t cap,
                 int64_t stop, const uint32_t *place, uint32_t stages, struct tu_err *err)
{
    struct tu_sched_params q = *how->q;
    struct tui_problem x;
    q.cap = cap;
    q.v = stages / q.p;
    q.spec = NULL;
    int rc = tui_problem_make(&x, place, stages, &q, err);
    if (rc)
        return rc;
    struct attempt a = {.x = &x, .how = how, .stop = stop};
    rc = attempt(&a, &q, err);
    if (!rc && a.best.op)
        rc = fill(out, &a, cap, err);
    else if (!rc) {
        out->states += a.states;
        out->optimal = a.optimal; /* proven: nothing runs under this cap */
    }
    tui_order_release(&a.best);
    tui_problem_release(&x);
    return rc;
}

/* The least cap under which the time is met: upwards, so the last refusal is the proof.
 */
static int least_memory(struct tu_optimized *out, const struct tu_optimize *how,
                        const uint32_t *place, uint32_t stages, struct tu_err *err)
{
    const struct tu_cost *c = how->q->cost;
    int64_t full = c && c->mem_b ? c->mem_b : 2;
    int64_t step =
        c && c->mem_b && c->release == TU_MEM_SPLIT && c->mem_w ? c->mem_w : full / 2;
    int64_t most = full * how->q->m * (int64_t)(stages / how->q->p);
    int64_t open = 0; /* the least cap that was not refuted */
    int rc = 0;
    for (int64_t cap = full; cap <= most && !rc; cap += step ? step : full) {
        struct tu_optimized one = {0};
        rc = under(&one, how, cap, how->time_cap, place, stages, err);
        out->states += one.states;
        if (!rc && one.sched && one.value <= how->time_cap) {
            one.states = out->states;
            one.optimal = !open;
            one.bound = open ? open : cap;
            *out = one;
            return 0;
        }
        if (!open && one.bound <= how->time_cap && !one.optimal)
            open = cap;
        tu_sched_free(one.sched);
    }
    return rc ? rc
              : tu_fail(err, TU_EUSAGE,
                        "optimize: the time cap is not met with any memory");
}

int tu_sched_optimize(struct tu_optimized *out, const struct tu_optimize *how,
                      struct tu_err *err)
{
    uint32_t *place = NULL, stages;
    *out = (struct tu_optimized){0};
    int rc = placement(how, &place, &stages, err);
    if (!rc && how->timed)
        rc = least_memory(out, how, place, stages, err);
    else if (!rc)
        rc = under(out, how, how->q->cap, 0, place, stages, err);
    if (!rc && !out->sched)
        rc = tu_fail(err, TU_EUSAGE, "optimize: no schedule %s under this memory cap",
                     out->optimal ? "exists" : "was found");
    tu_free(place);
    return rc;
}

int tu_optimize_lp(struct tu_buf *out, const struct tu_optimize *how, struct tu_err *err)
{
    uint32_t *place = NULL, stages;
    struct tui_problem x = {0};
    int rc = placement(how, &place, &stages, err);
    if (!rc)
        rc = tui_problem_make(&x, place, stages, how->q, err);
    if (!rc)
        rc = tui_lp_write(out, &x, err);
    tui_problem_release(&x);
    tu_free(place);
    return rc;
}

int tu_optimize_solution(struct tu_optimized *out, const struct tu_optimize *how,
                         const char *text, size_t n, struct tu_err *err)
{
    uint32_t *place = NULL, stages;
    struct tui_problem x = {0};
    struct attempt a = {.x = &x, .method = "solver"};
    *out = (struct tu_optimized){0};
    int rc = placement(how, &place, &stages, err);
    if (!rc)
        rc = tui_problem_make(&x, place, stages, how->q, err);
    if (!rc)
        rc = tui_lp_read(&a.best, &x, text, n, err);
    if (!rc)
        rc = tui_order_value(&x, &a.best, err);
    if (!rc && a.best.value == INT64_MAX)
        rc = tu_fail(err, TU_EFORMAT, "solution: its order cannot run under the cap");
    if (!rc) {
        int64_t work = tui_bound_work(&x), path = tui_bound_path(&x);
        a.bound = work > path ? work : path;
        a.optimal = a.best.value <= a.bound;
        rc = fill(out, &a, how->q->cap, err);
    }
    tui_order_release(&a.best);
    tui_problem_release(&x);
    tu_free(place);
    return rc;
}
