/* SPDX-License-Identifier: Apache-2.0 */
/* toy.h: small models with random bits, written as a stream under their Hugging Face names. */
#ifndef TESTS_UNIT_SHARD_TOY_H
#define TESTS_UNIT_SHARD_TOY_H

#include <stdlib.h>
#include <tensorutils/shard.h>

struct toy {
    struct tu_writer *w;
    uint32_t dtype;
    uint64_t seed;
    int failed;
};

/* One tensor: every bit pattern may occur, NaN too. */
static inline void toy_add(struct toy *t, const char *name, unsigned rank, uint64_t d0, uint64_t d1)
{
    uint64_t dim[2] = {d0, d1};
    struct tu_tensor tensor = {.name = name, .dtype = t->dtype, .rank = rank, .dim = dim};
    struct tu_rng rng = {t->seed, tu_rng_stream(name)};
    t->failed |= tu_tensor_bytes(t->dtype, dim, rank, &tensor.bytes, NULL);
    unsigned char *data = malloc(tensor.bytes + 4);
    for (uint64_t i = 0; data && i < tensor.bytes; i += 4)
        tu_put32(data + i, tu_rng_u32(&rng, i / 4));
    t->failed |= !data || tu_writer_tensor(t->w, &tensor, data, NULL);
    free(data);
}

#define TOY_LAYER(t, l, rank, d0, d1, ...)                                                  \
    do {                                                                                    \
        char toy_tail[80], toy_name[128];                                                   \
        snprintf(toy_tail, sizeof toy_tail, __VA_ARGS__);                                   \
        snprintf(toy_name, sizeof toy_name, "%s%u.%s", l, toy_layer, toy_tail);                        \
        toy_add((t), toy_name, (rank), (d0), (d1));                                         \
    } while (0)

static inline void toy_llama(struct toy *t, const struct tu_model *m)
{
    const char *l = "model.layers.";
    uint64_t h = m->hidden, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    toy_add(t, "model.embed_tokens.weight", 2, m->vocab, h);
    for (unsigned toy_layer = 0; toy_layer < m->layers; toy_layer++) {
        TOY_LAYER(t, l, 1, h, 1, "input_layernorm.weight");
        TOY_LAYER(t, l, 2, q, h, "self_attn.q_proj.weight");
        TOY_LAYER(t, l, 2, kv, h, "self_attn.k_proj.weight");
        TOY_LAYER(t, l, 2, kv, h, "self_attn.v_proj.weight");
        if (m->qkv_bias) {
            TOY_LAYER(t, l, 1, q, 1, "self_attn.q_proj.bias");
            TOY_LAYER(t, l, 1, kv, 1, "self_attn.k_proj.bias");
            TOY_LAYER(t, l, 1, kv, 1, "self_attn.v_proj.bias");
        }
        if (m->qk_norm) {
            TOY_LAYER(t, l, 1, m->head_dim, 1, "self_attn.q_norm.weight");
            TOY_LAYER(t, l, 1, m->head_dim, 1, "self_attn.k_norm.weight");
        }
        TOY_LAYER(t, l, 2, h, q, "self_attn.o_proj.weight");
        TOY_LAYER(t, l, 1, h, 1, "post_attention_layernorm.weight");
        if (m->experts)
            TOY_LAYER(t, l, 2, m->experts, h, "block_sparse_moe.gate.weight");
        for (unsigned e = 0; e < m->experts; e++) {
            TOY_LAYER(t, l, 2, m->ffn, h, "block_sparse_moe.experts.%u.w1.weight", e);
            TOY_LAYER(t, l, 2, m->ffn, h, "block_sparse_moe.experts.%u.w3.weight", e);
            TOY_LAYER(t, l, 2, h, m->ffn, "block_sparse_moe.experts.%u.w2.weight", e);
        }
        if (!m->experts) {
            TOY_LAYER(t, l, 2, m->ffn, h, "mlp.gate_proj.weight");
            TOY_LAYER(t, l, 2, m->ffn, h, "mlp.up_proj.weight");
            TOY_LAYER(t, l, 2, h, m->ffn, "mlp.down_proj.weight");
        }
    }
    toy_add(t, "model.norm.weight", 1, h, 1);
    if (!m->tied)
        toy_add(t, "lm_head.weight", 2, m->vocab, h);
}

/* One layer of DeepSeek's below its prefix: latent attention, experts or none. */
static inline void toy_latent(struct toy *t, const struct tu_model *m, unsigned toy_layer, bool moe)
{
    const char *l = "model.layers.";
    static const char *const part[] = {"gate_proj", "up_proj", "down_proj"};
    uint64_t h = m->hidden, q = m->heads * m->head_dim, f = m->expert_ffn, s = m->shared_ffn;
    TOY_LAYER(t, l, 1, h, 1, "input_layernorm.weight");
    if (m->q_rank) {
        TOY_LAYER(t, l, 2, m->q_rank, h, "self_attn.q_a_proj.weight");
        TOY_LAYER(t, l, 1, m->q_rank, 1, "self_attn.q_a_layernorm.weight");
        TOY_LAYER(t, l, 2, q, m->q_rank, "self_attn.q_b_proj.weight");
    } else {
        TOY_LAYER(t, l, 2, q, h, "self_attn.q_proj.weight");
    }
    TOY_LAYER(t, l, 2, m->kv_rank + m->rope_dim, h, "self_attn.kv_a_proj_with_mqa.weight");
    TOY_LAYER(t, l, 1, m->kv_rank, 1, "self_attn.kv_a_layernorm.weight");
    TOY_LAYER(t, l, 2, m->heads * (m->nope_dim + m->v_dim), m->kv_rank, "self_attn.kv_b_proj.weight");
    TOY_LAYER(t, l, 2, h, m->heads * m->v_dim, "self_attn.o_proj.weight");
    TOY_LAYER(t, l, 1, h, 1, "post_attention_layernorm.weight");
    for (int k = 0; k < 3 && !moe; k++)
        TOY_LAYER(t, l, 2, k < 2 ? m->ffn : h, k < 2 ? h : m->ffn, "mlp.%s.weight", part[k]);
    if (moe) {
        TOY_LAYER(t, l, 2, m->experts, h, "mlp.gate.weight");
        TOY_LAYER(t, l, 1, m->experts, 1, "mlp.gate.e_score_correction_bias");
    }
    for (unsigned e = 0; e < m->experts && moe; e++)
        for (int k = 0; k < 3; k++)
            TOY_LAYER(t, l, 2, k < 2 ? f : h, k < 2 ? h : f, "mlp.experts.%u.%s.weight", e, part[k]);
    for (int k = 0; k < 3 && moe; k++)
        TOY_LAYER(t, l, 2, k < 2 ? s : h, k < 2 ? h : s, "mlp.shared_experts.%s.weight", part[k]);
}

/* The layers behind the last predict one more token each. */
static inline void toy_deepseek(struct toy *t, const struct tu_model *m)
{
    const char *l = "model.layers.";
    uint64_t h = m->hidden;
    toy_add(t, "model.embed_tokens.weight", 2, m->vocab, h);
    for (unsigned toy_layer = 0; toy_layer < m->layers + m->mtp_layers; toy_layer++) {
        toy_latent(t, m, toy_layer, toy_layer >= m->dense_layers);
        if (toy_layer < m->layers)
            continue;
        TOY_LAYER(t, l, 1, h, 1, "enorm.weight");
        TOY_LAYER(t, l, 1, h, 1, "hnorm.weight");
        TOY_LAYER(t, l, 2, h, 2 * h, "eh_proj.weight");
        TOY_LAYER(t, l, 1, h, 1, "shared_head.norm.weight");
    }
    toy_add(t, "model.norm.weight", 1, h, 1);
    toy_add(t, "lm_head.weight", 2, m->vocab, h);
}

/* GPT-2 and GPT-NeoX: LayerNorm and biases everywhere, one fused QKV. */
static inline void toy_gpt(struct toy *t, const struct tu_model *m)
{
    bool neox = !strcmp(m->family, "gpt_neox");
    const char *l = neox ? "gpt_neox.layers." : "transformer.h.";
    static const char *const part[2][6] = {
        {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"},
        {"input_layernorm", "attention.query_key_value", "attention.dense", "post_attention_layernorm",
         "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}};
    uint64_t h = m->hidden, in[6] = {0, h, h, 0, h, m->ffn}, out[6] = {h, 3 * h, h, h, m->ffn, h};
    toy_add(t, neox ? "gpt_neox.embed_in.weight" : "transformer.wte.weight", 2, m->vocab, h);
    if (!neox)
        toy_add(t, "transformer.wpe.weight", 2, m->positions, h);
    for (unsigned toy_layer = 0; toy_layer < m->layers; toy_layer++)
        for (int k = 0; k < 6; k++) {
            if (!in[k])
                TOY_LAYER(t, l, 1, out[k], 1, "%s.weight", part[neox][k]);
            else
                TOY_LAYER(t, l, 2, neox ? out[k] : in[k], neox ? in[k] : out[k], "%s.weight", part[neox][k]);
            TOY_LAYER(t, l, 1, out[k], 1, "%s.bias", part[neox][k]);
        }
    toy_add(t, neox ? "gpt_neox.final_layer_norm.weight" : "transformer.ln_f.weight", 1, h, 1);
    toy_add(t, neox ? "gpt_neox.final_layer_norm.bias" : "transformer.ln_f.bias", 1, h, 1);
    if (!m->tied)
        toy_add(t, neox ? "embed_out.weight" : "lm_head.weight", 2, m->vocab, h);
}

/* META "files" with a config.json, as a model that comes from somewhere has; none for a family
 * of whose config.json a tu_model knows a part. */
static inline int toy_config(struct tu_writer *w, const struct tu_model *m)
{
    struct tu_buf config = {0}, b = {0};
    struct tu_jw j;
    if (!tu_family_find(m->family)->hf_class)
        return 0;
    int rc = tu_model_to_hf(&config, m, NULL, NULL);
    tu_jw_begin(&j, &b);
    tu_jw_open(&j, NULL, '{');
    tu_jw_str(&j, "config.json", config.data ? config.data : "");
    tu_jw_close(&j, '}');
    rc = rc | tu_jw_end(&j, NULL);
    if (!rc)
        rc = tu_writer_meta(w, "files", b.data, b.n, NULL);
    tu_buf_release(&config);
    tu_buf_release(&b);
    return rc;
}

/* 0 when path holds the model. */
static inline int toy_write(const char *path, const struct tu_model *m, uint32_t dtype, uint64_t seed)
{
    struct toy t = {.dtype = dtype, .seed = seed};
    struct tu_out *out = NULL;
    struct tu_buf b = {0};
    bool gpt = !strncmp(m->family, "gpt", 3);
    int rc = tu_out_open(&out, path, NULL, NULL);
    if (!rc)
        rc = tu_writer_new(&t.w, out, NULL);
    if (!rc)
        rc = tu_model_to_meta(&b, m, NULL);
    if (!rc)
        rc = tu_writer_meta(t.w, "model", b.data, b.n, NULL);
    if (!rc)
        rc = toy_config(t.w, m);
    if (!rc) {
        if (gpt)
            toy_gpt(&t, m);
        else if (m->kv_rank)
            toy_deepseek(&t, m);
        else
            toy_llama(&t, m);
        rc = t.failed ? -1 : tu_writer_end(t.w, false, NULL);
    }
    if (!rc) {
        rc = tu_writer_close(t.w, false, NULL);
        t.w = NULL;
    }
    tu_writer_abort(t.w);
    tu_buf_release(&b);
    return rc;
}

#endif
