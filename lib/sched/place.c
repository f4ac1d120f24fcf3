/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: devices of a slow, uneven network onto a grid of data and pipeline
 * parallelism.
 *
 * Price of a partition into groups: the worst group's gradient exchange, plus the
 * shortest path through the groups, where two groups are as far apart as the worst pair
 * of the best matching of their devices. Few devices: every partition. Many: a population
 * of partitions, children by merging the groups of two parents, improved by swapping
 * devices (Yuan et al., 2022). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensorutils/sched/split.h"

#define EXACT_GROUPS 12 /* path over groups by dynamic programming */
#define POPULATION 12

struct town {
    const struct tu_swarm_net *net;
    double *edge;     /* [pp][pp] */
    uint32_t *member; /* [pp][dp] */
    uint32_t *match;  /* [dp] */
    uint8_t *seen;    /* [dp] */
    double *path;     /* [1 << pp][pp] or NULL */
    uint32_t *order;  /* [pp] */
    uint64_t priced;
};

static double link_s(const struct tu_swarm_net *n, uint32_t a, uint32_t b, double bytes)
{
    size_t at = (size_t)a * n->devices + b;
    return 2 * (n->latency[at] + bytes / n->bandwidth[at]);
}

static bool augment(struct town *t, const uint32_t *a, const uint32_t *b, uint32_t i,
                    double limit)
{
    const struct tu_swarm_net *n = t->net;
    for (uint32_t j = 0; j < n->dp; j++) {
        if (t->seen[j] || link_s(n, a[i], b[j], n->pp_bytes) > limit)
            continue;
        t->seen[j] = 1;
        if (t->match[j] == UINT32_MAX || augment(t, a, b, t->match[j], limit)) {
            t->match[j] = i;
            return true;
        }
    }
    return false;
}

static bool matches(struct town *t, const uint32_t *a, const uint32_t *b, double limit)
{
    memset(t->match, 0xff, t->net->dp * sizeof *t->match);
    for (uint32_t i = 0; i < t->net->dp; i++) {
        memset(t->seen, 0, t->net->dp);
        if (!augment(t, a, b, i, limit))
            return false;
    }
    return true;
}

/* The least limit under which the devices of two groups can be paired. */
static double bottleneck(struct town *t, const uint32_t *a, const uint32_t *b)
{
    size_t dp = t->net->dp;
    double best = INFINITY;
    for (size_t i = 0; i < dp; i++)
        for (size_t j = 0; j < dp; j++) {
            double v = link_s(t->net, a[i], b[j], t->net->pp_bytes);
            if (v < best && matches(t, a, b, v))
                best = v;
        }
    return best;
}

static double group_s(const struct town *t, const uint32_t *a)
{
    const struct tu_swarm_net *n = t->net;
    double worst = 0;
    for (size_t i = 0; i < n->dp; i++) {
        double sum = 0;
        for (size_t j = 0; j < n->dp; j++)
            if (i != j)
                sum += link_s(n, a[i], a[j], n->dp_bytes / (double)n->dp);
        worst = fmax(worst, sum);
    }
    return worst;
}

/* Shortest open path through all groups, exactly. */
static double shortest(struct town *t)
{
    size_t pp = t->net->pp, full = ((size_t)1 << pp) - 1;
    for (size_t s = 0; s <= full; s++)
        for (size_t k = 0; k < pp; k++)
            t->path[s * pp + k] = s == (size_t)1 << k ? 0 : INFINITY;
    for (size_t s = 1; s <= full; s++)
        for (size_t k = 0; k < pp; k++)
            for (size_t j = 0; isfinite(t->path[s * pp + k]) && j < pp; j++) {
                size_t to = s | (size_t)1 << j;
                double v = t->path[s * pp + k] + t->edge[k * pp + j];
                if (!(s >> j & 1) && v < t->path[to * pp + j])
                    t->path[to * pp + j] = v;
            }
    size_t last = 0, s = full;
    for (size_t k = 1; k < pp; k++)
        if (t->path[full * pp + k] < t->path[full * pp + last])
            last = k;
    double best = t->path[full * pp + last];
    for (size_t at = pp; at-- > 0;) {
        t->order[at] = (uint32_t)last;
        size_t before = s & ~((size_t)1 << last);
        for (size_t k = 0; at && k < pp; k++)
            if (before >> k & 1 && t->path[before * pp + k] + t->edge[k * pp + last] <=
                                       t->path[s * pp + last]) {
                last = k;
                break;
            }
        s = before;
    }
    return best;
}

static double length(const struct town *t)
{
    double sum = 0;
    for (size_t k = 1; k < t->net->pp; k++)
        sum += t->edge[t->order[k - 1] * t->net->pp + t->order[k]];
    return sum;
}

/* Many groups: nearest neighbour, then reversing stretches while that helps. */
static double short_path(struct town *t)
{
    size_t pp = t->net->pp;
    for (size_t k = 0; k < pp; k++)
        t->order[k] = (uint32_t)k;
    for (size_t k = 1; k < pp; k++) {
        size_t best = k;
        for (size_t j = k; j < pp; j++)
            if (t->edge[t->order[k - 1] * pp + t->order[j]] <
                t->edge[t->order[k - 1] * pp + t->order[best]])
                best = j;
        uint32_t v = t->order[k];
        t->order[k] = t->order[best];
        t->order[best] = v;
    }
    double now = length(t);
    for (bool better = true; better;) {
        better = false;
        for (size_t i = 0; i + 1 < pp; i++)
            for (size_t j = i + 1; j < pp; j++) {
                for (size_t a = i, b = j; a < b; a++, b--) {
                    uint32_t v = t->order[a];
                    t->order[a] = t->order[b];
                    t->order[b] = v;
                }
                double then = length(t);
                if (then < now - 1e-12) {
                    now = then;
                    better = true;
                    continue;
                }
                for (size_t a = i, b = j; a < b; a++, b--) {
                    uint32_t v = t->order[a];
                    t->order[a] = t->order[b];
                    t->order[b] = v;
                }
            }
    }
    return now;
}

static void price(struct town *t, const uint32_t *group, struct tu_placed *out)
{
    const struct tu_swarm_net *n = t->net;
    size_t pp = n->pp;
    t->priced++;
    for (size_t g = 0; g < pp; g++) {
        size_t k = 0;
        for (uint32_t d = 0; d < n->devices; d++)
            if (group[d] == g && k < n->dp)
                t->member[g * n->dp + k++] = d;
    }
    out->dp_s = out->pp_s = 0;
    for (size_t g = 0; g < pp; g++)
        out->dp_s = fmax(out->dp_s, group_s(t, t->member + g * n->dp));
    for (size_t g = 0; g < pp; g++)
        for (size_t h = 0; h < g; h++)
            t->edge[g * pp + h] = t->edge[h * pp + g] =
                bottleneck(t, t->member + g * n->dp, t->member + h * n->dp);
    out->pp_s = pp == 1 ? 0 : t->path ? shortest(t) : short_path(t);
    if (pp == 1)
        t->order[0] = 0;
    out->total_s = out->dp_s + out->pp_s;
}

struct best {
    uint32_t *group;
    struct tu_placed cost;
};

static void keep(struct town *t, const uint32_t *group, struct best *b)
{
    struct tu_placed c = {0};
    price(t, group, &c);
    if (c.total_s < b->cost.total_s - 1e-12) {
        b->cost = c;
        memcpy(b->group, group, t->net->devices * sizeof *group);
    }
}

/* Every partition: the first free device opens the next group. */
static void all(struct town *t, uint32_t *group, size_t *size, uint32_t device,
                uint32_t open, struct best *b)
{
    const struct tu_swarm_net *n = t->net;
    if (device == n->devices) {
        keep(t, group, b);
        return;
    }
    for (uint32_t g = 0; g <= open && g < n->pp; g++) {
        if (size[g] == n->dp)
            continue;
        group[device] = g;
        size[g]++;
        all(t, group, size, device + 1, open + (g == open), b);
        size[g]--;
    }
}

struct dice {
    struct tu_rng rng;
    uint64_t i;
};

static uint32_t below(struct dice *d, size_t n)
{
    return (uint32_t)((uint64_t)tu_rng_u32(&d->rng, d->i++) * n >> 32);
}

static void shuffle(struct dice *d, const struct tu_swarm_net *n, uint32_t *group)
{
    for (uint32_t k = 0; k < n->devices; k++)
        group[k] = (uint32_t)(k / n->dp);
    for (uint32_t k = (uint32_t)n->devices; k > 1; k--) {
        uint32_t j = below(d, k), v = group[k - 1];
        group[k - 1] = group[j];
        group[j] = v;
    }
}

/* Swap two devices while that makes the whole cheaper. */
static void climb(struct town *t, uint32_t *group, double *cost, struct dice *d,
                  uint64_t effort)
{
    const struct tu_swarm_net *n = t->net;
    struct tu_placed c;
    for (size_t miss = 0; miss < 4 * n->devices && t->priced < effort; miss++) {
        uint32_t a = below(d, n->devices), b = below(d, n->devices);
        if (group[a] == group[b])
            continue;
        uint32_t v = group[a];
        group[a] = group[b];
        group[b] = v;
        price(t, group, &c);
        if (c.total_s < *cost - 1e-12) {
            *cost = c.total_s;
            miss = 0;
            continue;
        }
        v = group[a];
        group[a] = group[b];
        group[b] = v;
    }
}

/* Whole groups of one parent where the dice say so, the rest filled in the other's order.
 */
static void merge(const struct tu_swarm_net *n, const uint32_t *a, const uint32_t *b,
                  uint32_t *child, size_t *size, struct dice *d)
{
    memset(size, 0, n->pp * sizeof *size);
    for (uint32_t k = 0; k < n->devices; k++)
        child[k] = UINT32_MAX;
    for (uint32_t g = 0; g < n->pp; g++) {
        bool mine = below(d, 2);
        for (uint32_t k = 0; mine && k < n->devices; k++)
            if (a[k] == g) {
                child[k] = g;
                size[g]++;
            }
    }
    for (uint32_t k = 0; k < n->devices; k++)
        if (child[k] == UINT32_MAX && size[b[k]] < n->dp) {
            child[k] = b[k];
            size[b[k]]++;
        }
    for (uint32_t k = 0, g = 0; k < n->devices; k++) {
        if (child[k] != UINT32_MAX)
            continue;
        while (size[g] == n->dp)
            g++;
        child[k] = g;
        size[g]++;
    }
}

static int evolve(struct town *t, struct best *b, size_t *size, uint64_t seed,
                  uint64_t effort, struct tu_err *err)
{
    const struct tu_swarm_net *n = t->net;
    struct dice d = {{seed, tu_rng_stream("placement")}, 0};
    uint32_t *pool = tu_alloc((POPULATION + 1) * n->devices, sizeof *pool, err);
    double cost[POPULATION];
    struct tu_placed c;
    if (!pool)
        return TU_ENOMEM;
    uint32_t *child = pool + POPULATION * n->devices;
    for (size_t k = 0; k < POPULATION; k++) {
        uint32_t *one = pool + k * n->devices;
        shuffle(&d, n, one);
        if (k == 0)
            for (uint32_t i = 0; i < n->devices; i++)
                one[i] = (uint32_t)(i / n->dp);
        price(t, one, &c);
        cost[k] = c.total_s;
        climb(t, one, &cost[k], &d, effort / 4 * (k + 1) / POPULATION);
        keep(t, one, b);
    }
    while (t->priced < effort) {
        size_t x = below(&d, POPULATION), y = below(&d, POPULATION), worst = 0;
        merge(n, pool + x * n->devices, pool + y * n->devices, child, size, &d);
        price(t, child, &c);
        double mine = c.total_s;
        climb(t, child, &mine, &d, effort);
        keep(t, child, b);
        for (size_t k = 1; k < POPULATION; k++)
            worst = cost[k] > cost[worst] ? k : worst;
        if (mine < cost[worst]) {
            memcpy(pool + worst * n->devices, child, n->devices * sizeof *child);
            cost[worst] = mine;
        }
    }
    tu_free(pool);
    return 0;
}

/* Number of partitions of n devices into groups of dp, at most `limit`. */
static uint64_t partitions(const struct tu_swarm_net *n, uint64_t limit)
{
    double ways = 1;
    for (size_t left = n->devices; left > n->dp; left -= n->dp)
        for (size_t k = 1; k < n->dp; k++)
            ways *= (double)(left - k) / (double)k;
    return ways > (double)limit ? limit : (uint64_t)(ways + .5);
}

int tu_place_find(const struct tu_swarm_net *net, uint32_t *group, struct tu_placed *out,
                  bool given, uint64_t seed, uint64_t effort, struct tu_err *err)
{
    struct town t = {.net = net};
    size_t pp = net->pp, dp = net->dp;
    if (!dp || !pp || net->devices != dp * pp || net->devices > 4096)
        return tu_fail(err, TU_EUSAGE, "place: %zu devices are not %zu groups of %zu",
                       net->devices, pp, dp);
    t.edge = tu_calloc(pp * pp, sizeof *t.edge, err);
    t.member = tu_calloc(net->devices, sizeof *t.member, err);
    t.match = tu_alloc(dp, sizeof *t.match, err);
    t.seen = tu_alloc(dp, 1, err);
    t.order = tu_calloc(pp, sizeof *t.order, err);
    t.path = pp <= EXACT_GROUPS ? tu_alloc(pp << pp, sizeof *t.path, err) : NULL;
    size_t *size = tu_calloc(pp, sizeof *size, err);
    struct best b = {tu_alloc(net->devices, sizeof *b.group, err), {.total_s = INFINITY}};
    int rc = t.edge && t.member && t.match && t.seen && t.order && size && b.group &&
                     (t.path || pp > EXACT_GROUPS)
                 ? 0
                 : TU_ENOMEM;
    bool exact = !given && partitions(net, effort) < effort;
    if (!rc && given)
        keep(&t, group, &b);
    else if (!rc && exact)
        all(&t, group, size, 0, 0, &b);
    else if (!rc)
        rc = evolve(&t, &b, size, seed, effort, err);
    if (!rc) {
        uint64_t tried = t.priced;
        price(&t, b.group, out); /* for the order of the groups */
        out->tried = tried;
        out->all = exact;
        for (uint32_t d = 0; d < net->devices; d++)
            for (uint32_t k = 0; k < pp; k++)
                if (t.order[k] == b.group[d])
                    group[d] = k;
    }
    tu_free(t.edge);
    tu_free(t.member);
    tu_free(t.match);
    tu_free(t.seen);
    tu_free(t.order);
    tu_free(t.path);
    tu_free(size);
    tu_free(b.group);
    return rc;
}
