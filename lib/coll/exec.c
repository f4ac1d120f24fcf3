/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c: runs a plan's rounds over a transport.
 *
 * What comes in is added while it arrives, straight from the transport's memory, unless
 * it lands where bytes still wait to be sent, or in runs: then it is received whole
 * first. */
#include "exec.h"

static int largest_message(const struct tu_plan *p, uint32_t rank, uint64_t *out)
{
    uint64_t most = 0;
    for (uint64_t k = 0; k < p->rounds; k++) {
        struct tu_round o;
        p->alg->round(p, rank, k, &o);
        if (o.to != TU_NOBODY)
            most = tu_max(most, o.send.n);
        if (o.from != TU_NOBODY)
            most = tu_max(most, o.recv.n);
    }
    *out = most;
    return 0;
}

static int take_memory(struct tu_exec *x, struct tu_err *err)
{
    const struct tu_plan *p = &x->plan;
    const struct tu_collective_row *row = &tu_collective_rows[p->alg->coll];
    uint64_t message = 0, in = p->count * (row->in == 2 ? p->ranks : 1);
    if (!(p->alg->flags & TU_ALG_SHARED))
        largest_message(p, x->rank->id, &message);
    if (!(x->work = tu_alloc((size_t)p->work, x->size, err)) ||
        !(x->pack = tu_alloc((size_t)message, x->size, err)) ||
        !(x->stage = tu_alloc((size_t)message, x->size, err)) ||
        !(x->src = tu_calloc(p->ranks, sizeof *x->src, err)) ||
        (x->op == TU_PREMUL && !(x->scaled = tu_alloc((size_t)in, x->size, err))))
        return TU_ENOMEM;
    memset(x->work, 0, (size_t)p->work * x->size);
    return 0;
}

int tu_exec_new(struct tu_exec **out, struct tu_rank *r, const struct tu_plan *p,
                uint32_t dtype, enum tu_op op, enum tu_order order, double premul,
                struct tu_err *err)
{
    *out = NULL;
    const struct tu_dtype *d = tu_dtype_find(dtype);
    const struct tu_collective_row *row = &tu_collective_rows[p->alg->coll];
    if (!d || !tu_dtype_is_plain(dtype))
        return tu_fail(err, TU_EUSAGE, "collectives move whole elements, not dtype 0x%x",
                       (unsigned)dtype);
    int code = row->reduces ? tu_reduce_check(dtype, op, err) : 0;
    if (code)
        return code;
    if (row->reduces && order != TU_ORDER_ANY && !(p->alg->flags & TU_ALG_ORDERED))
        return tu_fail(err, TU_EUSAGE, "algorithm '%s' has an order of its own, not '%s'",
                       p->alg->name, tu_order_names[order]);
    if ((p->alg->flags & TU_ALG_SHARED) && !tu_rank_is_shared(r))
        return tu_fail(err, TU_EUSAGE,
                       tui_has_lanes(r)
                           ? "algorithm '%s' sends no messages: faults 'link' and "
                             "'flip' would not be played"
                           : "algorithm '%s' needs a transport of shared memory",
                       p->alg->name);
    struct tu_exec *x = tu_calloc(1, sizeof *x, err);
    if (!x)
        return TU_ENOMEM;
    *x = (struct tu_exec){.rank = r,
                          .plan = *p,
                          .dtype = dtype,
                          .size = d->block_bytes,
                          .op = op,
                          .fold = op == TU_AVG || op == TU_PREMUL ? TU_SUM : op,
                          .order = order,
                          .premul = premul};
    x->fn = row->reduces ? tu_reduce_find(dtype, x->fold) : NULL;
    if ((code = take_memory(x, err))) {
        tu_exec_free(x);
        return code;
    }
    *out = x;
    return 0;
}

void tu_exec_free(struct tu_exec *x)
{
    if (!x)
        return;
    tu_free(x->work);
    tu_free(x->scaled);
    tu_free(x->pack);
    tu_free(x->stage);
    tu_free(x->src);
    tu_free(x);
}

struct bases {
    unsigned char *at[3]; /* by enum tu_space; the input is only read */
};

static unsigned char *address(const struct tu_exec *x, const struct bases *b,
                              const struct tu_span *s)
{
    return b->at[s->space] + (b->at[s->space] ? s->at * x->size : 0);
}

/* Runs of a span into a row, or back. */
static void gather_runs(const struct tu_exec *x, const struct tu_span *s,
                        unsigned char *base, unsigned char *row, bool back)
{
    for (uint64_t done = 0, i = 0; done < s->n; i++) {
        uint64_t n = tu_min(s->run, s->n - done);
        unsigned char *at = base + i * s->period * x->size;
        if (back)
            memcpy(at, row + done * x->size, n * x->size);
        else
            memcpy(row + done * x->size, at, n * x->size);
        done += n;
    }
}

struct adding {
    const struct tu_exec *x;
    unsigned char *to;
    const unsigned char *own;
    bool left;
};

static void add(void *ctx, uint64_t at, const void *p, uint64_t n)
{
    const struct adding *a = ctx;
    const void *own = a->own + at;
    a->x->fn(a->to + at, a->left ? p : own, a->left ? own : p, (size_t)(n / a->x->size));
}

/* Runs that are added to: one by one. */
static void add_runs(const struct tu_exec *x, const struct tu_round *o, unsigned char *to,
                     const unsigned char *own)
{
    for (uint64_t done = 0, i = 0; done < o->recv.n; i++) {
        uint64_t n = tu_min(o->recv.run, o->recv.n - done),
                 off = i * o->recv.period * x->size;
        struct adding a = {x, to + off, own + off, o->left};
        add(&a, 0, x->stage + done * x->size, n * x->size);
        done += n;
    }
}

static int local(struct tu_exec *x, const struct bases *b, const struct tu_round *o,
                 struct tu_err *err)
{
    unsigned char *from = address(x, b, &o->send), *to = address(x, b, &o->recv);
    if (!o->combine) {
        if (o->recv.n && from != to)
            memmove(to, from, (size_t)o->recv.n * x->size);
        return 0;
    }
    for (uint32_t q = 0; q < x->plan.ranks; q++)
        x->src[q] =
            q == x->rank->id ? address(x, b, &o->own) : from + q * o->send.n * x->size;
    return tu_combine(to, x->src, x->plan.ranks, o->recv.n, x->dtype, x->fold, x->order,
                      err);
}

static int play(struct tu_exec *x, const struct bases *b, const struct tu_round *o,
                struct tu_err *err)
{
    if (o->to == x->rank->id && o->from == x->rank->id)
        return local(x, b, o, err);
    struct tu_move m = {.to = o->send.n ? o->to : TU_NOBODY,
                        .from = o->recv.n ? o->from : TU_NOBODY};
    unsigned char *from = NULL, *to = NULL;
    const unsigned char *own = NULL;
    if (m.to != TU_NOBODY) {
        from = address(x, b, &o->send);
        m.out_bytes = o->send.n * x->size;
        if (o->send.run) {
            gather_runs(x, &o->send, from, x->pack, false);
            from = x->pack;
        }
        m.out = from;
    }
    struct adding a;
    bool later = false;
    if (m.from != TU_NOBODY) {
        to = address(x, b, &o->recv);
        own = o->add ? address(x, b, &o->own) : NULL;
        m.in_bytes = o->recv.n * x->size;
        later =
            o->recv.run || (from && to < from + m.out_bytes && from < to + m.in_bytes);
        m.in = later ? x->stage : to;
        if (o->add && !later) {
            a = (struct adding){x, to, own, o->left};
            m.sink = add;
            m.ctx = &a;
        }
    }
    int code = tu_rank_move(x->rank, &m, err);
    if (code || !later)
        return code;
    if (o->add && o->recv.run) {
        add_runs(x, o, to, own);
    } else if (o->add) {
        a = (struct adding){x, to, own, o->left};
        add(&a, 0, x->stage, m.in_bytes);
    } else if (o->recv.run) {
        gather_runs(x, &o->recv, to, x->stage, true);
    } else {
        memcpy(to, x->stage, (size_t)m.in_bytes);
    }
    return 0;
}

int tu_exec_run(struct tu_exec *x, const void *in, void *out, struct tu_err *err)
{
    const struct tu_plan *p = &x->plan;
    const struct tu_collective_row *row = &tu_collective_rows[p->alg->coll];
    int code = tu_rank_begin(x->rank, err);
    if (code)
        return code;
    if (x->native) {
        x->rank->due = 0; /* its library's messages are not ours to touch */
        const struct tui_native c = {p->alg->coll, x->op,     x->dtype, p->root,
                                     p->count,     x->premul, in,       out};
        return x->rank->w->row->ops->collective(x->rank, &c, err);
    }
    if (x->op == TU_PREMUL && row->reduces) {
        uint64_t n = p->count * (row->in == 2 ? p->ranks : 1);
        memcpy(x->scaled, in, (size_t)n * x->size);
        tu_reduce_scale(x->dtype, x->scaled, (size_t)n, x->premul);
        in = x->scaled;
    }
    struct bases b = {{(unsigned char *)(uintptr_t)in, out, x->work}};
    if (p->alg->flags & TU_ALG_SHARED) {
        code = tui_fused_run(x, in, out, err);
    } else {
        for (uint64_t k = 0; k < p->rounds && !code; k++) {
            struct tu_round o;
            p->alg->round(p, x->rank->id, k, &o);
            code = play(x, &b, &o, err);
        }
    }
    if (!code && x->op == TU_AVG && row->reduces &&
        (!row->rooted || p->root == x->rank->id))
        tu_reduce_scale(x->dtype, out, (size_t)p->count, 1.0 / p->ranks);
    x->rank->due = 0; /* what tells of the operation is not damaged */
    return code;
}
