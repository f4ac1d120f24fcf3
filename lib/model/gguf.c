/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: tu_model from and to the key-values of a GGUF file.
 *
 * Source: ggml-org/llama.cpp conversion/base.py and the families' files, gguf-py/gguf/
 * constants.py. Not for the tokenizer: gguf_tokens.c. */

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf.h"

#define QUANTIZATION_VERSION 2 /* of ggml's block formats */

int tui_gguf_put(json_t *kv, const char *key, unsigned type, json_t *value,
                 struct tu_err *err)
{
    if (value && !json_object_set_new(kv, key, json_pack("[io]", (int)type, value)))
        return 0;
    return tu_fail(err, TU_ENOMEM, "out of memory");
}

/* Which keys hold which member; "A." stands for the architecture. */
static const struct tui_field keys[] = {
    TUI_FIELD("A.block_count", TUI_U64, layers),
    TUI_FIELD("A.context_length", TUI_U64, positions),
    TUI_FIELD("A.embedding_length", TUI_U64, hidden),
    TUI_FIELD("A.feed_forward_length", TUI_U64, ffn),
    TUI_FIELD("A.attention.head_count", TUI_U64, heads),
    TUI_FIELD("A.attention.head_count_kv", TUI_U64, kv_heads),
    TUI_FIELD("A.attention.key_length", TUI_U64, head_dim),
    TUI_FIELD("A.rope.freq_base", TUI_REAL, rope_theta),
    TUI_FIELD("A.attention.layer_norm_rms_epsilon", TUI_REAL, norm_eps),
    TUI_FIELD("A.attention.layer_norm_epsilon", TUI_REAL, norm_eps),
    TUI_FIELD("A.expert_count", TUI_U64, experts),
    TUI_FIELD("A.expert_used_count", TUI_U64, top_k),
    TUI_FIELD("A.expert_feed_forward_length", TUI_U64, expert_ffn),
    TUI_FIELD("A.expert_shared_feed_forward_length", TUI_U64, shared_ffn),
    TUI_FIELD("A.vocab_size", TUI_U64, vocab),
    {.keys = NULL},
};

static void key_of(char out[96], const char *arch, const char *key)
{
    snprintf(out, 96, "%s%s", arch, key + 1);
}

/* The key is written for this model although its member could be told from others. */
static bool wanted(const struct tu_model *m, const char *key, size_t offset)
{
    const bool llama = !strcmp(tu_family_find(m->family)->gguf_arch, "llama");
    if (offset == offsetof(struct tu_model, vocab))
        return llama;
    if (offset == offsetof(struct tu_model, head_dim)) /* else hidden / heads */
        return m->head_dim * m->heads != m->hidden || (llama && !m->experts);
    if (offset == offsetof(struct tu_model, kv_heads))
        return m->rmsnorm;
    if (offset == offsetof(struct tu_model, rope_theta))
        return m->rmsnorm;
    if (offset == offsetof(struct tu_model, expert_ffn))
        return !llama;
    if (offset == offsetof(struct tu_model, norm_eps))
        return m->rmsnorm == (strstr(key, "_rms_") != NULL);
    return true;
}

static int put_fields(json_t *kv, const struct tu_model *m, const char *arch,
                      struct tu_err *err)
{
    int rc = 0;
    for (const struct tui_field *f = keys; f->keys && !rc; f++) {
        const char *at = (const char *)m + f->offset;
        uint64_t u = f->type == TUI_U64 ? *(const uint64_t *)(const void *)at : 0;
        double d = f->type == TUI_REAL ? *(const double *)(const void *)at : 0;
        char key[96];
        key_of(key, arch, f->keys);
        if (!wanted(m, f->keys, f->offset))
            continue;
        if (u)
            rc = tui_gguf_put(kv, key, TUI_GGUF_U32, json_integer((json_int_t)u), err);
        else if (d != 0.0)
            rc = tui_gguf_put(kv, key, TUI_GGUF_F32, json_real((double)(float)d), err);
    }
    return rc;
}

/* What follows from others, or is the architecture's own. */
static int put_derived(json_t *kv, const struct tu_model *m, const char *arch,
                       struct tu_err *err)
{
    char key[96];
    int rc = 0;
    double part = m->rope_fraction != 0.0 ? m->rope_fraction : 1;
    uint64_t rotated = (uint64_t)(part * (double)m->head_dim);
    if (json_object_get(kv, (key_of(key, arch, "A.attention.key_length"), key))) {
        key_of(key, arch, "A.attention.value_length");
        rc = tui_gguf_put(kv, key, TUI_GGUF_U32, json_integer((json_int_t)m->head_dim), err);
    }
    if (!rc && (!strcmp(arch, "llama") || !strcmp(arch, "gptneox"))) {
        key_of(key, arch, "A.rope.dimension_count");
        rc = tui_gguf_put(kv, key, TUI_GGUF_U32, json_integer((json_int_t)rotated), err);
    }
    if (!rc && !strcmp(arch, "gptneox"))
        rc = tui_gguf_put(kv, "gptneox.use_parallel_residual", TUI_GGUF_BOOL, json_true(),
                          err);
    return rc;
}

static int file_type(uint32_t dtype)
{
    return dtype == TU_BF16 ? 32 : dtype == TU_F16 ? 1 : 0;
}

static int put_general(json_t *kv, const char *arch, uint32_t dtype, struct tu_err *err)
{
    int rc = tui_gguf_put(kv, "general.architecture", TUI_GGUF_STRING, json_string(arch), err);
    if (!rc)
        rc = tui_gguf_put(kv, "general.type", TUI_GGUF_STRING, json_string("model"), err);
    if (!rc)
        rc = tui_gguf_put(kv, "general.file_type", TUI_GGUF_U32,
                          json_integer(file_type(dtype)), err);
    return rc ? rc : tui_gguf_put(kv, "general.quantization_version", TUI_GGUF_U32,
                                  json_integer(QUANTIZATION_VERSION), err);
}

int tu_model_to_gguf(struct tu_buf *out, const struct tu_model *m, const struct json_t *files,
                     uint32_t dtype, bool *tokens, struct tu_err *err)
{
    const struct tu_family *f = tu_family_find(m->family);
    bool found = false;
    if (!f || !f->gguf_arch)
        return tu_fail(err, TU_EUNSUP, "family '%s' has no architecture in GGUF", m->family);
    json_t *kv = json_object();
    int rc = kv ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc)
        rc = put_general(kv, f->gguf_arch, dtype, err);
    if (!rc)
        rc = put_fields(kv, m, f->gguf_arch, err);
    if (!rc)
        rc = put_derived(kv, m, f->gguf_arch, err);
    if (!rc)
        rc = tui_gguf_tokens(kv, m, files, &found, err);
    if (!rc)
        rc = tu_json_dump(out, kv, err);
    if (tokens)
        *tokens = found;
    json_decref(kv);
    return rc;
}

/* Back -------------------------------------------------------------------------------- */

/* {"A.key": value} of {"llama.key": [type, value]}. */
static json_t *bare(const json_t *kv, const char *arch, struct tu_err *err)
{
    json_t *o = json_object();
    for (const struct tui_field *f = keys; o && f->keys; f++) {
        char key[96];
        key_of(key, arch, f->keys);
        json_t *v = json_array_get(json_object_get(kv, key), 1);
        if (v && (json_is_number(v)) && json_object_set(o, f->keys, v)) {
            json_decref(o);
            o = NULL;
        }
    }
    if (!o)
        (void)tu_fail(err, TU_ENOMEM, "out of memory");
    return o;
}

/* Of the families of an architecture, the one that fits. */
static const struct tu_family *family_of(const char *arch, bool experts)
{
    for (const struct tu_family *f = tu_families; f->name; f++)
        if (f->gguf_arch && !strcmp(f->gguf_arch, arch) && (f->base.experts > 0) == experts)
            return f;
    return NULL;
}

/* Reals are f32 in the file: the shortest decimal that is that number. */
static double shortest(double d)
{
    char text[32];
    for (int digits = 1; digits < 17; digits++) {
        double v;
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (!tu_parse_double(text, &v, NULL) && (float)v == (float)d)
            return v;
    }
    return d;
}

static void from_derived(struct tu_model *m, const json_t *kv, const char *arch)
{
    char key[96];
    key_of(key, arch, "A.rope.dimension_count");
    json_int_t rotated = json_integer_value(json_array_get(json_object_get(kv, key), 1));
    m->rope_theta = shortest(m->rope_theta);
    m->norm_eps = shortest(m->norm_eps);
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (!m->head_dim && m->heads)
        m->head_dim = m->hidden / m->heads;
    if (rotated > 0 && m->head_dim && (uint64_t)rotated != m->head_dim)
        m->rope_fraction = (double)rotated / (double)m->head_dim;
    if (m->experts && !m->expert_ffn)
        m->expert_ffn = m->ffn;
    const json_t *list = json_array_get(
        json_array_get(json_object_get(kv, "tokenizer.ggml.tokens"), 1), 1);
    if (!m->vocab)
        m->vocab = json_array_size(list);
}

int tu_model_from_gguf(struct tu_model *m, const char *json, size_t n, struct tu_err *err)
{
    json_t *kv = NULL, *o = NULL;
    char key[96];
    int rc = tu_json_parse(&kv, json, n, NULL, err);
    if (rc)
        return rc;
    const char *arch = json_string_value(
        json_array_get(json_object_get(kv, "general.architecture"), 1));
    key_of(key, arch ? arch : "", "A.expert_count");
    const struct tu_family *f =
        arch ? family_of(arch, json_object_get(kv, key) != NULL) : NULL;
    if (!f)
        rc = tu_fail(err, TU_EUNSUP, "architecture '%.40s' is not known", arch ? arch : "");
    else if (!(o = bare(kv, arch, err)))
        rc = TU_ENOMEM;
    if (!rc) {
        *m = f->base;
        snprintf(m->family, sizeof m->family, "%s", f->name);
        rc = tui_fields_read(keys, o, m, err);
    }
    if (!rc && (!m->layers || !m->hidden || !m->heads))
        rc = tu_fail(err, TU_EFORMAT, "%s: block_count, embedding_length and head_count are "
                                      "needed", arch);
    if (!rc)
        from_derived(m, kv, arch);
    json_decref(o);
    json_decref(kv);
    return rc;
}

/* Tensors ------------------------------------------------------------------------------- */

uint32_t tu_gguf_dtype(const char *role, unsigned rank, uint32_t dtype)
{
    static const char *const whole[] = {"pos.weight", ".moe.router.weight",
                                        ".moe.shared_gate.weight"};
    bool f32 = rank < 2;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        size_t n = strlen(role), k = strlen(whole[i]);
        f32 |= n >= k && !strcmp(role + n - k, whole[i]);
    }
    return f32 && tu_dtype_is_float(dtype) ? TU_F32 : dtype;
}

size_t tu_gguf_rope_freqs(const struct tu_model *m, float *out)
{
    /* Llama 3.1's: factor, wavelengths that are kept and that are stretched in full. */
    const double factor = 8, low = 1, high = 4, context = 8192, turn = 6.283185307179586;
    if (!m->rope_scaled)
        return 0;
    for (uint64_t i = 0; out && i < m->head_dim / 2; i++) {
        double f = pow(m->rope_theta, -(double)(2 * i) / (double)m->head_dim);
        double wave = turn / f, smooth = (context / wave - low) / (high - low);
        out[i] = (float)(wave < context / high  ? 1
                         : wave > context / low ? factor
                                                : 1 / ((1 - smooth) / factor + smooth));
    }
    return (size_t)(m->head_dim / 2);
}
