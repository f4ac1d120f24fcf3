/* SPDX-License-Identifier: Apache-2.0 */
/* io_sys.c: system calls that are whole, and fail when a test says so.
 *
 * _GNU_SOURCE for F_SETPIPE_SZ. The counters of the failure injection are the only
 * state. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "io_sys.h"
#include "tensorutils/core/io.h"

static struct {
    _Atomic uint64_t count;
    _Atomic uint64_t nth; /* 0: never */
    atomic_int sys;
} inject;

uint64_t tu_io_inject(uint64_t nth, int sys)
{
    atomic_store(&inject.sys, sys);
    atomic_store(&inject.nth, nth);
    return atomic_exchange(&inject.count, 0);
}

/* Count a call; true, with errno set, when a test wants it to fail. */
static bool refuse(void)
{
    uint64_t me = atomic_fetch_add_explicit(&inject.count, 1, memory_order_relaxed) + 1;
    if (me != atomic_load_explicit(&inject.nth, memory_order_relaxed))
        return false;
    errno = atomic_load(&inject.sys);
    return true;
}

/* True when the call that just failed is to be made again: it was interrupted, or
 * somebody made the descriptor non-blocking (a shell's other job may) and it is ready
 * now. */
static bool again(int fd, short events)
{
    if (errno == EINTR)
        return true;
    if (fd < 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
        return false;
    struct pollfd wait = {.fd = fd, .events = events};
    return poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

#define CALL(type, fd, events, call)                                                     \
    do {                                                                                 \
        type result;                                                                     \
        do                                                                               \
            result = refuse() ? -1 : (call);                                             \
        while (result < 0 && again((fd), (events)));                                     \
        return result;                                                                   \
    } while (0)

int tui_open(const char *path, int flags, mode_t mode)
{
    CALL(int, -1, 0, open(path, flags | O_CLOEXEC | O_NOCTTY, mode));
}

int tui_fstat(int fd, struct stat *st)
{
    CALL(int, -1, 0, fstat(fd, st));
}

int tui_stat(const char *path, struct stat *st)
{
    CALL(int, -1, 0, stat(path, st));
}

ssize_t tui_read(int fd, void *buf, size_t n)
{
    CALL(ssize_t, fd, POLLIN, read(fd, buf, n));
}

ssize_t tui_pread(int fd, void *buf, size_t n, off_t off)
{
    CALL(ssize_t, fd, POLLIN, pread(fd, buf, n, off));
}

ssize_t tui_write(int fd, const void *buf, size_t n)
{
    CALL(ssize_t, fd, POLLOUT, write(fd, buf, n));
}

ssize_t tui_pwrite(int fd, const void *buf, size_t n, off_t off)
{
    CALL(ssize_t, fd, POLLOUT, pwrite(fd, buf, n, off));
}

off_t tui_lseek(int fd, off_t off, int whence)
{
    CALL(off_t, -1, 0, lseek(fd, off, whence));
}

int tui_ftruncate(int fd, off_t size)
{
    CALL(int, -1, 0, ftruncate(fd, size));
}

int tui_fsync(int fd)
{
    CALL(int, -1, 0, fsync(fd));
}

int tui_rename(const char *from, const char *to)
{
    CALL(int, -1, 0, rename(from, to));
}

int tui_close(int fd)
{
    bool no = refuse();
    int sys = errno;
    /* Linux frees the descriptor even when close reports EINTR. */
    int result = close(fd);
    if (result < 0 && errno == EINTR)
        result = 0;
    if (no) {
        errno = sys;
        return sys == EINTR ? 0 : -1;
    }
    return result;
}

void tui_widen_pipe(int fd, const struct stat *st)
{
    if (S_ISFIFO(st->st_mode) && fcntl(fd, F_GETPIPE_SZ) < (int)TU_IO_CHUNK)
        (void)!fcntl(fd, F_SETPIPE_SZ, (int)TU_IO_CHUNK);
}

uint64_t tui_name_seed(unsigned attempt)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t x = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    x ^= (uint64_t)getpid() << 40 ^ (uint64_t)attempt << 32;
    /* The finaliser of MurmurHash3: every bit of x reaches every bit of the name. */
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (x ^ x >> 33) >> 16;
}
