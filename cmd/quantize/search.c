/* SPDX-License-Identifier: Apache-2.0 */
/* quantize search: the types that lose least for a size, as a recipe. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <tensorutils/draw.h>
#include "quantize/quantize.h"
#include "quantize/search.h"

struct search_opt search_opt;
static const char *svg_path;

static const char *const usual[] = {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_0"};

struct tensor {
    char *name;
    uint64_t elements;
    size_t at; /* its way so far */
};

struct search {
    struct tu_ctx *ctx;
    struct input in;
    enum seen seen;
    bool quiet; /* quiet: for encode, no report */
    const char *const *type;
    size_t types;
    struct tensor *tensor;
    size_t n, cap;
    struct tu_way *way;
    size_t way_cap;
    uint64_t elements, kept; /* bytes of what stays as it is */
};

static int flow_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    return input_read(&((struct search *)ctx)->in, buf, n, err);
}

static int flow_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    (void)ctx;
    (void)p;
    (void)n;
    (void)err;
    return 0;
}

static int flow_rewind(void *ctx, struct tu_err *err)
{
    return input_rewind(&((struct search *)ctx)->in, err);
}

/* Size and squared error of the tensor at hand under one type, by the importance and the
 * defects that encoding would have. */
static int try_type(struct search *s, const struct task *like, const char *type,
                    struct tu_way *w, struct tu_err *err)
{
    const struct tu_tensor *x = &s->in.tensor;
    struct tu_flow flow = {s, flow_read, flow_write, flow_rewind};
    struct tu_measure m = {0};
    struct tu_coding_run run = {.flow = &flow,
                                .dtype = x->dtype,
                                .nonfinite = (enum tu_nonfinite)choosing.nonfinite,
                                .measure = &m};
    void *side[TU_CODING_SIDES] = {NULL};
    struct tu_coding c = {.compat = like->coding.compat,
                          .stream = like->coding.stream,
                          .importance = like->parts > 1 ? NULL : like->coding.importance};
    struct tu_spec spec;
    int rc = tu_spec_parse(&spec, type, err);
    if (rc)
        return rc;
    w->error = NAN;
    int fits = tu_coding_init(&c, &spec, x->dim, x->rank, err);
    tu_spec_release(&spec);
    if (fits)
        return 0; /* the choice falls on another */
    for (unsigned k = 0; !rc && k < c.sides; k++)
        if (!(side[k] = tu_calloc((size_t)c.side[k].bytes, 1, err)))
            rc = TU_ENOMEM;
    if (!rc && !(rc = input_rewind(&s->in, err)))
        rc = tu_coding_encode(&c, &run, side, tu_ctx_job(s->ctx), err);
    w->error = m.sum_e2;
    w->bytes = c.code.bytes;
    for (unsigned k = 0; k < c.sides; k++) {
        w->bytes += c.side[k].bytes;
        tu_free(side[k]);
    }
    return rc;
}

static int search_tensor(struct search *s, struct tu_err *err)
{
    const struct tu_tensor *x = &s->in.tensor;
    struct task t;
    uint64_t n;
    int rc = tu_elements(x->dim, x->rank, &n, err);
    if (!rc)
        rc = task_begin(&t, &choosing, x, err);
    if (rc)
        return rc;
    const bool coded = t.codec && !t.choice.fixed;
    s->elements += n;
    s->kept += coded ? 0 : task_bytes(&t, x);
    if (coded && !(rc = TU_GROW(&s->tensor, &s->cap, s->n, err)))
        rc = input_spool(&s->in, err);
    for (size_t k = 0; !rc && coded && k < s->types; k++) {
        if (!(rc = TU_GROW(&s->way, &s->way_cap, s->n * s->types + k, err)))
            rc = try_type(s, &t, s->type[k], &s->way[s->n * s->types + k], err);
    }
    task_end(&t);
    if (!rc && coded && !(s->tensor[s->n].name = tu_strdup(x->name, err)))
        rc = TU_ENOMEM;
    if (rc)
        tu_err_prefix(err, "'%.80s'", x->name);
    else if (coded)
        s->tensor[s->n++].elements = n;
    return rc;
}

static int search_input(struct search *s, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = input_open(&s->in, path, s->seen, s->ctx, err);
    if (rc)
        return rc;
    while (!rc && what != ITEM_DONE && (rc = input_next(&s->in, &what, err)) == 0) {
        if (choosing.layers)
            s->in.model.layers = choosing.layers;
        s->in.model.importance = choosing.imatrix || choosing.calib_path;
        tu_recipe_model(choosing.recipe, &s->in.model);
        if (what == ITEM_TENSOR)
            rc = search_tensor(s, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(&s->in);
    return rc;
}

static double bpw_of(const struct search *s, const struct tu_step *step)
{
    return 8 * (double)(step->bytes + s->kept) / (double)tu_max(s->elements, 1);
}

static double rmse_of(const struct search *s, const struct tu_step *step)
{
    return sqrt(fmax(step->error, 0) / (double)tu_max(s->elements, 1));
}

static int draw(const struct search *s, const struct tu_step *step, size_t steps,
                struct tu_err *err)
{
    struct tu_buf out = {0};
    double *xy = tu_alloc(2 * steps, sizeof *xy, err);
    if (!xy)
        return TU_ENOMEM;
    for (size_t i = 0; i < steps; i++) {
        xy[i] = bpw_of(s, &step[i]);
        xy[steps + i] = rmse_of(s, &step[i]);
    }
    const struct tu_series series = {"frontier", steps, xy, xy + steps};
    const struct tu_chart chart = {.kind = TU_CHART_LINES,
                                   .title = "Error against size",
                                   .x_label = "bits per weight",
                                   .y_label = "root mean square error",
                                   .y_from_zero = true,
                                   .n = 1,
                                   .series = &series};
    int rc = tu_chart_svg(&out, &chart, err);
    if (!rc)
        rc = tu_file_write(svg_path, out.data, out.n, false, tu_ctx_job(s->ctx), err);
    tu_buf_release(&out);
    tu_free(xy);
    return rc;
}

static const struct tu_column columns[] = {
    {"bytes", NULL, TU_COL_U64, 0}, {"bpw", NULL, TU_COL_REAL, 0},
    {"rmse", NULL, TU_COL_REAL, 0}, {"type", NULL, TU_COL_TEXT, 0},
    {"name", NULL, TU_COL_NAME, 0}, {0},
};

/* The last step within the target, which is applied; all steps go to the JSON report. */
static int choose(struct search *s, const struct tu_step *step, size_t steps,
                  size_t *taken, struct tu_err *err)
{
    uint64_t most = search_opt.size ? search_opt.size : UINT64_MAX;
    if (search_opt.bpw > 0)
        most = tu_min(most, (uint64_t)(search_opt.bpw * (double)s->elements / 8));
    if (step[0].bytes + s->kept > most)
        return tu_fail(err, TU_EUSAGE,
                       "the smallest choice takes %" PRIu64 " bytes, %.4f bits per "
                       "weight",
                       step[0].bytes + s->kept, bpw_of(s, &step[0]));
    *taken = 0;
    for (size_t i = 0; i < steps; i++) {
        bool within = step[i].bytes + s->kept <= most && *taken + (i > 0) == i;
        if (within && i) {
            s->tensor[step[i].tensor].at = step[i].way;
            *taken = i;
        }
        if (s->quiet || !tu_json_wanted(s->ctx))
            continue;
        tu_row(s->ctx, (const struct tu_cell[]){
                           {.u = step[i].bytes + s->kept},
                           {.f = bpw_of(s, &step[i])},
                           {.f = rmse_of(s, &step[i])},
                           {.none = !i, .s = i ? s->type[step[i].way] : NULL},
                           {.none = !i, .s = i ? s->tensor[step[i].tensor].name : NULL}});
    }
    return 0;
}

/* Every tensor's type, and the steps up to there. */
static int solve(struct search *s, struct tu_step **step, size_t *steps, size_t *taken,
                 struct tu_err *err)
{
    size_t *first = tu_calloc(s->n, sizeof *first, err);
    int rc = first ? tu_frontier(s->way, s->n, s->types, first, step, steps, err) : TU_ENOMEM;
    for (size_t i = 0; !rc && i < s->n; i++)
        s->tensor[i].at = first[i];
    tu_free(first);
    if (!rc && !s->quiet && tu_json_wanted(s->ctx))
        tu_rows_begin(s->ctx, columns);
    return rc ? rc : choose(s, *step, *steps, taken, err);
}

static int answer(struct search *s, struct tu_err *err)
{
    struct tu_step *step = NULL;
    size_t steps = 0, taken = 0;
    int rc = solve(s, &step, &steps, &taken, err);
    if (!rc && svg_path)
        rc = draw(s, step, steps, err);
    if (!rc) {
        tu_print(s->ctx, "# %.4f bits per weight, %" PRIu64 " bytes, rmse %.6g\n",
                 bpw_of(s, &step[taken]), step[taken].bytes + s->kept,
                 rmse_of(s, &step[taken]));
        for (size_t i = 0; i < s->n; i++)
            tu_print(s->ctx, "\\Q%s\\E$=%s\n", s->tensor[i].name,
                     s->type[s->tensor[i].at]);
    }
    tu_free(step);
    return rc;
}

static void begin(struct search *s)
{
    s->type = search_opt.types.n ? TU_LIST(&search_opt.types, const char *) : usual;
    s->types = search_opt.types.n ? search_opt.types.n : sizeof usual / sizeof *usual;
}

static void end(struct search *s)
{
    for (size_t i = 0; i < s->n; i++)
        tu_free(s->tensor[i].name);
    tu_free(s->tensor);
    tu_free(s->way);
}

bool search_wanted(void)
{
    return search_opt.bpw > 0 || search_opt.size;
}

int search_apply(struct choosing *c, const char *path, enum seen seen, struct tu_ctx *ctx,
                 struct tu_err *err)
{
    struct search s = {.ctx = ctx, .seen = seen, .quiet = true};
    struct tu_step *step = NULL;
    size_t steps = 0, taken = 0;
    if (!strcmp(path, "-"))
        return tu_fail(err, TU_EUSAGE, "a target size needs a file: all tensors are read first");
    begin(&s);
    int rc = search_input(&s, path, err);
    if (!rc && s.n)
        rc = solve(&s, &step, &steps, &taken, err);
    for (size_t i = 0; !rc && i < s.n; i++) {
        struct tu_buf rule = {0};
        rc = tu_buf_printf(&rule, err, "\\Q%s\\E$=%s", s.tensor[i].name,
                           s.type[s.tensor[i].at]);
        if (!rc)
            rc = tu_recipe_rule(c->recipe, rule.data, err);
        tu_buf_release(&rule);
    }
    tu_free(step);
    end(&s);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct search s = {.ctx = ctx};
    struct tu_err err;
    begin(&s);
    int rc = choosing_begin(&choosing, ctx, &err);
    if (!rc)
        rc = search_input(&s, argc ? argv[0] : "-", &err);
    if (!rc)
        rc = answer(&s, &err);
    end(&s);
    choosing_end(&choosing);
    return rc ? tu_error(ctx, &err) : 0;
}

static const struct tu_opt options[] = {
    SEARCH_OPTIONS,
    {0, "svg", "FILE", "a chart of the frontier", TU_OPT_FILE_OUT, &svg_path, NULL, 0},
    CODING_OPTIONS,
    {0},
};

static const char *const usage[] = {"[option ...] [file]", NULL};

const struct tu_cmd quantize_search = {
    .name = "search",
    .example = "quantize search --target-bpw 5 w.tns > recipe",
    .summary = "find the types that lose least for a size; write them as a recipe",
    .usage = usage,
    .opts = options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN,
    .max = 1,
    .run = run,
};
