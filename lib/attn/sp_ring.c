/* SPDX-License-Identifier: Apache-2.0 */
/* sp_ring.c: forward and backward by a plan of pairs: who multiplies whose queries with
 * whose keys.
 *
 * A step is: get the keys (or queries) that the plan names, compute the pair, bring what
 * belongs to another rank home. Partial results stay f32 and merge in the order of the
 * steps. In the backward the gradients of keys go to their owner at once. Transfers of a
 * step are one send and one receive under way together, so blocking transports cannot
 * lock up. */
#include <math.h>
#include <string.h>
#include "attn/sp.h"

enum { NOBODY = -1 };

/* What rank r does at step t, and who wants r's keys or queries then. */
struct turn {
    bool busy;
    uint32_t q, k;
    int k_to, q_to; /* members that compute with my keys, my queries; NOBODY */
};

static struct turn turn_of(const struct tui_plan_sp *p, uint32_t n, uint32_t me,
                           uint32_t t)
{
    struct turn x = {.k_to = NOBODY, .q_to = NOBODY};
    x.busy = p->pair(n, me, t, &x.q, &x.k);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t q, k;
        if (r == me || !p->pair(n, r, t, &q, &k))
            continue;
        if (k == me)
            x.k_to = (int)r;
        if (q == me)
            x.q_to = (int)r;
    }
    return x;
}

static int move(const struct tui_comm *c, int to, const void *out, uint64_t n_out,
                int from, void *in, uint64_t n_in, struct tu_err *err)
{
    if (to == NOBODY && from == NOBODY)
        return 0;
    struct tu_move m = {.to = to == NOBODY ? TU_NOBODY : tui_member(c, (uint32_t)to),
                        .from =
                            from == NOBODY ? TU_NOBODY : tui_member(c, (uint32_t)from),
                        .out = out,
                        .out_bytes = to == NOBODY ? 0 : n_out,
                        .in = in,
                        .in_bytes = from == NOBODY ? 0 : n_in};
    return tu_rank_move(c->rank, &m, err);
}

/* Keys of the step: mine, or into `in`. `held` is what was used before, for plans that
 * forward. */
static int get_keys(const struct tui_shard *s, const struct tui_comm *c,
                    const struct tui_plan_sp *p, const struct turn *x, uint32_t t,
                    const unsigned char *held, unsigned char *in,
                    const unsigned char **keys, struct tu_err *err)
{
    uint64_t bytes = tui_shard_kv(s);
    bool remote = x->busy && x->k != c->me;
    *keys = s->k; /* v follows k */
    int to = x->k_to, from = remote ? (int)x->k : NOBODY;
    const unsigned char *out = s->k;
    if (p->forwards && t > 0) {
        to = (int)((c->me + 1) % c->n);
        from = (int)((c->me + c->n - 1) % c->n);
        out = held;
    }
    if (remote)
        *keys = in;
    return move(c, to, out, bytes, from, in, bytes, err);
}

static void merge(const struct tui_shard *s, float *o, float *lse)
{
    tu_attn_merge((float *[]){s->o, o}, (float *[]){s->lse, lse}, 2,
                  s->batch * s->hq * s->n, s->all->dv);
}

/* Memory of both passes. */
struct buffers {
    unsigned char *keys[2]; /* what is held, what comes */
    unsigned char *queries; /* of another rank: q, and behind it do, o, lse */
    float *o, *lse;         /* a partial result; its [o, lse] lie together */
    float *dq, *dk, *in;    /* gradients of a pair; what comes home */
    uint64_t q_bytes, back_bytes, o_floats, dq_floats, dk_floats;
};

static int buffers_init(struct buffers *m, const struct tui_shard *s, struct tu_err *err)
{
    const struct tu_attn *a = s->all;
    uint64_t rows = s->batch * s->hq * s->n, keys = s->batch * s->hkv * s->n;
    m->q_bytes = rows * a->d * s->e;
    m->back_bytes = m->q_bytes + rows * a->dv * s->e + rows * (a->dv + 1) * sizeof(float);
    m->o_floats = rows * (a->dv + 1);
    m->dq_floats = rows * a->d;
    m->dk_floats = keys * (a->d + a->dv);
    uint64_t most = tu_max(tu_max(m->o_floats, m->dq_floats), m->dk_floats);
    for (unsigned i = 0; i < 2; i++)
        if (!(m->keys[i] = tui_sp_alloc(s, tui_shard_kv(s) + 64, 1, err)))
            return TU_ENOMEM;
    m->queries = tui_sp_alloc(s, m->back_bytes + 64, 1, err);
    m->o = tui_sp_alloc(s, m->o_floats + 1, sizeof(float), err);
    m->dq = tui_sp_alloc(s, m->dq_floats + 1, sizeof(float), err);
    m->dk = tui_sp_alloc(s, m->dk_floats + 1, sizeof(float), err);
    m->in = tui_sp_alloc(s, most + 1, sizeof(float), err);
    if (!m->queries || !m->o || !m->dq || !m->dk || !m->in)
        return TU_ENOMEM;
    m->lse = m->o + rows * a->dv;
    return 0;
}

int tui_ring_forward(struct tui_shard *s, const struct tui_comm *c,
                     const struct tui_plan_sp *plan, struct tu_err *err)
{
    struct buffers m;
    uint64_t rows = s->batch * s->hq * s->n;
    int code = buffers_init(&m, s, err);
    memset(s->o, 0, rows * s->all->dv * sizeof *s->o);
    for (uint64_t i = 0; i < rows; i++)
        s->lse[i] = -INFINITY;
    const unsigned char *held = s->k, *keys;
    for (uint32_t t = 0; !code && t < plan->steps(c->n); t++) {
        struct turn x = turn_of(plan, c->n, c->me, t);
        bool guest = x.busy && x.q != c->me;
        if ((code = get_keys(s, c, plan, &x, t, held, m.keys[t % 2], &keys, err)) ||
            (code = move(c, x.q_to, s->q, m.q_bytes, guest ? (int)x.q : NOBODY, m.queries,
                         m.q_bytes, err)))
            break;
        held = keys;
        if (x.busy)
            code = tui_sp_forward(s, guest ? m.queries : s->q, s->at[x.q], s->n, keys,
                                  s->at[x.k], s->n, m.o, m.lse, err);
        if (x.busy && !guest)
            merge(s, m.o, m.lse);
        if (!code)
            code = move(c, guest ? (int)x.q : NOBODY, m.o, m.o_floats * 4, x.q_to, m.in,
                        m.o_floats * 4, err);
        if (!code && x.q_to != NOBODY)
            merge(s, m.in, m.in + rows * s->all->dv);
    }
    return code;
}

static void add(float *to, const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] += x[i];
}

/* q, do, o, lse of this rank in one piece, as they travel. */
static struct tui_queries pack(const struct tui_shard *s, const struct buffers *m,
                               unsigned char *at, bool fill)
{
    const struct tu_attn *a = s->all;
    uint64_t rows = s->batch * s->hq * s->n, g = rows * a->dv * s->e,
             o = rows * a->dv * 4;
    unsigned char *dout = at + m->q_bytes, *of = dout + g, *lse = of + o;
    if (fill) {
        memcpy(at, s->q, m->q_bytes);
        memcpy(dout, s->dout, g);
        memcpy(of, s->o, o);
        memcpy(lse, s->lse, rows * 4);
    }
    return (struct tui_queries){
        at,   dout, (const float *)(const void *)of, (const float *)(const void *)lse,
        NULL, s->n};
}

int tui_ring_backward(struct tui_shard *s, const struct tui_comm *c,
                      const struct tui_plan_sp *plan, struct tu_err *err)
{
    struct buffers m;
    int code = buffers_init(&m, s, err);
    unsigned char *mine = code ? NULL : tui_sp_alloc(s, m.back_bytes + 64, 1, err);
    if (!mine)
        return code ? code : TU_ENOMEM;
    struct tui_queries own = pack(s, &m, mine, true),
                       other = pack(s, &m, m.queries, false);
    const unsigned char *held = s->k, *keys;
    uint64_t split = s->batch * s->hkv * s->n * s->all->d;
    for (uint32_t t = 0; !code && t < plan->steps(c->n); t++) {
        struct turn x = turn_of(plan, c->n, c->me, t);
        bool guest = x.busy && x.q != c->me, away = x.busy && x.k != c->me;
        if ((code = get_keys(s, c, plan, &x, t, held, m.keys[t % 2], &keys, err)) ||
            (code = move(c, x.q_to, mine, m.back_bytes, guest ? (int)x.q : NOBODY,
                         m.queries, m.back_bytes, err)))
            break;
        held = keys;
        struct tui_queries *q = guest ? &other : &own;
        q->at = s->at[x.busy ? x.q : c->me];
        if (x.busy)
            code = tui_sp_backward(s, q, keys, s->at[x.k], s->n, m.dq, m.dk, m.dk + split,
                                   err);
        if (x.busy && !guest)
            add(s->dq, m.dq, m.dq_floats);
        if (x.busy && !away)
            add(s->dk, m.dk, m.dk_floats);
        if (!code)
            code = move(c, away ? (int)x.k : NOBODY, m.dk, m.dk_floats * 4, x.k_to, m.in,
                        m.dk_floats * 4, err);
        if (!code && x.k_to != NOBODY)
            add(s->dk, m.in, m.dk_floats);
        if (!code)
            code = move(c, guest ? (int)x.q : NOBODY, m.dq, m.dq_floats * 4, x.q_to, m.in,
                        m.dq_floats * 4, err);
        if (!code && x.q_to != NOBODY)
            add(s->dq, m.in, m.dq_floats);
    }
    return code;
}
