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
    {"cohere", {PLAIN, .tied = true, .one_norm = true}},
    {"cohere2", {PLAIN, .tied = true, .one_norm = true}},
    {"deepseek_v2", {PLAIN}},
    {"deepseek_v3", {PLAIN, .norm_topk = true}},
    {"kimi_k2", {PLAIN, .norm_topk = true}}, /* as DeepSeek V3 */
    {"gemma2", {PLAIN, .tied = true, .post_norms = true, .head_dim = 256, .vocab = 256000}},
    {"gemma3_text",
     {PLAIN, .tied = true, .post_norms = true, .qk_norm = true, .heads = 8, .kv_heads = 4,
      .head_dim = 256, .vocab = 262208}},
    {"glm4", {PLAIN, .post_norms = true}},
    {"glm4_moe", {PLAIN, .norm_topk = true, .dense_layers = 1}},
    {"gpt_oss", {PLAIN, .bias = true, .sinks = true}},
    {"phi3", {PLAIN}},
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
