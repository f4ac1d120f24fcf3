/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c: the one place that asks for memory, so the one place where it can be made to
 * fail.
 *
 * The failure injection is the only state; outside tests it costs one relaxed increment and
 * load per allocation. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "mem_hook.h"
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/mem.h"

#define ALIGN 64

static struct {
    _Atomic uint64_t count;
    _Atomic uint64_t nth; /* 0: never */
    atomic_int flags;
    void (*_Atomic seen)(uint64_t);
} inject;

uint64_t tu_mem_inject(uint64_t nth, int flags)
{
    atomic_store(&inject.nth, nth);
    atomic_store(&inject.flags, flags);
    return atomic_exchange(&inject.count, 0);
}

void tu_mem_watch(void (*seen)(uint64_t nth))
{
    atomic_store(&inject.seen, seen);
}

/* Count an allocation; true when a test wants it to fail. */
static bool refuse(void)
{
    uint64_t me = atomic_fetch_add_explicit(&inject.count, 1, memory_order_relaxed) + 1;
    uint64_t nth = atomic_load_explicit(&inject.nth, memory_order_relaxed);
    void (*seen)(uint64_t) = atomic_load_explicit(&inject.seen, memory_order_relaxed);
    if (seen)
        seen(me);
    return nth && (me == nth || (me > nth && atomic_load(&inject.flags) & TU_MEM_STICKY));
}

/* count × size, at least 1; false when it cannot be an object's size. */
static bool total_of(size_t count, size_t size, size_t *total)
{
    if (__builtin_mul_overflow(count, size, total) || *total > PTRDIFF_MAX - ALIGN)
        return false;
    *total += *total == 0;
    return true;
}

static void *no_memory(size_t count, size_t size, struct tu_err *err)
{
    if (size == 1)
        tu_fail(err, TU_ENOMEM, "out of memory (%zu bytes asked for)", count);
    else
        tu_fail(err, TU_ENOMEM, "out of memory (%zu times %zu bytes asked for)", count,
                size);
    return NULL;
}

bool tui_mem_refuse(size_t n, struct tu_err *err)
{
    if (!(atomic_load_explicit(&inject.flags, memory_order_relaxed) & TU_MEM_FINE) || !refuse())
        return false;
    no_memory(n, 1, err);
    return true;
}

void *tu_alloc(size_t count, size_t size, struct tu_err *err)
{
    size_t total;
    void *p;
    if (!total_of(count, size, &total) || refuse() ||
        posix_memalign(&p, ALIGN, total) != 0)
        return no_memory(count, size, err);
    return p;
}

void *tu_calloc(size_t count, size_t size, struct tu_err *err)
{
    void *p = tu_alloc(count, size, err);
    return p ? memset(p, 0, count * size) : NULL;
}

void *tu_realloc(void *p, size_t count, size_t size, struct tu_err *err)
{
    size_t total;
    void *q = NULL;
    if (!total_of(count, size, &total) || refuse() || !(q = realloc(p, total)))
        return no_memory(count, size, err);
    return q;
}

char *tu_strdup(const char *s, struct tu_err *err)
{
    size_t n = strlen(s) + 1;
    char *copy = tu_alloc(n, 1, err);
    return copy ? memcpy(copy, s, n) : NULL;
}

void tu_free(void *p)
{
    free(p);
}

void *tui_malloc(size_t n)
{
    return refuse() ? NULL : malloc(n);
}

void tui_mfree(void *p)
{
    free(p);
}

int tu_grow(void *items, size_t *cap, size_t n, size_t size, struct tu_err *err)
{
    if (n < *cap)
        return tui_mem_refuse(size, err) ? TU_ENOMEM : 0;
    /* items is the address of a pointer to some object type: copied as bytes, for its
     * type is not known here. */
    void *old;
    memcpy(&old, items, sizeof old);
    size_t more;
    if (__builtin_add_overflow(n, n / 2 + 8, &more))
        more = SIZE_MAX;
    void *now = tu_realloc(old, more, size, err);
    if (!now)
        return TU_ENOMEM;
    memcpy(items, &now, sizeof now);
    *cap = more;
    return 0;
}
