/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_args.c: the `args` Namespace of a Megatron checkpoint, read and written.
 *
 * Names: Megatron-LM megatron/training/arguments.py. Attributes that are not understood
 * stay as they are when a checkpoint becomes another one. */

#include <stddef.h>
#include <string.h>

#include "megatron.h"

/* An integer attribute and the member that it is. */
struct number {
    const char *name;
    size_t offset;
};
#define NUMBER(name, member)                                                             \
    {                                                                                    \
        name, offsetof(struct tu_model, member)                                          \
    }

static const struct number numbers[] = {
    NUMBER("num_layers", layers),
    NUMBER("hidden_size", hidden),
    NUMBER("num_attention_heads", heads),
    NUMBER("kv_channels", head_dim),
    NUMBER("ffn_hidden_size", ffn),
    NUMBER("max_position_embeddings", positions),
    NUMBER("num_experts", experts),
    NUMBER("moe_router_topk", top_k),
    NUMBER("moe_ffn_hidden_size", expert_ffn),
    NUMBER("moe_shared_expert_intermediate_size", shared_ffn),
    NUMBER("mtp_num_layers", mtp_layers),
    NUMBER("q_lora_rank", q_rank),
    NUMBER("kv_lora_rank", kv_rank),
    NUMBER("qk_head_dim", nope_dim),
    NUMBER("qk_pos_emb_head_dim", rope_dim),
    NUMBER("v_head_dim", v_dim),
};

static uint64_t get_u64(const struct tu_pnode *args, const char *name, uint64_t fallback)
{
    const struct tu_pnode *n = tu_pnode_get(args, name);
    return n && n->kind == TU_P_INT && n->integer >= 0 ? (uint64_t)n->integer : fallback;
}

static bool get_bool(const struct tu_pnode *args, const char *name, bool fallback)
{
    const struct tu_pnode *n = tu_pnode_get(args, name);
    return n && (n->kind == TU_P_BOOL || n->kind == TU_P_INT) ? n->integer != 0
                                                              : fallback;
}

static double get_real(const struct tu_pnode *args, const char *name, double fallback)
{
    const struct tu_pnode *n = tu_pnode_get(args, name);
    return !n                     ? fallback
           : n->kind == TU_P_REAL ? n->real
           : n->kind == TU_P_INT  ? (double)n->integer
                                  : fallback;
}

static const char *get_text(const struct tu_pnode *args, const char *name)
{
    const struct tu_pnode *n = tu_pnode_get(args, name);
    return n && n->kind == TU_P_TEXT ? n->text : "";
}

/* The family that has this shape; the nearest one where several do. */
static const char *family_of(const struct tu_model *m)
{
    if (m->kv_rank)
        return m->norm_topk ? "deepseek_v3" : "deepseek_v2";
    if (m->experts)
        return m->shared_ffn ? "qwen2_moe" : m->qk_norm ? "qwen3_moe" : "mixtral";
    if (m->learned_positions)
        return "gpt2";
    if (!m->gated)
        return "gpt_neox";
    return m->qk_norm ? "qwen3" : m->qkv_bias ? "qwen2" : "llama";
}

/* moe_layer_freq: 1, or a list of a 0 or 1 for each layer. */
static uint64_t dense_layers(const struct tu_pnode *args)
{
    const struct tu_pnode *n = tu_pnode_get(args, "moe_layer_freq");
    uint64_t dense = 0;
    if (n && n->kind == TU_P_LIST)
        while (dense < n->n && n->item[dense]->kind == TU_P_INT && !n->item[dense]->integer)
            dense++;
    return dense;
}

/* The numbers have defaults where the model has no latent attention. */
static void latent(const struct tu_pnode *args, struct tu_model *m)
{
    if (!get_bool(args, "multi_latent_attention", false))
        m->q_rank = m->kv_rank = m->nope_dim = m->rope_dim = m->v_dim = 0;
    else
        m->head_dim = m->nope_dim + m->rope_dim;
}

static int mesh_size(const struct tu_pnode *args, const char *name, uint32_t *out,
                     struct tu_err *err)
{
    uint64_t n = get_u64(args, name, 1);
    if (!n || n > 4096)
        return tu_fail(err, TU_EFORMAT, "args.%s is %llu", name, (unsigned long long)n);
    *out = (uint32_t)n;
    return 0;
}

int tui_args_read(const struct tu_pnode *args, struct tui_megatron *out,
                  struct tu_model *m, struct tu_err *err)
{
    if (!args)
        return 0;
    int rc = mesh_size(args, "tensor_model_parallel_size", &out->tp, err);
    if (!rc)
        rc = mesh_size(args, "pipeline_model_parallel_size", &out->pp, err);
    if (!rc)
        rc = mesh_size(args, "virtual_pipeline_model_parallel_size", &out->vpp, err);
    if (!rc)
        rc = mesh_size(args, "expert_model_parallel_size", &out->ep, err);
    out->padded_vocab = get_u64(args, "padded_vocab_size", 0);
    out->vocab = get_u64(args, "vocab_size", 0);
    if (out->vocab > out->padded_vocab)
        out->vocab = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *(uint64_t *)(void *)((char *)m + numbers[i].offset) =
            get_u64(args, numbers[i].name, 0);
    m->kv_heads = get_bool(args, "group_query_attention", false)
                      ? get_u64(args, "num_query_groups", 0)
                      : m->heads;
    if (m->heads && !m->head_dim)
        m->head_dim = m->hidden / m->heads;
    latent(args, m);
    if (m->experts && !m->expert_ffn)
        m->expert_ffn = m->ffn;
    if (m->kv_rank && m->expert_ffn) /* DeepSeek counts them, others give a width */
        m->shared_experts = m->shared_ffn / m->expert_ffn;
    m->dense_layers = m->experts ? dense_layers(args) : 0;
    m->norm_one = get_bool(args, "apply_layernorm_1p", false);
    m->gated = get_bool(args, "swiglu", false);
    m->tied = !get_bool(args, "untie_embeddings_and_output_weights", false);
    m->bias = get_bool(args, "add_bias_linear", true);
    m->qkv_bias = m->bias || get_bool(args, "add_qkv_bias", false);
    m->qk_norm = get_bool(args, "qk_layernorm", false);
    /* Softmax over all experts before the choice leaves the chosen weights below 1. */
    m->norm_topk = m->experts && !get_bool(args, "moe_router_pre_softmax", false);
    m->rmsnorm = !strcmp(get_text(args, "normalization"), "RMSNorm");
    m->learned_positions =
        !strcmp(get_text(args, "position_embedding_type"), "learned_absolute");
    m->rope_theta = m->learned_positions ? 0 : get_real(args, "rotary_base", 10000);
    m->rope_fraction = get_real(args, "rotary_percent", 1);
    if (m->rope_fraction == 1.0 || m->learned_positions)
        m->rope_fraction = 0;
    m->norm_eps =
        get_real(args, "layernorm_epsilon", get_real(args, "norm_epsilon", 1e-5));
    if (!rc && (!m->layers || !m->heads || !m->kv_heads || m->heads % m->kv_heads))
        rc = tu_fail(err, TU_EFORMAT, "args: %llu layers, %llu heads, %llu query groups",
                     (unsigned long long)m->layers, (unsigned long long)m->heads,
                     (unsigned long long)m->kv_heads);
    if (!rc)
        strcpy(m->family, family_of(m));
    return rc;
}

/* The Namespace being made: attributes in order, memory that fails once. */
struct maker {
    struct tu_arena *a;
    struct tu_pnode *dict;
    int rc;
    struct tu_err *err;
};

static void set(struct maker *k, const char *name, struct tu_pnode *value)
{
    if (k->rc)
        return;
    for (size_t i = 0; i + 1 < k->dict->n; i += 2)
        if (value && k->dict->item[i]->kind == TU_P_TEXT &&
            !strcmp(k->dict->item[i]->text, name)) {
            k->dict->item[i + 1] = value;
            return;
        }
    k->rc = tu_pnode_set(k->a, k->dict, name, value, k->err);
}

static void set_u64(struct maker *k, const char *name, uint64_t v)
{
    set(k, name,
        v ? tu_pnode_int(k->a, (int64_t)v, k->err)
          : tu_pnode_new(k->a, TU_P_NONE, 0, k->err));
}

static void set_bool(struct maker *k, const char *name, bool v)
{
    set(k, name, tu_pnode_bool(k->a, v, k->err));
}

static void set_real(struct maker *k, const char *name, double v)
{
    set(k, name, tu_pnode_real(k->a, v, k->err));
}

static void set_text(struct maker *k, const char *name, const char *v)
{
    set(k, name, tu_pnode_text(k->a, v, k->err));
}

static void set_dense(struct maker *k, const struct tu_model *m)
{
    struct tu_pnode *list = tu_pnode_new(k->a, TU_P_LIST, 0, k->err);
    for (uint64_t l = 0; l < m->layers && m->dense_layers && !k->rc; l++) {
        struct tu_pnode *one = tu_pnode_int(k->a, l >= m->dense_layers, k->err);
        k->rc = tu_pnode_add(k->a, list, NULL, one, k->err);
    }
    set(k, "moe_layer_freq", m->dense_layers ? list : tu_pnode_int(k->a, 1, k->err));
}

static void set_model(struct maker *k, const struct tu_model *m)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        set_u64(k, numbers[i].name,
                *(const uint64_t *)(const void *)((const char *)m + numbers[i].offset));
    set_u64(k, "seq_length", m->positions);
    set_bool(k, "group_query_attention", m->kv_heads != m->heads);
    set_u64(k, "num_query_groups", m->kv_heads);
    set_bool(k, "swiglu", m->gated);
    set_bool(k, "untie_embeddings_and_output_weights", !m->tied);
    set_bool(k, "add_bias_linear", m->bias);
    set_bool(k, "add_qkv_bias", m->qkv_bias);
    set_bool(k, "qk_layernorm", m->qk_norm);
    set_text(k, "normalization", m->rmsnorm ? "RMSNorm" : "LayerNorm");
    set_text(k, "position_embedding_type",
             m->learned_positions ? "learned_absolute" : "rope");
    if (m->rope_theta != 0.0) {
        set_real(k, "rotary_base", m->rope_theta);
        set_real(k, "rotary_percent", m->rope_fraction != 0.0 ? m->rope_fraction : 1);
        set_bool(k, "use_rope_scaling", m->rope_scaled);
    }
    set_real(k, "layernorm_epsilon",
             m->norm_eps); /* core 0.16; norm_epsilon before and after */
    set_real(k, "norm_epsilon", m->norm_eps);
    set_bool(k, "multi_latent_attention", m->kv_rank != 0);
    set_bool(k, "apply_layernorm_1p", m->norm_one);
    if (m->experts)
        set_dense(k, m);
    set_bool(k, "moe_shared_expert_gate", m->shared_ffn && !m->kv_rank);
    set_bool(k, "moe_router_pre_softmax", m->experts && !m->norm_topk);
}

/* Megatron divides what is left of the layers evenly over the stages between the first
 * and the last. */
bool tui_args_stages(const struct tu_ckpt *c, uint64_t first, uint64_t last,
                     struct tu_stage *stage)
{
    uint32_t n = c->pp * c->vpp, between = n - !!first - (n > 1 && last), at = 0;
    uint64_t layers = c->model.layers, left = layers - first - last;
    if (first > layers || last > layers - first || ((first || last) && c->vpp > 1) ||
        (between ? left % between : left))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t own = !i && first ? first : i + 1 == n && last ? last : left / between;
        stage[i] = (struct tu_stage){at, (uint32_t)own};
        at += (uint32_t)own;
    }
    return true;
}

static bool is_uneven(const struct tu_ckpt *c)
{
    bool uneven = false;
    for (uint32_t i = 0; c->vpp == 1 && i < c->pp; i++)
        uneven |= c->stage[i].count != c->model.layers / c->pp;
    return uneven;
}

/* A stage of which nothing is written shows no layers: the arguments have to say how many. */
int tui_args_say_stages(const struct tu_ckpt *c, struct tu_err *err)
{
    uint32_t n = c->pp * c->vpp;
    struct tu_stage *said = tu_calloc(n, sizeof *said, err);
    bool uneven = is_uneven(c);
    if (!said)
        return TU_ENOMEM;
    bool same = tui_args_stages(c, uneven ? c->stage[0].count : 0,
                                uneven ? c->stage[n - 1].count : 0, said);
    for (uint32_t i = 0; i < n && same; i++)
        same = said[i].count == c->stage[i].count;
    tu_free(said);
    return same ? 0
                : tu_fail(err, TU_EUSAGE,
                          "%.150s: of a part of a model Megatron's arguments do not say which "
                          "layers it has in stages like these: only the first and the last may "
                          "differ from the others",
                          c->root);
}

static void set_stages(struct maker *k, const struct tu_ckpt *c)
{
    uint32_t last = c->pp - 1;
    bool uneven = is_uneven(c);
    set_u64(k, "decoder_first_pipeline_num_layers", uneven ? c->stage[0].count : 0);
    set_u64(k, "decoder_last_pipeline_num_layers", uneven ? c->stage[last].count : 0);
}

int tui_args_make(struct tu_ckpt *c, const struct tu_pnode *old, uint32_t pad,
                  struct tu_pnode **out, struct tu_err *err)
{
    struct maker k = {.a = c->arena, .err = err};
    const struct tu_pnode *state = old && old->kind == TU_P_CALL && old->n > TU_P_STATE
                                       ? old->item[TU_P_STATE]
                                       : NULL;
    k.dict = tu_pnode_new(c->arena, TU_P_DICT, 0, err);
    if (!k.dict)
        return TU_ENOMEM;
    for (size_t i = 0; state && state->kind == TU_P_DICT && i + 1 < state->n && !k.rc;
         i += 2)
        k.rc = tu_pnode_add(c->arena, k.dict, state->item[i], state->item[i + 1], err);
    set_u64(&k, "tensor_model_parallel_size", c->tp);
    set_u64(&k, "pipeline_model_parallel_size", c->pp);
    set_u64(&k, "virtual_pipeline_model_parallel_size", c->vpp > 1 ? c->vpp : 0);
    set_u64(&k, "expert_model_parallel_size", c->ep);
    set_stages(&k, c);
    set_model(&k, &c->model);
    set_u64(&k, "make_vocab_size_divisible_by", pad ? pad : 1);
    if (c->model.vocab)
        set_u64(&k, "vocab_size", c->model.vocab);
    if (c->model.vocab)
        set_u64(&k, "padded_vocab_size",
                tu_ceil_div(c->model.vocab, (uint64_t)(pad ? pad : 1) * c->tp) *
                    (pad ? pad : 1) * c->tp);
    const char *dtype = tui_dtype_word(c);
    if (dtype && !k.rc) {
        char name[32] = "torch ";
        set(&k, "params_dtype", tu_pnode_global(c->arena, strcat(name, dtype), err));
        set_bool(&k, "bf16", !strcmp(dtype, "bfloat16"));
        set_bool(&k, "fp16", !strcmp(dtype, "float16"));
    }
    *out = k.rc ? NULL : tu_pnode_object(c->arena, "argparse Namespace", k.dict, err);
    return k.rc ? k.rc : *out ? 0 : TU_ENOMEM;
}
