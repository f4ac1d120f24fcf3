/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: a pattern's tasks over clocks, or over a transport.
 *
 * The device that computes is a clock in both cases: a computation begins when the one
 * before it and the task it waits for are over, and takes as long as it says. A rank that
 * replays sleeps until an operation may begin; the operation itself is real. */
#include <math.h>
#include <time.h>
#include "plan.h"

static bool is_operation(const struct tu_task *t)
{
    return t->seconds < 0;
}

/* Times since the step began, so that they round as its sum of computations does: a step
 * is never shorter than what it computes. */
struct clocks {
    double *end;         /* of each task */
    double device, wire; /* when each of the two is free */
    double compute;      /* of the step so far */
};

static double begins(const struct clocks *c, const struct tu_task *t)
{
    double free = is_operation(t) ? c->wire : c->device;
    return t->after == TU_NOBODY ? free : fmax(free, c->end[t->after]);
}

static void computed(struct clocks *c, const struct tu_task *t, size_t i)
{
    c->device = c->end[i] = begins(c, t) + t->seconds;
    c->compute += t->seconds;
}

static void operated(struct clocks *c, const struct tu_task *t, size_t i, double from,
                     double to, struct tu_step_cost *out)
{
    c->wire = c->end[i] = to;
    out->comm += to - from;
    out->operations++;
    out->bytes += t->bytes;
}

static void conclude(const struct clocks *c, struct tu_step_cost *out)
{
    out->seconds += fmax(c->device, c->wire);
    out->compute += c->compute;
    out->exposed = out->seconds - out->compute;
}

int tu_tasks_predict(const struct tu_tasks *t,
                     int (*cost)(void *ctx, const struct tu_task *t, double *seconds,
                                 struct tu_err *err),
                     void *ctx, struct tu_step_cost *out, struct tu_err *err)
{
    struct clocks c = {.end = tu_calloc(t->n, sizeof *c.end, err)};
    int code = c.end ? 0 : TU_ENOMEM;
    *out = (struct tu_step_cost){0};
    for (size_t i = 0; i < t->n && !code; i++) {
        double from, takes = 0;
        if (!is_operation(&t->task[i])) {
            computed(&c, &t->task[i], i);
            continue;
        }
        from = begins(&c, &t->task[i]);
        code = cost(ctx, &t->task[i], &takes, err);
        operated(&c, &t->task[i], i, from, from + takes, out);
    }
    if (!code)
        conclude(&c, out);
    tu_free(c.end);
    return code;
}

/* At a rank ------------------------------------------------------------------------ */

struct replay {
    struct tu_rank *rank;
    const struct tu_tasks *tasks;
    uint64_t seed, wrong;
    size_t *same;          /* the first task with the same operation: it has the plan */
    struct tu_exec **exec; /* of the first tasks */
    uint64_t *count;
    struct clocks clock;
    unsigned char *in, *out;
};

static void sleep_until(double when)
{
    double left = when - tu_clock();
    if (left <= 0)
        return;
    struct timespec t = {(time_t)left, (long)((left - floor(left)) * 1e9)};
    nanosleep(&t, NULL);
}

static struct tu_case case_of(const struct replay *p, size_t i)
{
    return (struct tu_case){.coll = p->tasks->task[i].coll,
                            .op = TU_SUM,
                            .dtype = TU_F32,
                            .ranks = tu_rank_size(p->rank),
                            .count = p->count[p->same[i]],
                            .seed = p->seed,
                            .iter = i};
}

/* The plan of task i; the elements of its larger buffer. */
static int plan_task(struct replay *p, size_t i, uint64_t *room, struct tu_err *err)
{
    const struct tu_task *t = &p->tasks->task[i];
    const struct tu_collective_row *row = &tu_collective_rows[t->coll];
    uint32_t ranks = tu_rank_size(p->rank);
    bool blocks = row->in == 2 || row->out == 2;
    struct tu_spec spec;
    struct tu_plan plan;
    p->count[i] = t->bytes / sizeof(float) / (blocks ? ranks : 1);
    *room = p->count[i] * (blocks ? ranks : 1);
    const char *name = tu_algorithm_auto(t->coll, ranks, (double)t->bytes,
                                         tu_rank_is_shared(p->rank), TU_ORDER_ANY);
    if (!name)
        return tu_fail(err, TU_EUSAGE, "no algorithm for %s", row->name);
    spec = (struct tu_spec){.name = (char *)(uintptr_t)name};
    int code = tu_plan_make(&plan, t->coll, &spec, ranks, 0, p->count[i], err);
    return code ? code
                : tu_exec_new(&p->exec[i], p->rank, &plan, TU_F32, TU_SUM, TU_ORDER_ANY,
                              1, err);
}

static int prepare(struct replay *p, struct tu_err *err)
{
    const struct tu_tasks *t = p->tasks;
    uint64_t most = 0, room = 0;
    p->same = tu_calloc(t->n, sizeof *p->same, err);
    p->exec = tu_calloc(t->n, sizeof *p->exec, err);
    p->count = tu_calloc(t->n, sizeof *p->count, err);
    p->clock.end = tu_calloc(t->n, sizeof *p->clock.end, err);
    if (!p->same || !p->exec || !p->count || !p->clock.end)
        return TU_ENOMEM;
    for (size_t i = 0; i < t->n; i++) {
        size_t k = 0;
        if (!is_operation(&t->task[i]))
            continue;
        while (k < i && (!p->exec[k] || t->task[k].coll != t->task[i].coll ||
                         t->task[k].bytes != t->task[i].bytes))
            k++;
        p->same[i] = k;
        int code = k < i ? 0 : plan_task(p, i, &room, err);
        if (code)
            return code;
        most = tu_max(most, room);
    }
    p->in = tu_calloc(most, sizeof(float), err);
    p->out = tu_calloc(most, sizeof(float), err);
    return p->in && p->out ? 0 : TU_ENOMEM;
}

static void dispose(struct replay *p)
{
    for (size_t i = 0; p->exec && i < p->tasks->n; i++)
        tu_exec_free(p->exec[i]);
    tu_free(p->same);
    tu_free(p->exec);
    tu_free(p->count);
    tu_free(p->clock.end);
    tu_free(p->in);
    tu_free(p->out);
}

static int one_step(struct replay *p, struct tu_step_cost *out, struct tu_err *err)
{
    int code = tu_rank_barrier(p->rank, err);
    const double start = tu_clock();
    p->clock.device = p->clock.wire = p->clock.compute = 0;
    for (size_t i = 0; i < p->tasks->n && !code; i++) {
        const struct tu_task *t = &p->tasks->task[i];
        if (!is_operation(t)) {
            computed(&p->clock, t, i);
            continue;
        }
        sleep_until(start + begins(&p->clock, t));
        double from = tu_clock() - start;
        code = tu_exec_run(p->exec[p->same[i]], p->in, p->out, err);
        operated(&p->clock, t, i, from, tu_clock() - start, out);
    }
    if (!code)
        sleep_until(start + p->clock.device);
    conclude(&p->clock, out);
    return code;
}

/* Every operation once on data whose result is known. */
static int verify(struct replay *p, struct tu_err *err)
{
    int code = 0;
    uint64_t theirs;
    for (size_t i = 0; i < p->tasks->n && !code; i++) {
        struct tu_verdict v;
        if (!is_operation(&p->tasks->task[i]))
            continue;
        struct tu_case c = case_of(p, i);
        tu_case_input(&c, tu_rank_id(p->rank), p->in);
        code = tu_exec_run(p->exec[p->same[i]], p->in, p->out, err);
        if (!code)
            code = tu_case_check(&c, tu_rank_id(p->rank), p->out, &v, err);
        p->wrong += code ? 0 : v.wrong;
    }
    uint32_t n = tu_rank_size(p->rank), me = tu_rank_id(p->rank);
    uint64_t mine = p->wrong;
    for (uint32_t k = 1; k < n && !code; k++) {
        struct tu_move m = {.to = tui_turn(me, k, n),
                            .from = tui_turn(me, -(int64_t)k, n),
                            .out = &mine,
                            .out_bytes = sizeof mine,
                            .in = &theirs,
                            .in_bytes = sizeof theirs};
        code = tu_rank_move(p->rank, &m, err);
        p->wrong += code ? 0 : theirs;
    }
    return code;
}

int tu_tasks_run(struct tu_rank *r, const struct tu_tasks *t, uint64_t steps,
                 uint64_t seed, struct tu_replay_result *out, struct tu_err *err)
{
    struct replay p = {.rank = r, .tasks = t, .seed = seed};
    *out = (struct tu_replay_result){.steps = steps};
    int code = prepare(&p, err);
    if (!code)
        code = verify(&p, err);
    struct tu_traffic before = tu_rank_traffic(r);
    for (uint64_t i = 0; i < steps && !code; i++)
        code = one_step(&p, &out->step, err);
    dispose(&p);
    if (code || !steps)
        return code;
    struct tu_step_cost *s = &out->step;
    out->wrong = p.wrong;
    out->sent = (tu_rank_traffic(r).bytes - before.bytes) / steps;
    out->messages = (tu_rank_traffic(r).messages - before.messages) / steps;
    s->seconds /= (double)steps;
    s->compute /= (double)steps;
    s->comm /= (double)steps;
    s->exposed /= (double)steps;
    s->operations /= steps;
    s->bytes /= steps;
    return 0;
}
