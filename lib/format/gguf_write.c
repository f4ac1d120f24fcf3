/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.c: GGUF version 3 from tensors and META "gguf".
 *
 * Keys are written as META "gguf_order" lists them, those that it does not list behind them
 * in the order of their bytes. general.alignment is followed, 32 without
 * it; general.quantization_version is added where a tensor needs it. */
#include <math.h>
#include <stdlib.h>
#include "gguf.h"
#include "kit.h"
#include "rows.h"

#define VERSION 3u
#define QUANTIZATION_VERSION 2u /* of ggml's block formats */

static int put32(struct tu_buf *b, uint32_t v, struct tu_err *err)
{
    unsigned char p[4];
    tu_put32(p, v);
    return tu_buf_add(b, p, sizeof p, err);
}

static int put64(struct tu_buf *b, uint64_t v, struct tu_err *err)
{
    unsigned char p[8];
    tu_put64(p, v);
    return tu_buf_add(b, p, sizeof p, err);
}

static int put_text(struct tu_buf *b, const char *s, size_t n, struct tu_err *err)
{
    int code = put64(b, n, err);
    return code ? code : tu_buf_add(b, s, n, err);
}

/* values --------------------------------------------------------------------------------------- */

static int bad_value(const char *key, const char *expected, struct tu_err *err)
{
    return tu_fail(err, TU_EMETA, "META 'gguf': '%.80s': expected %s", key, expected);
}

/* The bytes of {"hex":"…"}; false if v is nothing of the kind. */
static bool from_hex(const json_t *v, struct tu_buf *out, int *code, struct tu_err *err)
{
    const json_t *h = json_object_get(v, "hex");
    size_t n = json_string_length(h);
    const char *s = json_string_value(h);
    if (!s || n % 2 || strspn(s, "0123456789abcdef") != n)
        return false;
    *code = 0;
    for (size_t i = 0; !*code && i < n; i += 2) {
        char two[3] = { s[i], s[i + 1], 0 };
        unsigned char byte = (unsigned char)strtoul(two, NULL, 16);
        *code = tu_buf_add(out, &byte, 1, err);
    }
    return true;
}

/* Range of the integer types; bits and sign. */
static unsigned bits_of(unsigned type)
{
    return 8u * tui_gguf_size[type];
}

static bool is_signed(unsigned type)
{
    return type == TUI_GGUF_I8 || type == TUI_GGUF_I16 || type == TUI_GGUF_I32 ||
           type == TUI_GGUF_I64;
}

/* An integer, given as a number or as decimal text, as its two's complement. */
static int integer(const char *key, unsigned type, const json_t *v, uint64_t *out,
                   struct tu_err *err)
{
    const char *text = json_string_value(v);
    int64_t i = json_integer_value(v);
    uint64_t u = (uint64_t)i;
    bool fits = json_is_integer(v) && (i >= 0 || is_signed(type));
    if (text && *text == '-') {
        fits = is_signed(type) && !tu_parse_i64(text, &i, NULL);
        u = (uint64_t)i;
    } else if (text) {
        fits = !tu_parse_u64(text, &u, NULL) && (!is_signed(type) || u <= INT64_MAX);
        i = (int64_t)u;
    }
    unsigned bits = bits_of(type);
    if (fits && bits < 64 && is_signed(type))
        fits = i >= -(INT64_C(1) << (bits - 1)) && i < INT64_C(1) << (bits - 1);
    else if (fits && bits < 64)
        fits = u >> bits == 0;
    *out = u;
    return fits ? 0 : bad_value(key, "an integer that fits its type", err);
}

static int put_real(struct tu_buf *b, const char *key, unsigned type, const json_t *v,
                    struct tu_err *err)
{
    unsigned char p[8];
    size_t n = tui_gguf_size[type], start = b->n;
    int code;
    if (from_hex(v, b, &code, err))
        return code ? code : b->n - start == n ? 0 : bad_value(key, "the hex of one float", err);
    if (!json_is_number(v))
        return bad_value(key, "a number", err);
    double d = json_number_value(v);
    float f = (float)d;
    if (type == TUI_GGUF_F32 && (!isfinite(f) || (double)f != d))
        return bad_value(key, "a number that is an f32", err);
    if (type == TUI_GGUF_F32)
        memcpy(p, &f, sizeof f);
    else
        memcpy(p, &d, sizeof d);
    return tu_buf_add(b, p, n, err);
}

static int put_scalar(struct tu_buf *b, const char *key, unsigned type, const json_t *v,
                      struct tu_err *err)
{
    unsigned char p[8];
    uint64_t u;
    int code;
    switch (type) {
    case TUI_GGUF_STRING: {
        struct tu_buf raw = { 0 };
        if (json_is_string(v))
            code = put_text(b, json_string_value(v), json_string_length(v), err);
        else if (!from_hex(v, &raw, &code, err))
            code = bad_value(key, "a text", err);
        else if (!code)
            code = put_text(b, raw.data, raw.n, err);
        tu_buf_release(&raw);
        return code;
    }
    case TUI_GGUF_F32:
    case TUI_GGUF_F64:
        return put_real(b, key, type, v, err);
    case TUI_GGUF_BOOL:
        if (!json_is_boolean(v))
            return bad_value(key, "true or false", err);
        return tu_buf_add(b, json_is_true(v) ? "\1" : "\0", 1, err);
    default:
        code = integer(key, type, v, &u, err);
        tu_put64(p, u);
        return code ? code : tu_buf_add(b, p, tui_gguf_size[type], err);
    }
}

static bool type_of(const json_t *v, unsigned *type)
{
    json_int_t i = json_integer_value(v);
    *type = (unsigned)i;
    return json_is_integer(v) && i >= 0 && i < TUI_GGUF_TYPES;
}

static int put_pair(struct tu_buf *b, const char *key, const json_t *pair, struct tu_err *err)
{
    const json_t *v = json_array_get(pair, 1);
    unsigned type, of = 0;
    size_t n = strlen(key);
    if (n > TUI_GGUF_KEY || json_array_size(pair) != 2 || !type_of(json_array_get(pair, 0), &type))
        return bad_value(key, "[type,value]", err);
    int code = put_text(b, key, n, err);
    if (!code)
        code = put32(b, type, err);
    if (code || type != TUI_GGUF_ARRAY)
        return code ? code : put_scalar(b, key, type, v, err);
    const json_t *list = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_array(list) || !type_of(json_array_get(v, 0), &of) ||
        of == TUI_GGUF_ARRAY)
        return bad_value(key, "[9,[type,[value,…]]]", err);
    code = put32(b, of, err);
    if (!code)
        code = put64(b, json_array_size(list), err);
    for (size_t i = 0; !code && i < json_array_size(list); i++)
        code = put_scalar(b, key, of, json_array_get(list, i), err);
    return code;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Takes the pairs out of meta that `order`, a list of keys or NULL, names. */
static int put_pairs(struct tu_buf *b, json_t *meta, const json_t *order, struct tu_err *err)
{
    int code = 0;
    for (size_t i = 0; !code && i < json_array_size(order); i++) {
        const char *listed = json_string_value(json_array_get(order, i));
        const json_t *pair = listed ? json_object_get(meta, listed) : NULL;
        if (pair)
            code = put_pair(b, listed, pair, err);
        if (pair)
            json_object_del(meta, listed);
    }
    if (code)
        return code;
    size_t n = 0;
    const char **key = tu_alloc(json_object_size(meta), sizeof *key, err);
    const char *k;
    json_t *v;
    if (!key)
        return TU_ENOMEM;
    json_object_foreach(meta, k, v)
        key[n++] = k;
    qsort(key, n, sizeof *key, by_text);
    for (size_t i = 0; !code && i < n; i++)
        code = put_pair(b, key[i], json_object_get(meta, key[i]), err);
    tu_free(key);
    return code;
}

/* tensors -------------------------------------------------------------------------------------- */

static int put_info(struct tu_buf *b, const struct tu_tensor *t, uint64_t offset,
                    struct tu_err *err)
{
    char shown[88];
    uint32_t type = 0;
    size_t n = strlen(t->name);
    const char *why = n > TUI_GGUF_NAME         ? "names have at most 63 bytes"
                      : t->rank > TUI_GGUF_DIMS ? "tensors have at most 4 dimensions"
                      : !t->bytes               ? "no tensor is empty"
                                                : NULL;
    if (why)
        return tu_fail(err, n > TUI_GGUF_NAME ? TU_ENAME : TU_ESIZE, "'%s': in GGUF %s",
                       tu_text_short(t->name, n, shown), why);
    if (!tui_gguf_type(t->dtype, &type))
        return tu_fail(err, TU_EBUG, "'%s': dtype not checked", shown);
    int code = put_text(b, t->name, n, err);
    if (!code)
        code = put32(b, t->rank, err);
    for (unsigned k = t->rank; !code && k-- > 0;)
        code = put64(b, t->dim[k], err);
    if (!code)
        code = put32(b, type, err);
    return code ? code : put64(b, offset, err);
}

/* Alignment that META asks for, and the keys that a file must have. */
static int complete(json_t *meta, const struct tu_save *what, uint64_t *align,
                    struct tu_err *err)
{
    static const char arch[] = "general.architecture", version[] = "general.quantization_version";
    const json_t *a = json_array_get(json_object_get(meta, "general.alignment"), 1);
    bool blocks = false;
    for (size_t i = 0; i < what->n; i++)
        blocks = blocks || what->tensor[i].dtype >= TU_DTYPE_GGML;
    /* Parts behind the first, and importance matrices, have none. */
    const char *type = json_string_value(json_array_get(json_object_get(meta, "general.type"), 1));
    const bool model = !(type && !strcmp(type, "imatrix")) &&
                       !json_integer_value(json_array_get(json_object_get(meta, "split.no"), 1));
    if (model && !json_object_get(meta, arch))
        return tu_fail(err, TU_EMETA, "no META 'gguf' gives general.architecture, which every GGUF "
                       "file has (a checkpoint's: shard-ckpt cat --to gguf DIR | quantize ...)");
    *align = a ? (uint64_t)json_integer_value(a) : TUI_GGUF_ALIGN;
    if (!tui_gguf_align_ok(*align) || *align > UINT32_MAX)
        return bad_value("general.alignment", "a power of two from 8", err);
    if (blocks && !json_object_get(meta, version) &&
        json_object_set_new(meta, version, json_pack("[ii]", (int)TUI_GGUF_U32,
                                                     (int)QUANTIZATION_VERSION)))
        return tu_fail(err, TU_ENOMEM, "out of memory");
    return 0;
}

/* Everything before the data; at[] gets offsets in the data, *data its length. */
static int make_head(struct tu_buf *b, const struct tu_save *what, uint64_t *at, uint64_t *data,
                     struct tu_err *err)
{
    json_t *meta = NULL, *order = NULL;
    uint64_t align = TUI_GGUF_ALIGN;
    int code = tui_meta_merge(&meta, what->meta, what->metas, "gguf", err);
    if (!code)
        code = tui_meta_merge(&order, what->meta, what->metas, "gguf_order", err);
    if (!code)
        code = complete(meta, what, &align, err);
    if (!code)
        code = tu_buf_add(b, "GGUF", 4, err);
    if (!code)
        code = put32(b, VERSION, err);
    if (!code)
        code = put64(b, what->n, err);
    if (!code)
        code = put64(b, json_object_size(meta), err);
    if (!code)
        code = put_pairs(b, meta, json_object_get(order, "keys"), err);
    for (size_t i = 0; !code && i < what->n; i++) {
        uint64_t padded;
        at[i] = *data;
        code = put_info(b, &what->tensor[i], *data, err);
        if (!code && (tu_align_over(what->tensor[i].bytes, align, &padded) ||
                      tu_add_over(*data, padded, data)))
            code = tu_fail(err, TU_ESIZE, "all tensors are over 2^64 bytes");
    }
    while (!code && b->n % align)
        code = tu_buf_add(b, "", 1, err);
    json_decref(meta);
    json_decref(order);
    return code;
}

int tui_gguf_save(struct tu_sink **out, const char *path, const struct tu_save *what,
                  const struct tu_job *job, struct tu_err *err)
{
    if (what->max_shard)
        return tui_gguf_save_split(out, path, what, job, err);
    struct tu_buf head = { 0 };
    uint64_t data = 0;
    uint64_t *at = tu_alloc(what->n, sizeof *at, err);
    if (!at)
        return TU_ENOMEM;
    int code = make_head(&head, what, at, &data, err);
    if (code) {
        tu_err_prefix(err, "%s", path);
        tu_free(at);
    } else {
        struct tui_flat *f = NULL;
        for (size_t i = 0; i < what->n; i++)
            at[i] += head.n;
        code = tui_flat_new(&f, &tui_format_gguf, path, what->n, &head, at, NULL, head.n + data,
                            job, err);
        if (!code)
            *out = &f->sink;
    }
    tu_buf_release(&head);
    return code;
}
