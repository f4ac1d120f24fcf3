/* SPDX-License-Identifier: Apache-2.0 */
/* swarm.c: a swarm of peers, simulated event by event: routing, failures, joins, moves.
 *
 * Invariants: a client has one job; a job is on its way, in the queue of one living peer
 * or stranded at a stage without any; a peer serves the head of its queue. Events at the
 * same time are taken in the order of their keys, so a run is the same everywhere. */
#include <string.h>
#include "sched/heap.h"
#include "tensorutils/sched/split.h"

#define NONE UINT32_MAX
#define TABLE_MAX ((uint64_t)1 << 22)  /* clients times peers */
#define EVENTS_MAX ((uint64_t)1 << 24) /* of a run: times far apart would never end it */

enum event { JOIN, FAIL, DONE, ARRIVE, CHECK };

struct job {
    uint32_t hop; /* 0 … stages-1 forward, then back */
    uint32_t peer, next;
    int64_t sent;
};

struct peer {
    uint32_t stage, head, tail, queued; /* of jobs */
    bool alive, away;                   /* away: loading another stage */
    uint64_t lives;
};

struct swarm {
    const struct tu_swarm *q;
    struct tui_heap heap;
    struct peer *peer;
    struct job *job;
    int64_t *mean;  /* [clients][peers]: moving average of the response, 0: not known */
    int64_t *turn;  /* [clients][peers]: who has had least is next */
    double *load;   /* [stages]: job time since the start */
    double *before; /* [stages]: the same at the last check */
    uint32_t *here; /* [stages]: jobs there now */
    struct tu_swarm_stage *stage;
    struct tu_swarm_run *out;
    int64_t now, counted;
    uint64_t started;
    struct tu_err *err;
    int code;
};

static void too_long(struct swarm *s)
{
    if (!s->code)
        s->code = tu_fail(s->err, TU_ESIZE, "swarm: times are too large to be added");
}

/* So long after now. */
static void at(struct swarm *s, int64_t after, enum event kind, uint32_t who)
{
    int64_t time;
    if (__builtin_add_overflow(s->now, after, &time))
        too_long(s);
    if (!s->code)
        s->code = tui_heap_push(
            &s->heap, (struct tui_item){time, (uint64_t)kind << 32 | who}, s->err);
}

static uint32_t stage_of(const struct swarm *s, const struct job *j)
{
    return j->hop < s->q->stages ? j->hop : 2 * s->q->stages - 1 - j->hop;
}

static int64_t work(const struct swarm *s, const struct job *j)
{
    int64_t t = s->q->peer[j->peer].service;
    return j->hop < s->q->stages ? t : 2 * t;
}

/* Up to now, so many jobs were at each stage. */
static void count(struct swarm *s, int64_t now)
{
    for (uint32_t k = 0; k < s->q->stages; k++)
        s->load[k] += (double)s->here[k] * (double)(now - s->counted);
    s->counted = s->now = now;
}

/* Weighted turns: the peer that was given least, counted by its mean response; clients
 * break ties from different ends. */
static uint32_t choose(const struct swarm *s, uint32_t client, uint32_t stage)
{
    const int64_t *turn = s->turn + (size_t)client * s->q->peers;
    uint32_t best = NONE;
    for (size_t i = 0; i < s->q->peers; i++) {
        uint32_t k = (uint32_t)((i + client) % s->q->peers);
        const struct peer *p = &s->peer[k];
        if (p->alive && !p->away && p->stage == stage &&
            (best == NONE || turn[k] < turn[best]))
            best = k;
    }
    return best;
}

/* To a peer of the stage that is next, or nowhere while it has none. */
static void dispatch(struct swarm *s, uint32_t client)
{
    struct job *j = &s->job[client];
    size_t row = (size_t)client * s->q->peers;
    j->peer = choose(s, client, stage_of(s, j));
    j->sent = s->now;
    if (j->peer == NONE)
        return;
    int64_t *turn = &s->turn[row + j->peer];
    if (__builtin_add_overflow(*turn, s->mean[row + j->peer], turn))
        too_long(s);
    at(s, s->q->transfer, ARRIVE, client);
}

static void serve(struct swarm *s, uint32_t k)
{
    struct peer *p = &s->peer[k];
    if (p->head != NONE)
        at(s, work(s, &s->job[p->head]), DONE, k);
}

static void arrive(struct swarm *s, uint32_t client)
{
    struct job *j = &s->job[client];
    struct peer *p = &s->peer[j->peer];
    uint32_t stage = stage_of(s, j);
    if (!p->alive || p->away || p->stage != stage) {
        s->out->rerouted++;
        dispatch(s, client);
        return;
    }
    j->next = NONE;
    s->here[stage]++;
    if (p->queued++)
        s->job[p->tail].next = client;
    else
        p->head = client;
    p->tail = client;
    if (p->queued == 1)
        serve(s, j->peer);
}

/* The next micro-batch of a client, if any is left. */
static void begin(struct swarm *s, uint32_t client)
{
    if (s->started >= s->q->batches)
        return;
    s->started++;
    s->job[client].hop = 0;
    dispatch(s, client);
}

static void done(struct swarm *s, uint32_t k)
{
    struct peer *p = &s->peer[k];
    uint32_t client = p->head;
    struct job *j = &s->job[client];
    int64_t *mean = &s->mean[(size_t)client * s->q->peers + k], took = s->now - j->sent;
    *mean = *mean ? (4 * *mean + took) / 5 : took;
    s->here[p->stage]--;
    s->stage[p->stage].served++;
    p->head = j->next;
    p->queued--;
    serve(s, k);
    if (++j->hop < 2 * s->q->stages) {
        dispatch(s, client);
        return;
    }
    s->out->done++;
    s->out->end = s->now;
    begin(s, client);
}

/* All that a peer has goes to others of its stage. */
static void leave(struct swarm *s, uint32_t k)
{
    struct peer *p = &s->peer[k];
    tui_heap_remove(&s->heap, (uint64_t)DONE << 32 | k);
    while (p->head != NONE) {
        uint32_t client = p->head;
        p->head = s->job[client].next;
        s->here[p->stage]--;
        s->out->rerouted++;
        dispatch(s, client);
    }
    p->queued = 0;
}

/* Jobs that found nobody. */
static void unstrand(struct swarm *s, uint32_t stage)
{
    for (uint32_t c = 0; c < s->q->clients; c++)
        if (s->job[c].peer == NONE && s->job[c].hop < 2 * s->q->stages &&
            stage_of(s, &s->job[c]) == stage)
            dispatch(s, c);
}

static void join(struct swarm *s, uint32_t k)
{
    struct peer *p = &s->peer[k];
    if (!p->alive)
        p->lives++;
    p->alive = true;
    p->away = false;
    /* It starts behind nobody: what the least used of its stage was given. */
    for (uint32_t c = 0; c < s->q->clients; c++) {
        int64_t *turn = s->turn + (size_t)c * s->q->peers;
        uint32_t least = choose(s, c, p->stage);
        turn[k] = least == NONE ? 0 : turn[least];
        s->mean[(size_t)c * s->q->peers + k] = 0;
    }
    if (s->q->mean_failure && p->lives) {
        struct tu_rng rng = {s->q->seed, tu_rng_stream("swarm")};
        uint64_t dice = tu_rng_u32(&rng, p->lives * s->q->peers + k);
        double life = (double)dice / 4294967296. * 2 * (double)s->q->mean_failure;
        at(s, (int64_t)life, FAIL, k);
    }
    unstrand(s, p->stage);
}

static uint32_t living(const struct swarm *s, uint32_t stage)
{
    uint32_t n = 0;
    for (size_t k = 0; k < s->q->peers; k++)
        n += s->peer[k].alive && s->peer[k].stage == stage;
    return n;
}

/* From the stage with the shortest queues to the one with the longest; a stage without
 * peers has the longest. */
static void rebalance(struct swarm *s)
{
    uint32_t most = NONE, least = NONE;
    double hi = 0, lo = 0;
    for (uint32_t k = 0; k < s->q->stages; k++) {
        uint32_t n = living(s, k);
        double mean = n ? (s->load[k] - s->before[k]) / n : 1e300;
        s->before[k] = s->load[k];
        if (most == NONE || mean > hi)
            most = k, hi = mean;
        if (n > 1 && (least == NONE || mean < lo))
            least = k, lo = mean;
    }
    if (least == NONE || least == most || hi <= lo)
        return;
    uint32_t who = NONE;
    for (uint32_t k = 0; k < s->q->peers; k++)
        if (s->peer[k].alive && !s->peer[k].away && s->peer[k].stage == least &&
            (who == NONE || s->peer[k].queued < s->peer[who].queued))
            who = k;
    if (who == NONE)
        return;
    s->peer[who].away = true;
    leave(s, who);
    s->peer[who].stage = most;
    s->out->moved++;
    at(s, s->q->move, JOIN, who);
}

static void fail(struct swarm *s, uint32_t k)
{
    struct peer *p = &s->peer[k];
    if (!p->alive)
        return;
    p->alive = false;
    s->out->failures++;
    leave(s, k);
    tui_heap_remove(&s->heap, (uint64_t)JOIN << 32 | k); /* it was on its way */
    if (s->q->mean_failure)
        at(s, s->q->repair, JOIN, k);
    if (s->q->rebalance && !living(s, p->stage))
        rebalance(s);
}

static void step(struct swarm *s)
{
    struct tui_item it = tui_heap_pop(&s->heap);
    uint32_t who = (uint32_t)it.key;
    count(s, it.at);
    switch ((enum event)(it.key >> 32)) {
    case JOIN: join(s, who); break;
    case FAIL: fail(s, who); break;
    case DONE: done(s, who); break;
    case ARRIVE: arrive(s, who); break;
    case CHECK:
        rebalance(s);
        /* Nothing left but checks: no job will ever go on. */
        if (s->heap.n)
            at(s, s->q->rebalance, CHECK, 0);
        break;
    }
}

/* What the weakest stage takes when all peers are there from the start. */
static double bound(const struct tu_swarm *q)
{
    double worst = 0;
    for (uint32_t k = 0; k < q->stages; k++) {
        double rate = 0;
        for (size_t i = 0; i < q->peers; i++)
            rate += q->peer[i].stage == k ? 1 / (double)q->peer[i].service : 0;
        double t = rate > 0 ? 3 * (double)q->batches / rate : 0;
        worst = t > worst ? t : worst;
    }
    return worst;
}

static int check(const struct tu_swarm *q, struct tu_err *err)
{
    if (!q->stages || !q->clients || !q->batches || !q->peers ||
        (uint64_t)q->clients * q->peers > TABLE_MAX || q->stages > 65535)
        return tu_fail(err, TU_EUSAGE,
                       "swarm: stages, clients, micro-batches and peers are needed, "
                       "clients times peers at most %llu",
                       (unsigned long long)TABLE_MAX);
    for (size_t k = 0; k < q->peers; k++)
        if (q->peer[k].stage >= q->stages || q->peer[k].service <= 0)
            return tu_fail(err, TU_EUSAGE, "swarm: peer %zu: stage %u, service %lld ns", k,
                           q->peer[k].stage, (long long)q->peer[k].service);
    return 0;
}

static void run(struct swarm *s)
{
    const struct tu_swarm *q = s->q;
    for (uint32_t k = 0; k < q->peers; k++) {
        s->peer[k] = (struct peer){.stage = q->peer[k].stage, .head = NONE};
        at(s, q->peer[k].join, JOIN, k);
        if (q->peer[k].fail < INT64_MAX)
            at(s, q->peer[k].fail, FAIL, k);
    }
    for (uint32_t c = 0; c < q->clients; c++)
        s->job[c] = (struct job){.hop = 2 * q->stages, .peer = NONE};
    while (s->heap.n && s->heap.item[0].at == 0 && !s->code)
        step(s); /* peers that are there from the start come before the clients */
    if (q->rebalance)
        at(s, q->rebalance, CHECK, 0);
    for (uint32_t c = 0; c < q->clients; c++)
        begin(s, c);
    uint64_t events = 0;
    while (s->out->done < q->batches && s->heap.n && !s->code)
        if (events++ < EVENTS_MAX)
            step(s);
        else
            s->code = tu_fail(s->err, TU_ELIMIT,
                              "swarm: after %llu events %llu of %llu micro-batches are "
                              "done: fewer, or times less far apart",
                              (unsigned long long)EVENTS_MAX,
                              (unsigned long long)s->out->done,
                              (unsigned long long)q->batches);
    for (uint32_t k = 0; k < q->stages; k++) {
        s->stage[k].peers = living(s, k);
        s->stage[k].load = s->now ? s->load[k] / (double)s->now : 0;
    }
}

int tu_swarm_run(struct tu_swarm_run *out, struct tu_swarm_stage *stage,
                 const struct tu_swarm *q, struct tu_err *err)
{
    struct swarm s = {.q = q, .out = out, .stage = stage, .err = err};
    int rc = check(q, err);
    if (rc)
        return rc;
    size_t table = (size_t)q->clients * q->peers;
    if (!(bound(q) < (double)(INT64_MAX / 4)))
        return tu_fail(err, TU_ESIZE, "swarm: times are too large to be added");
    *out = (struct tu_swarm_run){.bound = (int64_t)bound(q)};
    memset(stage, 0, q->stages * sizeof *stage);
    s.peer = tu_calloc(q->peers, sizeof *s.peer, err);
    s.job = tu_calloc(q->clients, sizeof *s.job, err);
    s.mean = tu_calloc(table, sizeof *s.mean, err);
    s.turn = tu_calloc(table, sizeof *s.turn, err);
    s.load = tu_calloc(2 * (size_t)q->stages, sizeof *s.load, err);
    s.here = tu_calloc(q->stages, sizeof *s.here, err);
    if (s.peer && s.job && s.mean && s.turn && s.load && s.here) {
        s.before = s.load + q->stages;
        run(&s);
    } else {
        s.code = TU_ENOMEM;
    }
    tu_free(s.heap.item);
    tu_free(s.peer);
    tu_free(s.job);
    tu_free(s.mean);
    tu_free(s.turn);
    tu_free(s.load);
    tu_free(s.here);
    return s.code;
}
