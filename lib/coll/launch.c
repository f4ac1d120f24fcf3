/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c: ranks as threads of this process or as processes forked from it.
 *
 * The caller waits here: it hands posts on, notices ranks that die or fall silent, and
 * lets none of them outlive it. Ranks that die with it: PR_SET_PDEATHSIG. */
#define _GNU_SOURCE /* prctl, PR_SET_PDEATHSIG */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "world.h"

#define GRACE 700000000u /* ns between the first failure and SIGKILL for who is left */
#define LINE (8 + TU_POST_MAX)

int tui_rank_main(struct tui_world *w, uint32_t id)
{
    struct tu_rank r = {
        .w = w, .id = id, .size = w->g->size, .seat = &w->board->seat[id]};
    struct tu_err *err = &r.seat->err;
    r.seat->pid = getpid();
    atomic_store(&r.seat->state, TUI_RUNNING);
    int code = w->row->ops->join(&r, err);
    if (!code)
        code = w->g->fn(&r, w->g->ctx, err);
    if (!code)
        code = tui_fault_end(&r, err);
    if (code && !err->code)
        err->code = code;
    if (code) { /* the first one is the reason */
        uint32_t none = 0;
        atomic_compare_exchange_strong(&w->board->stop, &none, id + 1);
    }
    w->row->ops->leave(&r);
    atomic_store(&r.seat->state, TUI_DONE);
    return code;
}

/* Posts from the pipe; false at its end. */
struct inbox {
    unsigned char data[LINE];
    size_t n;
};

static bool drain(struct tui_world *w, struct inbox *in, int wait_ms)
{
    struct pollfd p = {.fd = w->pipe[0], .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0)
        return true;
    for (;;) {
        ssize_t got = read(w->pipe[0], in->data + in->n, sizeof in->data - in->n);
        if (got <= 0)
            return got < 0;
        in->n += (size_t)got;
        size_t at = 0;
        while (in->n - at >= 8 && in->n - at >= 8 + (size_t)tu_le32(in->data + at + 4)) {
            size_t n = tu_le32(in->data + at + 4);
            if (w->g->post)
                w->g->post(w->g->ctx, tu_le32(in->data + at), in->data + at + 8, n);
            at += 8 + n;
        }
        memmove(in->data, in->data + at, in->n - at);
        in->n -= at;
    }
}

/* What went wrong, if anything did. */
static int result(struct tui_world *w, struct tu_err *err)
{
    struct tui_board *b = w->board;
    uint32_t lost = atomic_load(&b->lost), stop = atomic_load(&b->stop);
    if (lost) {
        const struct tui_seat *s = &b->seat[lost - 1];
        unsigned long long op = atomic_load(&s->seq);
        if (WIFSIGNALED(b->lost_status))
            return tu_fail(err, TU_EPEER,
                           "rank %u (pid %ld): killed by signal %d in operation "
                           "%llu",
                           lost - 1, (long)s->pid, WTERMSIG(b->lost_status), op);
        return tu_fail(err, TU_EPEER,
                       "rank %u (pid %ld): ended with status %d in operation %llu",
                       lost - 1, (long)s->pid, WEXITSTATUS(b->lost_status), op);
    }
    if (!stop)
        return 0;
    if (err)
        *err = b->seat[stop - 1].err;
    return b->seat[stop - 1].err.code;
}

/* Threads
 * -------------------------------------------------------------------------------- */

struct seatling {
    struct tui_world *w;
    uint32_t id;
    pthread_t thread;
    bool started;
};

static void *thread_main(void *ctx)
{
    struct seatling *s = ctx;
    tui_rank_main(s->w, s->id);
    return NULL;
}

static int run_threads(struct tui_world *w, struct tu_err *err)
{
    struct seatling *s = tu_calloc(w->g->size, sizeof *s, err);
    if (!s)
        return TU_ENOMEM;
    struct inbox in = {.n = 0};
    int code = 0;
    for (uint32_t i = 0; i < w->g->size && !code; i++) {
        s[i] = (struct seatling){.w = w, .id = i};
        int e = pthread_create(&s[i].thread, NULL, thread_main, &s[i]);
        s[i].started = e == 0;
        if (e) {
            code = tu_fail(err, TU_ENOMEM, "rank %u: no thread: %s", (unsigned)i,
                           strerror(e));
            atomic_store(&w->board->stop, i + 1);
        }
    }
    for (uint32_t i = 0; i < w->g->size; i++) {
        while (s[i].started && atomic_load(&w->board->seat[i].state) != TUI_DONE)
            drain(w, &in, 1);
        if (s[i].started)
            pthread_join(s[i].thread, NULL);
    }
    drain(w, &in, 0);
    tu_free(s);
    return code ? code : result(w, err);
}

/* Processes
 * ------------------------------------------------------------------------------ */

struct watch {
    pid_t pid;
    bool gone;
    uint64_t beat, seq, since; /* as last seen, and since when */
};

static void child(struct tui_world *w, uint32_t id, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(4);
    /* The parent's handlers remove the parent's files. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    close(w->pipe[0]);
    tui_rank_main(w, id);
    _exit(0);
}

static int start(struct tui_world *w, struct watch *v, struct tu_err *err)
{
    pid_t parent = getpid();
    for (uint32_t i = 0; i < w->g->size; i++) {
        v[i].pid = fork();
        if (v[i].pid == 0)
            child(w, i, parent);
        if (v[i].pid < 0) {
            v[i].gone = true;
            for (uint32_t k = i + 1; k < w->g->size; k++)
                v[k].gone = true;
            return tu_fail(err, TU_ENOMEM, "rank %u: no process: %s", (unsigned)i,
                           strerror(errno));
        }
        w->board->seat[i].pid = v[i].pid;
        v[i].since = tui_now();
    }
    return 0;
}

static void lose(struct tui_world *w, uint32_t rank, int status)
{
    uint32_t none = 0;
    if (!atomic_load(&w->board->lost)) {
        w->board->lost_status = status;
        atomic_store(&w->board->lost, rank + 1);
    }
    atomic_compare_exchange_strong(&w->board->stop, &none, rank + 1);
}

/* Reap one rank if it has ended. True when it is gone. */
static bool reap(struct tui_world *w, struct watch *v, uint32_t id)
{
    int status;
    if (v->gone || waitpid(v->pid, &status, WNOHANG) != v->pid)
        return v->gone;
    v->gone = true;
    if (atomic_load(&w->board->seat[id].state) != TUI_DONE)
        lose(w, id, status);
    return true;
}

/* A rank that neither beats nor begins anything, long after the others would have said
 * so. */
static bool silent(struct tui_world *w, struct watch *v, uint32_t id, uint64_t now,
                   struct tu_err *err)
{
    struct tui_seat *s = &w->board->seat[id];
    uint64_t beat = atomic_load(&s->beat), seq = atomic_load(&s->seq);
    if (beat != v->beat || seq != v->seq) {
        v->beat = beat;
        v->seq = seq;
        v->since = now;
    }
    if (now - v->since < w->timeout + 2000000000u)
        return false;
    tu_fail(err, TU_ETIMEOUT, "rank %u (pid %ld): silent for %.3g s in operation %llu",
            (unsigned)id, (long)v->pid, (double)(now - v->since) / 1e9,
            (unsigned long long)seq);
    uint32_t none = 0;
    atomic_compare_exchange_strong(&w->board->stop, &none, id + 1);
    return true;
}

static int run_processes(struct tui_world *w, struct tu_err *err)
{
    struct watch *v = tu_calloc(w->g->size, sizeof *v, err);
    if (!v)
        return TU_ENOMEM;
    struct inbox in = {.n = 0};
    uint64_t stopped = 0;
    bool killed = false, open = true;
    int code = start(w, v, err);
    close(w->pipe[1]);
    w->pipe[1] = -1;
    if (code)
        atomic_store(&w->board->stop, 1);
    for (bool left = true; left;) {
        if (open)
            open = drain(w, &in, 5);
        uint64_t now = tui_now();
        left = false;
        for (uint32_t i = 0; i < w->g->size; i++) {
            if (reap(w, &v[i], i))
                continue;
            left = true;
            if (!code && !stopped && silent(w, &v[i], i, now, err))
                code = TU_ETIMEOUT;
        }
        if (tu_job_cancelled(w->g->job) && !code) {
            code = tu_fail(err, TU_ECANCEL, "cancelled");
            atomic_store(&w->board->stop, 1);
        }
        if (!stopped && atomic_load(&w->board->stop))
            stopped = now;
        if (stopped && !killed && now - stopped > GRACE) {
            for (uint32_t i = 0; i < w->g->size; i++)
                if (!v[i].gone)
                    kill(v[i].pid, SIGKILL);
            killed = true;
            if (!code) /* the reason stands; those killed now are not it */
                code = result(w, err);
        }
    }
    if (open)
        drain(w, &in, 0);
    tu_free(v);
    return code ? code : result(w, err);
}

int tui_launch(struct tui_world *w, struct tu_err *err)
{
    if (w->launched) {
        int code = tui_rank_main(w, w->g->rank);
        if (code && err)
            *err = w->board->seat[w->g->rank].err;
        return code;
    }
    if (fcntl(w->pipe[0], F_SETFL, O_NONBLOCK) < 0)
        return tu_fail_errno(err, "pipe");
    return w->threads ? run_threads(w, err) : run_processes(w, err);
}
