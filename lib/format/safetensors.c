/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c: the format of huggingface/safetensors, read and written.
 *
 * File: u64 N, N bytes of JSON, data. Reading applies the rules of the reference library
 * (safetensors/src/tensor.rs); writing gives the bytes that it would write, or, from a
 * kept header, the original bytes. Not for folders of such files: see hf.c. */
#include <stdlib.h>
#include "kit.h"
#include "rows.h"
#include "st_head.h"

/* reading -------------------------------------------------------------------------------------- */

static int read_st(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                   struct tu_err *err)
{
    return tu_in_pread(s->extent[i].in, s->extent[i].off + off, buf, n, err);
}

static const struct tu_source_ops source_ops = { read_st, NULL, NULL, tui_source_free };

static bool sniff_st(const char *path, const unsigned char *head, size_t n)
{
    (void)path;
    return n >= 10 && tu_le64(head) <= TUI_ST_HEAD_MAX && head[8] == '{' &&
           (head[9] == '"' || head[9] == '}' || strchr(" \t\r\n", head[9]));
}

/* The header's text; grows only as far as the file reaches. */
static int load_header(char **text, size_t *n, struct tu_in *in, struct tu_err *err)
{
    const char *path = tu_in_name(in);
    unsigned long long size = tu_in_size(in);
    unsigned char prefix[8];
    if (size < sizeof prefix)
        return tu_fail_at(err, TU_ETRUNC, size,
                          "%s: too small: %llu bytes found, at least 8 expected", path, size);
    int code = tu_in_pread(in, 0, prefix, sizeof prefix, err);
    if (code)
        return code;
    unsigned long long len = tu_le64(prefix);
    if (len > TUI_ST_HEAD_MAX)
        return tu_fail_at(err, TU_ELIMIT, 0,
                          "%s: header too large: %llu bytes, at most 100000000 allowed", path,
                          len);
    if (len > size - sizeof prefix)
        return tu_fail_at(err, TU_ETRUNC, size,
                          "%s: invalid header length: %llu bytes expected, %llu found", path,
                          len + sizeof prefix, size);
    *text = tu_alloc((size_t)len + 1, 1, err);
    if (!*text)
        return TU_ENOMEM;
    *n = (size_t)len;
    return *n ? tu_in_pread(in, sizeof prefix, *text, *n, err) : 0;
}

static int describe(struct tu_source *s, struct tu_in *in, const struct tui_st_head *h,
                    uint64_t data, struct tu_err *err)
{
    struct tu_tensor *t = tu_arena_alloc(s->arena, h->n, sizeof *t, err);
    struct tu_extent *x = t ? tu_arena_alloc(s->arena, h->n, sizeof *x, err) : NULL;
    if (!x)
        return TU_ENOMEM;
    for (size_t i = 0; i < h->n; i++) {
        const struct tui_st_entry *e = &h->entry[i];
        t[i] = (struct tu_tensor){ .name = e->name, .dtype = e->dtype, .rank = e->rank,
                                   .dim = e->dim };
        uint64_t elements;
        int code = tu_elements(e->dim, e->rank, &elements, err);
        if (!code)
            code = tu_tensor_bytes(e->dtype, e->dim, e->rank, &t[i].bytes, err);
        if (code) {
            char shown[88];
            tu_err_prefix(err, "%s: '%s'", s->path,
                          tu_text_short(e->name, strlen(e->name), shown));
            return code;
        }
        x[i] = (struct tu_extent){ in, data + e->begin };
    }
    s->n = h->n;
    s->tensor = t;
    s->extent = x;
    return 0;
}

static int keep_meta(struct tu_source *s, const struct tui_st_head *h, const char *text,
                     size_t n, bool keep, struct tu_err *err)
{
    if (!keep && !h->metadata)
        return 0;
    struct tu_buf json;
    tu_buf_init(&json, TUI_META_MAX);
    int code = tu_buf_text(&json, "{", err);
    if (!code && keep) {
        code = tu_buf_text(&json, "\"header\":", err);
        if (!code)
            code = tu_json_string(&json, text, n, err);
    }
    if (!code && h->metadata) {
        code = tu_buf_text(&json, keep ? ",\"metadata\":" : "\"metadata\":", err);
        if (!code)
            code = tu_buf_add(&json, h->metadata, h->metadata_len, err);
    }
    if (!code)
        code = tu_buf_text(&json, "}", err);
    if (!code)
        code = tui_source_meta(s, "safetensors", json.data, json.n, err);
    else if (code == TU_ELIMIT)
        code = tu_fail(err, TU_ELIMIT, "%s: %s is over the 16 MiB of a META record", s->path,
                       keep ? "the header to keep" : "__metadata__");
    tu_buf_release(&json);
    return code;
}

static int open_st(struct tu_source **out, const char *path, const struct tu_open *how,
                   const struct tu_job *job, struct tu_err *err)
{
    (void)job;
    struct tui_st_head h = { 0 };
    char *text = NULL;
    size_t n = 0;
    struct tu_source *s =
        tui_source_new(sizeof *s, &tui_format_safetensors, &source_ops, path, err);
    if (!s)
        return TU_ENOMEM;
    int code = load_header(&text, &n, how->in, err);
    if (!code && (code = tui_st_parse(&h, text, n, s->arena, err)))
        tu_err_prefix(err, "%s", path);
    if (code)
        goto out;
    uint64_t data = 8 + n;
    unsigned long long want = data + h.data, size = tu_in_size(how->in);
    if (h.data > UINT64_MAX - data || want > size)
        code = tu_fail_at(err, TU_ETRUNC, size,
                          "%s: incomplete: the header describes %llu bytes, %llu found", path,
                          want, size);
    else if (want < size)
        code = tu_fail_at(err, TU_EGARBAGE, want,
                          "%s: too long: the header describes %llu bytes, %llu found", path,
                          want, size);
    if (!code)
        code = describe(s, how->in, &h, data, err);
    if (!code)
        code = keep_meta(s, &h, text, n, how->keep_header, err);
    s->referenced = h.data;
    s->stored = size;
out:
    tu_free(h.entry);
    tu_free(text);
    if (code)
        tui_source_free(s);
    else
        *out = s;
    return code;
}

/* writing -------------------------------------------------------------------------------------- */

/* The official order of dtypes, first written first. */
static const uint16_t dtype_order[] = {
    TU_U64, TU_I64, TU_F64, TU_C64, TU_F32, TU_U32, TU_I32, TU_BF16, TU_F16, TU_U16, TU_I16,
    TU_F8_E5M2FNUZ, TU_F8_E4M3FNUZ, TU_F8_E8M0, TU_F8_E4M3FN, TU_F8_E5M2, TU_I8, TU_U8,
    TU_F6_E3M2, TU_F6_E2M3, TU_F4_E2M1, TU_BOOL,
};

static bool dtype_ok(uint32_t dtype)
{
    const struct tu_dtype *d = tu_dtype_find(dtype);
    return d && d->safetensors;
}

struct place {
    size_t rank, i;
    const char *name;
};

static int by_place(const void *pa, const void *pb)
{
    const struct place *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->i > b->i) - (a->i < b->i);
}

static int sort_tensors(size_t *order, const struct tu_save *what, struct tu_err *err)
{
    struct place *p = tu_alloc(what->n, sizeof *p, err);
    if (!p)
        return TU_ENOMEM;
    for (size_t i = 0; i < what->n; i++) {
        size_t rank = 0;
        while (dtype_order[rank] != what->tensor[i].dtype)
            rank++;
        p[i] = (struct place){ rank, i, what->tensor[i].name };
    }
    qsort(p, what->n, sizeof *p, by_place);
    for (size_t k = 0; k < what->n; k++)
        order[k] = p[k].i;
    tu_free(p);
    return 0;
}

static int add_entry(struct tu_buf *b, const struct tu_tensor *t, uint64_t begin,
                     struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    char shown[88];
    uint64_t elements;
    int code = tu_elements(t->dim, t->rank, &elements, err);
    if (code)
        return code;
    if (elements % d->block_elems || !strcmp(t->name, "__metadata__"))
        return tu_fail(err, elements % d->block_elems ? TU_ESIZE : TU_ENAME,
                       "'%s': safetensors allows no %s",
                       tu_text_short(t->name, strlen(t->name), shown),
                       elements % d->block_elems ? "fraction of a byte" : "tensor of this name");
    code = tu_json_string(b, t->name, strlen(t->name), err);
    if (!code)
        code = tu_buf_printf(b, err, ":{\"dtype\":\"%s\",\"shape\":[", d->safetensors);
    for (unsigned k = 0; !code && k < t->rank; k++)
        code = tu_buf_printf(b, err, k ? ",%llu" : "%llu", (unsigned long long)t->dim[k]);
    if (!code)
        code = tu_buf_printf(b, err, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                             (unsigned long long)(begin + t->bytes));
    return code;
}

/* The official header; at[] gets offsets in the data. */
static int make_header(struct tu_buf *b, const struct tu_save *what, const json_t *metadata,
                       const size_t *order, uint64_t *at, uint64_t *data, struct tu_err *err)
{
    int code = tu_buf_text(b, metadata ? "{\"__metadata__\":" : "{", err);
    bool first = !metadata;
    if (!code && metadata)
        code = tu_json_dump(b, metadata, err);
    for (size_t k = 0; !code && k < what->n; k++, first = false) {
        const struct tu_tensor *t = &what->tensor[order[k]];
        if (!first)
            code = tu_buf_text(b, ",", err);
        if (!code)
            code = add_entry(b, t, *data, err);
        at[order[k]] = *data;
        if (!code && tu_add_over(*data, t->bytes, data))
            code = tu_fail(err, TU_ESIZE, "all tensors are over 2^64 bytes");
    }
    if (!code)
        code = tu_buf_text(b, "}", err);
    while (!code && b->n % 8)
        code = tu_buf_text(b, " ", err);
    if (code == TU_ELIMIT)
        return tu_fail(err, code, "the header would be over 100000000 bytes");
    return code;
}

static bool same(const struct tui_st_entry *e, const struct tu_tensor *t)
{
    return e->dtype == t->dtype && e->rank == t->rank &&
           (!e->rank || !memcmp(e->dim, t->dim, e->rank * sizeof *e->dim));
}

/* Places by a header that was kept; it must describe exactly these tensors. */
static int follow_header(const struct tui_st_head *h, const struct tu_save *what, size_t *order,
                         uint64_t *at, struct tu_err *err)
{
    char shown[88];
    if (h->n != what->n)
        return tu_fail(err, TU_EMETA, "the kept header describes %zu tensors, there are %zu",
                       h->n, what->n);
    struct tui_names names;
    int code = tui_names_make(&names, what->tensor, what->n, err);
    for (size_t k = 0; !code && k < h->n; k++) {
        const struct tui_st_entry *e = &h->entry[k];
        size_t i = tui_names_find(&names, e->name);
        if (i == SIZE_MAX || !same(e, &what->tensor[i]))
            code = tu_fail(err, TU_EMETA, "'%s': %s",
                           tu_text_short(e->name, strlen(e->name), shown),
                           i == SIZE_MAX ? "stands in the kept header, but is not here"
                                         : "its dtype or shape is not that of the kept header");
        order[k] = i;
        if (!code)
            at[i] = e->begin;
    }
    tui_names_release(&names);
    return code;
}

static int check_metadata(const json_t *metadata, struct tu_err *err)
{
    const char *key;
    json_t *value;
    if (metadata && !json_is_object(metadata))
        return tu_fail(err, TU_EMETA, "META 'safetensors': metadata is no object");
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value))
            return tu_fail(err, TU_EMETA, "META 'safetensors': metadata '%.60s' is no string",
                           key);
    }
    return 0;
}

/* The header text and the place of each tensor in the data. */
static int lay_out(struct tu_buf *text, const struct tu_save *what, size_t *order, uint64_t *at,
                   uint64_t *data, struct tu_err *err)
{
    json_t *meta = NULL;
    int code = tui_meta_merge(&meta, what->meta, what->metas, "safetensors", err);
    if (code)
        return code;
    const json_t *kept = json_object_get(meta, "header");
    const json_t *metadata = json_object_get(meta, "metadata");
    struct tu_arena *arena = NULL;
    struct tui_st_head h = { 0 };
    if (!what->keep_header) {
        code = check_metadata(metadata, err);
        if (!code)
            code = sort_tensors(order, what, err);
        if (!code)
            code = make_header(text, what, metadata, order, at, data, err);
    } else if (!json_is_string(kept)) {
        code = tu_fail(err, TU_EMETA, "no header was kept: no META 'safetensors' holds one");
    } else if (!(arena = tu_arena_new(err))) {
        code = TU_ENOMEM;
    } else {
        code = tu_buf_add(text, json_string_value(kept), json_string_length(kept), err);
        if (!code && (code = tui_st_parse(&h, text->data, text->n, arena, err)))
            tu_err_prefix(err, "the kept header");
        if (!code)
            code = follow_header(&h, what, order, at, err);
        *data = h.data;
    }
    tu_free(h.entry);
    tu_arena_free(arena);
    json_decref(meta);
    return code;
}

static int save_st(struct tu_sink **out, const char *path, const struct tu_save *what,
                   const struct tu_job *job, struct tu_err *err)
{
    struct tu_buf text, head = { 0 };
    tu_buf_init(&text, TUI_ST_HEAD_MAX);
    uint64_t data = 0;
    uint64_t *at = tu_alloc(what->n, sizeof *at, err);
    size_t *order = at ? tu_alloc(what->n, sizeof *order, err) : NULL;
    int code = order ? lay_out(&text, what, order, at, &data, err) : TU_ENOMEM;
    unsigned char prefix[8];
    tu_put64(prefix, text.n);
    if (code && order)
        tu_err_prefix(err, "%s", path);
    if (!code)
        code = tu_buf_add(&head, prefix, sizeof prefix, err);
    if (!code)
        code = tu_buf_add(&head, text.data, text.n, err);
    if (code) {
        tu_free(at);
        tu_free(order);
    } else {
        for (size_t i = 0; i < what->n; i++)
            at[i] += head.n;
        struct tui_flat *f = NULL;
        code = tui_flat_new(&f, &tui_format_safetensors, path, what->n, &head, at, order,
                            head.n + data, job, err);
        if (!code)
            *out = &f->sink;
    }
    tu_buf_release(&head);
    tu_buf_release(&text);
    return code;
}

const struct tu_format tui_format_safetensors = {
    .name = "safetensors",
    .help = "safetensors file of the Hugging Face library",
    .suffix = ".safetensors",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE | TU_FORMAT_UNIQUE | TU_FORMAT_HEADER |
             TU_FORMAT_NAMED,
    .sniff = sniff_st,
    .open = open_st,
    .save = save_st,
    .dtype_ok = dtype_ok,
};
