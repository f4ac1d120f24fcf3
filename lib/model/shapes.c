/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c: families whose sizes are known from config.json but whose tensors no name map
 * names: enough to count parameters and operations.
 *
 * Source: transformers' configuration_*.py and modeling_*.py. */
#include <jansson.h>
#include <string.h>
#include <tensorutils/model.h>
#include "fields.h"

/* Words that one or a few families have. */
static const struct tui_field biased_fields[] = {
    TUI_FIELD("use_bias", TUI_BOOL, bias),
    {.keys = NULL},
};
static const struct tui_field falcon_fields[] = {
    TUI_FIELD("num_kv_heads|n_head_kv", TUI_U64, kv_heads),
    TUI_FIELD("ffn_hidden_size", TUI_U64, ffn),
    TUI_FIELD("bias", TUI_BOOL, bias),
    {.keys = NULL},
};
static const struct tui_field opt_fields[] = {
    TUI_FIELD("ffn_dim", TUI_U64, ffn),
    TUI_FIELD("word_embed_proj_dim", TUI_U64, embed_dim),
    TUI_FIELD("enable_bias", TUI_BOOL, bias),
    TUI_FIELD("_remove_final_layer_norm", TUI_BOOL, no_final_norm),
    {.keys = NULL},
};
static const struct tui_field phi_fields[] = {
    TUI_FIELD("qk_layernorm", TUI_BOOL, qk_norm),
    {.keys = NULL},
};
static const struct tui_field seed_fields[] = {
    TUI_FIELD("attention_out_bias", TUI_BOOL, o_bias),
    {.keys = NULL},
};
static const struct tui_field stablelm_fields[] = {
    TUI_FIELD("use_qkv_bias", TUI_BOOL, qkv_bias),
    TUI_FIELD("qk_layernorm", TUI_BOOL, qk_norm),
    TUI_FIELD("use_parallel_residual", TUI_BOOL, one_norm),
    {.keys = NULL},
};

static bool says(const json_t *config, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(config, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static void one_kv_head(struct tu_model *m, const json_t *config)
{
    m->kv_heads = says(config, "multi_query", true) ? 1 : m->heads;
}

/* num_kv_heads counts in the newer form alone. */
static void falcon(struct tu_model *m, const json_t *config)
{
    bool newer = says(config, "new_decoder_architecture", false);
    const json_t *norms = json_object_get(config, "num_ln_in_parallel_attn");
    if (!newer)
        one_kv_head(m, config);
    m->parallel = says(config, "parallel_attn", true);
    m->one_norm = m->parallel &&
                  (json_is_integer(norms) ? json_integer_value(norms) != 2 : !newer);
}

static void opt(struct tu_model *m, const json_t *config)
{
    m->bare_norms = !says(config, "layer_norm_elementwise_affine", true);
    m->no_final_norm |= !says(config, "do_layer_norm_before", true);
}

#define PLAIN .gated = true, .rmsnorm = true
/* Attention and MLP behind one norm. */
#define ABREAST .parallel = true, .one_norm = true

static const struct {
    const char *name;
    struct tu_model base;
    const struct tui_field *fields;                          /* NULL: none of its own */
    void (*rest)(struct tu_model *m, const json_t *config); /* NULL: nothing else */
} shapes[] = {
    {.name = "arcee", .base = {.rmsnorm = true}},
    {.name = "bloom", .base = {.tied = true, .bias = true, .embed_norm = true}},
    {.name = "codegen", .base = {ABREAST, .mlp_bias = true, .head_bias = true}},
    /* Its norms, LayerNorms, have no bias: they are counted as those of RMS. */
    {.name = "cohere", .base = {PLAIN, ABREAST, .tied = true, .qk_wide = true}},
    {.name = "cohere2",
     .base = {PLAIN, ABREAST, .tied = true, .full_every = 4, .window = 4096}},
    {.name = "ernie4_5", .base = {PLAIN, .tied = true}, .fields = biased_fields},
    /* The norms of EXAONE 4, OLMo 2 and OLMo 3 stand behind attention and MLP, there alone. */
    {.name = "exaone4", .base = {PLAIN, .qk_norm = true, .full_every = 4, .window = 4096}},
    {.name = "falcon", .base = {.tied = true}, .fields = falcon_fields, .rest = falcon},
    {.name = "gemma", .base = {PLAIN, .tied = true, .norm_one = true, .head_dim = 256}},
    {.name = "glm", .base = {PLAIN, .o_plain = true}},
    {.name = "glm4", .base = {PLAIN, .o_plain = true, .post_norms = true}},
    {.name = "glm4_moe",
     .base = {PLAIN, .o_plain = true, .norm_topk = true, .dense_layers = 1}},
    {.name = "gpt_bigcode",
     .base = {.tied = true, .learned_positions = true, .bias = true},
     .rest = one_kv_head},
    {.name = "gpt_neo",
     .base = {.tied = true, .learned_positions = true, .o_bias = true, .mlp_bias = true,
              .full_every = 2, .window = 256}},
    {.name = "gpt_oss",
     .base = {PLAIN, .bias = true, .sinks = true, .full_every = 2, .window = 128}},
    {.name = "gptj", .base = {ABREAST, .mlp_bias = true, .head_bias = true}},
    {.name = "granite", .base = {PLAIN}},
    {.name = "granitemoe", .base = {PLAIN, .experts = 8, .top_k = 2}},
    {.name = "helium", .base = {PLAIN, .o_plain = true, .head_dim = 128}},
    {.name = "internlm3", .base = {PLAIN}},
    {.name = "llama4_text",
     .base = {PLAIN, .experts = 16, .top_k = 1, .shared_experts = 1, .moe_every = 1,
              .qk_bare = true, .full_every = 4, .window = 8192, .chunked = true}},
    {.name = "nemotron"},
    {.name = "olmo", .base = {PLAIN, .bare_norms = true}},
    {.name = "olmo2", .base = {PLAIN, .qk_norm = true, .qk_wide = true}},
    {.name = "olmo3",
     .base = {PLAIN, .qk_norm = true, .qk_wide = true, .full_every = 4, .window = 4096}},
    {.name = "olmoe",
     .base = {PLAIN, .qk_norm = true, .qk_wide = true, .experts = 64, .top_k = 8}},
    {.name = "opt",
     .base = {.tied = true, .learned_positions = true, .spare_positions = 2, .bias = true},
     .fields = opt_fields, .rest = opt},
    {.name = "persimmon", .base = {.bias = true, .qk_norm = true}, .fields = phi_fields},
    {.name = "phi", .base = {ABREAST, .bias = true, .head_bias = true}, .fields = phi_fields},
    {.name = "phi3", .base = {PLAIN}},
    {.name = "phimoe", .base = {.gated = true, .experts = 16, .top_k = 2}},
    {.name = "qwen3_next",
     .base = {PLAIN, .qk_norm = true, .q_gate = true, .head_dim = 256, .experts = 512,
              .top_k = 10, .expert_ffn = 512, .shared_ffn = 512, .shared_gate = true,
              .norm_topk = true, .rope_theta = 1e4, .rope_fraction = 0.25, .norm_eps = 1e-6,
              .full_every = 4, .delta_key_heads = 16, .delta_value_heads = 32,
              .delta_key_dim = 128, .delta_value_dim = 128, .delta_conv = 4}},
    {.name = "seed_oss", .base = {PLAIN, .head_dim = 128}, .fields = seed_fields},
    {.name = "smollm3", .base = {PLAIN, .tied = true}},
    {.name = "stablelm", .base = {.gated = true, .qk_wide = true}, .fields = stablelm_fields},
    {.name = "starcoder2", .base = {.tied = true, .bias = true}, .fields = biased_fields},
};

static size_t find(const char *family)
{
    size_t i = 0;
    while (i < sizeof shapes / sizeof *shapes && strcmp(shapes[i].name, family))
        i++;
    return i;
}

const struct tu_model *tui_shape(const char *family)
{
    size_t i = find(family);
    return i < sizeof shapes / sizeof *shapes ? &shapes[i].base : NULL;
}

int tui_shape_read(struct tu_model *m, const json_t *config, struct tu_err *err)
{
    size_t i = find(m->family);
    if (i == sizeof shapes / sizeof *shapes)
        return 0;
    int rc = shapes[i].fields ? tui_fields_read(shapes[i].fields, config, m, err) : 0;
    if (!rc && shapes[i].rest)
        shapes[i].rest(m, config);
    return rc;
}

bool tu_model_known(const char *family)
{
    return tu_family_find(family) || tui_shape(family);
}
