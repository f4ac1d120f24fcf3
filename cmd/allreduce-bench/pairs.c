/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c: allreduce-bench p2p: latency and bandwidth from every rank to every other. */
#include <stdio.h>
#include <tensorutils/draw.h>
#include "allreduce-bench/bench.h"

static struct {
    const char *transport, *iface;
    struct tu_list inject;
    uint64_t ranks, bytes, iters, timeout;
} opt = {.transport = "shm",
         .ranks = 4,
         .bytes = 1 << 20,
         .iters = 10,
         .timeout = UINT64_C(30000000000)};

static const struct tu_opt options[] = {
    {0, "transport", "TRANSPORT", "how bytes move (default shm)", TU_OPT_STRING,
     &opt.transport, NULL, 0},
    {'n', "ranks", NULL, "ranks (default 4)", TU_OPT_U64, &opt.ranks, NULL, 0},
    {'b', "bytes", NULL, "size of the messages for bandwidth (default 1M)", TU_OPT_SIZE,
     &opt.bytes, NULL, 0},
    {0, "iters", NULL, "messages timed for a pair (default 10)", TU_OPT_U64, &opt.iters,
     NULL, 0},
    {0, "timeout", NULL, "without progress the group gives up (default 30s)",
     TU_OPT_DURATION, &opt.timeout, NULL, 0},
    {0, "inject", "FAULT", "play a fault, as run does", TU_OPT_STRING, &opt.inject, NULL,
     TU_OPT_EACH},
    {0, "iface", "ADDRESS", "address to listen at (transport tcp)", TU_OPT_STRING,
     &opt.iface, NULL, 0},
    {0},
};

struct job {
    struct tu_ctx *ctx;
    double *latency, *cost; /* [from × ranks + to], seconds, seconds per byte */
};

static int in_rank(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    (void)ctx;
    return tu_pairs_run(r, opt.bytes, opt.iters, err);
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct job *j = ctx;
    struct tu_pair pair = {0};
    (void)rank;
    memcpy(&pair, p, tu_min(n, sizeof pair));
    size_t at = (size_t)pair.from * opt.ranks + pair.to;
    j->latency[at] = pair.latency;
    j->cost[at] = pair.rate > 0 ? 1 / pair.rate : 0;
    struct tu_jw *w = tu_line_begin(j->ctx);
    if (!w)
        return;
    tu_jw_u64(w, "from", pair.from);
    tu_jw_u64(w, "to", pair.to);
    tu_jw_real(w, "latency_us", pair.latency * 1e6);
    tu_jw_real(w, "rate_gbs", pair.rate / 1e9);
    tu_line_end(j->ctx);
}

/* One matrix as a grid; the darker the colour number, the slower. */
static int show(struct tu_ctx *ctx, const char *title, const double *cost, bool rate,
                struct tu_err *err)
{
    size_t n = (size_t)opt.ranks;
    char(*text)[16] = tu_calloc(n * n + n, sizeof *text, err);
    struct tu_grid_cell *cell = tu_calloc(n * n, sizeof *cell, err);
    const char **label = tu_calloc(n, sizeof *label, err);
    struct tu_buf out = {0};
    double least = 0;
    int code = text && cell && label ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < n * n && !code; i++)
        if (i / n != i % n && (least <= 0 || cost[i] < least))
            least = cost[i];
    for (size_t i = 0; i < n * n && !code; i++) {
        bool self = i / n == i % n;
        double v = rate ? (cost[i] > 0 ? 1e-9 / cost[i] : 0) : cost[i] * 1e6;
        snprintf(text[i], sizeof text[i], self ? "-" : "%.2f", v);
        int colour = cost[i] < 1.5 * least ? 2 : cost[i] < 3 * least ? 1 : 5;
        cell[i] = (struct tu_grid_cell){.text = text[i], .colour = self ? -1 : colour};
    }
    for (size_t i = 0; i < n && !code; i++) {
        snprintf(text[n * n + i], sizeof text[0], "%u", (unsigned)(i % 10000));
        label[i] = text[n * n + i];
    }
    if (!code)
        code = tu_grid_text(
            &out, &(struct tu_grid){cell, n, n, label, ctx->color, 0}, err);
    if (!code)
        tu_print(ctx, "%s\n%s", title, out.data);
    tu_buf_release(&out);
    tu_free(text);
    tu_free(cell);
    tu_free(label);
    return code;
}

static int report(const struct job *j, struct tu_diagnosis *d, struct tu_err *err)
{
    int code = show(j->ctx, "latency, us, from row to column:", j->latency, false, err);
    if (!code)
        code = show(j->ctx, "bandwidth, GB/s:", j->cost, true, err);
    if (!code)
        code = tu_pairs_judge(j->cost, (uint32_t)opt.ranks, d, err);
    if (code)
        return code;
    tu_print(j->ctx, "%s\n", d->text);
    struct tu_jw *w = tu_line_begin(j->ctx);
    if (w) {
        tu_jw_str(w, "kind", tu_trouble_names[d->kind]);
        tu_jw_str(w, "evidence", d->text);
        tu_line_end(j->ctx);
    }
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err = {0};
    struct tu_diagnosis d = {.kind = TU_FINE};
    (void)argc;
    (void)argv;
    if (opt.ranks < 2 || opt.ranks > 1024)
        return tu_usage(ctx, "--ranks %llu: 2 to 1024", (unsigned long long)opt.ranks);
    if (!opt.iters || opt.bytes < 8 || opt.bytes > UINT64_C(1) << 40)
        return tu_usage(ctx, "--iters 1 or more, --bytes 8 to 1T");
    size_t cells = (size_t)(opt.ranks * opt.ranks);
    struct tu_fault *fault = tu_calloc(opt.inject.n, sizeof *fault, &err);
    struct job j = {.ctx = ctx, .latency = tu_calloc(2 * cells, sizeof *j.latency, &err)};
    struct tu_group g = {.transport = opt.transport,
                         .size = (uint32_t)opt.ranks,
                         .timeout = opt.timeout,
                         .host = opt.iface,
                         .fault = fault,
                         .faults = opt.inject.n,
                         .ctx = &j,
                         .fn = in_rank,
                         .post = posted,
                         .job = tu_ctx_alone(ctx)};
    int code = fault && j.latency ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < opt.inject.n && !code; i++)
        code = tu_fault_parse(&fault[i], TU_LIST(&opt.inject, const char *)[i], &err);
    if (!code) {
        j.cost = j.latency + cells;
        code = tu_group_run(&g, &err);
    }
    if (!code)
        code = report(&j, &d, &err);
    tu_free(fault);
    tu_free(j.latency);
    return code ? tu_error(ctx, &err) : d.kind == TU_FINE ? TU_STATUS_YES : TU_STATUS_NO;
}

static const char *const usage[] = {"[option ...]", NULL};

const struct tu_cmd bench_pairs = {
    .name = "p2p",
    .example = "allreduce-bench p2p -n 4",
    .summary = "measure latency and bandwidth of every pair of ranks",
    .usage = usage,
    .opts = options,
    .run = run,
};
