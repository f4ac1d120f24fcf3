/* SPDX-License-Identifier: Apache-2.0 */
/* io_sys.h: the system calls of io, with interruption hidden and failure on request.
 *
 * Each is the call of its name, except that EINTR is retried, EAGAIN waits until the
 * descriptor is ready, and tu_io_inject can make any of them fail. */
#ifndef TENSORUTILS_CORE_IO_SYS_H
#define TENSORUTILS_CORE_IO_SYS_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

int tui_open(const char *path, int flags, mode_t mode);
int tui_close(int fd); /* closes even where it reports failure */
int tui_fstat(int fd, struct stat *st);
int tui_stat(const char *path, struct stat *st);
ssize_t tui_read(int fd, void *buf, size_t n);
ssize_t tui_pread(int fd, void *buf, size_t n, off_t off);
ssize_t tui_write(int fd, const void *buf, size_t n);
ssize_t tui_pwrite(int fd, const void *buf, size_t n, off_t off);
off_t tui_lseek(int fd, off_t off, int whence);
int tui_ftruncate(int fd, off_t size);
int tui_fsync(int fd);
int tui_rename(const char *from, const char *to);

/* Raise a pipe's size to TU_IO_CHUNK where the system lets us. */
void tui_widen_pipe(int fd, const struct stat *st);

/* 48 bits that another file of this or another process is unlikely to have drawn. */
uint64_t tui_name_seed(unsigned attempt);

#endif
