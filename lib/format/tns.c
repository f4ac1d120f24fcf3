/* SPDX-License-Identifier: Apache-2.0 */
/* tns.c: the tensor stream as a format like any other.
 *
 * As a source: the tensors and META records of all segments of a file. As a sink: one
 * segment, META first. A seekable output is laid out whole, its payloads may come in any
 * order, and trailers and END are written last; a pipe goes through the ordinary writer.
 * Records of other types are not seen here: filters that must pass them on read the
 * stream itself. */
#include <unistd.h>
#include "kit.h"
#include "rows.h"

/* source --------------------------------------------------------------------------------------- */

struct tns_source {
    struct tu_source base;
    struct tu_stream_index *index;
    size_t *record; /* [n] which record of the index */
};

static int read_tns(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                    struct tu_err *err)
{
    struct tns_source *t = (struct tns_source *)s;
    return tu_index_read(t->index, t->record[i], off, buf, n, err);
}

static int verify_tns(struct tu_source *s, size_t i, struct tu_pool *pool, struct tu_err *err)
{
    struct tns_source *t = (struct tns_source *)s;
    return tu_index_verify(t->index, t->record[i], pool, err);
}

static void close_tns(struct tu_source *s)
{
    tu_index_close(((struct tns_source *)s)->index);
    tui_source_free(s);
}

static const struct tu_source_ops source_ops = { read_tns, verify_tns, tui_summed_always,
                                                 close_tns };

static bool sniff_tns(const char *path, const unsigned char *head, size_t n)
{
    (void)path;
    return n >= 8 && !memcmp(head, TU_STREAM_MAGIC, 8);
}

/* The index wants a file of its own; the front keeps the one that it opened. */
static int open_index(struct tns_source *t, struct tu_in *front, struct tu_err *err)
{
    struct tu_in *in = NULL;
    int code = tu_in_seek(front, 0, err);
    int fd = code ? -1 : dup(tu_in_fd(front));
    if (!code && fd < 0)
        code = tu_fail_errno(err, "%s: cannot duplicate its descriptor", tu_in_name(front));
    if (!code)
        code = tu_in_take_fd(&in, fd, tu_in_name(front), err);
    return code ? code : tu_index_open(&t->index, in, err);
}

static int describe(struct tns_source *t, struct tu_in *in, struct tu_err *err)
{
    struct tu_source *s = &t->base;
    size_t n = tu_index_count(t->index);
    struct tu_tensor *tensor = tu_arena_alloc(s->arena, n, sizeof *tensor, err);
    struct tu_extent *extent = tensor ? tu_arena_alloc(s->arena, n, sizeof *extent, err) : NULL;
    uint64_t *crc = extent ? tu_arena_alloc(s->arena, n, sizeof *crc, err) : NULL;
    t->record = crc ? tu_arena_alloc(s->arena, n, sizeof *t->record, err) : NULL;
    if (!t->record)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct tu_index_entry *e = tu_index_entry(t->index, i);
        if (e->type == TU_REC_META && e->tensor.meta) {
            int code = tui_source_meta(s, e->tensor.name, e->tensor.meta, strlen(e->tensor.meta),
                                       err);
            if (code)
                return code;
        } else if (e->type == TU_REC_TENSOR) {
            tensor[s->n] = e->tensor;
            extent[s->n] = (struct tu_extent){ in, e->payload };
            crc[s->n] = e->payload_len ? e->payload_crc : 0;
            t->record[s->n++] = i;
            s->referenced += e->payload_len;
        }
    }
    s->tensor = tensor;
    s->extent = extent;
    s->crc = crc;
    s->stored = tu_in_size(in);
    return 0;
}

static int open_tns(struct tu_source **out, const char *path, const struct tu_open *how,
                    const struct tu_job *job, struct tu_err *err)
{
    (void)job;
    struct tns_source *t = tui_source_new(sizeof *t, &tui_format_tns, &source_ops, path, err);
    if (!t)
        return TU_ENOMEM;
    int code = open_index(t, how->in, err);
    if (!code)
        code = describe(t, how->in, err);
    if (code)
        close_tns(&t->base);
    else
        *out = &t->base;
    return code;
}

/* sink, seekable ------------------------------------------------------------------------------- */

struct placed {
    uint64_t payload; /* offset in the file */
    uint64_t bytes;
    uint32_t header_crc;
    uint32_t crc; /* contributions so far (atomic) */
};

struct tns_sink {
    struct tu_sink base;
    struct tu_out *out; /* seekable: laid out */
    struct placed *at;
    uint64_t records, pos; /* of the segment so far */
    uint32_t digest;       /* of the META records */
    struct tu_writer *writer; /* sequential: the writer, and the tensors that are yet to come */
    struct tu_tensor *tensor;
    struct tu_arena *arena;
    size_t next;
    uint64_t done; /* bytes of tensor next-1 */
};

static uint32_t add_digest(uint32_t digest, uint32_t header_crc, uint32_t payload_crc)
{
    unsigned char pair[8];
    tu_put32(pair, header_crc);
    tu_put32(pair + 4, payload_crc);
    return tu_crc32(digest, pair, sizeof pair);
}

/* Padding and trailer behind a payload. */
static size_t make_tail(unsigned char tail[TU_STREAM_ALIGN + 8], uint64_t bytes, uint32_t crc,
                        uint32_t header_crc)
{
    size_t pad = (size_t)(-(bytes + 8) & (TU_STREAM_ALIGN - 1));
    memset(tail, 0, pad);
    tu_put32(tail + pad, crc);
    tu_put32(tail + pad + 4, header_crc);
    return pad + 8;
}

static int put_header(struct tns_sink *s, struct tu_buf *b, struct tu_record *rec,
                      struct tu_err *err)
{
    int code = tu_record_encode(b, rec, err);
    if (code) {
        char shown[88];
        tu_err_prefix(err, "%s: '%s'", s->base.path,
                      tu_text_short(rec->name ? rec->name : "", rec->name_len, shown));
        return code;
    }
    code = tu_out_pwrite(s->out, s->pos, b->data, b->n, err);
    s->pos += b->n;
    s->records++;
    return code;
}

/* Write the headers and decide where each payload goes. */
static int lay_out(struct tns_sink *s, const struct tu_save *what, struct tu_err *err)
{
    struct tu_buf b = { 0 };
    int code = 0;
    s->at = tu_calloc(what->n, sizeof *s->at, err);
    if (!s->at)
        return TU_ENOMEM;
    for (size_t i = 0; !code && i < what->metas; i++) {
        struct tu_record rec = { .type = TU_REC_META, .name = what->meta[i].topic,
                                 .name_len = strlen(what->meta[i].topic),
                                 .meta = what->meta[i].json, .meta_len = what->meta[i].n };
        code = put_header(s, &b, &rec, err);
        s->digest = add_digest(s->digest, rec.header_crc, 0);
    }
    for (size_t i = 0; !code && i < what->n; i++) {
        struct tu_record rec;
        tu_record_of(&rec, &what->tensor[i]);
        code = put_header(s, &b, &rec, err);
        s->at[i] = (struct placed){ s->pos, rec.payload_len, rec.header_crc, 0 };
        uint64_t body = rec.payload_len ? tu_align(rec.payload_len + 8, TU_STREAM_ALIGN) : 0;
        if (!code && (body >> 63 || tu_add_over(s->pos, body, &s->pos)))
            code = tu_fail(err, TU_ESIZE, "%s: all tensors are over 2^63 bytes", s->base.path);
    }
    tu_buf_release(&b);
    return code;
}

static int write_placed(struct tu_sink *sink, size_t i, uint64_t off, const void *p, size_t n,
                        struct tu_err *err)
{
    struct tns_sink *s = (struct tns_sink *)sink;
    struct placed *at = &s->at[i];
    uint32_t part = tu_crc32_part(tu_crc32(0, p, n), at->bytes - off - n);
    __atomic_fetch_xor(&at->crc, part, __ATOMIC_RELAXED);
    return tu_out_pwrite(s->out, at->payload + off, p, n, err);
}

static int finish_placed(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct tns_sink *s = (struct tns_sink *)sink;
    unsigned char tail[TU_STREAM_ALIGN + 8];
    uint32_t digest = s->digest;
    int code = 0;
    for (size_t i = 0; !code && i < s->base.n; i++) {
        const struct placed *at = &s->at[i];
        digest = add_digest(digest, at->header_crc, at->crc);
        if (!at->bytes)
            continue;
        size_t n = make_tail(tail, at->bytes, at->crc, at->header_crc);
        code = tu_out_pwrite(s->out, at->payload + at->bytes, tail, n, err);
    }
    const uint64_t word[4] = { s->records, s->pos, 0, digest };
    struct tu_record end = { .type = TU_REC_END, .nwords = 4, .word = word };
    struct tu_buf b = { 0 };
    if (!code)
        code = put_header(s, &b, &end, err);
    tu_buf_release(&b);
    if (code)
        return code;
    struct tu_out *out = s->out;
    s->out = NULL;
    return tu_out_commit(out, durable, err);
}

static void close_sink(struct tu_sink *sink)
{
    struct tns_sink *s = (struct tns_sink *)sink;
    tu_out_abort(s->out);
    tu_writer_abort(s->writer);
    tu_arena_free(s->arena);
    tu_free(s->at);
    tu_free(s->base.path);
    tu_free(s);
}

/* sink, sequential ----------------------------------------------------------------------------- */

static int out_of_order(const struct tns_sink *s, struct tu_err *err)
{
    return tu_fail(err, TU_EUSAGE, "%s: bytes out of order, but this output cannot seek",
                   s->base.path);
}

/* Begin records until the one of tensor i is open. */
static int advance(struct tns_sink *s, size_t i, struct tu_err *err)
{
    int code = 0;
    while (!code && s->next <= i) {
        struct tu_record rec;
        if (s->next && s->done < s->tensor[s->next - 1].bytes)
            return out_of_order(s, err);
        tu_record_of(&rec, &s->tensor[s->next++]);
        code = tu_writer_record(s->writer, &rec, err);
        s->done = 0;
    }
    return code;
}

static int write_sequential(struct tu_sink *sink, size_t i, uint64_t off, const void *p,
                            size_t n, struct tu_err *err)
{
    struct tns_sink *s = (struct tns_sink *)sink;
    int code = advance(s, i, err);
    if (code)
        return code;
    if (i + 1 != s->next || off != s->done)
        return out_of_order(s, err);
    s->done += n;
    return tu_writer_write(s->writer, p, n, err);
}

static int finish_sequential(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct tns_sink *s = (struct tns_sink *)sink;
    int code = s->base.n ? advance(s, s->base.n - 1, err) : 0;
    if (!code)
        code = tu_writer_end(s->writer, false, err);
    if (code)
        return code;
    struct tu_writer *w = s->writer;
    s->writer = NULL;
    return tu_writer_close(w, durable, err);
}

static const struct tu_sink_ops placed_ops = { write_placed, finish_placed, close_sink };
static const struct tu_sink_ops sequential_ops = { write_sequential, finish_sequential,
                                                   close_sink };

/* The writer takes `out` over; the tensors are copied, since the caller's may go. */
static int begin_sequential(struct tns_sink *s, const struct tu_save *what, struct tu_err *err)
{
    struct tu_out *out = s->out;
    s->out = NULL;
    s->base.ops = &sequential_ops;
    int code = tu_writer_new(&s->writer, out, err);
    if (code)
        return code;
    s->arena = tu_arena_new(err);
    s->tensor = s->arena ? tu_arena_alloc(s->arena, what->n, sizeof *s->tensor, err) : NULL;
    if (!s->tensor)
        return TU_ENOMEM;
    for (size_t i = 0; !code && i < what->n; i++) {
        const struct tu_tensor *t = &what->tensor[i];
        code = tu_tensor_make(&s->tensor[i], s->arena, t->name, t->dtype, t->dim, t->rank,
                              t->meta, err);
        s->tensor[i].bytes = t->bytes;
    }
    for (size_t i = 0; !code && i < what->metas; i++)
        code = tu_writer_meta(s->writer, what->meta[i].topic, what->meta[i].json,
                              what->meta[i].n, err);
    return code;
}

static int save_tns(struct tu_sink **out, const char *path, const struct tu_save *what,
                    const struct tu_job *job, struct tu_err *err)
{
    struct tns_sink *s = tu_calloc(1, sizeof *s, err);
    if (!s)
        return TU_ENOMEM;
    s->base = (struct tu_sink){ .format = &tui_format_tns, .ops = &placed_ops, .n = what->n };
    s->base.path = tu_strdup(path, err);
    int code = s->base.path ? tu_out_open(&s->out, path, job, err) : TU_ENOMEM;
    if (!code)
        code = tu_out_seekable(s->out) ? lay_out(s, what, err) : begin_sequential(s, what, err);
    if (code)
        close_sink(&s->base);
    else
        *out = &s->base;
    return code;
}

const struct tu_format tui_format_tns = {
    .name = "tns",
    .help = "tensor stream, what the commands exchange",
    .suffix = ".tns",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE,
    .sniff = sniff_tns,
    .open = open_tns,
    .save = save_tns,
};
