/* SPDX-License-Identifier: Apache-2.0 */
/* The key-values of a GGUF file against those that llama.cpp's own converter writes for the
 * models of tests/data/hf, and back. */
#include <jansson.h>
#include <stdlib.h>
#include <tensorutils/model.h>

#include "../tap.h"

#define HF "tests/data/hf/"
#define KV "tests/data/gguf/hf/"

static const char *const models[] = {"llama", "llama_tied", "llama_mqa", "llama_even",
                                     "mistral", "gpt2", "gpt_neox", "qwen2", "qwen3",
                                     "mixtral", "qwen2_moe", "qwen3_moe"};

static char *text_of(const char *folder, const char *name, const char *end)
{
    char path[256], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s%s%s", folder, name, end);
    return tu_file_read(path, 1 << 24, &text, &n, NULL) ? NULL : text;
}

static json_t *files_of(const char *model)
{
    static const char *const names[] = {"config.json", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja"};
    json_t *files = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char end[64];
        snprintf(end, sizeof end, "/%s", names[i]);
        char *text = text_of(HF, model, end);
        if (text)
            json_object_set_new(files, names[i], json_string(text));
        tu_free(text);
    }
    return files;
}

static unsigned kind_of(const char *word)
{
    return !strcmp(word, "uint32")          ? 4
           : !strcmp(word, "float32")       ? 6
           : !strcmp(word, "bool")          ? 7
           : !strncmp(word, "array", 5)     ? 9
                                            : 8;
}

/* One line KEY TYPE JSON of the converter. */
static void compare_line(const char *model, json_t *kv, char *line)
{
    char *type = strchr(line, ' '), *value = type ? strchr(type + 1, ' ') : NULL;
    if (!value)
        return;
    *type++ = *value++ = '\0';
    /* The converter takes these from the folder's name and the number of weights. */
    if (!strcmp(line, "general.name") || !strcmp(line, "general.size_label"))
        return;
    const json_t *pair = json_object_get(kv, line);
    json_t *want = json_loads(value, JSON_DECODE_ANY, NULL);
    const json_t *got = json_array_get(pair, 1);
    if (kind_of(type) == 9)
        got = json_array_get(got, 1);
    ok(got && json_equal(got, want), "%s: %s", model, line);
    eq_int(json_integer_value(json_array_get(pair, 0)), kind_of(type), "%s: %s: type", model,
           line);
    json_decref(want);
    json_object_del(kv, line);
}

static void compare(const char *model)
{
    struct tu_err err;
    struct tu_buf out = {0};
    struct tu_model m, back;
    bool tokens = false;
    json_t *files = files_of(model), *kv = NULL;
    const char *config = json_string_value(json_object_get(files, "config.json"));
    char *text = text_of(KV, model, ".kv");
    eq_int(tu_model_from_hf(&m, config, strlen(config), &err), 0, "%s", model);
    eq_int(tu_model_to_gguf(&out, &m, files, TU_BF16, &tokens, &err), 0, "%s", model);
    ok(tokens == (strcmp(model, "llama") == 0), "%s: a tokenizer or none", model);
    eq_int(tu_json_parse(&kv, out.data, out.n, NULL, &err), 0, "%s: JSON", model);
    for (char *s = text, *end; s && *s; s = end) {
        end = s + strcspn(s, "\n");
        end += *end ? (*end = '\0', 1) : 0;
        compare_line(model, kv, s);
    }
    const char *key, *left = "";
    json_t *v;
    json_object_foreach(kv, key, v) if (strcmp(key, "general.file_type")) left = key;
    eq_str(left, "", "%s: no key that the converter does not write", model);
    eq_int(tu_model_from_gguf(&back, out.data, out.n, &err), 0, "%s: back", model);
    if (strcmp(model, "gpt2") && m.vocab && !back.vocab)
        back.vocab = m.vocab; /* some architectures leave it to the tokenizer */
    eq_int(tu_model_same(&m, &back, &err), 0, "%s: the same sizes", model);
    ok(m.rope_theta == back.rope_theta || !m.rmsnorm, "%s: rotary base", model);
    ok(m.norm_eps == back.norm_eps, "%s: epsilon", model);
    json_decref(kv);
    json_decref(files);
    tu_buf_release(&out);
    tu_free(text);
}

/* A tokenizer over characters, with bytes as a fallback. */
static void characters(void)
{
    static const char tokenizer[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
        "{\"id\":5,\"content\":\"\xe2\x96\x81x\",\"special\":false}],"
        "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,"
        "\"<0x41>\":1,\"a\":2,\"b\":3,\"ab\":4},\"merges\":[[\"a\",\"b\"]]}}";
    struct tu_model m = {.family = "llama", .layers = 1, .hidden = 8, .heads = 1,
                         .kv_heads = 1, .head_dim = 8, .vocab = 7, .rmsnorm = true};
    struct tu_buf out = {0};
    struct tu_err err;
    bool tokens;
    json_t *files = json_pack("{s:s}", "tokenizer.json", tokenizer), *kv = NULL;
    eq_int(tu_model_to_gguf(&out, &m, files, TU_F16, &tokens, &err), 0, "characters");
    ok(tokens, "has a tokenizer");
    eq_int(tu_json_parse(&kv, out.data, out.n, NULL, &err), 0, "JSON");
    const char *want[][2] = {
        {"tokenizer.ggml.model", "[8,\"llama\"]"},
        {"tokenizer.ggml.tokens",
         "[9,[8,[\"<unk>\",\"<0x41>\",\"a\",\"b\",\"ab\",\" x\",\"[PAD6]\"]]]"},
        {"tokenizer.ggml.token_type", "[9,[5,[3,6,1,1,1,4,5]]]"},
        {"tokenizer.ggml.scores",
         "[9,[6,[-10000.0,-10000.0,-10000.0,-10000.0,-0.0,-10000.0,-10000.0]]]"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        json_t *v = json_loads(want[i][1], 0, NULL);
        ok(json_equal(json_object_get(kv, want[i][0]), v), "%s", want[i][0]);
        json_decref(v);
    }
    json_decref(kv);
    json_decref(files);
    tu_buf_release(&out);
}

/* Factors of Llama 3.1, as its converter computes them for head_dim 128, theta 500000. */
static void frequencies(void)
{
    struct tu_model m = {.rope_scaled = true, .head_dim = 128, .rope_theta = 500000};
    float f[64];
    eq_u64(tu_gguf_rope_freqs(&m, f), 64, "64 factors");
    ok(f[0] == 1 && f[28] == 1, "short waves are kept");
    ok(f[35] == 8 && f[63] == 8, "long waves are stretched");
    ok(f[29] > 1 && f[29] < f[30] && f[34] < 8, "between them a ramp");
    m.rope_scaled = false;
    eq_u64(tu_gguf_rope_freqs(&m, NULL), 0, "others have none");
}

int main(void)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        compare(models[i]);
    characters();
    frequencies();
    return tap_done();
}
