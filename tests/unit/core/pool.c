/* SPDX-License-Identifier: Apache-2.0 */
/* Every task once, the lowest error, nesting, and pools of any size alike. */
#include <stdatomic.h>
#include <time.h>
#include "../tap.h"
#include "tensorutils/core/pool.h"
#include "tensorutils/core/rng.h"

#define TASKS 5000

struct count {
    atomic_uint runs[TASKS];
    atomic_uint worst_worker;
    struct tu_pool *pool;
    uint64_t fail_from;
    atomic_uint inner;
};

static int count_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    (void)err;
    struct count *c = ctx;
    atomic_fetch_add(&c->runs[task], 1);
    unsigned worst = atomic_load(&c->worst_worker);
    while (worker > worst &&
           !atomic_compare_exchange_weak(&c->worst_worker, &worst, worker))
        ;
    return 0;
}

static void test_once(struct tu_pool *p, unsigned size)
{
    static struct count c;
    memset(&c, 0, sizeof c);
    eq_int(tu_pool_run(p, TASKS, count_task, &c, NULL), 0, "%u threads", size);
    unsigned wrong = 0;
    for (int i = 0; i < TASKS; i++)
        wrong += c.runs[i] != 1;
    eq_u64(wrong, 0, "%u threads: each task once", size);
    ok(c.worst_worker < size, "%u threads: worker numbers", size);
    eq_int(tu_pool_run(p, 0, count_task, &c, NULL), 0, "%u threads: no tasks", size);
}

static int fail_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    (void)worker;
    struct count *c = ctx;
    atomic_fetch_add(&c->runs[task], 1);
    if (task < c->fail_from)
        return 0;
    /* The first to fail in time is often not the lowest. */
    if (task == c->fail_from)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    return tu_fail(err, TU_ESIZE, "task %d", (int)task);
}

static void test_error(struct tu_pool *p, unsigned size)
{
    static struct count c;
    unsigned wrong = 0, more = 0;
    for (unsigned round = 0; round < 50; round++) {
        memset(&c, 0, sizeof c);
        c.fail_from = 3 + round;
        struct tu_err err = {0};
        char want[32];
        snprintf(want, sizeof want, "task %u", 3 + round);
        int code = tu_pool_run(p, TASKS, fail_task, &c, &err);
        wrong += code != TU_ESIZE || err.code != TU_ESIZE || strcmp(err.msg, want) != 0;
        for (unsigned i = 3 + round + size; i < TASKS; i++)
            more += c.runs[i];
    }
    eq_u64(wrong, 0, "%u threads: the error of the lowest task", size);
    ok(more < 50 * 200, "%u threads: stops soon after (%u later tasks ran)", size, more);
}

static int inner_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    (void)err;
    struct count *c = ctx;
    atomic_fetch_add(&c->inner, (unsigned)task + 1000 * worker);
    return 0;
}

static int outer_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    (void)task;
    (void)worker;
    struct count *c = ctx;
    return tu_pool_run(c->pool, 10, inner_task, c, err);
}

static void test_nested(struct tu_pool *p, unsigned size)
{
    static struct count c;
    memset(&c, 0, sizeof c);
    c.pool = p;
    eq_int(tu_pool_run(p, 100, outer_task, &c, NULL), 0, "%u threads: nested loops",
           size);
    /* 1000 would be added for each inner task that another worker ran. */
    eq_u64(c.inner, 100 * 45, "%u threads: nested tasks", size);
}

struct sum {
    float out[64][1000];
};

static int fill_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    (void)worker;
    (void)err;
    struct sum *s = ctx;
    const struct tu_rng r = {.seed = 1, .stream = 2};
    tu_rng_normal(&r, task * 1000, s->out[task], 1000);
    return 0;
}

int main(void)
{
    static struct sum one, many;
    eq_u64(tu_pool_size(NULL), 1, "no pool is one thread");
    test_once(NULL, 1);
    test_error(NULL, 1);
    eq_int(tu_pool_run(NULL, 64, fill_task, &one, NULL), 0, "alone");
    static const unsigned size[] = {1, 2, 3, 7, 32};
    for (unsigned i = 0; i < sizeof size / sizeof *size; i++) {
        struct tu_pool *p = tu_pool_new(size[i], NULL);
        eq_u64(tu_pool_size(p), size[i], "size");
        test_once(p, size[i]);
        test_once(p, size[i]);
        test_error(p, size[i]);
        test_nested(p, size[i]);
        eq_int(tu_pool_run(p, 64, fill_task, &many, NULL), 0, "%u threads", size[i]);
        eq_mem(&many, &one, sizeof one, "%u threads: the same bytes as one", size[i]);
        tu_pool_free(p);
    }
    struct tu_pool *p = tu_pool_new(0, NULL);
    ok(tu_pool_size(p) >= 1, "as many as the mask allows: %u", tu_pool_size(p));
    tu_pool_free(p); /* never used: no thread was started */
    tu_pool_free(NULL);
    return tap_done();
}
