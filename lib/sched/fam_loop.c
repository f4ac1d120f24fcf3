/* SPDX-License-Identifier: Apache-2.0 */
/* fam_loop.c: several chunks per rank, stage = chunk·p + rank.
 *
 * Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
 * Clusters" (interleaved 1F1B), 2021; Lamy-Poirier, "Breadth-First Pipeline Parallelism",
 * 2023; PyTorch's interleaved zero bubble; Tang et al., "ZeroPP", 2024. */
#include <string.h>
#include "sched/families.h"

/* The order in which a rank takes its (micro-batch, chunk) pairs: groups of g
 * micro-batches, each chunk by chunk. */
struct order {
    uint32_t m, v, g;
};

static void nth(const struct order *o, uint32_t k, uint32_t *mb, uint32_t *chunk)
{
    uint32_t group = k / (o->g * o->v), first = group * o->g;
    uint32_t size = o->m - first < o->g ? o->m - first : o->g;
    uint32_t in = k - first * o->v;
    *chunk = in / size;
    *mb = first + in % size;
}

/* PyTorch's rule where m allows it, else groups of p. */
static uint32_t default_group(const struct tu_sched_params *q)
{
    uint32_t rounds = q->m / q->p ? q->m / q->p : 1;
    if (q->m % rounds == 0)
        return q->m / rounds;
    return q->p;
}

static int group_of(const struct tu_sched_params *q, uint32_t *g, struct tu_err *err)
{
    int rc = 0;
    uint64_t v = tui_key(q, "group", default_group(q), &rc, err);
    if (!rc && (v < 1 || v > q->m))
        rc = tu_fail(err, TU_EUSAGE, "group: %llu micro-batches is not in 1 … m = %u",
                     (unsigned long long)v, q->m);
    *g = (uint32_t)v;
    return rc;
}

static int group_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    uint32_t g;
    int rc = group_of(q, &g, err);
    if (!rc && q->m % g && q->m % g < q->p && q->v > 1)
        rc = tu_fail(
            err, TU_EUSAGE,
            "group: the last group would have %u micro-batches, fewer than p = %u: "
            "m mod group must be 0 or at least p",
            q->m % g, q->p);
    return rc;
}

/* Forwards of rank r before its first backward: the chunks above, and `step` for each rank
 * below. A group smaller than p comes round to the last rank before the first rank gives the
 * gradients that the last one waits for, unless that is no more than two groups ahead. */
static uint32_t warm_of(const struct order *o, uint32_t p, uint32_t r, uint32_t step)
{
    uint32_t ahead = step * (p - 1 - r);
    if (o->v > 1 && o->g < p && o->g < o->m && ahead > 2 * o->g)
        ahead = 2 * o->g;
    return ahead + (o->v - 1) * o->g;
}

static void fwd(struct tui_build *b, const struct order *o, uint32_t p, uint32_t r,
                uint32_t k)
{
    uint32_t mb, c;
    nth(o, k, &mb, &c);
    tui_add(b, r, TU_OP_F, c * p + r, mb);
}

static void bwd(struct tui_build *b, const struct order *o, uint32_t p, uint32_t r,
                uint32_t k, enum tu_op_kind kind)
{
    uint32_t mb, c;
    nth(o, k, &mb, &c);
    tui_add(b, r, kind, (o->v - 1 - c) * p + r, mb);
}

static int interleaved(struct tu_sched **out, const struct tu_sched_params *q,
                       struct tu_err *err)
{
    struct tui_build b;
    struct order o = {q->m, q->v, 1};
    int rc = group_of(q, &o.g, err);
    uint32_t extra = (uint32_t)tui_key(q, "extra", 0, &rc, err) ? 1 : 0;
    tui_build_begin(&b, q->p, q->p * q->v, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        uint32_t n = q->m * q->v, warm = warm_of(&o, q->p, r, 2) + extra;
        warm = warm < n ? warm : n;
        for (uint32_t k = 0; k < n + warm; k++) {
            if (k < n)
                fwd(&b, &o, q->p, r, k);
            if (k >= warm)
                bwd(&b, &o, q->p, r, k - warm, TU_OP_B);
        }
    }
    return tui_build_end(&b, out);
}

static int interleaved_zb(struct tu_sched **out, const struct tu_sched_params *q,
                          struct tu_err *err)
{
    struct tui_build b;
    struct order o = {q->m, q->v, 1};
    int rc = group_of(q, &o.g, err);
    tui_build_begin(&b, q->p, q->p * q->v, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        uint32_t n = q->m * q->v, warm = warm_of(&o, q->p, r, 1), done = 0;
        warm = warm < n ? warm : n;
        for (uint32_t k = 0; k < n + warm; k++) {
            if (k < n)
                fwd(&b, &o, q->p, r, k);
            if (k < warm)
                continue;
            bwd(&b, &o, q->p, r, k - warm, TU_OP_I);
            if (k - warm >= r)
                bwd(&b, &o, q->p, r, done++, TU_OP_W);
        }
        while (done < n)
            bwd(&b, &o, q->p, r, done++, TU_OP_W);
    }
    return tui_build_end(&b, out);
}

/* One chunk after the other for `unit` micro-batches from `first`. */
static void breadth(struct tui_build *b, const struct tu_sched_params *q, uint32_t r,
                    uint32_t first, uint32_t unit, bool reverse, enum tu_op_kind back)
{
    for (uint32_t c = 0; c < q->v; c++)
        for (uint32_t i = 0; i < unit; i++)
            tui_add(b, r, TU_OP_F, c * q->p + r, first + i);
    for (uint32_t c = q->v; c-- > 0;)
        for (uint32_t i = 0; i < unit; i++)
            tui_add(b, r, back, c * q->p + r, first + (reverse ? unit - 1 - i : i));
}

static int breadth_first(struct tu_sched **out, const struct tu_sched_params *q,
                         struct tu_err *err)
{
    struct tui_build b;
    struct tu_sched *base = NULL;
    int rc = 0;
    bool reverse = tui_key(q, "reverse", 1, &rc, err);
    bool fsdp = tui_key(q, "fsdp", 0, &rc, err);
    tui_build_begin(&b, q->p, q->p * q->v, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        breadth(&b, q, r, 0, q->m, reverse, TU_OP_B);
    rc = tui_build_end(&b, &base);
    if (rc || !fsdp) {
        *out = base;
        return rc;
    }
    rc = tui_add_fsdp(out, base, 2, 0, err);
    tu_sched_free(base);
    return rc;
}

static int zeropp_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    int rc = 0;
    uint64_t unit = tui_key(q, "unit", q->m < 2 * q->p ? q->m : 2 * q->p, &rc, err);
    if (!rc && (unit < 1 || unit > q->m))
        rc = tu_fail(err, TU_EUSAGE, "zeropp: unit: %llu is not in 1 … m = %u",
                     (unsigned long long)unit, q->m);
    return rc;
}

/* Blocks of `unit` micro-batches, breadth first, W in the waits of its own block. */
static int zeropp(struct tu_sched **out, const struct tu_sched_params *q,
                  struct tu_err *err)
{
    struct tui_build b;
    struct tu_sched *base = NULL, *filled = NULL;
    int rc = 0;
    uint32_t unit =
        (uint32_t)tui_key(q, "unit", q->m < 2 * q->p ? q->m : 2 * q->p, &rc, err);
    bool fsdp = tui_key(q, "fsdp", 1, &rc, err);
    struct tu_cost one;
    tu_cost_init(&one);
    tui_build_begin(&b, q->p, q->p * q->v, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        for (uint32_t at = 0; at < q->m; at += unit)
            breadth(&b, q, r, at, q->m - at < unit ? q->m - at : unit, false, TU_OP_I);
    rc = tui_build_end(&b, &base);
    if (!rc)
        rc = tui_fill_w(&filled, base, q->cost ? q->cost : &one, unit, err);
    if (!rc && fsdp)
        rc = tui_add_fsdp(out, filled, 2, unit, err);
    else if (!rc) {
        *out = filled;
        filled = NULL;
    }
    tu_sched_free(base);
    tu_sched_free(filled);
    return rc;
}

static const char *const group_keys[] = {"group", "extra", NULL};
static const char *const zb_keys[] = {"group", NULL};
static const char *const breadth_keys[] = {"reverse", "fsdp", NULL};
static const char *const zeropp_keys[] = {"unit", "fsdp", NULL};

const struct tu_schedule tui_interleaved = {
    .name = "interleaved-1f1b",
    .help = "1F1B over several chunks per rank",
    .source = "Megatron-LM, 2021",
    .chunks_min = 1,
    .chunks_max = TU_SCHED_MAX,
    .chunks = 2,
    .key = group_keys,
    .grouped = true,
    .legal = group_legal,
    .make = interleaved,
};
const struct tu_schedule tui_breadth_first = {
    .name = "breadth-first",
    .help = "chunk by chunk over all micro-batches",
    .source = "Breadth-First Pipeline Parallelism, 2023",
    .chunks_min = 1,
    .chunks_max = TU_SCHED_MAX,
    .chunks = 2,
    .key = breadth_keys,
    .make = breadth_first,
};
const struct tu_schedule tui_interleaved_zb = {
    .name = "interleaved-zb",
    .help = "interleaved 1F1B with delayed weight gradients",
    .source = "PyTorch, 2024",
    .chunks_min = 1,
    .chunks_max = TU_SCHED_MAX,
    .chunks = 2,
    .key = zb_keys,
    .grouped = true,
    .legal = group_legal,
    .make = interleaved_zb,
};
const struct tu_schedule tui_zeropp = {
    .name = "zeropp",
    .help = "blocks breadth first, W in the gaps, parameters gathered per block",
    .source = "ZeroPP, 2024",
    .chunks_min = 1,
    .chunks_max = TU_SCHED_MAX,
    .chunks = 2,
    .key = zeropp_keys,
    .legal = zeropp_legal,
    .make = zeropp,
    .timed = true,
};
