/* SPDX-License-Identifier: Apache-2.0 */
/* average.c: the mean of checkpoints of one run: plain, weighted, or exponential. */

#include <math.h>

#include "opts.h"

static struct target_options target;
static struct tu_list weights;
static double decay;

static const struct tu_opt options[] = {
    WRITE_OPTIONS(target),
    {0, "weights", "W,...", "weight of each source (default: equal)", TU_OPT_DOUBLE,
     &weights, NULL, TU_OPT_LIST},
    {0, "ema", "DECAY", "exponential moving average, the oldest source first",
     TU_OPT_DOUBLE, &decay, NULL, 0},
    {0},
};

/* ema = DECAY ema + (1 - DECAY) source, from the first on, as weights of the sources. */
static void ema_weights(double *w, size_t n)
{
    double rest = 1;
    for (size_t i = n; i-- > 1; rest *= decay)
        w[i] = rest * (1 - decay);
    w[0] = rest;
}

/* Weights of n sources; 0, or a usage error's status. */
static int take_weights(struct tu_ctx *ctx, double *w, size_t n)
{
    double sum = 0;
    if (weights.n && decay != 0.0)
        return tu_usage(ctx, "--weights and --ema exclude each other");
    if (weights.n && weights.n != n)
        return tu_usage(ctx, "%zu weights for %zu sources", weights.n, n);
    if (!(decay >= 0 && decay < 1))
        return tu_usage(ctx, "--ema is at least 0 and below 1");
    for (size_t i = 0; i < n; i++)
        w[i] = weights.n ? TU_LIST(&weights, double)[i] : 1;
    if (decay != 0.0)
        ema_weights(w, n);
    for (size_t i = 0; i < n; i++)
        sum += w[i];
    return isfinite(sum) && sum != 0.0
               ? 0
               : tu_usage(ctx, "the weights add up to nothing");
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    size_t n = (size_t)argc - 1;
    struct tu_err err;
    struct tu_shard_opts o = *shard_opts(&target, ctx->force);
    o.weights_only = true; /* the mean of optimizer states is nobody's state */
    if (!target.to)
        target.to = "hf";
    double *w = tu_calloc(n, sizeof *w, &err);
    struct tu_ckpt **with = w ? tu_calloc(n, sizeof *with, &err) : NULL;
    int rc = with ? 0 : TU_ENOMEM, status = rc ? 0 : take_weights(ctx, w, n);
    for (size_t i = 1; i < n && !rc && !status; i++)
        rc = shard_open(ctx, &with[i - 1], argv[i], shard_from(), &o, &err);
    if (!rc && !status) {
        struct tu_mean mean = {(const struct tu_ckpt *const *)with, n - 1, w, false};
        o.mean = &mean;
        status = shard_convert(ctx, argv[0], shard_from(), argv[n], &target, &o);
    }
    if (rc)
        status = shard_error(ctx, &err);
    for (size_t i = 0; with && i < n; i++)
        tu_ckpt_close(with[i]);
    tu_free(with);
    tu_free(w);
    return status;
}

static const char *const usage[] = {"[option ...] source ... destination", NULL};

const struct tu_cmd cmd_average = {
    .name = "average",
    .example = "shard-ckpt average step-1 step-2 mean",
    .summary = "write the mean of checkpoints",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 2,
    .max = TU_ANY,
    .run = run,
};
