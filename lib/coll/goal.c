/* SPDX-License-Identifier: Apache-2.0 */
/* goal.c: GOAL text read, written, and run under LogGP.
 *
 * A rank is a list of operations (send, recv, calc) that wait for others of the same
 * rank. The run takes, again and again, the ready operation that can start first; rank
 * and line decide ties, so that the result does not depend on anything else. Source: T.
 * Hoefler, T. Schneider, A. Lumsdaine, "LogGOPSim - simulating large-scale applications
 * in the LogGOPS model", 2010. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan.h"

#define RANKS_MAX 65536u

enum kind { SEND, RECV, CALC };

struct op {
    enum kind kind;
    bool done;
    uint32_t rank, peer, label, needs; /* needs: operations before it that are not done */
    uint64_t bytes, tag, ready,
        sent; /* ready: earliest start; sent: first byte, of a send */
};

struct edge {
    uint32_t before, after;
};

struct goal {
    struct op *op;
    struct edge *edge;
    size_t ops, ops_cap, edges, edges_cap;
    uint32_t ranks;
    uint64_t *cpu, *out, *in, *finish; /* when each is free */
};

struct text {
    const char *at, *end;
    unsigned line;
};

static int bad(const struct text *t, struct tu_err *err, const char *what)
{
    return tu_fail(err, TU_EFORMAT, "line %u: %s", t->line, what);
}

static void blanks(struct text *t)
{
    for (; t->at < t->end; t->at++) {
        if (*t->at == '\n')
            t->line++;
        else if (t->at + 1 < t->end && t->at[0] == '/' && t->at[1] == '/')
            while (t->at + 1 < t->end && t->at[1] != '\n')
                t->at++;
        else if (!isspace((unsigned char)*t->at))
            return;
    }
}

static bool word(struct text *t, const char *w)
{
    size_t n = strlen(w);
    blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, w, n) != 0)
        return false;
    if (isalnum((unsigned char)w[n - 1]) && t->at + n < t->end &&
        (isalnum((unsigned char)t->at[n]) || t->at[n] == '_') && strcmp(w, "l") != 0)
        return false;
    t->at += n;
    return true;
}

static bool number(struct text *t, uint64_t *v)
{
    blanks(t);
    const char *from = t->at;
    *v = 0;
    for (; t->at < t->end && isdigit((unsigned char)*t->at); t->at++)
        if (tu_mul_over(*v, 10, v) || tu_add_over(*v, (uint64_t)(*t->at - '0'), v))
            return false;
    return t->at > from;
}

/* "l3: send 1b to 2 tag 0", "recv 1b from 0 tag 0", "calc 100"; the label has been read.
 */
static int read_op(struct goal *g, struct text *t, uint32_t rank, uint64_t label,
                   struct tu_err *err)
{
    struct op o = {.rank = rank, .label = (uint32_t)label};
    uint64_t peer = 0;
    if (label > UINT32_MAX)
        return bad(t, err, "label too large");
    if (word(t, "calc")) {
        o.kind = CALC;
        if (!number(t, &o.bytes))
            return bad(t, err, "expected how long to calculate");
    } else {
        o.kind = word(t, "send") ? SEND : RECV;
        if (o.kind == RECV && !word(t, "recv"))
            return bad(t, err, "expected send, recv or calc");
        if (!number(t, &o.bytes) || !word(t, "b") ||
            !word(t, o.kind == SEND ? "to" : "from") || !number(t, &peer))
            return bad(t, err, "expected NUMBERb to|from RANK");
        if (word(t, "tag") && !number(t, &o.tag))
            return bad(t, err, "expected a tag");
        if (peer >= g->ranks)
            return bad(t, err, "no such rank");
    }
    o.peer = (uint32_t)peer;
    int code = TU_GROW(&g->op, &g->ops_cap, g->ops, err);
    if (!code)
        g->op[g->ops++] = o;
    return code;
}

static int find(const struct goal *g, uint32_t rank, uint64_t label, size_t from,
                uint32_t *out)
{
    for (size_t i = from; i < g->ops; i++) {
        if (g->op[i].rank == rank && g->op[i].label == label) {
            *out = (uint32_t)i;
            return 0;
        }
    }
    return TU_EFORMAT;
}

static int read_rank(struct goal *g, struct text *t, struct tu_err *err)
{
    uint64_t rank, label, other;
    size_t from = g->ops;
    if (!number(t, &rank) || rank >= g->ranks || !word(t, "{"))
        return bad(t, err, "expected rank NUMBER {");
    while (!word(t, "}")) {
        if (!word(t, "l") || !number(t, &label))
            return bad(t, err, "expected a label");
        int code;
        if (word(t, ":")) {
            code = read_op(g, t, (uint32_t)rank, label, err);
        } else {
            struct edge e;
            if (!word(t, "requires") || !word(t, "l") || !number(t, &other) ||
                find(g, (uint32_t)rank, label, from, &e.after) ||
                find(g, (uint32_t)rank, other, from, &e.before))
                return bad(t, err, "expected LABEL requires LABEL, both known");
            code = TU_GROW(&g->edge, &g->edges_cap, g->edges, err);
            if (!code) {
                g->edge[g->edges++] = e;
                g->op[e.after].needs++;
            }
        }
        if (code)
            return code;
        blanks(t);
        if (t->at == t->end)
            return bad(t, err, "the text ends inside a rank");
    }
    return 0;
}

static int read_goal(struct goal *g, const char *text, size_t n, struct tu_err *err)
{
    struct text t = {text, text + n, 1};
    uint64_t ranks;
    if (!word(&t, "num_ranks") || !number(&t, &ranks) || !ranks || ranks > RANKS_MAX)
        return bad(&t, err, "expected num_ranks and a number up to 65536");
    g->ranks = (uint32_t)ranks;
    for (;;) {
        blanks(&t);
        if (t.at == t.end)
            return 0;
        if (!word(&t, "rank"))
            return bad(&t, err, "expected a rank");
        int code = read_rank(g, &t, err);
        if (code)
            return code;
    }
}

/* The send that a receive waits for: the first of its kind that has not been taken. */
static struct op *partner(const struct goal *g, const struct op *r)
{
    for (size_t i = 0; i < g->ops; i++) {
        struct op *s = &g->op[i];
        if (s->kind == SEND && s->done && s->sent && s->rank == r->peer &&
            s->peer == r->rank && s->tag == r->tag)
            return s;
    }
    return NULL;
}

/* Earliest start of an operation, UINT64_MAX when it cannot yet. */
static uint64_t start_of(const struct goal *g, const struct op *o, const struct op *sent)
{
    uint64_t t = tu_max(o->ready, g->cpu[o->rank]);
    if (o->kind == SEND)
        return tu_max(t, g->out[o->rank]);
    if (o->kind == CALC)
        return t;
    return sent ? tu_max(tu_max(t, g->in[o->rank]), sent->sent) : UINT64_MAX;
}

static void execute(struct goal *g, struct op *o, struct op *sent, uint64_t t,
                    const struct tu_loggp *m)
{
    uint64_t more = o->bytes ? o->bytes - 1 : 0, end;
    if (o->kind == SEND) {
        end = g->cpu[o->rank] = t + m->o + more * m->O;
        g->out[o->rank] = t + m->g + more * m->G;
        o->sent = t + m->o + m->L;
    } else if (o->kind == RECV) {
        end = g->cpu[o->rank] = t + m->o + tu_max(more * m->O, more * m->G);
        g->in[o->rank] = t + m->g + more * m->G;
        sent->sent = 0;
    } else {
        end = g->cpu[o->rank] = t + o->bytes;
    }
    o->done = true;
    g->finish[o->rank] = tu_max(g->finish[o->rank], end);
    uint32_t me = (uint32_t)(o - g->op);
    for (size_t i = 0; i < g->edges; i++) {
        if (g->edge[i].before == me) {
            struct op *next = &g->op[g->edge[i].after];
            next->needs--;
            next->ready = tu_max(next->ready, end);
        }
    }
}

static int run_goal(struct goal *g, const struct tu_loggp *m, struct tu_err *err)
{
    for (size_t done = 0; done < g->ops; done++) {
        struct op *best = NULL, *from = NULL;
        uint64_t when = UINT64_MAX;
        for (size_t i = 0; i < g->ops; i++) {
            struct op *o = &g->op[i];
            if (o->done || o->needs)
                continue;
            struct op *s = o->kind == RECV ? partner(g, o) : NULL;
            uint64_t t = start_of(g, o, s);
            if (t < when) {
                when = t;
                best = o;
                from = s;
            }
        }
        if (!best)
            return tu_fail(err, TU_EFORMAT,
                           "the schedule cannot go on: %zu of %zu operations "
                           "wait for each other or for a message that nobody sends",
                           g->ops - done, g->ops);
        execute(g, best, from, when, m);
    }
    return 0;
}

int tu_goal_run(const char *text, size_t n, const struct tu_loggp *m, uint64_t **finish,
                uint32_t *ranks, struct tu_err *err)
{
    struct goal g = {0};
    *finish = NULL;
    int code = read_goal(&g, text, n, err);
    if (!code) {
        g.cpu = tu_calloc(3 * (size_t)g.ranks, sizeof *g.cpu, err);
        g.finish = tu_calloc(g.ranks, sizeof *g.finish, err);
        code = g.cpu && g.finish ? 0 : TU_ENOMEM;
    }
    if (!code) {
        g.out = g.cpu + g.ranks;
        g.in = g.out + g.ranks;
        code = run_goal(&g, m, err);
    }
    if (!code) {
        *finish = g.finish;
        *ranks = g.ranks;
        g.finish = NULL;
    }
    tu_free(g.finish);
    tu_free(g.cpu);
    tu_free(g.op);
    tu_free(g.edge);
    return code;
}

int tu_goal_write(struct tu_buf *out, const struct tu_plan *p, struct tu_err *err)
{
    int code = tu_buf_printf(out, err, "num_ranks %u\n", (unsigned)p->ranks);
    for (uint32_t r = 0; r < p->ranks && !code; r++) {
        unsigned label = 0, before = 0; /* last label of the round before */
        code = tu_buf_printf(out, err, "rank %u {\n", (unsigned)r);
        for (uint64_t k = 0; k < p->rounds && !code; k++) {
            struct tu_round o;
            p->alg->round(p, r, k, &o);
            if (o.to == r)
                continue;
            unsigned first = label + 1;
            if (o.to != TU_NOBODY && o.send.n)
                code = tu_buf_printf(out, err, "l%u: send %llub to %u tag 0\n", ++label,
                                     (unsigned long long)o.send.n, (unsigned)o.to);
            if (o.from != TU_NOBODY && o.recv.n && !code)
                code = tu_buf_printf(out, err, "l%u: recv %llub from %u tag 0\n", ++label,
                                     (unsigned long long)o.recv.n, (unsigned)o.from);
            for (unsigned l = first; l <= label && before && !code; l++)
                code = tu_buf_printf(out, err, "l%u requires l%u\n", l, before);
            if (label >= first)
                before = label;
        }
        if (!code)
            code = tu_buf_text(out, "}\n", err);
    }
    return code;
}
