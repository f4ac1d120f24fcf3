/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: kv-pack replay: a trace of requests through caches of several sizes and
 * policies, and with a clock. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/draw.h>
#include "kv-pack/pack.h"

static struct {
    struct tu_list policies, blocks;
    const char *form, *svg;
    uint64_t block, page, reserve, warnings;
    uint64_t pre, dec;
    bool timed, groups, waste;
} opt = {.page = 16, .reserve = 131072, .warnings = 5};

static const struct tu_opt options[] = {
    {0, "form", "TRACE", "form of the trace; default: by its looks", TU_OPT_STRING, &opt.form,
     NULL, 0},
    {0, "policy", "POLICY[:KEY=VALUE,...]", "eviction, several with commas; default: lru",
     TU_OPT_STRING, &opt.policies, NULL, TU_OPT_EACH | TU_OPT_SPECS},
    {'n', "blocks", "N,...", "sizes of the cache in blocks of the trace; default: unlimited",
     TU_OPT_STRING, &opt.blocks, NULL, TU_OPT_LIST},
    {'b', "block", "N", "tokens of a hashed block; default: the form's", TU_OPT_U64,
     &opt.block, NULL, 0},
    {0, "groups", NULL, "what groups of one prefix save a batch", TU_OPT_FLAG, &opt.groups,
     NULL, 0},
    {0, "waste", NULL, "empty slots by --page, and of reserving", TU_OPT_FLAG, &opt.waste,
     NULL, 0},
    {0, "page", "N", "tokens of a page, for --waste and --timed; default: 16", TU_OPT_U64,
     &opt.page, NULL, 0},
    {0, "reserve", "N", "tokens reserved for each request; default: 131072", TU_OPT_U64,
     &opt.reserve, NULL, 0},
    {0, "timed", NULL, "with a clock: admission, growth, preemption", TU_OPT_FLAG, &opt.timed,
     NULL, 0},
    {0, "pre", "TIME", "for a prompt token; default: 100us", TU_OPT_DURATION, &opt.pre, NULL,
     0},
    {0, "dec", "TIME", "for an output token; default: 20ms", TU_OPT_DURATION, &opt.dec, NULL,
     0},
    {0, "svg", "FILE", "a chart of hit rate against size", TU_OPT_FILE_OUT, &opt.svg, NULL,
     0},
    {0, "warnings", "N", "how many faults of the trace to tell; default: 5", TU_OPT_U64,
     &opt.warnings, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"policy", "POLICY", TU_COL_TEXT, 16},   {"capacity", "BLOCKS", TU_COL_U64, 10},
    {"tokens", "TOKENS", TU_COL_U64, 12},    {"hits", "HITS", TU_COL_U64, 9},
    {"rate", "RATE", TU_COL_REAL, 10},       {"evictions", "EVICTIONS", TU_COL_U64, 10},
    {"blocks", NULL, TU_COL_U64, 0},         {0},
};

struct curves {
    double *x, *y; /* [policies][sizes] */
    size_t policies, sizes;
    const char **name;
};

static uint64_t size_at(size_t i, struct tu_err *err, int *rc)
{
    uint64_t v = UINT64_MAX;
    if (opt.blocks.n && strcmp(TU_LIST(&opt.blocks, const char *)[i], "unlimited") != 0)
        *rc = tu_parse_u64(TU_LIST(&opt.blocks, const char *)[i], &v, err);
    return v;
}

static int one(struct tu_ctx *ctx, const struct tu_kv_trace *t, const char *policy,
               uint64_t capacity, double *rate, struct tu_err *err)
{
    struct tu_spec spec;
    struct tu_kv_hits h;
    int rc = tu_spec_parse(&spec, policy, err);
    if (rc)
        return rc;
    rc = tu_kv_replay(t, &spec, capacity, &h, err);
    tu_spec_release(&spec);
    if (rc)
        return rc;
    *rate = h.blocks ? (double)h.hits / (double)h.blocks : 0;
    bool all = capacity == UINT64_MAX;
    tu_row(ctx, (const struct tu_cell[]){
                    {.s = policy},
                    {.none = all, .u = capacity},
                    {.none = all, .u = all ? 0 : capacity * t->block},
                    {.u = h.hits},
                    {.f = *rate},
                    {.u = h.evictions},
                    {.u = h.blocks},
                });
    return 0;
}

static int draw(struct tu_ctx *ctx, const struct tu_kv_trace *t, const struct curves *c,
                struct tu_err *err)
{
    struct tu_series *s = tu_calloc(c->policies, sizeof *s, err);
    struct tu_buf out = {0};
    struct tu_chart chart = {.kind = TU_CHART_LINES, .title = "Hit rate against cache size",
                             .x_label = "tokens of cache", .y_label = "blocks found",
                             .log_x = true, .y_from_zero = true, .n = c->policies,
                             .series = s};
    int rc = s ? 0 : TU_ENOMEM;
    for (size_t p = 0; !rc && p < c->policies; p++) {
        s[p] = (struct tu_series){.name = c->name[p], .x = c->x + p * c->sizes,
                                  .y = c->y + p * c->sizes};
        for (size_t i = 0; i < c->sizes; i++)
            s[p].n += s[p].x[i] > 0;
    }
    (void)t;
    if (!rc)
        rc = tu_chart_svg(&out, &chart, err);
    if (!rc)
        rc = tu_file_write(opt.svg, out.data, out.n, false, tu_ctx_job(ctx), err);
    tu_buf_release(&out);
    tu_free(s);
    return rc;
}

static int cache_only(struct tu_ctx *ctx, const struct tu_kv_trace *t, struct tu_err *err)
{
    static const char *const lru[] = {"lru"};
    struct curves c = {.policies = opt.policies.n ? opt.policies.n : 1,
                       .sizes = opt.blocks.n ? opt.blocks.n : 1};
    c.name = opt.policies.n ? TU_LIST(&opt.policies, const char *)
                            : (const char **)(uintptr_t)lru;
    c.x = tu_calloc(c.policies * c.sizes, sizeof *c.x, err);
    c.y = tu_calloc(c.policies * c.sizes, sizeof *c.y, err);
    int rc = c.x && c.y ? 0 : TU_ENOMEM;
    if (!rc && !t->hashed)
        rc = tu_fail(err, TU_EUSAGE, "no hash_ids, so nothing is shared: --waste and --timed "
                                     "do without");
    if (rc)
        goto out;
    tu_rows_begin(ctx, columns);
    for (size_t p = 0; !rc && p < c.policies; p++)
        for (size_t i = 0; !rc && i < c.sizes; i++) {
            uint64_t n = size_at(i, err, &rc);
            if (!rc)
                rc = one(ctx, t, c.name[p], n, &c.y[p * c.sizes + i], err);
            c.x[p * c.sizes + i] = n == UINT64_MAX ? 0 : (double)n * (double)t->block;
        }
    tu_rows_end(ctx);
    if (!rc && opt.svg)
        rc = draw(ctx, t, &c, err);
out:
    tu_free(c.x);
    tu_free(c.y);
    return rc;
}

static const struct tu_column figures[] = {
    {"figure", "FIGURE", TU_COL_TEXT, 34}, {"value", "VALUE", TU_COL_REAL, 0}, {0},
};

static void figure(struct tu_ctx *ctx, const char *name, double v)
{
    tu_row(ctx, (const struct tu_cell[]){{.s = name}, {.f = v}});
}

static int show_groups(struct tu_ctx *ctx, const struct tu_kv_trace *t, struct tu_err *err)
{
    struct tu_kv_groups g;
    int rc = tu_kv_group(t, &g, err);
    if (rc)
        return rc;
    double n = t->ids ? (double)t->ids : 1;
    figure(ctx, "blocks", (double)t->ids);
    figure(ctx, "distinct blocks", t->distinct);
    figure(ctx, "saved, tree of groups", (double)g.multi);
    figure(ctx, "saved fraction, tree of groups", (double)g.multi / n);
    figure(ctx, "saved, one group each", (double)g.single);
    figure(ctx, "saved fraction, one group each", (double)g.single / n);
    figure(ctx, "groups", (double)g.groups);
    return 0;
}

static void show_waste(struct tu_ctx *ctx, const struct tu_kv_trace *t)
{
    struct tu_kv_waste w;
    tu_kv_trace_waste(t, opt.page, opt.reserve, &w);
    figure(ctx, "tokens, input and output", (double)w.tokens);
    figure(ctx, "slots empty, pages", w.paged);
    figure(ctx, "used of what is reserved", w.reserved);
    figure(ctx, "requests over the reservation", (double)w.over);
    figure(ctx, "used of the next power of two", w.power);
    figure(ctx, "longest request, tokens", (double)w.longest);
}

static int show_timed(struct tu_ctx *ctx, const struct tu_kv_trace *t, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < (opt.blocks.n ? opt.blocks.n : 1); i++) {
        struct tu_kv_timed out;
        struct tu_kv_timed_how how = {.block = opt.page,
                                      .pre = opt.pre ? (int64_t)(opt.pre / 1000) : 100,
                                      .dec = opt.dec ? (int64_t)(opt.dec / 1000) : 20000};
        how.blocks = size_at(i, err, &rc);
        if (!rc)
            rc = tu_kv_timed_run(t, &how, &out, err);
        if (rc)
            break;
        figure(ctx, "pages", how.blocks == UINT64_MAX ? -1 : (double)how.blocks);
        figure(ctx, "most pages in use", (double)out.peak);
        figure(ctx, "most requests at once", (double)out.running);
        figure(ctx, "preemptions", (double)out.preemptions);
        figure(ctx, "tokens computed again", (double)out.recomputed);
        figure(ctx, "requests rejected", (double)out.rejected);
        figure(ctx, "makespan, s", (double)out.makespan / 1e6);
        figure(ctx, "slots empty over time", out.waste);
    }
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_trace t;
    struct tu_in *in;
    const struct tu_kv_trace_form *form = NULL;
    if (!opt.page || !opt.reserve || opt.block > UINT32_MAX)
        return tu_usage(ctx, "replay: --page, --reserve and --block are at least 1");
    for (size_t i = 0; opt.form && tu_kv_trace_forms[i].name; i++)
        if (!strcmp(tu_kv_trace_forms[i].name, opt.form))
            form = &tu_kv_trace_forms[i];
    if (opt.form && !form)
        return tu_usage(ctx, "no form is called '%s'; --list=traces names them", opt.form);
    int rc = tu_in_open(&in, argc ? argv[0] : "-", &err);
    if (rc)
        return tu_error(ctx, &err);
    rc = tu_kv_trace_read(&t, in, form, (uint32_t)opt.block, opt.warnings, tu_ctx_job(ctx),
                          &err);
    tu_in_close(in);
    if (rc)
        return tu_error(ctx, &err);
    const char *name = argc && strcmp(argv[0], "-") != 0 ? argv[0] : "standard input";
    if (t.warnings > opt.warnings)
        tu_warn(ctx, "%" PRIu64 " more faults in the trace", t.warnings - opt.warnings);
    if (opt.groups || opt.waste || opt.timed) {
        tu_rows_begin(ctx, figures);
        if (opt.groups)
            rc = show_groups(ctx, &t, &err);
        if (!rc && opt.waste)
            show_waste(ctx, &t);
        if (!rc && opt.timed)
            rc = show_timed(ctx, &t, &err);
    } else {
        rc = cache_only(ctx, &t, &err);
    }
    tu_kv_trace_release(&t);
    if (rc)
        tu_err_prefix(&err, "%s", name);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...] [file]", NULL};

const struct tu_cmd kv_replay = {
    .name = "replay",
    .example = "kv-pack replay --policy lru --policy opt --blocks 1000,10000 trace.jsonl",
    .summary = "hits, waste and preemptions of a trace of requests",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN,
    .max = 1,
    .run = run,
};
