/* SPDX-License-Identifier: Apache-2.0 */
/* inject.h: a piece of work with each allocation, or each system call, failing in turn.
 *
 * Each failure must be told as what it is: the right code, in the result and in *err, with a
 * message, and no descriptor left open. What gets through all the same (closing an input may
 * fail unheard) must give what the clean run gave: work adds that up by inject_add(). */
#ifndef TESTS_UNIT_INJECT_H
#define TESTS_UNIT_INJECT_H

#include <errno.h>
#include <tensorutils/core.h>
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
    unsigned dense; /* 0: each call fails once; else one in 1 + n / dense behind call n */
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

/* Two tests: that it gets through, and that each failure is told. */
static inline bool inject_walk(const struct inject *w, int number)
{
    struct tu_err err;
    uint64_t calls;
    int rc;
    unsigned failed = 0, bad = 0;
    const char *wrong = inject_once(w, number, 0, &rc, &calls, &err);
    if (!ok(!wrong, "%s: nothing fails: %s %s", w->name, wrong ? wrong : "well", err.msg))
        return false;
    const uint32_t clean = inject_sum;
    for (uint64_t n = 1;; n += 1 + (w->dense ? n / w->dense : 0)) {
        wrong = inject_once(w, number, n, &rc, &calls, &err);
        if (!wrong && !rc && inject_sum != clean)
            wrong = "unnoticed, and another result";
        if (wrong)
            printf("# call %" PRIu64 ": %s: %s: %s\n", n, wrong, rc ? tu_err_name(rc) : "success",
                   err.msg);
        bad += wrong != NULL;
        failed += rc != 0;
        if (calls < n)
            break;
    }
    return ok(failed && !bad, "%s: %u of %" PRIu64 " %s fail", w->name, failed, calls,
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
