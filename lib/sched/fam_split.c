/* SPDX-License-Identifier: Apache-2.0 */
/* fam_split.c: fixed orders with the backward split in I and W, one stage per rank.
 *
 * Sources: Qi et al., "Zero Bubble Pipeline Parallelism" (ZB-H1, ZB-H2), 2024; Rae et
 * al., "2BP: 2-Stage Backpropagation", 2024. */
#include <string.h>
#include "sched/families.h"

/* Warm-up of k(p-1-r) forwards; then F, I and, once the rank below has its slack, W. */
static int zb_h(struct tu_sched **out, const struct tu_sched_params *q, uint32_t k,
                struct tu_err *err)
{
    struct tui_build b;
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        uint32_t warm = k * (q->p - 1 - r), done = 0;
        for (uint32_t i = 0; i < warm && i < q->m; i++)
            tui_add(&b, r, TU_OP_F, r, i);
        for (uint32_t i = 0; i < q->m; i++) {
            if (warm + i < q->m)
                tui_add(&b, r, TU_OP_F, r, warm + i);
            tui_add(&b, r, TU_OP_I, r, i);
            if (i >= k * r)
                tui_add(&b, r, TU_OP_W, r, done++);
        }
        while (done < q->m)
            tui_add(&b, r, TU_OP_W, r, done++);
    }
    return tui_build_end(&b, out);
}

static int zb_h1(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    return zb_h(out, q, 1, err);
}

static int zb_h2(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    return zb_h(out, q, 2, err);
}

static int two_bp_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    const char *base = tui_key_text(q, "base", "1f1b");
    if (!strcmp(base, "1f1b") || !strcmp(base, "gpipe"))
        return 0;
    return tu_fail(err, TU_EUSAGE, "2bp: base '%.20s': 1f1b or gpipe", base);
}

/* The base order with I for B, all W after the last I or, filled, in waits before it. */
static int two_bp(struct tu_sched **out, const struct tu_sched_params *q,
                  struct tu_err *err)
{
    struct tui_build b;
    int rc = 0;
    bool gpipe = !strcmp(tui_key_text(q, "base", "1f1b"), "gpipe");
    bool fill = tui_key(q, "fill", 0, &rc, err);
    struct tu_sched *base = NULL;
    struct tu_cost one;
    tu_cost_init(&one);
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        uint32_t warm = gpipe || q->p - 1 - r > q->m ? q->m : q->p - 1 - r;
        for (uint32_t i = 0; i < q->m + warm; i++) {
            if (i < q->m)
                tui_add(&b, r, TU_OP_F, r, i);
            if (i >= warm)
                tui_add(&b, r, TU_OP_I, r, i - warm);
        }
        for (uint32_t i = 0; i < q->m && !fill; i++)
            tui_add(&b, r, TU_OP_W, r, i);
    }
    rc = tui_build_end(&b, &base);
    if (rc || !fill) {
        *out = base;
        return rc;
    }
    rc = tui_fill_w(out, base, q->cost ? q->cost : &one, 0, err);
    tu_sched_free(base);
    return rc;
}

static const char *const two_bp_keys[] = {"base", "fill", NULL};

const struct tu_schedule tui_zb_h1 = {
    .name = "zb-h1",
    .help = "zero bubble by hand, memory of 1F1B",
    .source = "Zero Bubble, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = zb_h1,
};
const struct tu_schedule tui_zb_h2 = {
    .name = "zb-h2",
    .help = "zero bubble by hand, twice the memory",
    .source = "Zero Bubble, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = zb_h2,
};
const struct tu_schedule tui_2bp = {
    .name = "2bp",
    .help = "a base schedule with all weight gradients last",
    .source = "2BP, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = two_bp_keys,
    .legal = two_bp_legal,
    .make = two_bp,
    .timed = true,
};
