/* SPDX-License-Identifier: Apache-2.0 */
/* plan_emit.c: a layout in the words of the trainers: flags of Megatron-LM, torchtitan's
 * TOML, DeepSpeed's JSON. What a trainer cannot run is refused, never left out. */
#include <string.h>
#include "sched/plan_stage.h"
#include "tensorutils/sched/split.h"

/* Stages that differ in layers, as Megatron's text; a vision encoder has no letter in it. */
static int layout(struct tu_buf *b, const struct tu_train_query *q,
                  const struct tu_layout_choice *a, struct tu_err *err)
{
    struct tu_train_stage *stage;
    size_t n;
    int rc = tu_train_stages(&stage, &n, q, a, err);
    if (rc)
        return rc;
    struct tu_layout_cell *cell = tu_calloc(n, sizeof *cell, err);
    rc = cell ? tu_buf_text(b, "--pipeline-model-parallel-layout '", err) : TU_ENOMEM;
    for (size_t k = 0; k < n && !rc; k++)
        cell[k] = (struct tu_layout_cell){.embedding = stage[k].embedding,
                                          .layers = stage[k].layers,
                                          .mtp = stage[k].mtp,
                                          .loss = stage[k].head};
    if (!rc)
        rc = tu_layout_write(b, cell, n, err);
    tu_free(cell);
    tu_free(stage);
    return rc ? rc : tu_buf_text(b, "'\n", err);
}

/* Latent attention, and a rotary embedding of k apart. */
static int megatron_latent(struct tu_buf *b, const struct tu_model *m, struct tu_err *err)
{
    int rc = tu_buf_printf(b, err,
                           "--multi-latent-attention --kv-lora-rank %llu --qk-head-dim %llu "
                           "--qk-pos-emb-head-dim %llu --v-head-dim %llu\n",
                           (unsigned long long)m->kv_rank, (unsigned long long)m->nope_dim,
                           (unsigned long long)m->rope_dim, (unsigned long long)m->v_dim);
    if (!rc && m->q_rank)
        rc = tu_buf_printf(b, err, "--q-lora-rank %llu\n", (unsigned long long)m->q_rank);
    return rc;
}

/* A flag and the layers that are (1) or are not (0) of a kind. */
static int layer_list(struct tu_buf *b, const char *flag, const struct tu_model *m,
                      unsigned kind, bool is, struct tu_err *err)
{
    int rc = tu_buf_printf(b, err, "%s '[", flag);
    for (uint64_t k = 0; k < m->layers && !rc; k++) {
        uint64_t count[TU_LAYER_KINDS], of = 0;
        tu_model_kinds(m, k, k + 1, count);
        for (unsigned i = 0; i < TU_LAYER_KINDS; i++)
            of += i & kind ? count[i] : 0;
        rc = tu_buf_printf(b, err, "%s%d", k ? "," : "", (of != 0) == is);
    }
    return rc ? rc : tu_buf_text(b, "]'\n", err);
}

/* Layers whose attention is not whole: every one but each n-th, or those of a list. */
static int megatron_local(struct tu_buf *b, const struct tu_model *m, struct tu_err *err)
{
    bool delta = m->delta_value_heads;
    const char *flag = delta ? "--linear-attention-freq" : "--window-attn-skip-freq";
    int rc = delta ? tu_buf_text(b, "--experimental-attention-variant gated_delta_net ", err)
                   : tu_buf_printf(b, err, "--window-size %llu,0 ",
                                   (unsigned long long)(m->window - 1));
    if (!rc && m->full_every > m->layers) /* no rule */
        rc = layer_list(b, flag, m, TU_LAYER_LOCAL, true, err);
    else if (!rc)
        rc = tu_buf_printf(b, err, "%s %llu\n", flag, (unsigned long long)m->full_every);
    return rc || !delta ? rc
                        : tu_buf_printf(b, err,
                                        "--linear-num-key-heads %llu --linear-key-head-dim %llu "
                                        "--linear-num-value-heads %llu "
                                        "--linear-value-head-dim %llu\n"
                                        "--linear-conv-kernel-dim %llu%s\n",
                                        (unsigned long long)m->delta_key_heads,
                                        (unsigned long long)m->delta_key_dim,
                                        (unsigned long long)m->delta_value_heads,
                                        (unsigned long long)m->delta_value_dim,
                                        (unsigned long long)m->delta_conv,
                                        m->q_gate ? " --attention-output-gate" : "");
}

static int megatron_attention(struct tu_buf *b, const struct tu_model *m,
                              struct tu_err *err)
{
    int rc = 0;
    if (m->kv_rank)
        return megatron_latent(b, m, err);
    if (m->kv_heads && m->kv_heads != m->heads)
        rc = tu_buf_printf(b, err, "--group-query-attention --num-query-groups %llu\n",
                           (unsigned long long)m->kv_heads);
    if (!rc && m->head_dim && m->head_dim * m->heads != m->hidden)
        rc = tu_buf_printf(b, err, "--kv-channels %llu\n",
                           (unsigned long long)m->head_dim);
    bool local = m->full_every > 1 && (m->window || m->delta_value_heads);
    return rc || !local ? rc : megatron_local(b, m, err);
}

static int megatron_experts(struct tu_buf *b, const struct tu_model *m, struct tu_err *err)
{
    int rc = tu_buf_printf(b, err,
                           "--num-experts %llu --moe-router-topk %llu "
                           "--moe-ffn-hidden-size %llu\n",
                           (unsigned long long)m->experts, (unsigned long long)m->top_k,
                           (unsigned long long)m->expert_ffn);
    if (!rc && m->shared_ffn)
        rc = tu_buf_printf(b, err, "--moe-shared-expert-intermediate-size %llu\n",
                           (unsigned long long)m->shared_ffn);
    if (!rc && m->shared_gate)
        rc = tu_buf_text(b, "--moe-shared-expert-gate\n", err);
    if (!rc && m->moe_every > m->layers) /* no rule */
        rc = layer_list(b, "--moe-layer-freq", m, TU_LAYER_DENSE, false, err);
    else if (!rc && m->moe_every > 1) /* its own number counts from 0 */
        rc = tu_buf_printf(b, err, "--moe-layer-freq '([0]*%llu+[1])*%llu+[0]*%llu'\n",
                           (unsigned long long)(m->moe_every - 1),
                           (unsigned long long)(m->layers / m->moe_every),
                           (unsigned long long)(m->layers % m->moe_every));
    else if (!rc && m->dense_layers)
        rc = tu_buf_printf(b, err, "--moe-layer-freq '([0]*%llu+[1]*%llu)'\n",
                           (unsigned long long)m->dense_layers,
                           (unsigned long long)(m->layers - m->dense_layers));
    return rc;
}

/* What kind of layers they are, where that is not Megatron-LM's default. */
static int megatron_kind(struct tu_buf *b, const struct tu_model *m, struct tu_err *err)
{
    bool bias = m->bias || (m->qkv_bias && m->o_bias && m->mlp_bias);
    const struct {
        bool yes;
        const char *flag;
    } kind[] = {
        {m->gated, " --swiglu"},
        {m->rmsnorm, " --normalization RMSNorm"},
        {!bias, " --disable-bias-linear"},
        {m->qkv_bias && !bias, " --add-qkv-bias"},
        {m->qk_norm && !m->qk_bare, " --qk-layernorm"},
        {m->qk_norm && m->qk_bare, " --qk-l2-norm"},
        {m->sinks, " --softmax-type learnable"},
        {!m->tied, " --untie-embeddings-and-output-weights"},
    };
    int rc = tu_buf_text(b, "--bf16", err);
    if (!rc && m->mtp_layers)
        rc = tu_buf_printf(b, err, " --mtp-num-layers %llu",
                           (unsigned long long)m->mtp_layers);
    for (size_t k = 0; k < sizeof kind / sizeof *kind && !rc; k++)
        if (kind[k].yes)
            rc = tu_buf_text(b, kind[k].flag, err);
    if (!rc && m->norm_eps > 0)
        rc = tu_buf_printf(b, err, " --norm-epsilon %g", m->norm_eps);
    if (!rc)
        rc = tu_buf_text(b, "\n", err);
    if (!rc && m->rope_theta > 0)
        rc = tu_buf_printf(b, err, "--position-embedding-type rope --rotary-base %.0f%s\n",
                           m->rope_theta, m->rope_scaled ? " --use-rope-scaling" : "");
    if (!rc && m->rope_theta > 0 && m->rope_fraction > 0 && m->rope_fraction < 1)
        rc = tu_buf_printf(b, err, "--rotary-percent %g\n", m->rope_fraction);
    return rc;
}

/* The model: its sizes, and what differs from Megatron-LM's defaults. */
static int megatron_model(struct tu_buf *b, const struct tu_model *m, uint64_t seq,
                          struct tu_err *err)
{
    uint64_t positions = m->positions > seq ? m->positions : seq;
    int rc = tu_buf_printf(b, err,
                           "--num-layers %llu --hidden-size %llu --num-attention-heads %llu\n"
                           "--seq-length %llu --max-position-embeddings %llu "
                           "--vocab-size %llu\n",
                           (unsigned long long)m->layers, (unsigned long long)m->hidden,
                           (unsigned long long)m->heads, (unsigned long long)seq,
                           (unsigned long long)positions, (unsigned long long)m->vocab);
    if (!rc && m->ffn && m->ffn != 4 * m->hidden)
        rc = tu_buf_printf(b, err, "--ffn-hidden-size %llu\n", (unsigned long long)m->ffn);
    if (!rc)
        rc = megatron_kind(b, m, err);
    if (!rc)
        rc = megatron_attention(b, m, err);
    return rc || !m->experts ? rc : megatron_experts(b, m, err);
}

static int megatron(struct tu_buf *b, const struct tu_train_query *q,
                    const struct tu_train_row *r, struct tu_err *err)
{
    const struct tu_layout_choice *a = &r->at;
    const struct tu_model *m = q->model;
    int rc = megatron_model(b, m, q->seq, err);
    rc = rc ? rc : tu_buf_printf(
        b, err,
        "--micro-batch-size %u --global-batch-size %llu\n"
        "--tensor-model-parallel-size %u --pipeline-model-parallel-size %u\n",
        a->mb, (unsigned long long)q->batch, a->tp, a->pp);
    if (!rc && q->uneven && a->pp > 1)
        rc = layout(b, q, a, err);
    else if (!rc && a->vpp > 1)
        rc = tu_buf_printf(b, err, "--num-layers-per-virtual-pipeline-stage %llu\n",
                           (unsigned long long)(m->layers / a->pp / a->vpp));
    if (!rc && a->cp > 1)
        rc = tu_buf_printf(b, err, "--context-parallel-size %u\n", a->cp);
    if (!rc && a->ep > 1)
        rc = tu_buf_printf(b, err, "--expert-model-parallel-size %u\n", a->ep);
    if (!rc && q->sequence_parallel && a->tp > 1)
        rc = tu_buf_text(b, "--sequence-parallel\n", err);
    if (!rc && a->zero)
        rc = tu_buf_text(b, "--use-distributed-optimizer\n", err);
    if (!rc && a->offload) /* which it allows with that optimizer alone */
        rc = tu_buf_printf(b, err,
                           "--optimizer-cpu-offload --optimizer-offload-fraction %.3g "
                           "--use-precision-aware-optimizer\n",
                           r->cpu_share);
    if (!rc && a->recompute == TU_RECOMPUTE_SELECTIVE)
        rc = tu_buf_text(b, "--recompute-granularity selective\n", err);
    if (!rc && a->recompute == TU_RECOMPUTE_FULL)
        rc = tu_buf_text(b,
                         "--recompute-granularity full --recompute-method uniform "
                         "--recompute-num-layers 1\n",
                         err);
    return rc;
}

/* The name in PyTorch, which has no ZB-H1. */
static const char *titan_schedule(const char *name)
{
    return !strcmp(name, "interleaved-1f1b") ? "Interleaved1F1B"
           : !strcmp(name, "zb-v")           ? "ZBVZeroBubble"
           : !strcmp(name, "1f1b")           ? "1F1B"
                                             : NULL;
}

static int torchtitan(struct tu_buf *b, const struct tu_train_query *q,
                      const struct tu_train_row *r, struct tu_err *err)
{
    const struct tu_layout_choice *a = &r->at;
    static const char *const ac[] = {"none", "selective", "full"};
    uint64_t stages = (uint64_t)a->pp * tui_chunks(a);
    int rc = tu_buf_printf(
        b, err,
        "[training]\nlocal_batch_size = %llu\nglobal_batch_size = %llu\nseq_len = "
        "%llu\n\n"
        "[parallelism]\ndata_parallel_replicate_degree = %u\n"
        "data_parallel_shard_degree = %u\ntensor_parallel_degree = %u\n"
        "pipeline_parallel_degree = %u\npipeline_parallel_schedule = \"%s\"\n"
        "pipeline_parallel_microbatch_size = %u\ncontext_parallel_degree = %u\n"
        "expert_parallel_degree = %u\nexpert_tensor_parallel_degree = %u\n",
        (unsigned long long)(q->batch / a->dp), (unsigned long long)q->batch,
        (unsigned long long)q->seq, a->zero ? 1 : a->dp, a->zero ? a->dp : 1, a->tp,
        a->pp, a->pp > 1 ? titan_schedule(a->schedule) : "1F1B", a->mb, a->cp, a->ep,
        a->ep > 1 ? a->tp : 1);
    if (!rc && a->pp > 1) /* otherwise it counts embedding and head as a layer each */
        rc = tu_buf_printf(b, err,
                           "pipeline_parallel_layers_per_stage = %llu\n"
                           "pipeline_parallel_first_stage_less_layers = 0\n"
                           "pipeline_parallel_last_stage_less_layers = 0\n",
                           (unsigned long long)(q->model->layers / stages));
    return rc ? rc
              : tu_buf_printf(b, err, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                              ac[a->recompute]);
}

/* Offload is a part of ZeRO, even where there is one device to split over. */
static uint32_t deepspeed_zero(const struct tu_layout_choice *a)
{
    if (a->offload && a->dp == 1)
        return a->pp == 1 ? 3 : 1;
    return a->zero;
}

static int deepspeed(struct tu_buf *b, const struct tu_train_query *q,
                     const struct tu_train_row *r, struct tu_err *err)
{
    const struct tu_layout_choice *a = &r->at;
    struct tu_jw w;
    tu_jw_begin(&w, b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_u64(&w, "train_batch_size", q->batch);
    tu_jw_u64(&w, "train_micro_batch_size_per_gpu", a->mb);
    tu_jw_u64(&w, "gradient_accumulation_steps", r->microbatches);
    tu_jw_open(&w, "bf16", '{');
    tu_jw_bool(&w, "enabled", true);
    tu_jw_close(&w, '}');
    tu_jw_open(&w, "zero_optimization", '{');
    tu_jw_u64(&w, "stage", deepspeed_zero(a));
    if (a->offload) {
        tu_jw_open(&w, "offload_optimizer", '{');
        tu_jw_str(&w, "device", a->offload == TU_OFFLOAD_SSD ? "nvme" : "cpu");
        if (a->offload == TU_OFFLOAD_SSD)
            tu_jw_str(&w, "nvme_path", q->nvme_path);
        if (a->offload == TU_OFFLOAD_SPLIT)
            tu_jw_real(&w, "ratio", r->cpu_share); /* ZeRO-Offload++ */
        tu_jw_close(&w, '}');
    }
    tu_jw_close(&w, '}');
    tu_jw_open(&w, "pipeline", '{');
    tu_jw_u64(&w, "stages", a->pp);
    tu_jw_close(&w, '}');
    tu_jw_open(&w, "tensor_parallel", '{');
    tu_jw_u64(&w, "autotp_size", a->tp);
    tu_jw_close(&w, '}');
    tu_jw_close(&w, '}');
    int rc = tu_jw_end(&w, err);
    return rc ? rc : tu_buf_text(b, "\n", err);
}

/* What of a layout the trainer does not have; NULL: nothing. */
typedef const char *lacks_fn(const struct tu_train_query *q,
                             const struct tu_layout_choice *a);

/* What of a model Megatron-LM's own layers do not have. */
static const char *megatron_foreign(const struct tu_model *m)
{
    bool some = m->o_bias || m->mlp_bias, all = m->qkv_bias && m->o_bias && m->mlp_bias;
    const struct {
        bool yes;
        const char *what;
    } apart[] = {
        {m->post_norms, "norms behind attention and MLP"},
        {m->parallel || m->one_norm, "attention and MLP side by side"},
        {m->qk_norm && m->qk_wide, "norms over all heads of q and k"},
        {m->bare_norms, "norms without weights"},
        {m->embed_norm, "a norm behind the embedding"},
        {m->no_final_norm, "a model without a last norm"},
        {m->embed_dim && m->embed_dim != m->hidden, "an embedding of a size of its own"},
        {m->head_bias, "a bias on the head"},
        {some && !all && !m->bias, "biases on some products alone"},
        {m->chunked && m->full_every > 1, "attention in chunks"},
        {m->moe_every > 1 && m->dense_layers,
         "layers with experts that alternate behind dense ones"},
        {!m->learned_positions && !(m->rope_theta > 0),
         "positions that are neither learned nor rotary (of a rope_theta)"},
    };
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++)
        if (apart[k].yes)
            return apart[k].what;
    return NULL;
}

static const char *megatron_lacks(const struct tu_train_query *q,
                                  const struct tu_layout_choice *a)
{
    const char *s = a->schedule, *foreign = megatron_foreign(q->model);
    if (foreign)
        return foreign;
    if (a->pp > 1 && strcmp(s, "1f1b") && strcmp(s, "interleaved-1f1b"))
        return s;
    return a->zero > 1 ? "ZeRO 2 and 3" : a->offload == TU_OFFLOAD_SSD  ? "offload to an SSD"
           : a->offload && !a->zero        ? "offload without ZeRO"
                                           : NULL;
}

static const char *titan_lacks(const struct tu_train_query *q,
                               const struct tu_layout_choice *a)
{
    uint32_t shared = a->cp * (a->zero ? a->dp : 1); /* dp_shard · cp */
    if (a->pp > 1 && !titan_schedule(a->schedule))
        return a->schedule;
    if (a->pp > 1 && q->uneven)
        return "stages of uneven layers";
    /* Experts are cut as planned, by tp too: then a group of ep takes all of cp and a part
     * of those that share parameters. */
    if (a->ep > 1 && (a->ep % a->cp || shared % a->ep))
        return "expert parallelism but among devices that share parameters (ZeRO 3) or cp";
    if (q->seq % ((uint64_t)a->tp * a->cp * 2) && (a->tp > 1 || a->cp > 1))
        return "sequences that do not divide by tp and twice cp";
    return a->zero == 1 || a->zero == 2 ? "ZeRO 1 and 2" : a->offload ? "offload" : NULL;
}

static const char *deepspeed_lacks(const struct tu_train_query *q,
                                   const struct tu_layout_choice *a)
{
    if (a->pp > 1 && strcmp(a->schedule, "1f1b"))
        return a->schedule;
    if (a->offload && !deepspeed_zero(a))
        return "offload without ZeRO";
    if (a->offload > TU_OFFLOAD_CPU && deepspeed_zero(a) != 3)
        return "a split offload, or one to an SSD, without ZeRO 3";
    if (a->offload == TU_OFFLOAD_SSD && !q->nvme_path)
        return "a place on the SSD: --nvme-path";
    return a->cp > 1 ? "context parallelism" : NULL;
}

int tu_train_emit(struct tu_buf *out, const struct tu_train_query *q,
                  const struct tu_train_row *row, const char *form, struct tu_err *err)
{
    static const struct {
        const char *name;
        lacks_fn *lacks;
        int (*write)(struct tu_buf *, const struct tu_train_query *,
                     const struct tu_train_row *, struct tu_err *);
    } trainer[] = {
        {"megatron", megatron_lacks, megatron},
        {"torchtitan", titan_lacks, torchtitan},
        {"deepspeed", deepspeed_lacks, deepspeed},
    };
    for (size_t k = 0; k < sizeof trainer / sizeof *trainer; k++)
        if (!strcmp(form, trainer[k].name)) {
            const char *lacks = trainer[k].lacks(q, &row->at);
            return lacks ? tu_fail(err, TU_EUNSUP, "emit: %s does not have %s", form, lacks)
                         : trainer[k].write(out, q, row, err);
        }
    return tu_fail(err, TU_EUSAGE, "emit '%.20s': megatron, torchtitan or deepspeed",
                   form);
}
