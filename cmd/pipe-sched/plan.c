/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: pipe-sched plan: layouts of a training run over a cluster, priced and sorted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tensorutils/sched/split.h>
#include "pipe-sched/cluster.h"
#include "pipe-sched/plan_more.h"

static struct {
    const char *config, *emit, *overlap, *interference, *nvme_path;
    double contention;
    uint64_t layers, hidden, heads, kv_heads, ffn, vocab, batch, seq, top;
    uint64_t max_tp, max_pp, max_cp, max_mb, max_vpp;
    uint64_t encoder_layers, encoder_hidden, encoder_tokens;
    bool all, sensitivity, no_sp, uneven;
    int offload, style;
} opt = {.vocab = 51200, .seq = 2048, .top = 10};

static const char *const offloads[] = {"any", "none", "cpu", "split", "ssd", NULL};

static const char *const styles[] = {"gpt", "llama", NULL};

static const struct tu_opt options[] = {
    {0, "config", "FILE", "the model: a Hugging Face config.json", TU_OPT_FILE_IN,
     &opt.config, NULL, 0},
    {0, "layers", "N", "or its sizes: layers", TU_OPT_U64, &opt.layers, NULL, TU_OPT_POSITIVE},
    {0, "hidden", "N", "hidden size", TU_OPT_U64, &opt.hidden, NULL, TU_OPT_POSITIVE},
    {0, "heads", "N", "attention heads", TU_OPT_U64, &opt.heads, NULL, TU_OPT_POSITIVE},
    {0, "kv-heads", "N", "key-value heads; default: heads", TU_OPT_U64, &opt.kv_heads,
     NULL, TU_OPT_POSITIVE},
    {0, "ffn", "N", "width of the MLP; default: 4 hidden", TU_OPT_U64, &opt.ffn,
     NULL, TU_OPT_POSITIVE},
    {0, "style", NULL, "of the typed sizes; llama: a gated MLP, an output head, no biases",
     TU_OPT_CHOICE, &opt.style, styles, 0},
    {0, "vocab", "N", "vocabulary; default 51200", TU_OPT_U64, &opt.vocab,
     NULL, TU_OPT_POSITIVE},
    {'b', "batch", "N", "sequences of a step", TU_OPT_U64, &opt.batch, NULL, TU_OPT_POSITIVE},
    {0, "seq", "N", "tokens of a sequence; default 2048", TU_OPT_U64, &opt.seq,
     NULL, TU_OPT_POSITIVE},
    {0, "max-tp", "N", "largest tensor parallelism", TU_OPT_U64, &opt.max_tp,
     NULL, TU_OPT_POSITIVE},
    {0, "max-pp", "N", "most stages", TU_OPT_U64, &opt.max_pp, NULL, TU_OPT_POSITIVE},
    {0, "max-cp", "N", "largest context parallelism", TU_OPT_U64, &opt.max_cp,
     NULL, TU_OPT_POSITIVE},
    {0, "max-mb", "N", "largest micro-batch; default 8", TU_OPT_U64, &opt.max_mb, NULL,
     TU_OPT_POSITIVE},
    {0, "max-vpp", "N", "most chunks of a rank; default 8", TU_OPT_U64, &opt.max_vpp,
     NULL, TU_OPT_POSITIVE},
    {0, "no-sequence-parallel", NULL,
     "activations are not split by tensor parallelism too", TU_OPT_FLAG, &opt.no_sp, NULL,
     0},
    {0, "overlap", "OVERLAP",
     "how a layer's compute and communication overlap; --list=overlaps", TU_OPT_STRING,
     &opt.overlap, NULL, 0},
    {0, "contention", "SHARE",
     "t3: how much slower a product is beside its collective; default 0", TU_OPT_DOUBLE,
     &opt.contention, NULL, 0},
    {0, "interference", "FILE",
     "nano: speed of compute and network beside one another, by share of the device",
     TU_OPT_FILE_IN, &opt.interference, NULL, 0},
    {0, "offload", NULL, "optimizer state on the host where the device is too small",
     TU_OPT_CHOICE, &opt.offload, offloads, 0},
    {0, "uneven", NULL, "stages may differ in layers: head and encoder count",
     TU_OPT_FLAG, &opt.uneven, NULL, 0},
    {0, "encoder-layers", "N", "layers of a vision encoder in front", TU_OPT_U64,
     &opt.encoder_layers, NULL, TU_OPT_POSITIVE},
    {0, "encoder-hidden", "N", "its hidden size", TU_OPT_U64, &opt.encoder_hidden, NULL,
     TU_OPT_POSITIVE},
    {0, "encoder-tokens", "N", "its tokens of a sequence", TU_OPT_U64,
     &opt.encoder_tokens, NULL, TU_OPT_POSITIVE},
    {0, "top", "N", "rows to show; default 10", TU_OPT_U64, &opt.top, NULL, 0},
    {0, "all", NULL, "the rejected too, each with its reason", TU_OPT_FLAG, &opt.all,
     NULL, 0},
    {0, "sensitivity", NULL, "what faster devices, links or more memory would give",
     TU_OPT_FLAG, &opt.sensitivity, NULL, 0},
    {0, "emit", "megatron|torchtitan|deepspeed", "write the best as the flags of a trainer",
     TU_OPT_STRING, &opt.emit, NULL, 0},
    {0, "nvme-path", "DIRECTORY", "where --emit deepspeed puts state on an SSD",
     TU_OPT_STRING, &opt.nvme_path, NULL, 0},
    {0},
};

/* The encoder of the config, each size of an option over it. */
static int encoder(struct tu_encoder *e, const struct tu_vision *v, struct tu_err *err)
{
    *e = (struct tu_encoder){opt.encoder_layers ? opt.encoder_layers : v->layers,
                             opt.encoder_hidden ? opt.encoder_hidden : v->hidden,
                             opt.encoder_tokens ? opt.encoder_tokens : v->tokens};
    if ((e->layers || e->hidden || e->tokens) &&
        (!e->layers || !e->hidden || !e->tokens || e->layers > 4096))
        return tu_fail(err, TU_EUSAGE,
                       "plan: an encoder needs --encoder-layers (at most 4096), "
                       "--encoder-hidden and --encoder-tokens");
    return 0;
}

static int model(struct tu_ctx *ctx, struct tu_model *m, struct tu_encoder *e,
                 struct tu_err *err)
{
    struct tu_vision eye = {0};
    struct tu_buf text = {0};
    bool sizes = opt.layers || opt.hidden || opt.heads || opt.kv_heads || opt.ffn ||
                 opt.style;
    if (opt.config && sizes)
        return tu_fail(err, TU_EUSAGE, "plan: sizes come from --config or from options, "
                                       "not from both");
    if (!opt.config && opt.hidden % opt.heads)
        return tu_fail(err, TU_EUSAGE, "plan: --hidden does not divide by --heads");
    if (!opt.config) {
        *m = (struct tu_model){.layers = opt.layers,
                               .hidden = opt.hidden,
                               .heads = opt.heads,
                               .kv_heads = opt.kv_heads ? opt.kv_heads : opt.heads,
                               .head_dim = opt.heads ? opt.hidden / opt.heads : 0,
                               .ffn = opt.ffn ? opt.ffn : 4 * opt.hidden,
                               .vocab = opt.vocab,
                               .positions = opt.seq,
                               .gated = opt.style == 1,
                               .rmsnorm = opt.style == 1,
                               .tied = opt.style == 0,
                               .learned_positions = opt.style == 0,
                               .bias = opt.style == 0,
                               .rope_theta = opt.style == 1 ? 1e4 : 0};
        return encoder(e, &eye, err);
    }
    int rc = pipe_slurp(opt.config, &text, err);
    if (!rc)
        rc = tu_model_from_hf(m, text.data ? text.data : "", text.n, err);
    if (!rc)
        rc = tu_vision_from_hf(&eye, text.data, text.n, err);
    if (rc)
        tu_err_prefix(err, "%s", opt.config);
    else
        rc = encoder(e, &eye, err);
    tu_buf_release(&text);
    if (!rc && !tu_model_known(m->family))
        tu_warn(ctx, "%s: family '%s' is not known: counted as a plain transformer of these "
                     "sizes",
                opt.config, m->family);
    return rc;
}

/* The fastest layout that the trainer can run, as its flags. */
static int emit(struct tu_ctx *ctx, const struct tu_train_query *q,
                const struct tu_train_plan *p, struct tu_err *err)
{
    struct tu_buf text = {0};
    size_t k = 0;
    int rc = tu_fail(err, TU_EUSAGE, "plan: no layout is legal and fits");
    for (; k < p->legal; k++) {
        rc = tu_train_emit(&text, q, &p->row[k], opt.emit, err);
        if (rc != TU_EUNSUP)
            break;
    }
    if (!rc && !plan_same_time(&p->row[0], &p->row[k]))
        tu_warn(ctx, "%s cannot run the %zu fastest, of %.6g s; this layout takes %.6g s",
                opt.emit, k, p->row[0].step_s, p->row[k].step_s);
    rc = rc ? rc : pipe_bytes(ctx, &text, err);
    tu_buf_release(&text);
    return rc;
}

static int report(struct tu_ctx *ctx, const struct tu_train_query *q,
                  const struct tu_train_plan *p, struct tu_err *err)
{
    if (opt.emit)
        return emit(ctx, q, p, err);
    int rc = plan_table(ctx, q, p, opt.top, opt.all, err);
    if (!rc && p->legal && p->row[0].at.pp > 1 && (q->uneven || q->encoder))
        rc = plan_stages(ctx, q, &p->row[0].at, err);
    if (!rc && opt.sensitivity && p->legal)
        rc = plan_sensitivity(ctx, q, p->row[0].step_s, err);
    return rc;
}

/* What operations cost one another, for the form that asks for it. */
static int interference(struct tu_interference *x, struct tu_err *err)
{
    const char *form = opt.overlap ? opt.overlap : "";
    struct tu_buf text = {0};
    x->contention = opt.contention;
    if (!(opt.contention >= 0 && opt.contention < 1e6))
        return tu_fail(err, TU_EUSAGE, "--contention %g: a share of at least 0 is expected",
                       opt.contention);
    if (opt.contention > 0 && strcmp(form, "t3"))
        return tu_fail(err, TU_EUSAGE, "--contention is for --overlap t3");
    if (opt.interference && strcmp(form, "nano"))
        return tu_fail(err, TU_EUSAGE, "--interference is for --overlap nano");
    int rc = opt.interference ? pipe_slurp(opt.interference, &text, err) : 0;
    if (!rc && opt.interference)
        rc = tu_interference_read(x, text.data ? text.data : "", text.n, err);
    if (rc)
        tu_err_prefix(err, "%s", opt.interference);
    tu_buf_release(&text);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_model m;
    struct tu_interference x = {0};
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
    struct tu_encoder e;
    (void)argc;
    (void)argv;
    if ((!opt.config && (!opt.layers || !opt.hidden || !opt.heads)) || !opt.batch)
        return tu_usage(ctx, "plan: --config or --layers --hidden --heads, and --batch "
                             "are needed");
    bool deepspeed = opt.emit && !strcmp(opt.emit, "deepspeed");
    if (opt.emit && (opt.all || opt.sensitivity))
        return tu_usage(ctx, "plan: --all and --sensitivity are of the table, not of --emit");
    if (opt.nvme_path && !deepspeed)
        return tu_usage(ctx, "plan: --nvme-path is for --emit deepspeed");
    if (opt.overlap && !(q.overlap = tu_overlap_find(opt.overlap)))
        return tu_usage(ctx, "no overlap form is called '%s'; --list=overlaps names them",
                        opt.overlap);
    q.nvme_path = opt.nvme_path;
    q.offloads = opt.offload ? 1u << (opt.offload - 1) : ~0u;
    q.interference = &x;
    int rc = interference(&x, &err);
    if (!rc)
        rc = model(ctx, &m, &e, &err);
    q.encoder = !rc && e.layers ? &e : NULL;
    q.uneven = opt.uneven || q.encoder;
    if (!rc)
        rc = pipe_cluster(&q.cluster, &err);
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

static const char *link_row(size_t i, const char **help)
{
    *help = tu_links[i].help;
    return tu_links[i].name;
}

static const char *overlap_row(size_t i, const char **help)
{
    *help = tu_overlaps[i] ? tu_overlaps[i]->help : NULL;
    return tu_overlaps[i] ? tu_overlaps[i]->name : NULL;
}

static const struct tu_listing listings[] = {
    {"gpus", "kinds of device that are known", gpu_row, NULL},
    {"links", "links that are known", link_row, NULL},
    {"overlaps", "forms in which compute and communication overlap", overlap_row, NULL},
    {0},
};
static const char *const usage[] = {"--batch n [option ...]", NULL};

const struct tu_cmd pipe_plan = {
    .name = "plan",
    .example =
        "pipe-sched plan --layers 24 --hidden 2304 --heads 24 --gpus 32 --batch 512",
    .summary = "lay a training run out over a cluster",
    .usage = usage,
    .opts = options,
    .shared = cluster_options,
    .listings = listings,
    .run = run,
};
