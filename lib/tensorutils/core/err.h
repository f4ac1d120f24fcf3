/* SPDX-License-Identifier: Apache-2.0 */
/* err.h: how a library call says that it failed, and why.
 *
 * A call that can fail returns 0 or a negative TU_E code and fills the struct tu_err given
 * as its last parameter (NULL is allowed). The message is one line without program name:
 * "SUBJECT: WHAT: WHY", names in single quotes, lower case, no full stop. The library never
 * prints; cmd/common does. */
#ifndef TENSORUTILS_CORE_ERR_H
#define TENSORUTILS_CORE_ERR_H

#include <stdint.h>
#include "attr.h"

TU_BEGIN

/* Codes and the exit status that they lead to. X(NAME, STATUS, "what it means"). */
#define TU_ERR_TABLE(X)                                                                     \
    X(DIFFER, 1, "what should be equal is not")                                             \
    X(USAGE, 2, "a request that cannot be met: bad value, or a value that does not fit")    \
    X(EXISTS, 2, "the destination exists")                                                  \
    X(EMPTY, 3, "stream: no data at all")                                                   \
    X(TRUNC, 3, "stream or file: ends inside a unit")                                       \
    X(NOEND, 3, "stream: ends without its END record")                                      \
    X(MAGIC, 3, "stream or file: not of this format")                                       \
    X(VERSION, 3, "stream or file: version not supported")                                  \
    X(HEADER, 3, "stream or file: malformed header")                                        \
    X(LIMIT, 3, "stream or file: a size over the format's limit")                           \
    X(HCRC, 3, "stream: header checksum mismatch")                                          \
    X(SIZE, 3, "sizes that contradict each other or overflow")                              \
    X(TYPE, 3, "stream: unknown critical record type")                                      \
    X(FLAG, 3, "stream: unknown critical flag")                                             \
    X(CODEC, 3, "stream: unknown payload codec")                                            \
    X(DTYPE, 3, "unknown or unsuitable dtype")                                              \
    X(NAME, 3, "a name against the rules")                                                  \
    X(PCRC, 3, "payload checksum mismatch")                                                 \
    X(PAD, 3, "padding is not zero")                                                        \
    X(FRAME, 3, "stream: bytes lost or inserted inside a record")                           \
    X(END, 3, "stream: END disagrees with the records before it")                           \
    X(GARBAGE, 3, "bytes after the end")                                                    \
    X(META, 3, "metadata against the rules")                                                \
    X(SHARD, 3, "shard metadata against the rules")                                         \
    X(INDEX, 3, "stream: INDEX disagrees with the records")                                 \
    X(FORMAT, 3, "foreign file invalid by its format's rules")                              \
    X(UNSUP, 3, "valid but not supported here, refused rather than guessed")                \
    X(INCOMPLETE, 3, "a checkpoint or set with parts missing, doubled or disagreeing")      \
    X(IO, 4, "the operating system refused a read or write")                                \
    X(NOMEM, 4, "out of memory, or over the memory budget")                                 \
    X(NODEV, 4, "no such device")                                                           \
    X(MISSING, 4, "an optional library, plug-in or program is not installed")               \
    X(PEER, 4, "another process of the job was lost")                                       \
    X(TIMEOUT, 4, "waited too long")                                                        \
    X(CANCEL, 4, "the caller asked to stop")                                                \
    X(BUG, 4, "an internal invariant does not hold; please report it")

enum tu_err_index {
#define TU_ERR_INDEX(name, status, help) TU_ERR_INDEX_##name,
    TU_ERR_TABLE(TU_ERR_INDEX)
#undef TU_ERR_INDEX
};

enum tu_err_code {
    TU_OK = 0,
#define TU_ERR_CODE(name, status, help) TU_E##name = -1 - (int)TU_ERR_INDEX_##name,
    TU_ERR_TABLE(TU_ERR_CODE)
#undef TU_ERR_CODE
};

#define TU_ERR_NO_OFFSET UINT64_MAX

struct tu_err {
    int code;        /* TU_E…, 0 when nothing failed */
    int sys;         /* errno at the failure, 0 if none */
    uint64_t offset; /* byte offset in the subject, TU_ERR_NO_OFFSET if none applies */
    char msg[256];   /* one line, cut at 255 bytes */
};

/* Fill *err (may be NULL) and return code, so that callers write `return tu_fail(…)`. */
TU_API int tu_fail(struct tu_err *err, int code, const char *fmt, ...) TU_PRINTF(3, 4);
/* The same with the byte offset at which the input went wrong. */
TU_API int tu_fail_at(struct tu_err *err, int code, uint64_t offset, const char *fmt, ...)
    TU_PRINTF(4, 5);
/* TU_EIO with ": " and the text of errno appended; errno is kept in err->sys. */
TU_API int tu_fail_errno(struct tu_err *err, const char *fmt, ...) TU_PRINTF(2, 3);
/* Put "PREFIX: " before the message that is there, unless it is among those it begins with: a
 * caller names its subject, "-" for standard input. The code stays as it is; without an err
 * nothing happens. */
TU_API void tu_err_prefix(struct tu_err *err, const char *fmt, ...)
    TU_PRINTF(2, 3);

/* "TU_EPCRC"; "TU_OK" for 0. Static. */
TU_API const char *tu_err_name(int code);
/* Exit status of a code: 0, 2, 3 or 4. */
TU_API int tu_err_status(int code);

TU_END

#endif
