/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: what a long library call is given to work with, and how it talks back.
 *
 * The library starts no threads of its own, prints nothing and polls no signals; the caller
 * lends it a pool and a memory budget and is called back. A NULL job, or a NULL member, means
 * "do without": one thread, the default budget, silence. */
#ifndef TENSORUTILS_CORE_JOB_H
#define TENSORUTILS_CORE_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include "attr.h"

TU_BEGIN

struct tu_pool;

#define TU_JOB_MEMORY_DEFAULT (UINT64_C(128) << 20) /* bytes */

/* What is under a temporary name. */
enum tu_temporary {
    TU_TEMP_GONE, /* nothing: renamed or removed */
    TU_TEMP_BORN, /* a file or an empty folder, in a moment */
    TU_TEMP_TREE, /* a folder, and all that will be below it is ours too */
};

struct tu_job {
    struct tu_pool *pool; /* borrowed; NULL: the calling thread alone */
    uint64_t memory;      /* bytes of buffers the call may hold; 0: TU_JOB_MEMORY_DEFAULT */
    void *ctx;            /* passed back to each function below */
    /* Work done so far, in units of the call (bytes where bytes move). From any thread. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    /* True asks the call to stop soon with TU_ECANCEL. From any thread; cheap. */
    bool (*cancelled)(void *ctx);
    /* The caller removes what is not gone when a signal ends it. */
    void (*temporary)(void *ctx, const char *path, enum tu_temporary state);
    /* Something the user should know though the call goes on: one line as in err.h. */
    void (*warn)(void *ctx, const char *msg);
};

/* Each accepts a NULL job. */
TU_API uint64_t tu_job_memory(const struct tu_job *job);
TU_API bool tu_job_cancelled(const struct tu_job *job);
TU_API void tu_job_progress(const struct tu_job *job, uint64_t done, uint64_t total);
TU_API void tu_job_temporary(const struct tu_job *job, const char *path,
                             enum tu_temporary state);
TU_API void tu_job_warn(const struct tu_job *job, const char *fmt, ...)
    TU_PRINTF(2, 3);

TU_END

#endif
