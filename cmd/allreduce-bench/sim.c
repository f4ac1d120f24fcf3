/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c: allreduce-bench sim: how long a collective takes on a described cluster. */
#include <stdio.h>
#include "allreduce-bench/bench.h"

static const char *const models[] = {"alphabeta", "loggp", "nccl",
                                     "switches",  "flow",  NULL};

static struct {
    const char *topo, *coll, *pattern;
    struct tu_list algo;
    uint64_t bytes, root, nodes, ranks, radix, hb, L, o, g, G, O;
    int model;
    bool goal;
} opt = {.coll = "allreduce",
         .bytes = 1 << 20,
         .ranks = 8,
         .nodes = 1,
         .radix = 64,
         .hb = 1,
         .L = 2500,
         .o = 1500,
         .g = 1000,
         .G = 6};

static const struct tu_opt options[] = {
    {0, "topo", "SPEC", "levels:n=8+16,alpha=1us+5us,bw=300G+25G,gamma=50G, or a file",
     TU_OPT_STRING, &opt.topo, NULL, 0},
    {0, "coll", "COLLECTIVE", "collective (default allreduce)", TU_OPT_STRING, &opt.coll, NULL,
     0},
    {0, "algo", "ALGORITHM[:KEY=VALUE,...]|all",
     "how it is done; several with commas (default all)", TU_OPT_STRING, &opt.algo, NULL,
     TU_OPT_EACH | TU_OPT_SPECS},
    {0, "pattern", "PATTERN[:KEY=VALUE,...]", "a training pattern instead",
     TU_OPT_STRING, &opt.pattern, NULL, 0},
    {'b', "bytes", NULL, "size (default 1M)", TU_OPT_SIZE, &opt.bytes, NULL, 0},
    {0, "root", NULL, "root of the rooted collectives", TU_OPT_U64, &opt.root, NULL, 0},
    {0, "model", NULL,
     "clocks, GOAL text under LogGP, NCCL's tuner, switch counts, flows", TU_OPT_CHOICE,
     &opt.model, models, 0},
    {'n', "ranks", NULL, "ranks or hosts of models nccl and switches (default 8)",
     TU_OPT_U64, &opt.ranks, NULL, 0},
    {0, "nodes", NULL, "nodes of model nccl (default 1)", TU_OPT_U64, &opt.nodes, NULL,
     0},
    {0, "radix", NULL, "ports of a switch (default 64)", TU_OPT_U64, &opt.radix, NULL, 0},
    {0, "hb", NULL, "rails: hosts of a high-bandwidth domain (default 1)", TU_OPT_U64,
     &opt.hb, NULL, 0},
    {0, "goal", NULL, "print the schedule as GOAL text instead", TU_OPT_FLAG, &opt.goal,
     NULL, 0},
    {0, "latency", "NS", "the L of LogGP (default 2500)", TU_OPT_U64, &opt.L, NULL, 0},
    {0, "overhead", "NS", "the o of LogGP (default 1500)", TU_OPT_U64, &opt.o, NULL, 0},
    {0, "gap", "NS", "the g of LogGP (default 1000)", TU_OPT_U64, &opt.g, NULL, 0},
    {0, "gap-byte", "NS", "the G of LogGP (default 6)", TU_OPT_U64, &opt.G, NULL, 0},
    {0, "overhead-byte", "NS", "the O of LogGP (default 0)", TU_OPT_U64, &opt.O, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"algorithm", "ALGORITHM", TU_COL_TEXT, 24},
    {"ranks", "RANKS", TU_COL_U64, 7},
    {"bytes", "BYTES", TU_COL_U64, 12},
    {"time_us", "TIME_US", TU_COL_REAL, 12},
    {"closed_form_us", "CLOSED_US", TU_COL_REAL, 12},
    {"bound_us", "BOUND_US", TU_COL_REAL, 12},
    {"rounds", "ROUNDS", TU_COL_U64, 8},
    {"messages", NULL, TU_COL_U64, 0},
    {"busiest_rank", NULL, TU_COL_U64, 0},
    {"busiest_bytes", NULL, TU_COL_REAL, 0},
    {"last_rank", NULL, TU_COL_U64, 0},
    {"level_bytes", NULL, TU_COL_JSON, 0},
    {NULL, NULL, TU_COL_TEXT, 0},
};

/* The plan of one size: elements are bytes. */
static int make_plan(struct tu_plan *p, enum tu_collective c, const struct tu_spec *spec,
                     uint32_t ranks, uint64_t bytes, struct tu_err *err)
{
    bool blocks = tu_collective_rows[c].in == 2 || tu_collective_rows[c].out == 2;
    return tu_plan_make(p, c, spec, ranks, (uint32_t)opt.root,
                        bytes / (blocks ? ranks : 1), err);
}

static int simulate(struct tu_sim_result *r, const struct tu_plan *p,
                    const struct tu_topo *topo, struct tu_err *err)
{
    return opt.model == 4 ? tu_coll_flows(r, p, topo, err)
                          : tu_coll_simulate(r, p, topo, NULL, err);
}

/* Of a pattern's operations: the quickest algorithm on the clocks, or the one named. */
static int cost(void *ctx, const struct tu_task *t, double *seconds, struct tu_err *err)
{
    const struct tu_topo *topo = ctx;
    const char *want = opt.algo.n ? TU_LIST(&opt.algo, const char *)[0] : NULL;
    int code = 0;
    bool found = false;
    for (size_t i = 0; tu_algorithms[i] && !code; i++) {
        const struct tu_algorithm *a = tu_algorithms[i];
        struct tu_spec spec = {.name = (char *)(uintptr_t)a->name};
        struct tu_sim_result r;
        struct tu_plan p;
        if (a->coll != t->coll || (a->flags & TU_ALG_SHARED) ||
            (want && strcmp(want, a->name) != 0) ||
            make_plan(&p, t->coll, &spec, tu_topo_ranks(topo), t->bytes, NULL))
            continue;
        code = simulate(&r, &p, topo, err);
        if (!code && (!found || r.seconds < *seconds))
            *seconds = r.seconds;
        found = true;
    }
    return code || found
               ? code
               : tu_fail(err, TU_EUSAGE, "no algorithm for %s among those named",
                         tu_collective_rows[t->coll].name);
}

static int whole_step(struct tu_ctx *ctx, const struct tu_topo *topo, struct tu_err *err)
{
    struct tu_replay_result r = {.steps = 1};
    struct tu_tasks tasks;
    int code = tu_tasks_make(&tasks, opt.pattern, tu_topo_ranks(topo), err);
    if (!code)
        code = tu_tasks_predict(&tasks, cost, (void *)(uintptr_t)topo, &r.step, err);
    tu_tasks_release(&tasks);
    if (code)
        return code;
    bench_pattern_head(ctx);
    bench_pattern_row(ctx, opt.pattern, tu_topo_ranks(topo), &r);
    return 0;
}

static int one(struct tu_ctx *ctx, enum tu_collective c, const struct tu_spec *spec,
               const char *name, const struct tu_topo *topo, struct tu_err *err)
{
    struct tu_plan p;
    struct tu_sim_result r;
    int code = make_plan(&p, c, spec, tu_topo_ranks(topo), opt.bytes, err);
    if (!code && opt.goal) {
        struct tu_buf text = {0};
        code = tu_goal_write(&text, &p, err);
        if (!code)
            tu_print(ctx, "%s", text.data);
        tu_buf_release(&text);
        return code;
    }
    if (!code)
        code = simulate(&r, &p, topo, err);
    if (code)
        return code;
    if (r.seconds < r.bound * (1 - 1e-9))
        return tu_fail(err, TU_EBUG, "%s: %g s, below the bound of %g s", name, r.seconds,
                       r.bound);
    char levels[160];
    int at = snprintf(levels, sizeof levels, "[");
    for (uint32_t i = 0; i < topo->levels; i++)
        at += snprintf(levels + at, sizeof levels - (size_t)at, "%s%.0f", i ? "," : "",
                       r.level_bytes[i]);
    snprintf(levels + at, sizeof levels - (size_t)at, "]");
    bool flat = topo->levels == 1 && p.alg->model;
    double model = flat ? p.alg->model(&p, (double)opt.bytes, topo->alpha[0],
                                       topo->beta[0], topo->gamma)
                        : 0;
    const struct tu_cell cells[] = {
        {.s = name},
        {.u = p.ranks},
        {.u = opt.bytes},
        {.f = r.seconds * 1e6},
        {.none = !flat, .f = model * 1e6},
        {.f = r.bound * 1e6},
        {.u = r.rounds},
        {.u = r.messages},
        {.u = r.busiest},
        {.f = r.busiest_bytes},
        {.none = opt.model == 4, .u = r.last},
        {.s = levels},
    };
    tu_row(ctx, cells);
    return 0;
}

/* --topo: a SPEC, or a file that holds one; there, spaces and line ends are nothing and
 * a # begins a comment. */
static int read_topo(struct tu_topo *out, struct tu_err *err)
{
    if (strncmp(opt.topo, "levels:", 7) == 0)
        return tu_topo_parse(out, opt.topo, err);
    char *text;
    size_t n, kept = 0;
    int code = tu_file_read(opt.topo, 65536, &text, &n, err);
    if (code)
        return code;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '#')
            i += strcspn(text + i, "\n");
        else if (!strchr(" \t\r\n", text[i]))
            text[kept++] = text[i];
    }
    text[kept] = '\0';
    if (tu_topo_parse(out, text, err)) {
        tu_err_prefix(err, "%s", opt.topo);
        err->code = code = TU_EFORMAT;
    }
    tu_free(text);
    return code;
}

static int over_clocks(struct tu_ctx *ctx, struct tu_err *err)
{
    struct tu_topo topo;
    enum tu_collective c;
    if (!opt.topo)
        return tu_fail(err, TU_EUSAGE, "--topo is needed");
    int code = read_topo(&topo, err);
    if (!code)
        code = bench_collective(opt.coll, &c, err);
    if (!code && opt.root >= tu_topo_ranks(&topo))
        code = tu_fail(err, TU_EUSAGE, "--root %llu of %u ranks",
                       (unsigned long long)opt.root, (unsigned)tu_topo_ranks(&topo));
    if (!code && opt.pattern)
        return whole_step(ctx, &topo, err);
    if (code)
        return code;
    if (!opt.goal)
        tu_rows_begin(ctx, columns);
    for (size_t i = 0; i < opt.algo.n && !code; i++) {
        const char *name = TU_LIST(&opt.algo, const char *)[i];
        struct tu_spec spec;
        code = tu_spec_parse(&spec, name, err);
        if (code)
            break;
        code = one(ctx, c, &spec, name, &topo, err);
        tu_spec_release(&spec);
    }
    for (size_t i = 0; tu_algorithms[i] && !opt.algo.n && !code; i++) {
        const struct tu_algorithm *a = tu_algorithms[i];
        struct tu_spec spec = {.name = (char *)(uintptr_t)a->name};
        struct tu_plan p;
        if (a->coll == c && !(a->flags & TU_ALG_SHARED) &&
            !make_plan(&p, c, &spec, tu_topo_ranks(&topo), opt.bytes, NULL))
            code = one(ctx, c, &spec, a->name, &topo, err);
    }
    return code;
}

static int under_loggp(struct tu_ctx *ctx, const char *path, struct tu_err *err)
{
    static const struct tu_column cols[] = {{"rank", "RANK", TU_COL_U64, 6},
                                            {"finish_ns", "FINISH_NS", TU_COL_U64, 14},
                                            {NULL, NULL, TU_COL_TEXT, 0}};
    const struct tu_loggp m = {opt.L, opt.o, opt.g, opt.G, opt.O};
    char *text;
    size_t n;
    uint64_t *finish;
    uint32_t ranks;
    int code = tu_file_read(path, (size_t)64 << 20, &text, &n, err);
    if (code)
        return code;
    code = tu_goal_run(text, n, &m, &finish, &ranks, err);
    tu_free(text);
    if (code) {
        tu_err_prefix(err, "%s", path);
        return code;
    }
    tu_rows_begin(ctx, cols);
    for (uint32_t r = 0; r < ranks; r++) {
        const struct tu_cell cells[] = {{.u = r}, {.u = finish[r]}};
        tu_row(ctx, cells);
    }
    tu_free(finish);
    return 0;
}

static int by_tuner(struct tu_ctx *ctx, struct tu_err *err)
{
    static const char *const protos[] = {"LL", "LL128", "Simple"};
    static const struct tu_column cols[] = {{"protocol", "PROTOCOL", TU_COL_TEXT, 8},
                                            {"ring_us", "RING_US", TU_COL_REAL, 12},
                                            {"tree_us", "TREE_US", TU_COL_REAL, 12},
                                            {"ratio", "RATIO", TU_COL_REAL, 8},
                                            {NULL, NULL, TU_COL_TEXT, 0}};
    if (!opt.nodes || opt.ranks < opt.nodes || opt.ranks % opt.nodes ||
        opt.ranks > 1 << 20)
        return tu_fail(err, TU_EUSAGE, "%llu ranks on %llu nodes",
                       (unsigned long long)opt.ranks, (unsigned long long)opt.nodes);
    tu_rows_begin(ctx, cols);
    for (int p = 0; p < 3; p++) {
        uint32_t n = (uint32_t)opt.ranks, m = (uint32_t)opt.nodes;
        double ring = tu_nccl_latency(TU_NCCL_RING, (enum tu_nccl_proto)p, n, m);
        double tree = tu_nccl_latency(TU_NCCL_TREE, (enum tu_nccl_proto)p, n, m);
        const struct tu_cell cells[] = {
            {.s = protos[p]}, {.f = ring}, {.f = tree}, {.f = ring / tree}};
        tu_row(ctx, cells);
    }
    return 0;
}

static int count_switches(struct tu_ctx *ctx, struct tu_err *err)
{
    unsigned tiers;
    if (opt.radix < 2 || opt.radix > 4096 || !opt.hb || opt.hb > 65536 || !opt.ranks ||
        opt.ranks > UINT64_C(1) << 32)
        return tu_fail(err, TU_EUSAGE,
                       "--radix 2 to 4096, --hb 1 to 65536, --ranks up to 2^32");
    uint64_t n = tu_switches((uint32_t)opt.radix, opt.ranks, (uint32_t)opt.hb, &tiers);
    if (!tiers)
        return tu_fail(err, TU_EUSAGE,
                       "%llu hosts are too many for three tiers of radix %llu",
                       (unsigned long long)opt.ranks, (unsigned long long)opt.radix);
    tu_print(ctx, "%llu switches, %u tier%s\n", (unsigned long long)n, tiers,
             tiers > 1 ? "s" : "");
    struct tu_jw *w = tu_result_begin(ctx);
    if (w) {
        tu_jw_u64(w, "switches", n);
        tu_jw_u64(w, "tiers", tiers);
        tu_result_end(ctx);
    }
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err = {0};
    int code;
    if ((opt.model == 1) != (argc == 1))
        return tu_usage(ctx, "a GOAL file goes with --model loggp, and only with it");
    switch (opt.model) {
    case 1: code = under_loggp(ctx, argv[0], &err); break;
    case 2: code = by_tuner(ctx, &err); break;
    case 3: code = count_switches(ctx, &err); break;
    default: code = over_clocks(ctx, &err); break;
    }
    return code ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...] [goal-file]", NULL};

const struct tu_cmd bench_sim = {
    .name = "sim",
    .example = "allreduce-bench sim --topo levels:n=8+16,alpha=1us+5us,bw=300G+25G",
    .summary = "simulate collectives on a described cluster",
    .usage = usage,
    .opts = options,
    .max = 1,
    .run = run,
};
