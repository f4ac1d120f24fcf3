/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c: from a compute-only schedule to one with every communication written down.
 *
 * Gathering follows what a rank will need next; a gradient is reduced after the last
 * backward of its stage; a transfer is written on both of its ranks, at once or directly
 * before its consumer. The compute order never changes. */
#include <string.h>
#include "sched/build.h"
#include "sched/index.h"

static bool computes(const struct tu_op *op)
{
    return op->kind <= TU_OP_R;
}

/* The next `depth` distinct stages from position `from` on. */
static uint32_t ahead(const struct tu_sched *s, uint32_t rank, size_t from, size_t to,
                      uint32_t depth, uint32_t *stage)
{
    uint32_t n = 0;
    for (size_t i = from; i < to && n < depth; i++) {
        uint32_t k = 0;
        if (!computes(&s->op[rank][i]))
            continue;
        while (k < n && stage[k] != s->op[rank][i].stage)
            k++;
        if (k == n)
            stage[n++] = s->op[rank][i].stage;
    }
    return n;
}

static bool among(uint32_t stage, const uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == stage)
            return true;
    return false;
}

/* Keep exactly the stages in want[] gathered: free the others first. */
static void switch_to(struct tui_build *b, uint32_t rank, uint32_t *have, uint32_t *n,
                      const uint32_t *want, uint32_t wanted)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        if (among(have[i], want, wanted))
            have[kept++] = have[i];
        else
            tui_add(b, rank, TU_OP_RESHARD, have[i], 0);
    }
    *n = kept;
    for (uint32_t i = 0; i < wanted; i++)
        if (!among(want[i], have, *n)) {
            have[(*n)++] = want[i];
            tui_add(b, rank, TU_OP_UNSHARD, want[i], 0);
        }
}

/* Which stages of a rank are gathered, and why. */
struct gather {
    uint32_t depth, block;
    uint32_t *left;        /* [stages]: gradients to come */
    size_t *last;          /* [stages]: position that has done with it, of the block */
    uint32_t *have, *want; /* [stages] */
};

/* Where the block that begins at `from` ends; its last uses of each stage. */
static size_t block_end(const struct gather *g, const struct tu_sched *s, uint32_t rank,
                        size_t from)
{
    size_t i = from;
    if (!g->block)
        return s->n[rank];
    uint32_t block = s->op[rank][from].mb / g->block;
    for (; i < s->n[rank] && s->op[rank][i].mb / g->block == block; i++)
        g->last[s->op[rank][i].stage] = i;
    return i;
}

static void gather_rank(struct tui_build *b, const struct tu_sched *s, uint32_t rank,
                        const struct gather *g)
{
    uint32_t n = 0, *left = g->left, *have = g->have, *want = g->want;
    for (size_t i = 0, end = 0; i < s->n[rank]; i++) {
        const struct tu_op *op = &s->op[rank][i];
        if (i == end) {
            if (g->block)
                switch_to(b, rank, have, &n, want, 0);
            end = block_end(g, s, rank, i);
        }
        uint32_t wanted = ahead(s, rank, i, end, g->depth, want);
        for (uint32_t k = 0; g->block && k < n; k++)
            if (g->last[have[k]] >= i && !among(have[k], want, wanted))
                want[wanted++] = have[k];
        switch_to(b, rank, have, &n, want, wanted);
        tui_add_op(b, rank, op);
        if ((op->kind == TU_OP_B || op->kind == TU_OP_W) && --left[op->stage] == 0)
            tui_add(b, rank, TU_OP_REDUCE, op->stage, 0);
    }
    switch_to(b, rank, have, &n, want, 0);
}

static void like(struct tui_build *b, const struct tu_sched *s, struct tu_err *err)
{
    tui_build_begin(b, s->ranks, s->stages, s->pipelines, s->microbatches, err);
    if (b->code)
        return;
    b->s->slices = s->slices;
    b->s->deps = s->deps;
    b->s->warm = s->warm;
    b->s->stride = s->stride;
    b->s->async = s->async;
    b->s->weights = s->weights;
    b->s->accumulate = s->accumulate;
    memcpy(b->s->name, s->name, sizeof s->name);
    memcpy(b->s->place, s->place, (size_t)s->stages * s->pipelines * sizeof *s->place);
}

int tui_add_fsdp(struct tu_sched **out, const struct tu_sched *base, uint32_t depth,
                 uint32_t block, struct tu_err *err)
{
    struct tui_build b;
    uint32_t all = base->stages * base->pipelines, *left = tu_calloc(all, sizeof *left, err);
    size_t room = (size_t)all + depth; /* for what is kept and what is ahead */
    uint32_t *have = tu_alloc(2 * room, sizeof *have, err);
    size_t *last = tu_calloc(all, sizeof *last, err);
    struct gather g = {depth, block, left, last, have, have ? have + room : NULL};
    like(&b, base, err);
    if (!left || !have || !last)
        b.code = TU_ENOMEM;
    for (uint32_t r = 0; r < base->ranks && !b.code; r++)
        for (size_t i = 0; i < base->n[r]; i++)
            left[base->op[r][i].stage] +=
                base->op[r][i].kind == TU_OP_B || base->op[r][i].kind == TU_OP_W;
    for (uint32_t r = 0; r < base->ranks && !b.code; r++)
        gather_rank(&b, base, r, &g);
    tu_free(left);
    tu_free(last);
    tu_free(have);
    return tui_build_end(&b, out);
}

/* Transfers
 * ------------------------------------------------------------------------------ */

struct transfers {
    const struct tu_sched *s;
    struct tui_index x;
    struct tui_build b;
    uint8_t *done;  /* [ops] */
    uint32_t *next; /* [ranks] */
    bool late;
};

/* The RECV of an operation's input from another rank; false if it needs none. */
static bool recv_of(const struct tu_sched *s, const struct tu_op *op, struct tu_op *recv)
{
    uint32_t k = tui_within(s, op->stage);
    bool fwd = op->kind == TU_OP_F, bwd = op->kind == TU_OP_B || op->kind == TU_OP_I;
    *recv = *op;
    recv->flags = 0;
    if (fwd && k && s->place[op->stage - 1] != s->place[op->stage])
        recv->kind = TU_OP_RECV_F;
    else if (bwd && k + 1 < s->stages && s->place[op->stage + 1] != s->place[op->stage])
        recv->kind = TU_OP_RECV_B;
    else
        return false;
    return true;
}

/* SEND here and, unless it is to stand before its consumer, RECV on the other rank. */
static void send(struct transfers *t, uint32_t rank, const struct tu_op *op)
{
    const struct tu_sched *s = t->s;
    bool fwd = op->kind == TU_OP_F;
    uint32_t k = tui_within(s, op->stage), to = fwd ? op->stage + 1 : op->stage - 1;
    if ((!fwd && op->kind != TU_OP_B && op->kind != TU_OP_I) ||
        (fwd ? k + 1 == s->stages : k == 0) || s->place[to] == rank)
        return;
    struct tu_op message = *op;
    message.flags = 0;
    message.kind = fwd ? TU_OP_SEND_F : TU_OP_SEND_B;
    tui_add_op(&t->b, rank, &message);
    message.kind = fwd ? TU_OP_RECV_F : TU_OP_RECV_B;
    message.stage = to;
    if (!t->late)
        tui_add_op(&t->b, s->place[to], &message);
}

static bool has_inputs(struct transfers *t, const struct tu_op *op)
{
    struct tui_need need[TUI_NEEDS];
    unsigned n = tui_needs(&t->x, op, need);
    for (unsigned i = 0; i < n; i++)
        if (need[i].op == TUI_NONE || !t->done[need[i].op])
            return false;
    return true;
}

/* One operation (or pair) of a rank; false if its input is not there. */
static bool visit(struct transfers *t, uint32_t rank)
{
    const struct tu_op *op = &t->s->op[rank][t->next[rank]];
    unsigned n = op->flags & TU_OP_PAIRED ? 2 : 1;
    struct tu_op recv;
    for (unsigned i = 0; i < n; i++)
        if (!has_inputs(t, op + i))
            return false;
    for (unsigned i = 0; i < n && t->late; i++)
        if (recv_of(t->s, op + i, &recv))
            tui_add_op(&t->b, rank, &recv);
    for (unsigned i = 0; i < n; i++) {
        tui_add_op(&t->b, rank, op + i);
        t->done[t->x.base[rank] + t->next[rank]++] = 1;
    }
    for (unsigned i = 0; i < n; i++)
        send(t, rank, op + i);
    return true;
}

static int transfers(struct tu_sched **out, const struct tu_sched *s, bool late,
                     struct tu_err *err)
{
    struct transfers t = {.s = s, .late = late};
    size_t faults, left;
    int rc = tui_index_make(&t.x, s, NULL, &faults, err);
    like(&t.b, s, err);
    t.done = tu_calloc(t.x.ops, 1, err);
    t.next = tu_calloc(s->ranks, sizeof *t.next, err);
    if (!rc && faults)
        rc =
            tu_fail(err, TU_EUSAGE, "lower: the schedule is not valid: run verify on it");
    if (rc || !t.done || !t.next)
        t.b.code = t.b.code ? t.b.code : rc ? rc : TU_ENOMEM;
    left = t.x.ops;
    while (left && !t.b.code) {
        size_t before = left;
        for (uint32_t r = 0; r < s->ranks; r++) {
            uint32_t at = t.next[r];
            if (at < s->n[r] && visit(&t, r))
                left -= t.next[r] - at;
        }
        if (left == before)
            t.b.code = tu_fail(err, TU_EUSAGE,
                               "lower: the schedule deadlocks: run verify on it");
    }
    tui_index_release(&t.x);
    tu_free(t.done);
    tu_free(t.next);
    return tui_build_end(&t.b, out);
}

/* An I and the W directly behind it, of the same unit, as one B. */
static int merged(struct tu_sched **out, const struct tu_sched *s, struct tu_err *err)
{
    struct tui_build b;
    like(&b, s, err);
    for (uint32_t r = 0; r < s->ranks && !b.code; r++)
        for (size_t i = 0; i < s->n[r]; i++) {
            struct tu_op op = s->op[r][i];
            const struct tu_op *w = i + 1 < s->n[r] ? &s->op[r][i + 1] : &op;
            if (op.kind == TU_OP_I && w->kind == TU_OP_W && w->stage == op.stage &&
                w->mb == op.mb && w->slice == op.slice) {
                op.kind = TU_OP_B;
                i++;
            }
            tui_add_op(&b, r, &op);
        }
    return tui_build_end(&b, out);
}

static bool is_backward(const struct tu_op *op)
{
    return op->kind == TU_OP_B || op->kind == TU_OP_I;
}

/* The same unit as `op`, another kind. */
static void add_for(struct tui_build *b, uint32_t rank, const struct tu_op *op,
                    enum tu_op_kind kind)
{
    struct tu_op more = *op;
    more.kind = (uint8_t)kind;
    more.flags = 0;
    tui_add_op(b, rank, &more);
}

static size_t group(const struct tu_sched *s, uint32_t r, size_t i)
{
    return i >= s->n[r] ? 0 : s->op[r][i].flags & TU_OP_PAIRED ? 2 : 1;
}

/* Is the other half of this unit among the n operations from `list` on? */
static bool partner(const struct tu_op *op, const struct tu_op *list, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (is_backward(op) != is_backward(&list[k]) && list[k].kind != TU_OP_W &&
            list[k].stage == op->stage && list[k].mb == op->mb &&
            list[k].slice == op->slice)
            return true;
    return false;
}

/* What a rank holds between a forward and its backward: a checkpoint, and R before the
 * backward; or nothing: OFFLOAD behind the forward and FETCH one operation ahead of use.
 * A forward whose backward is next keeps everything. */
static int hold_less(struct tu_sched **out, const struct tu_sched *s,
                     const struct tu_lower *how, struct tu_err *err)
{
    struct tui_build b;
    like(&b, s, err);
    for (uint32_t r = 0; r < s->ranks && !b.code; r++)
        for (size_t i = 0, n; i < s->n[r]; i += n) {
            const struct tu_op *op = &s->op[r][i], *next = op + (n = group(s, r, i));
            size_t more = group(s, r, i + n);
            for (size_t k = 0; how->offload && k < more; k++)
                if (is_backward(&next[k]) && !partner(&next[k], op, n))
                    add_for(&b, r, &next[k], TU_OP_FETCH);
            for (size_t k = 0; how->recompute && k < n; k++)
                if (is_backward(&op[k]))
                    add_for(&b, r, &op[k], TU_OP_R);
            for (size_t k = 0; k < n; k++)
                tui_add_op(&b, r, &op[k]);
            for (size_t k = 0; how->offload && k < n; k++)
                if (op[k].kind == TU_OP_F && !partner(&op[k], next, more))
                    add_for(&b, r, &op[k], TU_OP_OFFLOAD);
        }
    return tui_build_end(&b, out);
}

/* Take the result of one step as the input of the next. */
static void step(const struct tu_sched **now, struct tu_sched **own,
                 struct tu_sched *made)
{
    tu_sched_free(*own);
    *now = *own = made;
}

/* What is there cannot be written again. */
static int written(const struct tu_sched *s, const struct tu_lower *how, struct tu_err *err)
{
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++) {
            unsigned kind = s->op[r][i].kind;
            bool gathers = kind >= TU_OP_UNSHARD && kind <= TU_OP_REDUCE;
            if (gathers ? how->depth != 0 : kind >= TU_OP_SEND_F)
                return tu_fail(
                    err, TU_EUSAGE, "lower: rank %u, position %zu: %s written already%s", r,
                    i, gathers ? "gathers are" : "communication is",
                    gathers ? "; with --prefetch 0 they are kept" : "");
        }
    return 0;
}

int tu_sched_lower(struct tu_sched **out, const struct tu_sched *s,
                   const struct tu_lower *how, struct tu_err *err)
{
    struct tu_sched *own = NULL, *made = NULL;
    const struct tu_sched *now = s;
    int rc = 0;
    *out = NULL;
    if (s->deps == TU_DEPS_DIFFUSION && how->transfers)
        return tu_fail(err, TU_EUSAGE,
                       "lower: the broadcasts of a diffusion are no SEND and RECV");
    rc = written(s, how, err);
    if (rc)
        return rc;
    if (how->merge && !(rc = merged(&made, now, err)))
        step(&now, &own, made);
    if (!rc && (how->recompute || how->offload) &&
        !(rc = hold_less(&made, now, how, err)))
        step(&now, &own, made);
    if (!rc && how->depth && !(rc = tui_add_fsdp(&made, now, how->depth, 0, err)))
        step(&now, &own, made);
    if (!rc && how->transfers && !(rc = transfers(&made, now, how->late, err)))
        step(&now, &own, made);
    if (rc) {
        tu_sched_free(own);
        return rc;
    }
    return own ? (*out = own, 0) : tu_sched_strip(out, s, err);
}

int tu_sched_strip(struct tu_sched **out, const struct tu_sched *s, struct tu_err *err)
{
    struct tui_build b;
    like(&b, s, err);
    for (uint32_t r = 0; r < s->ranks && !b.code; r++)
        for (size_t i = 0; i < s->n[r]; i++)
            if (s->op[r][i].kind < TU_OP_SEND_F || s->op[r][i].kind > TU_OP_REDUCE)
                tui_add_op(&b, r, &s->op[r][i]);
    return tui_build_end(&b, out);
}
