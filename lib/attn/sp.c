/* SPDX-License-Identifier: Apache-2.0 */
/* sp.c: the schemes of sequence parallelism, and a rank's way from its tokens to its
 * results.
 *
 * Every scheme is an exchange (heads or sequences for tokens, over u ranks) and a ring
 * (over the other P/u) with a plan, or a gathering of keys. Sources: Li et al. (RSA),
 * 2021; Liu et al. (ring), 2023; Brandon et al. (stripe), 2023;
 * zhuzilin/ring-flash-attention (zigzag); Dubey et al. (Llama 3), 2024; Li et al.
 * (LightSeq), 2023; Jacobs et al. (Ulysses), 2023; Fang and Zhao (USP), 2024; Zhao et al.
 * (DSP), 2024. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "attn/sp.h"
#include "attn/sp_scheme.h"

/* Plans --------------------------------------------------------------------------- */

static uint32_t all_steps(uint32_t n)
{
    return n;
}

static bool ring_pair(uint32_t n, uint32_t r, uint32_t t, uint32_t *q, uint32_t *k)
{
    *q = r;
    *k = (r + n - t) % n;
    return true;
}

static uint32_t half_steps(uint32_t n)
{
    return n / 2 + 1;
}

/* Ranks whose own work is done help those with more keys behind them. */
static bool lightseq_pair(uint32_t n, uint32_t r, uint32_t t, uint32_t *q, uint32_t *k)
{
    *q = r;
    *k = r - t;
    if (r >= t)
        return true;
    *q = (r + n - t) % n;
    *k = r;
    return t < n / 2;
}

static const struct tui_plan_sp ring_plan = {all_steps, ring_pair, true};
static const struct tui_plan_sp lightseq_plan = {half_steps, lightseq_pair, false};

/* Where tokens lie ---------------------------------------------------------------- */

enum { CONTIGUOUS, ZIGZAG, STRIPE };

/* Global token i of member m's block of n. */
static int64_t token(int way, uint64_t members, uint64_t m, uint64_t n, uint64_t i)
{
    if (way == STRIPE)
        return (int64_t)(i * members + m);
    if (way == ZIGZAG && i >= n / 2)
        return (int64_t)((2 * members - 1 - m) * (n / 2) + i - n / 2);
    return (int64_t)(way == ZIGZAG ? m * (n / 2) + i : m * n + i);
}

struct scheme {
    struct tu_sp face;
    int way;
    const struct tui_plan_sp *plan; /* NULL: gather */
    bool heads, sequences;          /* what the exchange trades */
};

static const struct scheme rsa = {
    {"rsa", "all keys, then all values, round a ring", "Li et al., 2021"},
    CONTIGUOUS,
    NULL,
    false,
    false};
static const struct scheme ring = {
    {"ring", "keys and values go round, results merge", "Liu et al., 2023"},
    CONTIGUOUS,
    &ring_plan,
    false,
    false};
static const struct scheme zigzag = {{"zigzag",
                                      "ring; half-chunks from both ends: balanced",
                                      "zhuzilin/ring-flash-attention"},
                                     ZIGZAG,
                                     &ring_plan,
                                     false,
                                     false};
static const struct scheme stripe = {
    {"stripe", "ring; every P-th token: balanced", "Brandon et al., 2023"},
    STRIPE,
    &ring_plan,
    false,
    false};
static const struct scheme allgather = {
    {"allgather", "keys and values of all, one local call", "Dubey et al., 2024"},
    CONTIGUOUS,
    NULL,
    false,
    false};
static const struct scheme lightseq = {
    {"lightseq", "causal; ranks that are done help others", "Li et al., 2023"},
    CONTIGUOUS,
    &lightseq_plan,
    false,
    false};
static const struct scheme ulysses = {
    {"ulysses", "heads for tokens, all to all", "Jacobs et al., 2023"},
    CONTIGUOUS,
    &ring_plan,
    true,
    false};
static const struct scheme usp = {
    {"usp", "u=U,r=R: ulysses over U ranks, zigzag ring over R", "Fang and Zhao, 2024"},
    ZIGZAG,
    &ring_plan,
    true,
    false};
static const struct scheme dsp = {
    {"dsp", "sequences for tokens, all to all", "Zhao et al., 2024"},
    CONTIGUOUS,
    &ring_plan,
    false,
    true};

static const struct scheme *const schemes[] = {
    &rsa, &ring, &zigzag, &stripe, &allgather, &lightseq, &ulysses, &usp, &dsp};
enum { SCHEMES = sizeof schemes / sizeof schemes[0] };

const struct tu_sp *const tu_sps[] = {
    &rsa.face,       &ring.face,     &zigzag.face,  &stripe.face,
    &allgather.face, &lightseq.face, &ulysses.face, &usp.face,
    &dsp.face,       &tui_sp_lasp,   &tui_sp_lasp2, NULL,
};

/* One run, the same in every rank ------------------------------------------------- */

struct job {
    const struct tu_mixer_args *m;
    struct tu_attn all;
    const struct scheme *scheme;
    uint32_t ranks, u, r;
    uint64_t own; /* tokens of a rank before the exchange */
    uint64_t *sent;
};

/* Heads and sequences that member j of an exchange computes with. */
static void share(const struct job *x, struct tui_shard *s, uint32_t j)
{
    const struct tu_attn *a = &x->all;
    *s = (struct tui_shard){
        .all = a, .batch = a->batch, .hq = a->hq, .hkv = a->hkv, .e = a->q.elem};
    if (x->scheme->heads) {
        s->hq = a->hq / x->u;
        s->h0 = j * s->hq;
        s->hkv0 = s->h0 / (a->hq / a->hkv);
        s->hkv = tu_max(1, a->hkv / x->u);
    } else if (x->scheme->sequences) {
        s->batch = a->batch / x->u;
        s->b0 = j * s->batch;
    }
}

/* Rows of the sequences of s, of some heads and tokens, copied out of an operand. */
static void slice(const struct tu_rows *r, const struct tui_shard *s, uint64_t h0,
                  uint64_t heads, const int64_t *at, uint64_t n, unsigned char *to)
{
    size_t bytes = r->dim * r->elem;
    for (uint64_t b = 0; b < s->batch; b++)
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t i = 0; i < n; i++, to += bytes)
                memcpy(to,
                       r->data + (int64_t)r->elem *
                                     ((int64_t)(s->b0 + b) * r->batch + at[i] * r->token +
                                      (int64_t)(h0 + h) * r->head),
                       bytes);
}

/* Trade: what member j needs of my tokens goes to j, theirs come to me, [units][u ·
 * n][dim]. */
static int trade(const struct job *x, const struct tui_comm *c, const struct tu_rows *r,
                 bool kv, const int64_t *own_at, unsigned char *to, struct tu_err *err)
{
    struct tui_shard mine, theirs;
    share(x, &mine, c->me);
    size_t dim = r->dim * r->elem;
    uint64_t units = mine.batch * (kv ? mine.hkv : mine.hq), bytes = units * x->own * dim;
    unsigned char *out = tu_alloc(bytes + 1, 1, err), *in = tu_alloc(bytes + 1, 1, err);
    int code = out && in ? 0 : TU_ENOMEM;
    for (uint32_t t = 0; !code && t < c->n; t++) {
        uint32_t up = (c->me + t) % c->n, down = (c->me + c->n - t) % c->n;
        share(x, &theirs, up);
        slice(r, &theirs, kv ? theirs.hkv0 : theirs.h0, kv ? theirs.hkv : theirs.hq,
              own_at, x->own, t ? out : in);
        struct tu_move m = {.to = tui_member(c, up),
                            .from = tui_member(c, down),
                            .out = out,
                            .out_bytes = bytes,
                            .in = in,
                            .in_bytes = bytes};
        if (t)
            code = tu_rank_move(c->rank, &m, err);
        for (uint64_t y = 0; !code && y < units; y++)
            memcpy(to + (y * c->n + down) * x->own * dim, in + y * x->own * dim,
                   x->own * dim);
    }
    tu_free(out);
    tu_free(in);
    return code;
}

/* The way back: rows of my heads for everybody's tokens go to the tokens' owners, who put
 * them into the operand. Heads of keys that several ranks had are summed. */
static int restore(const struct job *x, const struct tui_comm *c, const struct tu_rows *r,
                   bool kv, const int64_t *own_at, const float *from, struct tu_err *err)
{
    struct tui_shard mine, theirs;
    share(x, &mine, c->me);
    uint64_t heads = kv ? x->all.hkv : x->all.hq, dim = r->dim;
    uint64_t units = mine.batch * (kv ? mine.hkv : mine.hq), block = units * x->own * dim;
    float *out = tu_alloc(block + 1, 4, err), *in = tu_alloc(block + 1, 4, err);
    float *sum = tu_calloc(x->all.batch * heads * x->own * dim + 1, 4, err);
    int code = out && in && sum ? 0 : TU_ENOMEM;
    for (uint32_t t = 0; !code && t < c->n; t++) {
        uint32_t up = (c->me + t) % c->n, down = (c->me + c->n - t) % c->n;
        for (uint64_t y = 0; y < units; y++)
            memcpy((t ? out : in) + y * x->own * dim,
                   from + (y * c->n + up) * x->own * dim, x->own * dim * 4);
        struct tu_move m = {.to = tui_member(c, up),
                            .from = tui_member(c, down),
                            .out = out,
                            .out_bytes = block * 4,
                            .in = in,
                            .in_bytes = block * 4};
        if (t)
            code = tu_rank_move(c->rank, &m, err);
        share(x, &theirs, down);
        uint64_t nh = kv ? theirs.hkv : theirs.hq, h0 = kv ? theirs.hkv0 : theirs.h0;
        for (uint64_t y = 0; !code && y < units; y++) {
            uint64_t b = theirs.b0 + y / nh, h = h0 + y % nh;
            float *to = sum + (b * heads + h) * x->own * dim;
            for (uint64_t i = 0; i < x->own * dim; i++)
                to[i] += in[y * x->own * dim + i];
        }
    }
    for (uint64_t y = 0; !code && r->data && y < x->all.batch * heads; y++)
        for (uint64_t i = 0; !code && i < x->own; i++)
            code = tu_cast(r->dtype,
                           r->data + (int64_t)r->elem * ((int64_t)(y / heads) * r->batch +
                                                         own_at[i] * r->token +
                                                         (int64_t)(y % heads) * r->head),
                           TU_F32, sum + (y * x->own + i) * dim, dim, err);
    tu_free(sum);
    tu_free(out);
    tu_free(in);
    return code;
}

/* Tokens: ring member g holds token(way, r, g, u·own, …); exchange member j the j-th part
 * of it. */
static int places(const struct job *x, struct tui_shard *s, struct tu_err *err)
{
    s->n = x->own * x->u;
    s->at = tui_sp_alloc(s, x->r, sizeof *s->at, err);
    for (uint32_t g = 0; s->at && g < x->r; g++) {
        if (!(s->at[g] = tui_sp_alloc(s, s->n, sizeof **s->at, err)))
            return TU_ENOMEM;
        for (uint64_t i = 0; i < s->n; i++)
            s->at[g][i] = token(x->scheme->way, x->r, g, s->n, i);
    }
    return s->at ? 0 : TU_ENOMEM;
}

static int memory(struct tui_shard *s, struct tu_err *err)
{
    const struct tu_attn *a = s->all;
    uint64_t q = s->batch * s->hq * s->n, k = s->batch * s->hkv * s->n;
    s->q = tui_sp_alloc(s, q * a->d * s->e + 1, 1, err);
    s->k = tui_sp_alloc(s, k * (a->d + a->dv) * s->e + 1, 1, err);
    s->dout = tui_sp_alloc(s, q * a->dv * s->e + 1, 1, err);
    s->o = tui_sp_alloc(s, q * a->dv + 1, 4, err);
    s->lse = tui_sp_alloc(s, q + 1, 4, err);
    s->dq = tui_sp_alloc(s, q * a->d + 1, 4, err);
    s->dk = tui_sp_alloc(s, k * (a->d + a->dv) + 1, 4, err);
    if (!s->q || !s->k || !s->dout || !s->o || !s->lse || !s->dq || !s->dk)
        return TU_ENOMEM;
    s->v = s->k + k * a->d * s->e;
    s->dv = s->dk + k * a->d;
    return 0;
}

/* The sink joins once, when all keys have been seen. */
static void join_sinks(const struct tui_shard *s)
{
    const struct tu_attn *a = s->all;
    for (uint64_t y = 0; a->sinks && y < s->batch * s->hq; y++)
        tu_attn_sink(s->o + y * s->n * a->dv, s->lse + y * s->n, s->n, a->dv,
                     a->sinks[s->h0 + y % s->hq]);
}

static int results(const struct job *x, struct tui_shard *s, const struct tui_comm *u,
                   const int64_t *own_at, struct tu_err *err)
{
    const struct tu_attn *a = s->all;
    struct tu_rows lse = {.data = a->lse,
                          .dtype = TU_F32,
                          .elem = 4,
                          .dim = 1,
                          .batch = (int64_t)(a->hq * a->lse_head),
                          .token = 1,
                          .head = (int64_t)a->lse_head};
    int code = 0;
    if (x->m->pass & TU_PASS_FWD)
        code = restore(x, u, &a->o, false, own_at, s->o, err);
    if (!code && (x->m->pass & TU_PASS_FWD))
        code = restore(x, u, &lse, false, own_at, s->lse, err);
    if (!code && (x->m->pass & TU_PASS_BWD))
        code = restore(x, u, &a->dq, false, own_at, s->dq, err);
    if (!code && (x->m->pass & TU_PASS_BWD))
        code = restore(x, u, &a->dk, true, own_at, s->dk, err);
    if (!code && (x->m->pass & TU_PASS_BWD))
        code = restore(x, u, &a->dv_, true, own_at, s->dv, err);
    return code;
}

static int compute(const struct job *x, struct tui_shard *s, const struct tui_comm *c,
                   struct tu_err *err)
{
    bool fixed = x->m->opt->deterministic, gather = !x->scheme->plan || fixed;
    int code = gather ? tui_gather_forward(s, c, err)
                      : tui_ring_forward(s, c, x->scheme->plan, err);
    if (code)
        return code;
    join_sinks(s);
    if (!(x->m->pass & TU_PASS_BWD))
        return 0;
    return gather ? tui_gather_backward(s, c, fixed, err)
                  : tui_ring_backward(s, c, x->scheme->plan, err);
}

static int rank_main(struct tu_rank *rank, void *ctx, struct tu_err *err)
{
    const struct job *x = ctx;
    uint32_t id = tu_rank_id(rank);
    struct tui_comm u = {rank, x->u, id % x->u, id / x->u * x->u, 1};
    struct tui_comm r = {rank, x->r, id / x->u, id % x->u, x->u};
    struct tui_shard s;
    share(x, &s, u.me);
    s.arena = tu_arena_new(err);
    int code = s.arena ? tu_rank_begin(rank, err) : TU_ENOMEM;
    if (code || (code = places(x, &s, err)) || (code = memory(&s, err)))
        goto out;
    const int64_t *own_at = s.at[r.me] + u.me * x->own;
    if ((code = trade(x, &u, &x->all.q, false, own_at, s.q, err)) ||
        (code = trade(x, &u, &x->all.k, true, own_at, s.k, err)) ||
        (code = trade(x, &u, &x->all.v, true, own_at, s.v, err)) ||
        ((x->m->pass & TU_PASS_BWD) &&
         (code = trade(x, &u, &x->all.dout, false, own_at, s.dout, err))))
        goto out;
    code = compute(x, &s, &r, err);
    code = code ? code : results(x, &s, &u, own_at, err);
    uint64_t sent = tu_rank_traffic(rank).bytes;
    if (!code)
        code = tu_rank_post(rank, &sent, sizeof sent, err);
out:
    tu_arena_free(s.arena);
    return code;
}

static void take_sent(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct job *x = ctx;
    if (x->sent && n == sizeof *x->sent)
        memcpy(x->sent + rank, p, n);
}

static int refuse(const struct job *x, struct tu_err *err)
{
    const struct tu_attn *a = &x->all;
    const struct scheme *s = x->scheme;
    uint64_t parts = (uint64_t)x->ranks * (s->way == ZIGZAG ? 2 : 1);
    if (a->page || x->m->in[0].rank != 4 || a->sq_max != a->sk_max)
        return tu_fail(err, TU_EUSAGE,
                       "--sp: dense self-attention is needed: as many keys as queries");
    if (a->sq_max % parts)
        return tu_fail(err, TU_EUSAGE,
                       "--sp %s: %" PRIu64 " tokens do not divide by %" PRIu64,
                       s->face.name, a->sq_max, parts);
    if (s->heads && (a->hq % x->u || (a->hkv % x->u && x->u % a->hkv)))
        return tu_fail(err, TU_EUSAGE,
                       "--sp %s: %" PRIu64 " heads over %" PRIu64
                       " key heads do not divide by %u ranks",
                       s->face.name, a->hq, a->hkv, x->u);
    if (s->heads && x->u > a->hkv && a->opt.deterministic && (x->m->pass & TU_PASS_BWD))
        return tu_fail(err, TU_EUSAGE,
                       "--sp %s: %u ranks share %" PRIu64 " key heads: their gradients "
                       "are summed in an order of their own, not with --deterministic",
                       s->face.name, x->u, a->hkv);
    if (s->sequences && a->batch % x->u)
        return tu_fail(err, TU_EUSAGE,
                       "--sp dsp: %" PRIu64 " sequences do not divide by %u ranks",
                       a->batch, x->u);
    if (s == &lightseq && (x->ranks % 2 && x->ranks > 1))
        return tu_fail(err, TU_EUSAGE, "--sp lightseq: the number of ranks must be even");
    if (s == &lightseq && !a->opt.causal)
        return tu_fail(err, TU_EUSAGE, "--sp lightseq is for --causal");
    if (a->q_scale || a->k_scale || a->v_scale || a->dbias || a->dslope || a->dlse ||
        a->q_at)
        return tu_fail(err, TU_EUSAGE,
                       "--sp: scales, offsets, dlse and gradients of biases do not "
                       "go with it");
    for (uint64_t b = 0; b < a->batch; b++)
        if (a->seq[b].sk != a->sk_max || a->seq[b].k_token)
            return tu_fail(err, TU_EUSAGE, "--sp: key lengths do not go with it");
    return 0;
}

/* u ranks exchange, r go round. */
static int divide(struct job *x, const struct tu_spec *spec, struct tu_err *err)
{
    static const char *const keys[] = {"u", "r", NULL};
    uint64_t u = 1, r = x->ranks;
    int code = tu_spec_check(spec, keys, err);
    if (code)
        return code;
    if (x->scheme == &usp) {
        if ((code = tu_spec_u64(spec, "u", 1, &u, err)) ||
            (code = tu_spec_u64(spec, "r", u ? x->ranks / u : 0, &r, err)))
            return code;
        if (u == 0 || u * r != x->ranks)
            return tu_fail(err, TU_EUSAGE,
                           "--sp usp: u times r must be the number of ranks");
    } else if (x->scheme->heads || x->scheme->sequences) {
        u = x->ranks;
        r = 1;
    }
    x->u = (uint32_t)u;
    x->r = (uint32_t)r;
    return 0;
}

/* Bytes that rank 0 sends forward: u-1 parts of its q, k, v and of the results (f32) in
 * the exchange, then r-1 blocks of keys in the ring. LightSeq: keys to P/2 ranks, P/2-1
 * results of guests. */
static double formula(const struct job *x)
{
    const struct tu_attn *a = &x->all;
    struct tui_shard s;
    share(x, &s, 0);
    s.n = x->own * x->u;
    double heads = (double)(s.batch * s.hq), keys = (double)(s.batch * s.hkv),
           own = (double)x->own;
    double d = (double)a->d, dv = (double)a->dv, e = (double)a->q.elem;
    double part = own * (heads * d * e + keys * (d + dv) * e + heads * (dv + 1) * 4);
    double result = (double)s.n * heads * (dv + 1) * 4, block = (double)tui_shard_kv(&s);
    if (x->scheme == &lightseq && !a->opt.deterministic)
        return x->r < 2 ? 0 : x->r / 2 * block + (x->r / 2 - 1) * result;
    return (x->u - 1) * part + (x->r - 1) * block;
}

int tu_sp_run(const struct tu_mixer_args *m, struct tu_sp_args *sp, struct tu_err *err)
{
    struct job x = {.m = m, .ranks = sp->ranks, .sent = sp->sent};
    const struct tu_group g = {.transport = sp->transport,
                               .size = sp->ranks,
                               .ctx = &x,
                               .fn = rank_main,
                               .post = take_sent,
                               .job = m->job};
    if (!strcmp(sp->scheme->name, "lasp") || !strcmp(sp->scheme->name, "lasp2"))
        return tui_sp_linear(m, sp, err);
    for (size_t i = 0; i < SCHEMES; i++)
        if (!strcmp(schemes[i]->face.name, sp->scheme->name))
            x.scheme = schemes[i];
    if (!x.scheme || !sp->ranks)
        return tu_fail(err, TU_EUSAGE, "--sp: there is no scheme '%.40s'",
                       sp->scheme->name);
    int code = tu_attn_init(&x.all, m->opt, m->in, m->n_in, err);
    if (code)
        return code;
    if ((code = tui_aim(&x.all, m, err)) || (code = divide(&x, sp->scheme, err)) ||
        (code = refuse(&x, err)))
        goto out;
    x.own = x.all.sq_max / x.ranks;
    sp->formula = formula(&x);
    code = tu_group_run(&g, err);
    if (!code && x.all.dsink)
        code = tui_sink_gradient(&x.all, err);
out:
    tu_attn_release(&x.all);
    return code;
}
