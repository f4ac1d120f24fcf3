/* SPDX-License-Identifier: Apache-2.0 */
/* stat.c: kv-pack stat: what caches are, what is in their layers, what they share, and
 * why one does not hit another. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kv-pack/pack.h"

static struct {
    bool layers, shared, why;
    uint64_t block;
    const char *dir;
    struct tu_spec from;
} opt = {.block = 16};

static const struct tu_opt options[] = {
    {0, "from", "ENGINE[:KEY=VALUE,...]", "whose files they are; default: by their looks",
     TU_OPT_SPEC, &opt.from, NULL, 0},
    {0, "layers", NULL, "each record: range of values, outlier channels", TU_OPT_FLAG,
     &opt.layers, NULL, 0},
    {0, "shared", NULL, "each pair: how much of their beginning is the same", TU_OPT_FLAG,
     &opt.shared, NULL, 0},
    {0, "why-miss", NULL, "of two: the first token and the first field that differ",
     TU_OPT_FLAG, &opt.why, NULL, 0},
    {'d', "dir", "DIR", "a store: its prompts, and what they share", TU_OPT_FILE_IN, &opt.dir,
     NULL, 0},
    {'b', "block", "N", "tokens of a block, for what is shared; default: 16", TU_OPT_U64,
     &opt.block, NULL, 0},
    {0},
};

/* Caches --------------------------------------------------------------------------------- */

static const struct tu_column cache_columns[] = {
    {"tokens", "TOKENS", TU_COL_U64, 0},     {"layers", "LAYERS", TU_COL_U64, 0},
    {"kv_heads", "HEADS", TU_COL_U64, 0},    {"head_dim_k", "DK", TU_COL_U64, 0},
    {"head_dim_v", "DV", TU_COL_U64, 0},     {"layout", "LAYOUT", TU_COL_TEXT, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},       {"bytes_per_token", "PER_TOKEN", TU_COL_REAL, 0},
    {"waste", "WASTE", TU_COL_REAL, 0},      {"tp_rank", NULL, TU_COL_U64, 0},
    {"tp_size", "TP", TU_COL_U64, 0},        {"rot", NULL, TU_COL_U64, 0},
    {"model", NULL, TU_COL_TEXT, 0},         {"weights", NULL, TU_COL_TEXT, 0},
    {"cache", "CACHE", TU_COL_NAME, 0},      {0},
};

/* A compressed cache without token ids: what its records held before. */
static int coded_tokens(const struct tu_kv *kv, uint64_t *tokens, struct tu_err *err)
{
    for (size_t i = 0; i < kv->n; i++) {
        struct kv_quant q;
        int rc = kv_quant_read(&kv->tensor[i], &q, err);
        if (rc)
            return rc;
        if (q.is)
            *tokens = tu_max(*tokens, q.a.tokens);
        tu_spec_release(&q.spec);
    }
    return 0;
}

static int show_cache(struct tu_ctx *ctx, struct tu_kv *kv, struct tu_err *err)
{
    uint64_t bytes = 0, layer, tokens = kv->tokens, slots = 0, used = 0;
    double waste = 0;
    struct tu_kv_table t;
    for (size_t i = 0; i < kv->n; i++)
        if (tu_kv_name(kv->tensor[i].name, &layer) || !strcmp(kv->tensor[i].name, "kv.all"))
            bytes += kv->tensor[i].bytes;
    if (kv->info.block) {
        int rc = tu_kv_pool_table(kv, &t, err);
        if (rc)
            return rc;
        waste = tu_kv_table_waste(&t, false, &slots, &used, err);
        tokens = used;
        tu_kv_table_release(&t);
    } else if (!tokens) {
        int rc = coded_tokens(kv, &tokens, err);
        if (rc)
            return rc;
    }
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = tokens},
                    {.u = kv->info.layers},
                    {.u = kv->info.heads},
                    {.u = kv->info.dim_k},
                    {.u = kv->info.dim_v},
                    {.s = *kv->info.layout ? kv->info.layout : "nhd"},
                    {.u = bytes},
                    {.none = !tokens, .f = tokens ? (double)bytes / (double)tokens : 0},
                    {.f = waste},
                    {.u = kv->info.tp_rank},
                    {.u = kv->info.tp_size},
                    {.u = kv->info.rot},
                    {.s = kv->info.model},
                    {.s = kv->info.weights},
                    {.s = kv->name},
                });
    return 0;
}

/* Records -------------------------------------------------------------------------------- */

static const struct tu_column record_columns[] = {
    {"cache", NULL, TU_COL_TEXT, 0},         {"dtype", "DTYPE", TU_COL_TEXT, 0},
    {"shape", "SHAPE", TU_COL_SHAPE, 0},     {"bytes", "BYTES", TU_COL_U64, 0},
    {"min", "MIN", TU_COL_REAL, 0},          {"max", "MAX", TU_COL_REAL, 0},
    {"std", "STD", TU_COL_REAL, 0},          {"nonfinite", "NAN", TU_COL_U64, 0},
    {"outlier_channels", "OUT", TU_COL_U64, 0}, {"largest_channel", "TOP", TU_COL_U64, 0},
    {"record", "RECORD", TU_COL_NAME, 0},    {0},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Channels whose root mean square is over 6 times the median's. */
static int outliers(const float *x, uint64_t rows, uint64_t cols, uint64_t *count,
                    uint64_t *top, struct tu_err *err)
{
    double *sum = tu_calloc((size_t)cols, sizeof *sum, err), *sorted;
    *count = *top = 0;
    if (!sum || !(sorted = tu_alloc((size_t)cols, sizeof *sorted, err))) {
        tu_free(sum);
        return TU_ENOMEM;
    }
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            sum[c] += isfinite(x[r * cols + c]) ? (double)x[r * cols + c] *
                                                      (double)x[r * cols + c]
                                                : 0;
    memcpy(sorted, sum, (size_t)cols * sizeof *sum);
    qsort(sorted, (size_t)cols, sizeof *sorted, by_value);
    for (uint64_t c = 0; c < cols; c++) {
        *count += sum[c] > 36 * sorted[cols / 2] && sum[c] > 0;
        *top = sum[c] > sum[*top] ? c : *top;
    }
    tu_free(sum);
    tu_free(sorted);
    return 0;
}

static int show_record(struct tu_ctx *ctx, struct tu_kv *kv, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    struct tu_tally tally = {0};
    uint64_t cols = 1, n, count = 0, top = 0;
    void *data = NULL;
    float *x = NULL;
    char text[8];
    for (unsigned k = 1; k < t->rank; k++)
        cols *= t->dim[k];
    bool valued = d && tu_dtype_is_float(t->dtype);
    valued = valued || (d && d->code & TU_DTYPE_GGML);
    int rc = tu_elements(t->dim, t->rank, &n, err);
    if (!rc && valued)
        rc = tu_kv_load(kv, i, &data, err);
    if (!rc && valued && !(x = tu_alloc((size_t)n, sizeof *x, err)))
        rc = TU_ENOMEM;
    if (!rc && valued)
        rc = tu_kv_to_float(t->dtype, data, x, n, t->dim[t->rank - 1], err);
    if (!rc && valued)
        rc = tu_tally_add(&tally, TU_F32, x, (size_t)n, tu_ctx_pool(ctx), err);
    if (!rc && valued && cols && t->dim[0])
        rc = outliers(x, n / cols, cols, &count, &top, err);
    if (!rc)
        tu_row(ctx, (const struct tu_cell[]){
                        {.s = kv->name},
                        {.s = tu_dtype_text(t->dtype, text)},
                        {.dim = t->dim, .rank = t->rank},
                        {.u = t->bytes},
                        {.none = !valued, .f = tally.min},
                        {.none = !valued, .f = tally.max},
                        {.none = !valued, .f = tu_tally_deviation(&tally)},
                        {.none = !valued, .u = tally.nans + tally.infs},
                        {.none = !valued, .u = count},
                        {.none = !valued, .u = top},
                        {.s = t->name},
                    });
    tu_free(data);
    tu_free(x);
    return rc;
}

/* Pairs ---------------------------------------------------------------------------------- */

static const struct tu_column pair_columns[] = {
    {"tokens", "SHARED", TU_COL_U64, 0}, {"blocks", "BLOCKS", TU_COL_U64, 0},
    {"of_first", "OF_A", TU_COL_U64, 0}, {"of_second", "OF_B", TU_COL_U64, 0},
    {"identity", "IDENTITY", TU_COL_TEXT, 0}, {"first", "A", TU_COL_TEXT, 0},
    {"second", "B", TU_COL_NAME, 0},     {0},
};

static int common(struct tu_kv *a, struct tu_kv *b, uint64_t *out, struct tu_err *err)
{
    int32_t *x, *y = NULL;
    *out = 0;
    int rc = tu_kv_ids(a, &x, err);
    if (!rc)
        rc = tu_kv_ids(b, &y, err);
    while (!rc && *out < tu_min(a->tokens, b->tokens) && x[*out] == y[*out])
        ++*out;
    tu_free(x);
    tu_free(y);
    return rc;
}

static int show_pair(struct tu_ctx *ctx, struct tu_kv *a, struct tu_kv *b,
                     struct tu_err *err)
{
    uint64_t n;
    struct tu_err why = {.msg = "same"};
    int rc = common(a, b, &n, err);
    if (rc)
        return rc;
    bool differs = tu_kv_info_same(&a->info, &b->info, true, &why) != 0;
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = n},
                    {.u = n / opt.block},
                    {.u = a->tokens},
                    {.u = b->tokens},
                    {.s = differs ? why.msg : "same"},
                    {.s = a->name},
                    {.s = b->name},
                });
    return 0;
}

/* The answer is no (1) where nothing of the second can be taken from the first. */
static int why_miss(struct tu_ctx *ctx, struct tu_kv *a, struct tu_kv *b, struct tu_err *err)
{
    struct tu_err why = {0};
    uint64_t n;
    int rc = common(a, b, &n, err);
    if (rc)
        return tu_error(ctx, err);
    bool differs = tu_kv_info_same(&a->info, &b->info, true, &why) != 0;
    uint64_t least = tu_min(a->tokens, b->tokens), blocks = n / opt.block;
    struct tu_jw *w = tu_result_begin(ctx);
    if (w) {
        tu_jw_u64(w, "tokens_in_common", n);
        tu_jw_u64(w, "block", opt.block);
        tu_jw_u64(w, "blocks_in_common", blocks);
        tu_jw_bool(w, "identity_same", !differs);
        tu_jw_str(w, "identity", differs ? why.msg : NULL);
        tu_result_end(ctx);
    }
    if (n < least)
        tu_print(ctx, "token %" PRIu64 " is the first that differs\n", n);
    else
        tu_print(ctx, "all %" PRIu64 " tokens of the shorter one are the same\n", n);
    tu_print(ctx, "%" PRIu64 " full blocks of %" PRIu64 " in common%s\n", blocks, opt.block,
             n && !blocks ? ": the shared beginning is shorter than one block" : "");
    if (differs)
        tu_print(ctx, "identity: %s\n", why.msg);
    else
        tu_print(ctx, "identity: the same as far as it is known\n");
    return differs || !blocks ? TU_STATUS_NO : TU_STATUS_YES;
}

static int show(struct tu_ctx *ctx, struct tu_kv_set *set, struct tu_err *err)
{
    int rc = 0;
    tu_rows_begin(ctx, opt.layers   ? record_columns
                       : opt.shared ? pair_columns
                                    : cache_columns);
    for (size_t i = 0; !rc && i < set->n; i++) {
        for (size_t k = 0; !rc && opt.layers && k < set->kv[i]->n; k++)
            rc = show_record(ctx, set->kv[i], k, err);
        for (size_t k = i + 1; !rc && opt.shared && k < set->n; k++)
            rc = show_pair(ctx, set->kv[i], set->kv[k], err);
        if (!rc && !opt.layers && !opt.shared)
            rc = show_cache(ctx, set->kv[i], err);
    }
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    int rc = opt.block ? 0 : tu_fail(&err, TU_EUSAGE, "--block 0");
    if (!rc && opt.dir)
        return argc || opt.layers || opt.shared || opt.why
                   ? tu_usage(ctx, "stat: --dir is for itself")
               : kv_stat_store(ctx, opt.dir, &err) ? tu_error(ctx, &err)
                                                   : TU_STATUS_YES;
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = kv_any(ctx, argc ? argv[i] : "-", opt.from.name ? &opt.from : NULL, &set, &err);
    int status = TU_STATUS_YES;
    if (!rc && opt.why && set.n != 2)
        status = tu_usage(ctx, "stat: --why-miss takes two caches, there are %zu", set.n);
    else if (!rc && opt.why)
        status = why_miss(ctx, set.kv[0], set.kv[1], &err);
    else if (!rc)
        rc = show(ctx, &set, &err);
    tu_kv_set_release(&set);
    return rc ? tu_error(ctx, &err) : status;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd kv_stat = {
    .name = "stat",
    .example = "kv-pack stat cache.tns",
    .summary = "sizes, ranges and outliers; what caches share, and why one misses",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run,
};
