/* SPDX-License-Identifier: Apache-2.0 */
/* io.h: whole reads and writes on files and pipes, and output files that appear at once.
 *
 * Interrupted and short system calls are hidden here and nowhere else. Every message names
 * the file; offsets count from where a descriptor stood when it was handed over. Not for
 * concurrent use, except tu_in_pread and tu_out_pwrite, which any number of threads may call on
 * one object. */
#ifndef TENSORUTILS_CORE_IO_H
#define TENSORUTILS_CORE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"
#include "job.h"

TU_BEGIN

#define TU_IO_CHUNK ((size_t)1 << 20) /* bytes moved per call through pipes */

struct tu_in;

/* Open path for reading; "-" is standard input (which close leaves open). A directory is
 * refused. A pipe's size is raised to 1 MiB. Errors: TU_EIO. */
TU_API TU_MUST int tu_in_open(struct tu_in **out, const char *path, struct tu_err *err);
/* The same over an open descriptor, which the object then owns (closed on failure too); name is
 * for messages. */
TU_API TU_MUST int tu_in_take_fd(struct tu_in **out, int fd, const char *name,
                                 struct tu_err *err);
TU_API void tu_in_close(struct tu_in *in);
TU_API const char *tu_in_name(const struct tu_in *in);
TU_API int tu_in_fd(const struct tu_in *in);
/* True for regular files and block devices: pread and size work. */
TU_API bool tu_in_seekable(const struct tu_in *in);
/* Bytes in the file; 0 when not seekable. */
TU_API uint64_t tu_in_size(const struct tu_in *in);
/* Bytes read or skipped so far. */
TU_API uint64_t tu_in_pos(const struct tu_in *in);

/* Read n bytes; fewer only at the end of the input, *got says how many. */
TU_API TU_MUST int tu_in_read(struct tu_in *in, void *buf, size_t n, size_t *got,
                              struct tu_err *err);
/* The same without taking the bytes: the next read gives them again. n ≤ 4096. */
TU_API TU_MUST int tu_in_peek(struct tu_in *in, void *buf, size_t n, size_t *got,
                              struct tu_err *err);
/* Read exactly n bytes or fail with TU_ETRUNC. */
TU_API TU_MUST int tu_in_exact(struct tu_in *in, void *buf, size_t n, struct tu_err *err);
/* Pass over n bytes, by seeking where possible; *got < n only at the end. */
TU_API TU_MUST int tu_in_skip(struct tu_in *in, uint64_t n, uint64_t *got, struct tu_err *err);
/* Go to byte off of a seekable input, for the next read. */
TU_API TU_MUST int tu_in_seek(struct tu_in *in, uint64_t off, struct tu_err *err);
/* Positional read of exactly n bytes; TU_ETRUNC past the end, TU_EIO on a pipe. */
TU_API TU_MUST int tu_in_pread(struct tu_in *in, uint64_t off, void *buf, size_t n,
                               struct tu_err *err);
/* Copy what is left of `in` to a temporary file without a name in `folder` (the caller's choice,
 * e.g. $TMPDIR; NULL: /tmp) and return it opened for reading: for formats that need a seekable
 * file. `in` stays the caller's. */
TU_API TU_MUST int tu_in_spool(struct tu_in **out, struct tu_in *in, const char *folder,
                               struct tu_err *err);

struct tu_out;

/* Open path for writing; "-" is standard output. A regular or absent file is written under a
 * temporary name in the same folder (O_EXCL, mode 0666 & ~umask) and only tu_out_commit
 * renames it; other kinds of file are opened directly. Errors: TU_EIO. */
TU_API TU_MUST int tu_out_open(struct tu_out **out, const char *path, const struct tu_job *job,
                               struct tu_err *err);
/* Write straight to path (created with O_EXCL): for files inside a folder that is itself
 * published by rename. Errors: TU_EEXISTS, TU_EIO. */
TU_API TU_MUST int tu_out_create(struct tu_out **out, const char *path, struct tu_err *err);
TU_API TU_MUST int tu_out_take_fd(struct tu_out **out, int fd, const char *name,
                                  struct tu_err *err);
TU_API const char *tu_out_name(const struct tu_out *out);
TU_API int tu_out_fd(const struct tu_out *out);
TU_API bool tu_out_seekable(const struct tu_out *out);
TU_API uint64_t tu_out_pos(const struct tu_out *out);
TU_API TU_MUST int tu_out_write(struct tu_out *out, const void *p, size_t n, struct tu_err *err);
/* Small writes are gathered: hand them to the system now, e.g. before using tu_out_fd. */
TU_API TU_MUST int tu_out_flush(struct tu_out *out, struct tu_err *err);
/* n zero bytes; a hole where the file is ours. */
TU_API TU_MUST int tu_out_zeros(struct tu_out *out, uint64_t n, struct tu_err *err);
/* Positional write; the position of tu_out_write does not move. No byte is written twice: in a
 * file born empty, 64 KiB or more of zeros are left as a hole. */
TU_API TU_MUST int tu_out_pwrite(struct tu_out *out, uint64_t off, const void *p, size_t n,
                                 struct tu_err *err);
/* Give a seekable file its final size (a hole). */
TU_API TU_MUST int tu_out_truncate(struct tu_out *out, uint64_t size, struct tu_err *err);
/* Flush, fsync when `durable`, rename into place, close and free, also on failure. */
TU_API TU_MUST int tu_out_commit(struct tu_out *out, bool durable, struct tu_err *err);
/* Close and free; a file under a temporary name is removed. NULL is allowed. */
TU_API void tu_out_abort(struct tu_out *out);

/* Whole small file into memory (NUL after it, tu_free), at most max bytes (TU_ELIMIT). */
TU_API TU_MUST int tu_file_read(const char *path, size_t max, char **data, size_t *n,
                                struct tu_err *err);
/* Is a file there that something else says is? Errors: TU_EINCOMPLETE "PATH: missing: " and the
 * text, which says who expects what of it; what is wrong in another way shows when it is opened. */
TU_API TU_MUST int tu_file_expect(const char *path, struct tu_err *err, const char *fmt, ...)
    TU_PRINTF(3, 4);
/* Whole small file from memory, through a temporary name. */
TU_API TU_MUST int tu_file_write(const char *path, const void *data, size_t n, bool durable,
                                 const struct tu_job *job, struct tu_err *err);
/* A file without a name in folder (NULL: /tmp), open for reading and writing; the descriptor is
 * the caller's. */
TU_API TU_MUST int tu_file_nameless(int *fd, const char *folder, struct tu_err *err);
/* fsync a folder, so that names in it last. */
TU_API TU_MUST int tu_dir_sync(const char *path, struct tu_err *err);

/* Failure injection, for tests only: the nth system call of this file from now fails with
 * errno `sys` (0 = never). Returns the number of calls since the last one. */
TU_API uint64_t tu_io_inject(uint64_t nth, int sys);

TU_END

#endif
