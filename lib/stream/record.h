/* SPDX-License-Identifier: Apache-2.0 */
/* record.h: what reading and writing a tensor stream share: one record's header, one
 * segment's bookkeeping, one way to name a record in a message.
 *
 * Nothing here reads or writes a file except tui_sum. Offsets in errors of tui_head_* are
 * relative to the record; tui_blame makes them the stream's. */
#ifndef LIB_STREAM_RECORD_H
#define LIB_STREAM_RECORD_H

#include <tensorutils/stream.h>

#define TUI_MAGIC_LEN 8u
#define TUI_FIXED 64u
#define TUI_HEADER_MAX (UINT32_C(1) << 26)
#define TUI_META_MAX (UINT32_C(1) << 24)
#define TUI_NAME_MAX 65535u
#define TUI_WORDS_MAX 64u
#define TUI_END_LEN 128u
#define TUI_TRAILER 8u
#define TUI_INDEX_ENTRY 40u
#define TUI_NO_INDEX UINT64_MAX

/* Words of END. */
enum {
    TUI_END_RECORDS,
    TUI_END_BYTES,
    TUI_END_INDEX_BACK,
    TUI_END_DIGEST,
    TUI_END_WORDS
};

/* A decoded record and the memory that it borrows from. */
struct tui_record {
    struct tu_record rec;
    uint64_t word[TUI_WORDS_MAX];
    struct tu_buf text; /* name, NUL, metadata, NUL */
};

/* Zero bytes between a payload and its trailer. */
static inline unsigned tui_padding(uint64_t payload_len)
{
    return (unsigned)(-(payload_len + TUI_TRAILER) & (TU_STREAM_ALIGN - 1));
}

/* Bytes of everything after the header: payload, padding, trailer. payload_len < 2^63. */
static inline uint64_t tui_body(uint64_t payload_len)
{
    return payload_len ? payload_len + tui_padding(payload_len) + TUI_TRAILER : 0;
}

/* header.c: B8's steps 2-5 on the n bytes that arrived of a header's first 64. Where the
 * magic itself is missing the code is TU_EMAGIC without a message: the caller knows what
 * was expected. */
TU_MUST int tui_head_begin(const unsigned char *p, size_t n, uint32_t *header_len,
                           struct tu_err *err);
/* Step 7 alone: the checksum of a whole header is right. */
bool tui_head_sound(const unsigned char *p, uint32_t header_len);
/* Steps 7-15 on a whole header; fills *out. */
TU_MUST int tui_head_finish(struct tui_record *out, const unsigned char *p,
                            uint32_t header_len, struct tu_err *err);
/* The header of rec (type, flags, words, name, meta, dtype, block, payload_len), smallest
 * form, checked like one that was read, and the CRC that it carries. */
TU_MUST int tui_head_encode(struct tu_buf *out, const struct tu_record *rec,
                            uint32_t *crc, struct tu_err *err);
/* Length of the header that rec gets. Errors: TU_ENAME, TU_EMETA, TU_ELIMIT. */
TU_MUST int tui_head_len(const struct tu_record *rec, uint32_t *header_len,
                         struct tu_err *err);
/* Header of a PAD record of `len` bytes, of which only the first 64 are not zero. */
void tui_head_pad(unsigned char fixed[TUI_FIXED], uint32_t len, uint32_t *crc);

/* magic.c: what the first n bytes of something that is no stream are, and what to do
 * about it: "a .npy file (see tns-import)". */
const char *tui_magic_guess(const unsigned char *p, size_t n);

/* shard.c: tu_region_of from parsed metadata. */
struct json_t;
TU_MUST int tui_region_read(struct tu_region *out, const struct json_t *meta,
                            const uint64_t *dim, unsigned rank, struct tu_err *err);

/* segment.c: counters and digest of the segment at hand. */
struct tui_segment {
    uint64_t number;  /* of this segment, from 0 */
    uint64_t start;   /* its offset */
    uint64_t records; /* so far */
    uint64_t bytes;   /* so far */
    uint64_t index;   /* offset of the last INDEX record from start, or TUI_NO_INDEX */
    uint64_t listed;  /* records that an INDEX lists, so far */
    uint32_t digest, listed_crc; /* of what an INDEX would hold */
    bool list;           /* keep that too */
    struct tu_buf entry; /* TUI_INDEX_ENTRY bytes each */
};
void tui_segment_begin(struct tui_segment *s, uint64_t number, uint64_t start);
/* A complete record that is not END. */
TU_MUST int tui_segment_add(struct tui_segment *s, const struct tu_record *rec,
                            struct tu_err *err);
/* Step 17. */
TU_MUST int tui_segment_end(const struct tui_segment *s, const struct tu_record *end,
                            struct tu_err *err);

/* sum.c: the CRC-32 of bytes off … off+n-1 of a seekable file, continued from *crc, the
 * work shared by the pool. The bytes go to buf unless it is NULL; then scratch has room
 * for tu_pool_size(pool) × TUI_BLOCK bytes. */
#ifndef TUI_BLOCK /* fuzzers make it small, so that small inputs have several */
#define TUI_BLOCK ((size_t)128 << 10) /* two of them fit the cache of a core */
#endif
TU_MUST int tui_sum(struct tu_in *in, uint64_t off, uint64_t n, void *buf, void *scratch,
                    struct tu_pool *pool, uint32_t *crc, struct tu_err *err);
/* Payload against trailer: p is the padding and the trailer behind a payload. Sets what
 * the record stores; step 16 without reading. `computed` may be NULL: not known. */
TU_MUST int tui_trailer_check(const struct tu_record *rec, const unsigned char *p,
                              const uint32_t *computed, struct tu_err *err);

/* "FILE: record 12 'l.w' at byte 4096: " before the message, and the offset made the
 * stream's. rec NULL: its header is not to be trusted. Codes of status 4 keep their
 * message. */
int tui_blame(struct tu_err *err, const char *file, uint64_t number, uint64_t offset,
              const struct tu_record *rec);

#endif
