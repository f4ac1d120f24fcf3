/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: bytes of known models, hybrid windows, and Fu's example. */
#include <math.h>
#include <tensorutils/kv/plan.h>
#include "../tap.h"

static uint64_t bytes(const struct tu_kv_sizes *s, uint64_t T, const char *store)
{
    uint64_t n = 0;
    if (tu_kv_bytes(s, T, tu_kv_bits(store, s->dim_k), 1, &n, NULL))
        n = 1;
    return n;
}

static void models(void)
{
    static const struct {
        const char *name;
        uint64_t layers, heads, dim, latent, want;
    } m[] = {
        {"Llama-2-7B", 32, 32, 128, 0, 524288},     {"OPT-13B", 40, 40, 128, 0, 819200},
        {"GPT-3-175B", 96, 96, 128, 0, 4718592},    {"Llama-3-8B", 32, 8, 128, 0, 131072},
        {"Llama-3-70B", 80, 8, 128, 0, 327680},     {"Llama-3.1-405B", 126, 8, 128, 0, 516096},
        {"Yi-34B", 60, 8, 128, 0, 245760},          {"Qwen2.5-7B", 28, 4, 128, 0, 57344},
        {"Qwen2.5-0.5B", 24, 2, 64, 0, 12288},      {"Falcon-7B", 32, 1, 64, 0, 8192},
        {"DeepSeek-V3", 61, 128, 128, 576, 70272},
    };
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        struct tu_kv_sizes s = {.layers = m[i].layers, .heads = m[i].heads, .dim_k = m[i].dim,
                                .dim_v = m[i].dim, .latent = m[i].latent};
        eq_u64(bytes(&s, 1, "bf16"), m[i].want, "%s", m[i].name);
    }
    struct tu_kv_sizes l = {.layers = 32, .heads = 8, .dim_k = 128, .dim_v = 128};
    eq_u64(bytes(&l, 1, "q8_0"), 69632, "Llama-3-8B in q8_0");
    eq_u64(bytes(&l, 1, "q4_0"), 36864, "in q4_0");
    struct tu_kv_sizes h = {.layers = 62, .heads = 16, .dim_k = 128, .dim_v = 128,
                            .window = 1024, .local = 52};
    eq_u64(bytes(&h, 8192, "bf16"), 1107296256, "hybrid, 8192 tokens");
    eq_u64(bytes(&h, 131072, "bf16"), UINT64_C(11173625856), "hybrid, 131072 tokens");
    uint64_t n;
    ok(!tu_kv_bytes(&l, 1, 16, 16, &n, NULL) && n == 16384, "more ranks than heads");
}

static void example(void)
{
    struct tu_kv_sizes s = {.layers = 60, .heads = 8, .dim_k = 128, .dim_v = 128,
                            .hidden = 7168};
    struct tu_kv_device d = {.hbm = 80e9, .bandwidth = 2e12, .flops = 312e12, .link = 20e9,
                             .params = 34e9, .weight_bytes = 68e9, .answer = 250};
    struct tu_kv_context c;
    tu_kv_context(&c, &s, &d, 4000, bytes(&s, 4000, "bf16"));
    ok(c.kv == 983040000 && c.users == 12 && fabs(c.prefill - 0.8939) < 5e-4 &&
           fabs(c.decode - 8.6229) < 5e-4 && fabs(c.swap - 0.0983) < 5e-5,
       "4K: %llu %g %g %g", (unsigned long long)c.users, c.prefill, c.decode, c.swap);
    tu_kv_context(&c, &s, &d, 50000, bytes(&s, 50000, "bf16"));
    ok(c.kv == UINT64_C(12288000000) && c.users == 0 && fabs(c.prefill - 14.3436) < 5e-4 &&
           fabs(c.decode - 10.036) < 5e-4 && fabs(c.swap - 1.2288) < 5e-5, "50K");
    struct tu_kv_sizes l = {.layers = 80, .heads = 8, .dim_k = 128, .dim_v = 128};
    d.params = 70e9;
    d.flops = 8 * 312e12;
    tu_kv_context(&c, &l, &d, 8192, bytes(&l, 8192, "bf16"));
    ok(fabs(c.load_above / 1e9 - 5.842) < 1e-3, "load above %.3f GB/s", c.load_above / 1e9);
}

static void configs(void)
{
    static const char mla[] =
        "{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,\"hidden_size\":7168,"
        "\"num_attention_heads\":128,\"num_key_value_heads\":128,\"kv_lora_rank\":512,"
        "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128}";
    static const char hybrid[] =
        "{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":62,\"hidden_size\":5376,"
        "\"num_attention_heads\":32,\"num_key_value_heads\":16,\"head_dim\":128,"
        "\"sliding_window\":1024,\"sliding_window_pattern\":6}";
    struct tu_kv_sizes s;
    ok(!tu_kv_sizes_from_hf(&s, mla, sizeof mla - 1, NULL) && s.latent == 576 &&
           bytes(&s, 1, "bf16") == 70272, "MLA");
    ok(!tu_kv_sizes_from_hf(&s, hybrid, sizeof hybrid - 1, NULL) && s.local == 52 &&
           bytes(&s, 8192, "bf16") == 1107296256, "windows in five of six layers");
    /* 12 of 48 layers: 2 heads of 256, twice, of 2 bytes. 36: a state of 32 times 128 by 128 of
     * 4 bytes and 4 columns of 2 * 2048 + 4096 of 2, as the caches of transformers 5.24.0. */
    static const char delta[] =
        "{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":48,\"hidden_size\":2048,"
        "\"num_attention_heads\":16,\"num_key_value_heads\":2}";
    ok(!tu_kv_sizes_from_hf(&s, delta, sizeof delta - 1, NULL) && s.layers == 12 &&
           bytes(&s, 1000, "bf16") == 12 * 2048 * 1000 + 36 * (2097152 + 65536),
       "states of gated delta nets");
    static const char chunks[] =
        "{\"model_type\":\"llama4_text\",\"num_hidden_layers\":48,\"hidden_size\":5120,"
        "\"num_attention_heads\":40,\"num_key_value_heads\":8}";
    ok(!tu_kv_sizes_from_hf(&s, chunks, sizeof chunks - 1, NULL) && s.local == 36 &&
           bytes(&s, 16384, "bf16") == UINT64_C(4096) * (12 * 16384 + 36 * 8192),
       "chunks in three of four layers");
}

int main(void)
{
    models();
    example();
    configs();
    return tap_done();
}
