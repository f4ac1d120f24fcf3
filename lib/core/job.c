/* SPDX-License-Identifier: Apache-2.0 */
/* job.c: the questions a call asks of its job, each with an answer when there is none. */
#include <stdarg.h>
#include <stdio.h>
#include "tensorutils/core/job.h"

uint64_t tu_job_memory(const struct tu_job *job)
{
    return job && job->memory ? job->memory : TU_JOB_MEMORY_DEFAULT;
}

bool tu_job_cancelled(const struct tu_job *job)
{
    return job && job->cancelled && job->cancelled(job->ctx);
}

void tu_job_progress(const struct tu_job *job, uint64_t done, uint64_t total)
{
    if (job && job->progress)
        job->progress(job->ctx, done, total);
}

void tu_job_temporary(const struct tu_job *job, const char *path,
                      enum tu_temporary state)
{
    if (job && job->temporary)
        job->temporary(job->ctx, path, state);
}

void tu_job_warn(const struct tu_job *job, const char *fmt, ...)
{
    if (!job || !job->warn)
        return;
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    job->warn(job->ctx, msg);
}
