/* SPDX-License-Identifier: Apache-2.0 */
/* index.h: where each operation of a schedule stands, and what it waits for.
 *
 * The rules of dependence are here and nowhere else: the simulator, the lowering pass,
 * the pictures and the search ask tui_needs(). */
#ifndef TUI_SCHED_INDEX_H
#define TUI_SCHED_INDEX_H

#include "sched/build.h"

#define TUI_NONE UINT32_MAX

/* Tables of positions; B and I share one, for a unit has only one of them. */
enum tui_slot {
    TUI_AT_F,
    TUI_AT_B,
    TUI_AT_W,
    TUI_AT_R,
    TUI_AT_SEND_F,
    TUI_AT_RECV_F,
    TUI_AT_SEND_B,
    TUI_AT_RECV_B,
    TUI_AT_OFFLOAD,
    TUI_AT_FETCH,
    TUI_SLOTS
};

struct tui_index {
    const struct tu_sched *s;
    size_t units; /* micro-batches × slices */
    size_t ops;
    size_t *base;            /* [ranks+1] */
    uint32_t *at[TUI_SLOTS]; /* [stages][units]: operation number, TUI_NONE; NULL: no such
                                kind */
    uint8_t *pipe;  /* [microbatches]: pipeline that a micro-batch travels through */
    uint32_t kinds; /* a bit for each kind that occurs */
};

/* Fill it, appending a line to `report` (may be NULL) for each structural fault: unknown
 * stage, wrong rank, repeated, missing or contradictory operation. */
TU_MUST int tui_index_make(struct tui_index *x, const struct tu_sched *s,
                           struct tu_buf *report, size_t *faults, struct tu_err *err);
void tui_index_release(struct tui_index *x);

/* What an operation waits for besides its predecessor on the rank. */
struct tui_need {
    uint32_t op;   /* number; TUI_NONE: missing from the schedule (a fault) */
    uint32_t rank; /* that runs it */
    bool transfer; /* a transfer lies between */
    bool backward; /* of a gradient */
};
#define TUI_NEEDS (TUI_RANKS_ALL + 1)
/* Fills need[], returns how many; those on other ranks and on the same one alike. */
unsigned tui_needs(const struct tui_index *x, const struct tu_op *op,
                   struct tui_need need[TUI_NEEDS]);

static inline const struct tu_op *tui_op(const struct tui_index *x, uint32_t number,
                                         uint32_t *rank)
{
    uint32_t lo = 0, hi = x->s->ranks;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (x->base[mid] <= number)
            lo = mid;
        else
            hi = mid;
    }
    if (rank)
        *rank = lo;
    return &x->s->op[lo][number - x->base[lo]];
}

static inline uint32_t tui_find(const struct tui_index *x, enum tui_slot slot,
                                uint32_t stage, size_t unit)
{
    const uint32_t *at = x->at[slot];
    return at ? at[(size_t)tui_within(x->s, stage) * x->units + unit] : TUI_NONE;
}

/* Which unit of its stage an operation is of. */
static inline size_t tui_unit(const struct tu_sched *s, const struct tu_op *op)
{
    return (size_t)op->mb * s->slices + op->slice;
}

static inline bool tui_occurs(const struct tui_index *x, enum tu_op_kind kind)
{
    return x->kinds >> kind & 1;
}

/* The table that a kind stands in, TUI_SLOTS for those without one. */
enum tui_slot tui_slot_of(unsigned kind);

/* A line "rank R, position P (TEXT): …" without its end. */
int tui_where(struct tu_buf *report, const struct tu_sched *s, uint32_t rank, size_t pos,
              struct tu_err *err);

#endif
