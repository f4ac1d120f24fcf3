/* SPDX-License-Identifier: Apache-2.0 */
/* adaptive.c: our policy: keep what will be asked for soonest for the room it takes, as
 * learned from the trace itself.
 *
 * A request that begins with blocks of an earlier one goes on from it, and both are of one
 * session, unless those blocks are what many begin with. A request has two parts, blocks
 * that were seen before and new ones; each block belongs to a part of the last request
 * that asked for it. returns.c foretells what a part is worth, evicted ones included.
 *
 * The part that is worth least loses its deepest blocks first, and never one that another
 * resident block stands on; before any, requests lose their last block where it is not
 * full, since it is another one when they come back. With a falling hazard this is LRU;
 * with sessions that return late it keeps some for long instead of all for too short.
 *
 * What a session left behind when it went on from an earlier point is worth little.
 *
 * Parts are in lists by class and bucket of age, oldest first, so that an eviction looks
 * at their heads only: the cost is constant for each block and each list. */
#include <math.h>
#include <string.h>
#include "policies.h"
#include "returns.h"

enum { EVERY = 32 }; /* requests between lessons */
enum { HOT = 7 };    /* continuations that make a block common to sessions */

/* What is remembered of a request's session. */
struct turn {
    uint32_t n, gap, gap_before;
};

struct state {
    const struct tu_kv_trace *t;
    struct tui_part *part; /* [2 n] */
    struct turn *turn;     /* [n] */
    uint32_t *old;         /* [n] blocks of the request that were seen before */
    uint32_t *owner;       /* [distinct] part, TUI_NIL never seen */
    uint32_t *children;    /* [distinct] resident */
    uint32_t *followers;   /* [distinct] children ever seen */
    uint32_t *uses;        /* [distinct] requests that asked for it */
    uint32_t whole;        /* requests before this one have lost their partial block */
    bool *in;              /* [distinct] */
    struct tui_link *link; /* [2 n] */
    struct tui_list alive[TUI_CLASSES][TUI_AGES]; /* parts that own blocks, oldest first */
    uint32_t filled[TUI_CLASSES];                 /* a bit for each list that is not empty */
    uint64_t resident;
    struct tui_returns r;
};

static unsigned bits(uint64_t v, unsigned most)
{
    unsigned n = 0;
    while (n < most && v >> n)
        n++;
    return n;
}

/* Which of the steps v has reached. */
static unsigned step_of(uint64_t v, const uint32_t *step, size_t n)
{
    unsigned k = 0;
    while (k < n && v >= step[k])
        k++;
    return k;
}

static unsigned gap_step(uint32_t gap)
{
    static const uint32_t steps[] = {1, 100, 200, 350, 600, 1000, 1800};
    return step_of(gap, steps, sizeof steps / sizeof *steps);
}

static unsigned answer_step(uint64_t output)
{
    static const uint32_t steps[] = {50, 200, 350, 550};
    return step_of(output, steps, sizeof steps / sizeof *steps);
}

/* How a request stands to the one that it goes on from. */
struct look {
    uint32_t from;  /* TUI_NIL: it begins a session */
    uint64_t old;   /* blocks that were seen */
    uint64_t cut;   /* blocks of `from` that it has not */
    int64_t added;  /* tokens beyond those of `from` and its answer, or beyond `old` */
};

static struct look look_at(const struct state *st, const struct tu_kv_request *q)
{
    const uint32_t *id = st->t->id + q->first;
    struct look k = {.from = TUI_NIL};
    while (k.old < q->blocks && st->owner[id[k.old]] != TUI_NIL)
        k.old++;
    if (!k.old || st->followers[id[k.old - 1]] >= HOT)
        return k;
    k.from = st->owner[id[k.old - 1]] / 2;
    const struct tu_kv_request *f = &st->t->request[k.from];
    k.cut = f->blocks - tu_min(k.old, f->blocks);
    k.added = (int64_t)(k.cut <= 1 ? q->input - f->input - f->output
                                   : q->input - k.old * st->t->block);
    return k;
}

/* Whole continuations by tokens added; others apart, by what is not of the old blocks. */
static unsigned added_step(const struct look *k)
{
    if (k->from == TUI_NIL)
        return 0;
    if (k->cut > 1)
        return 1 + (k->added > 0 ? bits((uint64_t)k->added >> 6, 9) : 0);
    return k->added < 0 ? 11 : 12 + bits((uint64_t)k->added >> 1, TUI_ADDED - 13);
}

static void describe(const struct state *st, const struct tu_kv_request *q,
                     const struct turn *turn, const struct look *k,
                     uint16_t look[TUI_LOOKS])
{
    bool on = k->from != TUI_NIL;
    const uint32_t *id = st->t->id + q->first;
    const struct {
        unsigned value, values;
    } f[TUI_LOOKS] = {
        {turn->n, TUI_TURN},
        {gap_step(turn->gap), TUI_GAP},
        {gap_step(turn->gap_before), TUI_GAP},
        {(on ? 10u : 0u) + bits(q->blocks, 9), TUI_LENGTH},
        {bits(q->output, 11), TUI_OUTPUT},
        {on ? 1 + bits(q->blocks - k->old, 8) : 0, TUI_FRESH},
        {added_step(k), TUI_ADDED},
        {on ? bits(st->uses[id[q->blocks > 1]], 5) : 6 + bits(k->old, 3), TUI_USES},
        {on ? bits(k->cut, 6) : 0, TUI_CUT},
        {added_step(k) * TUI_ANSWER + (on ? 1 + answer_step(q->output) : 0), TUI_BOTH},
    };
    for (unsigned i = 0, base = 0; i < TUI_LOOKS; base += f[i++].values)
        look[i] = (uint16_t)(base + tu_min(f[i].value, f[i].values - 1));
}

static void enlist(struct state *st, uint32_t i)
{
    const struct tui_part *p = &st->part[i];
    tui_push(&st->alive[p->row][p->bucket], st->link, i);
    st->filled[p->row] |= 1u << p->bucket;
}

static void delist(struct state *st, uint32_t i)
{
    const struct tui_part *p = &st->part[i];
    struct tui_list *l = &st->alive[p->row][p->bucket];
    tui_drop(l, st->link, i);
    if (!l->n)
        st->filled[p->row] &= ~(1u << p->bucket);
}

static void disown(struct state *st, uint32_t i)
{
    if (--st->part[i].owned == 0)
        delist(st, i);
}

/* Part i of the request `now` away is asked for again, one block. */
static void take(struct state *st, uint32_t i, uint32_t now)
{
    struct tui_part *p = &st->part[i];
    p->taken++;
    if (!p->returned && 2 * p->taken >= p->size) {
        p->returned = now - i / 2;
        p->when = tui_returns_bucket(&st->r, p->returned);
    }
}

static void own(struct state *st, uint32_t b, uint32_t part)
{
    uint32_t up = st->t->parent[b];
    if (!st->uses[b]++ && up != TUI_NIL)
        st->followers[up]++;
    if (st->in[b]) {
        disown(st, st->owner[b]);
    } else {
        st->in[b] = true;
        st->resident++;
        if (up != TUI_NIL)
            st->children[up]++;
    }
    st->owner[b] = part;
    st->part[part].owned++;
}

/* The session has gone on without what is left of request i. */
static void leave(struct state *st, uint32_t i)
{
    for (uint32_t part = 2 * i; part < 2 * i + 2; part++)
        if (st->part[part].owned) {
            delist(st, part);
            st->part[part].row %= TUI_PACES; /* of the least chance */
            enlist(st, part);
        }
}

/* How fast a session was to come back, the last time. */
static unsigned pace_of(const struct turn *turn)
{
    static const uint32_t steps[TUI_PACES - 1] = {1, 185, 555};
    return step_of(turn->gap, steps, TUI_PACES - 1);
}

static void touch(struct state *st, uint32_t i)
{
    const struct tu_kv_request *q = &st->t->request[i];
    const uint32_t *id = st->t->id + q->first;
    struct turn *turn = &st->turn[i];
    if (!q->blocks)
        return;
    struct look k = look_at(st, q);
    if (k.from != TUI_NIL)
        *turn = (struct turn){st->turn[k.from].n + 1, i - k.from, st->turn[k.from].gap};
    st->old[i] = (uint32_t)k.old;
    for (uint64_t n = 0; n < k.old; n++)
        take(st, st->owner[id[n]], i);
    for (uint32_t fresh = 0; fresh < 2; fresh++) {
        struct tui_part *p = &st->part[2 * i + fresh];
        p->size = p->left = (uint32_t)(fresh ? q->blocks - k.old : k.old);
        describe(st, q, turn, &k, p->look);
        p->class = p->row = tui_returns_class(&st->r, p, fresh, pace_of(turn));
    }
    for (uint64_t n = 0; n < q->blocks; n++)
        own(st, id[n], 2 * i + (n >= k.old));
    for (uint32_t part = 2 * i; part < 2 * i + 2; part++)
        if (st->part[part].owned)
            enlist(st, part);
    if (k.from != TUI_NIL)
        leave(st, k.from);
}

/* Parts grow old: from bucket to bucket. */
static void age(struct state *st, uint32_t now)
{
    for (int c = 0; c < TUI_CLASSES; c++)
        for (int b = TUI_AGES - 1; b-- > 0;)
            while (st->filled[c] >> b & 1) {
                uint32_t i = st->alive[c][b].head;
                if (now - i / 2 < st->r.edge[b + 1])
                    break;
                delist(st, i);
                st->part[i].bucket++;
                enlist(st, i);
            }
}

/* Give up the deepest blocks of part i down to `keep` of them; false if it has none that
 * may go. */
static bool shed(struct state *st, uint32_t i, uint32_t keep, uint64_t capacity,
                 uint64_t *evictions)
{
    const uint32_t *id = st->t->id + st->t->request[i / 2].first;
    struct tui_part *p = &st->part[i];
    bool any = false;
    id += i % 2 ? st->old[i / 2] : 0;
    while (st->resident > capacity && p->left > keep) {
        uint32_t b = id[p->left - 1];
        bool mine = st->in[b] && st->owner[b] == i;
        if (mine && st->children[b])
            return any;
        p->left--;
        if (!mine)
            continue;
        st->in[b] = false;
        st->resident--;
        if (st->t->parent[b] != TUI_NIL)
            st->children[st->t->parent[b]]--;
        ++*evictions;
        any = true;
        disown(st, i);
    }
    return any;
}

/* The part of least worth that is not stuck, the oldest of its class and age. */
static uint32_t least(const struct state *st, uint32_t now)
{
    uint32_t best = TUI_NIL;
    double worth = HUGE_VAL;
    for (int c = 0; c < TUI_CLASSES; c++)
        for (uint32_t m = st->filled[c], b = 0; m; m >>= 1, b++) {
            if (!(m & 1) || st->r.worth[c][b] >= worth)
                continue;
            uint32_t i = st->alive[c][b].head;
            while (i != TUI_NIL && st->part[i].stuck == now + 1)
                i = st->link[i].next;
            if (i != TUI_NIL) {
                worth = st->r.worth[c][b];
                best = i;
            }
        }
    return best;
}

/* A part whose deepest block has others on it is passed over for this time; of all parts
 * one has a leaf, so this ends. */
static void evict(struct state *st, uint32_t now, uint64_t capacity, uint64_t *evictions)
{
    /* A block that was not full is another one when its session comes back. */
    for (; st->resident > capacity && st->whole <= now; st->whole++) {
        struct tui_part *p = &st->part[2 * st->whole + 1];
        if (st->t->request[st->whole].input % st->t->block && p->size && p->left == p->size)
            (void)shed(st, 2 * st->whole + 1, p->size - 1, capacity, evictions);
    }
    while (st->resident > capacity) {
        uint32_t i = least(st, now);
        if (i == TUI_NIL)
            break;
        if (!shed(st, i, 0, capacity, evictions))
            st->part[i].stuck = now + 1;
    }
}

static void replay(struct state *st, uint64_t capacity, struct tu_kv_hits *out)
{
    const struct tu_kv_trace *t = st->t;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        uint64_t k = 0;
        while (k < q->blocks && st->in[t->id[q->first + k]])
            k++;
        out->blocks += q->blocks;
        out->hits += k;
        if (i % EVERY == 0)
            tui_returns_learn(&st->r, st->part, i,
                              (double)capacity * (i + 1) / (double)tu_max(out->blocks, 1));
        tui_returns_train(&st->r, st->part, i);
        age(st, i);
        touch(st, i);
        evict(st, i, capacity, &out->evictions);
    }
    out->resident = st->resident;
}

static int adaptive(const struct tu_kv_trace *t, uint64_t capacity,
                    const struct tu_spec *spec, struct tu_kv_hits *out, struct tu_err *err)
{
    (void)spec;
    if (t->n > UINT32_MAX / 2)
        return tu_fail(err, TU_EUSAGE, "adaptive: more than 2^31 requests");
    struct state *st = tu_calloc(1, sizeof *st, err);
    if (!st)
        return TU_ENOMEM;
    st->t = t;
    st->part = tu_calloc(2 * t->n, sizeof *st->part, err);
    st->turn = tu_calloc(t->n, sizeof *st->turn, err);
    st->old = tu_calloc(t->n, sizeof *st->old, err);
    st->owner = tu_alloc(t->distinct, sizeof *st->owner, err);
    st->children = tu_calloc(t->distinct, sizeof *st->children, err);
    st->followers = tu_calloc(t->distinct, sizeof *st->followers, err);
    st->uses = tu_calloc(t->distinct, sizeof *st->uses, err);
    st->in = tu_calloc(t->distinct, sizeof *st->in, err);
    st->link = tu_alloc(2 * t->n, sizeof *st->link, err);
    bool all = st->part && st->turn && st->old && st->owner && st->children &&
               st->followers && st->uses && st->in && st->link;
    if (all) {
        memset(st->owner, 0xff, t->distinct * sizeof *st->owner);
        for (int c = 0; c < TUI_CLASSES; c++)
            for (int b = 0; b < TUI_AGES; b++)
                tui_list_init(&st->alive[c][b]);
        tui_returns_init(&st->r);
        replay(st, capacity, out);
    }
    void *const mine[] = {st->part,      st->turn, st->old, st->owner, st->children,
                          st->followers, st->uses, st->in,  st->link,  st};
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        tu_free(mine[i]);
    return all ? 0 : TU_ENOMEM;
}

const struct tu_kv_policy tui_kv_adaptive = {
    "adaptive", "ours: what returns soonest for its room, learned from the trace", NULL,
    adaptive};
