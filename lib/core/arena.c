/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c: many small things that are freed at once.
 *
 * A list of chunks, the newest first; a thing too large for what is left of the newest
 * gets a chunk of its own size or the next regular size, whichever is more. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "mem_hook.h"
#include "tensorutils/core/mem.h"

#define ALIGN ((size_t)16)
#define CHUNK_FIRST ((size_t)4 << 10)
#define CHUNK_LAST ((size_t)1 << 20)

struct chunk {
    struct chunk *older;
    size_t used, size; /* of the bytes after this header */
};

#define HEADER ((sizeof(struct chunk) + ALIGN - 1) & ~(ALIGN - 1))

struct tu_arena {
    struct chunk *newest;
    size_t next_size;
    size_t used;
};

struct tu_arena *tu_arena_new(struct tu_err *err)
{
    struct tu_arena *a = tu_calloc(1, sizeof *a, err);
    if (a)
        a->next_size = CHUNK_FIRST;
    return a;
}

void tu_arena_free(struct tu_arena *a)
{
    if (!a)
        return;
    for (struct chunk *c = a->newest, *older; c; c = older) {
        older = c->older;
        tu_free(c);
    }
    tu_free(a);
}

static int add_chunk(struct tu_arena *a, size_t need, struct tu_err *err)
{
    size_t size = need > a->next_size ? need : a->next_size;
    struct chunk *c = tu_alloc(1, HEADER + size, err);
    if (!c)
        return TU_ENOMEM;
    *c = (struct chunk){a->newest, 0, size};
    a->newest = c;
    if (a->next_size < CHUNK_LAST)
        a->next_size *= 2;
    return 0;
}

void *tu_arena_alloc(struct tu_arena *a, size_t count, size_t size, struct tu_err *err)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n) || n > PTRDIFF_MAX - HEADER - ALIGN) {
        tu_fail(err, TU_ENOMEM, "out of memory (%zu times %zu bytes asked for)", count,
                size);
        return NULL;
    }
    size_t need = (n + !n + ALIGN - 1) & ~(ALIGN - 1);
    bool room = a->newest && a->newest->size - a->newest->used >= need;
    if (room ? tui_mem_refuse(need, err) : add_chunk(a, need, err) != 0)
        return NULL;
    char *p = (char *)a->newest + HEADER + a->newest->used;
    a->newest->used += need;
    a->used += need;
    return memset(p, 0, need);
}

char *tu_arena_text(struct tu_arena *a, const char *s, size_t n, struct tu_err *err)
{
    if (n == SIZE_MAX) {
        tu_fail(err, TU_ENOMEM, "out of memory (%zu bytes asked for)", n);
        return NULL;
    }
    char *copy = tu_arena_alloc(a, n + 1, 1, err);
    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

char *tu_arena_printf(struct tu_arena *a, struct tu_err *err, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    char *text = NULL;
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        tu_fail(err, TU_EBUG, "cannot format '%s'", fmt);
    else if ((text = tu_arena_alloc(a, (size_t)n + 1, 1, err)))
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return text;
}

size_t tu_arena_used(const struct tu_arena *a)
{
    return a->used;
}
