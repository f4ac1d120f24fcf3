/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_parse.c: the head of a GGUF file: key-values as JSON, tensor infos as tensors.
 *
 * Source: ggml-org/ggml docs/gguf.md; the limits are those of src/gguf.cpp. Every count
 * is compared with the bytes that are left before anything is sized by it. Not for the
 * data or for split files: see gguf.c. */
#include <math.h>
#include <stdlib.h>
#include "gguf.h"
#include "gguf_parse.h"
#include "kit.h"

#define WINDOW ((size_t)64 << 10)
#define COUNT_MAX (UINT64_C(1) << 30) /* bytes of a text, elements of an array */

struct cursor {
    struct tu_in *in;
    struct tu_err *err;
    uint64_t pos, size;
    uint64_t at;  /* of the window in the file */
    size_t have;  /* bytes in the window */
    unsigned char window[WINDOW];
};

const unsigned char tui_gguf_size[TUI_GGUF_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8 };

/* cursor --------------------------------------------------------------------------------------- */

static uint64_t left(const struct cursor *c)
{
    return c->size - c->pos;
}

static int truncated(struct cursor *c, const char *what)
{
    return tu_fail_at(c->err, TU_ETRUNC, c->size,
                      "%s: incomplete: %s runs past byte %llu, where the file ends",
                      tu_in_name(c->in), what, (unsigned long long)c->size);
}

/* The next n bytes (at most WINDOW); NULL with the error set. */
static const unsigned char *take(struct cursor *c, size_t n, const char *what)
{
    if (n > left(c)) {
        c->err->code = truncated(c, what);
        return NULL;
    }
    if (c->pos < c->at || c->pos + n > c->at + c->have) {
        size_t want = (size_t)tu_min(WINDOW, left(c));
        if (tu_in_pread(c->in, c->pos, c->window, want, c->err))
            return NULL;
        c->at = c->pos;
        c->have = want;
    }
    const unsigned char *p = c->window + (c->pos - c->at);
    c->pos += n;
    return p;
}

static int get32(struct cursor *c, uint32_t *out, const char *what)
{
    const unsigned char *p = take(c, 4, what);
    *out = p ? tu_le32(p) : 0;
    return p ? 0 : c->err->code;
}

static int get64(struct cursor *c, uint64_t *out, const char *what)
{
    const unsigned char *p = take(c, 8, what);
    *out = p ? tu_le64(p) : 0;
    return p ? 0 : c->err->code;
}

/* A text of at most max bytes, appended to out. */
static int get_text(struct cursor *c, struct tu_buf *out, uint64_t max, const char *what)
{
    uint64_t at = c->pos, n = 0;
    int code = get64(c, &n, what);
    if (code)
        return code;
    if (n > max)
        return tu_fail_at(c->err, TU_ELIMIT, at, "%s: byte %llu: %s of %llu bytes, at most %llu "
                          "are allowed", tu_in_name(c->in), (unsigned long long)at, what,
                          (unsigned long long)n, (unsigned long long)max);
    if (n > left(c))
        return truncated(c, what);
    char *p = tu_buf_room(out, (size_t)n, c->err);
    if (!p)
        return c->err->code;
    code = n ? tu_in_pread(c->in, c->pos, p, (size_t)n, c->err) : 0;
    out->n += (size_t)n;
    c->pos += n;
    return code;
}

/* A text that must do as a name; in the arena. */
static int get_name(struct cursor *c, const char **out, uint64_t max, struct tu_arena *arena,
                    const char *what)
{
    struct tu_buf b = { 0 };
    uint64_t at = c->pos;
    int code = get_text(c, &b, max, what);
    size_t bad = code || !b.n ? 0 : tu_name_check(b.data, b.n);
    if (!code && (!b.n || bad < b.n))
        code = tu_fail_at(c->err, TU_ENAME, at + 8 + bad, "%s: byte %llu: %s %s",
                          tu_in_name(c->in), (unsigned long long)(at + 8 + bad), what,
                          b.n ? "holds a control byte or invalid UTF-8" : "is empty");
    if (!code) {
        *out = tu_arena_text(arena, b.data, b.n, c->err);
        code = *out ? 0 : TU_ENOMEM;
    }
    tu_buf_release(&b);
    return code;
}

/* values as JSON ------------------------------------------------------------------------------- */

static int add_hex(struct tu_buf *out, const void *p, size_t n, struct tu_err *err)
{
    const unsigned char *b = p;
    int code = tu_buf_text(out, "{\"hex\":\"", err);
    for (size_t i = 0; !code && i < n; i++)
        code = tu_buf_printf(out, err, "%02x", b[i]);
    return code ? code : tu_buf_text(out, "\"}", err);
}

/* Integers beyond 2^53 are decimal texts (the stream's rule for metadata). */
static int add_integer(struct tu_buf *out, bool negative, uint64_t size, struct tu_err *err)
{
    const char *quote = size > UINT64_C(1) << 53 ? "\"" : "";
    return tu_buf_printf(out, err, "%s%s%llu%s", quote, negative ? "-" : "",
                         (unsigned long long)size, quote);
}

static int add_signed(struct tu_buf *out, int64_t v, struct tu_err *err)
{
    return add_integer(out, v < 0, v < 0 ? -(uint64_t)v : (uint64_t)v, err);
}

/* A float's value, or its bytes as stored where JSON has no number for it. */
static int add_real(struct tu_buf *out, double v, const void *p, size_t n, struct tu_err *err)
{
    char text[32];
    if (!isfinite(v))
        return add_hex(out, p, n, err);
    tu_json_real(v, text);
    return tu_buf_text(out, text, err);
}

static int add_scalar(struct cursor *c, struct tu_buf *out, unsigned type)
{
    const unsigned char *p = take(c, tui_gguf_size[type], "a value");
    float f;
    double d;
    if (!p)
        return c->err->code;
    switch (type) {
    case TUI_GGUF_U8:
        return add_integer(out, false, *p, c->err);
    case TUI_GGUF_I8:
        return add_signed(out, (int8_t)*p, c->err);
    case TUI_GGUF_U16:
        return add_integer(out, false, tu_le16(p), c->err);
    case TUI_GGUF_I16:
        return add_signed(out, (int16_t)tu_le16(p), c->err);
    case TUI_GGUF_U32:
        return add_integer(out, false, tu_le32(p), c->err);
    case TUI_GGUF_I32:
        return add_signed(out, (int32_t)tu_le32(p), c->err);
    case TUI_GGUF_U64:
        return add_integer(out, false, tu_le64(p), c->err);
    case TUI_GGUF_I64:
        return add_signed(out, (int64_t)tu_le64(p), c->err);
    case TUI_GGUF_F32:
        memcpy(&f, p, sizeof f);
        return add_real(out, f, p, sizeof f, c->err);
    case TUI_GGUF_F64:
        memcpy(&d, p, sizeof d);
        return add_real(out, d, p, sizeof d, c->err);
    default:
        if (*p > 1)
            return tu_fail_at(c->err, TU_EFORMAT, c->pos - 1,
                              "%s: byte %llu: a bool is %u, expected 0 or 1", tu_in_name(c->in),
                              (unsigned long long)c->pos - 1, *p);
        return tu_buf_text(out, *p ? "true" : "false", c->err);
    }
}

static int add_text(struct cursor *c, struct tu_buf *out)
{
    struct tu_buf b = { 0 };
    int code = get_text(c, &b, COUNT_MAX, "a text");
    bool text = !code && tu_json_holds(b.data, b.n);
    if (!code)
        code = text ? tu_json_string(out, b.data, b.n, c->err)
                    : add_hex(out, b.data, b.n, c->err);
    tu_buf_release(&b);
    return code;
}

static int bad_type(struct cursor *c, uint64_t at, uint32_t type)
{
    if (type == TUI_GGUF_ARRAY)
        return tu_fail_at(c->err, TU_EUNSUP, at, "%s: byte %llu: an array of arrays, which no "
                          "reader takes", tu_in_name(c->in), (unsigned long long)at);
    return tu_fail_at(c->err, TU_EFORMAT, at, "%s: byte %llu: value type %u, expected 0 to 12",
                      tu_in_name(c->in), (unsigned long long)at, type);
}

static int add_array(struct cursor *c, struct tu_buf *out)
{
    uint64_t at = c->pos, n = 0;
    uint32_t type = 0;
    int code = get32(c, &type, "an array");
    if (!code)
        code = get64(c, &n, "an array");
    if (code)
        return code;
    if (type >= TUI_GGUF_TYPES || type == TUI_GGUF_ARRAY)
        return bad_type(c, at, type);
    if (n > COUNT_MAX)
        return tu_fail_at(c->err, TU_ELIMIT, at + 4, "%s: byte %llu: an array of %llu elements, at "
                          "most 2^30 are allowed", tu_in_name(c->in), (unsigned long long)at + 4,
                          (unsigned long long)n);
    if (n > left(c) / tui_gguf_size[type])
        return truncated(c, "an array");
    code = tu_buf_printf(out, c->err, "[%u,[", type);
    for (uint64_t i = 0; !code && i < n; i++) {
        if (i)
            code = tu_buf_text(out, ",", c->err);
        if (!code)
            code = type == TUI_GGUF_STRING ? add_text(c, out) : add_scalar(c, out, type);
    }
    return code ? code : tu_buf_text(out, "]]", c->err);
}

/* "[type,value]" of the value at the cursor. */
static int add_value(struct cursor *c, struct tu_buf *out)
{
    uint64_t at = c->pos;
    uint32_t type = 0;
    int code = get32(c, &type, "a key-value pair");
    if (!code && type >= TUI_GGUF_TYPES)
        code = bad_type(c, at, type);
    if (!code)
        code = tu_buf_printf(out, c->err, "[%u,", type);
    if (!code)
        code = type == TUI_GGUF_ARRAY    ? add_array(c, out)
               : type == TUI_GGUF_STRING ? add_text(c, out)
                                         : add_scalar(c, out, type);
    return code ? code : tu_buf_text(out, "]", c->err);
}

/* head ----------------------------------------------------------------------------------------- */

/* Keys that say how to read the file. Integers of any width, as writers differ. */
static int special(struct cursor *c, struct tui_gguf_file *f, const struct tui_gguf_kv *kv,
                   uint64_t at)
{
    static const char align[] = "general.alignment";
    uint64_t *to = !strcmp(kv->key, align)                   ? &f->align
                   : !strcmp(kv->key, "split.no")            ? &f->split_no
                   : !strcmp(kv->key, "split.count")         ? &f->split_count
                   : !strcmp(kv->key, "split.tensors.count") ? &f->split_tensors
                                                             : NULL;
    unsigned type = (unsigned)strtoul(kv->json + 1, NULL, 10);
    if (!strcmp(kv->key, "general.architecture"))
        f->architecture = type;
    if (!to)
        return 0;
    const char *value = strchr(kv->json, ',') + 1;
    bool integer = type <= TUI_GGUF_I32 || type == TUI_GGUF_U64 || type == TUI_GGUF_I64;
    if (!integer || *value == '-' || *value == '"' || (to == &f->align && type != TUI_GGUF_U32))
        return tu_fail_at(c->err, TU_EFORMAT, at, "%s: byte %llu: %s is %.40s, expected %s",
                          tu_in_name(c->in), (unsigned long long)at, kv->key, kv->json,
                          to == &f->align ? "a u32" : "a count");
    *to = strtoull(value, NULL, 10);
    if (to == &f->align && !tui_gguf_align_ok(f->align))
        return tu_fail_at(c->err, TU_EFORMAT, at, "%s: byte %llu: general.alignment is %llu, "
                          "expected a power of two from 8", tu_in_name(c->in),
                          (unsigned long long)at, (unsigned long long)f->align);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct tui_gguf_kv *)a)->key, ((const struct tui_gguf_kv *)b)->key);
}

static int parse_kvs(struct cursor *c, struct tui_gguf_file *f, uint64_t count)
{
    struct tu_buf value;
    tu_buf_init(&value, TUI_META_MAX);
    int code = 0;
    for (uint64_t i = 0; !code && i < count; i++) {
        struct tui_gguf_kv kv;
        uint64_t at = c->pos;
        tu_buf_reset(&value);
        code = get_name(c, &kv.key, TUI_GGUF_KEY, f->arena, "a key");
        if (!code && (code = add_value(c, &value)) == TU_ELIMIT && value.n > TUI_META_MAX / 2)
            code = tu_fail_at(c->err, TU_ELIMIT, at, "%s: byte %llu: the value of '%.80s' is over "
                              "the 16 MiB of a META record", tu_in_name(c->in),
                              (unsigned long long)at, kv.key);
        if (!code) {
            kv.json = tu_arena_text(f->arena, value.data, value.n, c->err);
            kv.n = value.n;
            code = kv.json ? TU_GROW(&f->kv, &f->kv_cap, f->kvs, c->err) : TU_ENOMEM;
        }
        if (!code)
            f->kv[f->kvs++] = kv;
        if (!code)
            code = special(c, f, &kv, at);
    }
    tu_buf_release(&value);
    if (!code) {
        f->order = tu_arena_alloc(f->arena, f->kvs, sizeof *f->order, c->err);
        code = f->order ? 0 : TU_ENOMEM;
    }
    for (size_t i = 0; !code && i < f->kvs; i++)
        f->order[i] = f->kv[i].key;
    if (!code && f->kvs)
        qsort(f->kv, f->kvs, sizeof *f->kv, by_key);
    for (size_t i = 1; !code && i < f->kvs; i++) {
        if (!by_key(&f->kv[i - 1], &f->kv[i]))
            code = tu_fail(c->err, TU_EFORMAT, "%s: key '%.80s' stands twice", tu_in_name(c->in),
                           f->kv[i].key);
    }
    return code;
}

static int parse_dims(struct cursor *c, struct tu_tensor *t, struct tu_arena *arena,
                      const char *shown)
{
    uint64_t at = c->pos;
    uint32_t rank = 0;
    int code = get32(c, &rank, "a tensor's description");
    if (code)
        return code;
    if (rank > TUI_GGUF_DIMS)
        return tu_fail_at(c->err, TU_ELIMIT, at, "%s: byte %llu: '%s' has %u dimensions, at most 4 "
                          "are allowed", tu_in_name(c->in), (unsigned long long)at, shown, rank);
    uint64_t *dim = tu_arena_alloc(arena, rank, sizeof *dim, c->err);
    if (!dim)
        return TU_ENOMEM;
    for (unsigned k = rank; !code && k-- > 0;)
        code = get64(c, &dim[k], "a tensor's dimensions");
    t->rank = rank;
    t->dim = dim;
    return code;
}

/* One tensor info; *offset is what it says of its data. */
static int parse_info(struct cursor *c, struct tui_gguf_file *f, struct tu_tensor *t,
                      uint64_t *offset)
{
    uint64_t at = c->pos;
    uint32_t type = 0;
    char shown[88], dims[16];
    *t = (struct tu_tensor){ 0 };
    int code = get_name(c, &t->name, TUI_GGUF_NAME, f->arena, "a tensor's name");
    if (code)
        return code;
    tu_text_short(t->name, strlen(t->name), shown);
    code = parse_dims(c, t, f->arena, shown);
    if (!code)
        code = get32(c, &type, "a tensor's description");
    if (!code)
        code = get64(c, offset, "a tensor's description");
    if (code)
        return code;
    t->dtype = tui_gguf_dtype(type);
    if (t->dtype == TU_DTYPE_NONE)
        return tu_fail_at(c->err, TU_EDTYPE, at, "%s: byte %llu: '%s' has ggml type %u, which is "
                          "not known", tu_in_name(c->in), (unsigned long long)at, shown, type);
    code = tu_tensor_bytes(t->dtype, t->dim, t->rank, &t->bytes, c->err);
    snprintf(dims, sizeof dims, "%llu", (unsigned long long)at);
    if (code)
        tu_err_prefix(c->err, "%s: byte %s: '%s'", tu_in_name(c->in), dims, shown);
    return code;
}

static int parse_infos(struct cursor *c, struct tui_gguf_file *f, uint64_t count)
{
    uint64_t sum = 0; /* of the sizes so far, each padded */
    int code = 0;
    for (uint64_t i = 0; !code && i < count; i++) {
        uint64_t at = c->pos, offset = 0;
        code = TU_GROW(&f->tensor, &f->cap, f->n, c->err);
        if (!code)
            code = TU_GROW(&f->at, &f->at_cap, f->n, c->err);
        if (!code)
            code = parse_info(c, f, &f->tensor[f->n], &offset);
        if (code)
            return code;
        const struct tu_tensor *t = &f->tensor[f->n];
        char shown[88];
        tu_text_short(t->name, strlen(t->name), shown);
        if (offset != sum)
            return tu_fail_at(c->err, TU_EFORMAT, at, "%s: byte %llu: '%s' has its data at %llu, "
                              "expected %llu", tu_in_name(c->in), (unsigned long long)at, shown,
                              (unsigned long long)offset, (unsigned long long)sum);
        f->at[f->n++] = offset;
        uint64_t padded;
        if (tu_align_over(t->bytes, f->align, &padded) || tu_add_over(sum, padded, &sum))
            return tu_fail_at(c->err, TU_ESIZE, at, "%s: byte %llu: '%s' makes the data over 2^64 "
                              "bytes", tu_in_name(c->in), (unsigned long long)at, shown);
    }
    return code;
}

/* Offsets in the data become offsets in the file, which must reach that far. */
static int place(struct cursor *c, struct tui_gguf_file *f)
{
    uint64_t data = tu_align(c->pos, f->align), end = data;
    for (size_t i = 0; i < f->n; i++) {
        if (tu_add_over(f->at[i], data, &f->at[i]) ||
            tu_add_over(f->at[i], f->tensor[i].bytes, &end) || end > c->size) {
            char shown[88];
            return tu_fail_at(c->err, TU_ETRUNC, c->size, "%s: incomplete: '%s' ends at byte %llu, "
                              "%llu bytes found", tu_in_name(c->in),
                              tu_text_short(f->tensor[i].name, strlen(f->tensor[i].name), shown),
                              (unsigned long long)end, (unsigned long long)c->size);
        }
    }
    struct tui_names names;
    int code = tui_names_make(&names, f->tensor, f->n, c->err);
    const char *twin = code ? NULL : tui_names_twin(&names);
    if (twin)
        code = tu_fail(c->err, TU_EFORMAT, "%s: two tensors are named '%s'", tu_in_name(c->in),
                       twin);
    tui_names_release(&names);
    return code;
}

static int parse_head(struct cursor *c, struct tui_gguf_file *f)
{
    const char *path = tu_in_name(c->in);
    uint32_t version = 0;
    uint64_t tensors = 0, kvs = 0;
    const unsigned char *magic = take(c, 4, "the magic");
    if (!magic)
        return c->err->code;
    if (memcmp(magic, "GGUF", 4))
        return tu_fail_at(c->err, TU_EMAGIC, 0, "%s: its first 4 bytes are not GGUF", path);
    int code = get32(c, &version, "the version");
    if (!code && !(version & 0xffff))
        code = tu_fail_at(c->err, TU_EUNSUP, 4, "%s: a big-endian file (version field %08x)",
                          path, version);
    if (!code && version != 2 && version != 3)
        code = tu_fail_at(c->err, TU_EVERSION, 4, "%s: version %u, expected 2 or 3", path,
                          version);
    if (!code)
        code = get64(c, &tensors, "the header");
    if (!code)
        code = get64(c, &kvs, "the header");
    /* The least that each takes: a name of one byte and what follows it. */
    if (!code && (tensors > left(c) / 25 || kvs > left(c) / 14))
        code = tu_fail_at(c->err, TU_ETRUNC, 8, "%s: %llu tensors and %llu keys cannot be in %llu "
                          "bytes", path, (unsigned long long)tensors, (unsigned long long)kvs,
                          (unsigned long long)c->size);
    if (!code)
        code = parse_kvs(c, f, kvs);
    if (!code)
        code = parse_infos(c, f, tensors);
    return code ? code : place(c, f);
}

int tui_gguf_parse(struct tui_gguf_file *f, struct tu_in *in, struct tu_arena *arena,
                   struct tu_err *err)
{
    struct tu_err own;
    *f = (struct tui_gguf_file){ .arena = arena, .align = TUI_GGUF_ALIGN,
                                  .architecture = TUI_GGUF_TYPES };
    struct cursor *c = tu_calloc(1, sizeof *c, err);
    if (!c)
        return TU_ENOMEM;
    c->in = in;
    c->err = err ? err : &own;
    c->size = tu_in_size(in);
    int code = parse_head(c, f);
    tu_free(c);
    return code;
}

void tui_gguf_release(struct tui_gguf_file *f)
{
    tu_free(f->kv);
    tu_free(f->tensor);
    tu_free(f->at);
}
