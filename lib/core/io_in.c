/* SPDX-License-Identifier: Apache-2.0 */
/* io_in.c: reading whole, peeking, skipping, and making a pipe seekable.
 *
 * From a pipe nothing is read ahead except what a peek asks for; a file is read ahead a
 * little, for a stream's headers are short, and set back when it is closed. So a
 * descriptor shared with another program is left just behind the bytes that were used.
 * Offsets count from where it stood at first.
 *
 * _GNU_SOURCE for O_TMPFILE. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "io_sys.h"
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/io.h"
#include "tensorutils/core/mem.h"

#define PEEK_MAX 4096
#define SHORT 512 /* a read worth reading ahead for */

struct tu_in {
    int fd;
    bool keep; /* close leaves the descriptor open */
    bool seekable;
    char *name;
    uint64_t base; /* offset of the descriptor at first */
    uint64_t size; /* from base on; 0 when not seekable */
    uint64_t pos;  /* from base on; the descriptor stands peeked bytes further */
    unsigned char *scratch; /* TU_IO_CHUNK bytes to skip through a pipe; NULL at first */
    size_t peeked, peek_at;
    unsigned char peek[PEEK_MAX];
};

static int find_size(struct tu_in *in, struct tu_err *err)
{
    struct stat st;
    if (tui_fstat(in->fd, &st) < 0)
        return tu_fail_errno(err, "%s: cannot stat", in->name);
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return tu_fail_errno(err, "%s: cannot read", in->name);
    }
    tui_widen_pipe(in->fd, &st);
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return 0;
    off_t at = tui_lseek(in->fd, 0, SEEK_CUR), end = st.st_size;
    if (at >= 0 && S_ISBLK(st.st_mode)) {
        end = tui_lseek(in->fd, 0, SEEK_END);
        if (end >= 0 && tui_lseek(in->fd, at, SEEK_SET) < 0)
            end = -1;
    }
    if (at < 0 || end < 0)
        return tu_fail_errno(err, "%s: cannot seek", in->name);
    in->seekable = true;
    in->base = (uint64_t)at;
    in->size = end > at ? (uint64_t)(end - at) : 0;
    return 0;
}

static int new_in(struct tu_in **out, int fd, const char *name, bool keep,
                  struct tu_err *err)
{
    struct tu_err own;
    err = err ? err : &own;
    *out = NULL;
    struct tu_in *in = tu_calloc(1, sizeof *in, err);
    if (!in) {
        if (!keep)
            tui_close(fd);
        return err->code;
    }
    in->fd = fd;
    in->keep = keep;
    in->name = tu_strdup(name, err);
    if (!in->name || find_size(in, err)) {
        tu_in_close(in);
        return err->code;
    }
    *out = in;
    return 0;
}

int tu_in_open(struct tu_in **out, const char *path, struct tu_err *err)
{
    *out = NULL;
    if (strcmp(path, "-") == 0)
        return new_in(out, STDIN_FILENO, "standard input", true, err);
    int fd = tui_open(path, O_RDONLY, 0);
    if (fd < 0)
        return tu_fail_errno(err, "%s: cannot open", path);
    return new_in(out, fd, path, false, err);
}

int tu_in_take_fd(struct tu_in **out, int fd, const char *name, struct tu_err *err)
{
    return new_in(out, fd, name, false, err);
}

void tu_in_close(struct tu_in *in)
{
    if (!in)
        return;
    if (in->seekable && in->peeked)
        (void)!tui_lseek(in->fd, -(off_t)in->peeked, SEEK_CUR);
    if (!in->keep)
        tui_close(in->fd);
    tu_free(in->scratch);
    tu_free(in->name);
    tu_free(in);
}

const char *tu_in_name(const struct tu_in *in)
{
    return in->name;
}

int tu_in_fd(const struct tu_in *in)
{
    return in->fd;
}

bool tu_in_seekable(const struct tu_in *in)
{
    return in->seekable;
}

uint64_t tu_in_size(const struct tu_in *in)
{
    return in->size;
}

uint64_t tu_in_pos(const struct tu_in *in)
{
    return in->pos;
}

/* Read until n bytes or the end, past the peeked bytes. */
static int fill(struct tu_in *in, unsigned char *buf, size_t n, size_t *got,
                struct tu_err *err)
{
    for (*got = 0; *got < n;) {
        ssize_t r = tui_read(in->fd, buf + *got, n - *got);
        if (r < 0)
            return tu_fail_errno(err, "%s: cannot read", in->name);
        if (r == 0)
            break;
        *got += (size_t)r;
    }
    return 0;
}

/* Take up to n of the peeked bytes; buf may be NULL. */
static size_t take_peeked(struct tu_in *in, unsigned char *buf, uint64_t n)
{
    size_t some = (size_t)tu_min(n, in->peeked);
    if (buf && some)
        memcpy(buf, in->peek + in->peek_at, some);
    in->peek_at += some;
    in->peeked -= some;
    in->pos += some;
    return some;
}

/* At least n ≤ PEEK_MAX peeked bytes, and as many as `most`, unless the input ends. */
static int peek(struct tu_in *in, size_t n, size_t most, struct tu_err *err)
{
    size_t more;
    if (in->peeked >= n)
        return 0;
    memmove(in->peek, in->peek + in->peek_at, in->peeked);
    in->peek_at = 0;
    int code = fill(in, in->peek + in->peeked, most - in->peeked, &more, err);
    in->peeked += more;
    return in->peeked >= n ? 0 : code; /* a failure further on is not yet ours */
}

int tu_in_read(struct tu_in *in, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    unsigned char *p = buf;
    int code = 0;
    *got = take_peeked(in, p, n);
    if (*got < n && in->seekable && n <= SHORT) {
        code = peek(in, n - *got, PEEK_MAX, err);
        *got += take_peeked(in, p + *got, n - *got);
    } else if (*got < n) {
        size_t rest;
        code = fill(in, p + *got, n - *got, &rest, err);
        in->pos += rest;
        *got += rest;
    }
    return code;
}

int tu_in_peek(struct tu_in *in, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    *got = 0;
    if (n > PEEK_MAX)
        return tu_fail(err, TU_EBUG, "%s: peek of %zu bytes", in->name, n);
    int code = peek(in, n, n, err);
    if (code)
        return code;
    *got = (size_t)tu_min(n, in->peeked);
    if (*got)
        memcpy(buf, in->peek + in->peek_at, *got);
    return 0;
}

static int truncated(const struct tu_in *in, uint64_t at, uint64_t lacking,
                     struct tu_err *err)
{
    return tu_fail_at(err, TU_ETRUNC, at,
                      "%s: ends at byte %llu, %llu more expected", in->name,
                      (unsigned long long)at, (unsigned long long)lacking);
}

int tu_in_exact(struct tu_in *in, void *buf, size_t n, struct tu_err *err)
{
    size_t got;
    int code = tu_in_read(in, buf, n, &got, err);
    if (code)
        return code;
    return got == n ? 0 : truncated(in, in->pos, n - got, err);
}

/* Pass over what is known to be there without reading it. */
static int skip_by_seek(struct tu_in *in, uint64_t n, uint64_t *got, struct tu_err *err)
{
    uint64_t left = in->size > in->pos ? in->size - in->pos : 0;
    uint64_t some = tu_min(n, left);
    if (some && tui_lseek(in->fd, (off_t)some, SEEK_CUR) < 0)
        return tu_fail_errno(err, "%s: cannot seek", in->name);
    in->pos += some;
    *got += some;
    return 0;
}

int tu_in_skip(struct tu_in *in, uint64_t n, uint64_t *got, struct tu_err *err)
{
    *got = take_peeked(in, NULL, n);
    if (*got < n && in->seekable) {
        int code = skip_by_seek(in, n - *got, got, err);
        if (code)
            return code;
    }
    /* Pipes, and files that grew since they were opened. */
    while (*got < n) {
        if (!in->scratch && !(in->scratch = tu_alloc(TU_IO_CHUNK, 1, err)))
            return TU_ENOMEM;
        size_t want = (size_t)tu_min(n - *got, TU_IO_CHUNK), some;
        int code = fill(in, in->scratch, want, &some, err);
        in->pos += some;
        *got += some;
        if (code)
            return code;
        if (some < want)
            break;
    }
    return 0;
}

int tu_in_seek(struct tu_in *in, uint64_t off, struct tu_err *err)
{
    uint64_t at;
    if (!in->seekable)
        return tu_fail(err, TU_EIO, "%s: cannot go to a position: not a regular file",
                       in->name);
    if (tu_add_over(in->base, off, &at) || at > INT64_MAX)
        return truncated(in, in->size, off - in->size, err);
    if (tui_lseek(in->fd, (off_t)at, SEEK_SET) < 0)
        return tu_fail_errno(err, "%s: cannot seek", in->name);
    in->pos = off;
    in->peeked = 0;
    return 0;
}

int tu_in_pread(struct tu_in *in, uint64_t off, void *buf, size_t n, struct tu_err *err)
{
    if (!in->seekable)
        return tu_fail(err, TU_EIO, "%s: cannot read at a position: not a regular file",
                       in->name);
    uint64_t at, end;
    if (tu_add_over(in->base, off, &at) || tu_add_over(at, n, &end) || end > INT64_MAX)
        return truncated(in, in->size, off > in->size ? off - in->size : n, err);
    for (size_t done = 0; done < n;) {
        ssize_t r = tui_pread(in->fd, (char *)buf + done, n - done, (off_t)(at + done));
        if (r < 0)
            return tu_fail_errno(err, "%s: cannot read at byte %llu", in->name,
                                 (unsigned long long)(off + done));
        if (r == 0)
            return truncated(in, off + done, n - done, err);
        done += (size_t)r;
    }
    return 0;
}

#define TMP "/tmp" /* where the caller names no folder */

/* A file without a name in folder; -1 with errno. Where the file system has no O_TMPFILE
 * the name lives for an instant. */
static int open_nameless(const char *folder)
{
    int fd = tui_open(folder, O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/.tensorutils-%012llx", folder,
                         (unsigned long long)tui_name_seed(attempt));
        if (n < 0 || (size_t)n >= sizeof path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = tui_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0)
            unlink(path);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    return fd;
}

int tu_file_nameless(int *fd, const char *folder, struct tu_err *err)
{
    folder = folder ? folder : TMP;
    *fd = open_nameless(folder);
    return *fd < 0 ? tu_fail_errno(err, "%s: cannot make a temporary file", folder) : 0;
}

static int copy_rest(struct tu_in *in, int fd, const char *folder, struct tu_err *err)
{
    unsigned char *buf = tu_alloc(TU_IO_CHUNK, 1, err);
    if (!buf)
        return TU_ENOMEM;
    int code;
    size_t got;
    while ((code = tu_in_read(in, buf, TU_IO_CHUNK, &got, err)) == 0 && got) {
        for (size_t done = 0; done < got;) {
            ssize_t w = tui_write(fd, buf + done, got - done);
            if (w < 0) {
                code = tu_fail_errno(err, "%s: cannot write a temporary copy of %s",
                                     folder, in->name);
                goto out;
            }
            done += (size_t)w;
        }
    }
    if (code == 0 && tui_lseek(fd, 0, SEEK_SET) < 0)
        code = tu_fail_errno(err, "%s: cannot seek in the temporary copy", in->name);
out:
    tu_free(buf);
    return code;
}

int tu_in_spool(struct tu_in **out, struct tu_in *in, const char *folder,
                struct tu_err *err)
{
    int fd;
    struct stat st;
    *out = NULL;
    if (!fstat(in->fd, &st) && S_ISCHR(st.st_mode))
        return tu_fail(err, TU_EMAGIC, "%s: a device, which may never end, is not copied",
                       in->name);
    int code = tu_file_nameless(&fd, folder, err);
    if (code)
        return code;
    code = copy_rest(in, fd, folder ? folder : TMP, err);
    if (code) {
        tui_close(fd);
        return code;
    }
    return new_in(out, fd, in->name, false, err);
}
