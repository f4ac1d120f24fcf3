/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: groups of ranks over a transport's row: making them, moving bytes, waiting.
 *
 * Not for how ranks are started (launch.c) nor for how bytes move (a file per transport).
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "world.h"

const struct tu_transport *const tu_transports[] = {
    &tui_transport_shm, &tui_transport_threads, &tui_transport_tcp,
    &tui_transport_mpi, &tui_transport_nccl,    NULL,
};

int tu_transport_find(const struct tu_transport **out, const char *name,
                      struct tu_err *err)
{
    for (size_t i = 0; tu_transports[i]; i++) {
        if (strcmp(tu_transports[i]->name, name) != 0)
            continue;
        *out = tu_transports[i];
        if (!(*out)->plugin || (*out)->ops)
            return 0;
        const struct tu_plugin *plugin;
        int code = tu_plugin_load(&plugin, (*out)->plugin, err);
        if (!code)
            *out = plugin->table;
        return code;
    }
    return tu_fail(err, TU_EUSAGE, "no transport '%s'", name);
}

uint64_t tui_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *tui_share(size_t bytes, struct tu_err *err)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED)
        return p;
    tu_fail(err, TU_ENOMEM, "no shared memory of %zu bytes", bytes);
    return NULL;
}

void tui_unshare(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes ? bytes : 1);
}

static int check(const struct tu_group *g, const struct tu_transport *row,
                 struct tu_err *err)
{
    if (!g->size || g->size > TU_RANKS_MAX)
        return tu_fail(err, TU_EUSAGE, "%u ranks: 1 to %u are possible",
                       (unsigned)g->size, TU_RANKS_MAX);
    if (g->spec && tu_spec_check(g->spec, row->key, err))
        return err ? err->code : TU_EUSAGE;
    if (g->rendezvous && strcmp(row->name, "tcp") != 0)
        return tu_fail(err, TU_EUSAGE,
                       "transport '%s' starts its own ranks: no rendezvous", row->name);
    if (g->faults > TU_FAULTS_MAX)
        return tu_fail(err, TU_EUSAGE, "%zu faults: at most %u", g->faults,
                       TU_FAULTS_MAX);
    for (size_t i = 0; i < g->faults; i++) {
        const struct tu_fault *f = &g->fault[i];
        if (f->rank >= g->size || (f->peer != TU_NOBODY && f->peer >= g->size))
            return tu_fail(err, TU_EUSAGE, "a fault names a rank past the last, %u",
                           (unsigned)g->size - 1);
        if (row->ops->threads && (f->kind == TU_FAULT_KILL || f->kind == TU_FAULT_STOP))
            return tu_fail(err, TU_EUSAGE,
                           "ranks that are threads cannot be killed or stopped");
    }
    return 0;
}

int tu_group_run(const struct tu_group *g, struct tu_err *err)
{
    struct tui_world w = {.g = g, .pipe = {-1, -1}, .launched = g->rendezvous != NULL};
    int code = tu_transport_find(&w.row, g->transport, err);
    if (!code)
        code = check(g, w.row, err);
    if (code)
        return code;
    w.threads = w.row->ops->threads;
    w.timeout = g->timeout ? g->timeout : UINT64_C(30000000000);
    w.spin = tu_cpu_count() >= g->size && g->size > 1 ? 300 : 0;
    w.board_bytes = sizeof *w.board + g->size * sizeof w.board->seat[0];
    w.board = tui_share(w.board_bytes, err);
    if (!w.board)
        return TU_ENOMEM;
    code = w.row->ops->prepare(&w, err);
    if (!code && !w.launched && pipe(w.pipe) < 0)
        code = tu_fail_errno(err, "pipe");
    if (!code)
        code = tui_launch(&w, err);
    w.row->ops->dispose(&w);
    for (int i = 0; i < 2; i++)
        if (w.pipe[i] >= 0)
            close(w.pipe[i]);
    tui_unshare(w.board, w.board_bytes);
    return code;
}

uint32_t tu_rank_id(const struct tu_rank *r)
{
    return r->id;
}

uint32_t tu_rank_size(const struct tu_rank *r)
{
    return r->size;
}

struct tu_traffic tu_rank_traffic(const struct tu_rank *r)
{
    return r->traffic;
}

void tu_rank_watch(struct tu_rank *r, struct tu_seen *s)
{
    r->seen = s;
}

void *tu_rank_shared(struct tu_rank *r, uint32_t q)
{
    const struct tu_transport_ops *ops = r->w->row->ops;
    return ops->shared && r->w->g->shared ? ops->shared(r, q) : NULL;
}

bool tu_rank_is_shared(const struct tu_rank *r)
{
    return tui_has_lanes(r) && !tui_fault_needs_messages(r->w->g);
}

int tu_rank_post(struct tu_rank *r, const void *p, size_t n, struct tu_err *err)
{
    if (n > TU_POST_MAX)
        return tu_fail(err, TU_EBUG, "a post of %zu bytes", n);
    if (r->w->launched) {
        if (r->w->g->post)
            r->w->g->post(r->w->g->ctx, r->id, p, n);
        return 0;
    }
    unsigned char line[8 + TU_POST_MAX]; /* within PIPE_BUF: not mixed with others' */
    tu_put32(line, r->id);
    tu_put32(line + 4, (uint32_t)n);
    memcpy(line + 8, p, n);
    ssize_t done;
    do
        done = write(r->w->pipe[1], line, 8 + n);
    while (done < 0 && errno == EINTR);
    return done < 0 ? tu_fail_errno(err, "post") : 0;
}

int tu_rank_begin(struct tu_rank *r, struct tu_err *err)
{
    uint64_t op = atomic_fetch_add_explicit(&r->seat->seq, 1, memory_order_relaxed);
    r->due = 0;
    int code = r->w->g->faults ? tui_fault_begin(r, op, err) : 0;
    if (r->seen && !code) {
        struct tu_seen *s = r->seen;
        memset(s->peer, 0, r->size * sizeof *s->peer);
        s->seq = op;
        s->first_ns = s->last_ns = s->done_ns = 0;
        s->arrive_ns = tui_now();
    }
    return code;
}

int tu_rank_move(struct tu_rank *r, const struct tu_move *m, struct tu_err *err)
{
    struct tu_move q = *m;
    if ((q.to != TU_NOBODY && (q.to >= r->size || q.to == r->id)) ||
        (q.from != TU_NOBODY && (q.from >= r->size || q.from == r->id)))
        return tu_fail(err, TU_EBUG, "rank %u exchanges with %u and %u", (unsigned)r->id,
                       (unsigned)q.to, (unsigned)q.from);
    unsigned char *damaged = NULL;
    if (q.to != TU_NOBODY) {
        r->traffic.bytes += q.out_bytes;
        r->traffic.messages++;
        if (r->due && q.out_bytes && tui_fault_flips(r)) {
            if (!(damaged = tu_alloc(q.out_bytes, 1, err)))
                return TU_ENOMEM;
            memcpy(damaged, q.out, q.out_bytes);
            damaged[q.out_bytes / 2] ^= 1;
            q.out = damaged;
        }
    }
    if (q.to == TU_NOBODY && q.from == TU_NOBODY)
        return 0;
    int code = r->w->row->ops->move(r, &q, err);
    tu_free(damaged);
    if (!code && r->seen && q.from != TU_NOBODY) {
        r->seen->last_ns = tui_now();
        if (!r->seen->first_ns)
            r->seen->first_ns = r->seen->last_ns;
        r->seen->peer[q.from].bytes += q.in_bytes;
    }
    return code;
}

int tu_rank_send(struct tu_rank *r, uint32_t to, const void *p, uint64_t n,
                 struct tu_err *err)
{
    struct tu_move m = {.to = to, .from = TU_NOBODY, .out = p, .out_bytes = n};
    return tu_rank_move(r, &m, err);
}

int tu_rank_recv(struct tu_rank *r, uint32_t from, void *p, uint64_t n,
                 struct tu_err *err)
{
    struct tu_move m = {.to = TU_NOBODY, .from = from, .in = p, .in_bytes = n};
    return tu_rank_move(r, &m, err);
}

/* Dissemination: in round i rank r tells r + 2^i. */
int tu_rank_barrier(struct tu_rank *r, struct tu_err *err)
{
    if (r->w->row->ops->barrier)
        return r->w->row->ops->barrier(r, err);
    int code = 0;
    for (uint64_t d = 1; d < r->size && !code; d *= 2) {
        struct tu_move m = {.to = (uint32_t)((r->id + d) % r->size),
                            .from = (uint32_t)((r->id + r->size - d) % r->size)};
        code = r->w->row->ops->move(r, &m, err);
    }
    return code;
}

/* Watch the seats until all have beaten, at most a quarter of the time-out (60 ms to 1
 * s): a busy machine lets ranks wait for a CPU. The first that stays silent, or
 * TU_NOBODY. */
static uint32_t silent(struct tu_rank *r)
{
    struct tui_board *b = r->w->board;
    const struct timespec pause = {0, 2000000};
    uint64_t turns = tu_max(30, tu_min(500, r->w->timeout / 4 / 2000000));
    uint64_t *before = tu_calloc(r->size, sizeof *before, NULL);
    uint32_t found = TU_NOBODY;
    if (!before)
        return found;
    for (uint32_t q = 0; q < r->size; q++)
        before[q] = atomic_load(&b->seat[q].beat);
    for (uint64_t i = 0; i < turns && (i < 5 || found != TU_NOBODY); i++) {
        nanosleep(&pause, NULL);
        atomic_fetch_add_explicit(&r->seat->beat, 1, memory_order_relaxed);
        found = TU_NOBODY;
        for (uint32_t q = 0; q < r->size && found == TU_NOBODY; q++)
            if (q != r->id && atomic_load(&b->seat[q].state) == TUI_RUNNING &&
                atomic_load(&b->seat[q].beat) == before[q])
                found = q;
    }
    tu_free(before);
    return found;
}

/* Who keeps the group waiting: a rank whose seat does not beat; else the end of the chain
 * of waits that starts here. */
static uint32_t culprit(struct tu_rank *r)
{
    struct tui_board *b = r->w->board;
    if (r->w->launched)
        return atomic_load(&r->seat->waits_for) - 1;
    uint32_t chain = silent(r);
    if (chain != TU_NOBODY)
        return chain;
    chain = r->id;
    for (uint32_t i = 0; i < r->size; i++) {
        uint32_t next = atomic_load(&b->seat[chain].waits_for);
        if (!next)
            break;
        chain = next - 1;
    }
    return chain;
}

static int too_late(struct tu_rank *r, struct tu_err *err)
{
    uint32_t who = culprit(r);
    if (atomic_load(&r->w->board->stop))
        return tu_fail(err, TU_EPEER, "rank %u: another rank stopped the group",
                       (unsigned)r->id);
    const struct tui_seat *s = &r->w->board->seat[who];
    return tu_fail(
        err, TU_ETIMEOUT,
        "rank %u: no progress for %.3g s in operation %llu: waiting for rank %u, "
        "which has begun %llu",
        (unsigned)r->id, (double)r->w->timeout / 1e9,
        (unsigned long long)atomic_load(&r->seat->seq), (unsigned)who,
        (unsigned long long)atomic_load(&s->seq));
}

int tui_wait(struct tu_rank *r, struct tui_wait *w, struct tu_err *err)
{
    if (!w->turns++ && r->seen)
        w->since = tui_now();
    if (w->turns < r->w->spin) {
#if defined __x86_64__
        __builtin_ia32_pause();
#endif
        return 0;
    }
    atomic_fetch_add_explicit(&r->seat->beat, 1, memory_order_relaxed);
    sched_yield();
    if (w->turns % 16 != 0)
        return 0;
    atomic_store_explicit(&r->seat->waits_for, w->peer + 1, memory_order_relaxed);
    if (atomic_load_explicit(&r->w->board->stop, memory_order_acquire))
        return tu_fail(err, TU_EPEER, "rank %u: another rank stopped the group",
                       (unsigned)r->id);
    uint64_t now = tui_now();
    if (!w->since)
        w->since = now;
    uint64_t waited = now - w->since;
    if (waited > r->w->timeout)
        return too_late(r, err);
    if (waited >
        2000000) { /* 2 ms without news: it is not a matter of latency any more */
        const struct timespec pause = {0, waited > 20000000 ? 500000 : 50000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

void tui_wait_end(struct tu_rank *r, struct tui_wait *w, uint32_t peer)
{
    if (!w->turns)
        return;
    atomic_store_explicit(&r->seat->waits_for, 0, memory_order_relaxed);
    if (r->seen && w->since) {
        uint64_t now = tui_now();
        r->traffic.wait_ns += now - w->since;
        if (peer != TU_NOBODY) {
            if (!r->seen->first_ns)
                r->seen->first_ns = now;
        }
    }
    w->turns = w->since = 0;
}
