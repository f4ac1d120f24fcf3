/* SPDX-License-Identifier: Apache-2.0 */
/* inject.c: descriptions of models from every form to every other, and a GGUF file seen under
 * Hugging Face's names, with each allocation failing in turn: TU_ENOMEM and a message, and
 * what gets through all the same is what the clean run gave. And GGUF files that no
 * converter writes. */
#include <jansson.h>
#include <stdlib.h>
#include <tensorutils/format.h>
#include <tensorutils/model.h>
#include "../inject.h"

#define HF "tests/data/hf/"

static void add(struct tu_buf *b)
{
    inject_add(b->data, b->n);
    tu_buf_reset(b);
}

static char *text_of(const char *model, const char *name)
{
    char path[256], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, HF "%s/%s", model, name);
    return tu_file_read(path, 1 << 24, &text, &n, NULL) ? NULL : text;
}

static const char *config;
static json_t *files;

/* config.json to META, params.json, GGUF's keys, config.json; and each back. */
static int forms(const void *name, struct tu_err *err)
{
    struct tu_model m, back;
    struct tu_buf b = {0};
    bool tokens, llama = !strcmp(name, "llama");
    int rc = tu_model_from_hf(&m, config, strlen(config), err);
    if (!rc)
        rc = tu_model_to_hf(&b, &m, "bfloat16", err);
    if (!rc)
        rc = tu_model_from_hf(&back, b.data, b.n, err);
    add(&b);
    if (!rc)
        rc = tu_model_to_meta(&b, &m, err);
    if (!rc)
        rc = tu_model_from_meta(&back, b.data, b.n, err);
    add(&b);
    if (!rc && llama)
        rc = tu_model_to_params(&b, &m, err);
    if (!rc && llama)
        rc = tu_model_from_params(&back, b.data, b.n, err);
    add(&b);
    if (!rc)
        rc = tu_model_to_gguf(&b, &m, files, TU_BF16, &tokens, err);
    if (!rc)
        rc = tu_model_from_gguf(&back, b.data, b.n, err);
    add(&b);
    tu_buf_release(&b);
    return rc;
}

/* The names of a GGUF file's tensors as Hugging Face has them, and the first bytes of each. */
static int gguf(const void *path, struct tu_err *err)
{
    struct tu_source *s = NULL;
    int rc = tu_source_open(&s, path, NULL, NULL, NULL, err);
    if (!rc)
        rc = tu_gguf_to_hf(&s, s, err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < s->n; i++) {
        unsigned char p[16];
        size_t n = (size_t)tu_min(sizeof p, s->tensor[i].bytes);
        rc = tu_source_read(s, i, 0, p, n, err);
        inject_add(s->tensor[i].name, strlen(s->tensor[i].name));
        inject_add(p, rc ? 0 : n);
    }
    for (size_t i = 0; i < s->metas; i++)
        inject_add(s->meta[i].json, s->meta[i].n);
    tu_source_close(s);
    return rc;
}

static void walk(const char *name, int (*run)(const void *, struct tu_err *), const char *arg)
{
    char text[80];
    snprintf(text, sizeof text, "%s %s", name, arg);
    inject_memory(&(struct inject){.name = text, .run = run, .arg = arg, .dense = 100});
}

/* Keys that the family needs and a file lies about. */
static void refused(void)
{
    static const struct {
        const char *json;
        int code;
    } rows[] = {
        {"{}", TU_EUNSUP},
        {"{\"general.architecture\":[4,1]}", TU_EUNSUP},
        {"{\"general.architecture\":[8,\"no such\"]}", TU_EUNSUP},
        {"{", TU_EMETA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_model m;
        struct tu_err err = {0};
        int rc = tu_model_from_gguf(&m, rows[i].json, strlen(rows[i].json), &err);
        ok(rc == rows[i].code && *err.msg, "%s: %s: %s", rows[i].json, tu_err_name(rc), err.msg);
    }
}

/* A GGUF file of one tensor. */
static int one_tensor(const char *name, unsigned rank, const uint64_t *dim, struct tu_err *err)
{
    static const char meta[] =
        "{\"general.architecture\":[8,\"llama\"],\"llama.block_count\":[4,1],"
        "\"llama.embedding_length\":[4,8],\"llama.attention.head_count\":[4,2],"
        "\"llama.attention.head_count_kv\":[4,2],\"llama.feed_forward_length\":[4,16],"
        "\"llama.context_length\":[4,8],\"llama.vocab_size\":[4,10]}";
    const struct tu_meta m = {"gguf", meta, sizeof meta - 1};
    struct tu_tensor t = {.name = name, .dtype = TU_F32, .rank = rank, .dim = dim};
    struct tu_save save = {.n = 1, .tensor = &t, .metas = 1, .meta = &m};
    struct tu_source *s = NULL;
    struct tu_sink *k = NULL;
    static const unsigned char zeros[4096];
    int rc = tu_tensor_bytes(t.dtype, dim, rank, &t.bytes, err);
    if (!rc)
        rc = tu_sink_open(&k, "one.gguf", NULL, &save, NULL, err);
    if (!rc)
        rc = tu_sink_write(k, 0, 0, zeros, (size_t)t.bytes, err);
    if (rc || tu_sink_finish(k, false, err))
        abort();
    rc = tu_source_open(&s, "one.gguf", NULL, NULL, NULL, err);
    if (!rc)
        rc = tu_gguf_to_hf(&s, s, err);
    if (!rc)
        tu_source_close(s);
    return rc;
}

static void strange(void)
{
    static const uint64_t eight[] = {8, 8}, odd[] = {7, 8};
    struct tu_err err = {0};
    ok(!one_tensor("blk.0.attn_q.weight", 2, eight, &err), "a matrix: %s", err.msg);
    eq_int(one_tensor("blk.0.attn_q.weight", 2, odd, &err), TU_EFORMAT, "seven rows: %s", err.msg);
    eq_int(one_tensor("blk.0.attn_q.weight", 0, NULL, &err), TU_EFORMAT, "a scalar: %s", err.msg);
    eq_int(one_tensor("blk.0.who.weight", 2, eight, &err), TU_EINCOMPLETE, "no such name: %s",
           err.msg);
    unlink("one.gguf");
}

int main(void)
{
    static const char *const models[] = {"llama", "gpt2", "qwen3_moe", "mixtral"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *text = text_of(models[i], "config.json"),
             *tokens = text_of(models[i], "tokenizer.json");
        config = text;
        files = json_object();
        if (tokens)
            json_object_set_new(files, "tokenizer.json", json_string(tokens));
        walk("forms", forms, models[i]);
        json_decref(files);
        tu_free(text);
        tu_free(tokens);
    }
    walk("gguf", gguf, "tests/data/gguf/hf/llama.gguf");
    refused();
    scratch_enter();
    strange();
    scratch_leave();
    return tap_done();
}
