/* SPDX-License-Identifier: Apache-2.0 */
/* adaptive.c: our policy: keep what will be asked for soonest for the room it takes, as
 * learned from the trace itself.
 *
 * Requests that go on from an earlier one (that share at least half of its blocks) make
 * up a session. Whether a session comes back is foretold by a logistic regression over
 * what its last request was like, trained as the answers come in; when, by a hazard rate
 * over its age, evicted sessions included (their ids are remembered), whose height the
 * forecast sets. A session of chance p and age a is worth the best ratio, over all times
 * to wait, of the chance that it returns to the time that it is expected to be kept:
 *
 *   worth(p, a) = max over w of P(returns within w | alive at a) / E[time kept]
 *
 * The session that is worth least loses its deepest blocks first, and never one that
 * another resident block stands on; before any, sessions lose their last block where it
 * is not full, since it is another one when they come back. With a falling hazard this is
 * LRU; with sessions that return late it keeps some for long instead of all for too short.
 * Related: Beckmann, Chen, Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit
 * Density", NSDI 2018. */
#include <math.h>
#include <string.h>
#include "policies.h"

enum { LEVELS = 11, PACES = 3, CLASSES = LEVELS * PACES, AGES = 24 };
enum { EVERY = 128, WINDOW = 8192 }; /* requests */

/* What the forecast looks at: one value of each feature. */
enum { TURNS = 10, GAPS = 8, SIZES = 8, OUTPUTS = 12, FEATURES = 6 };
enum {
    TURN = 0,                /* how often it has come back */
    LAST = TURN + TURNS,     /* after how many requests, the last time */
    BEFORE = LAST + GAPS,    /* and the time before */
    LENGTH = BEFORE + GAPS,  /* blocks */
    OUTPUT = LENGTH + SIZES, /* tokens of the answer */
    FRESH = OUTPUT + OUTPUTS, /* blocks that were never seen */
    WEIGHTS = FRESH + SIZES,
};

/* Chat traffic in tenths, roughly: short, often repeated turns with little news return. */
static const signed char start[WEIGHTS] = {
    -1, -3, -6, -5, -7, -2, 1,  4,  -1, 2,              /* TURN */
    -1, 1,  1,  0,  -2, -5, -3, -9,                     /* LAST */
    -5, -5, 0,  0,  1,  -3, -6, -1,                     /* BEFORE */
    0,  4,  -2, -6, -2, -3, -4, -5,                     /* LENGTH */
    0,  8,  -9, -3, -4, -3, 2,  1,  0,  -4, -2, -4,     /* OUTPUT */
    5,  7,  1,  -4, -5, -8, -6, -9,                     /* FRESH */
};

/* Levels of the forecast: where each ends, and the chance that stands for it. */
static const double ends[LEVELS - 1] = {.04, .07, .1, .14, .19, .25, .32, .4, .5, .62};
static const double chance[LEVELS] = {.025, .055, .085, .12, .165, .22,
                                      .285, .36, .45, .56, .72};

struct session {
    uint32_t left;     /* blocks of its request not yet given up, from the root */
    uint32_t owned;    /* resident ones whose last request it is */
    uint32_t returned; /* age at which it came back, 0: not yet */
    uint32_t stuck;    /* request during which it had nothing to give */
    uint32_t turn, gap, gap_before;
    unsigned char class, bucket;
    unsigned char feature[FEATURES]; /* numbers of weights */
};

struct state {
    const struct tu_kv_trace *t;
    struct session *s;  /* [n] one for each request */
    uint32_t *owner;    /* [distinct] last request of a block, TUI_NIL never */
    uint32_t *children; /* [distinct] resident */
    uint32_t whole;     /* sessions before this one have lost their last, partial block */
    bool *in;           /* [distinct] */
    struct tui_link *link;
    struct tui_list alive[CLASSES][AGES]; /* sessions that own blocks, oldest first */
    uint64_t resident;
    double worth[CLASSES][AGES];
    double weight[WEIGHTS];
    uint32_t horizon; /* requests within which a return counts for the forecast */
    uint32_t edge[AGES + 1]; /* ages where buckets begin */
    unsigned char bucket[4096];
};

static void make_edges(struct state *st)
{
    double at = 0;
    for (int b = 0; b <= AGES; b++) {
        st->edge[b] = (uint32_t)at;
        at = at < 400 ? at + 50 : at * 1.3;
    }
    st->edge[AGES] = UINT32_MAX;
    for (uint32_t a = 0, b = 0; a < sizeof st->bucket; a++) {
        while (a >= st->edge[b + 1])
            b++;
        st->bucket[a] = (unsigned char)b;
    }
}

static int bucket_of(const struct state *st, uint32_t age)
{
    if (age < sizeof st->bucket)
        return st->bucket[age];
    int b = st->bucket[sizeof st->bucket - 1];
    while (age >= st->edge[b + 1])
        b++;
    return b;
}

static double width_of(const struct state *st, int b)
{
    return b + 1 < AGES ? (double)(st->edge[b + 1] - st->edge[b]) : (double)st->edge[b];
}

/* What has been seen of the sessions of each pace, and of all together (the last). */
struct evidence {
    double time[PACES + 1][AGES], returns[PACES + 1][AGES];
};

static void gather(const struct state *st, uint32_t now, struct evidence *e)
{
    for (uint32_t i = now > WINDOW ? now - WINDOW : 0; i < now; i++) {
        const struct session *s = &st->s[i];
        uint32_t age = s->returned ? s->returned : now - i;
        int last = bucket_of(st, age), p = s->class % PACES;
        for (int b = 0; b < last; b++)
            e->time[p][b] += width_of(st, b);
        e->time[p][last] += (double)(age - st->edge[last]);
        e->returns[p][last] += s->returned != 0;
    }
    for (int p = 0; p < PACES; p++)
        for (int b = 0; b < AGES; b++) {
            e->time[PACES][b] += e->time[p][b];
            e->returns[PACES][b] += e->returns[p][b];
        }
}

static void weigh(const struct state *st, const double hazard[AGES], double worth[AGES])
{
    for (int a = 0; a < AGES; a++) {
        double alive = 1, back = 0, kept = 0;
        worth[a] = 0;
        for (int b = a; b < AGES; b++) {
            double stay = exp(-hazard[b] * width_of(st, b));
            back += alive * (1 - stay);
            kept += alive * (1 - stay) / hazard[b];
            alive *= stay;
            worth[a] = fmax(worth[a], back / kept);
        }
    }
}

/* Returns over time, shrunk towards a rate that is known better by some sessions' worth
 * of it: a pace towards all, all towards a falling rate, which makes LRU of no evidence.
 * The levels scale the rate so that the chance within the horizon is theirs. */
static void learn(struct state *st, uint32_t now, struct evidence *e)
{
    enum { SOME = 16 };
    double all[AGES], rate[AGES], hazard[AGES];
    memset(e, 0, sizeof *e);
    gather(st, now, e);
    for (int b = 0; b < AGES; b++) {
        double w = SOME * width_of(st, b), falling = 0.5 / (100 + (double)st->edge[b]);
        all[b] = (e->returns[PACES][b] + w * falling) / (e->time[PACES][b] + w);
    }
    for (int p = 0; p < PACES; p++) {
        double sum = 0;
        for (int b = 0; b < AGES; b++) {
            double w = SOME * width_of(st, b), left = (double)st->horizon -
                                                      (double)st->edge[b];
            rate[b] = (e->returns[p][b] + w * all[b]) / (e->time[p][b] + w);
            sum += left > 0 ? rate[b] * fmin(width_of(st, b), left) : 0;
        }
        for (int l = 0; l < LEVELS; l++) {
            for (int b = 0; b < AGES; b++)
                hazard[b] = rate[b] * -log1p(-chance[l]) / sum;
            weigh(st, hazard, st->worth[l * PACES + p]);
        }
    }
}

static double forecast(const struct state *st, const struct session *s)
{
    double sum = 0;
    for (int k = 0; k < FEATURES; k++)
        sum += st->weight[s->feature[k]];
    return 1 / (1 + exp(-sum));
}

/* The answer for the session of `horizon` requests ago is in. */
static void train(struct state *st, uint32_t now)
{
    if (now < st->horizon)
        return;
    const struct session *s = &st->s[now - st->horizon];
    double error = forecast(st, s) - (s->returned ? 1 : 0);
    for (int k = 0; k < FEATURES; k++)
        st->weight[s->feature[k]] -= 0.02 * error;
}

static unsigned bits(uint64_t v, unsigned most)
{
    unsigned n = 0;
    while (v >> n && n < most)
        n++;
    return n;
}

static unsigned gap_step(uint32_t gap)
{
    static const uint32_t steps[] = {100, 200, 350, 600, 1000, 1800};
    unsigned n = gap != 0;
    for (size_t i = 0; gap && i < sizeof steps / sizeof *steps; i++)
        n += gap >= steps[i];
    return n;
}

/* The session that this request goes on from, TUI_NIL if none. */
static uint32_t origin(const struct state *st, const struct tu_kv_request *q)
{
    const uint32_t *id = st->t->id + q->first;
    uint64_t k = 0;
    while (k < q->blocks && st->owner[id[k]] != TUI_NIL)
        k++;
    if (!k)
        return TUI_NIL;
    uint32_t from = st->owner[id[k - 1]];
    return 2 * k >= st->t->request[from].blocks ? from : TUI_NIL;
}

static void disown(struct state *st, uint32_t i)
{
    struct session *s = &st->s[i];
    if (--s->owned == 0)
        tui_drop(&st->alive[s->class][s->bucket], st->link, i);
}

static void describe(const struct state *st, struct session *s,
                     const struct tu_kv_request *q, uint64_t fresh)
{
    unsigned level = 0, length = bits(q->blocks, SIZES);
    s->feature[0] = (unsigned char)(TURN + tu_min(s->turn, TURNS - 1));
    s->feature[1] = (unsigned char)(LAST + gap_step(s->gap));
    s->feature[2] = (unsigned char)(BEFORE + gap_step(s->gap_before));
    s->feature[3] = (unsigned char)(LENGTH + (length ? length - 1 : 0));
    s->feature[4] = (unsigned char)(OUTPUT + bits(q->output, OUTPUTS - 1));
    s->feature[5] = (unsigned char)(FRESH + bits(fresh, SIZES - 1));
    double p = forecast(st, s);
    while (level < LEVELS - 1 && p >= ends[level])
        level++;
    s->class = (unsigned char)(level * PACES + (!s->gap ? 0u : s->gap < 250 ? 1u : 2u));
}

static void touch(struct state *st, uint32_t i)
{
    const struct tu_kv_request *q = &st->t->request[i];
    const uint32_t *id = st->t->id + q->first;
    struct session *s = &st->s[i];
    uint32_t from = origin(st, q);
    if (from != TUI_NIL) {
        s->turn = st->s[from].turn + 1;
        s->gap = i - from;
        s->gap_before = st->s[from].gap;
        if (!st->s[from].returned)
            st->s[from].returned = i - from;
    }
    uint64_t fresh = 0;
    while (fresh < q->blocks && st->owner[id[q->blocks - 1 - fresh]] == TUI_NIL)
        fresh++;
    describe(st, s, q, fresh);
    for (uint64_t k = 0; k < q->blocks; k++) {
        uint32_t b = id[k];
        if (st->in[b]) {
            disown(st, st->owner[b]);
        } else {
            st->in[b] = true;
            st->resident++;
            if (st->t->parent[b] != TUI_NIL)
                st->children[st->t->parent[b]]++;
        }
        st->owner[b] = i;
        s->owned++;
    }
    s->left = (uint32_t)q->blocks;
    if (s->owned)
        tui_push(&st->alive[s->class][0], st->link, i);
}

/* Sessions grow old: from bucket to bucket. */
static void age(struct state *st, uint32_t now)
{
    for (int c = 0; c < CLASSES; c++)
        for (int b = AGES - 1; b-- > 0;) {
            struct tui_list *l = &st->alive[c][b];
            for (uint32_t i; (i = l->head) != TUI_NIL && now - i >= st->edge[b + 1];) {
                tui_drop(l, st->link, i);
                tui_push(&st->alive[c][b + 1], st->link, i);
                st->s[i].bucket++;
            }
        }
}

/* Give up the deepest blocks of session i down to `keep` of them; false if it has none
 * that may go. */
static bool shed(struct state *st, uint32_t i, uint32_t keep, uint64_t capacity,
                 uint64_t *evictions)
{
    const uint32_t *id = st->t->id + st->t->request[i].first;
    struct session *s = &st->s[i];
    bool any = false;
    while (st->resident > capacity && s->left > keep) {
        uint32_t b = id[s->left - 1];
        bool own = st->in[b] && st->owner[b] == i;
        if (own && st->children[b])
            return any;
        s->left--;
        if (!own)
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

/* The session of least worth that is not stuck, the oldest of its class and age. */
static uint32_t least(const struct state *st, uint32_t now)
{
    uint32_t best = TUI_NIL;
    double worth = INFINITY;
    for (int c = 0; c < CLASSES; c++)
        for (int b = 0; b < AGES; b++) {
            uint32_t i = st->alive[c][b].head;
            if (i == TUI_NIL || st->worth[c][b] >= worth)
                continue;
            while (i != TUI_NIL && st->s[i].stuck == now + 1)
                i = st->link[i].next;
            if (i != TUI_NIL) {
                worth = st->worth[c][b];
                best = i;
            }
        }
    return best;
}

/* A session whose deepest block has others on it is passed over for this time; of all
 * sessions one has a leaf, so this ends. */
static void evict(struct state *st, uint32_t now, uint64_t capacity, uint64_t *evictions)
{
    /* A block that was not full is another one when its session comes back. */
    for (; st->resident > capacity && st->whole <= now; st->whole++) {
        const struct tu_kv_request *q = &st->t->request[st->whole];
        if (q->input % st->t->block && st->s[st->whole].left == q->blocks && q->blocks)
            (void)shed(st, st->whole, (uint32_t)q->blocks - 1, capacity, evictions);
    }
    while (st->resident > capacity) {
        uint32_t i = least(st, now);
        if (i == TUI_NIL)
            break;
        if (!shed(st, i, 0, capacity, evictions))
            st->s[i].stuck = now + 1;
    }
}

static int adaptive(const struct tu_kv_trace *t, uint64_t capacity,
                    const struct tu_spec *spec, struct tu_kv_hits *out, struct tu_err *err)
{
    struct state st = {.t = t};
    struct evidence *evidence = tu_alloc(1, sizeof *evidence, err);
    (void)spec;
    st.s = tu_calloc(t->n, sizeof *st.s, err);
    st.owner = tu_alloc(t->distinct, sizeof *st.owner, err);
    st.children = tu_calloc(t->distinct, sizeof *st.children, err);
    st.in = tu_calloc(t->distinct, sizeof *st.in, err);
    st.link = tu_alloc(t->n, sizeof *st.link, err);
    int rc = evidence && st.s && st.owner && st.children && st.in && st.link ? 0 : TU_ENOMEM;
    if (!rc)
        memset(st.owner, 0xff, t->distinct * sizeof *st.owner);
    for (int c = 0; c < CLASSES; c++)
        for (int b = 0; b < AGES; b++)
            tui_list_init(&st.alive[c][b]);
    make_edges(&st);
    for (int k = 0; k < WEIGHTS; k++)
        st.weight[k] = start[k] / 10.0;
    for (uint32_t i = 0; !rc && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        uint64_t k = 0;
        while (k < q->blocks && st.in[t->id[q->first + k]])
            k++;
        out->blocks += q->blocks;
        out->hits += k;
        if (i % EVERY == 0) {
            /* Twice the time that a cache of this size holds all; less while young. */
            uint64_t turnover = 2 * tu_min(capacity, UINT32_MAX) * (i + 1) /
                                tu_max(out->blocks, 1);
            st.horizon = (uint32_t)tu_max(64, tu_min(turnover, tu_min(3000, 256 + i / 3)));
            learn(&st, i, evidence);
        }
        train(&st, i);
        age(&st, i);
        touch(&st, i);
        evict(&st, i, capacity, &out->evictions);
    }
    out->resident = st.resident;
    tu_free(evidence);
    tu_free(st.s);
    tu_free(st.owner);
    tu_free(st.children);
    tu_free(st.in);
    tu_free(st.link);
    return rc;
}

const struct tu_kv_policy tui_kv_adaptive = {
    "adaptive", "ours: what returns soonest for its room, learned from the trace", NULL,
    adaptive};
