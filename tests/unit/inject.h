/* SPDX-License-Identifier: Apache-2.0 */
/* inject.h: a piece of work with each allocation, or each system call, failing in turn.
 *
 * Allocations are told apart by the calls that lead to them: of those that come about alike, the
 * first fails, so that each way there is fails, and of some ways the last does as well. System
 * calls all fail, or a sample.
 *
 * Each failure must be told as what it is: the right code, in the result and in *err, with a
 * message, and no descriptor left open. What gets through all the same (closing an input may
 * fail unheard) must give what the clean run gave: work adds that up by inject_add(). */
#ifndef TESTS_UNIT_INJECT_H
#define TESTS_UNIT_INJECT_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <tensorutils/core.h>
#include <unwind.h>
#include "scratch.h"
#include "tap.h"

struct inject {
    const char *name;
    int (*run)(const void *arg, struct tu_err *err);
    const void *arg;
    /* Between runs, when nothing fails: takes away what is left, may add it up, and says what is
     * wrong with it (NULL: nothing). */
    const char *(*after)(const void *arg, int rc, const struct tu_err *err);
    bool sticky;    /* each allocation behind the one that fails does as well */
    unsigned dense; /* 0: each system call fails once; else one in 1 + n / dense behind call n */
};

static uint32_t inject_sum; /* of what a run gave */

static inline void inject_add(const void *p, size_t n)
{
    inject_sum = tu_crc32(inject_sum, p, n);
}

/* Run with call n failing (0: none); number: that of the failing system calls, 0 where
 * allocations fail. What is wrong with it, NULL: nothing. */
static inline const char *inject_once(const struct inject *w, int number, uint64_t n, int *rc,
                                      uint64_t *calls, struct tu_err *err)
{
    const int code = number ? TU_EIO : TU_ENOMEM, fds = scratch_fds();
    *err = (struct tu_err){0};
    inject_sum = 0;
    number ? tu_io_inject(n, number)
           : tu_mem_inject(n, TU_MEM_FINE | (w->sticky ? TU_MEM_STICKY : 0));
    *rc = w->run(w->arg, err);
    *calls = number ? tu_io_inject(0, 0) : tu_mem_inject(0, 0);
    const char *wrong = w->after ? w->after(w->arg, *rc, err) : NULL;
    if (*rc && n == 0)
        return "it fails";
    if (*rc && *calls < n)
        return "it fails without a failure";
    if (*rc && (*rc != code || err->code != code))
        return "called something else";
    if (*rc && !*err->msg)
        return "nothing is said";
    return scratch_fds() != fds ? "a descriptor is open" : wrong;
}

/* The ways to allocations, as a table by the hash of the stack. */
enum { INJECT_WAYS = 1 << 16, INJECT_FRAMES = 32 };
static struct inject_way {
    uint64_t stack, first, last;
} inject_way[INJECT_WAYS];
static pthread_mutex_t inject_lock = PTHREAD_MUTEX_INITIALIZER;

struct inject_stack {
    uint64_t at[INJECT_FRAMES];
    unsigned n;
};

/* A place in a function that is on the stack already is recursion, which is no other way. */
static _Unwind_Reason_Code inject_frame(struct _Unwind_Context *c, void *arg)
{
    struct inject_stack *s = arg;
    const uint64_t at = _Unwind_GetIP(c);
    for (unsigned i = 0; i < s->n; i++)
        if (s->at[i] == at)
            return _URC_NO_REASON;
    s->at[s->n++] = at;
    return s->n < INJECT_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void inject_seen(uint64_t nth)
{
    struct inject_stack s = {.n = 0};
    _Unwind_Backtrace(inject_frame, &s);
    uint64_t hash = 1;
    for (unsigned i = 0; i < s.n; i++)
        hash = (hash ^ s.at[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    pthread_mutex_lock(&inject_lock);
    struct inject_way *w = &inject_way[hash % INJECT_WAYS];
    for (size_t k = 0; w->first && w->stack != hash && k < INJECT_WAYS; k++)
        w = &inject_way[(hash + k) % INJECT_WAYS];
    if (!w->first || w->stack != hash)
        *w = (struct inject_way){hash, nth, nth};
    w->last = nth > w->last ? nth : w->last;
    pthread_mutex_unlock(&inject_lock);
}

static int inject_order(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The allocations that are to fail, in order; the caller frees them. */
static inline uint64_t *inject_list(size_t *n)
{
    uint64_t *list = malloc(2 * sizeof *list * INJECT_WAYS);
    *n = 0;
    for (size_t k = 0; list && k < INJECT_WAYS; k++) {
        const struct inject_way *w = &inject_way[k];
        if (w->first)
            list[(*n)++] = w->first;
        if (w->last > w->first && w->first % 4 == 0)
            list[(*n)++] = w->last;
    }
    if (list)
        qsort(list, *n, sizeof *list, inject_order);
    return list;
}

/* Two tests: that it gets through, and that each failure is told. */
static inline bool inject_walk(const struct inject *w, int number)
{
    struct tu_err err;
    uint64_t calls, *list = NULL;
    size_t ways = 0;
    int rc;
    unsigned failed = 0, bad = 0;
    memset(inject_way, 0, sizeof inject_way);
    tu_mem_watch(number ? NULL : inject_seen);
    const char *wrong = inject_once(w, number, 0, &rc, &calls, &err);
    tu_mem_watch(NULL);
    if (!ok(!wrong, "%s: nothing fails: %s %s", w->name, wrong ? wrong : "well", err.msg))
        return false;
    const uint32_t clean = inject_sum;
    const uint64_t all = calls;
    if (!number && !(list = inject_list(&ways)))
        return ok(false, "no memory for the ways");
    for (uint64_t i = 0, n = 1;; i++, n += 1 + (w->dense ? n / w->dense : 0)) {
        if (list && i == ways)
            break;
        n = list ? list[i] : n;
        wrong = inject_once(w, number, n, &rc, &calls, &err);
        if (!wrong && !rc && inject_sum != clean)
            wrong = "unnoticed, and another result";
        if (wrong)
            printf("# call %" PRIu64 ": %s: %s: %s\n", n, wrong, rc ? tu_err_name(rc) : "success",
                   err.msg);
        bad += wrong != NULL;
        failed += rc != 0;
        if (!list && calls < n)
            break;
    }
    free(list);
    return ok(failed && !bad, "%s: %u of %" PRIu64 " %s fail", w->name, failed, all,
              number ? "system calls" : "allocations");
}

static inline bool inject_memory(const struct inject *w)
{
    return inject_walk(w, 0);
}

static inline bool inject_io(const struct inject *w)
{
    return inject_walk(w, EIO);
}

#endif
