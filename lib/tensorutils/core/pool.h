/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: a fixed set of worker threads and one parallel loop.
 *
 * What a task computes must depend on its number alone, never on which thread runs it or in
 * which order: results are then the same for any -j. Threads start at the first loop, so a
 * process may fork before it. */
#ifndef TENSORUTILS_CORE_POOL_H
#define TENSORUTILS_CORE_POOL_H

#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

struct tu_pool;

/* threads = 0: as many as the affinity mask allows. */
TU_API TU_MUST struct tu_pool *tu_pool_new(unsigned threads, struct tu_err *err);
TU_API void tu_pool_free(struct tu_pool *p);
/* Threads that share a loop, the caller included; 1 for NULL. */
TU_API unsigned tu_pool_size(const struct tu_pool *p);

/* One task. `worker` < tu_pool_size is for scratch memory. 0 or a TU_E code with *err filled. */
typedef int (*tu_task_fn)(void *ctx, uint64_t task, unsigned worker, struct tu_err *err);
/* Run tasks 0..n-1, each once, handed out in ascending order; returns when all are done. After a
 * failure no new task starts and the error of the lowest failed task is returned. p may be NULL.
 * Loops do not nest on one pool: a call from inside a task runs on the calling thread alone. */
TU_API TU_MUST int tu_pool_run(struct tu_pool *p, uint64_t n, tu_task_fn fn, void *ctx,
                               struct tu_err *err);

TU_END

#endif
