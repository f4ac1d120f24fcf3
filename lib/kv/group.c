/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: requests along their tree of prefixes: order, and the groups of BatchLLM.
 *
 * Source: Zheng et al., "BatchLLM", arXiv 2412.03594: a node v may be the one prefix of a
 * group and saves (requests(v) - 1) · depth(v); the best disjoint nodes are found bottom
 * up. Ids are numbered as they first appear, so a child's number is above its parent's. */
#include <stdlib.h>
#include <string.h>
#include "policies.h"

/* Nodes in the order of a walk: a parent, then its children as they first appeared. */
static int walk(const struct tu_kv_trace *t, uint32_t **rank, struct tu_err *err)
{
    uint32_t n = t->distinct;
    uint32_t *first = tu_alloc((size_t)n + 1, sizeof *first, err);
    uint32_t *next = first ? tu_alloc(n, sizeof *next, err) : NULL;
    *rank = next ? tu_alloc(n, sizeof **rank, err) : NULL;
    if (*rank) {
        memset(first, 0xff, ((size_t)n + 1) * sizeof *first);
        for (uint32_t i = n; i-- > 0;) { /* pushing backwards leaves the first in front */
            uint32_t p = t->parent[i] == TUI_NIL ? n : t->parent[i];
            next[i] = first[p];
            first[p] = i;
        }
        uint32_t count = 0, at = first[n];
        while (at != TUI_NIL) {
            (*rank)[at] = count++;
            if (first[at] != TUI_NIL) {
                at = first[at];
                continue;
            }
            while (at != TUI_NIL && next[at] == TUI_NIL)
                at = t->parent[at];
            at = at == TUI_NIL ? at : next[at];
        }
    }
    tu_free(first);
    tu_free(next);
    return *rank ? 0 : TU_ENOMEM;
}

struct key {
    uint32_t request, group, rank;
    double ratio; /* of the group: larger first */
};

static int by_rank(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->request < y->request ? -1 : 1;
}

static int by_group(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->ratio > y->ratio || x->ratio < y->ratio)
        return x->ratio > y->ratio ? -1 : 1;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return by_rank(a, b);
}

static struct key *keys_of(const struct tu_kv_trace *t, const uint32_t *rank,
                           struct tu_err *err)
{
    struct key *k = tu_calloc(t->n, sizeof *k, err);
    for (size_t i = 0; k && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        k[i].request = (uint32_t)i;
        k[i].rank = q->blocks ? rank[t->id[q->first + q->blocks - 1]] : TUI_NIL;
        k[i].group = TUI_NIL;
    }
    return k;
}

static void take(const struct tu_kv_trace *t, const struct key *k, uint32_t *order)
{
    for (size_t i = 0; i < t->n; i++)
        order[i] = k[i].request;
}

int tu_kv_trace_order(const struct tu_kv_trace *t, uint32_t *order, struct tu_err *err)
{
    uint32_t *rank;
    int rc = walk(t, &rank, err);
    struct key *k = rc ? NULL : keys_of(t, rank, err);
    if (k) {
        qsort(k, t->n, sizeof *k, by_rank);
        take(t, k, order);
    }
    tu_free(k);
    tu_free(rank);
    return rc ? rc : k ? 0 : TU_ENOMEM;
}

struct tree {
    uint32_t *requests; /* [distinct] that hold the node */
    uint64_t *best;     /* what its subtree saves */
    uint64_t *below;    /* sum of its children's best */
};

static int solve(const struct tu_kv_trace *t, struct tree *s, struct tu_err *err)
{
    s->requests = tu_calloc(t->distinct, sizeof *s->requests, err);
    s->best = tu_calloc(t->distinct, sizeof *s->best, err);
    s->below = tu_calloc(t->distinct, sizeof *s->below, err);
    if (!s->requests || !s->best || !s->below)
        return TU_ENOMEM;
    for (size_t i = 0; i < t->ids; i++)
        s->requests[t->id[i]]++;
    for (uint32_t i = t->distinct; i-- > 0;) {
        uint64_t own = (uint64_t)(s->requests[i] - 1) * (t->depth[i] + 1u);
        s->best[i] = tu_max(own, s->below[i]);
        if (t->parent[i] != TUI_NIL)
            s->below[t->parent[i]] += s->best[i];
    }
    return 0;
}

static void release(struct tree *s)
{
    tu_free(s->requests);
    tu_free(s->best);
    tu_free(s->below);
}

/* Is the node itself chosen, given that none above it is? */
static bool chosen(const struct tree *s, uint32_t i)
{
    return s->best[i] > s->below[i];
}

/* The group of a request: the first chosen node on its path, TUI_NIL if none. */
static uint32_t group_of(const struct tu_kv_trace *t, const struct tree *s,
                         const struct tu_kv_request *q)
{
    for (uint64_t k = 0; k < q->blocks; k++)
        if (chosen(s, t->id[q->first + k]))
            return t->id[q->first + k];
    return TUI_NIL;
}

int tu_kv_group(const struct tu_kv_trace *t, struct tu_kv_groups *out, struct tu_err *err)
{
    struct tree s = {0};
    bool *seen = tu_calloc(t->distinct, sizeof *seen, err);
    *out = (struct tu_kv_groups){0};
    int rc = seen ? solve(t, &s, err) : TU_ENOMEM;
    for (uint32_t i = 0; !rc && i < t->distinct; i++) {
        out->multi += s.requests[i] - 1;
        out->single += t->parent[i] == TUI_NIL ? s.best[i] : 0;
    }
    for (size_t i = 0; !rc && i < t->n; i++) {
        uint32_t g = group_of(t, &s, &t->request[i]);
        if (g != TUI_NIL && !seen[g])
            out->groups += seen[g] = true;
    }
    release(&s);
    tu_free(seen);
    return rc;
}

int tu_kv_group_order(const struct tu_kv_trace *t, uint32_t *order, struct tu_err *err)
{
    struct tree s = {0};
    uint32_t *rank = NULL;
    double *in = tu_calloc((size_t)t->distinct + 1, 2 * sizeof *in, err), *outs;
    struct key *k = NULL;
    int rc = in ? walk(t, &rank, err) : TU_ENOMEM;
    if (!rc)
        rc = solve(t, &s, err);
    if (!rc && !(k = keys_of(t, rank, err)))
        rc = TU_ENOMEM;
    outs = in ? in + t->distinct + 1 : NULL;
    for (size_t i = 0; !rc && i < t->n; i++) {
        const struct tu_kv_request *q = &t->request[i];
        uint32_t g = group_of(t, &s, q);
        k[i].group = g == TUI_NIL ? k[i].rank : rank[g];
        size_t at = g == TUI_NIL ? t->distinct : g;
        in[at] += (double)q->input;
        outs[at] += (double)q->output;
    }
    for (size_t i = 0; !rc && i < t->n; i++) {
        uint32_t g = group_of(t, &s, &t->request[i]);
        k[i].ratio = g == TUI_NIL ? -1 : outs[g] / (in[g] > 0 ? in[g] : 1);
    }
    if (!rc) {
        qsort(k, t->n, sizeof *k, by_group);
        take(t, k, order);
    }
    release(&s);
    tu_free(k);
    tu_free(rank);
    tu_free(in);
    return rc;
}
