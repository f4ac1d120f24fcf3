/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c: ceilings of this machine, measured in the same run as what is judged by them.
 */
#include <string.h>
#include "attn/tile.h"

enum { MEMORY = 128 << 20 }; /* bytes per thread, far above the caches */

enum what { FMA, AMX, EXP, COPY, READ };

struct measure {
    enum what what;
    const struct tui_ops *ops;
    double seconds;
    double *done;  /* [threads] operations or bytes per second */
    float *memory; /* [threads][MEMORY] */
};

/* Four independent streams, so that it is memory that is waited for. */
static float read_all(const float *p, size_t n)
{
    uint64_t s[4] = {0};
    const uint64_t *q = (const uint64_t *)(const void *)p;
    for (size_t i = 0; i + 4 <= n / 2; i += 4)
        for (unsigned k = 0; k < 4; k++)
            s[k] += q[i + k];
    return (float)(s[0] + s[1] + s[2] + s[3]);
}

static double round_of(const struct measure *m, float *memory, float *sink)
{
    size_t half = MEMORY / 2;
    switch (m->what) {
    case FMA:
    case AMX: return m->ops->peak(100000, sink);
    case EXP: return m->ops->peak_exp(50000, sink);
    case COPY:
        memcpy(memory, (char *)memory + half, half);
        *sink += memory[7];
        return 2.0 * (double)half;
    default: *sink += read_all(memory, MEMORY / sizeof(float)); return MEMORY;
    }
}

static int task(void *ctx, uint64_t n, unsigned worker, struct tu_err *err)
{
    struct measure *m = ctx;
    float *memory = m->memory ? m->memory + n * (MEMORY / sizeof(float)) : NULL, sink = 0;
    double best = 0, start = tu_clock(), end = start;
    (void)worker;
    (void)err;
    if (m->ops)
        m->ops->begin();
    if (memory)
        memset(memory, 1, MEMORY);
    for (start = tu_clock(); end - start < m->seconds;) {
        double t0 = tu_clock(), done = round_of(m, memory, &sink);
        end = tu_clock();
        if (end > t0 && done / (end - t0) > best)
            best = done / (end - t0);
    }
    if (m->ops)
        m->ops->end();
    m->done[n] = best + (double)(sink == 1234.5f);
    return 0;
}

/* The sum over threads of each one's best round: they run at the same time. */
static int measure(struct measure *m, const struct tu_job *job, double *out,
                   struct tu_err *err)
{
    unsigned threads = tu_pool_size(job ? job->pool : NULL);
    bool memory = m->what == COPY || m->what == READ;
    int code = TU_ENOMEM;
    m->done = tu_calloc(threads, sizeof *m->done, err);
    m->memory = memory ? tu_alloc(threads, MEMORY, err) : NULL;
    if (m->done && (m->memory || !memory))
        code = tu_pool_run(job ? job->pool : NULL, threads, task, m, err);
    *out = 0;
    for (unsigned i = 0; !code && i < threads; i++)
        *out += m->done[i] / 1e9;
    tu_free(m->memory);
    tu_free(m->done);
    m->memory = NULL;
    return code;
}

int tu_attn_peaks_measure(struct tu_attn_peaks *out, double seconds,
                          const struct tu_job *job, struct tu_err *err)
{
    const struct tui_ops *vector = tui_ops_pick(TU_F32, tu_cpu_bits());
    const struct tui_ops *matrix = tui_ops_pick(TU_BF16, tu_cpu_bits());
    struct measure m = {.seconds = seconds, .ops = vector, .what = FMA};
    int code;
    *out = (struct tu_attn_peaks){0};
    if ((code = measure(&m, job, &out->fma_gflops, err)))
        return code;
    m.what = EXP;
    if ((code = measure(&m, job, &out->exp_gops, err)))
        return code;
    m.what = AMX;
    m.ops = matrix;
    if (matrix != vector && (code = measure(&m, job, &out->amx_gflops, err)))
        return code;
    m.ops = NULL;
    m.what = COPY;
    if ((code = measure(&m, job, &out->copy_gbs, err)))
        return code;
    m.what = READ;
    return measure(&m, job, &out->read_gbs, err);
}
