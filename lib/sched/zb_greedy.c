/* SPDX-License-Identifier: Apache-2.0 */
/* zb_greedy.c: the zero-bubble heuristic: grow all ranks' orders together, micro-batch by
 * micro-batch, putting weight gradients where a rank would wait anyway.
 *
 * Eight variants (three yes-or-no rules) are tried and the shortest span is taken. Their rules
 * were not made for a cap below the memory of 1F1B, nor for stages of unequal times; for those
 * there are two lists more: whatever can start first does, a gradient before a forward before a
 * weight gradient.
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", 2024, section 3.1. */
#include <string.h>
#include "sched/memory.h"
#include "sched/zb_greedy.h"

#define LIST_MAX 200000000 /* ranks looked at while a list is made, at most */

int tui_line_of(struct tui_line *l, const struct tu_sched_params *q, struct tu_err *err)
{
    struct tu_cost one;
    tu_cost_init(&one);
    const struct tu_cost *c = q->cost ? q->cost : &one;
    *l = (struct tui_line){.p = q->p, .m = q->m, .cap = q->cap};
    l->f = tu_alloc(3 * (size_t)q->p, sizeof *l->f, err);
    if (!l->f)
        return TU_ENOMEM;
    l->i = l->f + q->p;
    l->w = l->i + q->p;
    for (uint32_t k = 0; k < q->p; k++) {
        l->f[k] = tu_cost_time(c, TU_OP_F, k, UINT32_MAX);
        l->i[k] = tu_cost_time(c, TU_OP_I, k, UINT32_MAX);
        l->w[k] = tu_cost_time(c, TU_OP_W, k, UINT32_MAX);
    }
    l->c_fwd = c->transfer[0];
    l->c_bwd = c->transfer[1];
    struct tui_mem size = tui_mem_of(c, 1, 1);
    l->mem_f = size.full;
    l->mem_w = l->cap || c->mem_b ? tui_mem_at_w(c) : size.for_w;
    l->mem_i = l->mem_f - l->mem_w;
    if (!l->cap || l->cap >= l->mem_f)
        return 0;
    tui_line_release(l);
    return tui_cap_low(c, 1, l->cap, "one activation of a stage", l->mem_f, err);
}

void tui_line_release(struct tui_line *l)
{
    tu_free(l->f);
    l->f = l->i = l->w = NULL;
}

/* One rank in the making. */
struct rank {
    uint32_t f, i, w; /* done so far */
    int64_t clock, mem, wait;
    uint32_t n;
    int64_t first_f;
};

struct grow {
    const struct tui_line *l;
    struct rank *r;         /* [p] */
    int64_t *f_end, *i_end; /* [p][m] */
    uint8_t *kind;          /* [p][3m] */
    bool bubble_first, prefer_i, fill_always;
    bool stuck;
};

static int64_t f_ready(const struct grow *g, uint32_t k)
{
    return k ? g->f_end[(k - 1) * g->l->m + g->r[k].f] + g->l->c_fwd : 0;
}

static int64_t i_ready(const struct grow *g, uint32_t k)
{
    return k + 1 < g->l->p ? g->i_end[(k + 1) * g->l->m + g->r[k].i] + g->l->c_bwd : 0;
}

static void put(struct grow *g, uint32_t k, enum tu_op_kind kind)
{
    const struct tui_line *l = g->l;
    struct rank *r = &g->r[k];
    int64_t at = r->clock, took = kind == TU_OP_F   ? l->f[k]
                                  : kind == TU_OP_I ? l->i[k]
                                                    : l->w[k];
    int64_t ready = kind == TU_OP_F ? f_ready(g, k) : kind == TU_OP_I ? i_ready(g, k) : 0;
    if (ready > at) {
        r->wait += r->f ? ready - at : 0;
        at = ready;
    }
    r->clock = at + took;
    g->kind[(size_t)k * 3 * l->m + r->n++] = (uint8_t)kind;
    if (kind == TU_OP_F) {
        r->first_f = r->f ? r->first_f : at;
        g->f_end[(size_t)k * l->m + r->f++] = r->clock;
        r->mem += l->mem_f;
    } else if (kind == TU_OP_I) {
        g->i_end[(size_t)k * l->m + r->i++] = r->clock;
        r->mem -= l->mem_i;
    } else {
        r->w++;
        r->mem -= l->mem_w;
    }
}

static int64_t most_wait(const struct grow *g)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < g->l->p; k++)
        most = g->r[k].wait > most ? g->r[k].wait : most;
    return most;
}

/* So many more forwards that a rank can run after its predecessor: one less, or as many
 * where that has run all. The times alone would let a quick rank run ahead of its inputs. */
static uint32_t follow(const struct tui_line *l, uint32_t extra, uint32_t before)
{
    uint32_t most = before + 1 == l->m ? before : before ? before - 1 : 0;
    return extra < most ? extra : most;
}

/* The first micro-batch, with as many forwards as fit before its gradient comes back. */
static void warm_up(struct grow *g, uint32_t *extra)
{
    const struct tui_line *l = g->l;
    for (uint32_t k = 0; k < l->p; k++)
        put(g, k, TU_OP_F);
    memset(extra, 0, l->p * sizeof *extra);
    int64_t back = g->r[l->p - 1].clock + l->i[l->p - 1];
    for (uint32_t k = l->p - 1; k-- > 0;) {
        int64_t clock = g->r[k].clock, mem = g->r[k].mem, due = back + l->c_bwd;
        while (1 + extra[k] < l->m && (!l->cap || mem + l->mem_f <= l->cap) &&
               (g->bubble_first ? clock + l->f[k] <= due : clock < due)) {
            clock += l->f[k];
            mem += l->mem_f;
            extra[k]++;
        }
        back = (clock > due ? clock : due) + l->i[k];
    }
    for (uint32_t k = 1; k < l->p; k++)
        extra[k] = follow(l, extra[k], extra[k - 1]);
    for (uint32_t k = 0; k < l->p; k++)
        for (uint32_t j = 0; j < extra[k]; j++)
            put(g, k, TU_OP_F);
    for (uint32_t k = l->p; k-- > 0;)
        put(g, k, TU_OP_I);
}

/* Would a forward on k, two ahead of its successor, hold up the chain of gradients? */
static bool holds_up(const struct grow *g, uint32_t k)
{
    const struct tui_line *l = g->l;
    const struct rank *r = &g->r[k], *next = &g->r[k + 1];
    int64_t due = next->clock + l->f[k + 1] + l->i[k + 1] + l->c_bwd;
    if (r->clock >= due)
        return true;
    int64_t w_time = 0, mem = r->mem + l->mem_f;
    for (uint32_t w = r->w; l->cap && mem > l->cap && w < r->i; w++) {
        w_time += l->w[k];
        mem -= l->mem_w;
    }
    if (r->clock + l->f[k] + w_time <= due)
        return false;
    return due - r->clock <= most_wait(g) - r->wait;
}

/* Weight gradients before an operation whose input comes at `ready`. */
static void fill(struct grow *g, uint32_t k, int64_t ready)
{
    struct rank *r = &g->r[k];
    while (r->w < r->i && r->clock + g->l->w[k] <= ready)
        put(g, k, TU_OP_W);
    if (r->w < r->i && r->clock < ready &&
        (ready - r->clock > most_wait(g) - r->wait || g->fill_always))
        put(g, k, TU_OP_W);
}

static void one_forward(struct grow *g, uint32_t k)
{
    const struct tui_line *l = g->l;
    struct rank *r = &g->r[k];
    while (l->cap && r->mem + l->mem_f > l->cap) {
        if (r->w >= r->i) {
            g->stuck = true;
            return;
        }
        put(g, k, TU_OP_W);
    }
    if (k)
        fill(g, k, f_ready(g, k));
    put(g, k, TU_OP_F);
}

static void one_gradient(struct grow *g, uint32_t k)
{
    struct rank *r = &g->r[k];
    if (k + 1 < g->l->p)
        fill(g, k, i_ready(g, k));
    while (k == 0 && r->f == g->l->m && r->w < r->i)
        put(g, k, TU_OP_W);
    put(g, k, TU_OP_I);
}

static int64_t grow(struct grow *g, uint32_t *take)
{
    const struct tui_line *l = g->l;
    memset(g->r, 0, l->p * sizeof *g->r);
    g->stuck = false;
    warm_up(g, take);
    for (uint32_t mb = 1; mb < l->m && !g->stuck; mb++) {
        for (uint32_t k = 0; k < l->p; k++) {
            const struct rank *r = &g->r[k];
            take[k] = r->f < l->m && !(g->prefer_i && k + 1 < l->p &&
                                       r->f >= r[1].f + 2 && holds_up(g, k));
        }
        for (uint32_t k = l->p - 1; k-- > 0;)
            take[k] = take[k] && take[k + 1];
        for (uint32_t k = 0; k < l->p && !g->stuck; k++)
            if (take[k])
                one_forward(g, k);
        for (uint32_t k = l->p; k-- > 0 && !g->stuck;)
            one_gradient(g, k);
    }
    int64_t span = 0;
    for (uint32_t k = 0; k < l->p && !g->stuck; k++) {
        while (g->r[k].w < l->m)
            put(g, k, TU_OP_W);
        int64_t mine = g->r[k].clock - g->r[k].first_f;
        span = mine > span ? mine : span;
    }
    return g->stuck ? INT64_MAX : span;
}

/* When rank k could start an operation of this kind; INT64_MAX: not as things are. */
static int64_t start_of(const struct grow *g, uint32_t k, enum tu_op_kind kind,
                        uint32_t window)
{
    const struct tui_line *l = g->l;
    const struct rank *r = &g->r[k];
    int64_t ready = 0;
    bool can = r->w < r->i;
    if (kind == TU_OP_F) {
        can = r->f < l->m && (!k || r[-1].f > r->f) && r->mem + l->mem_f <= l->cap &&
              r->f - r->i < window;
        ready = can ? f_ready(g, k) : 0;
    } else if (kind == TU_OP_I) {
        can = r->i < r->f && (k + 1 == l->p || r[1].i > r->i);
        ready = can ? i_ready(g, k) : 0;
    }
    return !can ? INT64_MAX : ready > r->clock ? ready : r->clock;
}

/* Whatever can start first; with `narrow` no rank is ahead further than 1F1B lets it. */
static int64_t list(struct grow *g, bool narrow)
{
    static const enum tu_op_kind kind[] = {TU_OP_I, TU_OP_F, TU_OP_W};
    const struct tui_line *l = g->l;
    memset(g->r, 0, l->p * sizeof *g->r);
    for (size_t left = 3 * (size_t)l->p * l->m; left; left--) {
        int64_t first = INT64_MAX, at;
        uint32_t rank = 0;
        enum tu_op_kind what = TU_OP_F;
        for (unsigned n = 0; n < 3; n++)
            for (uint32_t k = 0; k < l->p; k++)
                if ((at = start_of(g, k, kind[n], narrow ? l->p - k : l->m)) < first)
                    first = at, rank = k, what = kind[n];
        if (first == INT64_MAX)
            return INT64_MAX;
        put(g, rank, what);
    }
    int64_t span = 0;
    for (uint32_t k = 0; k < l->p; k++)
        if (g->r[k].clock - g->r[k].first_f > span)
            span = g->r[k].clock - g->r[k].first_f;
    return span;
}

static void keep(const struct grow *g, int64_t t, uint8_t *kind, int64_t *span)
{
    if (t >= *span)
        return;
    *span = t;
    memcpy(kind, g->kind, 3 * (size_t)g->l->p * g->l->m);
}

static int begin(struct grow *g, const struct tui_line *l, struct tu_err *err)
{
    size_t ops = 3 * (size_t)l->p * l->m;
    *g = (struct grow){.l = l};
    g->r = tu_alloc(l->p, sizeof *g->r, err);
    g->f_end = tu_alloc(ops, sizeof *g->f_end, err);
    g->kind = tu_alloc(ops, 1, err);
    if (!g->r || !g->f_end || !g->kind)
        return TU_ENOMEM;
    g->i_end = g->f_end + (size_t)l->p * l->m;
    return 0;
}

static void end(struct grow *g)
{
    tu_free(g->r);
    tu_free(g->f_end);
    tu_free(g->kind);
}

static bool uneven(const struct tui_line *l)
{
    for (uint32_t k = 1; k < l->p; k++)
        if (l->f[k] != l->f[0] || l->i[k] != l->i[0] || l->w[k] != l->w[0])
            return true;
    return false;
}

int tui_zb_lists(const struct tui_line *l, uint8_t *kind, int64_t *span, struct tu_err *err)
{
    struct grow g;
    bool scarce = l->cap && l->cap < l->p * l->mem_f;
    if (!l->cap || !(scarce || uneven(l)) || 3 * (uint64_t)l->p * l->m > LIST_MAX / l->p)
        return 0;
    int rc = begin(&g, l, err);
    for (int narrow = 0; narrow < 2 && !rc; narrow++)
        keep(&g, list(&g, narrow), kind, span);
    end(&g);
    return rc;
}

int tui_zb_greedy(const struct tui_line *l, uint8_t *kind, int64_t *span,
                  struct tu_err *err)
{
    struct grow g;
    int rc = begin(&g, l, err);
    uint32_t *take = tu_alloc(l->p, sizeof *take, err);
    *span = INT64_MAX;
    rc = take ? rc : TU_ENOMEM;
    for (unsigned v = 0; v < 8 && !rc; v++) {
        g.bubble_first = !(v & 4);
        g.prefer_i = !(v & 2);
        g.fill_always = !(v & 1);
        keep(&g, grow(&g, take), kind, span);
    }
    tu_free(take);
    end(&g);
    return rc;
}
