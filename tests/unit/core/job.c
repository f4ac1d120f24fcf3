/* SPDX-License-Identifier: Apache-2.0 */
/* A job's questions, with a job, with an empty one and without. */
#include "../tap.h"
#include "tensorutils/core/job.h"

struct heard {
    uint64_t done, total;
    const char *path;
    bool born;
    char msg[64];
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct heard *h = ctx;
    h->done = done;
    h->total = total;
}

static bool yes(void *ctx)
{
    return ctx != NULL;
}

static void on_temporary(void *ctx, const char *path, enum tu_temporary state)
{
    struct heard *h = ctx;
    h->path = path;
    h->born = state == TU_TEMP_BORN;
}

static void on_warn(void *ctx, const char *msg)
{
    struct heard *h = ctx;
    snprintf(h->msg, sizeof h->msg, "%s", msg);
}

int main(void)
{
    struct heard h = {0};
    const struct tu_job none = {0};
    const struct tu_job job = {.memory = 5, .ctx = &h, .progress = on_progress,
                               .cancelled = yes,
                               .temporary = on_temporary, .warn = on_warn};
    const struct tu_job *silent[] = {NULL, &none};
    for (int i = 0; i < 2; i++) {
        eq_u64(tu_job_memory(silent[i]), 134217728, "default memory is 128 MiB");
        ok(!tu_job_cancelled(silent[i]), "not cancelled");
        tu_job_progress(silent[i], 1, 2);
        tu_job_temporary(silent[i], "x", TU_TEMP_BORN);
        tu_job_warn(silent[i], "%d", 1);
    }
    eq_u64(tu_job_memory(&job), 5, "memory");
    ok(tu_job_cancelled(&job), "cancelled");
    tu_job_progress(&job, 3, 4);
    ok(h.done == 3 && h.total == 4, "progress");
    tu_job_temporary(&job, "p", TU_TEMP_BORN);
    ok(strcmp(h.path, "p") == 0 && h.born, "temporary");
    tu_job_warn(&job, "%s %d", "w", 9);
    eq_str(h.msg, "w 9", "warning");
    return tap_done();
}
