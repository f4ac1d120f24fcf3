/* SPDX-License-Identifier: Apache-2.0 */
/* fam_auto.c: zero-bubble schedules found for the given times and memory: ZB-1p and
 * ZB-2p.
 *
 * The heuristic's order is what is emitted, or a list's where memory is scarce; pipe-sched
 * optimize improves and proves.
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", 2024. */
#include "sched/families.h"
#include "sched/zb_greedy.h"

static int automatic(struct tu_sched **out, const struct tu_sched_params *q,
                     uint32_t shares, struct tu_err *err)
{
    struct tui_build b;
    struct tui_line l;
    uint8_t *kind = NULL;
    int64_t span;
    int rc = tui_line_of(&l, q, err);
    if (rc)
        return rc;
    if (!l.cap)
        l.cap = l.mem_f * (int64_t)shares * q->p;
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    tui_place_loop(&b);
    kind = tu_alloc(3 * (size_t)q->p * q->m, 1, err);
    b.code = b.code ? b.code : kind ? tui_zb_greedy(&l, kind, &span, err) : TU_ENOMEM;
    b.code = b.code ? b.code : tui_zb_lists(&l, kind, &span, err);
    if (!b.code && span == INT64_MAX)
        b.code = tu_fail(err, TU_EUSAGE, "no order was found under the memory cap");
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        uint32_t next[TU_OP_W + 1] = {0};
        for (size_t k = 0; k < 3 * (size_t)q->m; k++) {
            uint8_t op = kind[(size_t)r * 3 * q->m + k];
            tui_add(&b, r, (enum tu_op_kind)op, r, next[op]++);
        }
    }
    tu_free(kind);
    tui_line_release(&l);
    return tui_build_end(&b, out);
}

static int zb_1p(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    return automatic(out, q, 1, err);
}

static int zb_2p(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    return automatic(out, q, 2, err);
}

const struct tu_schedule tui_zb_1p = {
    .name = "zb-1p",
    .help = "zero bubble found for the times, memory of 1F1B",
    .source = "Zero Bubble, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = zb_1p,
    .caps = true,
};
const struct tu_schedule tui_zb_2p = {
    .name = "zb-2p",
    .help = "zero bubble found for the times, twice the memory",
    .source = "Zero Bubble, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = zb_2p,
    .caps = true,
};
