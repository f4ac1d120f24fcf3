/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: workers that sleep until a loop comes, then draw task numbers from one counter.
 *
 * Tasks are drawn in ascending order, so when task k has failed every task below k has
 * been drawn and will end: the lowest failed task, hence the error returned, is the same
 * on every run. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "tensorutils/core/cpu.h"
#include "tensorutils/core/mem.h"
#include "tensorutils/core/pool.h"

struct loop {
    uint64_t n;
    tu_task_fn fn;
    void *ctx;
    _Atomic uint64_t next;
    atomic_bool stop;
    pthread_mutex_t lock; /* of the two below */
    uint64_t failed;      /* lowest failed task; n while none has */
    struct tu_err err;
};

struct worker {
    struct tu_pool *pool;
    pthread_t thread;
    unsigned number;
};

struct tu_pool {
    unsigned size;    /* the caller included */
    unsigned started; /* threads that live */
    bool tried;       /* to start them */
    atomic_bool busy; /* a loop runs: others run alone */
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    struct loop *loop; /* NULL between loops */
    uint64_t round;    /* of loops, so that no worker enters one twice */
    unsigned inside;   /* workers in the loop */
    bool quit;
    struct worker worker[]; /* size - 1 */
};

static void draw_tasks(struct loop *l, unsigned worker)
{
    struct tu_err err;
    while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
        uint64_t task = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
        if (task >= l->n)
            break;
        err = (struct tu_err){.offset = TU_ERR_NO_OFFSET};
        int code = l->fn(l->ctx, task, worker, &err);
        if (code == 0)
            continue;
        atomic_store(&l->stop, true);
        err.code = code;
        pthread_mutex_lock(&l->lock);
        if (task < l->failed) {
            l->failed = task;
            l->err = err;
        }
        pthread_mutex_unlock(&l->lock);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct tu_pool *p = w->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (!p->loop || p->round == seen) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        seen = p->round;
        p->inside++;
        struct loop *l = p->loop;
        pthread_mutex_unlock(&p->lock);
        draw_tasks(l, w->number);
        pthread_mutex_lock(&p->lock);
        if (--p->inside == 0)
            pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct tu_pool *tu_pool_new(unsigned threads, struct tu_err *err)
{
    unsigned size = threads ? threads : tu_cpu_count();
    struct tu_pool *p =
        tu_calloc(1, sizeof *p + (size_t)(size - 1) * sizeof p->worker[0], err);
    if (!p)
        return NULL;
    p->size = size;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->idle, NULL);
    return p;
}

/* As many threads as the system gives; with fewer the loops are slower and no different.
 * Signals stay with the threads that were there before. */
static void start(struct tu_pool *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 0; i + 1 < p->size; i++) {
        p->worker[i] = (struct worker){.pool = p, .number = i + 1};
        if (pthread_create(&p->worker[i].thread, NULL, work, &p->worker[i]) != 0)
            break;
        p->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->tried = true;
}

void tu_pool_free(struct tu_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    tu_free(p);
}

unsigned tu_pool_size(const struct tu_pool *p)
{
    return p ? p->size : 1;
}

/* Lend the loop to the workers, take part, and wait until the last of them has left
 * it. */
static void share(struct tu_pool *p, struct loop *l)
{
    if (!p->tried)
        start(p);
    pthread_mutex_lock(&p->lock);
    p->loop = l;
    p->round++;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);

    draw_tasks(l, 0);

    pthread_mutex_lock(&p->lock);
    p->loop = NULL; /* who has not woken yet finds nothing to do */
    while (p->inside)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

int tu_pool_run(struct tu_pool *p, uint64_t n, tu_task_fn fn, void *ctx,
                struct tu_err *err)
{
    struct loop l = {.n = n, .fn = fn, .ctx = ctx, .failed = n};
    pthread_mutex_init(&l.lock, NULL);
    if (p && p->size > 1 && n > 1 && !atomic_exchange(&p->busy, true)) {
        share(p, &l);
        atomic_store(&p->busy, false);
    } else {
        draw_tasks(&l, 0);
    }
    pthread_mutex_destroy(&l.lock);
    if (l.failed == n)
        return 0;
    if (err)
        *err = l.err;
    return l.err.code;
}
