/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: pipe-sched plan: layouts of a training run over a cluster, priced and sorted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tensorutils/sched/plan.h>
#include "pipe-sched/pipe.h"

static struct {
    const char *config, *gpu, *emit;
    uint64_t layers, hidden, heads, kv_heads, ffn, vocab, gpus, per_node, batch, seq, top,
        memory;
    uint64_t max_tp, max_pp, max_cp, max_mb, max_vpp;
    double network, link, efficiency;
    bool all, sensitivity, no_sp;
} opt = {.gpu = "h100",
         .per_node = 8,
         .vocab = 51200,
         .seq = 2048,
         .top = 10,
         .network = 50e9,
         .efficiency = 0.6};

static const struct tu_opt options[] = {
    {0, "config", "FILE", "the model: a Hugging Face config.json", TU_OPT_FILE_IN,
     &opt.config, NULL, 0},
    {0, "layers", "N", "or its sizes: layers", TU_OPT_U64, &opt.layers, NULL, 0},
    {0, "hidden", "N", "hidden size", TU_OPT_U64, &opt.hidden, NULL, 0},
    {0, "heads", "N", "attention heads", TU_OPT_U64, &opt.heads, NULL, 0},
    {0, "kv-heads", "N", "key-value heads; default: heads", TU_OPT_U64, &opt.kv_heads,
     NULL, 0},
    {0, "ffn", "N", "width of the MLP; default: 4 hidden", TU_OPT_U64, &opt.ffn, NULL, 0},
    {0, "vocab", "N", "vocabulary; default 51200", TU_OPT_U64, &opt.vocab, NULL, 0},
    {'n', "gpus", "N", "devices", TU_OPT_U64, &opt.gpus, NULL, 0},
    {0, "gpu", "NAME", "kind of device; --list=gpus; default h100", TU_OPT_STRING,
     &opt.gpu, NULL, 0},
    {0, "per-node", "N", "devices of a node; default 8", TU_OPT_U64, &opt.per_node, NULL,
     0},
    {0, "gpu-memory", NULL, "memory of a device, if not the kind's", TU_OPT_SIZE,
     &opt.memory, NULL, 0},
    {0, "link", NULL, "one way within a node, if not the kind's", TU_OPT_RATE, &opt.link,
     NULL, 0},
    {0, "network", NULL, "one way between nodes, each device; default 50GB/s",
     TU_OPT_RATE, &opt.network, NULL, 0},
    {0, "efficiency", "SHARE",
     "share of the peak that matrix products reach; default 0.6", TU_OPT_DOUBLE,
     &opt.efficiency, NULL, 0},
    {'b', "batch", "N", "sequences of a step", TU_OPT_U64, &opt.batch, NULL, 0},
    {0, "seq", "N", "tokens of a sequence; default 2048", TU_OPT_U64, &opt.seq, NULL, 0},
    {0, "max-tp", "N", "largest tensor parallelism", TU_OPT_U64, &opt.max_tp, NULL, 0},
    {0, "max-pp", "N", "most stages", TU_OPT_U64, &opt.max_pp, NULL, 0},
    {0, "max-cp", "N", "largest context parallelism", TU_OPT_U64, &opt.max_cp, NULL, 0},
    {0, "max-mb", "N", "largest micro-batch; default 8", TU_OPT_U64, &opt.max_mb, NULL,
     0},
    {0, "max-vpp", "N", "most chunks of a rank; default 8", TU_OPT_U64, &opt.max_vpp,
     NULL, 0},
    {0, "no-sequence-parallel", NULL,
     "activations are not split by tensor parallelism too", TU_OPT_FLAG, &opt.no_sp, NULL,
     0},
    {0, "top", "N", "rows to show; default 10", TU_OPT_U64, &opt.top, NULL, 0},
    {0, "all", NULL, "the rejected too, each with its reason", TU_OPT_FLAG, &opt.all,
     NULL, 0},
    {0, "sensitivity", NULL, "what faster devices, links or more memory would give",
     TU_OPT_FLAG, &opt.sensitivity, NULL, 0},
    {0, "emit", "FORM", "write the best as flags: megatron, torchtitan, deepspeed",
     TU_OPT_STRING, &opt.emit, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"tp", "TP", TU_COL_U64, 3},
    {"pp", "PP", TU_COL_U64, 3},
    {"vpp", "VPP", TU_COL_U64, 3},
    {"dp", "DP", TU_COL_U64, 5},
    {"cp", "CP", TU_COL_U64, 3},
    {"ep", "EP", TU_COL_U64, 3},
    {"microbatch", "MB", TU_COL_U64, 3},
    {"schedule", "SCHEDULE", TU_COL_TEXT, 17},
    {"recompute", "RECOMPUTE", TU_COL_TEXT, 9},
    {"zero", "ZERO", TU_COL_U64, 4},
    {"step_s", "STEP S", TU_COL_REAL, 9},
    {"mfu_pct", "MFU %", TU_COL_REAL, 8},
    {"memory_bytes", "MEMORY", TU_COL_BYTES, 9},
    {"state_bytes", NULL, TU_COL_U64, 0},
    {"activation_bytes", NULL, TU_COL_U64, 0},
    {"logit_bytes", NULL, TU_COL_U64, 0},
    {"compute_s", NULL, TU_COL_REAL, 0},
    {"tp_s", NULL, TU_COL_REAL, 0},
    {"bubble_s", "BUBBLE S", TU_COL_REAL, 9},
    {"pp_s", NULL, TU_COL_REAL, 0},
    {"dp_s", "DP S", TU_COL_REAL, 9},
    {"tp_sent_bytes", NULL, TU_COL_U64, 0},
    {"pp_sent_bytes", NULL, TU_COL_U64, 0},
    {"dp_sent_bytes", NULL, TU_COL_U64, 0},
    {"why_not", "NOTE", TU_COL_NAME, 1},
    {0},
};

static void row(struct tu_ctx *ctx, const struct tu_train_row *r)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    bool none = r->why_not && !(r->memory_bytes > 0);
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = r->at.tp},
                    {.u = r->at.pp},
                    {.u = r->at.vpp},
                    {.u = r->at.dp},
                    {.u = r->at.cp},
                    {.u = r->at.ep},
                    {.u = r->at.mb},
                    {.s = r->at.schedule},
                    {.s = recompute[r->at.recompute]},
                    {.u = r->at.zero},
                    {.none = none, .f = r->step_s},
                    {.none = none, .f = 100 * r->mfu},
                    {.none = none, .u = (uint64_t)r->memory_bytes},
                    {.none = none, .u = (uint64_t)r->state_bytes},
                    {.none = none, .u = (uint64_t)r->activation_bytes},
                    {.none = none, .u = (uint64_t)r->logit_bytes},
                    {.none = none, .f = r->compute_s},
                    {.none = none, .f = r->tp_s},
                    {.none = none, .f = r->bubble_s},
                    {.none = none, .f = r->pp_s},
                    {.none = none, .f = r->dp_s},
                    {.none = none, .u = (uint64_t)r->tp_bytes},
                    {.none = none, .u = (uint64_t)r->pp_bytes},
                    {.none = none, .u = (uint64_t)r->dp_bytes},
                    {.s = r->why_not ? r->why_not : ""},
                });
}

static int model(struct tu_model *m, struct tu_err *err)
{
    struct tu_buf text = {0};
    if (!opt.config) {
        *m = (struct tu_model){.layers = opt.layers,
                               .hidden = opt.hidden,
                               .heads = opt.heads,
                               .kv_heads = opt.kv_heads ? opt.kv_heads : opt.heads,
                               .head_dim = opt.heads ? opt.hidden / opt.heads : 0,
                               .ffn = opt.ffn ? opt.ffn : 4 * opt.hidden,
                               .vocab = opt.vocab,
                               .positions = opt.seq,
                               .tied = true,
                               .learned_positions = true,
                               .bias = true};
        return 0;
    }
    int rc = pipe_slurp(opt.config, &text, err);
    if (!rc)
        rc = tu_model_from_hf(m, text.data ? text.data : "", text.n, err);
    tu_buf_release(&text);
    return rc;
}

static int cluster(struct tu_cluster *c, struct tu_err *err)
{
    const struct tu_gpu *g = tu_gpu_find(opt.gpu);
    if (!g)
        return tu_fail(err, TU_EUSAGE,
                       "no device is called '%.20s'; --list=gpus names them", opt.gpu);
    *c = (struct tu_cluster){opt.gpus,      opt.per_node,
                             g->flops,      opt.link > 0 ? opt.link : g->link_bs,
                             opt.network,   opt.memory ? opt.memory : g->memory,
                             opt.efficiency};
    return 0;
}

/* The best step when one thing of the cluster is a tenth better. */
static int sensitivity(struct tu_ctx *ctx, const struct tu_train_query *q, double now,
                       struct tu_err *err)
{
    static const char *const what[] = {"compute", "links", "network", "memory"};
    for (int k = 0; k < 4; k++) {
        struct tu_train_query more = *q;
        struct tu_train_plan p;
        if (k == 0)
            more.cluster.flops *= 1.1;
        else if (k == 1)
            more.cluster.link_bs *= 1.1;
        else if (k == 2)
            more.cluster.network_bs *= 1.1;
        else
            more.cluster.memory += more.cluster.memory / 10;
        more.all = false;
        int rc = tu_train_make(&p, &more, err);
        if (rc)
            return rc;
        double then = p.legal ? p.row[0].step_s : now;
        struct tu_jw *w = tu_line_begin(ctx);
        if (w) {
            tu_jw_str(w, "sensitivity", what[k]);
            tu_jw_real(w, "step_s", then);
            tu_jw_real(w, "gain_pct", 100 * (now - then) / now);
            tu_line_end(ctx);
        }
        tu_print(ctx, "10 %% more %-8s step %.6g s, %.2f %% shorter\n", what[k], then,
                 100 * (now - then) / now);
        tu_train_release(&p);
    }
    return 0;
}

static int report(struct tu_ctx *ctx, const struct tu_train_query *q,
                  const struct tu_train_plan *p, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = 0;
    if (opt.emit) {
        rc = p->legal ? tu_train_emit(&text, q, &p->row[0], opt.emit, err)
                      : tu_fail(err, TU_EUSAGE, "plan: no layout is legal and fits");
        rc = rc ? rc : pipe_bytes(ctx, &text, err);
        tu_buf_release(&text);
        return rc;
    }
    tu_print(ctx,
             "%.3f billion parameters, %.3f PFLOP for the model each step; %" PRIu64
             " layouts, %zu legal\n",
             tu_train_params(q->model) / 1e9,
             tu_train_step_flops(q->model, (double)q->batch, (double)q->seq, false) /
                 1e15,
             p->considered, p->legal);
    tu_rows_begin(ctx, columns);
    for (size_t k = 0; k < p->n; k++)
        if (k < opt.top || (k >= p->legal && opt.all))
            row(ctx, &p->row[k]);
    tu_rows_end(ctx);
    if (opt.sensitivity && p->legal)
        rc = sensitivity(ctx, q, p->row[0].step_s, err);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_model m;
    struct tu_train_query q = {.model = &m,
                               .batch = opt.batch,
                               .seq = opt.seq,
                               .all = opt.all,
                               .sequence_parallel = !opt.no_sp,
                               .max_tp = (uint32_t)tu_min(opt.max_tp, 4096),
                               .max_pp = (uint32_t)tu_min(opt.max_pp, 4096),
                               .max_cp = (uint32_t)tu_min(opt.max_cp, 4096),
                               .max_mb = (uint32_t)tu_min(opt.max_mb, 4096),
                               .max_vpp = (uint32_t)tu_min(opt.max_vpp, 64)};
    struct tu_train_plan p;
    (void)argc;
    (void)argv;
    if ((!opt.config && (!opt.layers || !opt.hidden || !opt.heads)) || !opt.gpus ||
        !opt.batch)
        return tu_usage(ctx,
                        "plan: --config or --layers --hidden --heads, --gpus and --batch "
                        "are needed");
    int rc = model(&m, &err);
    if (!rc)
        rc = cluster(&q.cluster, &err);
    if (!rc)
        rc = tu_train_make(&p, &q, &err);
    if (rc)
        return tu_error(ctx, &err);
    rc = report(ctx, &q, &p, &err);
    bool none = !p.legal;
    tu_train_release(&p);
    return rc ? tu_error(ctx, &err) : none ? TU_STATUS_NO : TU_STATUS_YES;
}

static const char *gpu_row(size_t i, const char **help)
{
    *help = tu_gpus[i].help;
    return tu_gpus[i].name;
}

static const struct tu_listing listings[] = {
    {"gpus", "kinds of device that are known", gpu_row},
    {0},
};
static const char *const usage[] = {"--gpus n --batch n [option ...]", NULL};

const struct tu_cmd pipe_plan = {
    .name = "plan",
    .summary = "lay a training run out over a cluster",
    .usage = usage,
    .opts = options,
    .listings = listings,
    .flags = TU_CMD_NO_FORCE | TU_CMD_NO_THREADS | TU_CMD_NO_PROGRESS | TU_CMD_NO_SEED |
             TU_CMD_NO_DEVICE,
    .run = run,
};
