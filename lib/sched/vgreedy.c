/* SPDX-License-Identifier: Apache-2.0 */
/* vgreedy.c: a zero-bubble V schedule grown for the given times.
 *
 * All ranks grow together, one gradient and one forward at a time. A weight gradient is
 * put where a rank would wait longer than it may: than the longest wait so far, or than
 * what an earlier try of the whole schedule showed to be harmless. Four variants; the
 * least wait wins. Source: Qi et al., "Zero Bubble Pipeline Parallelism", 2024, section 6
 * (ZB-V). */
#include <string.h>
#include "sched/families.h"
#include "sched/memory.h"

/* Passes along the V in the order of a micro-batch. */
enum pass { DOWN_F, UP_F, DOWN_I, UP_I, PASSES };

struct rank {
    uint32_t n[PASSES];
    int64_t clock, mem, wait, allowed;
    uint32_t ops, w_head, w_tail; /* waiting weight gradients: second chunk or first */
};

struct grow {
    uint32_t p, m;
    int64_t cost[TU_OP_W + 1], c[2];
    int64_t mem_f, mem_i, mem_w, cap;
    struct rank *r;
    int64_t *end;     /* [PASSES][p][m], -1: not run */
    struct tu_op *op; /* [p][6m] */
    uint8_t *queue;   /* [p][2m]: pass of each gradient in turn */
    bool fill_f, fill_i, stuck;
    int64_t allowed; /* the most any rank waited in the try before; < 0: none */
};

static int64_t *end_of(const struct grow *g, enum pass a, uint32_t k, uint32_t mb)
{
    return &g->end[((size_t)a * g->p + k) * g->m + mb];
}

/* End of the same pass on the rank before, -1 when there is none or it has not run. */
static int64_t before(const struct grow *g, enum pass a, uint32_t k)
{
    bool down = a == DOWN_F || a == DOWN_I;
    uint32_t mb = g->r[k].n[a];
    if (down ? k == 0 : k + 1 == g->p)
        return -1;
    return mb < g->m ? *end_of(g, a, down ? k - 1 : k + 1, mb) : -1;
}

static void add(struct grow *g, uint32_t k, enum tu_op_kind kind, bool second,
                uint32_t mb)
{
    g->op[(size_t)k * 6 * g->m + g->r[k].ops++] = (struct tu_op){
        .kind = (uint8_t)kind, .stage = second ? 2 * g->p - 1 - k : k, .mb = mb};
}

static void put_w(struct grow *g, uint32_t k)
{
    struct rank *r = &g->r[k];
    uint8_t pass = g->queue[(size_t)k * 2 * g->m + r->w_head++];
    uint32_t mb = 0;
    for (uint32_t i = 0; i + 1 < r->w_head; i++)
        mb += g->queue[(size_t)k * 2 * g->m + i] == pass;
    r->clock += g->cost[TU_OP_W];
    r->mem -= g->mem_w;
    add(g, k, TU_OP_W, pass == DOWN_I, mb);
}

static void put(struct grow *g, uint32_t k, enum pass a)
{
    struct rank *r = &g->r[k];
    bool fwd = a <= UP_F;
    int64_t ready = before(g, a, k), at = r->clock;
    if (r->n[a] >= g->m || (fwd && r->mem + g->mem_f > g->cap)) {
        g->stuck = true;
        return;
    }
    if (ready >= 0 && ready + g->c[!fwd] > at) {
        r->wait += r->n[DOWN_F] ? ready + g->c[!fwd] - at : 0;
        at = ready + g->c[!fwd];
    }
    r->clock = at + g->cost[fwd ? TU_OP_F : TU_OP_I];
    *end_of(g, a, k, r->n[a]) = r->clock;
    r->mem += fwd ? g->mem_f : -g->mem_i;
    add(g, k, fwd ? TU_OP_F : TU_OP_I, a == UP_F || a == DOWN_I, r->n[a]++);
    if (!fwd)
        g->queue[(size_t)k * 2 * g->m + r->w_tail++] = (uint8_t)a;
}

/* How much longer this rank may wait without lengthening the schedule. */
static int64_t slack(const struct grow *g, uint32_t k)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < g->p; i++)
        most = g->r[i].wait > most ? g->r[i].wait : most;
    if (g->allowed >= 0 && g->allowed - g->r[k].allowed > most)
        most = g->allowed - g->r[k].allowed;
    return most - g->r[k].wait;
}

/* Weight gradients into the wait before pass a, then the pass. */
static void fill_and_put(struct grow *g, uint32_t k, enum pass a, bool eager)
{
    struct rank *r = &g->r[k];
    int64_t ready = before(g, a, k);
    ready = ready < 0 ? -1 : ready + g->c[a > UP_F];
    while (r->w_head < r->w_tail && ready >= 0 && ready >= r->clock + g->cost[TU_OP_W])
        put_w(g, k);
    if (r->w_head < r->w_tail && eager && ready >= 0 && ready - r->clock > slack(g, k))
        put_w(g, k);
    put(g, k, a);
}

static void warm_up(struct grow *g)
{
    struct rank *r = g->r;
    for (uint32_t k = 0; k < g->p; k++)
        put(g, k, DOWN_F);
    for (uint32_t k = g->p; k-- > 0 && !g->stuck;) {
        int64_t due = before(g, UP_F, k) + g->c[0];
        while (k + 1 < g->p && r[k].mem + g->mem_f * (2 + 2 * (int64_t)k) <= g->cap &&
               r[k].clock + g->cost[TU_OP_F] <= due && r[k].n[DOWN_F] < g->m)
            for (uint32_t j = 0; j <= k; j++)
                put(g, j, DOWN_F);
        put(g, k, UP_F);
    }
    bool up = false;
    for (uint32_t k = 1; k < g->p && !g->stuck; k++)
        while (!g->stuck &&
               (r[k].n[DOWN_F] + r[k].n[UP_F] < r[k - 1].n[DOWN_F] + r[k - 1].n[UP_F] ||
                (r[k].n[UP_F] <= r[k - 1].n[UP_F] && r[k - 1].n[UP_F] < g->m))) {
            for (uint32_t j = g->p; j-- > k;)
                if (r[j].n[up ? UP_F : DOWN_F] < g->m)
                    put(g, j, up ? UP_F : DOWN_F);
            up = !up;
        }
}

/* Is the gradient of the first chunk the next one of this rank? */
static bool climbs(const struct grow *g, uint32_t k)
{
    const struct rank *r = &g->r[k];
    if (r->n[UP_I] >= r->n[DOWN_I])
        return false;
    return k + 1 == g->p || before(g, UP_I, k) >= 0 || r->n[DOWN_I] >= g->m;
}

static void gradients(struct grow *g, bool *climb)
{
    for (uint32_t k = 0; k < g->p; k++)
        climb[k] = climbs(g, k);
    for (uint32_t k = g->p; k-- > 0 && !g->stuck;)
        if (climb[k])
            fill_and_put(g, k, UP_I, true);
    for (uint32_t k = 0; k < g->p && !g->stuck; k++)
        if (!climb[k])
            fill_and_put(g, k, DOWN_I, g->fill_i);
}

static void forwards(struct grow *g)
{
    for (uint32_t k = 0; k < g->p && !g->stuck; k++) {
        struct rank *r = &g->r[k];
        enum pass a = PASSES;
        if (r->n[UP_F] >= g->m)
            continue;
        if (r->n[UP_F] >= r->n[DOWN_F])
            a = DOWN_F;
        else if (k + 1 == g->p || before(g, UP_F, k) >= 0)
            a = UP_F;
        else if (r->n[DOWN_F] < g->m && (k == 0 || before(g, DOWN_F, k) >= 0))
            a = DOWN_F;
        if (a == PASSES)
            continue;
        while (r->mem + g->mem_f > g->cap && r->w_head < r->w_tail)
            put_w(g, k);
        fill_and_put(g, k, a, g->fill_f);
    }
}

/* One schedule; the longest wait of a rank, or INT64_MAX when memory does not suffice. */
static int64_t grow(struct grow *g, bool *climb)
{
    for (uint32_t k = 0; k < g->p; k++)
        g->r[k] = (struct rank){.allowed = g->r[k].wait};
    memset(g->end, 0xff, (size_t)PASSES * g->p * g->m * sizeof *g->end);
    g->stuck = false;
    warm_up(g);
    for (uint32_t i = 0; i < 2 * g->m && !g->stuck; i++) {
        gradients(g, climb);
        forwards(g);
    }
    int64_t most = 0;
    for (uint32_t k = 0; k < g->p; k++) {
        while (g->r[k].w_head < g->r[k].w_tail)
            put_w(g, k);
        most = g->r[k].wait > most ? g->r[k].wait : most;
        g->stuck = g->stuck || g->r[k].ops != 6 * g->m;
    }
    return g->stuck ? INT64_MAX : most;
}

/* All variants; the best order is left in best[p][6m]. */
static int64_t search(struct grow *g, struct tu_op *best, bool *climb)
{
    int64_t least = INT64_MAX;
    for (int v = 0; v < 4; v++) {
        int64_t last = INT64_MAX, now;
        g->fill_i = !(v & 2);
        g->fill_f = !(v & 1);
        g->allowed = -1;
        memset(g->r, 0, g->p * sizeof *g->r);
        while ((now = grow(g, climb)) < last) {
            if (now < least) {
                least = now;
                memcpy(best, g->op, (size_t)g->p * 6 * g->m * sizeof *best);
            }
            g->allowed = last = now;
        }
    }
    return least;
}

static int zbv_auto(struct tu_sched **out, const struct tu_sched_params *q,
                    struct tu_err *err)
{
    struct tui_build b;
    struct tu_cost one;
    tu_cost_init(&one);
    const struct tu_cost *c = q->cost ? q->cost : &one;
    size_t ops = (size_t)q->p * 6 * q->m;
    struct grow g = {.p = q->p, .m = q->m, .c = {c->transfer[0], c->transfer[1]}};
    g.cost[TU_OP_F] = tu_cost_time(c, TU_OP_F, 0, UINT32_MAX);
    g.cost[TU_OP_I] = tu_cost_time(c, TU_OP_I, 0, UINT32_MAX);
    g.cost[TU_OP_W] = tu_cost_time(c, TU_OP_W, 0, UINT32_MAX);
    struct tui_mem size = tui_mem_of(c, 2, 1);
    g.mem_f = size.full;
    g.mem_w = q->cap || c->mem_b ? tui_mem_at_w(c) : size.for_w;
    g.mem_i = g.mem_f - g.mem_w;
    g.cap = q->cap ? q->cap : 2 * (int64_t)q->p * g.mem_f;
    char text[40];
    tui_build_begin(&b, q->p, 2 * q->p, 1, q->m, err);
    tui_place_snake(&b);
    g.r = tu_calloc(q->p, sizeof *g.r, err);
    g.end = tu_alloc((size_t)PASSES * q->p * q->m, sizeof *g.end, err);
    g.op = tu_alloc(2 * ops, sizeof *g.op, err);
    g.queue = tu_alloc((size_t)q->p * 2 * q->m, 1, err);
    bool *climb = tu_alloc(q->p, sizeof *climb, err);
    if (!g.r || !g.end || !g.op || !g.queue || !climb)
        b.code = b.code ? b.code : TU_ENOMEM;
    if (!b.code && search(&g, g.op + ops, climb) == INT64_MAX)
        b.code = tu_fail(err, TU_EUSAGE, "zb-v-auto: memory cap %s: no order was found",
                         tu_ticks_text(g.cap, tu_cost_unit(c, 2), text));
    for (uint32_t k = 0; k < q->p && !b.code; k++)
        for (size_t i = 0; i < 6 * (size_t)q->m; i++)
            tui_add_op(&b, k, &g.op[ops + (size_t)k * 6 * q->m + i]);
    tu_free(g.r);
    tu_free(g.end);
    tu_free(g.op);
    tu_free(g.queue);
    tu_free(climb);
    return tui_build_end(&b, out);
}

const struct tu_schedule tui_zb_v_auto = {
    .name = "zb-v-auto",
    .help = "zero bubble in a V, grown for the times",
    .source = "Zero Bubble, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .make = zbv_auto,
    .caps = true,
};
