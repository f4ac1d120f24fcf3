/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c: pipe-sched compare and diff: schedules side by side at the user's own times.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipe-sched/pipe.h"

static struct {
    uint64_t p, m, chunks;
} opt = {.chunks = 2};

static const struct tu_opt options[] = {
    {'p', "ranks", "N", "pipeline ranks", TU_OPT_U64, &opt.p, NULL, 0},
    {'m', "microbatches", "N", "micro-batches of a step", TU_OPT_U64, &opt.m, NULL, 0},
    {'c', "chunks", "N",
     "chunks of a rank where the schedule leaves them open; default 2", TU_OPT_U64,
     &opt.chunks, NULL, 0},
    PIPE_CAP_OPTION,
    {0},
};

static const struct tu_column columns[] = {
    {"schedule", "SCHEDULE", TU_COL_TEXT, 18},
    {"chunks", "V", TU_COL_U64, 3},
    {"makespan", "MAKESPAN", TU_COL_TEXT, 12},
    {"span", "SPAN", TU_COL_TEXT, 12},
    {"bubble_makespan", "BUBBLE", TU_COL_REAL, 10},
    {"bubble_span", "SPAN'S", TU_COL_REAL, 10},
    {"peak", "PEAK M_B", TU_COL_TEXT, 9},
    {"transfers", "SENT", TU_COL_U64, 8},
    {"weights", "W", TU_COL_U64, 2},
    {"why_not", "NOTE", TU_COL_NAME, 1},
    {0},
};

static uint32_t chunks_of(const struct tu_schedule *row)
{
    uint32_t v = (uint32_t)tu_min(opt.chunks, TU_SCHED_MAX);
    if (v < row->chunks_min)
        v = row->chunks_min;
    return v > row->chunks_max ? row->chunks_max : v;
}

/* One row of the table: times are of a rank's share, so each schedule divides them
 * itself. */
static int one(struct tu_ctx *ctx, const struct tu_schedule *row, struct tu_err *err)
{
    uint32_t v = chunks_of(row);
    struct tu_cost c;
    struct tu_sched *s = NULL;
    struct tu_sim sim = {0};
    size_t faults = 0;
    char makespan[40] = "", span[40] = "", peak[40] = "";
    pipe_cost.share = true;
    int rc = pipe_cost_get(&c, v, err);
    if (rc)
        return rc;
    struct tu_sched_params q = {.p = (uint32_t)tu_min(opt.p, UINT32_MAX),
                                .m = (uint32_t)tu_min(opt.m, UINT32_MAX),
                                .v = v,
                                .cost = &c};
    rc = pipe_cap(&c, v, &q.cap, err);
    if (!rc)
        rc = tu_schedule_make(&s, row, &q, err);
    if (!rc && s->slices > 1) {
        tu_cost_release(&c); /* slices share a stage's time, too */
        rc = pipe_cost_get(&c, v * s->slices, err);
    }
    if (!rc)
        rc = tu_sim_run(&sim, s, &c, NULL, &faults, err);
    bool none = rc || faults;
    if (!none) {
        int64_t most = 0;
        for (uint32_t r = 0; r < s->ranks; r++)
            most = sim.peak[r] > most ? sim.peak[r] : most;
        tu_ticks_text(sim.makespan, c.scale, makespan);
        tu_ticks_text(sim.span, c.scale, span);
        tu_ticks_text(most, sim.mem_unit, peak);
    }
    if (!rc || rc == TU_EUSAGE)
        tu_row(ctx, (const struct tu_cell[]){
                        {.s = row->name},
                        {.u = v},
                        {.none = none, .s = makespan},
                        {.none = none, .s = span},
                        {.none = none, .f = tu_sim_bubble(&sim, true)},
                        {.none = none, .f = tu_sim_bubble(&sim, false)},
                        {.none = none, .s = peak},
                        {.none = none, .u = (uint64_t)sim.sent},
                        {.none = none, .u = s ? s->pipelines : 0},
                        {.s = rc ? err->msg : ""},
                    });
    tu_sim_release(&sim);
    tu_sched_free(s);
    tu_cost_release(&c);
    return rc == TU_EUSAGE ? 0 : rc;
}

static int run_compare(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    if (!opt.p || !opt.m)
        return tu_usage(ctx, "compare: -p and -m are needed, each at least 1");
    for (int i = 0; i < argc; i++)
        if (!tu_schedule_find(argv[i]))
            return tu_usage(
                ctx, "no schedule is called '%s'; --list=schedules names them", argv[i]);
    tu_rows_begin(ctx, columns);
    for (size_t i = 0; tu_schedules[i]; i++) {
        bool wanted = argc == 0;
        for (int k = 0; k < argc; k++)
            wanted = wanted || !strcmp(argv[k], tu_schedules[i]->name);
        int rc = wanted ? one(ctx, tu_schedules[i], &err) : 0;
        if (rc)
            return tu_error(ctx, &err);
    }
    return TU_STATUS_YES;
}

/* diff
 * ------------------------------------------------------------------------------------ */

static struct {
    const char *from;
} diff_opt;

static const struct tu_opt diff_options[] = {
    {0, "from", "FORM", "form of both inputs; default: by their looks", TU_OPT_STRING,
     &diff_opt.from, NULL, 0},
    {0},
};

static const struct tu_column diff_columns[] = {
    {"rank", "RANK", TU_COL_U64, 5},        {"position", "AT", TU_COL_U64, 8},
    {"first", "FIRST", TU_COL_TEXT, 12},    {"second", "SECOND", TU_COL_TEXT, 12},
    {"end_first", "ENDS", TU_COL_TEXT, 14}, {"end_second", "ENDS", TU_COL_TEXT, 14},
    {"gain", "GAIN", TU_COL_TEXT, 12},      {0},
};

struct side {
    struct tu_sched *s;
    struct tu_cost c;
    struct tu_sim sim;
};

static bool same_op(const struct tu_op *a, const struct tu_op *b)
{
    return a->kind == b->kind && a->flags == b->flags && a->slice == b->slice &&
           a->stage == b->stage && a->mb == b->mb;
}

/* A row for a rank whose lists differ; true if they do. */
static bool differ(struct tu_ctx *ctx, const struct side side[2], uint32_t r)
{
    const struct tu_sched *a = side[0].s, *b = side[1].s;
    size_t i = 0;
    char text[2][40] = {"end", "end"}, end[2][40], gain[40];
    while (i < a->n[r] && i < b->n[r] && same_op(&a->op[r][i], &b->op[r][i]))
        i++;
    bool differs = i < a->n[r] || i < b->n[r];
    for (int k = 0; k < 2; k++) {
        const struct tu_sched *s = side[k].s;
        if (i < s->n[r])
            tu_op_text(&s->op[r][i], s->slices, text[k]);
        tu_ticks_text(side[k].sim.last[r], side[k].c.scale, end[k]);
    }
    int64_t sa = side[0].c.scale, sb = side[1].c.scale;
    tu_ticks_text(side[0].sim.last[r] * sb - side[1].sim.last[r] * sa, sa * sb, gain);
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = r},
                    {.none = !differs, .u = i},
                    {.none = !differs, .s = text[0]},
                    {.none = !differs, .s = text[1]},
                    {.s = end[0]},
                    {.s = end[1]},
                    {.s = gain},
                });
    return differs;
}

static int run_diff(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct side side[2] = {{0}, {0}};
    int status = TU_STATUS_YES, rc = 0;
    (void)argc;
    for (int k = 0; k < 2 && !rc && status == TU_STATUS_YES; k++) {
        rc = pipe_read(ctx, argv[k], diff_opt.from, NULL, &side[k].s, &side[k].c, &err);
        if (!rc)
            rc = pipe_simulate(ctx, side[k].s, &side[k].c, &side[k].sim, &status, &err);
    }
    if (!rc && status == TU_STATUS_YES && side[0].s->ranks != side[1].s->ranks)
        rc = tu_fail(&err, TU_EUSAGE, "diff: %u ranks and %u ranks cannot be compared",
                     side[0].s->ranks, side[1].s->ranks);
    bool differs = false;
    if (!rc && status == TU_STATUS_YES) {
        tu_rows_begin(ctx, diff_columns);
        for (uint32_t r = 0; r < side[0].s->ranks; r++)
            differs |= differ(ctx, side, r);
    }
    for (int k = 0; k < 2; k++) {
        tu_sim_release(&side[k].sim);
        if (side[k].s)
            tu_cost_release(&side[k].c);
        tu_sched_free(side[k].s);
    }
    return rc ? tu_error(ctx, &err) : differs ? TU_STATUS_NO : status;
}

static const char *const compare_usage[] = {
    "-p ranks -m microbatches [option ...] [schedule ...]", NULL};
static const char *const diff_usage[] = {"[option ...] first second", NULL};

#define FLAGS                                                                            \
    (TU_CMD_NO_FORCE | TU_CMD_NO_THREADS | TU_CMD_NO_PROGRESS | TU_CMD_NO_SEED |         \
     TU_CMD_NO_DEVICE)

const struct tu_cmd pipe_compare = {
    .name = "compare",
    .summary = "a table of schedules at the times given",
    .usage = compare_usage,
    .opts = options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = FLAGS | TU_CMD_WORDS,
    .max = TU_ANY,
    .run = run_compare,
};

const struct tu_cmd pipe_diff = {
    .name = "diff",
    .summary = "the first operation of each rank that differs, and what it gains",
    .usage = diff_usage,
    .opts = diff_options,
    .shared = pipe_cost_options,
    .flags = FLAGS,
    .min = 2,
    .max = 2,
    .run = run_diff,
};
