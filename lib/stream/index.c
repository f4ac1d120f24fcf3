/* SPDX-License-Identifier: Apache-2.0 */
/* index.c: random access to a stream in a file.
 *
 * Opening hops from header to header with the sequential reader, which seeks over the
 * payloads. Names and shapes stand in the headers, so each has to be read whether there
 * is an INDEX or not; an INDEX is therefore compared with what is found and never
 * believed: a file cannot show one list of tensors here and another to who reads it from
 * the front. After that, positional reads. */
#include <inttypes.h>
#include "reader.h"

struct item {
    struct tu_index_entry entry;
    uint64_t number; /* of the record in the stream, for messages */
    uint32_t header_len, header_crc;
};

struct tu_stream_index {
    struct tu_in *in;
    struct tu_arena *arena; /* texts and dimensions */
    struct item *item;
    size_t n, cap;
    uint64_t segments;
};

/* Copy what the reader lends. */
static int add(struct tu_stream_index *x, const struct tu_reader *r,
               const struct tu_record *rec, struct tu_err *err)
{
    int rc = TU_GROW(&x->item, &x->cap, x->n, err);
    if (rc)
        return rc;
    struct item *it = &x->item[x->n];
    uint64_t *dim =
        tu_arena_alloc(x->arena, rec->nwords ? rec->nwords : 1, sizeof *dim, err);
    char *name = tu_arena_text(x->arena, rec->name, rec->name_len, err);
    char *meta =
        rec->meta_len ? tu_arena_text(x->arena, rec->meta, rec->meta_len, err) : NULL;
    if (!dim || !name || (rec->meta_len && !meta))
        return TU_ENOMEM;
    if (rec->nwords)
        memcpy(dim, rec->word, rec->nwords * sizeof *dim);
    *it = (struct item){.number = r->number,
                        .header_len = rec->header_len,
                        .header_crc = rec->header_crc};
    tu_record_tensor(rec, &it->entry.tensor);
    it->entry.tensor.name = name;
    it->entry.tensor.meta = meta;
    it->entry.tensor.dim = dim;
    it->entry.type = rec->type;
    it->entry.segment = rec->segment;
    it->entry.offset = rec->offset;
    it->entry.payload = rec->offset + rec->header_len;
    it->entry.payload_len = rec->payload_len;
    it->entry.payload_crc = rec->payload_crc;
    x->n++;
    return 0;
}

static int collect(struct tu_stream_index *x, struct tu_reader *r, struct tu_err *err)
{
    const struct tu_record *rec;
    int rc;
    while (!(rc = tu_reader_next(r, &rec, err)) && rec) {
        x->segments = rec->segment + 1;
        if (rec->type == TU_REC_END)
            continue;
        if ((rc = tu_reader_skip(r, err)) || (rc = add(x, r, rec, err)))
            return rc;
    }
    return rc;
}

int tu_index_open(struct tu_stream_index **out, struct tu_in *in, struct tu_err *err)
{
    struct tu_reader *r;
    *out = NULL;
    if (!tu_in_seekable(in)) {
        int rc = tu_fail(err, TU_EUSAGE, "%s: random access needs a file, not a pipe",
                         tu_in_name(in));
        tu_in_close(in);
        return rc;
    }
    int rc = tu_reader_new(&r, in, TU_READER_NOVERIFY, NULL, err);
    if (rc)
        return rc;
    r->seg.list = true;
    struct tu_stream_index *x = tu_calloc(1, sizeof *x, err);
    rc = x && (x->arena = tu_arena_new(err)) ? collect(x, r, err) : TU_ENOMEM;
    if (!rc) {
        x->in = in;
        r->in = NULL;
        *out = x;
    } else {
        tu_index_close(x);
    }
    tu_reader_free(r);
    return rc;
}

void tu_index_close(struct tu_stream_index *x)
{
    if (!x)
        return;
    tu_in_close(x->in);
    tu_arena_free(x->arena);
    tu_free(x->item);
    tu_free(x);
}

size_t tu_index_count(const struct tu_stream_index *x)
{
    return x->n;
}

const struct tu_index_entry *tu_index_entry(const struct tu_stream_index *x, size_t i)
{
    return i < x->n ? &x->item[i].entry : NULL;
}

uint64_t tu_index_segments(const struct tu_stream_index *x)
{
    return x->segments;
}

int tu_index_read(const struct tu_stream_index *x, size_t i, uint64_t off, void *buf,
                  size_t n, struct tu_err *err)
{
    if (i >= x->n || off > x->item[i].entry.payload_len ||
        n > x->item[i].entry.payload_len - off)
        return tu_fail(err, TU_EBUG, "%s: read outside of a payload", tu_in_name(x->in));
    return tu_in_pread(x->in, x->item[i].entry.payload + off, buf, n, err);
}

/* Payload, padding and trailer of an item against each other. */
static int verify(const struct tu_stream_index *x, const struct item *it,
                  struct tu_pool *pool, struct tu_err *err)
{
    const struct tu_index_entry *e = &it->entry;
    const struct tu_record rec = {.header_len = it->header_len,
                                  .header_crc = it->header_crc,
                                  .payload_len = e->payload_len};
    unsigned char rest[TU_STREAM_ALIGN + TUI_TRAILER];
    uint32_t crc = 0;
    void *scratch = tu_alloc(tu_pool_size(pool), TUI_BLOCK, err);
    if (!scratch)
        return TU_ENOMEM;
    int rc = tui_sum(x->in, e->payload, e->payload_len, NULL, scratch, pool, &crc, err);
    tu_free(scratch);
    if (!rc)
        rc = tu_in_pread(x->in, e->payload + e->payload_len, rest,
                         tui_padding(e->payload_len) + TUI_TRAILER, err);
    return rc ? rc : tui_trailer_check(&rec, rest, &crc, err);
}

int tu_index_verify(const struct tu_stream_index *x, size_t i, struct tu_pool *pool,
                    struct tu_err *err)
{
    if (i >= x->n)
        return tu_fail(err, TU_EBUG, "%s: no record %zu", tu_in_name(x->in), i);
    const struct item *it = &x->item[i];
    if (!it->entry.payload_len)
        return 0;
    struct tu_err why;
    int rc = verify(x, it, pool, &why);
    if (!rc)
        return 0;
    const struct tu_record named = {.name = it->entry.tensor.name,
                                    .name_len = strlen(it->entry.tensor.name)};
    tui_blame(&why, tu_in_name(x->in), it->number, it->entry.offset, &named);
    if (err)
        *err = why;
    return rc;
}
