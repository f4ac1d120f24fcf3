/* SPDX-License-Identifier: Apache-2.0 */
/* fam_dualpipe.c: DualPipe and DualPipeV: forward and backward overlapped in pairs.
 *
 * Both are the same eight steps of a rank: of its two phases, 0 is the pipeline (or half
 * of the V) in which it stands nearer the start. Source: DeepSeek-AI, "DualPipe",
 * 2024-2025. */
#include "sched/families.h"

struct dual {
    struct tui_build *b;
    uint32_t rank;
    uint32_t stage[2], first_mb[2]; /* of each phase */
    uint32_t f[2], back[2];         /* next micro-batch of each phase */
    struct tu_op *queue;            /* weight gradients that wait */
    size_t head, tail;
    bool split;
};

static void fwd(struct dual *d, int phase)
{
    tui_add(d->b, d->rank, TU_OP_F, d->stage[phase], d->first_mb[phase] + d->f[phase]++);
}

static void bwd(struct dual *d, int phase, bool split)
{
    uint32_t mb = d->first_mb[phase] + d->back[phase]++;
    tui_add(d->b, d->rank, split ? TU_OP_I : TU_OP_B, d->stage[phase], mb);
    if (split)
        d->queue[d->tail++] =
            (struct tu_op){.kind = TU_OP_W, .stage = d->stage[phase], .mb = mb};
}

static void weight(struct dual *d)
{
    if (d->head < d->tail)
        tui_add_op(d->b, d->rank, &d->queue[d->head++]);
}

static void both(struct dual *d, int f_phase, int b_phase)
{
    tui_add_pair(d->b, d->rank, d->stage[f_phase], d->first_mb[f_phase] + d->f[f_phase]++,
                 d->stage[b_phase], d->first_mb[b_phase] + d->back[b_phase]++);
}

/* The eight steps: hr ranks before this one in phase 0, H in all, n micro-batches a
 * phase. */
static void steps(struct dual *d, uint32_t hr, uint32_t H, uint32_t n)
{
    uint32_t far = H - hr - 1;
    for (uint32_t i = 0; i < 2 * far; i++)
        fwd(d, 0);
    for (uint32_t i = 0; i < hr + 1; i++)
        fwd(d, 0), fwd(d, 1);
    for (uint32_t i = 0; i < far; i++)
        bwd(d, 1, true), weight(d), fwd(d, 1);
    for (uint32_t i = 0; i < n - 2 * H + hr + 1; i++) {
        if (i == 0 && far == 0)
            fwd(d, 0), bwd(d, 1, false);
        else
            both(d, 0, 1);
        both(d, 1, 0);
    }
    for (uint32_t i = 0; i < far; i++)
        bwd(d, 1, false), both(d, 1, 0);
    uint32_t turn = (hr + 1) / 2;
    for (uint32_t i = 0; i < hr + 1; i++) {
        d->split = d->split || (i == turn && hr % 2 == 1);
        bwd(d, 1, d->split);
        d->split = d->split || (i == turn && hr % 2 == 0);
        bwd(d, 0, d->split);
    }
    for (uint32_t i = 0; i < far; i++)
        weight(d), bwd(d, 0, true);
    while (d->head < d->tail)
        weight(d);
}

static int dualpipe_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    if (q->p % 2 || q->m % 2 || q->m < 2 * q->p)
        return tu_fail(err, TU_EUSAGE,
                       "dualpipe: p = %u, m = %u: p and m must be even, m at least 2p",
                       q->p, q->m);
    return 0;
}

static int dualpipev_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    if (q->m < 2 * q->p)
        return tu_fail(err, TU_EUSAGE,
                       "dualpipe-v: p = %u, m = %u: m must be at least 2p", q->p, q->m);
    return 0;
}

static int dualpipe(struct tu_sched **out, const struct tu_sched_params *q,
                    struct tu_err *err)
{
    struct tui_build b;
    uint32_t p = q->p, n = q->m / 2;
    struct tu_op *queue = tu_alloc((size_t)q->m, sizeof *queue, err);
    tui_build_begin(&b, p, p, 2, q->m, err);
    if (!queue)
        b.code = TU_ENOMEM;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < p && !b.code; r++) {
        bool low = r < p / 2;
        uint32_t down = r, up = p + (p - 1 - r), hr = low ? r : p - 1 - r;
        struct dual d = {.b = &b, .rank = r, .queue = queue};
        d.stage[0] = low ? down : up;
        d.stage[1] = low ? up : down;
        d.first_mb[low ? 1 : 0] = n;
        steps(&d, hr, p / 2, n);
    }
    tu_free(queue);
    return tui_build_end(&b, out);
}

static int dualpipev(struct tu_sched **out, const struct tu_sched_params *q,
                     struct tu_err *err)
{
    struct tui_build b;
    struct tu_op *queue = tu_alloc(2 * (size_t)q->m, sizeof *queue, err);
    tui_build_begin(&b, q->p, 2 * q->p, 1, q->m, err);
    if (!queue)
        b.code = TU_ENOMEM;
    tui_place_snake(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        struct dual d = {.b = &b, .rank = r, .queue = queue};
        d.stage[0] = r;
        d.stage[1] = 2 * q->p - 1 - r;
        steps(&d, r, q->p, q->m);
    }
    tu_free(queue);
    return tui_build_end(&b, out);
}

const struct tu_schedule tui_dualpipe = {
    .name = "dualpipe",
    .help = "bidirectional, forward and backward overlapped",
    .source = "DeepSeek-V3, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .legal = dualpipe_legal,
    .make = dualpipe,
};
const struct tu_schedule tui_dualpipev = {
    .name = "dualpipe-v",
    .help = "DualPipe folded into a V: one copy of the weights",
    .source = "DualPipeV, 2025",
    .chunks_min = 2,
    .chunks_max = 2,
    .legal = dualpipev_legal,
    .make = dualpipev,
};
