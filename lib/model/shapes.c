/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c: families whose sizes are known from config.json but whose tensors no name map
 * names: enough to count parameters and operations.
 *
 * Source: transformers' configuration_*.py and modeling_*.py. */
#include <string.h>
#include <tensorutils/model.h>
#include "fields.h"

#define PLAIN .gated = true, .rmsnorm = true

static const struct {
    const char *name;
    struct tu_model base;
} shapes[] = {
    /* Its norms, LayerNorms, have no bias: they are counted as those of RMS. */
    {"cohere", {PLAIN, .tied = true, .one_norm = true, .qk_wide = true}},
    {"cohere2",
     {PLAIN, .tied = true, .one_norm = true, .full_every = 4, .window = 4096}},
    {"glm4", {PLAIN, .post_norms = true}},
    {"glm4_moe", {PLAIN, .norm_topk = true, .dense_layers = 1}},
    {"gpt_oss", {PLAIN, .bias = true, .sinks = true, .full_every = 2, .window = 128}},
    {"llama4_text",
     {PLAIN, .experts = 16, .top_k = 1, .shared_experts = 1, .moe_every = 1,
      .qk_bare = true, .full_every = 4, .window = 8192, .chunked = true}},
    /* The norms of OLMo 2 and 3 stand behind attention and MLP, there alone. */
    {"olmo2", {PLAIN, .qk_norm = true, .qk_wide = true}},
    {"olmo3",
     {PLAIN, .qk_norm = true, .qk_wide = true, .full_every = 4, .window = 4096}},
    {"olmoe", {PLAIN, .qk_norm = true, .qk_wide = true, .experts = 64, .top_k = 8}},
    {"phi3", {PLAIN}},
    {"qwen3_next",
     {PLAIN, .qk_norm = true, .q_gate = true, .head_dim = 256, .experts = 512,
      .top_k = 10, .expert_ffn = 512, .shared_ffn = 512, .shared_gate = true,
      .norm_topk = true, .rope_theta = 1e4, .rope_fraction = 0.25, .norm_eps = 1e-6,
      .full_every = 4, .delta_key_heads = 16, .delta_value_heads = 32,
      .delta_key_dim = 128, .delta_value_dim = 128, .delta_conv = 4}},
};

const struct tu_model *tui_shape(const char *family)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].name, family))
            return &shapes[i].base;
    return NULL;
}

bool tu_model_known(const char *family)
{
    return tu_family_find(family) || tui_shape(family);
}
