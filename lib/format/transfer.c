/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c: whole files moved between sources, sinks and streams, in windows of a few
 * MiB.
 *
 * Checksums that a file stores are compared while its bytes pass: nothing is finished,
 * and no END written, behind bytes that were wrong. */
#include "kit.h"

/* Where a window goes: a sink or a stream. */
struct target {
    struct tu_sink *sink;
    size_t i;
    struct tu_writer *writer;
};

static int put(const struct target *to, uint64_t off, const void *p, size_t n, uint32_t crc,
               struct tu_err *err)
{
    return to->sink ? tu_sink_write(to->sink, to->i, off, p, n, err)
                    : tu_writer_write_crc(to->writer, p, n, crc, err);
}

static int move(struct tu_source *s, size_t i, const struct target *to, uint64_t *done,
                uint64_t total, const struct tu_job *job, struct tu_err *err)
{
    uint64_t all = s->tensor[i].bytes;
    struct tu_pool *pool = job ? job->pool : NULL;
    bool sum = tui_has_crc(s, i) || to->writer;
    uint32_t crc = 0;
    int code = tui_has_crc(s, i) ? 0 : tu_source_verify(s, i, pool, err);
    if (code)
        return code;
    char *buf = tu_alloc((size_t)tu_min(TUI_WINDOW, all), 1, err);
    if (!buf)
        return TU_ENOMEM;
    for (uint64_t off = 0; !code && off < all;) {
        size_t n = (size_t)tu_min(TUI_WINDOW, all - off);
        if (tu_job_cancelled(job)) {
            code = tu_fail(err, TU_ECANCEL, "%s: stopped on request", s->path);
            break;
        }
        code = tu_source_read(s, i, off, buf, n, err);
        uint32_t part = !code && sum ? tu_crc32_pool(0, buf, n, pool) : 0;
        crc = tu_crc32_combine(crc, part, n);
        if (!code)
            code = put(to, off, buf, n, part, err);
        off += n;
        *done += n;
        tu_job_progress(job, *done, total);
    }
    tu_free(buf);
    return code ? code : tui_check_crc(s, i, crc, err);
}

int tu_source_copy(struct tu_source *s, size_t i, struct tu_sink *to, size_t j, uint64_t *done,
                   uint64_t total, const struct tu_job *job, struct tu_err *err)
{
    return move(s, i, &(struct target){ .sink = to, .i = j }, done, total, job, err);
}

static uint64_t total_of(const struct tu_source *s)
{
    uint64_t total = 0;
    for (size_t i = 0; i < s->n; i++)
        total += s->tensor[i].bytes;
    return total;
}

int tu_source_save(struct tu_source *s, const char *path, const struct tu_format *format,
                   const struct tu_save *what, bool durable, const struct tu_job *job,
                   struct tu_err *err)
{
    struct tu_save all = *what;
    struct tu_sink *sink = NULL;
    uint64_t done = 0, total = total_of(s);
    all.n = s->n;
    all.tensor = s->tensor;
    all.metas = s->metas;
    all.meta = s->meta;
    int code = tu_sink_open(&sink, path, format, &all, job, err);
    for (size_t k = 0; !code && k < s->n; k++) {
        size_t i = sink->order ? sink->order[k] : k;
        code = tu_source_copy(s, i, sink, i, &done, total, job, err);
    }
    if (!code)
        return tu_sink_finish(sink, durable, err);
    tu_sink_abort(sink);
    return code;
}

/* streams -------------------------------------------------------------------------------------- */

/* META contents: {"tensors":[["NAME","DTYPE",[SHAPE]],…]}. */
static int write_contents(const struct tu_source *s, struct tu_writer *w, struct tu_err *err)
{
    struct tu_buf b;
    char dtype[8];
    tu_buf_init(&b, TUI_META_MAX);
    int code = tu_buf_text(&b, "{\"tensors\":[", err);
    for (size_t i = 0; !code && i < s->n; i++) {
        const struct tu_tensor *t = &s->tensor[i];
        code = tu_buf_text(&b, i ? ",[" : "[", err);
        if (!code)
            code = tu_json_string(&b, t->name, strlen(t->name), err);
        if (!code)
            code = tu_buf_printf(&b, err, ",\"%s\",[", tu_dtype_text(t->dtype, dtype));
        for (unsigned k = 0; !code && k < t->rank; k++) {
            const char *quote = t->dim[k] > UINT64_C(1) << 53 ? "\"" : "";
            code = tu_buf_printf(&b, err, "%s%s%llu%s", k ? "," : "", quote,
                                 (unsigned long long)t->dim[k], quote);
        }
        if (!code)
            code = tu_buf_text(&b, "]]", err);
    }
    if (!code)
        code = tu_buf_text(&b, "]}", err);
    if (code == TU_ELIMIT)
        code = tu_fail(err, code, "%s: its contents are over the 16 MiB of a META record", s->path);
    if (!code)
        code = tu_writer_meta(w, "contents", b.data, b.n, err);
    tu_buf_release(&b);
    return code;
}

int tu_source_write(struct tu_source *s, struct tu_writer *w, bool contents,
                    const struct tu_job *job, struct tu_err *err)
{
    uint64_t done = 0, total = total_of(s);
    int code = contents ? write_contents(s, w, err) : 0;
    for (size_t i = 0; !code && i < s->metas; i++) {
        if (strcmp(s->meta[i].topic, "contents"))
            code = tu_writer_meta(w, s->meta[i].topic, s->meta[i].json, s->meta[i].n, err);
    }
    for (size_t i = 0; !code && i < s->n; i++) {
        struct tu_record rec;
        tu_record_of(&rec, &s->tensor[i]);
        code = tu_writer_record(w, &rec, err);
        if (!code)
            code = move(s, i, &(struct target){ .writer = w }, &done, total, job, err);
    }
    return code ? code : tu_writer_end(w, false, err);
}

/* What the first segment's contents promise. */
struct promise {
    const char *file; /* the stream's name */
    struct tu_arena *arena;
    struct tu_tensor *tensor;
    size_t n;
    struct tu_meta *meta;
    size_t metas, cap;
    struct tui_names names;
    uint64_t total;
};

static void release(struct promise *p)
{
    tui_names_release(&p->names);
    tu_free(p->meta);
    tu_arena_free(p->arena);
}

static int one_tensor(struct promise *p, const json_t *entry, struct tu_err *err)
{
    const char *name = json_string_value(json_array_get(entry, 0));
    const char *dtype = json_string_value(json_array_get(entry, 1));
    const json_t *shape = json_array_get(entry, 2);
    const struct tu_dtype *d = dtype ? tu_dtype_named(dtype) : NULL;
    uint64_t dim[TU_RANK_MAX];
    size_t rank = json_array_size(shape);
    bool good = name && d && json_is_array(shape) && rank <= TU_RANK_MAX;
    for (size_t k = 0; good && k < rank; k++)
        good = tu_json_count(json_array_get(shape, k), &dim[k]);
    if (!good)
        return tu_fail(err, TU_EMETA, "%s: META 'contents': tensor %zu: expected [\"NAME\","
                       "\"DTYPE\",[SHAPE]]", p->file, p->n);
    struct tu_tensor *t = &p->tensor[p->n++];
    int code = tu_tensor_make(t, p->arena, name, d->code, dim, (unsigned)rank, NULL, err);
    if (!code && tu_add_over(p->total, t->bytes, &p->total))
        code = tu_fail(err, TU_ESIZE, "%s: META 'contents': over 2^64 bytes", p->file);
    return code;
}

static int read_contents(struct promise *p, const struct tu_record *rec, struct tu_err *err)
{
    static const struct tu_json_limits limits = { .depth = TU_JSON_DEPTH_META, .object = true };
    json_t *meta = NULL;
    int code = tu_json_parse(&meta, rec->meta, rec->meta_len, &limits, err);
    if (code)
        return code;
    const json_t *list = json_object_get(meta, "tensors");
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        code = tu_fail(err, TU_EMETA, "%s: META 'contents': no list 'tensors'", p->file);
    p->tensor = code ? NULL : tu_arena_alloc(p->arena, n, sizeof *p->tensor, err);
    if (!code && !p->tensor)
        code = TU_ENOMEM;
    for (size_t i = 0; !code && i < n; i++)
        code = one_tensor(p, json_array_get(list, i), err);
    json_decref(meta);
    if (!code)
        code = tui_names_make(&p->names, p->tensor, p->n, err);
    const char *twin = code ? NULL : tui_names_twin(&p->names);
    return twin ? tu_fail(err, TU_EUNSUP, "%s: META 'contents' lists '%.80s' twice: pieces can "
                          "only be joined from a file", p->file, twin)
                : code;
}

static int keep_meta(struct promise *p, const struct tu_record *rec, struct tu_err *err)
{
    int code = TU_GROW(&p->meta, &p->cap, p->metas, err);
    if (code || !rec->meta_len)
        return code;
    struct tu_meta m = { .n = rec->meta_len };
    m.topic = tu_arena_text(p->arena, rec->name, rec->name_len, err);
    m.json = m.topic ? tu_arena_text(p->arena, rec->meta, rec->meta_len, err) : NULL;
    if (!m.json)
        return TU_ENOMEM;
    p->meta[p->metas++] = m;
    return 0;
}

/* Which promised tensor is this? */
static int recognise(const struct promise *p, const struct tu_record *rec, size_t *i,
                     struct tu_err *err)
{
    *i = tui_names_find(&p->names, rec->name);
    const struct tu_tensor *t = *i == SIZE_MAX ? NULL : &p->tensor[*i];
    bool same = t && t->dtype == rec->dtype && t->rank == rec->nwords &&
                (!t->rank || !memcmp(t->dim, rec->word, t->rank * sizeof *t->dim));
    if (!same)
        return tu_fail(err, TU_EMETA, "%s: '%.80s': %s", p->file, rec->name,
                       t ? "its dtype or shape is not what META 'contents' says"
                         : "META 'contents' does not list it");
    return 0;
}

/* The payload at hand, to tensor i. */
static int pass(struct tu_reader *r, struct tu_sink *sink, size_t i, uint64_t *done,
                uint64_t total, char *buf, const struct tu_job *job, struct tu_err *err)
{
    uint64_t off = 0;
    for (size_t got;; off += got) {
        int code = tu_job_cancelled(job) ? tu_fail(err, TU_ECANCEL, "stopped on request")
                                         : tu_reader_read(r, buf, TUI_WINDOW, &got, err);
        if (code || !got)
            return code;
        code = tu_sink_write(sink, i, off, buf, got, err);
        if (code)
            return code;
        *done += got;
        tu_job_progress(job, *done, total);
    }
}

/* The rest of the stream, from the record at hand on. */
static int pour(struct tu_reader *r, const struct tu_record *rec, const struct promise *p,
                struct tu_sink *sink, const struct tu_job *job, struct tu_err *err)
{
    uint64_t done = 0;
    char *buf = tu_alloc(TUI_WINDOW, 1, err);
    unsigned char *seen = buf ? tu_calloc(p->n, 1, err) : NULL;
    int code = seen ? 0 : TU_ENOMEM;
    for (; !code && rec; code = code ? code : tu_reader_next(r, &rec, err)) {
        size_t i;
        if (rec->type == TU_REC_META)
            code = tu_fail(err, TU_EMETA, "%s: META '%.80s' comes after the tensors: where META "
                           "'contents' opens a stream it has to stand before them", p->file,
                           rec->name);
        if (code || rec->type != TU_REC_TENSOR)
            continue;
        code = recognise(p, rec, &i, err);
        if (!code && seen[i]++)
            code = tu_fail(err, TU_EMETA, "%s: '%.80s' comes twice", p->file, rec->name);
        if (!code)
            code = pass(r, sink, i, &done, p->total, buf, job, err);
    }
    for (size_t i = 0; !code && i < p->n; i++) {
        if (!seen[i])
            code = tu_fail(err, TU_EINCOMPLETE, "%s: '%.80s' is in META 'contents' but never came",
                           p->file, p->tensor[i].name);
    }
    tu_free(seen);
    tu_free(buf);
    return code;
}

bool tu_stream_announced(struct tu_in *in)
{
    static const char topic[] = "contents";
    enum { TYPE = 10, NAME_LEN = 24, NWORDS = 26, NAME = 64, LEN = sizeof topic - 1 };
    unsigned char head[NAME + LEN];
    size_t got;
    return !tu_in_peek(in, head, sizeof head, &got, NULL) && got == sizeof head &&
           !memcmp(head, TU_STREAM_MAGIC, 8) && tu_le16(head + TYPE) == TU_REC_META &&
           tu_le16(head + NAME_LEN) == LEN && !head[NWORDS] && !memcmp(head + NAME, topic, LEN);
}

int tu_stream_save(struct tu_in *in, const char *path, const struct tu_format *format,
                   const struct tu_save *what, bool durable, const struct tu_job *job,
                   struct tu_err *err)
{
    struct tu_reader *r = NULL;
    const struct tu_record *rec = NULL;
    int code = tu_reader_new(&r, in, 0, job ? job->pool : NULL, err);
    if (code)
        return code;
    struct promise p = { .file = tu_reader_name(r), .arena = tu_arena_new(err) };
    struct tu_save all = *what;
    struct tu_sink *sink = NULL;
    code = p.arena ? tu_reader_next(r, &rec, err) : TU_ENOMEM;
    if (!code)
        code = read_contents(&p, rec, err);
    while (!code && !(code = tu_reader_next(r, &rec, err)) && rec && rec->type == TU_REC_META)
        code = keep_meta(&p, rec, err);
    all.n = p.n;
    all.tensor = p.tensor;
    all.metas = p.metas;
    all.meta = p.meta;
    if (!code)
        code = tu_sink_open(&sink, path, format, &all, job, err);
    if (!code)
        code = pour(r, rec, &p, sink, job, err);
    if (!code) {
        code = tu_sink_finish(sink, durable, err);
        sink = NULL;
    }
    tu_sink_abort(sink);
    tu_reader_free(r);
    release(&p);
    return code;
}
