/* SPDX-License-Identifier: Apache-2.0 */
/* index.c: structural rules of a schedule and its rules of dependence.
 *
 * Works from the operations alone, without knowing who made them. Dead ends in time
 * (cycles) are found by running it: sim.c. */
#include <stdio.h>
#include <string.h>
#include "sched/faults.h"
#include "sched/index.h"
#include "sched/sharded.h"

static const uint8_t slot_of[TU_OP_KINDS] = {
    [TU_OP_F] = TUI_AT_F,           [TU_OP_B] = TUI_AT_B,
    [TU_OP_I] = TUI_AT_B,           [TU_OP_W] = TUI_AT_W,
    [TU_OP_R] = TUI_AT_R,           [TU_OP_OPT] = TUI_SLOTS,
    [TU_OP_SEND_F] = TUI_AT_SEND_F, [TU_OP_RECV_F] = TUI_AT_RECV_F,
    [TU_OP_SEND_B] = TUI_AT_SEND_B, [TU_OP_RECV_B] = TUI_AT_RECV_B,
    [TU_OP_UNSHARD] = TUI_SLOTS,    [TU_OP_RESHARD] = TUI_SLOTS,
    [TU_OP_REDUCE] = TUI_SLOTS,     [TU_OP_OFFLOAD] = TUI_AT_OFFLOAD,
    [TU_OP_FETCH] = TUI_AT_FETCH,
};

enum tui_slot tui_slot_of(unsigned kind)
{
    return (enum tui_slot)slot_of[kind];
}

int tui_where(struct tu_buf *report, const struct tu_sched *s, uint32_t rank, size_t pos,
              struct tu_err *err)
{
    char text[40];
    return tu_buf_printf(report, err, "rank %u, position %zu (%s): ", rank, pos,
                         tu_op_text(&s->op[rank][pos], s->slices, text));
}

static int enter(struct tui_index *x, struct tui_faults *f, uint32_t rank, size_t pos)
{
    const struct tu_sched *s = x->s;
    const struct tu_op *op = &s->op[rank][pos];
    const char *why = NULL;
    unsigned slot = op->kind < TU_OP_KINDS ? slot_of[op->kind] : TUI_SLOTS;
    if (op->kind >= TU_OP_KINDS)
        why = "no such kind of operation";
    else if (op->kind != TU_OP_OPT && op->stage >= s->pipelines * s->stages)
        why = "no such stage";
    else if (op->kind != TU_OP_OPT && s->place[op->stage] != rank)
        why = "this stage lives on another rank";
    else if (slot != TUI_SLOTS && (op->mb >= s->microbatches || op->slice >= s->slices))
        why = "no such micro-batch";
    else if (op->flags & TU_OP_PAIRED && (pos + 1 >= s->n[rank] || op->kind != TU_OP_F ||
                                          (s->op[rank][pos + 1].kind != TU_OP_B &&
                                           s->op[rank][pos + 1].kind != TU_OP_I)))
        why = "an overlapped pair is a forward and a backward";
    if (why) {
        tui_op_fault(f, s, rank, pos, why);
        return 0;
    }
    x->kinds |= 1u << op->kind;
    if (slot == TUI_SLOTS)
        return 0;
    if (!x->at[slot]) {
        size_t cells = (size_t)s->stages * x->units;
        x->at[slot] = tu_alloc(cells, sizeof *x->at[slot], f->err);
        if (!x->at[slot])
            return TU_ENOMEM;
        memset(x->at[slot], 0xff, cells * sizeof *x->at[slot]);
    }
    uint32_t pipe = tui_pipe(s, op->stage), within = tui_within(s, op->stage);
    if (x->pipe[op->mb] == 0xff)
        x->pipe[op->mb] = (uint8_t)pipe;
    uint32_t *cell =
        &x->at[slot][within * x->units + (size_t)op->mb * s->slices + op->slice];
    if (x->pipe[op->mb] != pipe)
        tui_op_fault(f, s, rank, pos, "this micro-batch travels through the other pipeline");
    else if (*cell != TUI_NONE)
        tui_op_fault(f, s, rank, pos,
                 slot == TUI_AT_B ? "a second backward of the same unit"
                                  : "the same operation a second time");
    else
        *cell = (uint32_t)(x->base[rank] + pos);
    return 0;
}

bool tui_due(const struct tu_sched *s, uint32_t stage, uint32_t mb)
{
    if (s->deps != TU_DEPS_DIFFUSION)
        return true;
    uint32_t extra = s->stages - s->stride + 1; /* the stage that stride 2 adds */
    if (mb < s->warm)
        return stage < extra;
    bool later = (mb - s->warm + 1) % s->stride == 0 || mb + 1 == s->microbatches;
    return later == (stage < extra);
}

/* Is the backward with this number, of this stage, one with the weight gradient in it? */
static bool is_full(const struct tui_index *x, uint32_t stage, uint32_t bwd)
{
    uint32_t rank = x->s->place[stage];
    return !tui_occurs(x, TU_OP_I) ||
           x->s->op[rank][bwd - x->base[rank]].kind == TU_OP_B;
}

/* Each unit: one F; one of B or I and W; W only after I. */
static void complete(struct tui_index *x, struct tui_faults *f)
{
    const struct tu_sched *s = x->s;
    bool train = s->deps == TU_DEPS_TRAIN;
    for (uint32_t k = 0; k < s->stages; k++)
        for (size_t u = 0; u < x->units; u++) {
            uint32_t pipe = x->pipe[u / s->slices] == 1 ? 1 : 0;
            uint32_t stage = k + pipe * s->stages;
            uint32_t fwd = tui_find(x, TUI_AT_F, k, u), bwd = tui_find(x, TUI_AT_B, k, u);
            uint32_t w = tui_find(x, TUI_AT_W, k, u);
            if (fwd == TUI_NONE && tui_due(s, k, (uint32_t)(u / s->slices)))
                tui_unit_fault(f, s, stage, u, "F is missing");
            if (!train) {
                if (bwd != TUI_NONE || w != TUI_NONE)
                    tui_unit_fault(f, s, stage, u, "a backward in a forward-only schedule");
                continue;
            }
            if (bwd == TUI_NONE) {
                tui_unit_fault(f, s, stage, u,
                           w == TUI_NONE ? "its backward is missing" : "W without I");
                continue;
            }
            bool full = is_full(x, stage, bwd);
            if (full && w != TUI_NONE)
                tui_unit_fault(f, s, stage, u,
                               "both B and W: B holds the weight gradient, but in files of "
                               "torch before 2.6 (--old-b)");
            else if (!full && w == TUI_NONE)
                tui_unit_fault(f, s, stage, u, "I without W");
        }
}

/* Transfers that are written down must have both ends. */
static void ends_meet(struct tui_index *x, struct tui_faults *f)
{
    const struct tu_sched *s = x->s;
    static const struct {
        uint8_t send, recv;
        int step;
    } way[] = {
        {TUI_AT_SEND_F, TUI_AT_RECV_F, 1},
        {TUI_AT_SEND_B, TUI_AT_RECV_B, -1},
    };
    for (size_t i = 0; i < 2; i++) {
        if (!x->at[way[i].send] && !x->at[way[i].recv])
            continue;
        for (uint32_t k = 0; k < s->stages; k++)
            for (size_t u = 0; u < x->units; u++) {
                uint32_t pipe = x->pipe[u / s->slices] == 1 ? 1 : 0;
                uint32_t stage = k + pipe * s->stages;
                uint32_t to = k + (uint32_t)way[i].step; /* wraps below 0 */
                bool out = tui_find(x, way[i].send, k, u) != TUI_NONE;
                bool in = to < s->stages && tui_find(x, way[i].recv, to, u) != TUI_NONE;
                bool self =
                    to < s->stages && s->place[stage] == s->place[to + pipe * s->stages];
                uint32_t from = k - (uint32_t)way[i].step;
                if (from >= s->stages && tui_find(x, way[i].recv, k, u) != TUI_NONE)
                    tui_unit_fault(f, s, stage, u, "a RECV at the beginning of the pipeline");
                if (out && to >= s->stages)
                    tui_unit_fault(f, s, stage, u, "a SEND from the end of the pipeline");
                else if (out && self)
                    tui_unit_fault(f, s, stage, u, "a SEND to its own rank");
                else if (out && !in)
                    tui_unit_fault(f, s, stage, u, "a SEND without its RECV");
                else if (!out && in)
                    tui_unit_fault(f, s, stage, u, "a RECV waits for a SEND that is missing");
                else if (!out && to < s->stages && !self)
                    tui_unit_fault(f, s, stage, u,
                               "its result is not sent to the next stage");
            }
    }
}

int tui_index_make(struct tui_index *x, const struct tu_sched *s, struct tu_buf *report,
                   size_t *faults, struct tu_err *err)
{
    struct tui_faults f = {.report = report, .err = err};
    *x = (struct tui_index){.s = s, .units = (size_t)s->microbatches * s->slices};
    uint64_t cells = (uint64_t)s->stages * x->units;
    x->ops = tu_sched_ops(s);
    if (cells > TU_SCHED_OPS_MAX || x->ops >= TUI_NONE)
        return tu_fail(err, TU_EUSAGE, "schedule: %llu stages times units is over %llu",
                       (unsigned long long)cells, (unsigned long long)TU_SCHED_OPS_MAX);
    if (cells > 4 * (uint64_t)x->ops + 65536) {
        /* Too little for so many units: no tables of a size that the text only claims. */
        *faults = 1;
        return report ? tu_buf_printf(
                            report, err,
                            "%u stages and %zu units need %llu forwards: there are "
                            "%zu operations in all\n",
                            s->stages, x->units, (unsigned long long)cells, x->ops)
                      : 0;
    }
    x->base = tu_alloc((size_t)s->ranks + 1, sizeof *x->base, err);
    x->pipe = tu_alloc(s->microbatches, 1, err);
    if (!x->base || !x->pipe)
        return TU_ENOMEM;
    memset(x->pipe, 0xff, s->microbatches);
    size_t n = 0;
    for (uint32_t r = 0; r < s->ranks; n += s->n[r++])
        x->base[r] = n;
    x->base[s->ranks] = n;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++)
            if (enter(x, &f, r, i))
                return TU_ENOMEM;
    complete(x, &f);
    ends_meet(x, &f);
    if (!f.n && tui_sharded_check(x, &f))
        return TU_ENOMEM;
    *faults = f.n;
    return tui_faults_end(&f);
}

void tui_index_release(struct tui_index *x)
{
    tu_free(x->base);
    tu_free(x->pipe);
    for (int i = 0; i < TUI_SLOTS; i++)
        tu_free(x->at[i]);
    *x = (struct tui_index){0};
}

/* What an operation waits for, while it is being listed. */
struct listing {
    const struct tui_index *x;
    struct tui_need *need;
    unsigned n;
};

enum way { HERE, FORWARD, BACKWARD }; /* the transfer that lies between */

static void need(struct listing *l, enum tui_slot slot, uint32_t stage, size_t unit,
                 enum way way)
{
    l->need[l->n++] = (struct tui_need){tui_find(l->x, slot, stage, unit),
                                        l->x->s->place[stage], way != HERE,
                                        way == BACKWARD};
}

/* The input of a stage: from its neighbour, or from the RECV where transfers are written.
 */
static void input(struct listing *l, const struct tu_op *op, size_t unit, bool backward)
{
    const struct tu_sched *s = l->x->s;
    uint32_t from = backward ? op->stage + 1 : op->stage - 1;
    bool far = s->place[from] != s->place[op->stage];
    enum tui_slot recv = backward ? TUI_AT_RECV_B : TUI_AT_RECV_F;
    if (far && l->x->at[recv])
        need(l, recv, op->stage, unit, HERE);
    else
        need(l, backward ? TUI_AT_B : TUI_AT_F, from, unit,
             !far       ? HERE
             : backward ? BACKWARD
                        : FORWARD);
}

/* A step of the warm-up is a chain; later all that ran for the round before must be there,
 * everywhere. */
static void diffusion(struct listing *l, const struct tu_op *op)
{
    const struct tu_sched *s = l->x->s;
    uint32_t last = s->stages - s->stride, t = op->mb;
    if (t < s->warm) {
        if (op->stage)
            need(l, TUI_AT_F, op->stage - 1, t, HERE);
        else if (t)
            need(l, TUI_AT_F, last, t - 1, HERE);
        return;
    }
    uint32_t round = (t - s->warm) / s->stride;
    if (!round) {
        need(l, TUI_AT_F, last, s->warm - 1, HERE);
        return;
    }
    uint32_t first = s->warm + (round - 1) * s->stride;
    for (uint32_t i = first; i < first + s->stride; i++)
        for (uint32_t k = 0; k < s->stages; k++)
            if (tui_due(s, k, i))
                need(l, TUI_AT_F, k, i, FORWARD);
}

static void forward(struct listing *l, const struct tu_op *op, size_t unit)
{
    const struct tu_sched *s = l->x->s;
    if (s->deps == TU_DEPS_DIFFUSION)
        diffusion(l, op);
    else if (tui_within(s, op->stage))
        input(l, op, unit, false);
    else if (s->deps == TU_DEPS_BLOCKING && op->mb)
        need(l, TUI_AT_F, op->stage + s->stages - 1, unit - 1, HERE);
    if (op->slice)
        need(l, TUI_AT_F, op->stage, unit - 1, HERE);
}

/* What is on the host comes back first. */
static void fetched(struct listing *l, const struct tu_op *op, size_t unit)
{
    if (tui_find(l->x, TUI_AT_OFFLOAD, op->stage, unit) != TUI_NONE)
        need(l, TUI_AT_FETCH, op->stage, unit, HERE);
}

static void backward(struct listing *l, const struct tu_op *op, size_t unit)
{
    const struct tu_sched *s = l->x->s;
    need(l, TUI_AT_F, op->stage, unit, HERE);
    if (tui_within(s, op->stage) + 1 < s->stages)
        input(l, op, unit, true);
    if (op->slice + 1u < s->slices)
        need(l, TUI_AT_B, op->stage, unit + 1, HERE);
    if (tui_find(l->x, TUI_AT_R, op->stage, unit) != TUI_NONE)
        need(l, TUI_AT_R, op->stage, unit, HERE);
    fetched(l, op, unit);
}

unsigned tui_needs(const struct tui_index *x, const struct tu_op *op,
                   struct tui_need list[TUI_NEEDS])
{
    struct listing l = {x, list, 0};
    const struct tu_sched *s = x->s;
    size_t unit = tui_unit(s, op);
    uint32_t k = tui_within(s, op->stage);
    switch ((enum tu_op_kind)op->kind) {
    case TU_OP_F: forward(&l, op, unit); break;
    case TU_OP_B:
    case TU_OP_I: backward(&l, op, unit); break;
    case TU_OP_W:
    case TU_OP_SEND_B: need(&l, TUI_AT_B, op->stage, unit, HERE); break;
    case TU_OP_R:
        need(&l, TUI_AT_F, op->stage, unit, HERE);
        fetched(&l, op, unit);
        break;
    case TU_OP_SEND_F:
    case TU_OP_OFFLOAD: need(&l, TUI_AT_F, op->stage, unit, HERE); break;
    case TU_OP_RECV_F:
        if (k)
            need(&l, TUI_AT_SEND_F, op->stage - 1, unit, FORWARD);
        break;
    case TU_OP_RECV_B:
        if (k + 1 < s->stages)
            need(&l, TUI_AT_SEND_B, op->stage + 1, unit, BACKWARD);
        break;
    case TU_OP_FETCH: need(&l, TUI_AT_OFFLOAD, op->stage, unit, HERE); break;
    default: break; /* OPT, UNSHARD, RESHARD, REDUCE: their place in the rank's order */
    }
    return l.n;
}
