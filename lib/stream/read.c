/* SPDX-License-Identifier: Apache-2.0 */
/* read.c: the sequential reader: records in order, payloads in chunks, every check of B8.
 *
 * A record is open while its payload or trailer is unread; closing it compares padding,
 * trailer and checksum and enters it into its segment's books. The first failure
 * sticks. */
#include <inttypes.h>
#include "reader.h"

#define HEADER_STEP ((size_t)1 << 20) /* a header's memory grows so as it arrives */
#define LOAD_STEP ((uint64_t)1 << 20)

int tu_reader_new(struct tu_reader **out, struct tu_in *in, unsigned flags,
                  struct tu_pool *pool, struct tu_err *err)
{
    struct tu_reader *r = tu_calloc(1, sizeof *r, err);
    *out = r;
    if (!r) {
        tu_in_close(in);
        return TU_ENOMEM;
    }
    r->in = in;
    r->pool = pool;
    r->flags = flags;
    r->seg.list = flags & TU_READER_STRICT;
    tui_segment_begin(&r->seg, 0, 0);
    return 0;
}

void tu_reader_watch(struct tu_reader *r, const struct tu_job *job, uint64_t before,
                     uint64_t total)
{
    r->job = job;
    r->before = before;
    r->total = total;
}

static void tell(const struct tu_reader *r)
{
    tu_job_progress(r->job, r->before + tu_in_pos(r->in), r->total);
}

void tu_reader_free(struct tu_reader *r)
{
    if (!r)
        return;
    tu_in_close(r->in);
    tu_buf_release(&r->cur.text);
    tu_buf_release(&r->head);
    tu_buf_release(&r->seg.entry);
    tu_free(r->scratch);
    tu_free(r);
}

const char *tu_reader_name(const struct tu_reader *r)
{
    return tu_in_name(r->in);
}

uint64_t tu_reader_pos(const struct tu_reader *r)
{
    return tu_in_pos(r->in);
}

static int again(const struct tu_reader *r, struct tu_err *err)
{
    if (err)
        *err = r->err;
    return r->err.code;
}

/* Keep the failure that r->err describes and give it to the caller. rec: the record to
 * name. */
static int stick(struct tu_reader *r, const struct tu_record *rec, uint64_t offset,
                 struct tu_err *err)
{
    tui_blame(&r->err, tu_in_name(r->in), r->number, offset, rec);
    r->bad = offset;
    return again(r, err);
}

/* The same for a failure inside the record at hand. */
static int stick_here(struct tu_reader *r, struct tu_err *err)
{
    return stick(r, &r->cur.rec, r->cur.rec.offset, err);
}

/* Headers ---------------------------------------------------------------------------- */

/* What arrived does not begin with the magic. */
static int no_magic(struct tu_reader *r, const unsigned char *p, size_t n)
{
    const char *guess = tui_magic_guess(p, n);
    if (r->at == TUI_AT_START)
        return tu_fail_at(&r->err, TU_EMAGIC, 0, "not a tensor stream%s%s",
                          guess ? ": looks like " : "", guess ? guess : "");
    if (r->at == TUI_AT_END)
        return tu_fail_at(&r->err, TU_EGARBAGE, 0,
                          "bytes after the end that are no record%s%s", guess ? ": " : "",
                          guess ? guess : "");
    return tu_fail_at(&r->err, TU_EMAGIC, 0, "no record begins here");
}

/* The input ended where a record would begin. */
static int no_record(struct tu_reader *r)
{
    if (r->at == TUI_AT_END) {
        r->at = TUI_AT_EOF;
        return 0;
    }
    if (r->at == TUI_AT_START)
        return tu_fail_at(&r->err, TU_EEMPTY, 0,
                          "no data at all, not even an END record");
    return tu_fail_at(&r->err, TU_ENOEND, 0, "input ends without an END record");
}

/* Read a header into r->head. Nothing but its form is checked. */
static int read_header(struct tu_reader *r, uint32_t *len)
{
    size_t got;
    tu_buf_reset(&r->head);
    unsigned char *p = tu_buf_room(&r->head, TUI_FIXED, &r->err);
    int rc = p ? tu_in_read(r->in, p, TUI_FIXED, &got, &r->err) : r->err.code;
    if (rc)
        return rc;
    *len = 0;
    if (!got)
        return no_record(r);
    rc = tui_head_begin(p, got, len, &r->err);
    if (rc == TU_EMAGIC)
        return no_magic(r, p, got);
    if (rc)
        return rc;
    for (r->head.n = got; r->head.n < *len; r->head.n += got) {
        const size_t n = (size_t)tu_min(HEADER_STEP, *len - r->head.n);
        p = tu_buf_room(&r->head, n, &r->err);
        rc = p ? tu_in_read(r->in, p, n, &got, &r->err) : r->err.code;
        if (rc)
            return rc;
        if (got < n)
            return tu_fail_at(&r->err, TU_ETRUNC, r->head.n + got,
                              "ends inside a record's header");
    }
    return 0;
}

/* Entry by entry: STRICT keeps what an INDEX should hold; after a recovery that has gaps. */
static bool compares_index(const struct tu_reader *r)
{
    return r->seg.list && !r->damaged;
}

/* The size of an INDEX, and what STRICT adds: the body of a PAD. */
static int check_ancillary(struct tu_reader *r)
{
    const struct tu_record *rec = &r->cur.rec;
    if (rec->type == TU_REC_PAD && r->flags & TU_READER_STRICT)
        for (uint32_t i = TUI_FIXED; i < rec->header_len; i++)
            if (r->head.data[i])
                return tu_fail_at(&r->err, TU_EPAD, i,
                                  "PAD with a byte that is not zero");
    if (rec->type == TU_REC_INDEX && !r->damaged &&
        (rec->word[0] != r->seg.listed ||
         rec->payload_len / TUI_INDEX_ENTRY != r->seg.listed ||
         rec->payload_len % TUI_INDEX_ENTRY))
        return tu_fail_at(&r->err, TU_EINDEX, TUI_FIXED,
                          "INDEX of %" PRIu64 " entries in %" PRIu64
                          " bytes after %" PRIu64 " tensors and metadata records",
                          rec->word[0], rec->payload_len, r->seg.listed);
    return 0;
}

/* An INDEX has been read to its end. */
static int check_index(struct tu_reader *r)
{
    r->indexed = r->seg.listed;
    if (r->damaged || r->cur.rec.payload_crc == r->seg.listed_crc)
        return 0;
    return tu_fail_at(&r->err, TU_EINDEX, r->cur.rec.header_len,
                      "the entries of INDEX disagree with the records before it");
}

/* The END at hand closes its segment. */
static int end_segment(struct tu_reader *r)
{
    r->framed = true;
    int rc = r->damaged ? 0 : tui_segment_end(&r->seg, &r->cur.rec, &r->err);
    if (rc)
        return rc;
    if (!r->damaged && r->seg.index != TUI_NO_INDEX && r->seg.listed != r->indexed)
        return tu_fail_at(&r->err, TU_EINDEX, 0,
                          "records after the INDEX that should list them");
    tui_segment_begin(&r->seg, r->seg.number + 1, r->next);
    r->indexed = 0;
    r->damaged = false;
    r->at = TUI_AT_END;
    return 0;
}

/* Payloads --------------------------------------------------------------------------- */

/* Bytes of the payload that went by: what must be known of them besides the checksum. */
static int see(struct tu_reader *r, const unsigned char *p, size_t n)
{
    const uint64_t at = r->cur.rec.payload_len - r->left;
    const size_t keep = tu_min(n, sizeof r->tail);
    memmove(r->tail, r->tail + keep, sizeof r->tail - keep);
    memcpy(r->tail + sizeof r->tail - keep, p + n - keep, keep);
    if (r->cur.rec.type != TU_REC_INDEX || !compares_index(r))
        return 0;
    const char *expect = r->seg.entry.data + at;
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)expect[i])
            return tu_fail_at(&r->err, TU_EINDEX, r->cur.rec.header_len + at + i,
                              "entry %" PRIu64 " of INDEX disagrees with its record",
                              (at + i) / TUI_INDEX_ENTRY);
    return 0;
}

static int truncated(struct tu_reader *r, uint64_t missing)
{
    const struct tu_record *rec = &r->cur.rec;
    return tu_fail_at(&r->err, TU_ETRUNC, rec->header_len + rec->payload_len - missing,
                      "ends inside the payload, %" PRIu64 " of %" PRIu64
                      " bytes are missing",
                      missing, rec->payload_len);
}

/* n ≤ r->left bytes into buf. Big pieces of files are read and summed by all threads. */
static int take(struct tu_reader *r, unsigned char *buf, size_t n)
{
    int rc;
    size_t got = n;
    if (n >= 2 * TUI_BLOCK && tu_pool_size(r->pool) > 1 && tui_reader_rest(r) >= n) {
        uint64_t skipped;
        rc = tui_sum(r->in, tu_in_pos(r->in), n, buf, NULL, r->pool, &r->crc, &r->err);
        if (!rc)
            rc = tu_in_skip(r->in, n, &skipped, &r->err);
    } else {
        rc = tu_in_read(r->in, buf, n, &got, &r->err);
        if (!rc)
            r->crc = tu_crc32_pool(r->crc, buf, got, r->pool);
    }
    if (rc)
        return rc;
    if (got < n)
        return truncated(r, r->left - got);
    rc = see(r, buf, n);
    r->left -= n;
    tell(r);
    return rc;
}

/* Read on and throw away all but the last bytes, which `see` must see. */
static int skip_by_sum(struct tu_reader *r)
{
    const uint64_t step = (uint64_t)512 << 20; /* between two reports */
    int rc = 0;
    while (!rc && r->left > sizeof r->tail) {
        const uint64_t bulk = tu_min(step, r->left - sizeof r->tail);
        uint64_t skipped;
        rc = tui_sum(r->in, tu_in_pos(r->in), bulk, NULL, r->scratch, r->pool, &r->crc,
                     &r->err);
        if (!rc)
            rc = tu_in_skip(r->in, bulk, &skipped, &r->err);
        r->left -= rc ? 0 : bulk;
        tell(r);
    }
    return rc;
}

static int skip_payload(struct tu_reader *r)
{
    if (!r->left)
        return 0;
    const bool file = tu_in_seekable(r->in);
    const bool ordered = r->cur.rec.type == TU_REC_INDEX && compares_index(r);
    if (file && tui_reader_rest(r) < r->left)
        return truncated(r, r->left - tui_reader_rest(r));
    if (file && r->flags & TU_READER_NOVERIFY && !ordered) {
        uint64_t skipped;
        int rc = tu_in_skip(r->in, r->left, &skipped, &r->err);
        if (!rc && skipped < r->left)
            return truncated(r, r->left - skipped);
        r->left = 0;
        r->whole = false;
        return rc;
    }
    if (!r->scratch) {
        r->scratch = tu_alloc(tu_pool_size(r->pool), TUI_BLOCK, &r->err);
        if (!r->scratch)
            return TU_ENOMEM;
    }
    int rc = file && !ordered && r->left > TUI_BLOCK ? skip_by_sum(r) : 0;
    while (!rc && r->left)
        rc = take(r, r->scratch,
                  (size_t)tu_min(r->left, tu_pool_size(r->pool) * TUI_BLOCK));
    return rc;
}

/* Bits of the last block behind the last element (tns-check). */
static int check_unused(struct tu_reader *r)
{
    const struct tu_record *rec = &r->cur.rec;
    const struct tu_dtype *d = tu_dtype_find(rec->dtype);
    uint64_t elements;
    if (!(r->flags & TU_READER_STRICT) || !r->whole || rec->type != TU_REC_TENSOR || !d ||
        d->block_elems == 1 || d->code >= TU_DTYPE_GGML)
        return 0;
    int rc = tu_elements(rec->word, rec->nwords, &elements, &r->err);
    if (rc)
        return rc;
    const unsigned bits = d->block_bytes * 8u / d->block_elems;
    const unsigned used = (unsigned)(elements % d->block_elems) * bits;
    const unsigned char *block = r->tail + sizeof r->tail - d->block_bytes;
    for (unsigned b = used; used && b < d->block_bytes * 8u; b++)
        if (block[b / 8] >> b % 8 & 1)
            return tu_fail_at(&r->err, TU_EPAD, rec->header_len + rec->payload_len - 1,
                              "unused bits of the last %s block are not zero", d->name);
    return 0;
}

/* Payload read: padding and trailer; then the record is in the books. */
static int close_record(struct tu_reader *r)
{
    struct tu_record *rec = &r->cur.rec;
    unsigned char rest[TU_STREAM_ALIGN + TUI_TRAILER];
    int rc = 0;
    if (rec->payload_len) {
        const size_t n = tui_padding(rec->payload_len) + TUI_TRAILER;
        size_t got;
        if ((rc = tu_in_read(r->in, rest, n, &got, &r->err)))
            return rc;
        if (got < n)
            return tu_fail_at(&r->err, TU_ETRUNC,
                              rec->header_len + rec->payload_len + got,
                              "ends inside the trailer of a payload");
        rc = tui_trailer_check(rec, rest, r->whole ? &r->crc : NULL, &r->err);
        rec->payload_crc = tu_le32(rest + n - TUI_TRAILER);
        r->framed = rc != TU_EFRAME;
    }
    if (!rc)
        rc = check_unused(r);
    if (!rc && rec->type == TU_REC_INDEX)
        rc = check_index(r);
    if (!rc)
        rc = tui_segment_add(&r->seg, rec, &r->err);
    r->open = false;
    return rc;
}

/* Records ---------------------------------------------------------------------------- */

/* One step to the next record of whatever type; cur is set unless the input ended. */
static int advance(struct tu_reader *r, struct tu_err *err)
{
    if (r->open && (skip_payload(r) || close_record(r)))
        return stick_here(r, err);
    r->framed = false;
    uint32_t len;
    if (r->at != TUI_AT_START)
        r->number++;
    if (read_header(r, &len))
        return stick(r, NULL, r->next, err);
    if (!len)
        return 0;
    if (tui_head_finish(&r->cur, (unsigned char *)r->head.data, len, &r->err))
        return stick(r, NULL, r->next, err);
    struct tu_record *rec = &r->cur.rec;
    rec->offset = r->next;
    rec->segment = r->seg.number;
    r->at = TUI_AT_RECORDS;
    r->left = rec->payload_len;
    r->crc = 0;
    r->whole = true;
    r->next += len + tui_body(rec->payload_len); /* < 2^64: bytes read, and one payload */
    r->open = rec->type != TU_REC_END;
    if (check_ancillary(r) || (!r->open && end_segment(r)))
        return stick_here(r, err);
    return 0;
}

int tu_reader_next(struct tu_reader *r, const struct tu_record **rec, struct tu_err *err)
{
    *rec = NULL;
    if (r->err.code)
        return again(r, err);
    if (r->at == TUI_AT_EOF)
        return 0;
    do {
        int rc = advance(r, err);
        if (rc)
            return rc;
        if (r->at == TUI_AT_EOF)
            return 0;
    } while (!TU_REC_COPIES(r->cur.rec.type) && !(r->flags & TU_READER_STRICT));
    *rec = &r->cur.rec;
    return 0;
}

int tu_reader_read(struct tu_reader *r, void *buf, size_t n, size_t *got,
                   struct tu_err *err)
{
    *got = 0;
    if (r->err.code)
        return again(r, err);
    if (!r->open || !n)
        return 0;
    n = (size_t)tu_min(n, r->left);
    if (n ? take(r, buf, n) : close_record(r))
        return stick_here(r, err);
    *got = n;
    return 0;
}

int tu_reader_skip(struct tu_reader *r, struct tu_err *err)
{
    if (r->err.code)
        return again(r, err);
    return r->open && (skip_payload(r) || close_record(r)) ? stick_here(r, err) : 0;
}

/* Memory for the rest of a payload: at once where the file is seen to hold it, else
 * doubled as it arrives. */
static int grow_load(struct tu_reader *r, unsigned char **data, uint64_t have,
                     uint64_t *cap, struct tu_err *err)
{
    const uint64_t want = have + r->left;
    uint64_t size = *cap ? *cap * 2 : LOAD_STEP;
    if (tui_reader_rest(r) >= r->left || size > want)
        size = want;
    if (size > SIZE_MAX)
        return tu_fail(err, TU_ENOMEM, "out of memory");
    unsigned char *more = tu_alloc((size_t)size, 1, err);
    if (!more)
        return TU_ENOMEM;
    if (have)
        memcpy(more, *data, (size_t)have);
    tu_free(*data);
    *data = more;
    *cap = size;
    return 0;
}

int tu_reader_load(struct tu_reader *r, uint64_t max, void **data, struct tu_err *err)
{
    unsigned char *p = NULL;
    uint64_t have = 0, cap = 0;
    size_t got;
    int rc = 0;
    *data = NULL;
    if (!r->err.code && r->open && r->left > max) {
        struct tu_err over;
        tu_fail_at(&over, TU_ELIMIT, r->cur.rec.header_len,
                   "payload of %" PRIu64 " bytes, at most %" PRIu64
                   " are taken into memory",
                   r->left, max);
        tui_blame(&over, tu_in_name(r->in), r->number, r->cur.rec.offset, &r->cur.rec);
        if (err)
            *err = over;
        return TU_ELIMIT;
    }
    do {
        if (have == cap && (!p || r->left))
            rc = grow_load(r, &p, have, &cap, err);
        if (!rc)
            rc = tu_reader_read(r, p + have, (size_t)tu_max(cap - have, 1), &got, err);
        have += rc ? 0 : got;
    } while (!rc && got);
    if (rc)
        tu_free(p);
    else
        *data = p;
    return rc;
}

void tu_record_tensor(const struct tu_record *rec, struct tu_tensor *out)
{
    *out = (struct tu_tensor){
        .name = rec->name,
        .dtype = rec->dtype,
        .rank = rec->nwords,
        .dim = rec->word,
        .bytes = rec->payload_len,
        .meta = rec->meta_len ? rec->meta : NULL,
    };
}
