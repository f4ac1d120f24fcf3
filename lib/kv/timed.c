/* SPDX-License-Identifier: Apache-2.0 */
/* timed.c: a trace with a clock: admission, growth, preemption.
 *
 * Integer microseconds, first come first served with head-of-line blocking, an unlimited
 * batch, no sharing. Events are ordered by time, arrivals before tokens, then by the
 * number of the request, so that a run is one of a kind. */
#include <inttypes.h>
#include <string.h>
#include "policies.h"

struct event {
    int64_t at;
    uint32_t request;
    uint32_t round; /* of a token's request: one that was preempted since does not count */
};

struct state {
    const struct tu_kv_trace *t;
    const struct tu_kv_timed_how *how;
    struct tu_kv_timed *out;
    struct event *heap; /* of tokens; those of preempted requests die when they come up */
    size_t events, events_cap;
    int rc;
    struct tu_err *err;
    uint64_t *held, *generated;
    uint32_t *round;
    struct tui_link *wait, *run; /* links of the queue and of the running, by admission */
    struct tui_list queue, running;
    uint64_t used, tokens; /* blocks held, tokens in them */
    double empty, slots;   /* integrals over time */
    int64_t now;
};

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->request < b->request;
}

static void push(struct state *s, struct event e)
{
    if (!s->rc)
        s->rc = TU_GROW(&s->heap, &s->events_cap, s->events, s->err);
    if (s->rc)
        return;
    size_t i = s->events++;
    for (; i && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static struct event pop(struct state *s)
{
    struct event top = s->heap[0], e = s->heap[--s->events];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < s->events; i = k) {
        k += k + 1 < s->events && before(&s->heap[k + 1], &s->heap[k]);
        if (!before(&s->heap[k], &e))
            break;
        s->heap[i] = s->heap[k];
    }
    s->heap[i] = e;
    return top;
}

static void advance(struct state *s, int64_t to)
{
    double span = (double)(to - s->now), slots = (double)s->used * (double)s->how->block;
    s->slots += slots * span;
    s->empty += (slots - (double)s->tokens) * span;
    s->now = to;
}

static bool room(const struct state *s, uint64_t blocks)
{
    return s->how->blocks == UINT64_MAX || blocks <= s->how->blocks - s->used;
}

static void take_blocks(struct state *s, uint32_t i, uint64_t n)
{
    s->held[i] += n;
    s->used += n;
    s->out->peak = tu_max(s->out->peak, s->used);
}

static void leave(struct state *s, uint32_t i)
{
    s->used -= s->held[i];
    s->held[i] = 0;
    s->tokens -= s->t->request[i].input + s->generated[i];
    s->round[i]++;
    tui_drop(&s->running, s->run, i);
}

static void admit(struct state *s)
{
    while (s->queue.head != TUI_NIL) {
        uint32_t i = s->queue.head;
        uint64_t have = s->t->request[i].input + s->generated[i];
        if (!room(s, tu_ceil_div(have, s->how->block)))
            return;
        tui_drop(&s->queue, s->wait, i);
        tui_push(&s->running, s->run, i);
        s->out->running = tu_max(s->out->running, s->running.n);
        take_blocks(s, i, tu_ceil_div(have, s->how->block));
        s->tokens += have;
        push(s, (struct event){s->now + s->how->pre * (int64_t)have + s->how->dec, i,
                               s->round[i]});
    }
}

/* To the head of the queue. */
static void preempt(struct state *s, uint32_t i)
{
    s->out->preemptions++;
    s->out->recomputed += s->t->request[i].input + s->generated[i];
    leave(s, i);
    s->wait[i].prev = TUI_NIL;
    s->wait[i].next = s->queue.head;
    if (s->queue.head == TUI_NIL)
        s->queue.tail = i;
    else
        s->wait[s->queue.head].prev = i;
    s->queue.head = i;
    s->queue.n++;
}

static void token(struct state *s, uint32_t i)
{
    const struct tu_kv_request *q = &s->t->request[i];
    uint64_t index = (q->input + s->generated[i]) / s->how->block;
    if (index >= s->held[i]) {
        while (!room(s, 1)) {
            uint32_t last = s->running.tail;
            preempt(s, last);
            if (last == i)
                return;
        }
        take_blocks(s, i, 1);
    }
    s->generated[i]++;
    s->tokens++;
    if (s->generated[i] < q->output) {
        push(s, (struct event){s->now + s->how->dec, i, s->round[i]});
        return;
    }
    leave(s, i);
    s->out->makespan = s->now;
    if (s->how->finish)
        s->how->finish[i] = s->now;
}

static void arrive(struct state *s, uint32_t i)
{
    const struct tu_kv_request *q = &s->t->request[i];
    uint64_t most = tu_ceil_div(q->input + q->output, s->how->block);
    if ((s->how->blocks != UINT64_MAX && most > s->how->blocks) || !q->output || !q->input) {
        s->out->rejected++;
        if (s->how->finish)
            s->how->finish[i] = -1;
        return;
    }
    tui_push(&s->queue, s->wait, i);
}

static void loop(struct state *s)
{
    size_t next = 0;
    while (!s->rc && (next < s->t->n || s->events)) {
        while (s->events && s->round[s->heap[0].request] != s->heap[0].round)
            (void)pop(s);
        bool arrival = next < s->t->n &&
                       (!s->events || s->t->request[next].at <= s->heap[0].at);
        if (!arrival && !s->events)
            break;
        if (arrival) {
            advance(s, s->t->request[next].at);
            arrive(s, (uint32_t)next++);
        } else {
            struct event e = pop(s);
            advance(s, e.at);
            token(s, e.request);
        }
        admit(s);
    }
}

int tu_kv_timed_run(const struct tu_kv_trace *t, const struct tu_kv_timed_how *how,
                    struct tu_kv_timed *out, struct tu_err *err)
{
    struct state s = {.t = t, .how = how, .out = out, .err = err};
    double span = 0;
    *out = (struct tu_kv_timed){0};
    for (size_t i = 0; i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        span += (double)how->pre * (double)(q->input + q->output) * 4 +
                (double)how->dec * (double)q->output;
        if (q->at < 0 || (i && q->at < t->request[i - 1].at))
            return tu_fail(err, TU_EUSAGE, "line %" PRIu64 ": times must not go back here",
                           q->line);
    }
    if (!how->block || !how->blocks || how->pre < 0 || how->dec < 0 || span > 4e18)
        return tu_fail(err, TU_EUSAGE, "block, blocks, pre and dec: sizes from 1, times from "
                                       "0 that add up to less than 2^62 us");
    s.held = tu_calloc(t->n, sizeof *s.held, err);
    s.generated = tu_calloc(t->n, sizeof *s.generated, err);
    s.round = tu_calloc(t->n, sizeof *s.round, err);
    s.wait = tu_alloc(t->n, sizeof *s.wait, err);
    s.run = tu_alloc(t->n, sizeof *s.run, err);
    int rc = s.held && s.generated && s.round && s.wait && s.run ? 0 : TU_ENOMEM;
    tui_list_init(&s.queue);
    tui_list_init(&s.running);
    if (!rc) {
        s.now = t->n ? t->request[0].at : 0;
        loop(&s);
        rc = s.rc;
    }
    out->waste = s.slots > 0 ? s.empty / s.slots : 0;
    tu_free(s.heap);
    tu_free(s.held);
    tu_free(s.generated);
    tu_free(s.round);
    tu_free(s.wait);
    tu_free(s.run);
    return rc;
}
