/* SPDX-License-Identifier: Apache-2.0 */
/* alg_fused.c: all-reduce in shared memory, in one pass.
 *
 * Small vectors: everyone lays its own out (two places in turn, so that one barrier is
 * enough) and folds all of them itself. Large ones that all ranks see: rank r owns a
 * slice, reads it from all inputs and stores the result to all outputs. Ordinary memory
 * goes through the stages chunk by chunk: in, fold, out. The order of the fold is the
 * same on every path. */
#include "exec.h"
#include "reduce.h"

#define SMALL ((uint64_t)16 << 10) /* bytes of one of the two places */
#define CHUNK                                                                            \
    ((uint64_t)256 << 10)         /* bytes of a stage that travel at once; two in turn */
#define PAST ((uint64_t)16 << 20) /* from here on results bypass the caches */
#define TILE ((uint64_t)16 << 10) /* bytes folded before they are stored */

_Static_assert(2 * SMALL + 2 * CHUNK <= TUI_STAGE,
               "stages hold the places and the chunks");

static int plan(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err)
{
    (void)p;
    (void)spec;
    (void)err;
    return 0;
}

static unsigned char *stage(const struct tu_exec *x, uint32_t q)
{
    return tui_lanes_stage(x->rank, q);
}

static int fold(struct tu_exec *x, void *to, uint64_t count, struct tu_err *err)
{
    return tu_combine(to, x->src, x->plan.ranks, count, x->dtype, x->fold, x->order, err);
}

static int small(struct tu_exec *x, const void *in, void *out, struct tu_err *err)
{
    uint64_t place = x->rank->turn++ % 2 * SMALL;
    memcpy(stage(x, x->rank->id) + place, in, (size_t)x->plan.count * x->size);
    int code = tu_rank_barrier(x->rank, err);
    for (uint32_t q = 0; q < x->plan.ranks; q++)
        x->src[q] = stage(x, q) + place;
    return code ? code : fold(x, out, x->plan.count, err);
}

/* A slice of vectors that all ranks see, at byte offsets in_at and out_at of their
 * shares. */
static int shared_slice(struct tu_exec *x, uint64_t in_at, uint64_t out_at,
                        struct tu_err *err)
{
    uint32_t me = x->rank->id, n = x->plan.ranks;
    uint64_t first = tui_block_at(x->plan.count, n, me) * x->size;
    uint64_t bytes = tui_block_len(x->plan.count, n, me) * x->size;
    bool past = x->plan.count * x->size >= PAST;
    for (uint64_t at = 0; at < bytes; at += TILE) {
        uint64_t len = tu_min(TILE, bytes - at), off = first + at;
        for (uint32_t q = 0; q < n; q++)
            x->src[q] = (unsigned char *)tu_rank_shared(x->rank, q) + in_at + off;
        unsigned char *mine = (unsigned char *)tu_rank_shared(x->rank, me) + out_at + off;
        int code = fold(x, mine, len / x->size, err);
        if (code)
            return code;
        for (uint32_t i = 1; i < n; i++) {
            uint32_t q = me + i < n ? me + i : me + i - n;
            unsigned char *to =
                (unsigned char *)tu_rank_shared(x->rank, q) + out_at + off;
            if (past)
                tui_copy_past(to, mine, (size_t)len);
            else
                memcpy(to, mine, (size_t)len);
        }
    }
    return 0;
}

static int through_stages(struct tu_exec *x, const unsigned char *in, unsigned char *out,
                          struct tu_err *err)
{
    uint32_t me = x->rank->id, n = x->plan.ranks;
    uint64_t per = CHUNK / x->size; /* elements */
    int code = 0;
    for (uint64_t at = 0, turn = 0; at < x->plan.count && !code; at += per, turn++) {
        uint64_t count = tu_min(per, x->plan.count - at),
                 place = 2 * SMALL + turn % 2 * CHUNK;
        uint64_t first = tui_block_at(count, n, me) * x->size;
        uint64_t mine = tui_block_len(count, n, me) * x->size, all = count * x->size;
        const unsigned char *from = in + at * x->size;
        unsigned char *to = out + at * x->size, *own = stage(x, me) + place;
        memcpy(own, from, (size_t)first); /* what the others fold */
        memcpy(own + first + mine, from + first + mine, (size_t)(all - first - mine));
        if ((code = tu_rank_barrier(x->rank, err)))
            break;
        for (uint32_t q = 0; q < n; q++)
            x->src[q] = q == me ? from + first : stage(x, q) + place + first;
        if ((code = fold(x, to + first, mine / x->size, err)))
            break;
        memcpy(own + first, to + first, (size_t)mine);
        if ((code = tu_rank_barrier(x->rank, err)))
            break;
        for (uint32_t q = 0; q < n; q++) {
            uint64_t off = tui_block_at(count, n, q) * x->size;
            if (q != me)
                memcpy(to + off, stage(x, q) + place + off,
                       (size_t)(tui_block_len(count, n, q) * x->size));
        }
    }
    /* Nobody writes the first place again before all have left the last one. */
    return code ? code : tu_rank_barrier(x->rank, err);
}

int tui_fused_run(struct tu_exec *x, const void *in, void *out, struct tu_err *err)
{
    uint64_t bytes = x->plan.count * x->size, have = x->rank->w->g->shared;
    const unsigned char *base = tu_rank_shared(x->rank, x->rank->id), *i = in, *o = out;
    if (bytes <= SMALL)
        return small(x, in, out, err);
    bool visible = base && i >= base && i + bytes <= base + have && o >= base &&
                   o + bytes <= base + have;
    if (!visible)
        return through_stages(x, in, out, err);
    int code = tu_rank_barrier(x->rank, err);
    if (!code)
        code = shared_slice(x, (uint64_t)(i - base), (uint64_t)(o - base), err);
    return code ? code : tu_rank_barrier(x->rank, err);
}

/* Bytes of memory traffic instead of messages: every rank reads 1/p of all, stores 1/p to
 * all. */
static double model(const struct tu_plan *p, double bytes, double alpha, double beta,
                    double gamma)
{
    (void)p;
    return 2 * alpha + bytes * (beta + gamma);
}

static const char *const no_keys[] = {NULL};

const struct tu_algorithm tui_ar_fused = {
    "fused",
    "shared memory, one pass; keeps any --reduce-order",
    "XHC; DeepSpeed csrc/cpu/comm",
    TU_ALLREDUCE,
    no_keys,
    TU_ALG_SHARED | TU_ALG_ORDERED,
    plan,
    NULL,
    NULL,
    model,
};
