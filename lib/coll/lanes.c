/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c: transports "shm" and "threads": a ring buffer for each ordered pair of ranks.
 *
 * A lane has one writer and one reader. A message is a line of 64 bytes that begins with
 * its size, its first 48 bytes, then the rest, each message starting a new line: elements
 * are never split. The memory has no name: nothing is left behind whatever dies. */
#include "world.h"

#define LINE 64u
#define HEAD 16u /* bytes of the first line before the payload */

struct lane {
    _Alignas(64) _Atomic uint64_t head; /* bytes written, by the sender */
    _Alignas(64) _Atomic uint64_t tail; /* bytes taken, by the receiver */
    _Alignas(64) unsigned char data[];
};

struct epoch {
    _Alignas(64) _Atomic uint64_t at; /* barriers reached, by its rank */
};

struct lanes {
    unsigned char *base;
    size_t bytes;
    uint64_t cap, lane_bytes, stage_at, shared_at, shared_each;
    uint32_t size;
};

struct flow {
    struct lane *lane;
    const unsigned char *from; /* sender */
    unsigned char *to;         /* receiver, without a sink */
    uint64_t n, done;
    bool begun;
};

static struct lane *lane_of(const struct lanes *l, uint32_t from, uint32_t to)
{
    uint64_t i = (uint64_t)from * l->size + to;
    return (struct lane *)(void *)(l->base + l->size * sizeof(struct epoch) +
                                   i * l->lane_bytes);
}

static int prepare(struct tui_world *w, struct tu_err *err)
{
    struct lanes *l = tu_calloc(1, sizeof *l, err);
    if (!l)
        return TU_ENOMEM;
    w->state = l;
    uint64_t n = w->g->size;
    l->size = w->g->size;
    l->cap = n <= 4 ? 1 << 18 : n <= 64 ? 1 << 16 : n <= 512 ? 1 << 13 : 1 << 10;
    l->lane_bytes = sizeof(struct lane) + l->cap;
    l->stage_at = n * sizeof(struct epoch) + n * n * l->lane_bytes;
    uint64_t total;
    if (tu_align_over(w->g->shared, 4096, &l->shared_each) ||
        tu_mul_over(l->shared_each, n, &total))
        return tu_fail(err, TU_ENOMEM,
                       "shared memory of %llu bytes for each of %llu ranks",
                       (unsigned long long)w->g->shared, (unsigned long long)n);
    l->stage_at = tu_align(l->stage_at, 4096);
    l->shared_at = l->stage_at + n * TUI_STAGE;
    if (tu_add_over(total, l->shared_at, &total))
        return tu_fail(err, TU_ENOMEM,
                       "shared memory of %llu bytes for each of %llu ranks",
                       (unsigned long long)w->g->shared, (unsigned long long)n);
    l->bytes = (size_t)total;
    l->base = tui_share(l->bytes, err);
    return l->base ? 0 : TU_ENOMEM;
}

static void dispose(struct tui_world *w)
{
    struct lanes *l = w->state;
    if (!l)
        return;
    tui_unshare(l->base, l->bytes);
    tu_free(l);
    w->state = NULL;
}

static int join_lanes(struct tu_rank *r, struct tu_err *err)
{
    (void)err;
    r->state = r->w->state;
    return 0;
}

static void leave_lanes(struct tu_rank *r)
{
    r->state = NULL;
}

/* Write what fits, or only the first line; true if anything was. */
static bool push(const struct lanes *l, struct flow *f, bool one_line)
{
    uint64_t head = atomic_load_explicit(&f->lane->head, memory_order_relaxed);
    uint64_t room =
        l->cap - (head - atomic_load_explicit(&f->lane->tail, memory_order_acquire));
    bool any = false;
    while (room && (!f->begun || f->done < f->n)) {
        unsigned char *p = f->lane->data + head % l->cap;
        uint64_t n, lines = LINE;
        if (!f->begun) {
            n = tu_min(f->n, LINE - HEAD);
            memcpy(p, &f->n, sizeof f->n);
            p += HEAD;
            f->begun = true;
        } else {
            n = tu_min(tu_min(room, l->cap - head % l->cap), f->n - f->done);
            n = tu_min(n, 1 << 14);
            lines = tu_align(n, LINE);
        }
        if (n)
            memcpy(p, f->from + f->done, n);
        f->done += n;
        head += lines;
        room -= lines;
        atomic_store_explicit(&f->lane->head, head, memory_order_release);
        any = true;
        if (one_line)
            break;
    }
    return any;
}

/* Take what is there. Returns 1, 0, or TU_EPEER for a message of another size. */
static int pull(const struct lanes *l, struct flow *f, const struct tu_move *m,
                struct tu_err *err)
{
    uint64_t tail = atomic_load_explicit(&f->lane->tail, memory_order_relaxed);
    uint64_t ready = atomic_load_explicit(&f->lane->head, memory_order_acquire) - tail;
    int any = 0;
    while (ready && (!f->begun || f->done < f->n)) {
        const unsigned char *p = f->lane->data + tail % l->cap;
        uint64_t n, lines = LINE;
        if (!f->begun) {
            uint64_t said;
            memcpy(&said, p, sizeof said);
            if (said != f->n)
                return tu_fail(err, TU_EPEER,
                               "rank %u sent %llu bytes where %llu were expected",
                               (unsigned)m->from, (unsigned long long)said,
                               (unsigned long long)f->n);
            n = tu_min(f->n, LINE - HEAD);
            p += HEAD;
            f->begun = true;
        } else {
            n = tu_min(tu_min(ready, l->cap - tail % l->cap), f->n - f->done);
            lines = tu_align(n, LINE);
        }
        if (n && m->sink)
            m->sink(m->ctx, f->done, p, n);
        else if (n)
            memcpy(f->to + f->done, p, n);
        f->done += n;
        tail += lines;
        ready -= lines;
        atomic_store_explicit(&f->lane->tail, tail, memory_order_release);
        any = 1;
    }
    return any;
}

static int move_lanes(struct tu_rank *r, const struct tu_move *m, struct tu_err *err)
{
    const struct lanes *l = r->state;
    struct flow out = {
        .n = m->out_bytes, .from = m->out, .begun = true, .done = m->out_bytes};
    struct flow in = {.n = m->in_bytes, .to = m->in, .begun = true, .done = m->in_bytes};
    if (m->to != TU_NOBODY) {
        out.lane = lane_of(l, r->id, m->to);
        out.begun = false;
        out.done = 0;
    }
    if (m->from != TU_NOBODY) {
        in.lane = lane_of(l, m->from, r->id);
        in.begun = false;
        in.done = 0;
    }
    struct tui_wait wait = {.turns = 0};
    uint64_t first = 0;
    bool slept = false;
    int code = 0;
    for (;;) {
        bool sending = !out.begun || out.done < out.n,
             taking = !in.begun || in.done < in.n;
        if (!sending && !taking)
            break;
        bool any = sending && push(l, &out, r->w->g->faults && !out.begun);
        if (any && r->w->g->faults &&
            !slept) { /* a slow link: between first bytes and rest */
            tui_fault_link(r, m->to, out.n);
            slept = true;
        }
        if (taking) {
            int got = pull(l, &in, m, err);
            if (got < 0)
                return got;
            any |= got > 0;
            if (got && r->seen && !first)
                first = tui_now();
        }
        wait.peer = taking ? m->from : m->to;
        if (any)
            tui_wait_end(r, &wait, taking ? m->from : TU_NOBODY);
        else if ((code = tui_wait(r, &wait, err)))
            return code;
    }
    if (first)
        r->seen->peer[m->from].wait_ns += tui_now() - first;
    return 0;
}

/* Every rank tells its own line and reads all others'. */
static int barrier_lanes(struct tu_rank *r, struct tu_err *err)
{
    const struct lanes *l = r->state;
    struct epoch *e = (struct epoch *)(void *)l->base;
    uint64_t mine = atomic_load_explicit(&e[r->id].at, memory_order_relaxed) + 1;
    atomic_store_explicit(&e[r->id].at, mine, memory_order_release);
    for (uint32_t i = 1; i < r->size; i++) {
        uint32_t q = r->id + i < r->size ? r->id + i : r->id + i - r->size;
        struct tui_wait wait = {.peer = q};
        while (atomic_load_explicit(&e[q].at, memory_order_acquire) < mine) {
            int code = tui_wait(r, &wait, err);
            if (code)
                return code;
        }
        tui_wait_end(r, &wait, q);
    }
    return 0;
}

static void *shared_lanes(struct tu_rank *r, uint32_t q)
{
    const struct lanes *l = r->state;
    return l->base + l->shared_at + q * l->shared_each;
}

void *tui_lanes_stage(struct tu_rank *r, uint32_t q)
{
    const struct lanes *l = r->state;
    return l->base + l->stage_at + q * TUI_STAGE;
}

bool tui_has_lanes(const struct tu_rank *r)
{
    return r->w->row->ops->move == move_lanes;
}

static const char *const no_keys[] = {NULL};

static const struct tu_transport_ops shm_ops = {
    .prepare = prepare,
    .dispose = dispose,
    .join = join_lanes,
    .leave = leave_lanes,
    .move = move_lanes,
    .barrier = barrier_lanes,
    .shared = shared_lanes,
};

static const struct tu_transport_ops thread_ops = {
    .threads = true,
    .prepare = prepare,
    .dispose = dispose,
    .join = join_lanes,
    .leave = leave_lanes,
    .move = move_lanes,
    .barrier = barrier_lanes,
    .shared = shared_lanes,
};

const struct tu_transport tui_transport_shm = {
    .name = "shm",
    .help = "processes of one machine over shared memory",
    .key = no_keys,
    .shared = true,
    .ops = &shm_ops,
};

const struct tu_transport tui_transport_threads = {
    .name = "threads",
    .help = "threads of one process",
    .key = no_keys,
    .shared = true,
    .ops = &thread_ops,
};
