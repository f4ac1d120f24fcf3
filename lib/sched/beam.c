/* SPDX-License-Identifier: Apache-2.0 */
/* beam.c: branch and bound over active schedules, level by level.
 *
 * A state is a set of operations that have run, with their times. Its successors are
 * those of Giffler and Thompson (1960): on the rank of the operation that can end first,
 * everything that can start before that end; where memory is short, also "no forward here
 * before a gradient". A state is dropped when its lower bound is not below the best known
 * value, or when a state with the same operations is nowhere later. When nothing else is
 * dropped the search is exact; a level that is too wide keeps the states with the least
 * bounds. */
#include <stdlib.h>
#include <string.h>
#include "sched/beam.h"

struct child {
    int64_t bound, spread; /* spread: sum of the ranks' bounds, breaks ties */
    uint64_t hash;
    uint32_t parent, op; /* stage*4 + kind */
    uint64_t waits;      /* wait marks as a bit set; exact for up to 64 stages */
};

struct trail {
    uint32_t parent, op;
};

struct search {
    struct tui_beam_problem b;
    const struct tui_beam *how;
    struct tu_err *err;
    int64_t *pool[2]; /* states of this level and the next */
    size_t pool_cap[2];
    size_t count[2];
    struct child *child;
    size_t children, child_cap;
    struct trail **trail; /* [levels] */
    size_t levels;
    int64_t below;
    uint64_t states;
    bool dropped, scarce;
    uint8_t *mark; /* scratch: [stages] */
    int64_t *scratch;
};

static int64_t held(const struct search *g, const struct tui_state *s, uint32_t rank)
{
    const struct tui_problem *x = g->b.x;
    int64_t mem = 0;
    for (uint32_t k = 0; k < g->b.of_n[rank]; k++) {
        const uint16_t *n = &s->n[3 * g->b.of[rank][k]];
        mem += n[0] * x->mem_f - n[1] * x->mem_i - n[2] * x->mem_w;
    }
    return mem;
}

/* Moves
 * ----------------------------------------------------------------------------------- */

struct move {
    uint32_t op, rank;
    int64_t start, end;
};

static void apply(const struct search *g, struct tui_state *s, const struct move *v)
{
    uint32_t k = v->op / 4, kind = v->op % 4;
    uint16_t *n = &s->n[3 * k];
    if (kind == TU_OP_F)
        s->f_end[(size_t)k * g->b.x->m + n[0]++] = v->end;
    else if (kind == TU_OP_I)
        s->i_end[(size_t)k * g->b.x->m + n[1]++] = v->end;
    else
        n[2]++;
    s->clock[v->rank] = v->end;
    for (uint32_t q = 0; q < g->b.of_n[v->rank]; q++)
        s->wait[g->b.of[v->rank][q]] = 0;
}

/* What rank r could run next; at most three for each of its stages. */
static uint32_t moves_of(const struct search *g, const struct tui_state *s, uint32_t r,
                         struct move *out)
{
    const struct tui_problem *x = g->b.x;
    uint32_t count = 0;
    int64_t clock = s->clock[r];
    bool room = !x->cap || held(g, s, r) + x->mem_f <= x->cap;
    for (uint32_t q = 0; q < g->b.of_n[r]; q++) {
        uint32_t k = g->b.of[r][q];
        const uint16_t *n = &s->n[3 * k];
        size_t at = (size_t)k * x->m;
        if (n[0] < x->m && room && !s->wait[k] && (!k || s->n[3 * (k - 1)] > n[0])) {
            int64_t in = k ? s->f_end[at - x->m + n[0]] + x->c_fwd[k] : 0;
            in = in > clock ? in : clock;
            out[count++] = (struct move){4 * k + TU_OP_F, r, in, in + x->f[k]};
        }
        bool last = k + 1 == x->stages;
        if (n[1] < n[0] && (last || s->n[3 * (k + 1) + 1] > n[1])) {
            int64_t in = last ? 0 : s->i_end[at + x->m + n[1]] + x->c_bwd[k];
            in = in > clock ? in : clock;
            out[count++] = (struct move){4 * k + TU_OP_I, r, in, in + x->i[k]};
        }
        if (n[2] < n[1])
            out[count++] = (struct move){4 * k + TU_OP_W, r, clock, clock + x->w[k]};
    }
    return count;
}

/* Can this rank ever run something before the forward of stage k? */
static bool may_wait(const struct search *g, const struct tui_state *s, uint32_t k)
{
    uint32_t r = g->b.x->place[k];
    for (uint32_t q = 0; q < g->b.of_n[r]; q++) {
        uint32_t o = g->b.of[r][q];
        if (s->n[3 * o] > s->n[3 * o + 1] || s->n[3 * o + 1] > s->n[3 * o + 2] ||
            (o != k && s->n[3 * o] < g->b.x->m && !s->wait[o]))
            return true;
    }
    return false;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static int emit(struct search *g, int64_t *from, uint32_t parent, const struct move *v)
{
    memcpy(g->scratch, from, g->b.stride * sizeof *from);
    struct tui_state s = tui_state_view(&g->b, g->scratch);
    apply(g, &s, v);
    struct child c = {.parent = parent, .op = v->op};
    g->states++;
    c.bound = tui_state_bound(&g->b, &s, &c.spread);
    if (c.bound >= g->below)
        return 0;
    for (uint32_t k = 0; k < 3 * g->b.x->stages; k++)
        c.hash = mix(c.hash, s.n[k]);
    for (uint32_t k = 0; k < g->b.x->stages && k < 64; k++)
        c.waits |= (uint64_t)s.wait[k] << k;
    int rc = TU_GROW(&g->child, &g->child_cap, g->children, g->err);
    if (!rc)
        g->child[g->children++] = c;
    return rc;
}

/* All successors of a state. The state's wait marks are changed on the way and put back.
 */
static int expand(struct search *g, int64_t *at, uint32_t parent)
{
    const struct tui_problem *x = g->b.x;
    struct tui_state s = tui_state_view(&g->b, at);
    struct move list[192];
    uint8_t *mark = g->mark;
    int rc = 0;
    bool more = true;
    memcpy(mark, s.wait, x->stages);
    while (more && !rc) {
        struct move first = {.end = INT64_MAX};
        for (uint32_t r = 0; r < x->p; r++) {
            uint32_t n = moves_of(g, &s, r, list);
            for (uint32_t q = 0; q < n; q++)
                if (list[q].end < first.end)
                    first = list[q];
        }
        if (first.end == INT64_MAX)
            break;
        uint32_t n = moves_of(g, &s, first.rank, list);
        for (uint32_t q = 0; q < n && !rc; q++)
            if (list[q].start < first.end || list[q].op == first.op)
                rc = emit(g, at, parent, &list[q]);
        /* Left-shifting a forward may overfill memory later: it may also be put off.
         * Anything else that is put off could be shifted back. */
        more = g->scarce && first.op % 4 == TU_OP_F && may_wait(g, &s, first.op / 4);
        if (more)
            s.wait[first.op / 4] = 1;
    }
    memcpy(s.wait, mark, x->stages);
    return rc;
}

static int by_promise(const void *a, const void *b)
{
    const struct child *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    if (x->spread != y->spread)
        return x->spread < y->spread ? -1 : 1;
    if (x->waits != y->waits)
        return x->waits < y->waits ? -1 : 1;
    if (x->parent != y->parent)
        return x->parent < y->parent ? -1 : 1;
    return x->op != y->op        ? (x->op < y->op ? -1 : 1)
           : x->waits < y->waits ? -1
                                 : x->waits > y->waits;
}

/* Is a nowhere later than b? Both have run the same operations. */
static bool covers(const struct search *g, const struct tui_state *a, const struct tui_state *b)
{
    const struct tui_problem *x = g->b.x;
    if (memcmp(a->n, b->n, 3 * x->stages * sizeof *a->n))
        return false;
    for (uint32_t r = 0; r < x->p; r++)
        if (a->clock[r] > b->clock[r])
            return false;
    for (uint32_t k = 0; k < x->stages; k++)
        if (a->wait[k] > b->wait[k])
            return false;
    for (uint32_t k = 0; k < x->stages; k++) {
        size_t at = (size_t)k * x->m;
        /* Only results that somebody still waits for, no earlier than he could start. */
        uint32_t used = k + 1 < x->stages ? b->n[3 * (k + 1)] : b->n[3 * k];
        for (uint32_t j = used; j < b->n[3 * k]; j++)
            if (a->f_end[at + j] > b->f_end[at + j] &&
                a->f_end[at + j] + x->c_fwd[k + 1] > b->clock[x->place[k + 1]])
                return false;
        used = k ? b->n[3 * (k - 1) + 1] : b->n[3 * k + 1];
        for (uint32_t j = used; j < b->n[3 * k + 1]; j++)
            if (a->i_end[at + j] > b->i_end[at + j] &&
                a->i_end[at + j] + x->c_bwd[k - 1] > b->clock[x->place[k - 1]])
                return false;
    }
    return true;
}

static int reserve(struct search *g, int which, size_t states)
{
    if (states <= g->pool_cap[which])
        return 0;
    size_t want = g->pool_cap[which] * 2 > states ? g->pool_cap[which] * 2 : states;
    int64_t *p = tu_realloc(g->pool[which], want * g->b.stride, sizeof *p, g->err);
    if (!p)
        return TU_ENOMEM;
    g->pool[which] = p;
    g->pool_cap[which] = want;
    return 0;
}

/* When a child's operation runs, from its parent. */
static struct move timed(const struct search *g, const struct tui_state *s, uint32_t op)
{
    struct move list[192], none = {0};
    uint32_t rank = g->b.x->place[op / 4];
    uint32_t n = moves_of(g, s, rank, list);
    for (uint32_t q = 0; q < n; q++)
        if (list[q].op == op)
            return list[q];
    return none;
}

/* The most promising children become the next level, without those that another covers.
 */
static int advance(struct search *g, size_t level, int from)
{
    int to = !from, rc = 0;
    size_t buckets = 1, kept = 0;
    if (g->children)
        qsort(g->child, g->children, sizeof *g->child, by_promise);
    while (buckets < 2 * (g->children < g->how->width ? g->children : g->how->width))
        buckets *= 2;
    uint32_t *head = tu_alloc(buckets, sizeof *head, g->err);
    uint32_t *next = tu_alloc(g->children, sizeof *next, g->err);
    struct trail *trail = tu_alloc(g->children, sizeof *trail, g->err);
    if (!head || !next || !trail)
        rc = TU_ENOMEM;
    else
        memset(head, 0xff, buckets * sizeof *head);
    for (size_t i = 0; i < g->children && !rc; i++) {
        const struct child *c = &g->child[i];
        if (kept >= g->how->width) {
            g->dropped = true;
            break;
        }
        rc = reserve(g, to, kept + 1);
        if (rc)
            break;
        int64_t *at = g->pool[to] + kept * g->b.stride;
        memcpy(at, g->pool[from] + c->parent * g->b.stride, g->b.stride * sizeof *at);
        struct tui_state s = tui_state_view(&g->b, at);
        struct move v = timed(g, &s, c->op);
        apply(g, &s, &v);
        for (uint32_t k = 0; k < g->b.x->stages && k < 64; k++)
            s.wait[k] = c->waits >> k & 1;
        bool covered = false;
        for (uint32_t k = head[c->hash & (buckets - 1)]; k != UINT32_MAX && !covered;
             k = next[k]) {
            struct tui_state other = tui_state_view(&g->b, g->pool[to] + k * g->b.stride);
            covered = covers(g, &other, &s);
        }
        if (covered)
            continue;
        next[kept] = head[c->hash & (buckets - 1)];
        head[c->hash & (buckets - 1)] = (uint32_t)kept;
        trail[kept++] = (struct trail){c->parent, c->op};
    }
    tu_free(head);
    tu_free(next);
    g->count[to] = kept;
    g->trail[level] = trail;
    return rc;
}

/* Walk back from a finished state. */
static int collect(struct search *g, struct tui_order *best)
{
    const struct tui_problem *x = g->b.x;
    size_t ops = g->levels;
    uint32_t *op = tu_alloc(ops, sizeof *op, g->err), at = 0;
    tui_order_release(best);
    best->op = tu_alloc(ops, sizeof *best->op, g->err);
    best->base = tu_calloc((size_t)x->p + 1, sizeof *best->base, g->err);
    if (!op || !best->op || !best->base) {
        tu_free(op);
        return TU_ENOMEM;
    }
    for (size_t level = ops; level-- > 0; at = g->trail[level][at].parent)
        op[level] = g->trail[level][at].op;
    for (uint32_t r = 0; r < x->p; r++)
        best->base[r + 1] = best->base[r] + (size_t)3 * x->m * g->b.of_n[r];
    size_t *fill = tu_alloc(x->p, sizeof *fill, g->err);
    if (fill) {
        memcpy(fill, best->base, x->p * sizeof *fill);
        for (size_t k = 0; k < ops; k++)
            best->op[fill[x->place[op[k] / 4]]++] = op[k];
    }
    tu_free(op);
    tu_free(fill);
    return fill ? tui_order_value(x, best, g->err) : TU_ENOMEM;
}

static int prepare(struct search *g, const struct tui_problem *x)
{
    int rc = tui_beam_open(&g->b, x, g->err);
    if (rc)
        return rc;
    g->levels = 3 * (size_t)x->stages * x->m;
    g->mark = tu_alloc(x->stages, 1, g->err);
    g->scratch = tu_alloc(g->b.stride, sizeof *g->scratch, g->err);
    g->trail = tu_calloc(g->levels, sizeof *g->trail, g->err);
    if (!g->mark || !g->scratch || !g->trail || reserve(g, 0, 1))
        return TU_ENOMEM;
    int64_t most = 0;
    for (uint32_t r = 0; r < x->p; r++)
        most = g->b.of_n[r] > most ? g->b.of_n[r] : most;
    g->scarce = x->cap && x->cap < most * x->m * x->mem_f;
    if (g->scarce && x->stages > 64)
        g->dropped = true; /* forwards are put off only on the first stages: not exact */
    memset(g->pool[0], 0, g->b.stride * sizeof *g->pool[0]);
    g->count[0] = 1;
    return 0;
}

int tui_beam_search(const struct tui_problem *x, const struct tui_beam *how,
                    int64_t below, struct tui_order *best, struct tui_beam_result *result,
                    struct tu_err *err)
{
    struct search g = {.how = how, .err = err, .below = below};
    int rc = prepare(&g, x), from = 0;
    size_t level = 0;
    for (; level < g.levels && !rc && g.count[from]; level++) {
        g.children = 0;
        if (how->pace)
            tu_job_progress(how->pace->job, how->pace->done + g.states, how->pace->total);
        for (uint32_t k = 0; k < g.count[from] && !rc; k++)
            rc = expand(&g, g.pool[from] + k * g.b.stride, k);
        if (!rc && how->budget && g.states > how->budget)
            g.count[from] = 0, g.dropped = true;
        if (!rc)
            rc = advance(&g, level, from);
        from = !from;
    }
    *result = (struct tui_beam_result){.states = g.states, .exact = !g.dropped};
    if (!rc && level == g.levels && g.count[from]) {
        result->found = true;
        rc = collect(&g, best);
    }
    for (size_t k = 0; g.trail && k < g.levels; k++)
        tu_free(g.trail[k]);
    tu_free(g.trail);
    tu_free(g.pool[0]);
    tu_free(g.pool[1]);
    tu_free(g.child);
    tu_free(g.mark);
    tu_free(g.scratch);
    tui_beam_close(&g.b);
    return rc;
}
