/* SPDX-License-Identifier: Apache-2.0 */
/* fam_v.c: two chunks per rank in a V: ZB-V, and V schedules of controllable memory.
 *
 * Sources: Qi et al., "Zero Bubble Pipeline Parallelism", 2024 (ZB-V), and "Pipeline
 * Parallelism with Controllable Memory", 2024 (V-Min, V-Half, V-ZB). */
#include "sched/families.h"
#include "sched/vgrid.h"
#include "sched/vsearch.h"

/* One rank of ZB-V. Operations past the last micro-batch are left out. */
struct zbv {
    struct tui_build *b;
    uint32_t rank, m;
    uint32_t stage[2];
    uint32_t n[TU_OP_W + 1][2]; /* next micro-batch of each kind and chunk */
};

static void op(struct zbv *z, enum tu_op_kind kind, int chunk)
{
    uint32_t mb = z->n[kind][chunk]++;
    if (mb < z->m)
        tui_add(z->b, z->rank, kind, z->stage[chunk], mb);
}

static void zbv_rank(struct zbv *z, uint32_t p)
{
    enum { A, B };
    uint32_t r = z->rank, full = z->m > 2 * p - 1 ? z->m : 2 * p - 1;
    for (uint32_t i = 0; i < 2 * (p - r) - 1; i++)
        op(z, TU_OP_F, A);
    for (uint32_t i = 0; i < r; i++)
        op(z, TU_OP_F, B), op(z, TU_OP_F, A);
    for (uint32_t i = 0; i < p - r; i++)
        op(z, TU_OP_F, B), op(z, TU_OP_I, B), op(z, TU_OP_W, B);
    while (z->n[TU_OP_F][B] < z->n[TU_OP_F][A] || z->n[TU_OP_F][A] < full) {
        if (z->n[TU_OP_F][A] < full)
            op(z, TU_OP_F, A);
        op(z, TU_OP_I, A), op(z, TU_OP_W, A);
        op(z, TU_OP_F, B), op(z, TU_OP_I, B), op(z, TU_OP_W, B);
    }
    for (uint32_t i = 0; i < r; i++)
        op(z, TU_OP_I, A), op(z, TU_OP_I, B);
    for (uint32_t i = 0; i < p - r; i++)
        op(z, TU_OP_I, A), op(z, TU_OP_W, A);
    while (z->n[TU_OP_W][B] < full)
        op(z, TU_OP_W, B);
    while (z->n[TU_OP_W][A] < full)
        op(z, TU_OP_W, A);
}

static int zbv(struct tu_sched **out, const struct tu_sched_params *q, struct tu_err *err)
{
    struct tui_build b;
    tui_build_begin(&b, q->p, 2 * q->p, 1, q->m, err);
    tui_place_snake(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        zbv_rank(
            &(struct zbv){.b = &b, .rank = r, .m = q->m, .stage = {r, 2 * q->p - 1 - r}},
            q->p);
    return tui_build_end(&b, out);
}

static int from_block(struct tu_sched **out, const struct tu_sched_params *q,
                      const int32_t first[4], const int32_t step[4], struct tu_err *err)
{
    struct tui_build b;
    int32_t(*block)[TUI_V_ROWS] = tu_alloc(q->p, sizeof *block, err);
    tui_build_begin(&b, q->p, 2 * q->p, 1, q->m, err);
    tui_place_snake(&b);
    b.code = b.code ? b.code : block ? 0 : TU_ENOMEM;
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        for (int k = 0; k < TUI_V_ROWS; k++)
            block[r][k] = first[k] + step[k] * (int32_t)r;
    if (!b.code)
        b.code = tui_v_expand(&b, (const int32_t(*)[TUI_V_ROWS])block, err);
    tu_free(block);
    return tui_build_end(&b, out);
}

static int v_min(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    int32_t p = (int32_t)q->p, d = q->p % 3 ? 0 : 2;
    return from_block(out, q, (const int32_t[]){0, 2 * p - 1, 2 * p + d, 4 * p + d - 1},
                      (const int32_t[]){1, -1, 1, -1}, err);
}

static int v_half(struct tu_sched **out, const struct tu_sched_params *q,
                  struct tu_err *err)
{
    int32_t p = (int32_t)q->p, d = q->p % 2 ? 0 : 3;
    return from_block(out, q,
                      (const int32_t[]){0, 3 * p - 2, 3 * p + d - 1, 6 * p + d - 2},
                      (const int32_t[]){2, -1, 2, -1}, err);
}

static int of_blocks(struct tu_sched **out, const struct tu_sched_params *q, bool move,
                     struct tu_err *err)
{
    struct tu_sched_params with = *q;
    struct tu_cost one;
    tu_cost_init(&one);
    if (!with.cost)
        with.cost = &one;
    if (!with.cap)
        with.cap = 2 * (int64_t)q->p * (with.cost->mem_b ? with.cost->mem_b : 2);
    return tui_search_v(out, &with, move, err);
}

static int v_zb(struct tu_sched **out, const struct tu_sched_params *q,
                struct tu_err *err)
{
    return of_blocks(out, q, false, err);
}

static int v_search(struct tu_sched **out, const struct tu_sched_params *q,
                    struct tu_err *err)
{
    return of_blocks(out, q, true, err);
}

const struct tu_schedule tui_zb_v = {
    .name = "zb-v",
    .help = "zero bubble in a V, memory of 1F1B",
    .source = "Zero Bubble, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .make = zbv,
};
const struct tu_schedule tui_v_min = {
    .name = "v-min",
    .help = "V with a third of 1F1B's memory",
    .source = "Controllable Memory, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .make = v_min,
};
const struct tu_schedule tui_v_half = {
    .name = "v-half",
    .help = "V with half of 1F1B's memory",
    .source = "Controllable Memory, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .make = v_half,
};
const struct tu_schedule tui_v_zb = {
    .name = "v-zb",
    .help = "V without a bubble, memory of 1F1B",
    .source = "Controllable Memory, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .make = v_zb,
    .caps = true,
};
const struct tu_schedule tui_v_search = {
    .name = "v-search",
    .help = "the best V found under --memory-cap for the times given",
    .source = "Controllable Memory, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .make = v_search,
    .caps = true,
};
