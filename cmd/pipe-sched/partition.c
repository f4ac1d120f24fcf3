/* SPDX-License-Identifier: Apache-2.0 */
/* partition.c: pipe-sched partition: layers of uneven cost onto stages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/sched/split.h>
#include "pipe-sched/pipe.h"

static struct {
    uint64_t stages;
    const char *costs, *first, *last, *speeds, *sizes, *caps;
    bool layout;
} opt = {.first = "0", .last = "0"};

static const struct tu_opt options[] = {
    {'p', "stages", "N", "stages to make", TU_OPT_U64, &opt.stages, NULL, 0},
    {0, "costs", "LIST", "cost of each layer, as 2,1*30,3; default: standard input",
     TU_OPT_STRING, &opt.costs, NULL, 0},
    {0, "first", "COST", "more on the first stage: the embedding", TU_OPT_STRING,
     &opt.first, NULL, 0},
    {0, "last", "COST", "more on the last stage: head and loss", TU_OPT_STRING, &opt.last,
     NULL, 0},
    {0, "speeds", "LIST", "speed of each stage's device", TU_OPT_STRING, &opt.speeds,
     NULL, 0},
    {0, "sizes", "LIST", "memory of each layer", TU_OPT_STRING, &opt.sizes, NULL, 0},
    {0, "caps", "LIST", "memory of each stage's device", TU_OPT_STRING, &opt.caps, NULL,
     0},
    {0, "layout", NULL, "write Megatron-LM's layout text instead of a table", TU_OPT_FLAG,
     &opt.layout, NULL, 0},
    {0},
};

/* A list of decimals, "x*n" repeats, all in one scale. */
struct list {
    int64_t *v;
    size_t n, cap;
    int64_t scale;
};

static int grow_scale(struct list *l, int64_t scale, struct tu_err *err)
{
    while (l->scale < scale) {
        l->scale *= 10;
        for (size_t i = 0; i < l->n; i++)
            if (__builtin_mul_overflow(l->v[i], (int64_t)10, &l->v[i]))
                return tu_fail(err, TU_EUSAGE, "costs: too large for their decimals");
    }
    return 0;
}

static int parse_one(struct list *l, char *word, struct tu_err *err)
{
    int64_t v, scale;
    uint64_t times = 1;
    char *star = strchr(word, '*');
    if (star)
        *star++ = 0;
    int rc = tu_decimal(word, &v, &scale, err);
    if (!rc && star)
        rc = tu_parse_u64(star, &times, err);
    if (!rc && (times < 1 || times > 1000000 || l->n + times > 1000000))
        rc = tu_fail(err, TU_EUSAGE, "'%.20s': more than 1000000 values", word);
    if (!rc)
        rc = grow_scale(l, scale, err);
    if (!rc && __builtin_mul_overflow(v, l->scale / scale, &v))
        rc = tu_fail(err, TU_EUSAGE, "'%.20s': too large", word);
    for (; !rc && times; times--) {
        rc = TU_GROW(&l->v, &l->cap, l->n, err);
        if (!rc)
            l->v[l->n++] = v;
    }
    return rc;
}

static int parse(struct list *l, const char *text, struct tu_err *err)
{
    char *copy = tu_strdup(text, err), *save = NULL;
    int rc = copy ? 0 : TU_ENOMEM;
    l->scale = 1;
    for (char *w = copy ? strtok_r(copy, ", \t\r\n", &save) : NULL; w && !rc;
         w = strtok_r(NULL, ", \t\r\n", &save))
        rc = parse_one(l, w, err);
    tu_free(copy);
    return rc;
}

struct job {
    struct list cost, size, cap, speed;
    double *fast;
    size_t *count;
};

static int load(struct job *j, struct tu_partition *q, struct tu_err *err)
{
    struct tu_buf text = {0};
    struct list ends = {0};
    int rc = opt.costs ? 0 : pipe_slurp("-", &text, err);
    if (!rc)
        rc = parse(&j->cost, opt.costs ? opt.costs : text.data ? text.data : "", err);
    if (!rc)
        rc = parse(&ends, opt.first, err);
    if (!rc)
        rc = parse(&ends, opt.last, err);
    if (!rc && ends.n != 2)
        rc = tu_fail(err, TU_EUSAGE, "--first and --last are one cost each");
    int64_t scale = ends.scale > j->cost.scale ? ends.scale : j->cost.scale;
    rc = rc ? rc : grow_scale(&j->cost, scale, err);
    rc = rc ? rc : grow_scale(&ends, scale, err);
    if (!rc && opt.sizes)
        rc = parse(&j->size, opt.sizes, err);
    if (!rc && opt.caps)
        rc = parse(&j->cap, opt.caps, err);
    if (!rc && opt.speeds)
        rc = parse(&j->speed, opt.speeds, err);
    scale = j->size.scale > j->cap.scale ? j->size.scale : j->cap.scale;
    if (!rc && opt.sizes && opt.caps) {
        rc = grow_scale(&j->size, scale, err);
        rc = rc ? rc : grow_scale(&j->cap, scale, err);
    }
    if (!rc)
        *q = (struct tu_partition){.layers = j->cost.n,
                                   .stages = opt.stages,
                                   .cost = j->cost.v,
                                   .first = ends.v[0],
                                   .last = ends.v[1],
                                   .empty = true};
    tu_free(ends.v);
    tu_buf_release(&text);
    return rc;
}

static int check(struct job *j, struct tu_partition *q, struct tu_err *err)
{
    if (!q->layers)
        return tu_fail(err, TU_EUSAGE, "partition: no layers were given");
    if ((opt.sizes && j->size.n != q->layers) || (opt.caps && j->cap.n != q->stages) ||
        (opt.speeds && j->speed.n != q->stages) || !opt.sizes != !opt.caps)
        return tu_fail(
            err, TU_EUSAGE,
            "partition: --sizes has a value for each layer, --caps and --speeds one "
            "for each stage; sizes and caps go together");
    j->fast = tu_alloc(q->stages, sizeof *j->fast, err);
    j->count = tu_alloc(q->stages, sizeof *j->count, err);
    if (!j->fast || !j->count)
        return TU_ENOMEM;
    for (size_t k = 0; k < j->speed.n; k++)
        j->fast[k] = (double)j->speed.v[k] / (double)j->speed.scale;
    q->speed = opt.speeds ? j->fast : NULL;
    q->memory = opt.sizes ? j->size.v : NULL;
    q->cap = opt.caps ? j->cap.v : NULL;
    return 0;
}

static const struct tu_column columns[] = {
    {"stage", "STAGE", TU_COL_U64, 5},
    {"first_layer", "FIRST", TU_COL_U64, 6},
    {"layers", "LAYERS", TU_COL_U64, 6},
    {"time", "TIME", TU_COL_REAL, 12},
    {0},
};

static int layout(struct tu_ctx *ctx, const struct tu_partition *q, const struct job *j,
                  struct tu_err *err)
{
    struct tu_buf text = {0};
    struct tu_layout_cell *cell = tu_calloc(q->stages, sizeof *cell, err);
    int rc = cell ? 0 : TU_ENOMEM;
    for (size_t k = 0; !rc && k < q->stages; k++)
        cell[k] =
            (struct tu_layout_cell){k == 0, (uint32_t)j->count[k], 0, k + 1 == q->stages};
    if (!rc)
        rc = tu_layout_write(&text, cell, q->stages, err);
    if (!rc)
        rc = tu_buf_text(&text, "\n", err);
    if (!rc)
        rc = pipe_bytes(ctx, &text, err);
    tu_free(cell);
    tu_buf_release(&text);
    return rc;
}

static void table(struct tu_ctx *ctx, const struct tu_partition *q, const struct job *j)
{
    size_t at = 0;
    tu_rows_begin(ctx, columns);
    for (size_t k = 0; k < q->stages; k++) {
        double t = (double)((k == 0 ? q->first : 0) + (k + 1 == q->stages ? q->last : 0));
        for (size_t i = 0; i < j->count[k]; i++)
            t += (double)q->cost[at + i];
        t /= (double)j->cost.scale * (q->speed ? q->speed[k] : 1);
        tu_row(ctx, (const struct tu_cell[]){
                        {.u = k}, {.u = at}, {.u = j->count[k]}, {.f = t}});
        at += j->count[k];
    }
}

/* Empty stages are what the best split asks for, not what one expects. */
static void advise(struct tu_ctx *ctx, const struct tu_partition *q, const struct job *j)
{
    for (size_t k = 0; q->layers >= q->stages && k < q->stages; k++)
        if (!j->count[k])
            tu_warn(ctx,
                    "partition: stage %zu is without layers: a layer on every stage takes "
                    "longer or does not fit",
                    k);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct job j = {0};
    struct tu_partition q;
    double worst;
    (void)argc;
    (void)argv;
    if (!opt.stages || opt.stages > TU_SCHED_MAX)
        return tu_usage(ctx, "partition: -p is needed, in 1 … %u", TU_SCHED_MAX);
    int rc = load(&j, &q, &err);
    if (!rc)
        rc = check(&j, &q, &err);
    if (!rc)
        rc = tu_partition_find(&q, j.count, &worst, &err);
    if (!rc)
        advise(ctx, &q, &j);
    if (!rc && opt.layout)
        rc = layout(ctx, &q, &j, &err);
    else if (!rc)
        table(ctx, &q, &j);
    tu_free(j.cost.v);
    tu_free(j.size.v);
    tu_free(j.cap.v);
    tu_free(j.speed.v);
    tu_free(j.fast);
    tu_free(j.count);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"-p stages [option ...]", NULL};

const struct tu_cmd pipe_partition = {
    .name = "partition",
    .example = "pipe-sched partition -p 4 --costs '1*30' --first 2 --last 3",
    .summary = "split layers of uneven cost into stages, optimally",
    .usage = usage,
    .opts = options,
    .run = run,
};
