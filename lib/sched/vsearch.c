/* SPDX-License-Identifier: Apache-2.0 */
/* vsearch.c: the best V schedule among all building blocks of six slots under a memory
 * cap.
 *
 * A block is given by the slots of rank 0 and by the step from rank to rank, which may
 * change once along the ranks; blocks in which two operations of a rank share a slot are
 * left out. Each is expanded (vgrid.c), simulated with the real times, and the shortest
 * is kept, or the one grown by the V heuristic where that is shorter; single operations
 * are then moved while that helps, and a beam looks for a shorter one where there are few.
 * Source: Qi et al., "Pipeline Parallelism with Controllable Memory", 2024, appendix A. */
#include "sched/anneal.h"
#include "sched/memory.h"
#include "sched/vgrid.h"
#include "sched/vsearch.h"

#define PERIOD 6
#define WORK_MAX 600000  /* operations of all blocks that are expanded, at most, */
#define TRIED_MIN 12     /* but so many blocks of any size */
#define BEAM_CELLS 128   /* stages times micro-batches that a beam searches, at most, */
#define BEAM_WIDTH 512   /* so many states of each level */
#define MOVES_MAX 100000 /* single operations moved, at most */
#define MOVED_MAX 120000000 /* operations of all orders that moves make, at most */

struct search {
    const struct tu_sched_params *q;
    struct tu_sched *best;
    int64_t span;
    uint32_t tried, most;
    int64_t least_peak; /* over all blocks tried */
};

/* First slot at or after `from` that is congruent to `slot`. */
static int32_t after(int32_t from, int32_t slot)
{
    int32_t d = (slot - from) % PERIOD;
    return from + (d < 0 ? d + PERIOD : d);
}

/* Slots of micro-batch 0 on every rank; false when a rank has two operations in one slot.
 */
static bool block_of(int32_t (*block)[TUI_V_ROWS], uint32_t p, const int32_t first[4],
                     const int32_t step[2], uint32_t turn)
{
    int32_t down = 0;
    for (uint32_t r = 0; r < p; r++) {
        block[r][TUI_V_F] = down;
        down += r < turn ? step[0] : step[1];
    }
    /* The second chunk's F climbs one slot a rank from the last rank up to rank 0. */
    int32_t up = (int32_t)p - 1;
    int32_t top = after(block[p - 1][TUI_V_F] + 1 + up, first[TUI_V_F2]);
    for (uint32_t r = 0; r < p; r++)
        block[r][TUI_V_F2] = top - (int32_t)r;
    int32_t back = after(top + 1, first[TUI_V_I2]);
    for (uint32_t r = 0; r < p; r++)
        block[r][TUI_V_I2] = back + block[r][TUI_V_F];
    top = after(block[p - 1][TUI_V_I2] + 1 + up, first[TUI_V_I]);
    for (uint32_t r = 0; r < p; r++)
        block[r][TUI_V_I] = top - (int32_t)r;
    for (uint32_t r = 0; r < p; r++) {
        unsigned seen = 0;
        for (int k = 0; k < TUI_V_ROWS; k++) {
            unsigned bit = 1u << block[r][k] % PERIOD;
            if (seen & bit)
                return false;
            seen |= bit;
        }
    }
    return true;
}

/* Activations live for so many slots in a block that about a sixth of their sum is held
 * at once: too much for the cap, or so little that a block that holds more is shorter. */
static bool hopeless(const struct search *s, const int32_t (*block)[TUI_V_ROWS])
{
    int64_t most = 0, chunk = s->q->cost->mem_b ? s->q->cost->mem_b : 2;
    for (uint32_t r = 0; r < s->q->p; r++) {
        int64_t life = block[r][TUI_V_I] - block[r][TUI_V_F] + block[r][TUI_V_I2] -
                       block[r][TUI_V_F2];
        most = life > most ? life : most;
    }
    int64_t held = most / PERIOD, cap = s->q->cap / chunk, all = 2 * (int64_t)s->q->p;
    if (held > cap + 1)
        return true;
    return s->best && held + 3 < (cap < all ? cap : all);
}

/* Keep `one` if it is valid, under the cap and shorter; takes it over. */
static int judge(struct search *s, struct tu_sched *one, struct tu_err *err)
{
    struct tu_sim sim = {0};
    size_t faults = 0;
    int rc = tu_sim_run(&sim, one, s->q->cost, NULL, &faults, err);
    if (!rc && !faults) {
        int64_t peak = 0;
        for (uint32_t r = 0; r < s->q->p; r++)
            peak = sim.peak[r] > peak ? sim.peak[r] : peak;
        s->least_peak = peak < s->least_peak ? peak : s->least_peak;
        if (peak <= s->q->cap && sim.span < s->span) {
            struct tu_sched *old = s->best;
            s->best = one;
            s->span = sim.span;
            one = old;
        }
    }
    tu_sim_release(&sim);
    tu_sched_free(one);
    return rc;
}

static int try(struct search *s, const int32_t (*block)[TUI_V_ROWS], struct tu_err *err)
{
    struct tui_build b;
    struct tu_sched *one = NULL;
    tui_build_begin(&b, s->q->p, 2 * s->q->p, 1, s->q->m, err);
    tui_place_snake(&b);
    if (!b.code)
        b.code = tui_v_expand(&b, block, err);
    int rc = tui_build_end(&b, &one);
    return rc ? rc : judge(s, one, err);
}

/* The schedule that grows with the times; it may not fit. */
static int grown(struct search *s, struct tu_err *err)
{
    struct tu_sched *one = NULL;
    int rc = tu_schedule_make(&one, tu_schedule_find("zb-v-auto"), s->q, err);
    if (rc)
        return rc == TU_EUSAGE ? 0 : rc;
    return judge(s, one, err);
}

/* An order as a candidate. */
static int judge_order(struct search *s, const struct tui_problem *x,
                       const struct tui_order *o, struct tu_err *err)
{
    struct tu_sched *one = NULL;
    int rc = tui_order_sched(&one, x, o, err);
    return rc ? rc : judge(s, one, err);
}

static int beam(struct search *s, const struct tui_problem *x, struct tu_err *err)
{
    struct tui_order o = {0};
    struct tui_beam_result r = {0};
    const struct tui_beam how = {.width = BEAM_WIDTH};
    int rc = 0;
    if ((uint64_t)x->stages * x->m <= BEAM_CELLS)
        rc = tui_beam_search(x, &how, s->span, &o, &r, err);
    if (!rc && r.found && o.value < INT64_MAX)
        rc = judge_order(s, x, &o, err);
    tui_order_release(&o);
    return rc;
}

/* Single operations of the best to other places. */
static int moves(struct search *s, const struct tui_problem *x, int64_t bound,
                 struct tu_err *err)
{
    struct tui_order o = {0};
    bool fits = false;
    int rc = tui_order_of(x, s->best, &o, &fits, err);
    if (!rc && fits)
        rc = tui_order_value(x, &o, err);
    if (!rc && fits && o.value < INT64_MAX) {
        uint64_t tries = MOVED_MAX / (6 * (uint64_t)s->q->p * s->q->m);
        rc = tui_anneal(
            x, &o,
            &(struct tui_moves){.tries = tu_min(tries, MOVES_MAX), .target = bound}, err);
        if (!rc)
            rc = judge_order(s, x, &o, err);
    }
    tui_order_release(&o);
    return rc;
}

/* Better than any block, as far as that pays. */
static int improve(struct search *s, struct tu_err *err)
{
    struct tui_problem x;
    int rc = tui_problem_make(&x, s->best->place, s->best->stages, s->q, err);
    if (rc)
        return rc;
    int64_t work = tui_bound_work(&x), path = tui_bound_path(&x);
    int64_t bound = work > path ? work : path;
    if (s->span > bound)
        rc = moves(s, &x, bound, err);
    if (!rc && s->span > bound)
        rc = beam(s, &x, err);
    tui_problem_release(&x);
    return rc;
}

static int blocks(struct search *s, int32_t (*block)[TUI_V_ROWS], const int32_t first[4],
                  struct tu_err *err)
{
    for (int32_t a = 1; a < PERIOD; a++)
        for (int32_t b = 1; b <= a; b++)
            for (uint32_t turn = 1; turn < (a == b ? 2 : s->q->p); turn++) {
                if (!block_of(block, s->q->p, first, (const int32_t[]){a, b}, turn))
                    continue;
                if (hopeless(s, (const int32_t(*)[TUI_V_ROWS])block))
                    continue;
                if (s->tried++ >= s->most)
                    return 0;
                int rc = try(s, (const int32_t(*)[TUI_V_ROWS])block, err);
                if (rc)
                    return rc;
            }
    return 0;
}

/* Why there is no best: all that were tried need more, or none were worth trying. */
static int nothing(const struct search *s, struct tu_err *err)
{
    char cap[40];
    const struct tu_sched_params *q = s->q;
    if (s->least_peak < INT64_MAX)
        return tui_cap_low(q->cost, 2, q->cap, "the least that was found", s->least_peak,
                           err);
    int64_t unit = q->cost ? tu_cost_unit(q->cost, 2) : 4;
    return tu_fail(err, TU_EUSAGE,
                   "memory cap %s: none of the schedules in a V keeps to it (in M_B, "
                   "activations of a rank's share of a micro-batch)",
                   tu_ticks_text(q->cap, unit, cap));
}

int tui_search_v(struct tu_sched **out, const struct tu_sched_params *q, bool move,
                 struct tu_err *err)
{
    struct search s = {.q = q, .span = INT64_MAX, .least_peak = INT64_MAX};
    s.most = WORK_MAX / (6 * q->p * q->m) + TRIED_MIN;
    int32_t(*block)[TUI_V_ROWS] = tu_alloc(q->p, sizeof *block, err);
    int rc = block ? 0 : TU_ENOMEM;
    for (int32_t f2 = 1; f2 < PERIOD && !rc; f2++)
        for (int32_t i2 = 1; i2 < PERIOD && !rc; i2++)
            for (int32_t i = 1; i < PERIOD && !rc; i++)
                if (f2 != i2 && f2 != i && i2 != i)
                    rc = blocks(&s, block, (const int32_t[]){0, f2, i2, i}, err);
    tu_free(block);
    if (!rc && move)
        rc = grown(&s, err);
    if (!rc && move && s.best)
        rc = improve(&s, err);
    if (!rc && !s.best)
        rc = nothing(&s, err);
    if (rc)
        tu_sched_free(s.best);
    *out = rc ? NULL : s.best;
    return rc;
}
