/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c: adapters of low rank: added to a model, and taken from two models. */

#include "opts.h"

static struct target_options target;
static struct tu_list scales;
static uint64_t rank, rounds;

static const struct tu_opt merge_options[] = {
    WRITE_OPTIONS(target),
    {0, "scale", "W,...", "how strongly each adapter is added (default: 1, as trained)",
     TU_OPT_DOUBLE, &scales, NULL, TU_OPT_LIST},
    {0},
};

static const struct tu_opt extract_options[] = {
    WRITE_OPTIONS(target),
    {0, "rank", NULL, "rank of the adapter", TU_OPT_U64, &rank, NULL, 0},
    {0, "rounds", NULL, "rounds of subspace iteration (default 4)", TU_OPT_U64, &rounds,
     NULL, 0},
    {0},
};

static int run_merge(struct tu_ctx *ctx, int argc, char **argv)
{
    size_t n = (size_t)argc - 2;
    struct tu_err err;
    struct tu_shard_opts o = *shard_opts(&target, ctx->force);
    o.weights_only = true; /* the optimizer's states are of other weights */
    if (!target.to)
        target.to = "hf";
    if (scales.n && scales.n != n)
        return tu_usage(ctx, "%zu values of --scale for %zu adapters", scales.n, n);
    struct tu_lora **lora = tu_calloc(n, sizeof *lora, &err);
    int rc = lora ? 0 : TU_ENOMEM, status;
    for (size_t i = 0; i < n && !rc; i++)
        rc = tu_lora_open(&lora[i], argv[i + 1],
                          scales.n ? TU_LIST(&scales, double)[i] : 1, &o, shard_job(ctx),
                          &err);
    o.lora = lora;
    o.loras = n;
    status = rc ? shard_error(ctx, &err)
                : shard_convert(ctx, argv[0], shard_from(), argv[n + 1], &target, &o);
    for (size_t i = 0; lora && i < n; i++)
        tu_lora_close(lora[i]);
    tu_free(lora);
    return status;
}

static const struct tu_column columns[] = {
    {"delta", "DELTA", TU_COL_REAL, 0},
    {"rest", "REST", TU_COL_REAL, 0},
    {"name", "TENSOR", TU_COL_NAME, 0},
    {0},
};

static void report(struct tu_ctx *ctx, const struct tu_extract *x)
{
    if (x->others)
        tu_warn(ctx, "%llu other tensors differ too and are in no adapter",
                (unsigned long long)x->others);
    if (!ctx->verbose && !tu_json_wanted(ctx))
        return;
    tu_rows_begin(ctx, columns);
    for (size_t i = 0; i < x->fits; i++)
        tu_row(ctx, (struct tu_cell[]){{.f = x->fit[i].delta},
                                       {.f = x->fit[i].rest},
                                       {.s = x->fit[i].name}});
}

static int run_extract(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_ckpt *base = NULL, *tuned = NULL, *adapter = NULL, *to = NULL;
    struct tu_err err;
    struct tu_shard_opts o = *shard_opts(&target, ctx->force);
    o.weights_only = true;
    (void)argc;
    if (!rank)
        return tu_usage(ctx, "which rank? (--rank N)");
    int rc = shard_open(ctx, &base, argv[0], shard_from(), &o, &err);
    if (!rc)
        rc = shard_open(ctx, &tuned, argv[1], shard_from(), &o, &err);
    struct tu_extract x = {.base = base, .tuned = tuned, .rank = rank,
                           .rounds = (unsigned)tu_min(rounds, 1000),
                           .base_name = argv[0]};
    if (!rc)
        rc = tu_lora_extract(&adapter, &x, shard_job(ctx), &err);
    if (!rc)
        rc = tu_ckpt_plan(&to, adapter, argv[2], target.to ? target.to : "peft", &o, &err);
    if (!rc)
        rc = tu_ckpt_convert(adapter, to, &o, shard_job(ctx), NULL, &err);
    if (!rc)
        report(ctx, &x);
    int status = rc ? shard_error(ctx, &err) : 0;
    tu_ckpt_close(to);
    tu_ckpt_close(adapter);
    tu_ckpt_close(tuned);
    tu_ckpt_close(base);
    return status;
}

static const char *const merge_usage[] = {"[option ...] base adapter ... destination",
                                          NULL};
static const char *const extract_usage[] = {
    "--rank number [option ...] base tuned destination", NULL};

const struct tu_cmd cmd_lora_merge = {
    .name = "lora-merge",
    .example = "shard-ckpt lora-merge base adapter merged",
    .summary = "add adapters of low rank to a model's weights",
    .usage = merge_usage,
    .opts = merge_options,
    .shared = source_options,
    .min = 3,
    .max = TU_ANY,
    .run = run_merge,
};

const struct tu_cmd cmd_lora_extract = {
    .name = "lora-extract",
    .example = "shard-ckpt lora-extract --rank 16 base tuned adapter",
    .summary = "write the adapter of low rank that lies between two models",
    .usage = extract_usage,
    .opts = extract_options,
    .shared = source_options,
    .min = 3,
    .max = 3,
    .run = run_extract,
};
