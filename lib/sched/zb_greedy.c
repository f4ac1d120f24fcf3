/* SPDX-License-Identifier: Apache-2.0 */
/* zb_greedy.c: the zero-bubble heuristic: grow all ranks' orders together, micro-batch by
 * micro-batch, putting weight gradients where a rank would wait anyway.
 *
 * Eight variants (three yes-or-no rules) are tried and the shortest span is taken.
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", 2024, section 3.1. */
#include <string.h>
#include "sched/memory.h"
#include "sched/zb_greedy.h"

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
    l->mem_f = c->mem_b ? c->mem_b : 2;
    l->mem_w = c->release == TU_MEM_AT_W && c->mem_b ? c->mem_b : c->mem_b ? c->mem_w : 1;
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
        while (extra[k] && extra[k] >= extra[k - 1] && 1 + extra[k] < l->m)
            extra[k]--;
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

int tui_zb_greedy(const struct tui_line *l, uint8_t *kind, int64_t *span,
                  struct tu_err *err)
{
    size_t ops = 3 * (size_t)l->p * l->m;
    struct grow g = {.l = l};
    int rc = 0;
    uint32_t *take = tu_alloc(l->p, sizeof *take, err);
    g.r = tu_alloc(l->p, sizeof *g.r, err);
    g.f_end = tu_alloc(ops, sizeof *g.f_end, err);
    g.kind = tu_alloc(ops, 1, err);
    *span = INT64_MAX;
    if (!take || !g.r || !g.f_end || !g.kind) {
        rc = TU_ENOMEM;
        goto out;
    }
    g.i_end = g.f_end + (size_t)l->p * l->m;
    for (unsigned v = 0; v < 8; v++) {
        g.bubble_first = !(v & 4);
        g.prefer_i = !(v & 2);
        g.fill_always = !(v & 1);
        int64_t t = grow(&g, take);
        if (t < *span) {
            *span = t;
            memcpy(kind, g.kind, ops);
        }
    }
out:
    tu_free(take);
    tu_free(g.r);
    tu_free(g.f_end);
    tu_free(g.kind);
    return rc;
}
