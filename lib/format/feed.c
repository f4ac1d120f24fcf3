/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c: the records of any file, in order, to who does not care what the file is.
 *
 * A stream passes by once, through its reader. What is read by position (a source of
 * another format, joined pieces, the index of a stream whose tensors come in another
 * order) is a list of places behind one small access. Either way a payload goes through
 * the caller's buffer, and a checksum that the file stores is compared before the next
 * record is given. */
#include <stdlib.h>
#include <sys/stat.h>
#include "kit.h"
#include "rows.h"

/* A record that is read by position. */
struct place {
    uint64_t segment;
    size_t group; /* 0: not a tensor; 1 …: patterns; last: the rest */
    size_t record;
};

struct tu_feed {
    const struct tu_job *job;
    char *name;
    uint64_t bytes;
    struct tu_reader *reader; /* a stream that passes by, or … */
    const struct access *by;
    struct tu_stream_index *index; /* … one by position, or … */
    struct tu_source *source;      /* … any file */
    struct place *place;           /* [n] in the order in which they are given */
    size_t n, at;
    uint64_t segment, segments;
    /* The record at hand, by position: */
    struct tu_record rec;
    size_t record;
    uint64_t pos;
    uint32_t crc;
    bool verified;
};

/* How records are read by position; f->record says which. */
struct access {
    size_t (*count)(const struct tu_feed *f);
    uint64_t (*segments)(const struct tu_feed *f);
    int (*describe)(struct tu_feed *f, struct tu_err *err); /* fills f->rec */
    int (*read)(struct tu_feed *f, void *buf, size_t n, struct tu_err *err);
    /* Is there a checksum of just the payload, to be compared with f->crc by `check`? If
     * not, `verify` does what the format can before the first byte. */
    bool (*summed)(const struct tu_feed *f);
    int (*verify)(struct tu_feed *f, struct tu_err *err);
    int (*check)(struct tu_feed *f, struct tu_err *err);
};

static struct tu_pool *pool_of(const struct tu_feed *f)
{
    return f->job ? f->job->pool : NULL;
}

/* sources: META first, then the tensors -------------------------------------------------------- */

static size_t source_count(const struct tu_feed *f)
{
    return f->source->metas + f->source->n;
}

static uint64_t source_segments(const struct tu_feed *f)
{
    (void)f;
    return 1;
}

static size_t tensor_of(const struct tu_feed *f)
{
    return f->record - f->source->metas;
}

static int source_describe(struct tu_feed *f, struct tu_err *err)
{
    const struct tu_source *s = f->source;
    (void)err;
    if (f->record < s->metas) {
        const struct tu_meta *m = &s->meta[f->record];
        f->rec = (struct tu_record){ .type = TU_REC_META, .name = m->topic,
                                     .name_len = strlen(m->topic), .meta = m->json,
                                     .meta_len = m->n };
        return 0;
    }
    const size_t i = tensor_of(f);
    tu_record_of(&f->rec, &s->tensor[i]);
    f->rec.offset = s->extent && s->extent[i].in ? s->extent[i].off : 0;
    return 0;
}

static int source_read(struct tu_feed *f, void *buf, size_t n, struct tu_err *err)
{
    return tu_source_read(f->source, tensor_of(f), f->pos, buf, n, err);
}

static bool source_summed(const struct tu_feed *f)
{
    return tui_has_crc(f->source, tensor_of(f));
}

static int source_verify(struct tu_feed *f, struct tu_err *err)
{
    return tu_source_verify(f->source, tensor_of(f), pool_of(f), err);
}

static int source_check(struct tu_feed *f, struct tu_err *err)
{
    return tui_check_crc(f->source, tensor_of(f), f->crc, err);
}

static const struct access by_source = { source_count,  source_segments, source_describe,
                                         source_read,   source_summed,   source_verify,
                                         source_check };

/* the index of a stream ------------------------------------------------------------------------ */

static size_t index_count(const struct tu_feed *f)
{
    return tu_index_count(f->index);
}

static uint64_t index_segments(const struct tu_feed *f)
{
    return tu_index_segments(f->index);
}

static int index_describe(struct tu_feed *f, struct tu_err *err)
{
    const struct tu_index_entry *e = tu_index_entry(f->index, f->record);
    if (e->type != TU_REC_TENSOR && e->type != TU_REC_META)
        return tu_fail_at(err, TU_EUNSUP, e->offset, "%s: byte %llu: records of the unknown type "
                          "%#x cannot be put in order", f->name, (unsigned long long)e->offset,
                          (unsigned)e->type);
    tu_record_of(&f->rec, &e->tensor);
    f->rec.type = e->type;
    f->rec.offset = e->offset;
    f->rec.segment = e->segment;
    f->rec.payload_crc = e->payload_crc;
    return 0;
}

static int index_read(struct tu_feed *f, void *buf, size_t n, struct tu_err *err)
{
    return tu_index_read(f->index, f->record, f->pos, buf, n, err);
}

static bool index_summed(const struct tu_feed *f)
{
    (void)f;
    return true;
}

static int index_check(struct tu_feed *f, struct tu_err *err)
{
    char name[88];
    if (f->crc == f->rec.payload_crc)
        return 0;
    return tu_fail_at(err, TU_EPCRC, f->rec.offset, "%s: '%s' at byte %llu: payload checksum "
                      "mismatch (stored %08x, computed %08x)", f->name,
                      tu_text_short(f->rec.name, f->rec.name_len, name),
                      (unsigned long long)f->rec.offset, (unsigned)f->rec.payload_crc,
                      (unsigned)f->crc);
}

static const struct access by_index = { index_count,  index_segments, index_describe,
                                        index_read,   index_summed,   NULL,
                                        index_check };

/* order ---------------------------------------------------------------------------------------- */

static int compare(const void *pa, const void *pb)
{
    const struct place *a = pa, *b = pb;
    if (a->segment != b->segment)
        return a->segment < b->segment ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return (a->record > b->record) - (a->record < b->record);
}

static int find_group(size_t *group, const struct tu_record *rec, const struct tu_feed_how *how,
                      struct tu_err *err)
{
    bool yes = false;
    *group = 0;
    if (rec->type != TU_REC_TENSOR)
        return 0;
    for (size_t i = 0; !yes && i < how->orders; i++) {
        int code = tu_pattern_match(how->order[i], rec->name, rec->name_len, NULL, &yes, err);
        if (code)
            return code;
        ++*group;
    }
    *group += !yes;
    return 0;
}

static int lay_out(struct tu_feed *f, const struct access *by, const struct tu_feed_how *how,
                   struct tu_err *err)
{
    f->by = by;
    f->n = by->count(f);
    f->segments = by->segments(f);
    f->place = tu_alloc(f->n, sizeof *f->place, err);
    int code = f->place ? 0 : TU_ENOMEM;
    for (f->record = 0; !code && f->record < f->n; f->record++) {
        struct place *p = &f->place[f->record];
        code = by->describe(f, err);
        if (!code)
            code = find_group(&p->group, &f->rec, how, err);
        p->segment = f->rec.segment;
        p->record = f->record;
        f->bytes += f->rec.payload_len;
    }
    if (!code)
        qsort(f->place, f->n, sizeof *f->place, compare);
    return code;
}

/* opening -------------------------------------------------------------------------------------- */

/* in, format: NULL for a folder, which is sniffed by tu_source_open. */
static int open_source(struct tu_feed *f, const char *path, struct tu_in *in,
                       const struct tu_format *format, const struct tu_feed_how *how,
                       struct tu_err *err)
{
    struct tu_open open = how->open;
    open.in = in;
    if (format == &tui_format_tns)
        open.no_crc = false;
    int code = tu_source_open(&f->source, path, format, &open, f->job, err);
    if (!code && how->join) {
        struct tu_source *pieces = f->source;
        f->source = NULL;
        code = tu_source_join(&pieces, pieces, err);
        f->source = code ? NULL : pieces;
    }
    if (!code && how->view)
        code = how->view(how->ctx, &f->source, err);
    return code ? code : lay_out(f, &by_source, how, err);
}

static int open_index(struct tu_feed *f, struct tu_in *in, const struct tu_feed_how *how,
                      struct tu_err *err)
{
    if (!tu_in_seekable(in)) {
        struct tu_in *whole = NULL;
        int code = tu_in_spool(&whole, in, how->open.folder, err);
        tu_in_close(in);
        if (code)
            return code;
        in = whole;
    }
    int code = tu_index_open(&f->index, in, err);
    return code ? code : lay_out(f, &by_index, how, err);
}

/* What a file looks like. Standard input and pipes are streams, and so is what nobody knows
 * and begins as they do: the reader says best what is wrong with it. */
static int look(const struct tu_format **format, struct tu_in *in, bool named,
                struct tu_err *err)
{
    unsigned char head[TUI_SNIFF];
    size_t n = 0;
    *format = NULL;
    if (named && tu_in_seekable(in)) {
        int code = tu_in_peek(in, head, sizeof head, &n, err);
        if (code)
            return code;
        *format = tui_format_sniff(tu_in_name(in), false, head, n);
        if (!*format && n && head[0] != (unsigned char)TU_STREAM_MAGIC[0])
            return tui_format_unknown(tu_in_name(in), head, n, err);
    }
    if (!*format)
        *format = &tui_format_tns;
    return 0;
}

static int open_file(struct tu_feed *f, const char *path, const struct tu_feed_how *how,
                     struct tu_err *err)
{
    const bool named = strcmp(path, "-");
    const struct tu_format *format;
    struct tu_in *in = NULL;
    struct stat st;
    if (named && !stat(path, &st) && S_ISDIR(st.st_mode)) {
        f->name = tu_strdup(path, err);
        return f->name ? open_source(f, path, NULL, NULL, how, err) : TU_ENOMEM;
    }
    int code = tu_in_open(&in, path, err);
    if (code)
        return code;
    f->name = tu_strdup(tu_in_name(in), err);
    code = f->name ? look(&format, in, named, err) : TU_ENOMEM;
    if (code) {
        tu_in_close(in);
        return code;
    }
    if (how->join || format != &tui_format_tns)
        return open_source(f, path, in, format, how, err);
    if (how->orders)
        return open_index(f, in, how, err);
    f->bytes = tu_in_size(in);
    return tu_reader_new(&f->reader, in, how->headers ? TU_READER_NOVERIFY : 0, pool_of(f), err);
}

int tu_feed_open(struct tu_feed **out, const char *path, const struct tu_feed_how *how,
                 const struct tu_job *job, struct tu_err *err)
{
    struct tu_feed *f = tu_calloc(1, sizeof *f, err);
    if (!f)
        return TU_ENOMEM;
    f->job = job;
    int code = open_file(f, path, how ? how : &(struct tu_feed_how){ 0 }, err);
    if (code)
        tu_feed_close(f);
    else
        *out = f;
    return code;
}

void tu_feed_close(struct tu_feed *f)
{
    if (!f)
        return;
    tu_reader_free(f->reader);
    tu_index_close(f->index);
    tu_source_close(f->source);
    tu_free(f->place);
    tu_free(f->name);
    tu_free(f);
}

const char *tu_feed_name(const struct tu_feed *f)
{
    return f->name;
}

const struct tu_source *tu_feed_source(const struct tu_feed *f)
{
    return f->source;
}

uint64_t tu_feed_bytes(const struct tu_feed *f)
{
    return f->bytes;
}

/* records -------------------------------------------------------------------------------------- */

int tu_feed_next(struct tu_feed *f, const struct tu_record **rec, struct tu_err *err)
{
    if (f->reader)
        return tu_reader_next(f->reader, rec, err);
    *rec = &f->rec;
    f->pos = 0;
    f->crc = 0;
    f->verified = false;
    if (f->at < f->n && f->place[f->at].segment == f->segment) {
        f->record = f->place[f->at++].record;
        return f->by->describe(f, err);
    }
    if (f->segment < f->segments)
        f->rec = (struct tu_record){ .type = TU_REC_END, .segment = f->segment++ };
    else
        *rec = NULL;
    return 0;
}

int tu_feed_rewind(struct tu_feed *f, struct tu_err *err)
{
    if (f->reader)
        return tu_fail(err, TU_EUSAGE, "%s: a stream that passes by is read once", f->name);
    f->pos = 0;
    f->crc = 0;
    return 0;
}

/* The next bytes by position. part, unless NULL, gets their own checksum. */
static int take(struct tu_feed *f, void *buf, size_t n, size_t *got, uint32_t *part,
                struct tu_err *err)
{
    *got = (size_t)tu_min(n, f->rec.payload_len - f->pos);
    if (!*got)
        return 0;
    const bool summed = f->by->summed(f);
    int code = summed || f->verified ? 0 : f->by->verify(f, err);
    f->verified = true;
    if (!code)
        code = f->by->read(f, buf, *got, err);
    if (code)
        return code;
    if (part) {
        *part = tu_crc32_pool(0, buf, *got, pool_of(f));
        f->crc = tu_crc32_combine(f->crc, *part, *got);
    } else if (summed) {
        f->crc = tu_crc32_pool(f->crc, buf, *got, pool_of(f));
    }
    f->pos += *got;
    return summed && f->pos == f->rec.payload_len ? f->by->check(f, err) : 0;
}

int tu_feed_read(void *feed, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    struct tu_feed *f = feed;
    return f->reader ? tu_reader_read(f->reader, buf, n, got, err)
                     : take(f, buf, n, got, NULL, err);
}

int tu_feed_copy(struct tu_feed *f, struct tu_writer *w, struct tu_err *err)
{
    if (f->reader)
        return tu_writer_copy(w, f->reader, err);
    int code = tu_writer_record(w, &f->rec, err);
    char *buf = tu_alloc((size_t)tu_min(TUI_WINDOW, f->rec.payload_len), 1, err);
    if (!buf)
        code = TU_ENOMEM;
    while (!code) {
        size_t got;
        uint32_t crc;
        code = take(f, buf, TUI_WINDOW, &got, &crc, err);
        if (code || !got)
            break;
        code = tu_writer_write_crc(w, buf, got, crc, err);
    }
    tu_free(buf);
    return code;
}
