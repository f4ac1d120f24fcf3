/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: what each rank holds over time.
 *
 * Activations are allocated when a forward (or recomputation, or fetch) starts and freed
 * when the operation that is done with them ends; of an overlapped pair the forward
 * counts first. In the conservative mode nothing is freed by I and all by W. */
#include <stdlib.h>
#include "sched/build.h"
#include "sched/memory.h"
#include "sched/versions.h"

struct tui_mem tui_mem_of(const struct tu_cost *c, uint32_t chunks, uint32_t slices)
{
    if (c->mem_b) /* of a slice as of a whole: then M_B is as many times more */
        return (struct tui_mem){c->mem_unit * slices, c->mem_b, c->mem_w, c->mem_ckpt};
    return (struct tui_mem){2 * (int64_t)chunks * slices, 2, 1, 0};
}

int64_t tui_mem_at_w(const struct tu_cost *c)
{
    struct tui_mem m = tui_mem_of(c, 1, 1);
    return c->release == TU_MEM_SPLIT ? m.for_w : m.full;
}

int64_t tu_cost_unit(const struct tu_cost *c, uint32_t chunks)
{
    return tui_mem_of(c, chunks, 1).unit;
}

int tui_cap_low(const struct tu_cost *c, uint32_t chunks, int64_t cap, const char *what,
                int64_t least, struct tu_err *err)
{
    char a[40], b[40];
    int64_t unit = c ? tu_cost_unit(c, chunks) : 2 * (int64_t)chunks;
    return tu_fail(err, TU_EUSAGE,
                   "memory cap %s: is less than %s, %s (in M_B, activations of a rank's "
                   "share of a micro-batch)",
                   tu_ticks_text(cap, unit, a), what, tu_ticks_text(least, unit, b));
}

struct event {
    int64_t time;
    int64_t change;
};

/* Changes of one operation: at its start (≥ 0) and at its end (≤ 0). */
static void changes(const struct tui_mem *m, const struct tu_cost *c, bool train,
                    const struct tu_op *op, bool ckpt, int64_t *at_start, int64_t *at_end)
{
    *at_start = *at_end = 0;
    if (!train) { /* no backward comes back for it */
        *at_start = op->kind == TU_OP_F ? m->full : 0;
        *at_end = -*at_start;
        return;
    }
    switch ((enum tu_op_kind)op->kind) {
    case TU_OP_F: *at_start = ckpt ? m->ckpt : m->full; break;
    case TU_OP_R: *at_start = m->full - m->ckpt; break;
    case TU_OP_FETCH: *at_start = ckpt ? m->ckpt : m->full; break;
    case TU_OP_OFFLOAD: *at_end = ckpt ? -m->ckpt : -m->full; break;
    case TU_OP_B: *at_end = -m->full; break;
    case TU_OP_I: *at_end = c->release == TU_MEM_SPLIT ? m->for_w - m->full : 0; break;
    case TU_OP_W: *at_end = c->release == TU_MEM_SPLIT ? -m->for_w : -m->full; break;
    default: break;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->change < y->change ? -1 : x->change > y->change; /* frees first */
}

/* Which units of a rank are recomputed: then F keeps, and the host takes, the checkpoint alone. */
static bool recomputes(const struct tu_sched *s, uint32_t rank)
{
    for (size_t i = 0; i < s->n[rank]; i++)
        if (s->op[rank][i].kind == TU_OP_R)
            return true;
    return false;
}

/* Events of a rank in time order; asynchronous operations are the only ones out of it. */
static int events(const struct tu_sim *r, const struct tu_sched *s,
                  const struct tu_cost *c, uint32_t rank, struct event **out, size_t *n,
                  struct tu_err *err)
{
    struct tui_mem m = tui_mem_of(c, 1, 1); /* the unit is r's */
    struct event *e = tu_alloc(2 * s->n[rank] + 2, sizeof *e, err);
    if (!e)
        return TU_ENOMEM;
    bool ckpt = recomputes(s, rank), async = false;
    *n = 0;
    for (size_t i = 0; i < s->n[rank]; i++) {
        const struct tu_op *op = &s->op[rank][i];
        size_t id = r->base[rank] + i;
        int64_t up, down;
        changes(&m, c, s->deps == TU_DEPS_TRAIN, op, ckpt, &up, &down);
        async = async || op->kind == TU_OP_OFFLOAD || op->kind == TU_OP_FETCH;
        if (up)
            e[(*n)++] = (struct event){r->start[id], up};
        if (down)
            e[(*n)++] = (struct event){r->end[id], down};
    }
    if (async)
        qsort(e, *n, sizeof *e, by_time);
    *out = e;
    return 0;
}

int tu_sim_memory(const struct tu_sim *r, const struct tu_sched *s,
                  const struct tu_cost *c, uint32_t rank, int64_t **time, int64_t **units,
                  size_t *n, struct tu_err *err)
{
    struct event *e = NULL;
    *time = *units = NULL;
    *n = 0;
    int rc = events(r, s, c, rank, &e, n, err);
    if (rc)
        return rc;
    *time = tu_alloc(*n + 1, sizeof **time, err);
    *units = tu_alloc(*n + 1, sizeof **units, err);
    if (!*time || !*units) {
        tu_free(*time);
        tu_free(*units);
        tu_free(e);
        *time = *units = NULL;
        return TU_ENOMEM;
    }
    int64_t now = 0;
    for (size_t i = 0; i < *n; i++) {
        now += e[i].change;
        (*time)[i] = e[i].time;
        (*units)[i] = now;
    }
    tu_free(e);
    return 0;
}

static int64_t peak(const struct tu_sim *r, const struct tu_sched *s,
                    const struct tu_cost *c, uint32_t rank, struct tu_err *err)
{
    struct event *e = NULL;
    size_t n = 0;
    if (events(r, s, c, rank, &e, &n, err))
        return -1;
    int64_t now = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        now += e[i].change;
        most = now > most ? now : most;
    }
    tu_free(e);
    return most;
}

int tui_memory_peaks(struct tu_sim *r, const struct tu_sched *s, const struct tu_cost *c,
                     struct tu_err *err)
{
    r->mem_unit = tui_mem_of(c, tu_sched_chunks(s), s->slices).unit;
    r->peak = tu_alloc(s->ranks, sizeof *r->peak, err);
    r->versions = tu_calloc(s->ranks, sizeof *r->versions, err);
    r->staleness = tu_calloc(s->ranks, sizeof *r->staleness, err);
    if (!r->peak || !r->versions || !r->staleness)
        return TU_ENOMEM;
    for (uint32_t k = 0; k < s->ranks; k++) {
        if ((r->peak[k] = peak(r, s, c, k, err)) < 0)
            return TU_ENOMEM;
        r->versions[k] = 1;
    }
    return s->async ? tui_weight_versions(r, s, err) : 0;
}
