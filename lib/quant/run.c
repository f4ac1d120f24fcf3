/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: the driver: a tensor through a codec, in bounded memory, over a pool.
 *
 * The tensor passes in windows of tasks, a task being a run of whole atoms. Three things
 * happen at once: window w is coded (tasks 1 …), and by task 0 window w+1 is read and
 * window w-1 written. A task's work and its partial sums depend on its number alone and
 * are merged in order, so the result is the same for any number of threads.
 *
 * Not for layouts whose codes do not follow the order of the elements: their atom is the
 * tensor. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "gpu.h"

#define TASK_ELEMENTS 32768u
#define WINDOW_ELEMENTS (UINT64_C(1) << 20)

/* Bytes as a function of elements: atom elements take `size` bytes. */
struct span {
    uint64_t atom, size, elements, bytes;
};

static uint64_t span_at(const struct span *s, uint64_t element)
{
    return element >= s->elements ? s->bytes : element / s->atom * s->size;
}

static uint64_t span_bytes(const struct span *s, uint64_t first, uint64_t n)
{
    return span_at(s, first + n) - span_at(s, first);
}

/* What a task leaves behind. */
struct slot {
    struct tu_tally tally;
    double sum_abs;
    struct tu_measure measure;
    uint64_t replaced;
};

struct pump {
    struct tu_coding *c;
    const struct tu_coding *plan; /* the same, for reading */
    struct tu_coding_run *run;
    void *const *side;
    int (*code)(struct pump *p, uint64_t first, size_t n, unsigned char *in,
                unsigned char *out, struct slot *slot, float *scratch,
                struct tu_err *err);
    struct span in, out;   /* out.size 0: nothing is written */
    uint64_t task, tasks;  /* elements of a task, tasks of a window */
    size_t scratch_floats; /* per worker */
    const struct tu_job *job;
    unsigned char *buf[2], *to[2];
    float *scratch;
    struct slot *slot;
    uint64_t window, windows;
    struct tui_gpu *gpu; /* NULL: the CPU codes */
};

static uint64_t window_first(const struct pump *p, uint64_t w)
{
    return w * p->task * p->tasks;
}

static uint64_t window_length(const struct pump *p, uint64_t w)
{
    return tu_min(p->task * p->tasks, p->in.elements - window_first(p, w));
}

static int read_window(struct pump *p, uint64_t w, struct tu_err *err)
{
    uint64_t n = span_bytes(&p->in, window_first(p, w), window_length(p, w));
    return p->run->flow->read(p->run->flow->ctx, p->buf[w % 2], (size_t)n, err);
}

static int write_window(struct pump *p, uint64_t w, struct tu_err *err)
{
    if (!p->out.size)
        return 0;
    uint64_t n = span_bytes(&p->out, window_first(p, w), window_length(p, w));
    return p->run->flow->write(p->run->flow->ctx, p->to[w % 2], (size_t)n, err);
}

static int run_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct pump *p = ctx;
    uint64_t w = p->window;
    if (task == 0) {
        int rc = w ? write_window(p, w - 1, err) : 0;
        return rc || w + 1 == p->windows ? rc : read_window(p, w + 1, err);
    }
    uint64_t base = window_first(p, w), first = base + (task - 1) * p->task;
    uint64_t n = tu_min(p->task, base + window_length(p, w) - first);
    unsigned char *in = p->buf[w % 2] + (span_at(&p->in, first) - span_at(&p->in, base));
    unsigned char *to =
        p->out.size ? p->to[w % 2] + (span_at(&p->out, first) - span_at(&p->out, base))
                    : NULL;
    return p->code(p, first, (size_t)n, in, to, &p->slot[task - 1],
                   p->scratch + worker * p->scratch_floats, err);
}

static void merge_slots(struct pump *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct slot *s = &p->slot[i];
        if (s->tally.n)
            tu_tally_join(&p->c->tally, &s->tally);
        p->c->sum_abs += s->sum_abs;
        p->run->replaced += s->replaced;
        if (p->run->measure)
            tu_measure_merge(p->run->measure, &s->measure);
    }
}

static int pump_alloc(struct pump *p, struct tu_err *err)
{
    uint64_t n = tu_min(p->task * p->tasks, p->in.elements);
    uint64_t in = span_bytes(&p->in, 0, n),
             out = p->out.size ? span_bytes(&p->out, 0, n) : 0;
    for (unsigned i = 0; i < 2; i++) {
        if (!(p->buf[i] = tu_alloc((size_t)in, 1, err)) ||
            !(p->to[i] = tu_alloc((size_t)out, 1, err)))
            return TU_ENOMEM;
    }
    size_t workers = tu_pool_size(p->job ? p->job->pool : NULL);
    uint64_t floats;
    if (tu_mul_over(p->scratch_floats, workers, &floats) || floats > SIZE_MAX)
        return tu_fail(err, TU_ENOMEM, "%zu floats for %zu threads", p->scratch_floats,
                       workers);
    if (!(p->scratch = tu_alloc((size_t)floats, sizeof *p->scratch, err)) ||
        !(p->slot = tu_calloc((size_t)p->tasks, sizeof *p->slot, err)))
        return TU_ENOMEM;
    return 0;
}

/* A pump may run again. */
static void pump_free(struct pump *p)
{
    for (unsigned i = 0; i < 2; i++) {
        tu_free(p->buf[i]);
        tu_free(p->to[i]);
        p->buf[i] = p->to[i] = NULL;
    }
    tu_free(p->scratch);
    tu_free(p->slot);
    p->scratch = NULL;
    p->slot = NULL;
}

/* Runs of whole atoms that begin at whole bytes on both sides. */
static void cut_tasks(struct pump *p, uint64_t atom)
{
    uint64_t step = atom * (p->in.atom > atom ? p->in.atom : 1);
    if (p->out.size && p->out.atom > 1 && step % p->out.atom)
        step *= p->out.atom;
    if (step % p->in.atom)
        step *= p->in.atom;
    /* A launch is worth more elements than a task of the pool. */
    p->task = step * tu_max(1, (p->gpu && !p->run->measure ? 8 : 1) * TASK_ELEMENTS / step);
    p->tasks = tu_max(1, WINDOW_ELEMENTS / p->task);
    p->windows = tu_ceil_div(p->in.elements, p->task * p->tasks);
}

static int pump_run(struct pump *p, struct tu_err *err)
{
    if (!p->in.elements)
        return 0;
    struct tu_pool *pool = p->job ? p->job->pool : NULL;
    int rc = pump_alloc(p, err);
    if (!rc)
        rc = read_window(p, 0, err);
    for (p->window = 0; !rc && p->window < p->windows; p->window++) {
        if (tu_job_cancelled(p->job)) {
            rc = tu_fail(err, TU_ECANCEL, "stopped");
            break;
        }
        uint64_t n = tu_ceil_div(window_length(p, p->window), p->task);
        memset(p->slot, 0, (size_t)n * sizeof *p->slot);
        rc = tu_pool_run(pool, 1 + n, run_task, p, err);
        if (!rc)
            merge_slots(p, n);
    }
    if (!rc)
        rc = write_window(p, p->windows - 1, err);
    pump_free(p);
    return rc;
}

/* Encoding --------------------------------------------------------------------------- */

static bool all_finite(const float *x, size_t n)
{
    enum { PART = 4096 };
    for (size_t i = 0; i < n; i += PART) {
        size_t k = n - i < PART ? n - i : PART;
        uint32_t bad = 0;
        for (size_t j = 0; j < k; j++) {
            uint32_t bits;
            memcpy(&bits, x + i + j, sizeof bits);
            bad |= (bits & 0x7f800000) == 0x7f800000;
        }
        if (bad)
            return false;
    }
    return true;
}

static int treat_nonfinite(const struct pump *p, uint64_t first, size_t n, float *x,
                           struct slot *slot, struct tu_err *err)
{
    if (p->run->nonfinite == TU_NONFINITE_KEEP || all_finite(x, n))
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            continue;
        if (p->run->nonfinite == TU_NONFINITE_ERROR)
            return tu_fail(err, TU_EUNSUP, "row %" PRIu64 ", column %" PRIu64 ": %s",
                           (first + i) / p->plan->cols, (first + i) % p->plan->cols,
                           isnan(x[i]) ? "NaN"
                           : x[i] > 0  ? "Inf"
                                       : "-Inf");
        x[i] = 0;
        slot->replaced++;
    }
    return 0;
}

/* The task's elements as floats: in place, or in *scratch, which then moves on. */
static int load(const struct pump *p, uint64_t first, size_t n, unsigned char *in,
                float **scratch, float **x, struct slot *slot, struct tu_err *err)
{
    if (p->run->dtype == TU_F32) {
        *x = (float *)(void *)in;
    } else {
        *x = *scratch;
        *scratch += n;
        int rc = tu_to_float(p->run->dtype, in, *x, n, err);
        if (rc)
            return rc;
    }
    return treat_nonfinite(p, first, n, *x, slot, err);
}

static int tally_task(struct pump *p, uint64_t first, size_t n, unsigned char *in,
                      unsigned char *out, struct slot *slot, float *scratch,
                      struct tu_err *err)
{
    (void)out;
    float *x;
    int rc = load(p, first, n, in, &scratch, &x, slot, err);
    if (!rc)
        rc = tu_tally_add(&slot->tally, TU_F32, x, n, NULL, err);
    for (size_t i = 0; !rc && i < n; i++)
        slot->sum_abs += isfinite(x[i]) ? (double)fabsf(x[i]) : 0;
    slot->replaced = 0; /* counted by the second pass */
    return rc;
}

/* Each side's bytes of the atom that holds element `first`. */
static void side_at(const struct pump *p, uint64_t first, void *at[TU_CODING_SIDES])
{
    for (unsigned k = 0; k < p->plan->sides + p->plan->scratch; k++)
        at[k] = (unsigned char *)p->side[k] +
                first / p->plan->atom * p->plan->side[k].atom_bytes;
}

static int encode_task(struct pump *p, uint64_t first, size_t n, unsigned char *in,
                       unsigned char *out, struct slot *slot, float *scratch,
                       struct tu_err *err)
{
    float *x;
    void *side[TU_CODING_SIDES] = {NULL};
    struct tu_coding c = *p->plan;
    side_at(p, first, side);
    int rc = load(p, first, n, in, &scratch, &x, slot, err);
    /* Kernels agree with the reference on finite numbers. */
    if (!rc && p->run->nonfinite == TU_NONFINITE_KEEP && !all_finite(x, n))
        c.cpu = 0;
    if (!rc)
        rc = p->gpu ? tui_gpu_encode(p->gpu, first, n, x, out, side[0], err)
                    : c.codec->encode(&c, first, n, x, out, side, err);
    if (rc || !p->run->measure)
        return rc;
    rc = c.codec->decode(&c, first, n, out, (const void *const *)side, scratch, err);
    if (!rc)
        tu_measure_add(&slot->measure, x, scratch, first, n, p->plan->atom);
    return rc;
}

static int plain_span(struct span *s, const struct tu_coding *c, uint32_t dtype,
                      struct tu_err *err)
{
    const struct tu_dtype *t = tu_dtype_find(dtype);
    if (!t || dtype & TU_DTYPE_GGML)
        return tu_fail(err, TU_EDTYPE, "elements of dtype 0x%04x are not plain",
                       (unsigned)dtype);
    *s = (struct span){t->block_elems, t->block_bytes, c->elements, 0};
    s->bytes = tu_ceil_div(c->elements, t->block_elems) * t->block_bytes;
    return 0;
}

static struct span code_span(const struct tu_coding *c)
{
    return (struct span){c->atom, c->code.atom_bytes, c->elements, c->code.bytes};
}

/* The first pass: what the tensor's values are like. */
static int tally_pass(struct pump *p, struct tu_err *err)
{
    struct tu_coding *c = p->c;
    const struct tu_flow *flow = p->run->flow;
    if (!flow->rewind)
        return tu_fail(err, TU_EUSAGE, "codec '%s' reads a tensor twice: not from a pipe",
                       c->codec->name);
    memset(&c->tally, 0, sizeof c->tally);
    c->sum_abs = 0;
    p->code = tally_task;
    cut_tasks(p, c->atom);
    p->scratch_floats = (size_t)p->task;
    int rc = pump_run(p, err);
    return rc ? rc : flow->rewind(flow->ctx, err);
}

int tu_coding_encode(struct tu_coding *c, struct tu_coding_run *run, void *const *side,
                     const struct tu_job *job, struct tu_err *err)
{
    void *all[TU_CODING_SIDES] = {NULL};
    struct pump p = {.c = c, .plan = c, .run = run, .side = all, .job = job};
    if (!c->codec->encode)
        return tu_fail(err, TU_EUSAGE, "codec '%s' can only decode", c->codec->name);
    int rc = plain_span(&p.in, c, run->dtype, err);
    for (unsigned k = 0; k < c->sides; k++)
        all[k] = side[k];
    for (unsigned k = c->sides; !rc && k < c->sides + c->scratch; k++)
        if (!(all[k] = tu_alloc((size_t)c->side[k].bytes, 1, err)))
            rc = TU_ENOMEM;
    if (!rc && c->two_pass)
        rc = tally_pass(&p, err);
    if (!rc && c->codec->start)
        rc = c->codec->start(c, all, err);
    /* Kernels take finite numbers. */
    if (!rc && run->device && run->nonfinite != TU_NONFINITE_KEEP)
        rc = tui_gpu_new(&p.gpu, run->device, c, true, all, err);
    if (rc)
        goto out;
    p.code = encode_task;
    p.out = code_span(c);
    cut_tasks(&p, c->atom);
    if (p.gpu && (rc = tui_gpu_room(p.gpu, p.task, err)))
        goto out;
    p.scratch_floats = (size_t)p.task * (run->measure ? 2 : 1);
    rc = pump_run(&p, err);
    if (!rc && c->codec->finish)
        rc = c->codec->finish(c, all, err);
out:
    tui_gpu_free(p.gpu);
    for (unsigned k = c->sides; k < c->sides + c->scratch; k++)
        tu_free(all[k]);
    return rc;
}

/* Decoding --------------------------------------------------------------------------- */

static int decode_task(struct pump *p, uint64_t first, size_t n, unsigned char *in,
                       unsigned char *out, struct slot *slot, float *scratch,
                       struct tu_err *err)
{
    (void)slot;
    void *side[TU_CODING_SIDES] = {NULL};
    side_at(p, first, side);
    float *x = p->run->dtype == TU_F32 ? (float *)(void *)out : scratch;
    int rc = p->gpu ? tui_gpu_decode(p->gpu, first, n, in, side[0], x, err)
                    : p->plan->codec->decode(p->plan, first, n, in,
                                             (const void *const *)side, x, err);
    return rc || x != scratch ? rc : tu_cast(p->run->dtype, out, TU_F32, x, n, err);
}

int tu_coding_decode(const struct tu_coding *c, struct tu_coding_run *run,
                     const void *const *side, const struct tu_job *job,
                     struct tu_err *err)
{
    struct tu_coding own = *c;
    struct pump p = {.c = &own, .plan = &own, .run = run, .job = job, .code = decode_task};
    void *mutable[TU_CODING_SIDES] = {NULL};
    own.scratch = 0;
    for (unsigned k = 0; k < c->sides; k++)
        memcpy(&mutable[k], &side[k], sizeof mutable[k]);
    p.side = mutable;
    p.in = code_span(c);
    int rc = plain_span(&p.out, c, run->dtype, err);
    if (!rc && run->device)
        rc = tui_gpu_new(&p.gpu, run->device, &own, false, mutable, err);
    if (rc)
        return rc;
    cut_tasks(&p, c->atom);
    if (p.gpu && (rc = tui_gpu_room(p.gpu, p.task, err)))
        goto out;
    p.scratch_floats = (size_t)p.task;
    struct tu_measure *measure = run->measure;
    run->measure = NULL;
    rc = pump_run(&p, err);
    run->measure = measure;
out:
    tui_gpu_free(p.gpu);
    return rc;
}

uint64_t tu_coding_memory(const struct tu_coding *c, uint32_t dtype)
{
    struct pump p = {.plan = c, .out = code_span(c)};
    if (plain_span(&p.in, c, dtype, NULL))
        return 0;
    cut_tasks(&p, c->atom);
    uint64_t n = tu_min(p.task * p.tasks, c->elements), bytes;
    bytes = 2 * (span_bytes(&p.in, 0, n) + span_bytes(&p.out, 0, n)) +
            2 * p.task * sizeof(float);
    for (unsigned k = 0; k < c->sides; k++)
        bytes += c->side[k].bytes;
    return bytes;
}

/* In memory -------------------------------------------------------------------------- */

struct memory {
    const unsigned char *from;
    unsigned char *to;
    uint64_t in, out;
};

static int memory_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    (void)err;
    struct memory *m = ctx;
    memcpy(buf, m->from + m->in, n);
    m->in += n;
    return 0;
}

static int memory_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    (void)err;
    struct memory *m = ctx;
    memcpy(m->to + m->out, p, n);
    m->out += n;
    return 0;
}

static int memory_rewind(void *ctx, struct tu_err *err)
{
    (void)err;
    ((struct memory *)ctx)->in = 0;
    return 0;
}

int tu_coding_encode_mem(struct tu_coding *c, const float *x, void *code,
                         void *const *side, struct tu_pool *pool, struct tu_err *err)
{
    struct memory m = {(const unsigned char *)x, code, 0, 0};
    struct tu_flow flow = {&m, memory_read, memory_write, memory_rewind};
    struct tu_coding_run run = {.flow = &flow, .dtype = TU_F32};
    struct tu_job job = {.pool = pool};
    return tu_coding_encode(c, &run, side, &job, err);
}

int tu_coding_decode_mem(const struct tu_coding *c, const void *code,
                         const void *const *side, float *x, struct tu_pool *pool,
                         struct tu_err *err)
{
    struct memory m = {code, (unsigned char *)x, 0, 0};
    struct tu_flow flow = {&m, memory_read, memory_write, NULL};
    struct tu_coding_run run = {.flow = &flow, .dtype = TU_F32};
    struct tu_job job = {.pool = pool};
    return tu_coding_decode(c, &run, side, &job, err);
}
