/* SPDX-License-Identifier: Apache-2.0 */
/* quantize sparsify: of every M consecutive weights the N that count most stay, the others
 * become 0. What stores the rest compactly is a codec (quantize sparsify | quantize -t nm),
 * or blocks just as many as there are.
 *
 * Rows pass in windows; SparseGPT holds a matrix and its Hessian. */
#include <inttypes.h>
#include <string.h>
#include "quantize/blocks.h"
#include "quantize/calib.h"
#include "quantize/coded.h"
#include "quantize/target.h"
#include "tensorutils/quant/sparse.h"

enum score { MAGNITUDE, WANDA, SPARSEGPT };
static const char *const scores[] = {"magnitude", "wanda", "sparsegpt", NULL};
static const char *const axes[] = {"rows", "columns", NULL};

static struct {
    const char *keep;
    int score, axis;
    uint64_t n, m; /* m 0: nothing is set to zero */
    struct blocks blocks;
} opt;

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct target target;
    unsigned sides_left;
    uint64_t tensors, zeros, elements;
};

static const struct tu_column columns[] = {
    {"score", "SCORE", TU_COL_TEXT, 0}, {"zeros", "ZEROS", TU_COL_REAL, 0},
    {"shape", "SHAPE", TU_COL_SHAPE, 0}, {"blocks", NULL, TU_COL_U64, 0},
    {"fill_before", NULL, TU_COL_REAL, 0}, {"fill", NULL, TU_COL_REAL, 0},
    {"name", "NAME", TU_COL_NAME, 0}, {0},
};

static int parse_keep(struct tu_err *err)
{
    opt.keep = opt.keep || opt.blocks.size ? opt.keep : "2:4";
    const char *colon = opt.keep ? strchr(opt.keep, ':') : NULL;
    char n[24];
    if (!opt.keep)
        return 0;
    if (!colon || colon - opt.keep >= (int)sizeof n)
        return tu_fail(err, TU_EUSAGE, "--keep '%.40s': N:M, as 2:4", opt.keep);
    snprintf(n, sizeof n, "%.*s", (int)(colon - opt.keep), opt.keep);
    int rc = tu_parse_u64(n, &opt.n, err);
    return rc ? rc : tu_parse_u64(colon + 1, &opt.m, err);
}

/* Windows ----------------------------------------------------------------------------------- */

struct matrix {
    uint64_t rows, cols;
    double *squares; /* [cols] of the inputs, Wanda's */
    float *x, *score;
    unsigned char *raw;
    uint64_t step;   /* rows of a window */
};

static void matrix_release(struct matrix *a)
{
    tu_free(a->squares);
    tu_free(a->x);
    tu_free(a->score);
    tu_free(a->raw);
}

static int matrix_init(struct matrix *a, const struct tu_tensor *t, size_t input,
                       struct tu_err *err)
{
    float *mean = NULL;
    uint64_t n;
    *a = (struct matrix){.cols = t->dim[t->rank - 1]};
    int rc = tu_elements(t->dim, t->rank, &n, err);
    if (rc)
        return rc;
    a->rows = a->cols ? n / a->cols : 0;
    a->step = opt.score == SPARSEGPT || opt.blocks.size
                  ? a->rows
                  : tu_max(1, (UINT64_C(1) << 20) / tu_max(a->cols, 1));
    if (opt.axis && opt.m)
        a->step = tu_max(a->step / opt.m, 1) * opt.m;
    size_t most = (size_t)(tu_min(a->step, a->rows) * a->cols);
    if (opt.score == WANDA) {
        rc = calib_importance(choosing.calib, input, a->cols, &mean, err);
        a->squares = rc ? NULL : tu_alloc((size_t)a->cols, sizeof *a->squares, err);
        a->score = a->squares ? tu_alloc(most, sizeof *a->score, err) : NULL;
        for (uint64_t j = 0; a->score && j < a->cols; j++)
            a->squares[j] = (double)mean[j];
        tu_free(mean);
        if (rc || !a->score)
            return rc ? rc : TU_ENOMEM;
    }
    a->x = tu_alloc(most, sizeof *a->x, err);
    a->raw = a->x ? tu_alloc(most, 16, err) : NULL;
    return a->raw ? 0 : TU_ENOMEM;
}

static int prune(struct run *r, struct matrix *a, size_t input, uint64_t rows,
                 struct tu_err *err)
{
    const unsigned n = (unsigned)tu_min(opt.n, UINT32_MAX);
    const unsigned m = (unsigned)tu_min(opt.m, UINT32_MAX);
    if (!opt.keep)
        return 0;
    if (opt.score == SPARSEGPT) {
        struct tu_calib sums;
        struct tu_gptq g = {0};
        int rc = calib_sums(choosing.calib, input, a->cols, true, &sums, err);
        if (rc)
            return rc;
        rc = tu_sparsegpt_run(&g, &sums, n, m, a->x, rows, tu_ctx_pool(r->ctx), err);
        tu_calib_release(&sums);
        return rc;
    }
    if (a->squares)
        tu_score_wanda(a->x, a->squares, rows, a->cols, a->score);
    return tu_prune_nm(a->x, a->score, rows, a->cols, n, m, opt.axis != 0, err);
}

static int each_window(struct run *r, struct matrix *a, size_t input, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    const size_t wide = tu_dtype_find(t->dtype)->block_bytes;
    int rc = 0;
    for (uint64_t first = 0; !rc && first < a->rows; first += a->step) {
        uint64_t rows = tu_min(a->step, a->rows - first);
        size_t n = (size_t)(rows * a->cols);
        rc = input_read(&r->in, a->raw, n * wide, err);
        if (!rc)
            rc = tu_to_float(t->dtype, a->raw, a->x, n, err);
        if (!rc)
            rc = prune(r, a, input, rows, err);
        for (size_t i = 0; !rc && i < n; i++)
            r->zeros += a->x[i] == 0;
        if (!rc && opt.blocks.size)
            rc = blocks_put(&opt.blocks, &r->target, t, a->x, r->ctx, err);
        else if (!rc && !(rc = tu_cast(t->dtype, a->raw, TU_F32, a->x, n, err)))
            rc = target_write(&r->target, a->raw, n * wide, err);
        r->elements += n;
    }
    return rc;
}

/* Which tensors: those that would be coded. */
static int sparsify_plain(struct run *r, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    struct tu_choice choice;
    struct matrix a = {0};
    int rc = tu_recipe_choose(choosing.recipe, t, &choice, err);
    if (rc || !strcmp(choice.type, "keep") || t->rank < 2 || !d || d->block_elems != 1)
        return rc ? rc : target_copy(&r->target, &r->in, err);
    size_t input = choosing.calib ? calib_find(choosing.calib, t->name) : SIZE_MAX;
    if (opt.score != MAGNITUDE && input == SIZE_MAX) {
        tu_warn(r->ctx, "'%.80s': no inputs of this layer: left as it is", t->name);
        return target_copy(&r->target, &r->in, err);
    }
    uint64_t zeros = r->zeros, elements = r->elements;
    rc = matrix_init(&a, t, input, err);
    if (!rc && !opt.blocks.size)
        rc = target_record(&r->target, t->name, t->dtype, t->dim, t->rank, t->meta, err);
    if (!rc)
        rc = each_window(r, &a, input, err);
    matrix_release(&a);
    if (rc) {
        tu_err_prefix(err, "'%.80s'", t->name);
        return rc;
    }
    if (tu_report_wanted(r->ctx))
        tu_row(r->ctx, (const struct tu_cell[]){
                           {.s = scores[opt.score]},
                           {.f = (double)(r->zeros - zeros) /
                                 (double)tu_max(r->elements - elements, 1)},
                           {.dim = t->dim, .rank = t->rank},
                           {.none = !opt.blocks.size, .u = opt.blocks.kept},
                           {.none = !opt.blocks.size, .f = opt.blocks.before},
                           {.none = !opt.blocks.size, .f = opt.blocks.fill},
                           {.s = t->name}});
    r->tensors++;
    return 0;
}

static int sparsify_tensor(struct run *r, struct tu_err *err)
{
    bool coded = coded_is(&r->in.tensor);
    if (!coded && !r->sides_left)
        return sparsify_plain(r, err);
    r->sides_left = coded ? coded_sides(&r->in.tensor) : r->sides_left - 1;
    return target_copy(&r->target, &r->in, err);
}

static int sparsify_input(struct run *r, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = input_open(&r->in, path, target_seen(r->ctx), r->ctx, err);
    if (!rc && r->in.folder && !r->target.beside &&
        !(r->target.beside = tu_strdup(r->in.folder, err)))
        rc = TU_ENOMEM;
    while (!rc && what != ITEM_DONE && (rc = input_next(&r->in, &what, err)) == 0) {
        if (what == ITEM_TENSOR)
            rc = sparsify_tensor(r, err);
        else if (what == ITEM_META && opt.blocks.size && !strcmp(r->in.topic, "contents"))
            continue; /* how many blocks there will be is not known */
        else if (what == ITEM_META)
            rc = target_meta(&r->target, r->in.topic, r->in.json, r->in.json_len, err);
        else if (what == ITEM_OTHER)
            rc = target_copy(&r->target, &r->in, err);
        else if (what == ITEM_END && !(rc = tu_recipe_check(choosing.recipe, err)))
            rc = target_end(&r->target, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(&r->in);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct run r = {.ctx = ctx, .target.work = -1};
    struct tu_err err;
    int rc = parse_keep(&err);
    if (!rc && opt.blocks.cluster && !opt.blocks.size)
        rc = tu_fail(&err, TU_EUSAGE, "--cluster goes with --blocks");
    if (!rc && opt.score != MAGNITUDE && !opt.keep)
        rc = tu_fail(&err, TU_EUSAGE, "score '%s' decides what --keep keeps: give both",
                     scores[opt.score]);
    if (!rc && opt.score != MAGNITUDE && !choosing.calib_path)
        rc = tu_fail(&err, TU_EUSAGE, "score '%s' looks at inputs: give --calib",
                     scores[opt.score]);
    if (!rc && opt.score == SPARSEGPT && opt.axis)
        rc = tu_fail(&err, TU_EUSAGE, "score 'sparsegpt' prunes along rows");
    if (!rc)
        rc = choosing_begin(&choosing, ctx, &err);
    if (!rc)
        rc = target_open(&r.target, ctx, &err);
    if (!rc && tu_report_wanted(ctx))
        tu_rows_begin(ctx, columns);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = sparsify_input(&r, path[i], &err);
    if (!rc)
        rc = target_close(&r.target, &err);
    if (!rc)
        tu_note(ctx, 1, "%" PRIu64 " tensors, %" PRIu64 " of %" PRIu64 " weights are 0",
                r.tensors, r.zeros, r.elements);
    int status = rc ? tu_error(ctx, &err) : 0;
    target_abort(&r.target);
    choosing_end(&choosing);
    return status;
}

static const struct tu_opt options[] = {
    {0, "keep", "N:M", "N of every M consecutive weights; default: 2:4, all with --blocks",
     TU_OPT_STRING, &opt.keep, NULL, 0},
    {0, "score", NULL, "what a weight counts: its size, with its inputs, SparseGPT's",
     TU_OPT_CHOICE, &opt.score, scores, 0},
    {0, "axis", NULL, "direction of the M: along rows, or along columns for the backward pass",
     TU_OPT_CHOICE, &opt.axis, axes, 0},
    {0, "blocks", "SIZE", "write the square blocks that are not zero (codec bsr)", TU_OPT_U64,
     &opt.blocks.size, NULL, 0},
    {0, "cluster", NULL, "with --blocks: permute rows where that needs fewer", TU_OPT_FLAG,
     &opt.blocks.cluster, NULL, 0},
    {0, "calib", "FILE", "inputs of the layers: X.input for X.weight", TU_OPT_FILE_IN,
     &choosing.calib_path, NULL, 0},
    TARGET_OPTIONS,
    {0},
};

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_sparsify = {
    .name = "sparsify",
    .example = "quantize sparsify --keep 2:4 w.tns | quantize -t sparse24 -o s.tns",
    .summary = "set to zero the weights that count least, N of M staying",
    .usage = usage,
    .opts = options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS,
    .max = TU_ANY,
    .run = run,
};
