/* SPDX-License-Identifier: Apache-2.0 */
/* lp.c: the integer program of the optimiser in CPLEX LP text, and a solver's answer read
 * back.
 *
 * Variables: e_K_s_i the end of operation K (F, I, W) of stage s and micro-batch i; for
 * each pair of a rank that nothing orders a binary y, 1 when the first stands before the
 * second; R the objective. Memory: before each F, the F that stand before it less what I
 * and W before it freed. Source: Qi et al., "Zero Bubble Pipeline Parallelism", 2024,
 * appendix. */
#include <stdlib.h>
#include <string.h>
#include "sched/problem.h"

static const char letter[] = "F?IW";
static const uint8_t kinds[] = {TU_OP_F, TU_OP_I, TU_OP_W};

struct lp {
    const struct tui_problem *x;
    struct tu_buf *out;
    struct tu_err *err;
    int code;
    int64_t big;
};

#define PAIRS_MAX ((uint64_t)1 << 23) /* hundreds of megabytes of text */

#define PUT(l, ...)                                                                      \
    do {                                                                                 \
        if (!(l)->code)                                                                  \
            (l)->code = tu_buf_printf((l)->out, (l)->err, __VA_ARGS__);                  \
    } while (0)

struct node {
    uint32_t kind, s, i;
};

static int64_t took(const struct tui_problem *x, const struct node *a)
{
    return a->kind == TU_OP_F ? x->f[a->s] : a->kind == TU_OP_I ? x->i[a->s] : x->w[a->s];
}

/* e(b) ≥ e(a) + lag + time of b. */
static void after(struct lp *l, struct node a, struct node b, int64_t lag)
{
    PUT(l, " e_%c_%u_%u - e_%c_%u_%u >= %lld\n", letter[b.kind], b.s, b.i, letter[a.kind],
        a.s, a.i, (long long)(lag + took(l->x, &b)));
}

static void chains(struct lp *l)
{
    const struct tui_problem *x = l->x;
    for (uint32_t s = 0; s < x->stages; s++)
        for (uint32_t i = 0; i < x->m; i++) {
            struct node f = {TU_OP_F, s, i}, b = {TU_OP_I, s, i}, w = {TU_OP_W, s, i};
            for (size_t k = 0; k < 3 && i; k++)
                after(l, (struct node){kinds[k], s, i - 1}, (struct node){kinds[k], s, i},
                      0);
            if (s)
                after(l, (struct node){TU_OP_F, s - 1, i}, f, x->c_fwd[s]);
            else
                PUT(l, " e_F_0_%u >= %lld\n", i, (long long)x->f[0]);
            if (s + 1 < x->stages)
                after(l, (struct node){TU_OP_I, s + 1, i}, b, x->c_bwd[s]);
            after(l, f, b, 0);
            after(l, b, w, 0);
        }
}

/* Is a before b by the chains alone? Same stage only. */
static bool ordered(struct node a, struct node b)
{
    return a.s == b.s && a.i <= b.i && a.kind <= b.kind;
}

static void name(struct lp *l, struct node a, struct node b)
{
    PUT(l, "y_%c_%u_%u_%c_%u_%u", letter[a.kind], a.s, a.i, letter[b.kind], b.s, b.i);
}

/* Operation k of a stage. */
static struct node node_of(uint32_t stage, size_t k)
{
    return (struct node){kinds[k % 3], stage, (uint32_t)(k / 3)};
}

/* Call for each unordered pair of a rank. */
static void pairs(struct lp *l, void (*visit)(struct lp *, struct node, struct node))
{
    const struct tui_problem *x = l->x;
    size_t n = 3 * (size_t)x->m;
    for (uint32_t s = 0; s < x->stages; s++)
        for (size_t a = 0; a < n; a++)
            for (uint32_t t = s; t < x->stages; t++)
                for (size_t b = t == s ? a + 1 : 0; x->place[t] == x->place[s] && b < n;
                     b++) {
                    struct node u = node_of(s, a), v = node_of(t, b);
                    if (!ordered(u, v) && !ordered(v, u))
                        visit(l, u, v);
                }
}

/* Pairs of operations on one rank. */
static uint64_t pairs_of(const struct tui_problem *x)
{
    uint64_t n = 0;
    for (uint32_t s = 0; s < x->stages; s++)
        for (uint32_t t = s; t < x->stages; t++)
            n += x->place[t] == x->place[s] ? (uint64_t)9 * x->m * x->m : 0;
    return n;
}

static void disjoint(struct lp *l, struct node a, struct node b)
{
    PUT(l, " e_%c_%u_%u - e_%c_%u_%u - %lld ", letter[b.kind], b.s, b.i, letter[a.kind],
        a.s, a.i, (long long)l->big);
    name(l, a, b);
    PUT(l, " >= %lld\n", (long long)(took(l->x, &b) - l->big));
    PUT(l, " e_%c_%u_%u - e_%c_%u_%u + %lld ", letter[a.kind], a.s, a.i, letter[b.kind],
        b.s, b.i, (long long)l->big);
    name(l, a, b);
    PUT(l, " >= %lld\n", (long long)took(l->x, &a));
}

static void binary(struct lp *l, struct node a, struct node b)
{
    PUT(l, " ");
    name(l, a, b);
    PUT(l, "\n");
}

/* weight · [a stands before f], as a term and a constant. */
static int64_t term(struct lp *l, struct node a, struct node f, int64_t weight)
{
    if (ordered(a, f))
        return weight;
    if (ordered(f, a))
        return 0;
    bool first = a.s != f.s ? a.s < f.s : a.i != f.i ? a.i < f.i : a.kind < f.kind;
    int64_t sign = first ? weight : -weight;
    PUT(l, " %c %lld ", sign < 0 ? '-' : '+', (long long)(sign < 0 ? -sign : sign));
    if (first)
        name(l, a, f);
    else
        name(l, f, a);
    return first ? 0 : weight;
}

static void memory(struct lp *l)
{
    const struct tui_problem *x = l->x;
    for (uint32_t s = 0; s < x->stages && x->cap; s++)
        for (uint32_t i = 0; i < x->m; i++) {
            int64_t fixed = x->mem_f;
            struct node f = {TU_OP_F, s, i};
            PUT(l, " 0 R");
            for (uint32_t t = 0; t < x->stages; t++)
                for (uint32_t j = 0; x->place[t] == x->place[s] && j < x->m; j++) {
                    if (t != s || j != i)
                        fixed += term(l, (struct node){TU_OP_F, t, j}, f, x->mem_f);
                    if (x->mem_i)
                        fixed += term(l, (struct node){TU_OP_I, t, j}, f, -x->mem_i);
                    fixed += term(l, (struct node){TU_OP_W, t, j}, f, -x->mem_w);
                }
            PUT(l, " <= %lld\n", (long long)(x->cap - fixed));
        }
}

int tui_lp_write(struct tu_buf *out, const struct tui_problem *x, struct tu_err *err)
{
    struct lp l = {.x = x, .out = out, .err = err};
    if (x->stages > 4096 || pairs_of(x) > PAIRS_MAX)
        return tu_fail(err, TU_ELIMIT,
                       "integer program: %u stages, %u micro-batches: over %llu pairs of "
                       "operations, no solver's size",
                       x->stages, x->m, (unsigned long long)PAIRS_MAX);
    for (uint32_t s = 0; s < x->stages; s++)
        l.big += x->m * (x->f[s] + x->i[s] + x->w[s] + x->c_fwd[s] + x->c_bwd[s]);
    PUT(&l,
        "\\ the shortest span of a pipeline: %u stages on %u ranks, %u micro-batches\n"
        "Minimize\n R\nSubject To\n",
        x->stages, x->p, x->m);
    chains(&l);
    for (uint32_t r = 0; r < x->p; r++)
        for (uint32_t s = 0, first = UINT32_MAX; s < x->stages; s++) {
            if (x->place[s] != r)
                continue;
            first = first == UINT32_MAX ? s : first;
            PUT(&l, " R - e_W_%u_%u", s, x->m - 1);
            if (x->barrier)
                PUT(&l, " >= 0\n");
            else
                PUT(&l, " + e_F_%u_0 >= %lld\n", first, (long long)x->f[first]);
        }
    pairs(&l, disjoint);
    memory(&l);
    PUT(&l, "Binaries\n");
    pairs(&l, binary);
    PUT(&l, "End\n");
    return l.code;
}

/* Reading
 * -------------------------------------------------------------------------------- */

struct timed {
    double end;
    uint32_t op, rank, i;
};

static int by_end(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->end < y->end || x->end > y->end)
        return x->end < y->end ? -1 : 1;
    return x->op != y->op ? (x->op < y->op ? -1 : 1) : x->i < y->i ? -1 : x->i > y->i;
}

/* "e_F_2_3" at the start of a word; false for anything else. *past: of a stage or
 * micro-batch that the problem does not have. */
static bool end_name(const struct tui_problem *x, const char *p, const char *stop,
                     struct timed *t, bool *past)
{
    uint32_t v[2] = {0, 0};
    const char *k =
        stop - p > 6 && p[0] == 'e' && p[1] == '_' ? strchr("FIW", p[2]) : NULL;
    if (!k || p[3] != '_')
        return false;
    p += 4;
    for (int n = 0; n < 2; n++, p++) {
        const char *from = p;
        for (; p < stop && *p >= '0' && *p <= '9' && v[n] < TU_SCHED_MAX; p++)
            v[n] = v[n] * 10 + (uint32_t)(*p - '0');
        if (p == from || (n == 0 && (p >= stop || *p != '_')))
            return false;
    }
    *past = v[0] >= x->stages || v[1] >= x->m;
    if (*past)
        return false;
    *t = (struct timed){.op = v[0] * 4 + (*k == 'F'   ? TU_OP_F
                                          : *k == 'I' ? TU_OP_I
                                                      : TU_OP_W),
                        .rank = x->place[v[0]],
                        .i = v[1]};
    return true;
}

int tui_lp_read(struct tui_order *o, const struct tui_problem *x, const char *text,
                size_t n, struct tu_err *err)
{
    size_t ops = 3 * (size_t)x->stages * x->m, have = 0;
    struct timed *t = tu_alloc(ops + 1, sizeof *t, err);
    *o = (struct tui_order){0};
    o->op = tu_alloc(ops, sizeof *o->op, err);
    o->base = tu_calloc((size_t)x->p + 1, sizeof *o->base, err);
    int rc = t && o->op && o->base ? 0 : TU_ENOMEM;
    for (size_t at = 0; at < n && !rc; at++) {
        const char *p = text + at, *stop = p;
        if (at && text[at - 1] != ' ' && text[at - 1] != '\n' && text[at - 1] != '\t')
            continue;
        while (stop < text + n && *stop != ' ' && *stop != '\n' && *stop != '\t')
            stop++;
        struct timed one;
        char *after;
        bool past = false;
        bool named = end_name(x, p, stop, &one, &past);
        if (past)
            rc = tu_fail(err, TU_EFORMAT,
                         "solution: %.*s is of another program: this one has %u stages and "
                         "%u micro-batches",
                         (int)tu_min((uint64_t)(stop - p), 40), p, x->stages, x->m);
        if (!named || have == ops)
            continue;
        one.end = strtod(stop, &after); /* the text ends with a NUL */
        if (after != stop)
            t[have++] = one;
    }
    if (!rc && have != ops)
        rc = tu_fail(err, TU_EFORMAT, "solution: %zu of %zu operations have an end", have,
                     ops);
    if (!rc)
        qsort(t, ops, sizeof *t, by_end);
    for (size_t k = 0; k < ops && !rc; k++) {
        o->op[k] = t[k].op;
        o->base[t[k].rank + 1] = k + 1;
    }
    tu_free(t);
    return rc;
}
