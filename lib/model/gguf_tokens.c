/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_tokens.c: the tokenizer's keys of a GGUF file, from a Hugging Face tokenizer.json,
 * tokenizer_config.json, config.json and chat_template.jinja.
 *
 * Two kinds of pair encoding are known: over bytes ("gpt2" in GGUF) and over characters with
 * bytes as a fallback ("llama"). llama.cpp tells pre-tokenizers apart by a digest of what
 * the tokenizer makes of a text; here the regular expression in the file decides. Source:
 * ggml-org/llama.cpp conversion/base.py, gguf-py/gguf/vocab.py. */

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gguf.h"

/* gguf.TokenType */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };

struct tokens {
    json_t *root;   /* tokenizer.json */
    json_t *text, *type, *score; /* arrays in the order of ids */
    json_t *id;     /* content: id, of added tokens */
    size_t n;
    bool bytes;     /* characters with a fallback to bytes */
};

static int parse_file(json_t **out, const json_t *files, const char *name,
                      struct tu_err *err)
{
    const json_t *text = json_object_get(files, name);
    struct tu_json_limits limits = {.bytes = (size_t)64 << 20, .object = true};
    *out = NULL;
    if (!json_is_string(text))
        return 0;
    int rc = tu_json_parse(out, json_string_value(text), json_string_length(text), &limits,
                           err);
    if (rc)
        tu_err_prefix(err, "%s", name);
    return rc;
}

/* Tokens ------------------------------------------------------------------------------ */

static int set_token(struct tokens *t, size_t id, const char *s, int type,
                     struct tu_err *err)
{
    if (id >= t->n)
        return tu_fail(err, TU_EFORMAT, "tokenizer.json: '%.40s' has id %zu of %zu", s, id,
                       t->n);
    if (json_array_set_new(t->text, id, json_string(s)) ||
        json_array_set_new(t->type, id, json_integer(type)))
        return tu_fail(err, TU_ENOMEM, "out of memory");
    return 0;
}

static bool looks_special(const char *s)
{
    size_t n = strlen(s);
    return !strcmp(s, "<pad>") || !strcmp(s, "<mask>") ||
           (n > 4 && !strncmp(s, "<|", 2) && !strcmp(s + n - 2, "|>"));
}

/* "▁" is a space in tokens that users add. */
static int put_spaces(struct tu_buf *out, const char *s, struct tu_err *err)
{
    static const char mark[] = "\xe2\x96\x81";
    int rc = 0;
    for (; *s && !rc; s++) {
        bool space = !strncmp(s, mark, 3);
        rc = tu_buf_add(out, space ? " " : s, 1, err);
        s += space ? 2 : 0;
    }
    return rc ? rc : tu_buf_add(out, "", 1, err);
}

static int add_added(struct tokens *t, const json_t *e, struct tu_err *err)
{
    const char *s = json_string_value(json_object_get(e, "content"));
    const json_t *id = json_object_get(e, "id");
    struct tu_buf b = {0};
    if (!s || !json_is_integer(id) || json_integer_value(id) < 0)
        return tu_fail(err, TU_EFORMAT, "tokenizer.json: an added token without content or id");
    bool control = json_is_true(json_object_get(e, "special")) || looks_special(s);
    int rc = control ? tu_buf_add(&b, s, strlen(s) + 1, err) : put_spaces(&b, s, err);
    if (!rc)
        rc = set_token(t, (size_t)json_integer_value(id), b.data, control ? CONTROL : USER,
                       err);
    if (!rc && json_object_set(t->id, s, (json_t *)(uintptr_t)id))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    tu_buf_release(&b);
    return rc;
}

/* As many as the model has rows, or as there are. */
static size_t count_tokens(json_t *vocab, const json_t *added, uint64_t rows)
{
    const char *s;
    const json_t *v;
    size_t i;
    json_int_t most = -1;
    json_object_foreach(vocab, s, v)
        most = json_integer_value(v) > most ? json_integer_value(v) : most;
    json_array_foreach(added, i, v)
    {
        json_int_t id = json_integer_value(json_object_get(v, "id"));
        most = id > most ? id : most;
    }
    return rows ? (size_t)rows : most < 1 << 28 ? (size_t)(most + 1) : 0;
}

/* "<0xAB>" */
static bool is_byte(const char *s)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    return !strncmp(s, "<0x", 3) && strspn(s + 3, digits) == 2 && !strcmp(s + 5, ">");
}

static int fill_tokens(struct tokens *t, uint64_t rows, struct tu_err *err)
{
    const json_t *model = json_object_get(t->root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *id, *e;
    const json_t *added = json_object_get(t->root, "added_tokens");
    const char *s;
    size_t i;
    int rc = 0;
    t->n = count_tokens(vocab, added, rows);
    for (i = 0; i < t->n; i++) {
        char pad[32];
        snprintf(pad, sizeof pad, "[PAD%zu]", i);
        if (json_array_append_new(t->text, json_string(pad)) ||
            json_array_append_new(t->type, json_integer(UNUSED)) ||
            (t->bytes && json_array_append_new(t->score, json_real(-10000))))
            return tu_fail(err, TU_ENOMEM, "out of memory");
    }
    json_object_foreach(vocab, s, id)
    {
        int type = NORMAL;
        if (t->bytes && is_byte(s))
            type = BYTE;
        if (t->bytes && !strcmp(s, "<unk>"))
            type = UNKNOWN;
        if (!json_is_integer(id))
            return tu_fail(err, TU_EFORMAT,
                           "tokenizer.json: '%.40s' has no whole number as id", s);
        if ((rc = set_token(t, (size_t)json_integer_value(id), s, type, err)))
            return rc;
    }
    json_array_foreach(added, i, e) if ((rc = add_added(t, e, err))) break;
    return rc;
}

/* Merges -------------------------------------------------------------------------------- */

/* Both forms, "a b" and ["a","b"]; spaces inside a part are written as llama.cpp does. */
static int merge_text(json_t **out, const json_t *m, size_t i, struct tu_err *err)
{
    struct tu_buf b = {0};
    if (json_is_string(m)) {
        *out = json_incref((json_t *)(uintptr_t)m);
        return 0;
    }
    const char *part[2] = {json_string_value(json_array_get(m, 0)),
                           json_string_value(json_array_get(m, 1))};
    int rc = json_array_size(m) == 2 && part[0] && part[1]
                 ? 0
                 : tu_fail(err, TU_EFORMAT, "tokenizer.json: merge %zu is no pair", i);
    for (size_t k = 0; k < 2 && !rc; k++) {
        rc = k ? tu_buf_add(&b, " ", 1, err) : 0;
        for (const char *s = part[k]; !rc && *s; s++)
            rc = *s == ' ' ? tu_buf_add(&b, "\xc4\xa0", 2, err) : tu_buf_add(&b, s, 1, err);
    }
    if (!rc && !(*out = json_stringn(b.data, b.n)))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    tu_buf_release(&b);
    return rc;
}

static int put_merges(json_t *kv, const json_t *merges, struct tu_err *err)
{
    json_t *list = json_array();
    size_t i;
    const json_t *m;
    json_array_foreach(merges, i, m)
    {
        json_t *text = NULL;
        int rc = merge_text(&text, m, i, err);
        if (!rc && json_array_append_new(list, text))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
        if (rc) {
            json_decref(list);
            return rc;
        }
    }
    return tui_gguf_put(kv, "tokenizer.ggml.merges", TUI_GGUF_ARRAY,
                        json_pack("[io]", (int)TUI_GGUF_STRING, list), err);
}

/* Scores by which llama.cpp merges: the earlier a merge, the higher. */
static int put_scores(json_t *kv, struct tokens *t, const json_t *merges, struct tu_err *err)
{
    const json_t *vocab = json_object_get(json_object_get(t->root, "model"), "vocab");
    size_t i;
    const json_t *m;
    json_array_foreach(merges, i, m)
    {
        char joined[512];
        const char *a = json_string_value(json_is_array(m) ? json_array_get(m, 0) : m);
        const char *b = json_string_value(json_array_get(m, 1));
        const char *gap = a && !b ? strchr(a, ' ') : NULL;
        if (!a || (!b && !gap))
            return tu_fail(err, TU_EFORMAT, "tokenizer.json: merge %zu is no pair", i);
        snprintf(joined, sizeof joined, "%.*s%s", gap ? (int)(gap - a) : (int)strlen(a), a,
                 gap ? gap + 1 : b);
        const json_t *id = json_object_get(vocab, joined);
        double s = -(double)i;
        size_t at = (size_t)json_integer_value(id);
        if (id && at < t->n && json_real_value(json_array_get(t->score, at)) <= -10000 &&
            json_array_set_new(t->score, at, json_real(s)))
            return tu_fail(err, TU_ENOMEM, "out of memory");
    }
    json_t *score = t->score;
    t->score = NULL;
    return tui_gguf_put(kv, "tokenizer.ggml.scores", TUI_GGUF_ARRAY,
                        json_pack("[io]", (int)TUI_GGUF_F32, score), err);
}

/* Pre-tokenizers ------------------------------------------------------------------------ */

/* By what is particular to the expression; the first that occurs. */
static const struct {
    const char *part, *pre;
} pres[] = {
    {"\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "llama-bpe"},
    {"\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*", "gpt-4o"},
    {"\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "qwen2"},
};

static const char *find_regex(const json_t *pre)
{
    const char *found = json_string_value(
        json_object_get(json_object_get(pre, "pattern"), "Regex"));
    size_t i;
    const json_t *e;
    json_array_foreach(json_object_get(pre, "pretokenizers"), i, e)
    {
        if (!found)
            found = find_regex(e);
    }
    return found;
}

static const char *pre_of(const struct tokens *t)
{
    const char *regex = find_regex(json_object_get(t->root, "pre_tokenizer"));
    if (t->bytes)
        return "default";
    for (size_t i = 0; regex && i < sizeof pres / sizeof *pres; i++)
        if (strstr(regex, pres[i].part))
            return pres[i].pre;
    return regex ? "default" : "gpt-2";
}

/* Special tokens ------------------------------------------------------------------------ */

static const struct {
    const char *type, *key;
} specials[] = {
    {"bos", "tokenizer.ggml.bos_token_id"},     {"eos", "tokenizer.ggml.eos_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"}, {"sep", "tokenizer.ggml.seperator_token_id"},
    {"pad", "tokenizer.ggml.padding_token_id"}, {"cls", "tokenizer.ggml.cls_token_id"},
    {"mask", "tokenizer.ggml.mask_token_id"},
};

/* The id that tokenizer_config.json names by content or config.json by number. */
static const json_t *special_id(const struct tokens *t, const json_t *tokenizer,
                                const json_t *config, const char *type)
{
    char key[32];
    snprintf(key, sizeof key, "%s_token", type);
    const json_t *v = json_object_get(tokenizer, key);
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    const json_t *id = s ? json_object_get(t->id, s) : NULL;
    snprintf(key, sizeof key, "%s_token_id", type);
    if (!id)
        id = json_object_get(config, key);
    if (json_is_array(id))
        id = json_array_get(id, 0);
    /* config.json may name what is not there. */
    const json_int_t n = json_is_integer(id) ? json_integer_value(id) : -1;
    return n >= 0 && (uint64_t)n < t->n ? id : NULL;
}

/* Does the post-processor put this token first (or last)? */
static bool placed(const struct tokens *t, bool last, json_int_t id)
{
    const json_t *post = json_object_get(t->root, "post_processor"), *e;
    size_t i;
    json_array_foreach(json_object_get(post, "processors"), i, e)
    {
        const char *type = json_string_value(json_object_get(e, "type"));
        if (type && !strcmp(type, "TemplateProcessing"))
            post = e;
    }
    const json_t *single = json_object_get(post, "single");
    size_t n = json_array_size(single);
    const json_t *at = json_array_get(single, last && n ? n - 1 : 0);
    const char *s =
        json_string_value(json_object_get(json_object_get(at, "SpecialToken"), "id"));
    const json_t *own = s ? json_object_get(t->id, s) : NULL;
    return own && json_integer_value(own) == id;
}

static int put_specials(json_t *kv, const struct tokens *t, const json_t *tokenizer,
                        const json_t *config, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof specials / sizeof *specials; i++) {
        const json_t *id = special_id(t, tokenizer, config, specials[i].type);
        char name[48], add[64];
        if (!id)
            continue;
        rc = tui_gguf_put(kv, specials[i].key, TUI_GGUF_U32,
                          json_incref((json_t *)(uintptr_t)id), err);
        snprintf(name, sizeof name, "add_%s_token", specials[i].type);
        snprintf(add, sizeof add, "tokenizer.ggml.%s", name);
        const json_t *said = json_object_get(tokenizer, name);
        bool yes = json_is_true(said) ||
                   (!json_is_boolean(said) && placed(t, i == 1, json_integer_value(id)));
        if (!rc && i < 2 && (yes || json_is_boolean(said)))
            rc = tui_gguf_put(kv, add, TUI_GGUF_BOOL, json_boolean(yes), err);
    }
    return rc;
}

static int put_template(json_t *kv, const json_t *files, const json_t *tokenizer,
                        struct tu_err *err)
{
    json_t *v = json_object_get(files, "chat_template.jinja");
    if (!json_is_string(v))
        v = json_object_get(tokenizer, "chat_template");
    if (!json_is_string(v))
        return 0;
    return tui_gguf_put(kv, "tokenizer.chat_template", TUI_GGUF_STRING, json_incref(v), err);
}

static int put_all(json_t *kv, struct tokens *t, const json_t *files, uint64_t rows,
                   struct tu_err *err)
{
    const json_t *model = json_object_get(t->root, "model");
    const json_t *merges = json_object_get(model, "merges");
    json_t *tokenizer = NULL, *config = NULL;
    int rc = fill_tokens(t, rows, err);
    if (!rc)
        rc = tui_gguf_put(kv, "tokenizer.ggml.model", TUI_GGUF_STRING,
                          json_string(t->bytes ? "llama" : "gpt2"), err);
    if (!rc)
        rc = tui_gguf_put(kv, "tokenizer.ggml.pre", TUI_GGUF_STRING, json_string(pre_of(t)),
                          err);
    if (!rc)
        rc = tui_gguf_put(kv, "tokenizer.ggml.tokens", TUI_GGUF_ARRAY,
                          json_pack("[iO]", (int)TUI_GGUF_STRING, t->text), err);
    if (!rc)
        rc = tui_gguf_put(kv, "tokenizer.ggml.token_type", TUI_GGUF_ARRAY,
                          json_pack("[iO]", (int)TUI_GGUF_I32, t->type), err);
    if (!rc)
        rc = t->bytes ? put_scores(kv, t, merges, err) : put_merges(kv, merges, err);
    if (!rc)
        rc = parse_file(&tokenizer, files, "tokenizer_config.json", err);
    if (!rc)
        rc = parse_file(&config, files, "config.json", err);
    if (!rc)
        rc = put_specials(kv, t, tokenizer, config, err);
    if (!rc)
        rc = put_template(kv, files, tokenizer, err);
    json_decref(tokenizer);
    json_decref(config);
    return rc;
}

int tui_gguf_tokens(json_t *kv, const struct tu_model *m, const json_t *files, bool *found,
                    struct tu_err *err)
{
    struct tokens t = {.n = 0};
    *found = false;
    int rc = parse_file(&t.root, files, "tokenizer.json", err);
    const json_t *model = json_object_get(t.root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (rc || !type || strcmp(type, "BPE") || m->vocab > 1 << 28) {
        json_decref(t.root);
        return rc;
    }
    t.bytes = json_is_true(json_object_get(model, "byte_fallback"));
    t.text = json_array();
    t.type = json_array();
    t.score = json_array();
    t.id = json_object();
    rc = put_all(kv, &t, files, m->vocab, err);
    *found = !rc;
    json_decref(t.root);
    json_decref(t.text);
    json_decref(t.type);
    json_decref(t.score);
    json_decref(t.id);
    return rc;
}
