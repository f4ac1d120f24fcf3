/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: the allocator of pages that vLLM v1 has, to the letter: reference counts, one
 * queue of free pages, prefix hits by key, copy on write.
 *
 * A free page stays cached under its key until it is popped from the queue's head. A
 * sequence's pages are freed last to first, so the tail of a chain goes before its head.
 * Source: vLLM v1/core/block_pool.py and kv_cache_manager.py. */
#ifndef TENSORUTILS_KV_POOL_H
#define TENSORUTILS_KV_POOL_H

#include "../core.h"

TU_BEGIN

struct tu_kv_pool;

struct tu_kv_pool_count {
    uint64_t lookups, hits; /* full blocks asked for, found */
    uint64_t evictions;     /* cached pages that were given away */
    uint64_t copies;        /* pages copied before a write */
    uint64_t peak;          /* most pages in use at once */
    uint64_t used;          /* now */
};

TU_API TU_MUST int tu_kv_pool_new(struct tu_kv_pool **out, uint32_t pages,
                                  uint32_t block, struct tu_err *err);
TU_API void tu_kv_pool_free(struct tu_kv_pool *p);
/* A sequence of `tokens` tokens; key[tokens / block] names its full blocks. The leading
 * run of cached ones is shared, at most tokens-1 of them counting as hits. *seq is its
 * number, *hits in blocks. Errors: TU_ENOMEM with a count where pages run out: nothing
 * changes. */
TU_API TU_MUST int tu_kv_pool_begin(struct tu_kv_pool *p, const uint64_t *key,
                                    uint64_t tokens, uint32_t *seq, uint64_t *hits,
                                    struct tu_err *err);
/* The sequence has grown to `tokens`; key [tokens / block] as before. A shared page that
 * is written is copied first; *copied_from and *copied_to say which (-1: none). */
TU_API TU_MUST int tu_kv_pool_grow(struct tu_kv_pool *p, uint32_t seq,
                                   const uint64_t *key, uint64_t tokens,
                                   int32_t *copied_from, int32_t *copied_to,
                                   struct tu_err *err);
/* Another sequence that shares all pages of this one (parallel sampling, beams). */
TU_API TU_MUST int tu_kv_pool_fork(struct tu_kv_pool *p, uint32_t seq, uint32_t *out,
                                   struct tu_err *err);
TU_API void tu_kv_pool_end(struct tu_kv_pool *p, uint32_t seq);
/* Its pages, borrowed until the next call. */
TU_API const int32_t *tu_kv_pool_pages(const struct tu_kv_pool *p, uint32_t seq,
                                       uint64_t *n);
/* The queue of free pages from its head; returns how many there are, out may be NULL. */
TU_API uint64_t tu_kv_pool_queue(const struct tu_kv_pool *p, int32_t *out);
TU_API uint32_t tu_kv_pool_refs(const struct tu_kv_pool *p, int32_t page);
TU_API void tu_kv_pool_counts(const struct tu_kv_pool *p, struct tu_kv_pool_count *out);

TU_END

#endif
