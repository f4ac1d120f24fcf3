/* SPDX-License-Identifier: Apache-2.0 */
/* alg_hier.c: rings within levels: node, rack, cluster; the dimensions of a torus.
 *
 * Reduce-scatter inside the innermost level, then among equals of the next on the block
 * that is left, and back by all-gathers: each level carries only 1/q of what the one
 * inside it does. levels=L0+L1+…, innermost first; their product is the number of ranks.
 * Source: P. Sack and W. Gropp, "Collective algorithms for multiported torus networks",
 * 2015; two levels as in ZeRO++ (arXiv 2306.10209), three as in its study on Frontier. */
#include "plan.h"

static const char *const keys[] = {"levels", NULL};

static int read_levels(struct tu_plan *p, const char *text, struct tu_err *err)
{
    uint64_t product = 1;
    for (const char *at = text; *at && p->levels < 4;) {
        char digits[12];
        size_t n = strcspn(at, "+");
        uint64_t v;
        if (n >= sizeof digits)
            break;
        memcpy(digits, at, n);
        digits[n] = '\0';
        if (tu_parse_u64(digits, &v, NULL) || v < 1 || v > p->ranks)
            break;
        p->level[p->levels++] = (uint32_t)v;
        product *= v;
        at += n + (at[n] == '+');
        if (!*at && product == p->ranks)
            return 0;
    }
    return tu_fail(err, TU_EUSAGE,
                   "levels=%s: expected up to 4 numbers joined by '+' whose "
                   "product is %u",
                   text, (unsigned)p->ranks);
}

/* Without levels: the divisor nearest to the square root from below, and the rest. */
static void split(struct tu_plan *p)
{
    uint32_t q = 1;
    for (uint32_t d = 1; (uint64_t)d * d <= p->ranks; d++)
        if (p->ranks % d == 0)
            q = d;
    p->level[0] = q;
    p->level[1] = p->ranks / q;
    p->levels = 2;
}

static int plan(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    const char *text = spec ? tu_spec_get(spec, "levels") : NULL;
    int code = 0;
    if (text)
        code = read_levels(p, text, err);
    else
        split(p);
    p->rounds = 0;
    for (uint32_t i = 0; i < p->levels; i++)
        p->rounds += 2 * ((uint64_t)p->level[i] - 1);
    if (!p->rounds)
        p->rounds = 1;
    return code;
}

/* Where rank r stands in level j, its stride, and the part of the vector that is left
 * there. */
struct place {
    uint32_t q, pos, stride;
    uint64_t at, n;
};

static struct place place_of(const struct tu_plan *p, uint32_t r, uint32_t j)
{
    struct place a = {.stride = 1, .n = p->count};
    for (uint32_t i = 0;; i++) {
        a.q = p->level[i];
        a.pos = r / a.stride % a.q;
        if (i == j)
            return a;
        uint32_t mine = (a.pos + 1) % a.q; /* the block that a ring leaves here */
        a.at += tui_block_at(a.n, a.q, mine);
        a.n = tui_block_len(a.n, a.q, mine);
        a.stride *= a.q;
    }
}

static struct tu_span block(const struct place *a, enum tu_space space, int64_t b)
{
    uint32_t i = tui_turn(a->pos, b, a->q);
    return tui_span(space, a->at + tui_block_at(a->n, a->q, i),
                    tui_block_len(a->n, a->q, i));
}

static uint32_t neighbour(const struct place *a, uint32_t r, int64_t d)
{
    return r - a->pos * a->stride + tui_turn(a->pos, d, a->q) * a->stride;
}

static void round_of(const struct tu_plan *p, uint32_t r, uint64_t k, struct tu_round *o)
{
    if (p->ranks == 1) {
        tui_copy(o, r, tui_span(TU_IN, 0, p->count), tui_span(TU_OUT, 0, p->count));
        return;
    }
    bool gather = k >= p->rounds / 2;
    uint64_t i = gather ? p->rounds - 1 - k : k; /* the way back, mirrored */
    uint32_t j = 0;
    bool fresh = true; /* nothing has been added yet: the input is what we have */
    for (; i >= p->level[j] - 1u; j++) {
        i -= p->level[j] - 1u;
        fresh &= p->level[j] == 1;
    }
    struct place a = place_of(p, r, j);
    *o = (struct tu_round){.to = neighbour(&a, r, 1), .from = neighbour(&a, r, -1)};
    if (gather) {
        int64_t step = (int64_t)(p->level[j] - 2u - i);
        o->send = block(&a, TU_OUT, 1 - step);
        o->recv = block(&a, TU_OUT, -step);
    } else {
        int64_t step = (int64_t)i;
        enum tu_space before = fresh ? TU_IN : TU_OUT;
        o->send = block(&a, step ? TU_OUT : before, -step);
        o->recv = block(&a, TU_OUT, -step - 1);
        o->own = block(&a, before, -step - 1);
        o->add = o->left = true;
    }
}

static uint64_t sent(const struct tu_plan *p, uint32_t r)
{
    uint64_t n = 0;
    for (uint32_t j = 0; j < p->levels; j++) {
        struct place a = place_of(p, r, j);
        if (a.q > 1)
            n += 2 * a.n - block(&a, TU_OUT, 1).n - block(&a, TU_OUT, 2 % (int64_t)a.q).n;
    }
    return n;
}

static double model(const struct tu_plan *p, double bytes, double alpha, double beta,
                    double gamma)
{
    double t = 0;
    for (uint32_t j = 0; j < p->levels; j++) {
        double q = p->level[j];
        t += 2 * (q - 1) * alpha + (q - 1) / q * bytes * (2 * beta + gamma);
        bytes /= q;
    }
    return t;
}

const struct tu_algorithm tui_ar_hier = {
    "hier",
    "rings by level (levels=INNER+…+OUTER)",
    "Sack and Gropp 2015",
    TU_ALLREDUCE,
    keys,
    0,
    plan,
    round_of,
    sent,
    model,
};
