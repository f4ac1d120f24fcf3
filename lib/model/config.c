/* SPDX-License-Identifier: Apache-2.0 */
/* config.c: tu_model from and to config.json (Hugging Face), params.json (Meta) and META
 * "model".
 *
 * Source of the keys: transformers' configuration_*.py; llama's ModelArgs. */

#include <jansson.h>
#include <string.h>

#include "fields.h"

static const struct tui_field hf_fields[] = {
    TUI_FIELD("model_type", TUI_FAMILY, family),
    TUI_FIELD("num_hidden_layers|n_layer|num_layers", TUI_U64, layers),
    TUI_FIELD("hidden_size|n_embd|n_embed", TUI_U64, hidden),
    TUI_FIELD("num_attention_heads|n_head|num_heads", TUI_U64, heads),
    TUI_FIELD("num_key_value_heads", TUI_U64, kv_heads),
    TUI_FIELD("head_dim", TUI_U64, head_dim),
    TUI_FIELD("intermediate_size|n_inner", TUI_U64, ffn),
    TUI_FIELD("vocab_size", TUI_U64, vocab),
    TUI_FIELD("max_position_embeddings|n_positions", TUI_U64, positions),
    TUI_FIELD("num_local_experts|num_experts|n_routed_experts", TUI_U64, experts),
    TUI_FIELD("num_experts_per_tok", TUI_U64, top_k),
    TUI_FIELD("moe_intermediate_size", TUI_U64, expert_ffn),
    TUI_FIELD("shared_expert_intermediate_size", TUI_U64, shared_ffn),
    TUI_FIELD("n_shared_experts", TUI_U64, shared_experts),
    TUI_FIELD("first_k_dense_replace", TUI_U64, dense_layers),
    TUI_FIELD("num_nextn_predict_layers", TUI_U64, mtp_layers),
    TUI_FIELD("q_lora_rank", TUI_U64, q_rank),
    TUI_FIELD("kv_lora_rank", TUI_U64, kv_rank),
    TUI_FIELD("qk_nope_head_dim", TUI_U64, nope_dim),
    TUI_FIELD("qk_rope_head_dim", TUI_U64, rope_dim),
    TUI_FIELD("v_head_dim", TUI_U64, v_dim),
    TUI_FIELD("tie_word_embeddings", TUI_BOOL, tied),
    TUI_FIELD("norm_topk_prob", TUI_BOOL, norm_topk),
    TUI_FIELD("use_qk_norm", TUI_BOOL, qk_norm),
    TUI_FIELD("rope_theta|rotary_emb_base", TUI_REAL, rope_theta),
    TUI_FIELD("partial_rotary_factor|rotary_pct", TUI_REAL, rope_fraction),
    TUI_FIELD("rms_norm_eps|layer_norm_epsilon|layer_norm_eps", TUI_REAL, norm_eps),
    {.keys = NULL},
};

/* Read, not written: no family that can be described here differs in them from its own. */
static const struct tui_field hf_read_fields[] = {
    TUI_FIELD("mlp_bias", TUI_BOOL, mlp_bias),
    TUI_FIELD("lm_head_bias", TUI_BOOL, head_bias),
    TUI_FIELD("use_parallel_residual", TUI_BOOL, parallel),
    {.keys = NULL},
};

/* GPT-2 has its own words; the others share those of the first alternative. */
static const struct tui_field gpt2_fields[] = {
    TUI_FIELD("n_layer", TUI_U64, layers),
    TUI_FIELD("n_embd", TUI_U64, hidden),
    TUI_FIELD("n_head", TUI_U64, heads),
    TUI_FIELD("n_inner", TUI_U64, ffn),
    TUI_FIELD("vocab_size", TUI_U64, vocab),
    TUI_FIELD("n_positions", TUI_U64, positions),
    TUI_FIELD("layer_norm_epsilon", TUI_REAL, norm_eps),
    TUI_FIELD("tie_word_embeddings", TUI_BOOL, tied),
    {.keys = NULL},
};

/* Sorted by key: META is canonical JSON. */
static const struct tui_field meta_fields[] = {
    TUI_FIELD("bias", TUI_BOOL, bias),
    TUI_FIELD("dense_layers", TUI_U64, dense_layers),
    TUI_FIELD("expert_ffn", TUI_U64, expert_ffn),
    TUI_FIELD("experts", TUI_U64, experts),
    TUI_FIELD("family", TUI_FAMILY, family),
    TUI_FIELD("ffn", TUI_U64, ffn),
    TUI_FIELD("gated", TUI_BOOL, gated),
    TUI_FIELD("head_dim", TUI_U64, head_dim),
    TUI_FIELD("heads", TUI_U64, heads),
    TUI_FIELD("hidden", TUI_U64, hidden),
    TUI_FIELD("kv_heads", TUI_U64, kv_heads),
    TUI_FIELD("kv_rank", TUI_U64, kv_rank),
    TUI_FIELD("layers", TUI_U64, layers),
    TUI_FIELD("learned_positions", TUI_BOOL, learned_positions),
    TUI_FIELD("mtp_layers", TUI_U64, mtp_layers),
    TUI_FIELD("nope_dim", TUI_U64, nope_dim),
    TUI_FIELD("norm_eps", TUI_REAL, norm_eps),
    TUI_FIELD("norm_one", TUI_BOOL, norm_one),
    TUI_FIELD("norm_topk", TUI_BOOL, norm_topk),
    TUI_FIELD("positions", TUI_U64, positions),
    TUI_FIELD("post_norms", TUI_BOOL, post_norms),
    TUI_FIELD("q_rank", TUI_U64, q_rank),
    TUI_FIELD("qk_norm", TUI_BOOL, qk_norm),
    TUI_FIELD("qkv_bias", TUI_BOOL, qkv_bias),
    TUI_FIELD("rmsnorm", TUI_BOOL, rmsnorm),
    TUI_FIELD("rope_dim", TUI_U64, rope_dim),
    TUI_FIELD("rope_fraction", TUI_REAL, rope_fraction),
    TUI_FIELD("rope_interleaved", TUI_BOOL, rope_interleaved),
    TUI_FIELD("rope_scaled", TUI_BOOL, rope_scaled),
    TUI_FIELD("rope_theta", TUI_REAL, rope_theta),
    TUI_FIELD("shared_experts", TUI_U64, shared_experts),
    TUI_FIELD("shared_ffn", TUI_U64, shared_ffn),
    TUI_FIELD("sinks", TUI_BOOL, sinks),
    TUI_FIELD("tied", TUI_BOOL, tied),
    TUI_FIELD("top_k", TUI_U64, top_k),
    TUI_FIELD("v_dim", TUI_U64, v_dim),
    TUI_FIELD("vocab", TUI_U64, vocab),
    {.keys = NULL},
};

static const struct tui_field params_fields[] = {
    TUI_FIELD("dim", TUI_U64, hidden),
    TUI_FIELD("n_layers", TUI_U64, layers),
    TUI_FIELD("n_heads", TUI_U64, heads),
    TUI_FIELD("n_kv_heads", TUI_U64, kv_heads),
    TUI_FIELD("norm_eps", TUI_REAL, norm_eps),
    TUI_FIELD("rope_theta", TUI_REAL, rope_theta),
    TUI_FIELD("use_scaled_rope", TUI_BOOL, rope_scaled),
    {.keys = NULL},
};

static int parse(json_t **out, const char *json, size_t n, struct tu_err *err)
{
    struct tu_json_limits limits = {.bytes = (size_t)16 << 20, .object = true};
    return tu_json_parse(out, json, n, &limits, err);
}

/* Sizes that follow from others, and those that must be there. */
static int complete(struct tu_model *m, struct tu_err *err)
{
    if (!m->layers || !m->hidden || !m->heads)
        return tu_fail(
            err, TU_EFORMAT,
            "layers, hidden size and heads are needed (found %llu, %llu, %llu)",
            (unsigned long long)m->layers, (unsigned long long)m->hidden,
            (unsigned long long)m->heads);
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (m->kv_rank) /* files give the part that is rotated, if any, as head_dim */
        m->head_dim = m->nope_dim + m->rope_dim;
    if (m->kv_rank && (!m->nope_dim || !m->v_dim))
        return tu_fail(err, TU_EFORMAT, "latent attention needs the parts of a head");
    if (!m->head_dim) {
        if (m->hidden % m->heads)
            return tu_fail(err, TU_EFORMAT,
                           "hidden size %llu is no multiple of %llu heads",
                           (unsigned long long)m->hidden, (unsigned long long)m->heads);
        m->head_dim = m->hidden / m->heads;
    }
    if (m->heads % m->kv_heads)
        return tu_fail(err, TU_EFORMAT,
                       "%llu heads are no multiple of %llu key-value heads",
                       (unsigned long long)m->heads, (unsigned long long)m->kv_heads);
    if (m->experts && m->top_k > m->experts)
        return tu_fail(err, TU_EFORMAT, "%llu experts for a token, of %llu",
                       (unsigned long long)m->top_k, (unsigned long long)m->experts);
    if (m->experts && !m->expert_ffn)
        m->expert_ffn = m->ffn;
    if (!m->shared_ffn)
        m->shared_ffn = m->shared_experts * m->expert_ffn;
    if (m->dense_layers > m->layers)
        return tu_fail(err, TU_EFORMAT, "%llu of %llu layers are dense",
                       (unsigned long long)m->dense_layers, (unsigned long long)m->layers);
    if (m->mtp_layers > m->layers)
        return tu_fail(err, TU_EFORMAT, "%llu layers that predict further tokens, behind %llu",
                       (unsigned long long)m->mtp_layers, (unsigned long long)m->layers);
    return 0;
}

/* What attention_bias of a config.json means: of q, k, v and mostly of the way out. */
static void attention_bias(struct tu_model *m, const json_t *config)
{
    const json_t *v = json_object_get(config, "attention_bias");
    if (json_is_true(v)) {
        m->qkv_bias = true;
        m->o_bias = !m->o_plain;
    } else if (json_is_false(v) && m->bias) {
        m->bias = m->qkv_bias = false;
        m->mlp_bias = true;
    }
}

int tu_model_from_hf(struct tu_model *m, const char *json, size_t n, struct tu_err *err)
{
    json_t *root = NULL;
    memset(m, 0, sizeof *m);
    int rc = parse(&root, json, n, err);
    if (rc)
        return rc;
    const json_t *text = json_object_get(root, "text_config"); /* of a multimodal model */
    const json_t *config = json_is_object(text) ? text : root;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const struct tu_family *family = type ? tu_family_find(type) : NULL;
    const struct tu_model *shape = family ? &family->base : type ? tui_shape(type) : NULL;
    if (shape)
        *m = *shape;
    rc = tui_fields_read(hf_fields, config, m, err);
    if (!rc)
        rc = tui_fields_read(hf_read_fields, config, m, err);
    const json_t *rope = json_object_get(config, "rope_parameters");
    if (!rc && json_is_object(rope))
        rc = tui_fields_read(hf_fields, rope, m, err);
    if (!json_is_object(rope))
        rope = json_object_get(config, "rope_scaling");
    const char *kind = json_string_value(json_object_get(rope, "rope_type"));
    m->rope_scaled = kind && !strcmp(kind, "llama3");
    attention_bias(m, config);
    if (!rc && shape && !family)
        rc = tui_shape_read(m, config, err);
    if (!rc && !m->ffn && shape && !shape->gated)
        m->ffn = 4 * m->hidden;
    if (!rc)
        rc = tui_layers_read(m, shape, config, err);
    json_decref(root);
    return rc ? rc : complete(m, err);
}

/* A size by the first of several keys that is there, 0: none is. */
static int size_of(uint64_t *out, const json_t *object, const char *const *key,
                   struct tu_err *err)
{
    *out = 0;
    for (; *key; key++) {
        const json_t *v = json_object_get(object, *key);
        json_int_t n = json_integer_value(v);
        if (!v || json_is_null(v))
            continue;
        if (!json_is_integer(v) || n < 0 || n > 1 << 20)
            return tu_fail(err, TU_EFORMAT,
                           "vision_config: '%s': expected an integer from 0 to 2^20", *key);
        *out = (uint64_t)n;
        return 0;
    }
    return 0;
}

int tu_vision_from_hf(struct tu_vision *v, const char *json, size_t n, struct tu_err *err)
{
    /* hidden_size of Qwen2-VL's is the language model's, beside an embed_dim. */
    static const char *const layers[] = {"num_hidden_layers", "depth", "layers", NULL};
    static const char *const hidden[] = {"embed_dim", "hidden_size", "width", NULL};
    static const char *const image[] = {"image_size", NULL};
    static const char *const patch[] = {"patch_size", NULL};
    json_t *root = NULL;
    uint64_t pixels = 0, side = 0;
    *v = (struct tu_vision){0};
    int rc = parse(&root, json, n, err);
    const json_t *config = json_object_get(root, "vision_config");
    if (!rc && json_is_object(config)) {
        rc = size_of(&v->layers, config, layers, err);
        rc = rc ? rc : size_of(&v->hidden, config, hidden, err);
        rc = rc ? rc : size_of(&pixels, config, image, err);
        rc = rc ? rc : size_of(&side, config, patch, err);
    }
    if (!rc && side)
        v->tokens = (pixels / side) * (pixels / side);
    json_decref(root);
    return rc;
}

static void write_rope(struct tu_jw *w, const struct tu_model *m)
{
    if (m->rope_theta == 0.0)
        return;
    tu_jw_open(w, "rope_parameters", '{');
    if (m->rope_scaled) {
        tu_jw_real(w, "factor", 8);
        tu_jw_real(w, "high_freq_factor", 4);
        tu_jw_real(w, "low_freq_factor", 1);
        tu_jw_u64(w, "original_max_position_embeddings", 8192);
    }
    if (m->rope_fraction != 0.0)
        tu_jw_real(w, "partial_rotary_factor", m->rope_fraction);
    tu_jw_real(w, "rope_theta", m->rope_theta);
    tu_jw_str(w, "rope_type", m->rope_scaled ? "llama3" : "default");
    tu_jw_close(w, '}');
    tu_jw_real(w, "rope_theta", m->rope_theta); /* older readers look here */
}

int tu_model_to_hf(struct tu_buf *out, const struct tu_model *m, const char *dtype,
                   struct tu_err *err)
{
    const struct tu_family *family = tu_family_find(m->family);
    if (!family || !family->hf_class)
        return tu_fail(err, TU_EUNSUP, "no config.json is known for family '%s'",
                       m->family);
    struct tu_jw w;
    bool gpt2 = !strcmp(m->family, "gpt2");
    tu_jw_begin(&w, out);
    tu_jw_open(&w, NULL, '{');
    tu_jw_open(&w, "architectures", '[');
    tu_jw_str(&w, NULL, family->hf_class);
    tu_jw_close(&w, ']');
    if (gpt2) {
        tu_jw_str(&w, "model_type", m->family);
        tui_fields_write(&w, gpt2_fields, m, true);
    } else {
        struct tu_model plain = *m;
        plain.rope_theta = 0; /* written with its relatives */
        plain.rope_fraction = 0;
        if (!m->rmsnorm)
            plain.norm_eps = 0;
        tui_fields_write(&w, hf_fields, &plain, true);
        if (m->experts)
            tu_jw_u64(&w, "num_experts", m->experts);
        if (!m->rmsnorm)
            tu_jw_real(&w, "layer_norm_eps", m->norm_eps);
        if (m->qkv_bias != family->base.qkv_bias)
            tu_jw_bool(&w, "attention_bias", m->qkv_bias);
        write_rope(&w, m);
    }
    if (dtype)
        tu_jw_str(&w, "torch_dtype", dtype);
    tu_jw_close(&w, '}');
    return tu_jw_end(&w, err);
}

int tu_model_from_meta(struct tu_model *m, const char *json, size_t n, struct tu_err *err)
{
    json_t *root = NULL;
    memset(m, 0, sizeof *m);
    int rc = parse(&root, json, n, err);
    if (!rc)
        rc = tui_fields_read(meta_fields, root, m, err);
    json_decref(root);
    return rc ? rc : complete(m, err);
}

int tu_model_to_meta(struct tu_buf *out, const struct tu_model *m, struct tu_err *err)
{
    struct tu_jw w;
    tu_jw_begin(&w, out);
    tu_jw_open(&w, NULL, '{');
    tui_fields_write(&w, meta_fields, m, false);
    tu_jw_close(&w, '}');
    return tu_jw_end(&w, err);
}

/* ModelArgs' rule: int(8/3 dim), times the multiplier, up to a multiple. */
static uint64_t params_ffn(uint64_t dim, double multiplier, uint64_t multiple)
{
    uint64_t h = 2 * (4 * dim) / 3;
    if (multiplier != 0.0)
        h = (uint64_t)(multiplier * (double)h);
    return multiple ? tu_ceil_div(h, multiple) * multiple : h;
}

int tu_model_from_params(struct tu_model *m, const char *json, size_t n,
                         struct tu_err *err)
{
    json_t *root = NULL;
    *m = tu_families[0].base;
    m->norm_eps = 1e-5;
    memcpy(m->family, "llama", 6);
    int rc = parse(&root, json, n, err);
    if (!rc)
        rc = tui_fields_read(params_fields, root, m, err);
    if (!rc) {
        json_int_t vocab = json_integer_value(json_object_get(root, "vocab_size"));
        json_int_t multiple = json_integer_value(json_object_get(root, "multiple_of"));
        double mult = json_number_value(json_object_get(root, "ffn_dim_multiplier"));
        m->vocab = vocab > 0 && vocab < 1 << 30 ? (uint64_t)vocab : 0;
        if (multiple < 0 || multiple > 1 << 20 || !(mult >= 0 && mult < 1000))
            rc = tu_fail(err, TU_EFORMAT,
                         "multiple_of or ffn_dim_multiplier is out of range");
        else
            m->ffn = params_ffn(m->hidden, mult, multiple ? (uint64_t)multiple : 256);
    }
    json_decref(root);
    return rc ? rc : complete(m, err);
}

int tu_model_to_params(struct tu_buf *out, const struct tu_model *m, struct tu_err *err)
{
    struct tu_jw w;
    uint64_t multiple = 4096;
    double multiplier = 0;
    while (multiple > 1 && params_ffn(m->hidden, 0, multiple) != m->ffn)
        multiple /= 2;
    if (params_ffn(m->hidden, 0, multiple) != m->ffn) {
        /* No multiple alone gives it: scale, and round away what the cast cuts off. */
        multiple = m->ffn & (~m->ffn + 1);
        multiplier = (double)m->ffn / (double)params_ffn(m->hidden, 0, 0);
        while (multiple > 1 && params_ffn(m->hidden, multiplier, multiple) != m->ffn)
            multiple /= 2;
        if (params_ffn(m->hidden, multiplier, multiple) != m->ffn)
            multiplier = ((double)m->ffn + 0.5) / (double)params_ffn(m->hidden, 0, 0);
    }
    tu_jw_begin(&w, out);
    tu_jw_open(&w, NULL, '{');
    tui_fields_write(&w, params_fields, m, false);
    if (multiplier != 0.0)
        tu_jw_real(&w, "ffn_dim_multiplier", multiplier);
    tu_jw_u64(&w, "multiple_of", multiple);
    tu_jw_i64(&w, "vocab_size", m->vocab ? (int64_t)m->vocab : -1);
    tu_jw_close(&w, '}');
    return tu_jw_end(&w, err);
}

int tu_model_same(const struct tu_model *a, const struct tu_model *b, struct tu_err *err)
{
    for (const struct tui_field *f = meta_fields; f->keys; f++) {
        if (f->type != TUI_U64)
            continue;
        uint64_t x = *(const uint64_t *)(const void *)((const char *)a + f->offset);
        uint64_t y = *(const uint64_t *)(const void *)((const char *)b + f->offset);
        if (x && y && x != y)
            return tu_fail(err, TU_EINCOMPLETE, "%s differs: %llu and %llu", f->keys,
                           (unsigned long long)x, (unsigned long long)y);
    }
    return 0;
}
