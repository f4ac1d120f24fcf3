/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c: pipe-sched compare: schedules side by side, all for one model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipe-sched/pipe.h"

enum order { BY_STEP, BY_MEMORY, AS_LISTED };

static struct {
    uint64_t p, m, chunks;
    int sort;
} opt = {.chunks = UINT64_MAX};

static const char *const orders[] = {"step", "memory", "none", NULL};

static const struct tu_opt options[] = {
    {'p', "ranks", "N", "pipeline ranks", TU_OPT_U64, &opt.p, NULL, 0},
    {'m', "microbatches", "N", "micro-batches of a step", TU_OPT_U64, &opt.m, NULL, 0},
    {'c', "chunks", "N", "chunks of a rank, as near as the schedule allows", TU_OPT_U64,
     &opt.chunks, NULL, 0},
    {0, "sort", NULL, "rows by the step's time, by memory, or as --list has them",
     TU_OPT_CHOICE, &opt.sort, orders, 0},
    PIPE_CAP_OPTION,
    {0},
};

static const struct tu_column columns[] = {
    {"schedule", "SCHEDULE", TU_COL_TEXT, 0},
    {"kind", "KIND", TU_COL_TEXT, 0},
    {"chunks", "V", TU_COL_U64, 0},
    {"makespan", "MAKESPAN", TU_COL_DIGITS, 0},
    {"span", "SPAN", TU_COL_DIGITS, 0},
    {"bound", "BOUND", TU_COL_DIGITS, 0},
    {"bubble_makespan", "BUBBLE", TU_COL_REAL, 0},
    {"bubble_span", "SPAN_BUBBLE", TU_COL_REAL, 0},
    {"peak", "PEAK_M_B", TU_COL_DIGITS, 0},
    {"transfers", "TRANSFERS", TU_COL_U64, 0},
    {"weights", "COPIES", TU_COL_U64, 0},
    {"why_not", "NOTE", TU_COL_NAME, 0},
    {0},
};

/* What a schedule does to the model. Rows of one kind can be compared. */
enum kind { TRAIN, ASYNC, FORWARD, NOTHING };
static const char *const kinds[] = {"train", "async", "forward", NULL};

/* A line of the table. */
struct line {
    const char *name; /* as it was asked for */
    size_t at;        /* its place in the list */
    struct tu_sched *sched;
    enum kind kind;   /* NOTHING: it could not be made */
    uint32_t chunks, copies;
    double step, memory; /* to sort by */
    double bubble[2];    /* of makespan and span */
    char makespan[40], span[40], peak[40];
    char bound[40]; /* of the step, of a schedule that trains */
    uint64_t sent;
    bool misfit; /* --times has what no schedule of these sizes has */
    char note[256];
};

static uint32_t chunks_of(const struct tu_schedule *row)
{
    uint32_t v = (uint32_t)tu_min(opt.chunks, TU_SCHED_MAX);
    if (opt.chunks == UINT64_MAX)
        return 0; /* the row's own */
    if (v < row->chunks_min)
        v = row->chunks_min;
    return v > row->chunks_max ? row->chunks_max : v;
}

static int fill(struct line *l, const struct tu_sched *s, const struct tu_cost *c,
                const struct tu_sim *sim, int64_t cap, int64_t cap_unit,
                struct tu_err *err)
{
    int64_t most = 0, bound;
    for (uint32_t r = 0; r < s->ranks; r++)
        most = sim->peak[r] > most ? sim->peak[r] : most;
    l->kind = s->deps != TU_DEPS_TRAIN ? FORWARD : s->async ? ASYNC : TRAIN;
    l->copies = s->pipelines;
    l->sent = (uint64_t)sim->sent;
    /* Quotients of integers: equal times compare as equal whatever their scales. */
    l->step = (double)(c->barrier ? sim->makespan : sim->span) / (double)c->scale;
    l->memory = (double)most / (double)sim->mem_unit;
    l->bubble[0] = tu_sim_bubble(sim, true);
    l->bubble[1] = tu_sim_bubble(sim, false);
    tu_ticks_text(sim->makespan, c->scale, l->makespan);
    tu_ticks_text(sim->span, c->scale, l->span);
    tu_ticks_text(most, sim->mem_unit, l->peak);
    if (cap && l->memory > (double)cap / (double)cap_unit)
        strcpy(l->note, "over --memory-cap");
    int rc = l->kind == TRAIN ? tu_sim_bound(&bound, sim, s, c, err) : 0;
    if (!rc && l->kind == TRAIN)
        tu_ticks_text(bound, c->scale, l->bound);
    return rc;
}

/* One line: the same model for every schedule, so each divides the times itself. */
static int one(struct line *l, const struct tu_schedule *row, const struct tu_spec *spec,
               struct tu_err *err)
{
    struct tu_cost c;
    struct tu_sched *s = NULL;
    struct tu_sim sim = {0};
    size_t faults = 0;
    struct tu_sched_params q = {.p = (uint32_t)tu_min(opt.p, UINT32_MAX),
                                .m = (uint32_t)tu_min(opt.m, UINT32_MAX),
                                .spec = spec,
                                .cost = &c};
    q.v = l->chunks;
    int rc = pipe_cost_get(&c, &(struct pipe_shape){q.p, q.v, 1, 1}, err);
    if (rc)
        return rc;
    int64_t cap_unit = tu_cost_unit(&c, q.v);
    rc = pipe_cap(&c, q.v, &q.cap, err);
    if (!rc)
        rc = tu_schedule_make(&s, row, &q, err);
    if (!rc && (s->slices > 1 || s->pipelines > 1)) {
        tu_cost_release(&c); /* slices share a stage's time, pipelines have the same ones */
        rc = pipe_cost_get(&c, &(struct pipe_shape){q.p, q.v, s->slices, s->pipelines}, err);
    }
    if (!rc && (rc = pipe_times_fit(&c, s, err)))
        l->misfit = true;
    if (!rc)
        rc = tu_sim_run(&sim, s, &c, NULL, &faults, err);
    if (!rc && !faults)
        rc = fill(l, s, &c, &sim, q.cap, cap_unit, err);
    else if (!rc)
        strcpy(l->note, "not valid: verify tells why");
    l->sched = s;
    tu_sim_release(&sim);
    tu_cost_release(&c);
    return rc;
}

static int by_value(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* What trains a step first, then what does another thing, then what could not be made. */
static int by_order(const void *x, const void *y)
{
    const struct line *a = x, *b = y;
    int group = (a->kind > ASYNC ? (int)a->kind : 0) - (b->kind > ASYNC ? (int)b->kind : 0);
    int step = by_value(a->step, b->step), memory = by_value(a->memory, b->memory);
    int first = opt.sort == BY_STEP ? step : opt.sort == BY_MEMORY ? memory : 0;
    int next = opt.sort == BY_STEP ? memory : opt.sort == BY_MEMORY ? step : 0;
    if (opt.sort != AS_LISTED && group)
        return group;
    return first ? first : next ? next : a->at < b->at ? -1 : a->at > b->at;
}

static void print(struct tu_ctx *ctx, const struct line *l)
{
    bool none = l->kind == NOTHING;
    tu_row(ctx, (const struct tu_cell[]){
                    {.s = l->name},
                    {.none = none, .s = none ? "" : kinds[l->kind]},
                    {.u = l->chunks},
                    {.none = none, .s = l->makespan},
                    {.none = none, .s = l->span},
                    {.none = !*l->bound, .s = l->bound},
                    {.none = none, .f = l->bubble[0]},
                    {.none = none, .f = l->bubble[1]},
                    {.none = none, .s = l->peak},
                    {.none = none, .u = l->sent},
                    {.none = none, .u = l->copies},
                    {.s = l->note},
                });
}

/* A line for a schedule; sizes that it does not allow are its note. */
static int add(struct line *l, size_t at, const char *name, const struct tu_schedule *row,
               const struct tu_spec *spec, struct tu_err *err)
{
    *l = (struct line){.name = name, .at = at, .kind = NOTHING};
    struct tu_sched_params q = {.v = chunks_of(row), .spec = spec};
    if (spec && tu_spec_get(spec, "chunks"))
        q.v = 0;
    int rc = tu_schedule_chunks(&l->chunks, row, &q, err);
    if (rc)
        return rc;
    rc = one(l, row, spec, err);
    if (rc != TU_EUSAGE || l->misfit)
        return rc;
    snprintf(l->note, sizeof l->note, "%s", err->msg);
    return 0;
}

/* The lines of the operands. */
static int named(struct line *line, int argc, char **argv, struct tu_err *err)
{
    int rc = 0;
    for (int i = 0; i < argc && !rc; i++) {
        struct tu_spec spec;
        const struct tu_schedule *row;
        rc = tu_spec_parse(&spec, argv[i], err);
        if (rc)
            return rc;
        rc = pipe_row(&row, spec.name, err);
        if (!rc)
            rc = add(&line[i], (size_t)i, argv[i], row, &spec, err);
        tu_spec_release(&spec);
    }
    return rc;
}

/* All schedules, but those whose ranks are no devices. */
static int all(struct line *line, size_t *n, struct tu_err *err)
{
    int rc = 0;
    *n = 0;
    for (size_t i = 0; tu_schedules[i] && !rc; i++)
        if (!tu_schedules[i]->rank) {
            rc = add(&line[*n], i, tu_schedules[i]->name, tu_schedules[i], NULL, err);
            ++*n;
        }
    return rc;
}

static int show(struct tu_ctx *ctx, struct line *line, size_t n, struct tu_err *err)
{
    const struct tu_sched **all = tu_calloc(n, sizeof *all, err);
    if (!all)
        return TU_ENOMEM;
    for (size_t k = 0; k < n; k++)
        all[k] = line[k].sched;
    pipe_cost_idle(ctx, all, n, true);
    tu_free(all);
    qsort(line, n, sizeof *line, by_order);
    tu_rows_begin(ctx, columns);
    for (size_t k = 0; k < n; k++)
        print(ctx, &line[k]);
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    size_t n = (size_t)argc, rows = 0;
    int rc = pipe_sizes(ctx, opt.p, opt.m, opt.chunks);
    if (rc)
        return rc;
    pipe_cost.share = true;
    while (tu_schedules[rows])
        rows++;
    struct line *line = tu_calloc(n ? n : rows, sizeof *line, &err);
    rc = !line ? TU_ENOMEM : n ? named(line, argc, argv, &err) : all(line, &n, &err);
    if (!rc)
        rc = show(ctx, line, n, &err);
    for (size_t k = 0; line && k < n; k++)
        tu_sched_free(line[k].sched);
    tu_free(line);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {
    "-p ranks -m microbatches [option ...] [schedule ...]", NULL};

const struct tu_cmd pipe_compare = {
    .name = "compare",
    .example = "pipe-sched compare -p 4 -m 16 --cost F=9,I=10,W=7,C=1",
    .summary = "a table of schedules at the times given",
    .usage = usage,
    .opts = options,
    .shared = pipe_cost_options,
    .listings = pipe_listings,
    .flags = TU_CMD_WORDS,
    .max = TU_ANY,
    .run = run,
};
