/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: the reader's state, for the files that read: read.c, recover.c, index.c, and
 * the writer that copies a record as it stands. */
#ifndef LIB_STREAM_READER_H
#define LIB_STREAM_READER_H

#include "record.h"

enum tui_reader_at {
    TUI_AT_START,   /* nothing read */
    TUI_AT_RECORDS, /* inside a segment */
    TUI_AT_END,     /* right after an END: the only place where the input may end */
    TUI_AT_EOF,
};

struct tu_reader {
    struct tu_in *in;
    struct tu_pool *pool;
    const struct tu_job *job; /* told how far it is, or NULL */
    uint64_t before, total;   /* of all inputs: bytes before this one; 0: not known */
    unsigned flags;
    enum tui_reader_at at;
    struct tui_record cur;
    bool open;       /* cur's payload and trailer are not finished */
    bool framed;     /* cur was seen to end where its header says */
    bool damaged;    /* a recovery left gaps in the books of this segment */
    uint64_t number; /* of cur from the stream's start */
    uint64_t next;   /* offset of the record after cur */
    uint64_t bad;    /* offset of the record that failed */
    uint64_t left;   /* payload bytes not read yet */
    bool whole;      /* each of them so far went through crc */
    uint32_t crc;
    unsigned char tail[4]; /* the last payload bytes that passed */
    struct tu_buf head;    /* the header as it stands */
    struct tui_segment seg;
    uint64_t indexed;       /* how many records the segment's last INDEX has listed */
    unsigned char *scratch; /* tu_pool_size × TUI_BLOCK, made at the first skip */
    struct tu_err err;      /* the first failure, repeated from then on */
};

/* Bytes that a file is known to hold from here on; 0 for a pipe. */
static inline uint64_t tui_reader_rest(const struct tu_reader *r)
{
    const uint64_t pos = tu_in_pos(r->in), size = tu_in_size(r->in);
    return size > pos ? size - pos : 0;
}

#endif
