/* SPDX-License-Identifier: Apache-2.0 */
/* write.c: the writer: records as they come, END with its counters, and what must be left
 * behind when it goes wrong.
 *
 * Truncation travels: after the first failure nothing is written any more, so no END can
 * follow a broken record; and where an END went out earlier, tu_writer_abort spoils the
 * ending. */
#include <inttypes.h>
#include "reader.h"

struct tu_writer {
    struct tu_out *out;
    uint64_t base;        /* position of the output when the writer began */
    bool open;            /* the record at hand lacks payload or trailer */
    bool ended;           /* the last record was END */
    bool ended_once;      /* there is an END in the output */
    struct tu_record cur; /* its name stands in head; word and meta are not kept */
    uint64_t left;        /* payload bytes still to come */
    uint32_t crc;
    struct tu_buf head;
    struct tui_segment seg;
    struct tu_err err; /* the first failure, repeated from then on */
};

int tu_writer_new(struct tu_writer **out, struct tu_out *to, struct tu_err *err)
{
    struct tu_writer *w = tu_calloc(1, sizeof *w, err);
    *out = w;
    if (!w) {
        tu_out_abort(to);
        return TU_ENOMEM;
    }
    w->out = to;
    w->base = tu_out_pos(to);
    w->seg.list = true;
    tui_segment_begin(&w->seg, 0, 0);
    return 0;
}

struct tu_out *tu_writer_out(struct tu_writer *w)
{
    return w->out;
}

uint64_t tu_writer_pos(const struct tu_writer *w)
{
    return tu_out_pos(w->out) - w->base;
}

/* Give the caller the failure that w->err describes. */
static int failed(const struct tu_writer *w, struct tu_err *err)
{
    if (err)
        *err = w->err;
    return w->err.code;
}

/* A mistake of the calling program. */
static int misuse(struct tu_writer *w, const char *what)
{
    return tu_fail(&w->err, TU_EBUG, "%s: %s", tu_out_name(w->out), what);
}

/* Records ---------------------------------------------------------------------------- */

/* The payload is complete: padding and trailer, then the record counts. */
static int close_record(struct tu_writer *w)
{
    int rc = 0;
    if (!w->open)
        return 0;
    if (w->left)
        return misuse(w, "a record was closed before its payload was complete");
    if (w->cur.payload_len) {
        unsigned char rest[TU_STREAM_ALIGN + TUI_TRAILER] = {0};
        const unsigned pad = tui_padding(w->cur.payload_len);
        w->cur.payload_crc = w->crc;
        tu_put32(rest + pad, w->crc);
        tu_put32(rest + pad + 4, w->cur.header_crc);
        rc = tu_out_write(w->out, rest, pad + TUI_TRAILER, &w->err);
    }
    w->open = false;
    return rc ? rc : tui_segment_add(&w->seg, &w->cur, &w->err);
}

/* The header in w->head, n bytes of it written, opens the record w->cur. */
static int open_record(struct tu_writer *w, size_t n)
{
    int rc = tu_out_write(w->out, w->head.data, n, &w->err);
    /* The caller's name may go away before the record is closed. */
    w->cur.name = w->head.data + TUI_FIXED + 8 * w->cur.nwords;
    w->left = w->cur.payload_len;
    w->crc = 0;
    w->open = true;
    w->ended = false;
    return rc;
}

/* rec of any type: close the one before, write the header. */
static int begin_record(struct tu_writer *w, const struct tu_record *rec)
{
    char name[88];
    if (w->err.code)
        return w->err.code;
    int rc = close_record(w);
    if (rc)
        return rc;
    w->cur = *rec;
    rc = tui_head_encode(&w->head, rec, &w->cur.header_crc, &w->err);
    if (rc) {
        if (tu_err_status(rc) == 3)
            tu_err_prefix(&w->err, "%s: '%s'", tu_out_name(w->out),
                          tu_text_short(rec->name ? rec->name : "", rec->name_len, name));
        return rc;
    }
    w->cur.header_len = (uint32_t)w->head.n;
    return open_record(w, w->head.n);
}

static int put(struct tu_writer *w, const void *p, size_t n, uint32_t crc)
{
    if (w->err.code)
        return w->err.code;
    if (n > w->left)
        return misuse(w, "more payload bytes than the record's header says");
    w->crc = w->cur.payload_len == w->left ? crc : tu_crc32_combine(w->crc, crc, n);
    w->left -= n;
    return tu_out_write(w->out, p, n, &w->err);
}

int tu_writer_record(struct tu_writer *w, const struct tu_record *rec, struct tu_err *err)
{
    if (!w->err.code && (rec->type == TU_REC_END || !TU_REC_COPIES(rec->type)))
        misuse(w, "END, INDEX and PAD have calls of their own");
    return begin_record(w, rec) ? failed(w, err) : 0;
}

int tu_writer_write(struct tu_writer *w, const void *p, size_t n, struct tu_err *err)
{
    return put(w, p, n, tu_crc32(0, p, n)) ? failed(w, err) : 0;
}

int tu_writer_write_crc(struct tu_writer *w, const void *p, size_t n, uint32_t crc,
                        struct tu_err *err)
{
    return put(w, p, n, crc) ? failed(w, err) : 0;
}

void tu_record_of(struct tu_record *out, const struct tu_tensor *t)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    *out = (struct tu_record){
        .type = TU_REC_TENSOR,
        .nwords = t->rank,
        .word = t->dim,
        .name = t->name,
        .name_len = strlen(t->name),
        .meta = t->meta,
        .meta_len = t->meta ? strlen(t->meta) : 0,
        .dtype = t->dtype,
        .block_elems = d ? d->block_elems : 0,
        .block_bytes = d ? d->block_bytes : 0,
        .payload_len = t->bytes,
    };
}

int tu_writer_tensor(struct tu_writer *w, const struct tu_tensor *t, const void *data,
                     struct tu_err *err)
{
    struct tu_record rec;
    tu_record_of(&rec, t);
    int rc = tu_writer_record(w, &rec, err);
    if (rc)
        return rc;
    if (rec.payload_len > SIZE_MAX) {
        misuse(w, "a tensor in memory larger than memory");
        return failed(w, err);
    }
    return tu_writer_write(w, data, (size_t)rec.payload_len, err);
}

int tu_writer_meta(struct tu_writer *w, const char *topic, const char *json, size_t n,
                   struct tu_err *err)
{
    const struct tu_record rec = {
        .type = TU_REC_META,
        .name = topic,
        .name_len = strlen(topic),
        .meta = json,
        .meta_len = n,
    };
    return tu_writer_record(w, &rec, err);
}

int tu_writer_align(struct tu_writer *w, const struct tu_record *next, uint64_t align,
                    struct tu_err *err)
{
    uint32_t len;
    if (w->err.code || close_record(w))
        return failed(w, err);
    if (align < TU_STREAM_ALIGN || align > TUI_HEADER_MAX || align & (align - 1))
        return tu_fail(err, TU_EUSAGE,
                       "alignment %" PRIu64 " is not a power of two from 64 to 64 MiB",
                       align);
    int rc = tui_head_len(next, &len, err);
    if (rc)
        return rc;
    const uint32_t pad = (uint32_t)(-(tu_out_pos(w->out) + len) & (align - 1));
    if (!pad)
        return 0;
    if (pad % TU_STREAM_ALIGN) {
        misuse(w, "the stream does not begin at a multiple of 64");
        return failed(w, err);
    }
    tu_buf_reset(&w->head);
    unsigned char *fixed = tu_buf_room(&w->head, TUI_FIXED, &w->err);
    if (!fixed)
        return failed(w, err);
    w->cur = (struct tu_record){.type = TU_REC_PAD, .header_len = pad};
    tui_head_pad(fixed, pad, &w->cur.header_crc);
    if (open_record(w, TUI_FIXED) || tu_out_zeros(w->out, pad - TUI_FIXED, &w->err) ||
        close_record(w))
        return failed(w, err);
    return 0;
}

/* A record that a reader stands at, as it is ----------------------------------------- */

int tu_writer_copy(struct tu_writer *w, struct tu_reader *r, struct tu_err *err)
{
    const struct tu_record *rec = &r->cur.rec;
    size_t got;
    if (!w->err.code && (rec->type == TU_REC_END || !TU_REC_COPIES(rec->type)))
        misuse(w, "END, INDEX and PAD are not copied");
    if (w->err.code || close_record(w))
        return failed(w, err);
    tu_buf_reset(&w->head);
    w->cur = *rec;
    if (tu_buf_add(&w->head, r->head.data, rec->header_len, &w->err) ||
        open_record(w, rec->header_len))
        return failed(w, err);
    unsigned char *chunk =
        tu_alloc((size_t)tu_min(TU_IO_CHUNK, rec->payload_len), 1, err);
    int rc = chunk ? 0 : TU_ENOMEM;
    while (!rc && !(rc = tu_reader_read(r, chunk, TU_IO_CHUNK, &got, err)) && got) {
        /* The reader has summed these bytes: its running checksum is ours too. */
        w->left -= got;
        w->crc = r->crc;
        if (tu_out_write(w->out, chunk, got, &w->err))
            rc = failed(w, err);
    }
    tu_free(chunk);
    return rc;
}

/* Segments --------------------------------------------------------------------------- */

static int put_index(struct tu_writer *w)
{
    const size_t n = w->seg.entry.n;
    const uint64_t count = n / TUI_INDEX_ENTRY;
    const struct tu_record rec = {
        .type = TU_REC_INDEX, .nwords = 1, .word = &count, .payload_len = n};
    int rc = begin_record(w, &rec);
    if (!rc && n)
        rc = put(w, w->seg.entry.data, n, tu_crc32(0, w->seg.entry.data, n));
    return rc;
}

int tu_writer_end(struct tu_writer *w, bool index, struct tu_err *err)
{
    if (w->err.code || close_record(w) || (index && (put_index(w) || close_record(w))))
        return failed(w, err);
    const struct tui_segment *s = &w->seg;
    const uint64_t word[TUI_END_WORDS] = {
        [TUI_END_RECORDS] = s->records,
        [TUI_END_BYTES] = s->bytes,
        [TUI_END_INDEX_BACK] = s->index == TUI_NO_INDEX ? 0 : s->bytes - s->index,
        [TUI_END_DIGEST] = s->digest,
    };
    const struct tu_record rec = {
        .type = TU_REC_END, .nwords = TUI_END_WORDS, .word = word};
    if (begin_record(w, &rec))
        return failed(w, err);
    w->open = false;
    w->ended = true;
    w->ended_once = true;
    tui_segment_begin(&w->seg, s->number + 1, tu_writer_pos(w));
    return tu_out_flush(w->out, &w->err) ? failed(w, err) : 0;
}

/* Endings ---------------------------------------------------------------------------- */

static void release(struct tu_writer *w)
{
    tu_buf_release(&w->head);
    tu_buf_release(&w->seg.entry);
    tu_free(w);
}

int tu_writer_close(struct tu_writer *w, bool durable, struct tu_err *err)
{
    if (!w->err.code && !w->ended)
        misuse(w, "closed without END");
    if (w->err.code) {
        int rc = failed(w, err);
        tu_writer_abort(w);
        return rc;
    }
    struct tu_out *out = w->out;
    release(w);
    return tu_out_commit(out, durable, err);
}

void tu_writer_abort(struct tu_writer *w)
{
    if (!w)
        return;
    /* An output that takes no more bytes is none that looks complete: whoever made it
     * fail knows. */
    if (w->ended_once && !tu_out_write(w->out, TU_STREAM_MAGIC, TUI_MAGIC_LEN, NULL))
        (void)!tu_out_flush(w->out, NULL);
    tu_out_abort(w->out);
    release(w);
}
