/* SPDX-License-Identifier: Apache-2.0 */
/* plan_emit.c: a layout in the words of the trainers: flags of Megatron-LM, torchtitan's
 * TOML, DeepSpeed's JSON. */
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
                                          .loss = stage[k].head};
    if (!rc)
        rc = tu_layout_write(b, cell, n, err);
    tu_free(cell);
    tu_free(stage);
    return rc ? rc : tu_buf_text(b, "'\n", err);
}

static int megatron(struct tu_buf *b, const struct tu_train_query *q,
                    const struct tu_train_row *r, struct tu_err *err)
{
    const struct tu_layout_choice *a = &r->at;
    const struct tu_model *m = q->model;
    int rc = tu_buf_printf(
        b, err,
        "--num-layers %llu --hidden-size %llu --num-attention-heads %llu --seq-length "
        "%llu\n"
        "--micro-batch-size %u --global-batch-size %llu\n"
        "--tensor-model-parallel-size %u --pipeline-model-parallel-size %u\n",
        (unsigned long long)m->layers, (unsigned long long)m->hidden,
        (unsigned long long)m->heads, (unsigned long long)q->seq, a->mb,
        (unsigned long long)q->batch, a->tp, a->pp);
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
    if (!rc && a->offload)
        rc = tu_buf_text(b, "--optimizer-cpu-offload\n", err);
    if (!rc && a->recompute == TU_RECOMPUTE_SELECTIVE)
        rc = tu_buf_text(b, "--recompute-granularity selective\n", err);
    if (!rc && a->recompute == TU_RECOMPUTE_FULL)
        rc = tu_buf_text(b,
                         "--recompute-granularity full --recompute-method uniform "
                         "--recompute-num-layers 1\n",
                         err);
    return rc;
}

static int torchtitan(struct tu_buf *b, const struct tu_train_query *q,
                      const struct tu_train_row *r, struct tu_err *err)
{
    const struct tu_layout_choice *a = &r->at;
    static const char *const ac[] = {"none", "selective", "full"};
    const char *schedule = tui_family_of(a->schedule)->chunked ? "Interleaved1F1B"
                           : tui_family_of(a->schedule)->vee   ? "ZBVZeroBubble"
                                                               : "1F1B";
    return tu_buf_printf(
        b, err,
        "[training]\nlocal_batch_size = %llu\nglobal_batch_size = %llu\nseq_len = "
        "%llu\n\n"
        "[parallelism]\ndata_parallel_replicate_degree = %u\n"
        "data_parallel_shard_degree = %u\ntensor_parallel_degree = %u\n"
        "pipeline_parallel_degree = %u\npipeline_parallel_schedule = \"%s\"\n"
        "pipeline_parallel_microbatch_size = %u\ncontext_parallel_degree = %u\n"
        "expert_parallel_degree = %u\n\n[activation_checkpoint]\nmode = \"%s\"\n",
        (unsigned long long)(q->batch / a->dp), (unsigned long long)q->batch,
        (unsigned long long)q->seq, a->zero ? 1 : a->dp, a->zero ? a->dp : 1, a->tp,
        a->pp, schedule, a->mb, a->cp, a->ep, ac[a->recompute]);
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
    tu_jw_u64(&w, "stage", a->zero);
    if (a->offload) {
        tu_jw_open(&w, "offload_optimizer", '{');
        tu_jw_str(&w, "device", a->offload == TU_OFFLOAD_SSD ? "nvme" : "cpu");
        if (a->offload == TU_OFFLOAD_SPLIT)
            tu_jw_real(&w, "ratio", 0.75); /* ZeRO-Offload++: the CPU's share */
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

int tu_train_emit(struct tu_buf *out, const struct tu_train_query *q,
                  const struct tu_train_row *row, const char *form, struct tu_err *err)
{
    if (!strcmp(form, "megatron"))
        return megatron(out, q, row, err);
    if (!strcmp(form, "torchtitan"))
        return torchtitan(out, q, row, err);
    if (!strcmp(form, "deepspeed"))
        return deepspeed(out, q, row, err);
    return tu_fail(err, TU_EUSAGE, "emit '%.20s': megatron, torchtitan or deepspeed",
                   form);
}
