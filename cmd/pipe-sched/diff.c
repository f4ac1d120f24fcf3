/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c: pipe-sched diff: where two schedules part, rank by rank, and what that gains. */
#include <string.h>
#include "pipe-sched/pipe.h"

static struct {
    const char *from;
} opt;

static const struct tu_opt options[] = {
    {0, "from", "FORM", "form of both inputs; default: by their looks", TU_OPT_STRING,
     &opt.from, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"rank", "RANK", TU_COL_U64, 0},
    {"position", "POSITION", TU_COL_U64, 0},
    {"first", "FIRST", TU_COL_TEXT, 0},
    {"second", "SECOND", TU_COL_TEXT, 0},
    {"end_first", "FIRST_ENDS", TU_COL_DIGITS, 0},
    {"end_second", "SECOND_ENDS", TU_COL_DIGITS, 0},
    {"gain", "GAIN", TU_COL_DIGITS, 0},
    {0},
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

/* Ranks and the unit of times must be the same; a gain would mean nothing else. */
static int comparable(const struct side side[2], struct tu_err *err)
{
    const char *unit[2];
    if (side[0].s->ranks != side[1].s->ranks)
        return tu_fail(err, TU_EUSAGE, "diff: %u ranks and %u ranks cannot be compared",
                       side[0].s->ranks, side[1].s->ranks);
    for (int k = 0; k < 2; k++)
        unit[k] = *side[k].c.unit ? side[k].c.unit : "no unit";
    if (strcmp(unit[0], unit[1]))
        return tu_fail(err, TU_EUSAGE,
                       "diff: times in %s and in %s cannot be compared; --cost with a unit "
                       "is for both",
                       unit[0], unit[1]);
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct side side[2] = {{0}, {0}};
    int status = TU_STATUS_YES, rc = 0;
    (void)argc;
    for (int k = 0; k < 2 && !rc && status == TU_STATUS_YES; k++) {
        rc = pipe_read(ctx, argv[k], opt.from, NULL, &side[k].s, &side[k].c, &err);
        if (!rc)
            rc = pipe_simulate(ctx, side[k].s, &side[k].c, &side[k].sim, &status, &err);
    }
    if (!rc && status == TU_STATUS_YES)
        pipe_cost_idle(ctx, (const struct tu_sched *[]){side[0].s, side[1].s}, 2, true);
    if (!rc && status == TU_STATUS_YES)
        rc = comparable(side, &err);
    bool differs = false;
    if (!rc && status == TU_STATUS_YES) {
        tu_rows_begin(ctx, columns);
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

static const char *const usage[] = {"[option ...] first second", NULL};

const struct tu_cmd pipe_diff = {
    .name = "diff",
    .example = "pipe-sched diff a.json b.json",
    .summary = "the first operation of each rank that differs, and what it gains",
    .usage = usage,
    .opts = options,
    .shared = pipe_cost_options,
    .min = 2,
    .max = 2,
    .run = run,
};
