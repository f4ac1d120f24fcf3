/* SPDX-License-Identifier: Apache-2.0 */
/* Name maps: every written line of every built-in map goes to a role and back to the same name. */
#include <tensorutils/model.h>

#include "../tap.h"

static void both_ways(void)
{
    static const struct {
        const char *map, *name, *role;
    } row[] = {
        {"hf-llama", "model.embed_tokens.weight", "embed.weight"},
        {"hf-llama", "model.layers.12.self_attn.k_proj.bias", "layers.12.attn.k.bias"},
        {"hf-mixtral", "model.layers.1.block_sparse_moe.experts.7.w3.weight",
         "layers.1.moe.experts.7.up.weight"},
        {"hf-gpt2", "transformer.h.3.attn.c_attn.weight", "layers.3.attn.q.weight"},
        {"hf-gpt-neox", "gpt_neox.layers.0.attention.query_key_value.bias", "layers.0.attn.q.bias"},
        {"hf-qwen-moe", "model.layers.5.mlp.shared_expert_gate.weight",
         "layers.5.moe.shared_gate.weight"},
        {"mcore-te", "decoder.layers.2.self_attention.linear_qkv.layer_norm_weight",
         "layers.2.attn_norm.weight"},
        {"mcore-te", "decoder.layers.2.mlp.experts.linear_fc2.weight11",
         "layers.2.moe.experts.11.down.weight"},
        {"mcore-local", "decoder.layers.2.mlp.experts.local_experts.11.linear_fc2.weight",
         "layers.2.moe.experts.11.down.weight"},
        {"megatron-legacy", "language_model.encoder.layers.9.mlp.dense_4h_to_h.bias",
         "layers.9.mlp.down.bias"},
        {"meta-llama", "layers.4.feed_forward.w2.weight", "layers.4.mlp.down.weight"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct tu_map *m = NULL;
        struct tu_named n;
        struct tu_buf name = {0};
        struct tu_err err;
        bool yes = false;
        eq_int(tu_map_builtin(&m, row[i].map, &err), 0, "%s is built in", row[i].map);
        eq_int(tu_map_match(m, row[i].name, 0, 0, &n, &yes, &err), 0, "match runs");
        ok(yes, "%s takes %s", row[i].map, row[i].name);
        eq_str(n.role[0], row[i].role, "its role");
        eq_int(tu_map_entry(m, row[i].role, 0, 0, &name, &n, &yes, &err), 0, "entry runs");
        ok(yes, "%s names %s", row[i].map, row[i].role);
        eq_str(name.data, row[i].name, "the same name");
        tu_buf_release(&name);
        tu_map_free(m);
    }
}

static void stages(void)
{
    struct tu_map *m = NULL;
    struct tu_named n;
    struct tu_buf name = {0};
    bool yes = false;
    eq_int(tu_map_builtin(&m, "mcore-te", NULL), 0, "mcore-te");
    eq_int(tu_map_match(m, "decoder.layers.1.mlp.experts.linear_fc1.weight0", 8, 4, &n, &yes, NULL), 0,
           "match");
    eq_str(n.role[0], "layers.9.moe.experts.4.gate.weight", "layer 1 of a stage that begins at 8");
    eq_int(n.layer, 9, "layer");
    eq_int(n.expert, 4, "expert");
    eq_int(tu_map_entry(m, "layers.9.moe.experts.4.up.weight", 8, 4, &name, &n, &yes, NULL), 0, "entry");
    eq_str(name.data, "decoder.layers.1.mlp.experts.linear_fc1.weight0", "and back");
    eq_u64(n.n, 2, "gate and up");
    eq_str(n.role[1], "layers.9.moe.experts.4.up.weight", "roles are global");
    tu_buf_release(&name);
    tu_map_free(m);
}

static void conditions(void)
{
    struct tu_map *m = NULL;
    struct tu_named n;
    bool yes = false;
    struct tu_model plain = {.tied = true}, gated = {.gated = true};
    eq_int(tu_map_builtin(&m, "mcore-te", NULL), 0, "mcore-te");
    tu_map_bind(m, &plain);
    eq_int(tu_map_match(m, "decoder.layers.0.mlp.linear_fc1.weight", 0, 0, &n, &yes, NULL), 0, "match");
    eq_u64(n.n, 1, "a plain MLP has up alone");
    eq_int(tu_map_match(m, "output_layer.weight", 0, 0, &n, &yes, NULL), 0, "match");
    eq_str(n.role[0], "embed.weight", "a tied head is the embedding");
    tu_map_bind(m, &gated);
    eq_int(tu_map_match(m, "decoder.layers.0.mlp.linear_fc1.weight", 0, 0, &n, &yes, NULL), 0, "match");
    eq_u64(n.n, 2, "a gated MLP has gate and up");
    eq_int(tu_map_match(m, "output_layer.weight", 0, 0, &n, &yes, NULL), 0, "match");
    eq_str(n.role[0], "head.weight", "an untied head is its own");
    eq_int(tu_map_match(m, "decoder.layers.0.mlp.linear_fc1.weight_scale", 0, 0, &n, &yes, NULL), 0,
           "match");
    ok(!yes, "a pattern takes whole names only");
    tu_map_free(m);
}

static void bad_maps(void)
{
    static const struct {
        const char *text, *why;
    } row[] = {
        {"a b c\n", "line 1: not PATTERN TAB TARGET TAB TRANSFORM"},
        {"# c\na\tb\tsplit\n", "line 2: unknown transform 'split'"},
        {"a(\\d+\tb.$1\tcopy\n", "line 1"},
        {"a\\.(\\d+)\tb.$2\tcopy\n", "no capture $2"},
        {"a.*\tb\tcopy\n", "cannot be turned into a name"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct tu_map *m = NULL;
        struct tu_err err;
        eq_int(tu_map_parse(&m, "x.map", row[i].text, &err), TU_EFORMAT, "bad map %zu", i);
        ok(strstr(err.msg, row[i].why) != NULL, "says why: %s", err.msg);
    }
    struct tu_map *m = NULL;
    eq_int(tu_map_builtin(&m, "nothing", NULL), TU_EUSAGE, "unknown map");
}

static void configs(void)
{
    static const char llama[] =
        "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"intermediate_size\":48,\"vocab_size\":301,\"rope_parameters\":"
        "{\"rope_theta\":500000.0,\"rope_type\":\"llama3\"},\"tie_word_embeddings\":true}";
    struct tu_model m, back;
    struct tu_buf b = {0};
    struct tu_err err;
    eq_int(tu_model_from_hf(&m, llama, sizeof llama - 1, &err), 0, "llama config");
    eq_u64(m.head_dim, 8, "head_dim follows");
    ok(m.gated && m.rmsnorm && m.tied && m.rope_scaled, "flags");
    ok(m.rope_theta == 500000.0, "rope_theta inside rope_parameters");
    eq_int(tu_model_to_meta(&b, &m, &err), 0, "to META");
    eq_int(tu_model_from_meta(&back, b.data, b.n, &err), 0, "from META");
    eq_mem(&m, &back, sizeof m, "the same");
    tu_buf_reset(&b);
    eq_int(tu_model_to_hf(&b, &m, "bfloat16", &err), 0, "to config.json");
    eq_int(tu_model_from_hf(&back, b.data, b.n, &err), 0, "and back");
    eq_mem(&m, &back, sizeof m, "the same");
    static const struct {
        uint64_t dim, ffn;
    } sizes[] = {{4096, 11008}, {5120, 13824}, {8192, 28672}, {4096, 14336}, {2048, 8192}, {32, 48}, {64, 177}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        m.hidden = sizes[i].dim;
        m.ffn = sizes[i].ffn;
        m.head_dim = 0;
        tu_buf_reset(&b);
        eq_int(tu_model_to_params(&b, &m, &err), 0, "to params.json");
        eq_int(tu_model_from_params(&back, b.data, b.n, &err), 0, "and back");
        eq_u64(back.ffn, sizes[i].ffn, "the formula gives the width back");
    }
    tu_buf_release(&b);
    eq_int(tu_model_from_hf(&m, "{\"hidden_size\":-1}", 18, &err), TU_EFORMAT, "negative size");
    eq_int(tu_model_from_hf(&m, "{}", 2, &err), TU_EFORMAT, "nothing known");
}

int main(void)
{
    both_ways();
    stages();
    conditions();
    bad_maps();
    configs();
    return tap_done();
}
