/* SPDX-License-Identifier: Apache-2.0 */
/* fam_forward.c: forward only: batches of inference, steps of a diffusion, and optimizer
 * updates whose ranks are not devices but resources (CPU, PCIe, SSD).
 *
 * Sources: Du et al., "EnergonAI", 2022; Chen et al., "AsyncDiff", 2024; Maurya et al.,
 * "Deep Optimizer States", 2024, and Liao et al., "Fuyou", 2024 (both in tensorutils'
 * own definition, for their exact rules are not public). */
#include <string.h>
#include "sched/families.h"

/* Every stage takes the units in their order. */
static void in_order(struct tui_build *b)
{
    for (uint32_t r = 0; r < b->s->ranks; r++)
        for (uint32_t i = 0; i < b->s->microbatches && !b->code; i++)
            tui_add(b, r, TU_OP_F, r, i);
}

/* The order of arrival is the order on every rank. */
static int inference(struct tu_sched **out, const struct tu_sched_params *q,
                     struct tu_err *err)
{
    struct tui_build b;
    bool blocking = !strcmp(tui_key_text(q, "mode", "free"), "blocking");
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    tui_place_loop(&b);
    if (!b.code) {
        in_order(&b);
        b.s->deps = blocking ? TU_DEPS_BLOCKING : TU_DEPS_FORWARD;
    }
    return tui_build_end(&b, out);
}

static int inference_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    const char *mode = tui_key_text(q, "mode", "free");
    if (!strcmp(mode, "free") || !strcmp(mode, "blocking"))
        return 0;
    return tu_fail(err, TU_EUSAGE, "inference: mode '%.20s': free or blocking", mode);
}

/* AsyncDiff: micro-batches are diffusion steps. With stride 2 a rank more than there are
 * components repeats the last component for the earlier step of each pair. */
static int asyncdiff(struct tu_sched **out, const struct tu_sched_params *q,
                     struct tu_err *err)
{
    struct tui_build b;
    int rc = 0;
    uint32_t warm = (uint32_t)tui_key(q, "warm", 1, &rc, err);
    uint32_t stride = (uint32_t)tui_key(q, "stride", 1, &rc, err);
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    if (!b.code) {
        b.s->deps = TU_DEPS_DIFFUSION;
        b.s->warm = warm;
        b.s->stride = stride;
    }
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        for (uint32_t i = 0; i < q->m && !b.code; i++)
            if (tui_due(b.s, r, i))
                tui_add(&b, r, TU_OP_F, r, i);
    return tui_build_end(&b, out);
}

static int asyncdiff_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    int rc = 0;
    uint64_t warm = tui_key(q, "warm", 1, &rc, err);
    uint64_t stride = tui_key(q, "stride", 1, &rc, err);
    if (rc)
        return rc;
    if (stride < 1 || stride > 2)
        return tu_fail(err, TU_EUSAGE, "asyncdiff: stride: %llu is not 1 or 2",
                       (unsigned long long)stride);
    if (warm < 1 || warm > q->m)
        return tu_fail(err, TU_EUSAGE, "asyncdiff: warm: %llu is not in 1 … %u steps",
                       (unsigned long long)warm, q->m);
    if (q->p < stride || q->p > TUI_RANKS_ALL)
        return tu_fail(err, TU_EUSAGE, "asyncdiff: %u devices: not in %llu … %u", q->p,
                       (unsigned long long)stride, TUI_RANKS_ALL);
    return 0;
}

/* Resources as ranks
 * ---------------------------------------------------------------------- */

static int four(const struct tu_sched_params *q, struct tu_err *err)
{
    if (q->p == 4)
        return 0;
    return tu_fail(err, TU_EUSAGE,
                   "update-split and update-ssd: the 4 ranks are resources: -p 4, not %u", q->p);
}

/* Subgroups that the CPU updates for each that the GPU does: the fewest that keep the
 * link and the GPU no longer busy than the CPU; 0: the CPU does all. */
static uint32_t stride_of(const struct tu_cost *c, uint32_t most)
{
    int64_t t[6];
    for (uint32_t k = 0; k < 6; k++)
        t[k] = tu_cost_time(c, TU_OP_F, k, UINT32_MAX);
    int64_t cpu = t[0] + t[1], up = t[2], fetch = t[3];
    int64_t gpu = t[4] > t[5] ? t[4] : t[5];
    if (cpu <= up)
        return 0;
    int64_t link = (fetch + cpu - up - 1) / (cpu - up), busy = (gpu + cpu - 1) / cpu;
    int64_t k = link > busy ? link : busy;
    return k >= most ? 0 : k > 1 ? (uint32_t)k : 1;
}

/* Two kinds of subgroup: updated and converted on the CPU, then sent up; or fetched,
 * updated on the GPU, then written back. A fetch goes before the uploads of its round. */
static int update_split(struct tu_sched **out, const struct tu_sched_params *q,
                        struct tu_err *err)
{
    enum { CPU, UP, GPU, DOWN };
    static const uint32_t place[6] = {CPU, CPU, UP, UP, GPU, DOWN};
    struct tui_build b;
    struct tu_cost one;
    int rc = 0;
    tu_cost_init(&one);
    uint32_t k = (uint32_t)tui_key(q, "every", TU_SCHED_MAX, &rc, err);
    if (k == TU_SCHED_MAX)
        k = stride_of(q->cost ? q->cost : &one, TU_SCHED_MAX);
    tui_build_begin(&b, 4, 3, 2, q->m, err);
    b.code = b.code ? b.code : rc;
    if (!b.code) {
        memcpy(b.s->place, place, sizeof place);
        b.s->deps = TU_DEPS_FORWARD;
    }
    uint32_t round = k ? k + 1 : q->m;
    for (uint32_t i = 0; i < q->m && !b.code; i++) {
        uint32_t on_gpu = i - i % round + k;
        if (k && i % round == 0 && on_gpu < q->m)
            tui_add(&b, UP, TU_OP_F, 3, on_gpu);
        if (k && i == on_gpu) {
            tui_add(&b, GPU, TU_OP_F, 4, i);
            tui_add(&b, DOWN, TU_OP_F, 5, i);
            continue;
        }
        tui_add(&b, CPU, TU_OP_F, 0, i);
        tui_add(&b, CPU, TU_OP_F, 1, i);
        tui_add(&b, UP, TU_OP_F, 2, i);
    }
    return tui_build_end(&b, out);
}

static const char *const split_ranks[] = {"CPU", "up", "GPU", "down", NULL};
static const char *const ssd_ranks[] = {"GPU", "down", "CPU", "SSD", NULL};
static const char *const inference_keys[] = {"mode", NULL};
static const char *const asyncdiff_keys[] = {"warm", "stride", NULL};
static const char *const split_keys[] = {"every", NULL};

const struct tu_schedule tui_inference = {
    .name = "inference",
    .help = "forward only, batches follow one another",
    .source = "EnergonAI, 2022",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = inference_keys,
    .legal = inference_legal,
    .make = inference,
};
const struct tu_schedule tui_asyncdiff = {
    .name = "asyncdiff",
    .help = "diffusion steps on stale inputs; micro-batches are steps",
    .source = "AsyncDiff, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = asyncdiff_keys,
    .legal = asyncdiff_legal,
    .make = asyncdiff,
    .timed = true,
    .pieces = "steps",
};
const struct tu_schedule tui_update_split = {
    .name = "update-split",
    .help = "optimizer subgroups on CPU and GPU (tensorutils definition)",
    .source = "Deep Optimizer States, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = split_keys,
    .legal = four,
    .make = update_split,
    .rank = split_ranks,
    .pieces = "subgroups",
};
const struct tu_schedule tui_update_ssd = {
    .name = "update-ssd",
    .help = "optimizer state on an SSD, layer by layer (tensorutils definition)",
    .source = "Fuyou, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .legal = four,
    .make = inference,
    .rank = ssd_ranks,
    .pieces = "layers",
};
