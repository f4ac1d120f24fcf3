/* SPDX-License-Identifier: Apache-2.0 */
/* sp_linear.c: linear attention over ranks: LASP hands the state from rank to rank,
 * LASP-2 gathers the states of all chunks once.
 *
 * A rank holds neighbouring tokens and computes with the row itself, states in float64.
 * LASP gives the bits of one process that goes step by step (the deterministic form).
 * LASP-2 computes its chunk with an empty state first; S_in = sum over s < r of
 * lambda^{C(r-1-s)} M_s. Source: Sun et al., "LASP", 2024; "LASP-2", 2025. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <tensorutils/coll.h>
#include "attn/recur.h"
#include "attn/sp_scheme.h"

const struct tu_sp tui_sp_lasp = {"lasp", "linear: the state goes from rank to rank",
                                  "Sun et al., LASP, 2024"};
const struct tu_sp tui_sp_lasp2 = {"lasp2",
                                   "linear: the states of all chunks, gathered once",
                                   "Sun et al., LASP-2, 2025"};

struct job {
    const struct tu_mixer_args *m;
    struct tui_recur r;
    bool second;
    uint32_t ranks;
    uint64_t *sent;
};

/* This rank's part. */
struct part {
    const struct job *x;
    struct tu_rank *rank;
    uint32_t id, n;
    uint64_t c, states, each; /* tokens; values of all states; of one */
    struct tu_operand in[6];  /* q k v do state_in dstate */
    struct tu_mixer_args a;
    double *state, *dstate; /* in */
    double *out[2];         /* state_out, dstate_in */
    struct tu_arena *arena;
};

static double lambda(const struct part *p, uint64_t head)
{
    const struct tu_attn_opts *o = p->x->m->opt;
    return exp(-(o->decay_slopes ? tu_alibi_slope(head, p->x->r.heads) : o->decay));
}

/* Tokens [id·c, …) of every sequence, copied. */
static int slice(struct part *p, struct tu_operand *to, const struct tu_operand *from,
                 struct tu_err *err)
{
    size_t row = from->dim[2] * from->dim[3] * tu_dtype_find(from->dtype)->block_bytes;
    *to = *from;
    to->dim[1] = p->c;
    to->data = tu_arena_alloc(p->arena, from->dim[0] * p->c * row + 1, 1, err);
    for (uint64_t b = 0; to->data && b < from->dim[0]; b++)
        memcpy((char *)to->data + b * p->c * row,
               (char *)from->data + (b * from->dim[1] + p->id * p->c) * row, p->c * row);
    return to->data ? 0 : TU_ENOMEM;
}

static void paste(const struct part *p, const struct tu_operand *to,
                  const struct tu_operand *from)
{
    size_t row = to->dim[2] * to->dim[3] * tu_dtype_find(to->dtype)->block_bytes;
    for (uint64_t b = 0; b < to->dim[0]; b++)
        memcpy((char *)to->data + (b * to->dim[1] + p->id * p->c) * row,
               (char *)from->data + b * p->c * row, p->c * row);
}

static int setup(struct part *p, struct tu_err *err)
{
    const struct tui_recur *r = &p->x->r;
    uint64_t dim[4] = {r->batch, r->heads, r->d, r->dv};
    int code;
    p->states = r->batch * r->heads * r->d * r->dv;
    p->each = r->d * r->dv;
    if ((code = slice(p, &p->in[0], r->q, err)) ||
        (code = slice(p, &p->in[1], r->k, err)) ||
        (code = slice(p, &p->in[2], r->v, err)) ||
        (code = slice(p, &p->in[3], r->dout ? r->dout : r->v, err)))
        return code;
    p->in[3].name = "do";
    double **mem[] = {&p->state, &p->dstate, &p->out[0], &p->out[1]};
    for (unsigned i = 0; i < 4; i++)
        if (!(*mem[i] = tu_arena_alloc(p->arena, p->states + 1, sizeof(double), err)))
            return TU_ENOMEM;
    for (unsigned i = 4; i < 6; i++) {
        p->in[i] = (struct tu_operand){.name = i == 4 ? "state_in" : "dstate",
                                       .dtype = TU_F64,
                                       .rank = 4,
                                       .data = i == 4 ? p->state : p->dstate};
        memcpy(p->in[i].dim, dim, sizeof dim);
    }
    return 0;
}

/* One pass of the row over this chunk; results stay in a.out, states in out. */
static int pass(struct part *p, int which, struct tu_err *err)
{
    const struct tu_mixer *row = tu_mixer_find("linear");
    p->a = (struct tu_mixer_args){.opt = p->x->m->opt,
                                  .in = p->in,
                                  .n_in = 6,
                                  .pass = which,
                                  .algo = p->x->m->algo};
    int code = row->infer(&p->a, err);
    for (size_t i = 0; !code && i < p->a.n_out; i++) {
        struct tu_operand *o = &p->a.out[i];
        uint64_t n;
        bool state = !strncmp(o->name, "state", 5) || !strncmp(o->name, "dstate", 6);
        if ((code = tu_elements(o->dim, 4, &n, err)))
            break;
        o->dtype = state ? TU_F64 : o->dtype;
        o->data = state ? p->out[which == TU_PASS_BWD]
                        : tu_arena_alloc(p->arena, n + 1, sizeof(double), err);
        code = o->data ? 0 : TU_ENOMEM;
    }
    return code ? code : row->run(&p->a, err);
}

static void keep(const struct part *p)
{
    const struct tu_mixer_args *m = p->x->m;
    for (size_t i = 0; i < p->a.n_out; i++) {
        const struct tu_operand *to = tu_operand_find(m->out, m->n_out, p->a.out[i].name);
        if (to && strncmp(to->name, "state", 5) && strncmp(to->name, "dstate", 6))
            paste(p, to, &p->a.out[i]);
    }
}

/* The state after the last chunk, the gradient before the first: to the caller. */
static int put_end(const struct part *p, const char *name, const double *v,
                   struct tu_err *err)
{
    return tui_recur_put(tu_operand_find(p->x->m->out, p->x->m->n_out, name), 0, v,
                         p->states, err);
}

/* State in from below (or above), pass, state out. */
static int relay(struct part *p, int which, struct tu_err *err)
{
    bool back = which == TU_PASS_BWD;
    bool first = back ? p->id + 1 == p->n : p->id == 0,
         last = back ? p->id == 0 : p->id + 1 == p->n;
    uint32_t from = back ? p->id + 1 : p->id - 1, to = back ? p->id - 1 : p->id + 1;
    int code = 0;
    if (!first)
        code =
            tu_rank_recv(p->rank, from, back ? p->dstate : p->state, p->states * 8, err);
    code = code ? code : pass(p, which, err);
    if (!code)
        keep(p);
    if (!code && !last)
        code = tu_rank_send(p->rank, to, p->out[back], p->states * 8, err);
    else if (!code)
        code = put_end(p, back ? "dstate_in" : "state_out", p->out[back], err);
    return code;
}

/* The chunk alone, everybody's state, the chunk again with what came before (or comes
 * after). */
static int gather(struct part *p, int which, struct tu_err *err)
{
    bool back = which == TU_PASS_BWD;
    double *in = back ? p->dstate : p->state;
    double *all = tu_arena_alloc(p->arena, p->n * p->states + 1, sizeof *all, err);
    double *given = tu_arena_alloc(p->arena, p->states + 1, sizeof *given, err);
    if (!all || !given)
        return TU_ENOMEM;
    memcpy(given, in,
           p->states * sizeof *given); /* of the whole sequence: enters at one end */
    memset(in, 0, p->states * sizeof *in);
    int code = pass(p, which, err);
    memcpy(all + p->id * p->states, p->out[back], p->states * sizeof *all);
    for (uint32_t t = 1; !code && t < p->n; t++) {
        uint32_t out = (p->id + p->n - t + 1) % p->n, from = (p->id + p->n - t) % p->n;
        struct tu_move m = {.to = (p->id + 1) % p->n,
                            .from = (p->id + p->n - 1) % p->n,
                            .out = all + out * p->states,
                            .out_bytes = p->states * 8,
                            .in = all + from * p->states,
                            .in_bytes = p->states * 8};
        code = tu_rank_move(p->rank, &m, err);
    }
    for (uint32_t s = 0; !code && s < p->n; s++) {
        bool counts = back ? s > p->id : s < p->id;
        uint64_t gap = back ? (uint64_t)s - p->id - 1 : (uint64_t)p->id - 1 - s;
        for (uint64_t i = 0; counts && i < p->states; i++)
            in[i] += pow(lambda(p, i / p->each % p->x->r.heads), (double)(p->c * gap)) *
                     all[s * p->states + i];
    }
    uint64_t far = back ? p->n - 1 - p->id : p->id;
    for (uint64_t i = 0; i < p->states; i++)
        in[i] +=
            pow(lambda(p, i / p->each % p->x->r.heads), (double)(p->c * far)) * given[i];
    code = code ? code : pass(p, which, err);
    if (!code)
        keep(p);
    if (!code && p->id == (back ? 0 : p->n - 1))
        code = put_end(p, back ? "dstate_in" : "state_out", p->out[back], err);
    return code;
}

static int rank_main(struct tu_rank *rank, void *ctx, struct tu_err *err)
{
    const struct job *x = ctx;
    struct part p = {.x = x,
                     .rank = rank,
                     .id = tu_rank_id(rank),
                     .n = x->ranks,
                     .c = x->r.n / x->ranks,
                     .arena = tu_arena_new(err)};
    bool relays = !x->second || x->m->opt->deterministic;
    int code = p.arena ? tu_rank_begin(rank, err) : TU_ENOMEM;
    if (code || (code = setup(&p, err)))
        goto out;
    if (!relays || p.id == 0)
        code = tui_recur_state(x->r.state, 0, p.state, p.states, err);
    if (!code && (!relays || p.id + 1 == p.n))
        code = tui_recur_state(tu_operand_find(x->m->in, x->m->n_in, "dstate"), 0,
                               p.dstate, p.states, err);
    code = code ? code : (relays ? relay : gather)(&p, TU_PASS_FWD, err);
    if (!code && (x->m->pass & TU_PASS_BWD))
        code = (relays ? relay : gather)(&p, TU_PASS_BWD, err);
    uint64_t sent = tu_rank_traffic(rank).bytes;
    code = code ? code : tu_rank_post(rank, &sent, sizeof sent, err);
out:
    tu_arena_free(p.arena);
    return code;
}

static void take_sent(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct job *x = ctx;
    if (x->sent && n == sizeof *x->sent)
        memcpy(x->sent + rank, p, n);
}

int tui_sp_linear(const struct tu_mixer_args *m, struct tu_sp_args *sp,
                  struct tu_err *err)
{
    struct job x = {.m = m,
                    .ranks = sp->ranks,
                    .sent = sp->sent,
                    .second = !strcmp(sp->scheme->name, "lasp2")};
    const struct tu_group g = {.transport = sp->transport,
                               .size = sp->ranks,
                               .ctx = &x,
                               .fn = rank_main,
                               .post = take_sent,
                               .job = m->job};
    int code = tui_recur_init(&x.r, m, err);
    if (code)
        return code;
    if (m->opt->bidirectional || !sp->ranks || x.r.n % sp->ranks)
        return tu_fail(err, TU_EUSAGE,
                       "--sp %s: %" PRIu64 " causal tokens must divide by the ranks",
                       sp->scheme->name, x.r.n);
    double state = 8.0 * (double)(x.r.batch * x.r.heads * x.r.d * x.r.dv);
    sp->formula = x.second ? (sp->ranks - 1) * state : sp->ranks > 1 ? state : 0;
    return tu_group_run(&g, err);
}
