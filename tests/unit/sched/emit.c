/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c: a layout in the words of the trainers: each property of a model and of a layout
 * gives its flag (Megatron-LM core 0.16 arguments.py, torchtitan job_config.py,
 * DeepSpeed's config), and no other does; what a trainer does not have is refused in its
 * name. */
#include <tensorutils/sched/plan.h>
#include "../inject.h"

static struct tu_model m;
static struct tu_train_query q;
static struct tu_train_row row;

/* A plain GPT of 24 layers on 8 devices. */
static void plain(void)
{
    m = (struct tu_model){.layers = 24, .hidden = 1024, .heads = 16, .kv_heads = 16,
                          .head_dim = 64, .ffn = 4096, .vocab = 50257, .positions = 1024,
                          .tied = true, .learned_positions = true, .bias = true};
    q = (struct tu_train_query){.model = &m, .batch = 64, .seq = 2048};
    row = (struct tu_train_row){.at = {.tp = 1,
                                       .pp = 1,
                                       .vpp = 1,
                                       .dp = 8,
                                       .cp = 1,
                                       .ep = 1,
                                       .mb = 2,
                                       .schedule = "1f1b"},
                                .microbatches = 4,
                                .cpu_share = .25};
}

static char text[4096];

static int emit(const char *form, struct tu_err *err)
{
    struct tu_buf b = {0};
    *err = (struct tu_err){0};
    int rc = tu_train_emit(&b, &q, &row, form, err);
    snprintf(text, sizeof text, "%s", rc ? err->msg : b.data);
    tu_buf_release(&b);
    return rc;
}

#define SET(name, what)                                                                  \
    static void name(void)                                                               \
    {                                                                                    \
        what;                                                                            \
    }
#define EMPTY (void)0

SET(nothing, EMPTY)
SET(latent, m.kv_rank = 512; m.nope_dim = 128; m.rope_dim = 64; m.v_dim = 96)
SET(latent_q, latent(); m.q_rank = 1536)
SET(windows, m.full_every = 4; m.window = 512)
SET(delta, m.full_every = 4; m.delta_key_heads = 3; m.delta_value_heads = 6;
    m.delta_key_dim = 32; m.delta_value_dim = 48; m.delta_conv = 5)
SET(delta_gate, delta(); m.q_gate = true)
SET(groups, m.kv_heads = 4)
SET(wide_heads, m.head_dim = 128)
SET(experts, m.experts = 8; m.top_k = 2; m.expert_ffn = 512)
SET(shared, experts(); m.shared_ffn = 1024; m.shared_gate = true)
SET(every, experts(); m.moe_every = 5)
SET(dense, experts(); m.dense_layers = 3)
SET(llama, m.gated = m.rmsnorm = true; m.bias = m.tied = false)
SET(qkv, m.bias = false; m.qkv_bias = true)
SET(qk_norm, m.qk_norm = true)
SET(qk_bare, m.qk_norm = m.qk_bare = true)
SET(sinks, m.sinks = true)
SET(more, m.mtp_layers = 2; m.norm_eps = 1e-6)
SET(rope, m.rope_theta = 10000)
SET(rope_part, m.rope_theta = 5e5; m.rope_scaled = true; m.rope_fraction = .25)
SET(width, m.ffn = 2816)
SET(longer, m.positions = 4096)
SET(pipeline, row.at.pp = 4; row.at.dp = 2)
SET(rounds, pipeline(); row.at.vpp = 3; row.at.schedule = "interleaved-1f1b")
SET(ragged, pipeline(); q.uneven = true; m.layers = 22)
SET(vee, pipeline(); row.at.schedule = "zb-v")
SET(h1, pipeline(); row.at.schedule = "zb-h1")
SET(h1_alone, row.at.schedule = "zb-h1")
SET(context, row.at.cp = 2; row.at.dp = 4)
SET(sparse, experts(); row.at.ep = 4)
SET(sparse3, sparse(); row.at.zero = 3)
SET(sparse_ring, experts(); row.at.cp = row.at.ep = 2; row.at.dp = 4)
SET(sparse_wide, sparse3(); row.at.cp = 8; row.at.dp = 2)
SET(sparse_tensors, sparse3(); row.at.tp = 2; row.at.dp = 4)
SET(odd_seq, row.at.cp = 2; row.at.dp = 4; q.seq = 2050)
SET(tensors, row.at.tp = 2; row.at.dp = 4)
SET(sequence, tensors(); q.sequence_parallel = true)
SET(zero1, row.at.zero = 1)
SET(zero2, row.at.zero = 2)
SET(zero3, row.at.zero = 3)
SET(host, row.at.offload = TU_OFFLOAD_CPU)
SET(host1, zero1(); host())
SET(split3, zero3(); row.at.offload = TU_OFFLOAD_SPLIT)
SET(split1, zero1(); row.at.offload = TU_OFFLOAD_SPLIT)
SET(ssd3, zero3(); row.at.offload = TU_OFFLOAD_SSD)
SET(ssd_at, ssd3(); q.nvme_path = "/nvme")
SET(host_one, host(); row.at.dp = 1)
SET(host_pipe, host_one(); row.at.pp = 4)
SET(some, row.at.recompute = TU_RECOMPUTE_SELECTIVE)
SET(full, row.at.recompute = TU_RECOMPUTE_FULL)
SET(post, m.post_norms = true)
SET(side, m.one_norm = true)
SET(qk_wide, m.qk_norm = m.qk_wide = true)
SET(chunked, windows(); m.chunked = true)
SET(both, every(); m.dense_layers = 3)
SET(parallel, m.parallel = true)
SET(bare, m.bare_norms = true)
SET(embed_norm, m.embed_norm = true)
SET(no_last, m.no_final_norm = true)
SET(narrow, m.embed_dim = 512)
SET(head_bias, m.head_bias = true)
SET(some_bias, m.bias = false; m.mlp_bias = true)
SET(three_biases, m.bias = false; m.qkv_bias = m.o_bias = m.mlp_bias = true; m.gated = true)
SET(no_positions, m.learned_positions = false)
SET(window_list, m.layers = 4; m.window = 512; m.full_every = 5; m.full_at[0] = 9)
SET(delta_list, delta(); m.layers = 4; m.full_every = 5; m.full_at[0] = 9)
SET(moe_list, experts(); m.layers = 4; m.moe_every = 5; m.moe_at[0] = 6)

static const struct {
    const char *form;
    void (*set)(void);
    int code;
    const char *words, *words2; /* there; and the first not there for the plain one */
} rows[] = {
    {"megatron", nothing, 0,
     "--num-layers 24 --hidden-size 1024 --num-attention-heads 16\n", NULL},
    {"megatron", nothing, 0, "--micro-batch-size 2 --global-batch-size 64\n",
     "--vocab-size 50257"},
    {"megatron", nothing, 0, "--max-position-embeddings 2048 ", "--bf16\n"},
    {"megatron", longer, 0, "--seq-length 2048 --max-position-embeddings 4096 ", NULL},
    {"megatron", latent, 0,
     "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 "
     "--qk-pos-emb-head-dim 64 "
     "--v-head-dim 96\n",
     NULL},
    {"megatron", latent_q, 0, "--q-lora-rank 1536\n", "--multi-latent-attention"},
    {"megatron", windows, 0, "--window-size 511,0 --window-attn-skip-freq 4\n", NULL},
    {"megatron", delta, 0,
     "gated_delta_net --linear-attention-freq 4\n--linear-num-key-heads 3 ",
     "--linear-key-head-dim 32 --linear-num-value-heads 6 --linear-value-head-dim 48\n"
     "--linear-conv-kernel-dim 5\n"},
    {"megatron", delta_gate, 0, "--linear-conv-kernel-dim 5 --attention-output-gate\n",
     NULL},
    {"megatron", groups, 0, "--group-query-attention --num-query-groups 4\n", NULL},
    {"megatron", wide_heads, 0, "--kv-channels 128\n", NULL},
    {"megatron", experts, 0,
     "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512\n", NULL},
    {"megatron", shared, 0, "--moe-shared-expert-intermediate-size 1024\n",
     "--moe-shared-expert-gate\n"},
    {"megatron", every, 0, "--moe-layer-freq '([0]*4+[1])*4+[0]*4'\n", NULL},
    {"megatron", dense, 0, "--moe-layer-freq '([0]*3+[1]*21)'\n", NULL},
    {"megatron", llama, 0, " --swiglu --normalization RMSNorm --disable-bias-linear ",
     "--untie-embeddings-and-output-weights"},
    {"megatron", qkv, 0, " --disable-bias-linear --add-qkv-bias", NULL},
    {"megatron", qk_norm, 0, " --qk-layernorm", NULL},
    {"megatron", qk_bare, 0, " --qk-l2-norm", NULL},
    {"megatron", sinks, 0, " --softmax-type learnable", NULL},
    {"megatron", more, 0, " --mtp-num-layers 2", " --norm-epsilon 1e-06\n"},
    {"megatron", rope, 0, "--position-embedding-type rope --rotary-base 10000\n", NULL},
    {"megatron", rope_part, 0, "--rotary-base 500000 --use-rope-scaling\n",
     "--rotary-percent 0.25\n"},
    {"megatron", width, 0, "--ffn-hidden-size 2816\n", NULL},
    {"megatron", rounds, 0, "--num-layers-per-virtual-pipeline-stage 2\n",
     "--pipeline-model-parallel-size 4\n"},
    {"megatron", ragged, 0, "--pipeline-model-parallel-layout 'Et", "L'\n"},
    {"megatron", context, 0, "--context-parallel-size 2\n", NULL},
    {"megatron", sparse, 0, "--expert-model-parallel-size 4\n", NULL},
    {"megatron", sequence, 0, "--sequence-parallel\n", "--tensor-model-parallel-size 2 "},
    {"megatron", zero1, 0, "--use-distributed-optimizer\n", NULL},
    {"megatron", host1, 0, "--optimizer-cpu-offload --optimizer-offload-fraction 0.25 ",
     NULL},
    {"megatron", some, 0, "--recompute-granularity selective\n", NULL},
    {"megatron", full, 0, "--recompute-granularity full --recompute-method uniform",
     NULL},
    {"megatron", post, TU_EUNSUP, "megatron does not have norms behind attention and MLP",
     NULL},
    {"megatron", side, TU_EUNSUP, "attention and MLP side by side", NULL},
    {"megatron", qk_wide, TU_EUNSUP, "norms over all heads of q and k", NULL},
    {"megatron", chunked, TU_EUNSUP, "attention in chunks", NULL},
    {"megatron", both, TU_EUNSUP, "alternate behind dense ones", NULL},
    {"megatron", parallel, TU_EUNSUP, "attention and MLP side by side", NULL},
    {"megatron", bare, TU_EUNSUP, "norms without weights", NULL},
    {"megatron", embed_norm, TU_EUNSUP, "a norm behind the embedding", NULL},
    {"megatron", no_last, TU_EUNSUP, "a model without a last norm", NULL},
    {"megatron", narrow, TU_EUNSUP, "an embedding of a size of its own", NULL},
    {"megatron", head_bias, TU_EUNSUP, "a bias on the head", NULL},
    {"megatron", some_bias, TU_EUNSUP, "biases on some products alone", NULL},
    {"megatron", three_biases, 0, "--bf16 --swiglu\n", NULL},
    {"megatron", no_positions, TU_EUNSUP, "positions that are neither learned nor rotary", NULL},
    {"megatron", window_list, 0, "--window-size 511,0 --window-attn-skip-freq '[0,1,1,0]'\n",
     NULL},
    {"megatron", delta_list, 0, "--linear-attention-freq '[0,1,1,0]'\n", NULL},
    {"megatron", moe_list, 0, "--moe-layer-freq '[0,1,1,0]'\n", NULL},
    {"megatron", h1, TU_EUNSUP, "does not have zb-h1", NULL},
    {"megatron", zero2, TU_EUNSUP, "ZeRO 2 and 3", NULL},
    {"megatron", host, TU_EUNSUP, "offload without ZeRO", NULL},
    {"megatron", ssd3, TU_EUNSUP, "ZeRO 2 and 3", NULL},
    {"torchtitan", nothing, 0,
     "local_batch_size = 8\nglobal_batch_size = 64\nseq_len = 2048\n",
     "data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n"},
    {"torchtitan", zero3, 0, "replicate_degree = 1\ndata_parallel_shard_degree = 8\n",
     NULL},
    {"torchtitan", pipeline, 0, "schedule = \"1F1B\"\n",
     "pipeline_parallel_degree = 4\n"},
    {"torchtitan", rounds, 0, "schedule = \"Interleaved1F1B\"\n",
     "layers_per_stage = 2\npipeline_parallel_first_stage_less_layers = 0\n"},
    {"torchtitan", ragged, TU_EUNSUP, "stages of uneven layers", NULL},
    /* ParallelDims: with etp = tp, ep % cp and dp_shard * cp % ep are 0. */
    {"torchtitan", sparse3, 0, "expert_parallel_degree = 4\n", "shard_degree = 8\n"},
    {"torchtitan", sparse_ring, 0, "expert_parallel_degree = 2\n", "shard_degree = 1\n"},
    {"torchtitan", sparse_tensors, 0, "expert_tensor_parallel_degree = 2\n", NULL},
    {"torchtitan", sparse, TU_EUNSUP, "among devices that share parameters", NULL},
    {"torchtitan", sparse_wide, TU_EUNSUP, "among devices that share parameters", NULL},
    {"torchtitan", odd_seq, TU_EUNSUP, "do not divide by tp and twice cp", NULL},
    {"torchtitan", vee, 0, "schedule = \"ZBVZeroBubble\"\n", NULL},
    {"torchtitan", h1_alone, 0, "schedule = \"1F1B\"\n",
     "pipeline_parallel_degree = 1\n"},
    {"torchtitan", full, 0, "mode = \"full\"\n", NULL},
    {"torchtitan", some, 0, "mode = \"selective\"\n", NULL},
    {"torchtitan", context, 0, "context_parallel_degree = 2\n", NULL},
    {"torchtitan", h1, TU_EUNSUP, "torchtitan does not have zb-h1", NULL},
    {"torchtitan", zero1, TU_EUNSUP, "ZeRO 1 and 2", NULL},
    {"torchtitan", zero2, TU_EUNSUP, "ZeRO 1 and 2", NULL},
    {"torchtitan", host, TU_EUNSUP, "offload", NULL},
    {"deepspeed", nothing, 0, "\"train_micro_batch_size_per_gpu\":2", "\"stage\":0"},
    {"deepspeed", nothing, 0, "\"train_batch_size\":64",
     "\"gradient_accumulation_steps\":4"},
    {"deepspeed", zero2, 0, "\"stage\":2", "\"autotp_size\":1"},
    {"deepspeed", host1, 0, "\"offload_optimizer\":{\"device\":\"cpu\"}", "\"stage\":1"},
    {"deepspeed", split3, 0, "\"device\":\"cpu\",\"ratio\":0.25", "\"stage\":3"},
    {"deepspeed", ssd_at, 0, "\"device\":\"nvme\",\"nvme_path\":\"/nvme\"",
     "\"stage\":3"},
    {"deepspeed", host_one, 0, "\"stage\":3", "\"device\":\"cpu\""},
    {"deepspeed", host_pipe, 0, "\"stage\":1", "\"stages\":4"},
    {"deepspeed", ssd3, TU_EUNSUP, "--nvme-path", NULL},
    {"deepspeed", split1, TU_EUNSUP, "without ZeRO 3", NULL},
    {"deepspeed", host, TU_EUNSUP, "offload without ZeRO", NULL},
    {"deepspeed", context, TU_EUNSUP, "context parallelism", NULL},
    {"deepspeed", h1, TU_EUNSUP, "does not have zb-h1", NULL},
    {"slurm", nothing, TU_EUSAGE, "emit 'slurm': megatron, torchtitan or deepspeed",
     NULL},
};

static int emit_form(const void *form, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = tu_train_emit(&b, &q, &row, form, err);
    inject_add(b.data, rc ? 0 : b.n);
    tu_buf_release(&b);
    return rc;
}

static void memory(const char *form, void (*set)(void))
{
    plain();
    set();
    inject_memory(&(struct inject){.name = form, .run = emit_form, .arg = form});
}

static void all_of(void)
{
    llama();
    groups();
    shared();
    dense();
    rope_part();
    more();
    ragged();
    sequence();
    row.at.cp = row.at.ep = 2;
    row.at.pp = 4;
    host1();
    full();
    windows();
    wide_heads();
    width();
}

int main(void)
{
    struct tu_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *w = rows[i].words, *w2 = rows[i].words2;
        bool before = false;
        if (!rows[i].code && rows[i].set != nothing) {
            plain();
            before = emit(rows[i].form, &err) || strstr(text, w);
        }
        plain();
        rows[i].set();
        int rc = emit(rows[i].form, &err);
        bool well = rc == rows[i].code && strstr(text, w) && (!w2 || strstr(text, w2));
        ok(well, "%s, row %zu: what it must say", rows[i].form, i);
        if (!well)
            printf("# not there: %s, in: %s\n", w, text);
        ok(!before || rows[i].set == h1_alone || rows[i].set == pipeline,
           "%s, row %zu: no such word for the plain model", rows[i].form, i);
    }
    memory("megatron", all_of);
    memory("megatron", latent_q);
    memory("megatron", delta_gate);
    memory("torchtitan", rounds);
    memory("deepspeed", ssd_at);
    return tap_done();
}
