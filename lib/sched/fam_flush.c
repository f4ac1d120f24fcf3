/* SPDX-License-Identifier: Apache-2.0 */
/* fam_flush.c: one stage per rank, full backward: GPipe, 1F1B and their kin.
 *
 * Sources: Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019, and "Memory-
 * Efficient Pipeline-Parallel DNN Training" (flush), 2021; Zhuang et al., "AlpaComm"
 * (eager 1F1B), 2022; Sun et al., "Seq1F1B", 2024; "GNNPipe", 2023. */
#include <string.h>
#include "sched/families.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int gpipe(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    struct tui_build b;
    int rc = 0;
    bool reverse = tui_key(q, "reverse", 0, &rc, err);
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        for (uint32_t i = 0; i < q->m; i++)
            tui_add(&b, r, TU_OP_F, r, i);
        for (uint32_t i = 0; i < q->m; i++)
            tui_add(&b, r, TU_OP_B, r, reverse ? q->m - 1 - i : i);
    }
    return tui_build_end(&b, out);
}

/* `warm` forwards, then one forward and one backward in turn, then the rest. */
static void one_f_one_b(struct tui_build *b, uint32_t rank, uint32_t warm, uint32_t m)
{
    for (uint32_t i = 0; i < m + warm; i++) {
        if (i < m)
            tui_add(b, rank, TU_OP_F, rank, i);
        if (i >= warm)
            tui_add(b, rank, TU_OP_B, rank, i - warm);
    }
}

static int make_1f1b(struct tu_sched **out, const struct tu_sched_params *q,
                     uint32_t per_hop, struct tu_err *err)
{
    struct tui_build b;
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    tui_place_loop(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        one_f_one_b(&b, r, least(q->m, per_hop * (q->p - 1 - r)), q->m);
    return tui_build_end(&b, out);
}

static int plain(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    return make_1f1b(out, q, 1, err);
}

static int eager(struct tu_sched **out, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    return make_1f1b(out, q, 2, err);
}

/* What the keys `sync`, `versions` and `accumulate` ask for. */
static int weights(const struct tu_sched_params *q, enum tu_weights *how,
                   uint32_t *accumulate, struct tu_err *err)
{
    int rc = 0;
    const char *sync = tui_key_text(q, "sync", "stash");
    bool two = q->spec && tu_spec_get(q->spec, "versions");
    uint64_t versions = tui_key(q, "versions", 2, &rc, err);
    uint64_t of = tui_key(q, "accumulate", two ? q->p : 1, &rc, err);
    bool vertical = !strcmp(sync, "vertical");
    if (rc)
        return rc;
    if (!vertical && strcmp(sync, "stash"))
        return tu_fail(err, TU_EUSAGE, "pipedream: sync '%.20s': stash or vertical", sync);
    if (two && (versions != 2 || vertical))
        return tu_fail(err, TU_EUSAGE,
                       "pipedream: versions: 2 can be asked for, and has a sync of its own");
    if (two ? of < q->p || of > TU_SCHED_MAX : of != 1)
        return tu_fail(err, TU_EUSAGE,
                       two ? "pipedream: accumulate: %llu: two versions need at least as many "
                             "micro-batches to an update as ranks"
                           : "pipedream: accumulate: %llu: more than one micro-batch to an "
                             "update is for versions=2",
                       (unsigned long long)of);
    *how = two ? TU_WEIGHTS_DOUBLE : vertical ? TU_WEIGHTS_VERTICAL : TU_WEIGHTS_STASHED;
    *accumulate = (uint32_t)of;
    return 0;
}

static int pipedream_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    enum tu_weights how;
    uint32_t accumulate;
    return weights(q, &how, &accumulate, err);
}

static int pipedream(struct tu_sched **out, const struct tu_sched_params *q,
                     struct tu_err *err)
{
    enum tu_weights how;
    uint32_t accumulate;
    int rc = weights(q, &how, &accumulate, err);
    if (!rc)
        rc = make_1f1b(out, q, 1, err);
    if (rc)
        return rc;
    (*out)->async = true;
    (*out)->weights = how;
    (*out)->accumulate = accumulate;
    return 0;
}

static int seq_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    int rc = 0;
    uint64_t n = tui_key(q, "slices", 2, &rc, err);
    if (!rc && (n < 1 || n > 1024))
        rc = tu_fail(err, TU_EUSAGE, "seq-1f1b: slices: %llu is not in 1 … 1024",
                     (unsigned long long)n);
    return rc;
}

/* Sequence slices: forward in order, backward of a micro-batch in reverse slice order. */
static int seq(struct tu_sched **out, const struct tu_sched_params *q, struct tu_err *err)
{
    struct tui_build b;
    int rc = 0;
    uint32_t n = (uint32_t)tui_key(q, "slices", 2, &rc, err);
    tui_build_begin(&b, q->p, q->p, 1, q->m, err);
    b.code = b.code ? b.code : rc;
    tui_place_loop(&b);
    if (!b.code)
        b.s->slices = n;
    for (uint32_t r = 0; r < q->p && !b.code; r++) {
        /* The last rank, too, holds a whole micro-batch before its first backward. */
        uint32_t units = q->m * n, warm = least(q->p - r + n - 2, units);
        for (uint32_t i = 0; i < units + warm; i++) {
            if (i < units)
                tui_add_slice(&b, r, TU_OP_F, r, i / n, i % n);
            if (i >= warm)
                tui_add_slice(&b, r, TU_OP_B, r, (i - warm) / n, n - 1 - (i - warm) % n);
        }
    }
    return tui_build_end(&b, out);
}

static const char *const gpipe_keys[] = {"reverse", NULL};
static const char *const pipedream_keys[] = {"sync", "versions", "accumulate", NULL};
static const char *const seq_keys[] = {"slices", NULL};

const struct tu_schedule tui_gpipe = {
    .name = "gpipe",
    .help = "all forwards, then all backwards",
    .source = "GPipe, 2019",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = gpipe_keys,
    .make = gpipe,
};
const struct tu_schedule tui_1f1b = {
    .name = "1f1b",
    .help = "one forward, one backward, with a flush",
    .source = "PipeDream-flush, 2021",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = plain,
};
const struct tu_schedule tui_eager_1f1b = {
    .name = "eager-1f1b",
    .help = "1F1B with twice the warm-up: hides transfers",
    .source = "AlpaComm, 2022",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = eager,
};
const struct tu_schedule tui_pipedream = {
    .name = "pipedream",
    .help = "1F1B without a flush: weight versions stashed, in step, or two",
    .source = "PipeDream, 2019, and PipeDream-2BW, 2021",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = pipedream_keys,
    .legal = pipedream_legal,
    .make = pipedream,
};
const struct tu_schedule tui_seq_1f1b = {
    .name = "seq-1f1b",
    .help = "1F1B over sequence slices",
    .source = "Seq1F1B, 2024",
    .chunks_min = 1,
    .chunks_max = 1,
    .key = seq_keys,
    .legal = seq_legal,
    .make = seq,
};
const struct tu_schedule tui_gnnpipe = {
    .name = "gnnpipe",
    .help = "graph chunks in place of micro-batches, as GPipe",
    .source = "GNNPipe, 2023",
    .chunks_min = 1,
    .chunks_max = 1,
    .make = gpipe,
    .pieces = "graph chunks",
};
