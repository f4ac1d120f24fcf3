/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: GGUF files and sets of split files as one source; the row of the format.
 *
 * Key-values become META "gguf", {"key":[type,value]}, so that integer widths survive:
 * one record, or one per key where all would pass 16 MiB. Metadata is sorted by key; what
 * the file's order was says META "gguf_order", {"keys":["key",…]}, where it was another
 * and one record holds all. Dimensions are turned to row-major order. Nothing is permuted
 * or dequantised here. */
#include <stdio.h>
#include <stdlib.h>
#include "gguf.h"
#include "gguf_parse.h"
#include "kit.h"
#include "rows.h"

#define SPLIT_MAX 99999u /* what "-%05u-of-%05u.gguf" can name */

/* ggml's plain types; its block formats are TU_DTYPE_GGML + type. */
static const struct {
    uint16_t dtype, type;
} plain[] = {
    { TU_F32, 0 }, { TU_F16, 1 }, { TU_I8, 24 }, { TU_I16, 25 },
    { TU_I32, 26 }, { TU_I64, 27 }, { TU_F64, 28 }, { TU_BF16, 30 },
};

uint32_t tui_gguf_dtype(uint32_t ggml_type)
{
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (plain[i].type == ggml_type)
            return plain[i].dtype;
    }
    if (ggml_type >= TU_DTYPE_PRIVATE - TU_DTYPE_GGML || !tu_dtype_find(TU_DTYPE_GGML + ggml_type))
        return TU_DTYPE_NONE;
    return TU_DTYPE_GGML + ggml_type;
}

bool tui_gguf_type(uint32_t dtype, uint32_t *ggml_type)
{
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (plain[i].dtype == dtype) {
            *ggml_type = plain[i].type;
            return true;
        }
    }
    *ggml_type = dtype - TU_DTYPE_GGML;
    return dtype >= TU_DTYPE_GGML && dtype < TU_DTYPE_PRIVATE && tu_dtype_find(dtype);
}

bool tui_gguf_align_ok(uint64_t align)
{
    return align >= 8 && !(align & (align - 1));
}

struct gguf_source {
    struct tu_source base;
    size_t more; /* files beside the first, which is the front's */
    struct tu_in **in;
};

static int read_gguf(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                     struct tu_err *err)
{
    return tu_in_pread(s->extent[i].in, s->extent[i].off + off, buf, n, err);
}

static void close_gguf(struct tu_source *s)
{
    struct gguf_source *g = (struct gguf_source *)s;
    for (size_t i = 0; i < g->more; i++)
        tu_in_close(g->in[i]);
    tu_free(g->in);
    tui_source_free(s);
}

static const struct tu_source_ops source_ops = { read_gguf, NULL, NULL, close_gguf };

static bool sniff_gguf(const char *path, const unsigned char *head, size_t n)
{
    (void)path;
    return n >= 4 && !memcmp(head, "GGUF", 4);
}

/* META records --------------------------------------------------------------------------------- */

static int add_pair(struct tu_buf *b, const struct tui_gguf_kv *kv, struct tu_err *err)
{
    int code = tu_buf_text(b, b->n ? "," : "{", err);
    if (!code)
        code = tu_json_string(b, kv->key, strlen(kv->key), err);
    if (!code)
        code = tu_buf_text(b, ":", err);
    return code ? code : tu_buf_add(b, kv->json, kv->n, err);
}

static int end_meta(struct tu_source *s, struct tu_buf *b, struct tu_err *err)
{
    int code = b->n ? tu_buf_text(b, "}", err) : 0;
    if (!code && b->n)
        code = tui_source_meta(s, "gguf", b->data, b->n, err);
    tu_buf_reset(b);
    return code;
}

/* The keys that describe a split set are void once it is one source. */
static bool is_split(const char *key)
{
    return !strncmp(key, "split.", 6);
}

static int add_order(struct tu_source *s, const struct tui_gguf_file *f, struct tu_err *err)
{
    bool sorted = true;
    for (size_t i = 0; sorted && i < f->kvs; i++)
        sorted = f->order[i] == f->kv[i].key;
    if (sorted)
        return 0;
    struct tu_buf b = { 0 };
    int code = tu_buf_text(&b, "{\"keys\":[", err);
    const char *comma = "";
    for (size_t i = 0; !code && i < f->kvs; i++) {
        if (is_split(f->order[i]))
            continue;
        code = tu_buf_text(&b, comma, err);
        if (!code)
            code = tu_json_string(&b, f->order[i], strlen(f->order[i]), err);
        comma = ",";
    }
    if (!code)
        code = tu_buf_text(&b, "]}", err);
    if (!code)
        code = tui_source_meta(s, "gguf_order", b.data, b.n, err);
    tu_buf_release(&b);
    return code;
}

static int add_metas(struct tu_source *s, const struct tui_gguf_file *f, struct tu_err *err)
{
    struct tu_buf b;
    tu_buf_init(&b, TUI_META_MAX);
    uint64_t total = 2;
    int code = 0;
    for (size_t i = 0; i < f->kvs; i++)
        total += 6 * (uint64_t)strlen(f->kv[i].key) + f->kv[i].n + 4;
    for (size_t i = 0; !code && i < f->kvs; i++) {
        if (is_split(f->kv[i].key))
            continue;
        code = add_pair(&b, &f->kv[i], err);
        if (!code && total > TUI_META_MAX)
            code = end_meta(s, &b, err);
    }
    if (!code)
        code = end_meta(s, &b, err);
    if (!code && total <= TUI_META_MAX)
        code = add_order(s, f, err);
    if (code == TU_ELIMIT)
        code = tu_fail(err, code, "%s: a key and its value are over the 16 MiB of a META record",
                       s->path);
    tu_buf_release(&b);
    return code;
}

/* files ---------------------------------------------------------------------------------------- */

static int append(struct tu_source *s, struct tu_in *in, const struct tui_gguf_file *f,
                  struct tu_err *err)
{
    size_t n = s->n + f->n;
    struct tu_tensor *t = tu_arena_alloc(s->arena, n, sizeof *t, err);
    struct tu_extent *x = t ? tu_arena_alloc(s->arena, n, sizeof *x, err) : NULL;
    if (!x)
        return TU_ENOMEM;
    if (s->n) {
        memcpy(t, s->tensor, s->n * sizeof *t);
        memcpy(x, s->extent, s->n * sizeof *x);
    }
    for (size_t i = 0; i < f->n; i++) {
        t[s->n + i] = f->tensor[i];
        x[s->n + i] = (struct tu_extent){ in, f->at[i] };
        s->referenced += f->tensor[i].bytes;
    }
    s->n = n;
    s->tensor = t;
    s->extent = x;
    s->stored += tu_in_size(in);
    return 0;
}

/* "PREFIX-00001-of-00003.gguf" without its last part. */
static int split_prefix(char **out, const char *path, unsigned count, struct tu_err *err)
{
    char end[32];
    snprintf(end, sizeof end, "-00001-of-%05u.gguf", count);
    size_t n = strlen(path), tail = strlen(end);
    if (n <= tail || strcmp(path + n - tail, end))
        return tu_fail(err, TU_EINCOMPLETE, "%s: the first of %u split files, but not named *%s",
                       path, count, end);
    *out = tu_strdup(path, err);
    if (!*out)
        return TU_ENOMEM;
    (*out)[n - tail] = 0;
    return 0;
}

static int open_part(struct gguf_source *g, const char *path, const struct tui_gguf_file *first,
                     size_t no, struct tu_err *err)
{
    struct tu_source *s = &g->base;
    struct tui_gguf_file f = { 0 };
    struct tu_in *in = NULL;
    int code = tu_in_open(&in, path, err);
    if (code)
        return code;
    g->in[g->more++] = in;
    code = tui_gguf_parse(&f, in, s->arena, err);
    if (!code && (f.split_no != no || f.split_count != first->split_count))
        code = tu_fail(err, TU_EINCOMPLETE, "%s: says it is split %llu of %llu, expected %zu of "
                       "%llu", path, (unsigned long long)f.split_no + 1,
                       (unsigned long long)f.split_count, no + 1,
                       (unsigned long long)first->split_count);
    if (!code)
        code = append(s, in, &f, err);
    tui_gguf_release(&f);
    return code;
}

static int open_splits(struct gguf_source *g, const struct tui_gguf_file *first,
                       struct tu_err *err)
{
    struct tu_source *s = &g->base;
    if (first->split_no)
        return tu_fail(err, TU_EINCOMPLETE, "%s: split %llu of %llu: open the first",
                       s->path, (unsigned long long)first->split_no + 1,
                       (unsigned long long)first->split_count);
    if (first->split_count > SPLIT_MAX)
        return tu_fail(err, TU_ELIMIT, "%s: split.count is %llu, at most %u can be named", s->path,
                       (unsigned long long)first->split_count, SPLIT_MAX);
    unsigned count = (unsigned)first->split_count;
    char *prefix = NULL;
    int code = split_prefix(&prefix, s->path, count, err);
    if (code)
        return code;
    size_t len = strlen(prefix) + 32;
    char *path = tu_alloc(len, 1, err);
    g->in = path ? tu_calloc(count, sizeof *g->in, err) : NULL;
    if (!g->in)
        code = TU_ENOMEM;
    for (unsigned no = 1; !code && no < count; no++) {
        snprintf(path, len, "%s-%05u-of-%05u.gguf", prefix, no + 1, count);
        code = open_part(g, path, first, no, err);
    }
    if (!code && first->split_tensors && first->split_tensors != s->n)
        code = tu_fail(err, TU_EINCOMPLETE, "%s: %zu tensors in %u files, split.tensors.count is "
                       "%llu", s->path, s->n, count, (unsigned long long)first->split_tensors);
    tu_free(path);
    tu_free(prefix);
    return code;
}

static int open_gguf(struct tu_source **out, const char *path, const struct tu_open *how,
                     const struct tu_job *job, struct tu_err *err)
{
    struct tui_gguf_file f = { 0 };
    struct gguf_source *g = tui_source_new(sizeof *g, &tui_format_gguf, &source_ops, path, err);
    if (!g)
        return TU_ENOMEM;
    int code = tui_gguf_parse(&f, how->in, g->base.arena, err);
    if (!code)
        code = append(&g->base, how->in, &f, err);
    if (!code && f.split_count > 1)
        code = open_splits(g, &f, err);
    if (!code)
        code = add_metas(&g->base, &f, err);
    if (!code && f.architecture == TUI_GGUF_TYPES)
        tu_job_warn(job, "%s: has no general.architecture", path);
    else if (!code && f.architecture != TUI_GGUF_STRING)
        tu_job_warn(job, "%s: general.architecture has value type %u, expected %d, a text", path,
                    f.architecture, TUI_GGUF_STRING);
    tui_gguf_release(&f);
    if (code)
        close_gguf(&g->base);
    else
        *out = &g->base;
    return code;
}

static bool dtype_ok(uint32_t dtype)
{
    uint32_t type;
    return tui_gguf_type(dtype, &type);
}

const struct tu_format tui_format_gguf = {
    .name = "gguf",
    .help = "GGUF file of llama.cpp, split files included",
    .suffix = ".gguf",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE | TU_FORMAT_UNIQUE | TU_FORMAT_NAMED,
    .sniff = sniff_gguf,
    .open = open_gguf,
    .save = tui_gguf_save,
    .dtype_ok = dtype_ok,
};
