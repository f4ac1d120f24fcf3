/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h: memory that can fail on purpose, and arenas for things that die together. */
#ifndef TENSORUTILS_CORE_MEM_H
#define TENSORUTILS_CORE_MEM_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

/* count × size bytes at a multiple of 64, uninitialised; at least one byte, so the result is
 * never NULL without an error. Free with tu_free. Errors: TU_ENOMEM (overflow included). */
TU_API TU_MUST void *tu_alloc(size_t count, size_t size, struct tu_err *err);
/* The same, zeroed. */
TU_API TU_MUST void *tu_calloc(size_t count, size_t size, struct tu_err *err);
/* Grow or shrink p (may be NULL), keeping its bytes but not the 64-byte alignment.
 * On failure p stays valid and belongs to the caller. */
TU_API TU_MUST void *tu_realloc(void *p, size_t count, size_t size, struct tu_err *err);
TU_API TU_MUST char *tu_strdup(const char *s, struct tu_err *err);
TU_API void tu_free(void *p);

/* For growing arrays: make room for one more element in *items (capacity *cap, used n).
 * `TU_GROW(&list->item, &list->cap, list->n, err)`; 0 or TU_ENOMEM. */
TU_API TU_MUST int tu_grow(void *items, size_t *cap, size_t n, size_t size, struct tu_err *err);
#define TU_GROW(items, cap, n, err) tu_grow((items), (cap), (n), sizeof **(items), (err))

/* An arena: many small things freed at once. Not for concurrent use. */
struct tu_arena;
TU_API TU_MUST struct tu_arena *tu_arena_new(struct tu_err *err);
TU_API void tu_arena_free(struct tu_arena *a);
/* count × size zeroed bytes at a multiple of 16, valid until the arena is freed. */
TU_API TU_MUST void *tu_arena_alloc(struct tu_arena *a, size_t count, size_t size,
                                    struct tu_err *err);
/* A copy of n bytes with a NUL after them. */
TU_API TU_MUST char *tu_arena_text(struct tu_arena *a, const char *s, size_t n,
                                   struct tu_err *err);
TU_API TU_MUST char *tu_arena_printf(struct tu_arena *a, struct tu_err *err, const char *fmt,
                                     ...) TU_PRINTF(3, 4);
/* Bytes handed out so far. */
TU_API size_t tu_arena_used(const struct tu_arena *a);

/* Failure injection, for tests only: the nth allocation from now fails (1 = the next, 0 = never).
 * Library calls of Jansson and PCRE2 count too. Returns the number of allocations since the last
 * call. */
enum tu_mem_inject {
    TU_MEM_STICKY = 1, /* each one after it fails as well */
    TU_MEM_FINE = 2,   /* what an arena, a buffer or a growing array has room for counts too */
};
TU_API uint64_t tu_mem_inject(uint64_t nth, int flags);
/* Call this with the number of each allocation that counts, from whichever thread makes it; NULL:
 * nothing. */
TU_API void tu_mem_watch(void (*seen)(uint64_t nth));

TU_END

#endif
