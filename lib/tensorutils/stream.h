/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h: the tensor stream, version 1: what commands exchange over files and pipes.
 *
 * A stream is segments; a segment is records and then END (tensor-stream(5)). Reading and
 * writing are chunked: a payload passes through the caller's buffer and never has to fit
 * in memory.
 *
 * Unverified bytes. A payload's checksum stands behind it, so a filter acts on bytes that
 * are not yet proven. It relies on the rule "no END, no rename": the reader reports the
 * mismatch before it gives the next record, the filter then must not write its own END
 * (tu_writer_abort), and what reads the filter's output fails too. Whoever acts outside
 * the stream (deletes, publishes) reads to END first. */
#ifndef TENSORUTILS_STREAM_H
#define TENSORUTILS_STREAM_H

#include "core.h"
#include "stream/edit.h"
#include "stream/gen.h"

TU_BEGIN

#define TU_STREAM_MAGIC "\x89TNS\r\n\x1a\n"
#define TU_STREAM_ALIGN 64

enum tu_record_type {
    TU_REC_TENSOR = 0x0001,
    TU_REC_END = 0x0002,
    TU_REC_META = 0x8001,
    TU_REC_INDEX = 0xC001,
    TU_REC_PAD = 0xC002,
};
/* 0x8000-0xBFFF pass through filters unchanged; 0xC000 and above are not copied. */
#define TU_REC_COPIES(type) ((type) < 0xC000u)
#define TU_REC_ANCILLARY(type) ((type) >= 0x8000u)

/* One record's header. Texts and dim are NUL-ended or counted and borrowed: a reader's
 * stay valid until the next tu_reader_next. */
struct tu_record {
    uint16_t type;
    uint16_t flags;
    uint32_t nwords;      /* rank of a TENSOR */
    const uint64_t *word; /* its shape; END: records, bytes, index_back, digest */
    const char *name;
    size_t name_len;
    const char *meta;     /* JSON object; meta_len 0: none */
    size_t meta_len;
    uint32_t dtype, block_elems, block_bytes;
    uint64_t payload_len;
    /* Known after reading: */
    uint64_t offset;      /* of the record from the stream's start */
    uint64_t segment;     /* 0, 1, … */
    uint32_t header_len;
    uint32_t header_crc;
    uint32_t payload_crc; /* valid once the payload has been read or skipped */
};

/* A TENSOR record's description as core's tensor; borrows from rec. */
TU_API void tu_record_tensor(const struct tu_record *rec, struct tu_tensor *out);
/* A record to write from a description; borrows from t. */
TU_API void tu_record_of(struct tu_record *out, const struct tu_tensor *t);
/* The header of rec as it stands in a stream, in place of what `out` held; header_len and
 * header_crc of rec are filled in. For who lays records out before their payloads are
 * known; all others use a tu_writer. Errors: those of tu_writer_record. */
TU_API TU_MUST int tu_record_encode(struct tu_buf *out, struct tu_record *rec,
                                    struct tu_err *err);

/* Where a tensor belongs, by its metadata `shard` or `flat` (tensor-stream(5)). */
enum tu_region_kind {
    TU_REGION_WHOLE, /* it has neither; the rest of the region is not set */
    TU_REGION_BOX,   /* elements off … off+len-1 of each dimension of global */
    TU_REGION_FLAT,  /* elements off[0] … off[0]+len[0]-1 of global in C order */
};
#define TU_REGION_OPEN UINT64_MAX /* a global dimension that its producer did not know */
struct tu_region {
    enum tu_region_kind kind;
    bool partial;  /* one of the terms of a sum (shard.partial) */
    unsigned rank; /* of the whole */
    uint64_t global[TU_RANK_MAX], off[TU_RANK_MAX], len[TU_RANK_MAX];
};
/* Errors: TU_ESHARD where it breaks a rule or lies outside the whole, TU_EMETA. */
TU_API TU_MUST int tu_region_of(struct tu_region *out, const struct tu_tensor *t,
                                struct tu_err *err);

/* Reading ---------------------------------------------------------------------------- */

struct tu_reader;

enum tu_reader_flags {
    /* The extra rules of tns-check: PAD bodies, unused bits, INDEX contents. */
    TU_READER_STRICT = 1,
    /* Do not compute checksums of payloads of files that are skipped. */
    TU_READER_NOVERIFY = 2,
};

/* Takes `in` over (closed by tu_reader_free, and on failure). pool may be NULL. */
TU_API TU_MUST int tu_reader_new(struct tu_reader **out, struct tu_in *in, unsigned flags,
                                 struct tu_pool *pool, struct tu_err *err);
TU_API void tu_reader_free(struct tu_reader *r);
/* The next record. What is left of the payload of the one before is read and checked
 * first. *rec is NULL at the end of the stream, which is legal only after END. END
 * records are given too (they show where segments end); INDEX and PAD are not, except
 * with TU_READER_STRICT. Errors: every stream code of err.h with the byte offset, TU_EIO,
 * TU_ENOMEM. After an error the reader only repeats it. */
TU_API TU_MUST int tu_reader_next(struct tu_reader *r, const struct tu_record **rec,
                                  struct tu_err *err);
/* Up to n bytes of the payload; *got = 0 when it is finished (and its checksum was
 * right). */
TU_API TU_MUST int tu_reader_read(struct tu_reader *r, void *buf, size_t n, size_t *got,
                                  struct tu_err *err);
/* What is left of the payload, read and checked: rec->payload_crc is then known. */
TU_API TU_MUST int tu_reader_skip(struct tu_reader *r, struct tu_err *err);
/* Whole payload of the record at hand into memory (tu_free), at most `max` bytes
 * (TU_ELIMIT); the memory grows as bytes arrive. */
TU_API TU_MUST int tu_reader_load(struct tu_reader *r, uint64_t max, void **data,
                                  struct tu_err *err);
TU_API const char *tu_reader_name(const struct tu_reader *r);
/* Bytes of the stream read so far. */
TU_API uint64_t tu_reader_pos(const struct tu_reader *r);
/* Tell the job's progress how far reading is: `before` bytes of other inputs and those of this one,
 * of `total` (0: not known). The job outlives the reader. */
TU_API void tu_reader_watch(struct tu_reader *r, const struct tu_job *job, uint64_t before,
                            uint64_t total);
/* After an error: look for the next header that can be believed, at multiples of 64 behind
 * the record that failed; *found says whether there is one, *skipped how many bytes the
 * failed record and the gap take. The END of a segment with a gap is not compared. For
 * tns-check --recover only. TU_EUSAGE for a pipe. */
TU_API TU_MUST int tu_reader_recover(struct tu_reader *r, bool *found, uint64_t *skipped,
                                     struct tu_err *err);

/* Writing ---------------------------------------------------------------------------- */

struct tu_writer;

/* Takes `out` over. */
TU_API TU_MUST int tu_writer_new(struct tu_writer **w, struct tu_out *out,
                                 struct tu_err *err);
/* Begin a record: header now, payload by tu_writer_write, until the next record or END.
 * type, flags, name, meta (canonicalised by the caller), word, dtype and block are read
 * from rec and checked as a reader checks them; what rec points to may go away after the
 * call. Errors: TU_ENAME, TU_EDTYPE, TU_ESIZE, TU_EMETA, TU_ESHARD, TU_ELIMIT, TU_EIO. */
TU_API TU_MUST int tu_writer_record(struct tu_writer *w, const struct tu_record *rec,
                                    struct tu_err *err);
/* Bytes of the payload; together they must be payload_len (checked when the record is
 * closed). */
TU_API TU_MUST int tu_writer_write(struct tu_writer *w, const void *p, size_t n,
                                   struct tu_err *err);
/* The same when the caller already has the CRC-32 of exactly these n bytes. */
TU_API TU_MUST int tu_writer_write_crc(struct tu_writer *w, const void *p, size_t n,
                                       uint32_t crc, struct tu_err *err);
/* The record that r stands at, its payload not yet read: header byte for byte, payload
 * copied and verified on the way. For types that copy. */
TU_API TU_MUST int tu_writer_copy(struct tu_writer *w, struct tu_reader *r,
                                  struct tu_err *err);
/* A tensor that is in memory. */
TU_API TU_MUST int tu_writer_tensor(struct tu_writer *w, const struct tu_tensor *t,
                                    const void *data, struct tu_err *err);
/* META record: topic ("" general), canonical JSON object. */
TU_API TU_MUST int tu_writer_meta(struct tu_writer *w, const char *topic,
                                  const char *json, size_t n, struct tu_err *err);
/* PAD so that the payload of `next` starts at a multiple of align, a power of two ≥ 64. */
TU_API TU_MUST int tu_writer_align(struct tu_writer *w, const struct tu_record *next,
                                   uint64_t align, struct tu_err *err);
/* END of the segment, with an INDEX before it when asked. Another segment may follow. */
TU_API TU_MUST int tu_writer_end(struct tu_writer *w, bool index, struct tu_err *err);
TU_API struct tu_out *tu_writer_out(struct tu_writer *w); /* borrowed */
TU_API uint64_t tu_writer_pos(const struct tu_writer *w);
/* Commit the output (rename) and free. TU_EBUG if a segment is open. */
TU_API TU_MUST int tu_writer_close(struct tu_writer *w, bool durable, struct tu_err *err);
/* Give up: no END; where an END was already written, the 8 magic bytes, so that the
 * output does not look complete. Frees. NULL is allowed. */
TU_API void tu_writer_abort(struct tu_writer *w);

/* Random access by file -------------------------------------------------------------- */

struct tu_index_entry {
    struct tu_tensor tensor; /* TENSOR: as described; META: name = topic, meta = text */
    uint16_t type;           /* TU_REC_TENSOR, TU_REC_META or another type that copies */
    uint64_t segment;
    uint64_t offset;         /* of the record */
    uint64_t payload;        /* offset of the payload */
    uint64_t payload_len;
    uint32_t payload_crc;    /* as stored */
};

struct tu_stream_index;

/* Read the headers of a seekable stream. Header checksums, frames, INDEX records, END
 * counters and digests are checked; payloads are not (tu_index_verify). Takes `in` over.
 * Errors: those of tu_reader_next, TU_EINDEX; TU_EUSAGE for a pipe. */
TU_API TU_MUST int tu_index_open(struct tu_stream_index **out, struct tu_in *in,
                                 struct tu_err *err);
TU_API void tu_index_close(struct tu_stream_index *x);
TU_API size_t tu_index_count(const struct tu_stream_index *x);
TU_API const struct tu_index_entry *tu_index_entry(const struct tu_stream_index *x,
                                                   size_t i);
TU_API uint64_t tu_index_segments(const struct tu_stream_index *x);
/* Bytes off … off+n-1 of payload i. Threads may share x. Not verified: see
 * tu_index_verify. */
TU_API TU_MUST int tu_index_read(const struct tu_stream_index *x, size_t i, uint64_t off,
                                 void *buf, size_t n, struct tu_err *err);
/* Read payload i whole and compare its checksum and padding. */
TU_API TU_MUST int tu_index_verify(const struct tu_stream_index *x, size_t i,
                                   struct tu_pool *pool, struct tu_err *err);

TU_END

#endif
