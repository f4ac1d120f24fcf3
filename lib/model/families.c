/* SPDX-License-Identifier: Apache-2.0 */
/* families.c: the model families, one row each: what a config.json leaves out, and its names. */

#include <string.h>

#include <tensorutils/model.h>

const struct tu_family tu_families[] = {
    {"llama", "Llama 1 to 3 and models of its shape", "LlamaForCausalLM", "hf-llama",
     "llama", "gguf-llama",
     {.gated = true, .rmsnorm = true, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"mistral", "Mistral", "MistralForCausalLM", "hf-llama",
     "llama", "gguf-llama",
     {.gated = true, .rmsnorm = true, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"qwen2", "Qwen2 and Qwen2.5 (bias on q, k, v)", "Qwen2ForCausalLM", "hf-llama",
     "qwen2", "gguf-qwen",
     {.gated = true, .rmsnorm = true, .qkv_bias = true, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"qwen3", "Qwen3 (norm on q and k)", "Qwen3ForCausalLM", "hf-llama",
     "qwen3", "gguf-qwen",
     {.gated = true, .rmsnorm = true, .qk_norm = true, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"mixtral", "Mixtral", "MixtralForCausalLM", "hf-mixtral",
     "llama", "gguf-llama",
     {.gated = true, .rmsnorm = true, .experts = 8, .top_k = 2, .norm_topk = true,
      .rope_theta = 1e6, .norm_eps = 1e-5}},
    {"qwen2_moe", "Qwen2-MoE (shared expert)", "Qwen2MoeForCausalLM", "hf-qwen-moe",
     "qwen2moe", "gguf-qwen",
     {.gated = true, .rmsnorm = true, .qkv_bias = true, .experts = 60, .top_k = 4,
      .shared_gate = true, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"qwen3_moe", "Qwen3-MoE", "Qwen3MoeForCausalLM", "hf-qwen-moe",
     "qwen3moe", "gguf-qwen",
     {.gated = true, .rmsnorm = true, .qk_norm = true, .experts = 128, .top_k = 8,
      .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"gpt2", "GPT-2", "GPT2LMHeadModel", "hf-gpt2",
     "gpt2", "gguf-gpt2",
     {.tied = true, .learned_positions = true, .qkv_bias = true, .bias = true, .norm_eps = 1e-5}},
    {"gpt_neox", "GPT-NeoX and Pythia", "GPTNeoXForCausalLM", "hf-gpt-neox",
     "gptneox", "gguf-gpt2",
     {.qkv_bias = true, .bias = true, .parallel = true, .rope_theta = 1e4, .rope_fraction = 0.25,
      .norm_eps = 1e-5}},
    {"gemma2", "Gemma 2", NULL, "hf-gemma", NULL, NULL,
     {.tied = true, .gated = true, .rmsnorm = true, .post_norms = true, .norm_one = true,
      .head_dim = 256, .vocab = 256000, .rope_theta = 1e4, .norm_eps = 1e-6, .full_every = 2,
      .window = 4096}},
    {"gemma3_text", "Gemma 3, text (norm on q and k)", NULL, "hf-gemma", NULL, NULL,
     {.tied = true, .gated = true, .rmsnorm = true, .post_norms = true, .norm_one = true,
      .qk_norm = true, .heads = 8, .kv_heads = 4, .head_dim = 256, .vocab = 262208,
      .rope_theta = 1e6, .norm_eps = 1e-6, .full_every = 6, .window = 4096}},
    {"deepseek_v2", "DeepSeek-V2 (latent attention, shared and routed experts)", NULL,
     "hf-deepseek", NULL, NULL,
     {.gated = true, .rmsnorm = true, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64,
      .v_dim = 128, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"deepseek_v3", "DeepSeek-V3 and R1 (and layers that predict further tokens)", NULL,
     "hf-deepseek", NULL, NULL,
     {.gated = true, .rmsnorm = true, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64,
      .v_dim = 128, .norm_topk = true, .rope_theta = 1e4, .norm_eps = 1e-6}},
    {"kimi_k2", "Kimi K2 (as DeepSeek-V3)", NULL, "hf-deepseek", NULL, NULL,
     {.gated = true, .rmsnorm = true, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64,
      .v_dim = 128, .norm_topk = true, .rope_theta = 5e4, .norm_eps = 1e-6}},
    {.name = NULL},
};

const struct tu_family *tu_family_find(const char *name)
{
    for (const struct tu_family *f = tu_families; f->name; f++)
        if (!strcmp(f->name, name))
            return f;
    return NULL;
}

/* How many of the names a map takes; 0 when the map cannot be had. */
static size_t taken(const char *map, const char *const *name, size_t n)
{
    struct tu_map *m = NULL;
    size_t count = 0;
    if (tu_map_builtin(&m, map, NULL))
        return 0;
    for (size_t i = 0; i < n; i++) {
        struct tu_named named;
        bool yes = false;
        count += !tu_map_match(m, name[i], 0, 0, &named, &yes, NULL) && yes;
    }
    tu_map_free(m);
    return count;
}

const struct tu_family *tu_family_guess(const char *const *name, size_t n)
{
    const struct tu_family *best = NULL;
    const char *last = "";
    size_t most = 0;
    for (const struct tu_family *f = tu_families; f->name; f++) {
        if (!strcmp(f->hf_map, last))
            continue;
        last = f->hf_map;
        size_t count = taken(f->hf_map, name, n);
        if (count > most) {
            most = count;
            best = f;
        }
    }
    return most * 10 >= n * 9 ? best : NULL;
}
