/* SPDX-License-Identifier: Apache-2.0 */
/* info.c: fa-run info: what this machine has, and its measured ceilings. */
#include "fa-run/fa.h"

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_attn_peaks p;
    struct tu_err err = {0};
    char isa[512];
    (void)argc;
    (void)argv;
    tu_cpu_text(tu_cpu_bits(), isa, sizeof isa);
    if (tu_attn_peaks_measure(&p, 0.3, tu_ctx_job(ctx), &err))
        return tu_error(ctx, &err);
    const struct {
        const char *key, *unit;
        double value;
    } row[] = {
        {"fma_gflops", "GFLOP/s f32", p.fma_gflops},
        {"amx_gflops", "GFLOP/s bf16", p.amx_gflops},
        {"exp_gops", "G exponentials/s", p.exp_gops},
        {"copy_gbs", "GB/s", p.copy_gbs},
        {"read_gbs", "GB/s", p.read_gbs},
    };
    tu_print(ctx, "cpu         %s\nisa         %s\nthreads     %u\n", tu_cpu_model(), isa,
             tu_pool_size(ctx->job.pool));
    for (unsigned i = 0; i < 5; i++)
        tu_print(ctx, "%-11s %.6g %s\n", row[i].key, row[i].value, row[i].unit);
    struct tu_jw *j = tu_result_begin(ctx);
    if (!j)
        return 0;
    tu_jw_str(j, "cpu", tu_cpu_model());
    tu_jw_str(j, "isa", isa);
    tu_jw_u64(j, "threads", tu_pool_size(ctx->job.pool));
    for (unsigned i = 0; i < 5; i++)
        tu_jw_real(j, row[i].key, row[i].value);
    tu_result_end(ctx);
    return 0;
}

static const char *const usage[] = {"[option ...]", NULL};

const struct tu_cmd fa_info = {
    .name = "info",
    .example = "fa-run info",
    .summary = "show the machine and its measured peaks",
    .usage = usage,
    .min = 0,
    .max = 0,
    .run = run,
};
