/* SPDX-License-Identifier: Apache-2.0 */
/* vgrid.c: from a building block of a V schedule to the schedule.
 *
 * Repeat the block every six slots; put weight gradients into idle slots; pull what lies
 * before and after the stable middle into earlier idle slots as long as no rank's peak
 * rises; squeeze; once more for the tail with free choice of the weight gradients' slots;
 * put them again. Source: Qi et al., "Pipeline Parallelism with Controllable Memory",
 * 2024. */
#include <string.h>
#include "sched/vgrid.h"

#define W_ROW TUI_V_ROWS /* both chunks' weight gradients while slots are moved */

struct grid {
    uint32_t p, m;
    int32_t *t[TUI_V_ROWS + 1]; /* [p][m] for the four rows, [p][2m] for W: slots */
    int32_t slots;              /* no slot is at or past this */
    char *busy;                 /* [p][slots] */
    int32_t *held;              /* [p][slots]: activations after each slot */
    struct item {
        int32_t slot;
        uint32_t rank, row, i;
    } * item; /* every operation in slot order */
    size_t items;
    size_t *first; /* [slots+1]: where the operations of a slot stand in item */
    struct mark {  /* a rank up to a slot */
        int32_t slot, now, pending, peak;
    } * mark; /* [p] */
};

static size_t width(const struct grid *g, uint32_t row)
{
    return row == W_ROW ? 2 * (size_t)g->m : g->m;
}

static int32_t *at(const struct grid *g, uint32_t rank, uint32_t row, size_t i)
{
    return &g->t[row][rank * width(g, row) + i];
}

/* Every operation by slot, rank, row and number: counted, not compared. */
static void list(struct grid *g, uint32_t rows)
{
    size_t *to = g->first;
    memset(to, 0, ((size_t)g->slots + 1) * sizeof *to);
    for (uint32_t r = 0; r < g->p; r++)
        for (uint32_t row = 0; row < rows; row++)
            for (size_t i = 0; i < width(g, row); i++)
                to[*at(g, r, row, i) + 1]++;
    for (int32_t s = 0; s < g->slots; s++)
        to[s + 1] += to[s];
    g->items = to[g->slots];
    for (uint32_t r = 0; r < g->p; r++)
        for (uint32_t row = 0; row < rows; row++)
            for (size_t i = 0; i < width(g, row); i++) {
                int32_t slot = *at(g, r, row, i);
                g->item[to[slot]++] = (struct item){slot, r, row, (uint32_t)i};
            }
}

static void occupy(struct grid *g, uint32_t rows)
{
    memset(g->busy, 0, (size_t)g->p * (size_t)g->slots);
    for (uint32_t r = 0; r < g->p; r++)
        for (uint32_t row = 0; row < rows; row++)
            for (size_t i = 0; i < width(g, row); i++)
                g->busy[(size_t)r * (size_t)g->slots + (size_t)*at(g, r, row, i)] =
                    (char)(1 + row);
}

/* Weight gradients into the first idle slots after their I; past the last slot, one by
 * one. */
static void put_w(struct grid *g)
{
    occupy(g, TUI_V_ROWS);
    for (uint32_t r = 0; r < g->p; r++) {
        const char *busy = g->busy + (size_t)r * (size_t)g->slots;
        size_t pending = 0, done = 0;
        for (int32_t s = 0; done < 2 * (size_t)g->m && s < g->slots; s++) {
            if (busy[s] == 1 + TUI_V_I || busy[s] == 1 + TUI_V_I2) {
                pending++;
            } else if (!busy[s] && pending) {
                *at(g, r, W_ROW, done++) = s;
                pending--;
            }
        }
    }
}

/* Activations after each slot of a rank, W where it stands; returns the peak. */
static int32_t hold(struct grid *g, uint32_t r)
{
    const char *busy = g->busy + (size_t)r * (size_t)g->slots;
    int32_t *held = g->held + (size_t)r * (size_t)g->slots, now = 0, peak = 0;
    for (int32_t s = 0; s < g->slots; s++) {
        if (busy[s] == 1 + TUI_V_F || busy[s] == 1 + TUI_V_F2)
            now++;
        else if (busy[s] == 1 + W_ROW)
            now--;
        held[s] = now;
        peak = now > peak ? now : peak;
    }
    return peak;
}

/* On up to slot `to`, each idle slot taken by a waiting W. */
static void walk(const char *busy, int32_t to, int32_t limit, struct mark *k)
{
    for (; k->slot < to && k->peak <= limit; k->slot++) {
        char what = busy[k->slot];
        if (what == 1 + TUI_V_F || what == 1 + TUI_V_F2)
            k->now++;
        else if (what)
            k->pending++;
        else if (k->pending)
            k->now--, k->pending--;
        k->peak = k->now > k->peak ? k->now : k->peak;
    }
}

/* The peak up to the last I from a mark on; past the limit it is any number over it. */
static int32_t free_peak(const struct grid *g, uint32_t r, struct mark from, int32_t limit)
{
    walk(g->busy + (size_t)r * (size_t)g->slots, *at(g, r, TUI_V_I, g->m - 1) + 1, limit,
         &from);
    return from.peak;
}

/* The slot of the (i+1)-th gradient of either chunk; each chunk's are in order. */
static int32_t gradient(const int32_t *x, const int32_t *y, size_t m, size_t i)
{
    size_t lo = i + 1 > m ? i + 1 - m : 0, hi = i + 1 < m ? i + 1 : m;
    while (lo < hi) { /* so many of x are among the first i+1 */
        size_t a = (lo + hi) / 2;
        if (x[a] < y[i - a])
            lo = a + 1;
        else
            hi = a;
    }
    int32_t v = lo ? x[lo - 1] : -1;
    return i + 1 > lo && y[i - lo] > v ? y[i - lo] : v;
}

/* The slot before which an operation cannot stand. */
static int32_t earliest(const struct grid *g, const struct item *it)
{
    int32_t dep = -1, v = -1;
    uint32_t r = it->rank;
    if ((it->row == TUI_V_F || it->row == TUI_V_I2) && r)
        dep = *at(g, r - 1, it->row, it->i);
    if ((it->row == TUI_V_F2 || it->row == TUI_V_I) && r + 1 < g->p)
        dep = *at(g, r + 1, it->row, it->i);
    if (it->row && it->row < W_ROW)
        v = *at(g, r, it->row - 1, it->i);
    dep = v > dep ? v : dep;
    if (it->row == W_ROW) {
        v = gradient(at(g, r, TUI_V_I2, 0), at(g, r, TUI_V_I, 0), g->m, it->i);
        dep = v > dep ? v : dep;
    }
    if (it->i) {
        v = *at(g, r, it->row, it->i - 1);
        dep = v > dep ? v : dep;
    }
    return dep + 1;
}

static void move(struct grid *g, const struct item *it, int32_t to)
{
    char *busy = g->busy + (size_t)it->rank * (size_t)g->slots;
    busy[it->slot] = 0;
    busy[to] = (char)(1 + it->row);
    *at(g, it->rank, it->row, it->i) = to;
}

/* The earliest idle slot that leaves the peak where it is, with W's slots fixed. */
static void pull_fixed(struct grid *g, const struct item *it, int32_t peak)
{
    char *busy = g->busy + (size_t)it->rank * (size_t)g->slots;
    int32_t *held = g->held + (size_t)it->rank * (size_t)g->slots;
    int32_t lo = earliest(g, it), best = it->slot;
    bool adds = it->row <= TUI_V_F2;
    for (int32_t s = it->slot - 1; s >= lo; s--) {
        if (adds && held[s] + 1 > peak)
            break;
        if (!busy[s])
            best = s;
    }
    if (best == it->slot)
        return;
    for (int32_t s = best; s < it->slot; s++)
        held[s] += adds ? 1 : it->row == W_ROW ? -1 : 0;
    move(g, it, best);
}

/* The same when W's slots follow from the others. */
static void pull_free(struct grid *g, const struct item *it, int32_t peak)
{
    const char *busy = g->busy + (size_t)it->rank * (size_t)g->slots;
    struct item now = *it;
    struct mark *k = &g->mark[it->rank]; /* nothing before it has moved since */
    int32_t lo = earliest(g, it);
    if (k->slot > lo)
        *k = (struct mark){0};
    walk(busy, lo, INT32_MAX, k);
    for (int32_t s = lo; s < it->slot; s++) {
        if (busy[s])
            continue;
        move(g, &now, s);
        now.slot = s;
        if (free_peak(g, it->rank, *k, peak) <= peak)
            return;
    }
    move(g, &now, it->slot);
}

/* Pull the warm-up (with W's slots fixed only) and the tail forward; the middle stays. */
static void reorder(struct grid *g, bool fixed_w)
{
    int32_t peak = 0, mine;
    int phase = 0;
    list(g, fixed_w ? TUI_V_ROWS + 1 : TUI_V_ROWS);
    occupy(g, fixed_w ? TUI_V_ROWS + 1 : TUI_V_ROWS);
    for (uint32_t r = 0; r < g->p; r++) {
        g->mark[r] = (struct mark){0};
        mine = fixed_w ? hold(g, r) : free_peak(g, r, g->mark[r], INT32_MAX);
        peak = mine > peak ? mine : peak;
    }
    for (size_t k = 0; k < g->items; k++) {
        const struct item *it = &g->item[k];
        if (it->row == TUI_V_I && it->rank == 0 && phase == 0)
            phase = 1;
        bool stays = phase == 1 || (phase == 0 && !fixed_w);
        if (phase == 1 && it->row == TUI_V_F && it->i == g->m - 1)
            phase = 2;
        if (stays)
            continue;
        if (fixed_w)
            pull_fixed(g, it, peak);
        else
            pull_free(g, it, peak);
    }
}

/* As soon as possible in slot order, each operation taking one slot. */
static void squeeze(struct grid *g, int32_t *clock)
{
    list(g, TUI_V_ROWS + 1);
    memset(clock, 0, g->p * sizeof *clock);
    for (size_t k = 0; k < g->items; k++) {
        const struct item *it = &g->item[k];
        int32_t lo = it->row == W_ROW ? 0 : earliest(g, it);
        lo = clock[it->rank] > lo ? clock[it->rank] : lo;
        *at(g, it->rank, it->row, it->i) = lo;
        clock[it->rank] = lo + 1;
    }
}

/* The order of each rank; each W belongs to the oldest waiting I, second chunk first. */
static void emit(struct grid *g, struct tui_build *b)
{
    put_w(g);
    list(g, TUI_V_ROWS + 1);
    uint32_t(*count)[6] = tu_calloc(g->p, sizeof *count, b->err);
    if (!count) {
        b->code = TU_ENOMEM;
        return;
    }
    for (size_t k = 0; k < g->items; k++) {
        const struct item *it = &g->item[k];
        uint32_t r = it->rank, first = r, second = 2 * g->p - 1 - r, *c = count[r];
        switch (it->row) {
        case TUI_V_F: tui_add(b, r, TU_OP_F, first, it->i); break;
        case TUI_V_F2: tui_add(b, r, TU_OP_F, second, it->i); break;
        case TUI_V_I2: tui_add(b, r, TU_OP_I, second, c[TUI_V_I2]++); break;
        case TUI_V_I: tui_add(b, r, TU_OP_I, first, c[TUI_V_I]++); break;
        default:
            if (c[4] < c[TUI_V_I2])
                tui_add(b, r, TU_OP_W, second, c[4]++);
            else
                tui_add(b, r, TU_OP_W, first, c[5]++);
        }
    }
    tu_free(count);
}

int tui_v_expand(struct tui_build *b, const int32_t (*block)[TUI_V_ROWS],
                 struct tu_err *err)
{
    struct grid g = {.p = b->s->ranks, .m = b->s->microbatches};
    int32_t last = 0, *clock = tu_alloc(g.p, sizeof *clock, err);
    size_t pm = (size_t)g.p * g.m;
    for (uint32_t r = 0; r < g.p; r++)
        for (int row = 0; row < TUI_V_ROWS; row++)
            last = block[r][row] > last ? block[r][row] : last;
    /* The whole block train, then room for every W one by one. */
    g.slots = last + 6 * (int32_t)g.m + 2 * (int32_t)g.m + 2;
    int32_t *t = tu_alloc(6 * pm, sizeof *t, err);
    g.busy = tu_alloc((size_t)g.p * (size_t)g.slots, 1, err);
    g.held = tu_alloc((size_t)g.p * (size_t)g.slots, sizeof *g.held, err);
    g.item = tu_alloc(6 * pm, sizeof *g.item, err);
    g.first = tu_alloc((size_t)g.slots + 1, sizeof *g.first, err);
    g.mark = tu_calloc(g.p, sizeof *g.mark, err);
    int rc = clock && t && g.busy && g.held && g.item && g.first && g.mark ? 0 : TU_ENOMEM;
    if (!rc) {
        for (uint32_t row = 0; row <= W_ROW; row++)
            g.t[row] = t + row * pm;
        for (uint32_t r = 0; r < g.p; r++)
            for (uint32_t row = 0; row < TUI_V_ROWS; row++)
                for (uint32_t i = 0; i < g.m; i++)
                    *at(&g, r, row, i) = block[r][row] + 6 * (int32_t)i;
        put_w(&g);
        reorder(&g, true);
        squeeze(&g, clock);
        reorder(&g, false);
        put_w(&g);
        squeeze(&g, clock);
        emit(&g, b);
    }
    tu_free(clock);
    tu_free(t);
    tu_free(g.busy);
    tu_free(g.held);
    tu_free(g.item);
    tu_free(g.first);
    tu_free(g.mark);
    return rc ? rc : b->code;
}
