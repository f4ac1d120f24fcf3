/* SPDX-License-Identifier: Apache-2.0 */
/* fam_wave.c: Hanayo: waves of stages down and up the ranks, ordered by a list scheduler.
 *
 * The scheduler takes, again and again, the ready operation that can start first; among
 * equals backward before forward, then lower micro-batch, higher stage, lower rank. A
 * chunk's backward takes twice its forward. Source: Liu et al., "Hanayo", 2023. */
#include "sched/families.h"
#include "sched/heap.h"

struct wave {
    struct tui_build *b;
    uint32_t p, stages, m;
    struct tui_heap *later, *now; /* [p]: by time of readiness; by preference */
    int64_t *free_at;             /* [p] */
    uint32_t *held;               /* [p]: chunk activations */
    uint32_t cap;                 /* 0: none */
};

/* Preference among operations that can start at once. */
static uint64_t rank_of(bool fwd, uint32_t mb, uint32_t stage, uint32_t stages)
{
    return (uint64_t)fwd << 48 | (uint64_t)mb << 28 | (stages - 1 - stage);
}

static bool is_fwd(uint64_t key)
{
    return key >> 48;
}

static int announce(struct wave *w, bool fwd, uint32_t mb, uint32_t stage, int64_t at,
                    struct tu_err *err)
{
    return tui_heap_push(&w->later[w->b->s->place[stage]],
                         (struct tui_item){at, rank_of(fwd, mb, stage, w->stages)}, err);
}

/* The next operation of a rank: its start, false when there is none. */
static int peek(struct wave *w, uint32_t r, int64_t *start, uint64_t *key, bool *any,
                struct tu_err *err)
{
    struct tui_heap *later = &w->later[r], *now = &w->now[r];
    while (later->n && later->item[0].at <= w->free_at[r]) {
        struct tui_item it = tui_heap_pop(later);
        int rc = tui_heap_push(now, (struct tui_item){(int64_t)it.key, it.key}, err);
        if (rc)
            return rc;
    }
    *any = true;
    *start = w->free_at[r];
    if (now->n) {
        *key = now->item[0].key;
    } else if (later->n) {
        *start = later->item[0].at;
        *key = later->item[0].key;
    } else {
        *any = false;
    }
    /* Over the cap a rank waits for a backward, even one that comes later. */
    if (*any && w->cap && is_fwd(*key) && w->held[r] >= w->cap) {
        *any = false;
        for (size_t i = 0; i < later->n; i++)
            if (!is_fwd(later->item[i].key) &&
                (!*any || later->item[i].at < *start ||
                 (later->item[i].at == *start && later->item[i].key < *key))) {
                *any = true;
                *start = later->item[i].at;
                *key = later->item[i].key;
            }
    }
    return 0;
}

static int take(struct wave *w, uint32_t r, int64_t start, uint64_t key,
                struct tu_err *err)
{
    if (w->now[r].n && w->now[r].item[0].key == key)
        tui_heap_pop(&w->now[r]);
    else
        tui_heap_remove(&w->later[r], key);
    bool fwd = is_fwd(key);
    uint32_t mb = (uint32_t)(key >> 28) & 0xfffff;
    uint32_t stage = w->stages - 1 - (uint32_t)(key & 0xfffffff);
    int64_t end = w->free_at[r] = start + (fwd ? 1 : 2);
    tui_add(w->b, r, fwd ? TU_OP_F : TU_OP_B, stage, mb);
    w->held[r] += fwd ? 1 : UINT32_MAX;
    if (fwd && stage + 1 < w->stages)
        return announce(w, true, mb, stage + 1, end, err);
    if (fwd || stage)
        return announce(w, false, mb, fwd ? stage : stage - 1, end, err);
    return 0;
}

static int schedule(struct wave *w, struct tu_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < w->m && !rc; i++)
        rc = announce(w, true, i, 0, 0, err);
    for (uint64_t left = 2 * (uint64_t)w->m * w->stages; left && !rc; left--) {
        int64_t best = INT64_MAX, start = 0;
        uint64_t best_key = 0, key = 0;
        uint32_t who = TU_SCHED_MAX + 1;
        for (uint32_t r = 0; r < w->p && !rc; r++) {
            bool any;
            rc = peek(w, r, &start, &key, &any, err);
            if (!rc && any && (start < best || (start == best && key < best_key))) {
                best = start;
                best_key = key;
                who = r;
            }
        }
        if (!rc && who > TU_SCHED_MAX)
            rc = tu_fail(err, TU_EUSAGE,
                         "hanayo: cap: %u chunk activations are not enough to go on",
                         w->cap);
        if (!rc)
            rc = take(w, who, best, best_key, err);
    }
    return rc;
}

static int hanayo(struct tu_sched **out, const struct tu_sched_params *q,
                  struct tu_err *err)
{
    struct tui_build b;
    int rc = 0;
    bool cap = tui_key(q, "cap", 0, &rc, err);
    struct wave w = {.b = &b,
                     .p = q->p,
                     .stages = q->p * q->v,
                     .m = q->m,
                     .cap = cap ? q->v * q->p : 0};
    tui_build_begin(&b, q->p, w.stages, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_snake(&b);
    w.later = tu_calloc(q->p, sizeof *w.later, err);
    w.now = tu_calloc(q->p, sizeof *w.now, err);
    w.free_at = tu_calloc(q->p, sizeof *w.free_at, err);
    w.held = tu_calloc(q->p, sizeof *w.held, err);
    if (!w.later || !w.now || !w.free_at || !w.held)
        b.code = b.code ? b.code : TU_ENOMEM;
    if (!b.code) {
        rc = schedule(&w, err);
        b.code = b.code ? b.code : rc;
    }
    for (uint32_t r = 0; r < q->p; r++) {
        if (w.later)
            tu_free(w.later[r].item);
        if (w.now)
            tu_free(w.now[r].item);
    }
    tu_free(w.later);
    tu_free(w.now);
    tu_free(w.free_at);
    tu_free(w.held);
    return tui_build_end(&b, out);
}

static int hanayo_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    if (q->v % 2)
        return tu_fail(err, TU_EUSAGE,
                       "hanayo: -c %u: a wave is two chunks, so chunks per rank are even",
                       q->v);
    return 0;
}

static const char *const keys[] = {"cap", NULL};

const struct tu_schedule tui_hanayo = {
    .name = "hanayo",
    .help = "waves (two chunks each) by a list scheduler",
    .source = "Hanayo, 2023",
    .chunks_min = 2,
    .chunks_max = 1024,
    .key = keys,
    .legal = hanayo_legal,
    .make = hanayo,
};
