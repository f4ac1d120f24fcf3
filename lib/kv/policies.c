/* SPDX-License-Identifier: Apache-2.0 */
/* policies.c: the table of eviction policies, and the plain ones. */
#include "policies.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct tu_kv_policy *const tu_kv_policies[] = {
    &tui_kv_lru,      &tui_kv_leaf, &tui_kv_fifo,   &tui_kv_2q,
    &tui_kv_adaptive, &tui_kv_opt,  &tui_kv_prefix, &tui_kv_batch, NULL,
};

int tu_kv_replay(const struct tu_kv_trace *t, const struct tu_spec *policy,
                 uint64_t capacity, struct tu_kv_hits *out, struct tu_err *err)
{
    static const char *const none[] = {NULL};
    char text[88];
    *out = (struct tu_kv_hits){0};
    if (!t->hashed)
        return tu_fail(err, TU_EUSAGE, "the trace has no hash_ids: nothing is shared");
    if (!capacity)
        return tu_fail(err, TU_EUSAGE, "a cache of 0 blocks");
    for (size_t i = 0; tu_kv_policies[i]; i++)
        if (!strcmp(tu_kv_policies[i]->name, policy->name)) {
            const struct tu_kv_policy *p = tu_kv_policies[i];
            int rc = tu_spec_check(policy, p->key ? p->key : none, err);
            return rc ? rc : p->run(t, capacity, policy, out, err);
        }
    return tu_fail(err, TU_EUSAGE, "policy '%s': unknown (see --list=policies)",
                   tu_text_short(policy->name, strlen(policy->name), text));
}

/* Leading run of resident blocks. */
static uint64_t run_of(const uint32_t *id, uint64_t n, const bool *in)
{
    uint64_t k = 0;
    while (k < n && in[id[k]])
        k++;
    return k;
}

int tui_lru(const struct tu_kv_trace *t, const uint32_t *order, uint64_t capacity,
            struct tu_kv_hits *out, struct tu_err *err)
{
    struct tui_link *link = tu_alloc(t->distinct, sizeof *link, err);
    bool *in = link ? tu_calloc(t->distinct, sizeof *in, err) : NULL;
    struct tui_list l;
    tui_list_init(&l);
    for (size_t i = 0; in && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[order ? order[i] : i];
        const uint32_t *id = t->id + q->first;
        out->blocks += q->blocks;
        out->hits += run_of(id, q->blocks, in);
        for (uint64_t k = q->blocks; k-- > 0;) {
            if (in[id[k]])
                tui_drop(&l, link, id[k]);
            in[id[k]] = true;
            tui_push(&l, link, id[k]);
        }
        for (; l.n > capacity; out->evictions++) {
            uint32_t old = l.head;
            tui_drop(&l, link, old);
            in[old] = false;
        }
    }
    out->resident = l.n;
    tu_free(link);
    tu_free(in);
    return in ? 0 : TU_ENOMEM;
}

static int lru(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
               struct tu_kv_hits *out, struct tu_err *err)
{
    (void)spec;
    return tui_lru(t, NULL, capacity, out, err);
}

static int fifo(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
                struct tu_kv_hits *out, struct tu_err *err)
{
    struct tui_link *link = tu_alloc(t->distinct, sizeof *link, err);
    bool *in = link ? tu_calloc(t->distinct, sizeof *in, err) : NULL;
    struct tui_list l;
    (void)spec;
    tui_list_init(&l);
    for (size_t i = 0; in && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        const uint32_t *id = t->id + q->first;
        out->blocks += q->blocks;
        out->hits += run_of(id, q->blocks, in);
        for (uint64_t k = q->blocks; k-- > 0;)
            if (!in[id[k]]) {
                in[id[k]] = true;
                tui_push(&l, link, id[k]);
            }
        for (; l.n > capacity; out->evictions++) {
            in[l.head] = false;
            tui_drop(&l, link, l.head);
        }
    }
    out->resident = l.n;
    tu_free(link);
    tu_free(in);
    return in ? 0 : TU_ENOMEM;
}

/* The radix tree of sglang: among leaves the one that was used longest ago goes. A node's
 * time is never before its children's, so a list by time, each request's blocks deepest
 * first, always has a leaf at its head: this walks and checks. */
static int leaf(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
                struct tu_kv_hits *out, struct tu_err *err)
{
    struct tui_link *link = tu_alloc(t->distinct, sizeof *link, err);
    uint32_t *children = link ? tu_calloc(t->distinct, sizeof *children, err) : NULL;
    bool *in = children ? tu_calloc(t->distinct, sizeof *in, err) : NULL;
    struct tui_list l;
    (void)spec;
    tui_list_init(&l);
    for (size_t i = 0; in && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        const uint32_t *id = t->id + q->first;
        out->blocks += q->blocks;
        out->hits += run_of(id, q->blocks, in);
        for (uint64_t k = q->blocks; k-- > 0;) {
            uint32_t b = id[k], p = t->parent[b];
            if (in[b])
                tui_drop(&l, link, b);
            else if (p != TUI_NIL)
                children[p]++;
            in[b] = true;
            tui_push(&l, link, b);
        }
        for (; l.n > capacity; out->evictions++) {
            uint32_t b = l.head;
            while (children[b] && link[b].next != TUI_NIL)
                b = link[b].next;
            if (t->parent[b] != TUI_NIL)
                children[t->parent[b]]--;
            tui_drop(&l, link, b);
            in[b] = false;
        }
    }
    out->resident = l.n;
    tu_free(link);
    tu_free(children);
    tu_free(in);
    return in ? 0 : TU_ENOMEM;
}

/* 2Q: a FIFO for what was seen once, LRU for what came again, ghosts between. Source:
 * Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
 * Algorithm", VLDB 1994; the ghosts are of everything that is evicted. */
enum where { OUT, FRESH, MAIN };

struct two_q {
    struct tui_link *link, *ghost_link;
    unsigned char *where;
    bool *ghost;
    struct tui_list fresh, main, ghosts;
    uint64_t capacity, share, ghosts_max;
};

static void two_q_touch(struct two_q *q, uint32_t b)
{
    bool again = q->where[b] != OUT || q->ghost[b];
    if (q->where[b] != OUT)
        tui_drop(q->where[b] == MAIN ? &q->main : &q->fresh, q->link, b);
    if (q->ghost[b]) {
        tui_drop(&q->ghosts, q->ghost_link, b);
        q->ghost[b] = false;
    }
    q->where[b] = again ? MAIN : FRESH;
    tui_push(again ? &q->main : &q->fresh, q->link, b);
}

static void two_q_evict(struct two_q *q)
{
    bool fresh = q->fresh.n > q->share || !q->main.n;
    struct tui_list *l = fresh ? &q->fresh : &q->main;
    uint32_t b = l->head;
    tui_drop(l, q->link, b);
    q->where[b] = OUT;
    q->ghost[b] = true;
    tui_push(&q->ghosts, q->ghost_link, b);
    if (q->ghosts.n > q->ghosts_max) {
        q->ghost[q->ghosts.head] = false;
        tui_drop(&q->ghosts, q->ghost_link, q->ghosts.head);
    }
}

static int two_q(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
                 struct tu_kv_hits *out, struct tu_err *err)
{
    struct two_q q = {.capacity = capacity};
    const char *text = tu_spec_get(spec, "fresh");
    double share = 0.1;
    int rc = text ? tu_parse_double(text, &share, err) : 0;
    if (!rc && !(share > 0 && share <= 1))
        rc = tu_fail(err, TU_EUSAGE, "2q: fresh=%s is not above 0 to 1", text);
    if (rc)
        return rc;
    q.share = (uint64_t)(share * (double)tu_min(capacity, t->ids));
    q.ghosts_max = 4 * tu_min(capacity, t->distinct);
    q.link = tu_alloc(t->distinct, sizeof *q.link, err);
    q.ghost_link = tu_alloc(t->distinct, sizeof *q.link, err);
    q.where = tu_calloc(t->distinct, 1, err);
    q.ghost = tu_calloc(t->distinct, sizeof *q.ghost, err);
    rc = q.link && q.ghost_link && q.where && q.ghost ? 0 : TU_ENOMEM;
    tui_list_init(&q.fresh);
    tui_list_init(&q.main);
    tui_list_init(&q.ghosts);
    for (size_t i = 0; !rc && i < t->n; i++) {
        const struct tu_kv_request *r = &t->request[i];
        const uint32_t *id = t->id + r->first;
        uint64_t k = 0;
        while (k < r->blocks && q.where[id[k]] != OUT)
            k++;
        out->blocks += r->blocks;
        out->hits += k;
        for (k = r->blocks; k-- > 0;)
            two_q_touch(&q, id[k]);
        for (; q.fresh.n + q.main.n > capacity; out->evictions++)
            two_q_evict(&q);
    }
    out->resident = q.fresh.n + q.main.n;
    tu_free(q.link);
    tu_free(q.ghost_link);
    tu_free(q.where);
    tu_free(q.ghost);
    return rc;
}

/* What cannot be known: the block whose next request is farthest goes, deepest first. */
struct entry {
    uint64_t key; /* next request in the upper half, depth in the lower */
    uint32_t id;
};

static void sift_up(struct entry *h, size_t i)
{
    struct entry e = h[i];
    for (; i && h[(i - 1) / 2].key < e.key; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = e;
}

static void sift_down(struct entry *h, size_t n)
{
    struct entry e = h[n]; /* the last goes to the top */
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        k += k + 1 < n && h[k + 1].key > h[k].key;
        if (h[k].key <= e.key)
            break;
        h[i] = h[k];
    }
    h[i] = e;
}

/* The next request that has each occurrence's id. */
static int look_ahead(const struct tu_kv_trace *t, uint32_t **out, struct tu_err *err)
{
    uint32_t *last = tu_alloc(t->distinct, sizeof *last, err);
    *out = last ? tu_alloc(t->ids, sizeof **out, err) : NULL;
    if (*out)
        memset(last, 0xff, t->distinct * sizeof *last);
    for (size_t i = t->n; *out && i-- > 0;) {
        const struct tu_kv_request *q = &t->request[i];
        for (uint64_t k = q->first; k < q->first + q->blocks; k++)
            (*out)[k] = last[t->id[k]];
        for (uint64_t k = q->first; k < q->first + q->blocks; k++)
            last[t->id[k]] = (uint32_t)i;
    }
    tu_free(last);
    return *out ? 0 : TU_ENOMEM;
}

static int opt(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
               struct tu_kv_hits *out, struct tu_err *err)
{
    uint32_t *next = NULL;
    struct entry *heap = NULL;
    uint64_t *key = tu_calloc(t->distinct, sizeof *key, err); /* now; 0: not resident */
    size_t n = 0;
    (void)spec;
    int rc = key ? look_ahead(t, &next, err) : TU_ENOMEM;
    if (!rc && !(heap = tu_alloc(t->ids + 1, sizeof *heap, err)))
        rc = TU_ENOMEM;
    for (size_t i = 0; !rc && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        const uint32_t *id = t->id + q->first;
        uint64_t k = 0;
        while (k < q->blocks && key[id[k]])
            k++;
        out->blocks += q->blocks;
        out->hits += k;
        for (k = 0; k < q->blocks; k++) {
            out->resident += !key[id[k]];
            key[id[k]] = (uint64_t)next[q->first + k] << 32 | (t->depth[id[k]] + 1u);
            heap[n] = (struct entry){key[id[k]], id[k]};
            sift_up(heap, n++);
        }
        while (out->resident > capacity) {
            struct entry top = heap[0];
            sift_down(heap, --n);
            if (key[top.id] != top.key)
                continue; /* it was used since */
            key[top.id] = 0;
            out->resident--;
            out->evictions++;
        }
    }
    tu_free(key);
    tu_free(next);
    tu_free(heap);
    return rc;
}

static int ordered(const struct tu_kv_trace *t, uint64_t capacity, struct tu_kv_hits *out,
                   int (*by)(const struct tu_kv_trace *, uint32_t *, struct tu_err *),
                   struct tu_err *err)
{
    uint32_t *order = tu_alloc(t->n, sizeof *order, err);
    int rc = order ? by(t, order, err) : TU_ENOMEM;
    if (!rc)
        rc = tui_lru(t, order, capacity, out, err);
    tu_free(order);
    return rc;
}

static int prefix(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
                  struct tu_kv_hits *out, struct tu_err *err)
{
    (void)spec;
    return ordered(t, capacity, out, tu_kv_trace_order, err);
}

static int batch(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
                 struct tu_kv_hits *out, struct tu_err *err)
{
    (void)spec;
    return ordered(t, capacity, out, tu_kv_group_order, err);
}

static const char *const two_q_keys[] = {"fresh", NULL};

const struct tu_kv_policy tui_kv_lru = {
    "lru", "least recently used, a request's deepest block first (vLLM)", NULL, lru};
const struct tu_kv_policy tui_kv_leaf = {
    "leaf", "least recently used leaf of the radix tree (sglang); the same hits", NULL, leaf};
const struct tu_kv_policy tui_kv_fifo = {"fifo", "first in, first out", NULL, fifo};
const struct tu_kv_policy tui_kv_2q = {
    "2q", "seen once and seen again apart, with ghosts; fresh= share of the former",
    two_q_keys, two_q};
const struct tu_kv_policy tui_kv_opt = {
    "opt", "farthest next request, deepest first: what no policy can know", NULL, opt};
const struct tu_kv_policy tui_kv_prefix = {
    "prefix", "LRU with the requests sorted along the tree", NULL, prefix};
const struct tu_kv_policy tui_kv_batch = {
    "batch", "LRU with the requests in BatchLLM's groups", NULL, batch};
