/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c: a plan's rounds as flows that share links.
 *
 * A flow from rank to rank crosses both ports and, for each level that it leaves, the
 * link of its group upwards and that of the other group downwards; such a link carries
 * the group's ports together, divided by the level's oversubscription. Rates are max-min
 * fair and are shared out anew whenever a flow ends. A round ends with its slowest flow,
 * for all ranks: where ranks would run apart, this is an upper bound. Source: D.
 * Bertsekas, R. Gallager, Data Networks, section 6.5.2. */
#include <math.h>
#include "plan.h"

struct flow {
    uint32_t link[10], links; /* both ports, 2 × levels above */
    double left, rate, alpha, tail;
    bool fixed;
};

struct flows {
    const struct tu_topo *t;
    uint32_t ranks, group[4]; /* ranks of a group below level i */
    struct flow *flow;
    uint32_t n;
    size_t links;
    double *capacity, *spare;
    uint32_t *users;
};

/* Four kinds of links for each level: a rank's port out and in, a group's up and down. */
static uint32_t link_of(const struct flows *f, uint32_t kind, uint32_t level, uint32_t i)
{
    return (kind * f->t->levels + level) * f->ranks + i;
}

static int lay_links(struct flows *f, struct tu_err *err)
{
    const struct tu_topo *t = f->t;
    f->links = 4 * (size_t)t->levels * f->ranks;
    f->capacity = tu_calloc(2 * f->links, sizeof *f->capacity, err);
    f->users = tu_calloc(f->links, sizeof *f->users, err);
    f->flow = tu_calloc(f->ranks, sizeof *f->flow, err);
    if (!f->capacity || !f->users || !f->flow)
        return TU_ENOMEM;
    f->spare = f->capacity + f->links;
    for (uint32_t l = 0, size = 1; l < t->levels; size *= t->count[l++]) {
        f->group[l] = size;
        for (uint32_t r = 0; r < f->ranks; r++) {
            double port = 1 / t->beta[l], over = fmax(t->oversub[l], 1);
            f->capacity[link_of(f, 0, l, r)] = f->capacity[link_of(f, 1, l, r)] = port;
            f->capacity[link_of(f, 2, l, r)] = f->capacity[link_of(f, 3, l, r)] =
                port * size / over;
        }
    }
    return 0;
}

static void add_flow(struct flows *f, uint32_t from, uint32_t to,
                     const struct tu_round *o, double bytes, struct tu_sim_result *out)
{
    struct flow *w = &f->flow[f->n++];
    uint32_t l = tui_topo_level(f->t, from, to);
    *w = (struct flow){
        .left = bytes, .alpha = f->t->alpha[l], .tail = o->add ? bytes * f->t->gamma : 0};
    w->link[w->links++] = link_of(f, 0, l, from);
    w->link[w->links++] = link_of(f, 1, l, to);
    for (uint32_t i = 1; i <= l; i++) {
        w->link[w->links++] = link_of(f, 2, i, from / f->group[i]);
        w->link[w->links++] = link_of(f, 3, i, to / f->group[i]);
    }
    out->level_bytes[l] += bytes;
    out->messages++;
}

/* Max-min fair: the link with the least share for each of its flows fixes them; again. */
static void share_out(struct flows *f)
{
    memcpy(f->spare, f->capacity, f->links * sizeof *f->spare);
    memset(f->users, 0, f->links * sizeof *f->users);
    uint32_t open = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        f->flow[i].fixed = f->flow[i].left <= 0;
        open += !f->flow[i].fixed;
        for (uint32_t k = 0; k < f->flow[i].links && !f->flow[i].fixed; k++)
            f->users[f->flow[i].link[k]]++;
    }
    while (open) {
        double least = INFINITY;
        for (size_t i = 0; i < f->links; i++)
            if (f->users[i])
                least = fmin(least, f->spare[i] / f->users[i]);
        for (uint32_t i = 0; i < f->n; i++) {
            struct flow *w = &f->flow[i];
            bool tight = false;
            for (uint32_t k = 0; k < w->links && !w->fixed; k++)
                tight |=
                    f->spare[w->link[k]] <= least * f->users[w->link[k]] * (1 + 1e-12);
            if (!tight)
                continue;
            w->fixed = true;
            w->rate = least;
            open--;
            for (uint32_t k = 0; k < w->links; k++) {
                f->spare[w->link[k]] -= least;
                f->users[w->link[k]]--;
            }
        }
    }
}

/* Seconds until the last flow of the round has arrived and is added. */
static double drain(struct flows *f)
{
    double now = 0, end = 0;
    for (;;) {
        double next = INFINITY;
        share_out(f);
        for (uint32_t i = 0; i < f->n; i++)
            if (f->flow[i].left > 0)
                next = fmin(next, f->flow[i].left / f->flow[i].rate);
        if (isinf(next))
            return end;
        now += next;
        for (uint32_t i = 0; i < f->n; i++) {
            struct flow *w = &f->flow[i];
            if (w->left <= 0)
                continue;
            w->left -= w->rate * next;
            if (w->left > w->rate * next * 1e-9)
                continue;
            w->left = 0;
            end = fmax(end, now + w->alpha + w->tail);
        }
    }
}

int tu_coll_flows(struct tu_sim_result *out, const struct tu_plan *p,
                  const struct tu_topo *t, struct tu_err *err)
{
    struct flows f = {.t = t, .ranks = p->ranks};
    *out = (struct tu_sim_result){.rounds = p->rounds};
    if (p->alg->flags & TU_ALG_SHARED)
        return tu_fail(err, TU_EUSAGE, "'%s' has no messages to simulate", p->alg->name);
    if (tu_topo_ranks(t) != p->ranks || p->ranks > TU_RANKS_MAX)
        return tu_fail(err, TU_EUSAGE,
                       "the topology has %u ranks, the plan %u; at most %u",
                       (unsigned)tu_topo_ranks(t), (unsigned)p->ranks, TU_RANKS_MAX);
    double *sent = tu_calloc(p->ranks, sizeof *sent, err);
    int code = sent ? lay_links(&f, err) : TU_ENOMEM;
    for (uint64_t k = 0; k < p->rounds && !code; k++) {
        f.n = 0;
        for (uint32_t r = 0; r < p->ranks; r++) {
            struct tu_round o;
            p->alg->round(p, r, k, &o);
            if (o.from == TU_NOBODY || o.from == r || !o.recv.n)
                continue;
            add_flow(&f, o.from, r, &o, (double)o.recv.n, out);
            sent[o.from] += (double)o.recv.n;
        }
        out->seconds += drain(&f);
    }
    double beta = t->beta[0];
    for (uint32_t i = 1; i < t->levels; i++)
        beta = fmin(beta, t->beta[i]);
    for (uint32_t r = 0; r < p->ranks && !code; r++)
        if (sent[r] > out->busiest_bytes) {
            out->busiest_bytes = sent[r];
            out->busiest = r;
        }
    out->bound = out->busiest_bytes * beta;
    tu_free(sent);
    tu_free(f.capacity);
    tu_free(f.users);
    tu_free(f.flow);
    return code;
}
