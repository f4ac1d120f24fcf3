/* SPDX-License-Identifier: Apache-2.0 */
/* io_out.c: writing whole, and files that appear at once or not at all.
 *
 * Small writes are gathered, so a header of 64 bytes costs no system call of its own. A
 * regular file is born as .tensorutils-XXXXXXXXXXXX in the folder of its target, told to
 * the job before it exists, and gets its name by rename. Positions count from where the
 * descriptor stood at first.
 *
 * _XOPEN_SOURCE for realpath. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "io_sys.h"
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/io.h"
#include "tensorutils/core/mem.h"

#define GATHER ((size_t)64 << 10)
#define HOLE ((size_t)64 << 10) /* zeros worth leaving out of a positional write */
#define ATTEMPTS 100 /* at a name nobody has */

struct tu_out {
    int fd;        /* -1: not open */
    bool keep;     /* standard output: never closed */
    bool seekable; /* pwrite and truncate work */
    bool fresh;    /* born empty by us: holes may stand for zeros */
    bool hole;     /* the last bytes may be a hole that the size does not cover yet */
    char *name;    /* for messages */
    char *path;    /* final name, where there is a temporary one */
    char *temp;    /* NULL: written directly */
    const struct tu_job *job;
    uint64_t base, pos;
    _Atomic uint64_t holes; /* end of the last hole that tu_out_pwrite left */
    unsigned char *gather; /* GATHER bytes, NULL until needed */
    size_t gathered;
};

/* Remove what must not stay, release everything. */
static void discard(struct tu_out *out)
{
    if (!out)
        return;
    if (out->fd >= 0 && !out->keep)
        tui_close(out->fd);
    if (out->temp) {
        unlink(out->temp);
        tu_job_temporary(out->job, out->temp, TU_TEMP_GONE);
    }
    tu_free(out->temp);
    tu_free(out->path);
    tu_free(out->name);
    tu_free(out->gather);
    tu_free(out);
}

static struct tu_out *new_out(const char *name, struct tu_err *err)
{
    struct tu_out *out = tu_calloc(1, sizeof *out, err);
    if (!out)
        return NULL;
    out->fd = -1;
    out->name = tu_strdup(name, err);
    if (!out->name) {
        discard(out);
        return NULL;
    }
    return out;
}

/* Learn what kind of file out->fd is. */
static int look(struct tu_out *out, struct tu_err *err)
{
    struct stat st;
    if (tui_fstat(out->fd, &st) < 0)
        return tu_fail_errno(err, "%s: cannot stat", out->name);
    tui_widen_pipe(out->fd, &st);
    int flags = fcntl(out->fd, F_GETFL);
    if (!S_ISREG(st.st_mode) || (flags >= 0 && flags & O_APPEND))
        return 0;
    off_t at = tui_lseek(out->fd, 0, SEEK_CUR);
    if (at < 0)
        return tu_fail_errno(err, "%s: cannot seek", out->name);
    out->seekable = true;
    out->base = (uint64_t)at;
    return 0;
}

static int wrap_fd(struct tu_out **out, int fd, const char *name, bool keep,
                   struct tu_err *err)
{
    *out = NULL;
    struct tu_out *o = new_out(name, err);
    if (!o) {
        if (!keep)
            tui_close(fd);
        return TU_ENOMEM;
    }
    o->fd = fd;
    o->keep = keep;
    int code = look(o, err);
    if (code)
        discard(o);
    else
        *out = o;
    return code;
}

int tu_out_take_fd(struct tu_out **out, int fd, const char *name, struct tu_err *err)
{
    return wrap_fd(out, fd, name, false, err);
}

/* FOLDER/.tensorutils-XXXXXXXXXXXX beside path. */
static char *temp_beside(const char *path, unsigned attempt, struct tu_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    size_t room = folder + sizeof ".tensorutils-" + 12;
    char *temp = tu_alloc(room, 1, err);
    if (temp) {
        memcpy(temp, path, folder);
        snprintf(temp + folder, room - folder, ".tensorutils-%012llx",
                 (unsigned long long)tui_name_seed(attempt));
    }
    return temp;
}

/* Give out->fd a new file that out->path will name. */
static int open_temp(struct tu_out *out, struct tu_err *err)
{
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        char *temp = temp_beside(out->path, attempt, err);
        if (!temp)
            return TU_ENOMEM;
        tu_job_temporary(out->job, temp, TU_TEMP_BORN);
        out->fd = tui_open(temp, O_RDWR | O_CREAT | O_EXCL, 0666);
        if (out->fd >= 0) {
            out->temp = temp;
            out->fresh = true;
            return 0;
        }
        int sys = errno;
        tu_job_temporary(out->job, temp, TU_TEMP_GONE);
        tu_free(temp);
        errno = sys;
        if (sys != EEXIST)
            break;
    }
    return tu_fail_errno(err, "%s: cannot create", out->name);
}

/* The name that a rename must replace: a symbolic link stays and its target is
 * replaced. */
static int find_target(struct tu_out *out, const char *path, struct tu_err *err)
{
    struct stat st;
    char *real = NULL;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        real = realpath(path, NULL);
    out->path = tu_strdup(real ? real : path, err);
    free(real);
    return out->path ? 0 : TU_ENOMEM;
}

int tu_out_open(struct tu_out **out, const char *path, const struct tu_job *job,
                struct tu_err *err)
{
    if (strcmp(path, "-") == 0) {
        int code = wrap_fd(out, STDOUT_FILENO, "standard output", true, err);
        if (!code)
            (*out)->job = job;
        return code;
    }
    *out = NULL;
    struct stat st;
    bool there = tui_stat(path, &st) == 0;
    if (!there && errno != ENOENT)
        return tu_fail_errno(err, "%s: cannot open for writing", path);
    if (there && !S_ISREG(st.st_mode)) {
        int fd = tui_open(path, O_WRONLY, 0);
        if (fd < 0)
            return tu_fail_errno(err, "%s: cannot open for writing", path);
        return wrap_fd(out, fd, path, false, err);
    }
    struct tu_out *o = new_out(path, err);
    if (!o)
        return TU_ENOMEM;
    o->job = job;
    int code = find_target(o, path, err);
    code = code ? code : open_temp(o, err);
    code = code ? code : look(o, err);
    if (code)
        discard(o);
    else
        *out = o;
    return code;
}

int tu_out_create(struct tu_out **out, const char *path, struct tu_err *err)
{
    *out = NULL;
    int fd = tui_open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (fd < 0 && errno == EEXIST)
        return tu_fail(err, TU_EEXISTS, "%s: exists already", path);
    if (fd < 0)
        return tu_fail_errno(err, "%s: cannot create", path);
    int code = wrap_fd(out, fd, path, false, err);
    if (code)
        unlink(path);
    else
        (*out)->fresh = true;
    return code;
}

const char *tu_out_name(const struct tu_out *out)
{
    return out->name;
}

int tu_out_fd(const struct tu_out *out)
{
    return out->fd;
}

bool tu_out_seekable(const struct tu_out *out)
{
    return out->seekable;
}

uint64_t tu_out_pos(const struct tu_out *out)
{
    return out->pos;
}

static int write_all(struct tu_out *out, const unsigned char *p, size_t n,
                     struct tu_err *err)
{
    while (n) {
        ssize_t w = tui_write(out->fd, p, n);
        if (w < 0)
            return tu_fail_errno(err, "%s: cannot write", out->name);
        p += w;
        n -= (size_t)w;
        out->hole = false;
    }
    return 0;
}

int tu_out_flush(struct tu_out *out, struct tu_err *err)
{
    size_t n = out->gathered;
    out->gathered = 0;
    return n ? write_all(out, out->gather, n, err) : 0;
}

int tu_out_write(struct tu_out *out, const void *p, size_t n, struct tu_err *err)
{
    bool full = out->gathered + n > GATHER;
    int code = full ? tu_out_flush(out, err) : 0;
    if (code)
        return code;
    if (n >= GATHER) {
        code = write_all(out, p, n, err);
    } else if (n) {
        if (!out->gather && !(out->gather = tu_alloc(GATHER, 1, err)))
            return TU_ENOMEM;
        memcpy(out->gather + out->gathered, p, n);
        out->gathered += n;
    }
    if (!code)
        out->pos += n;
    if (!code && full)
        tu_job_progress(out->job, out->pos, 0);
    return code;
}

/* Pass over n bytes of a file that is ours and ends here; *done says whether it was
 * possible. */
static int leave_hole(struct tu_out *out, uint64_t n, bool *done, struct tu_err *err)
{
    *done = false;
    struct stat st;
    int code = tu_out_flush(out, err);
    if (code)
        return code;
    if (tui_fstat(out->fd, &st) < 0)
        return tu_fail_errno(err, "%s: cannot stat", out->name);
    if ((uint64_t)st.st_size > out->pos || n > INT64_MAX - out->pos)
        return 0;
    if (tui_lseek(out->fd, (off_t)n, SEEK_CUR) < 0)
        return tu_fail_errno(err, "%s: cannot seek", out->name);
    out->pos += n;
    out->hole = true;
    *done = true;
    return 0;
}

int tu_out_zeros(struct tu_out *out, uint64_t n, struct tu_err *err)
{
    static const unsigned char zero[4096];
    if (out->fresh && n >= GATHER) {
        bool done;
        int code = leave_hole(out, n, &done, err);
        if (code || done)
            return code;
    }
    while (n) {
        size_t some = (size_t)tu_min(n, sizeof zero);
        int code = tu_out_write(out, zero, some, err);
        if (code)
            return code;
        n -= some;
    }
    return 0;
}

static bool all_zeros(const unsigned char *p, size_t n)
{
    return !*p && !memcmp(p, p + 1, n - 1);
}

/* Threads write side by side: keep the furthest end. */
static void note_hole(struct tu_out *out, uint64_t end)
{
    uint64_t seen = atomic_load(&out->holes);
    while (seen < end && !atomic_compare_exchange_weak(&out->holes, &seen, end))
        continue;
}

int tu_out_pwrite(struct tu_out *out, uint64_t off, const void *p, size_t n,
                  struct tu_err *err)
{
    if (!out->seekable)
        return tu_fail(err, TU_EIO, "%s: cannot write at a position: not a regular file",
                       out->name);
    uint64_t at, end;
    if (tu_add_over(out->base, off, &at) || tu_add_over(at, n, &end) || end > INT64_MAX) {
        errno = EFBIG;
        return tu_fail_errno(err, "%s: cannot write at byte %llu", out->name,
                             (unsigned long long)off);
    }
    if (out->fresh && n >= HOLE && all_zeros(p, n)) {
        note_hole(out, end);
        return 0;
    }
    for (size_t done = 0; done < n;) {
        ssize_t w = tui_pwrite(out->fd, (const char *)p + done, n - done,
                               (off_t)(at + done));
        if (w < 0)
            return tu_fail_errno(err, "%s: cannot write at byte %llu", out->name,
                                 (unsigned long long)(off + done));
        done += (size_t)w;
    }
    return 0;
}

int tu_out_truncate(struct tu_out *out, uint64_t size, struct tu_err *err)
{
    if (!out->seekable)
        return tu_fail(err, TU_EIO, "%s: cannot set its size: not a regular file",
                       out->name);
    int code = tu_out_flush(out, err);
    if (code)
        return code;
    uint64_t end;
    if (tu_add_over(out->base, size, &end) || end > INT64_MAX) {
        errno = EFBIG;
        return tu_fail_errno(err, "%s: cannot set its size", out->name);
    }
    if (tui_ftruncate(out->fd, (off_t)end) < 0)
        return tu_fail_errno(err, "%s: cannot set its size to %llu bytes", out->name,
                             (unsigned long long)size);
    return 0;
}

/* Everything to the file, the hole at its end included. */
static int finish_data(struct tu_out *out, bool durable, struct tu_err *err)
{
    int code = tu_out_flush(out, err);
    if (code)
        return code;
    struct stat st;
    uint64_t end = tu_max(out->hole ? out->pos : 0, atomic_load(&out->holes));
    if (end && tui_fstat(out->fd, &st) < 0)
        return tu_fail_errno(err, "%s: cannot stat", out->name);
    if (end && (uint64_t)st.st_size < end && tui_ftruncate(out->fd, (off_t)end) < 0)
        return tu_fail_errno(err, "%s: cannot write", out->name);
    /* Pipes and devices have nothing to sync (EINVAL, EROFS). */
    if (durable && tui_fsync(out->fd) < 0 && errno != EINVAL && errno != EROFS)
        return tu_fail_errno(err, "%s: cannot write to the disk", out->name);
    return 0;
}

static int sync_folder_of(const char *path, struct tu_err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return tu_dir_sync(".", err);
    char *folder = tu_strdup(path, err);
    if (!folder)
        return TU_ENOMEM;
    folder[slash - path + (slash == path)] = '\0';
    int code = tu_dir_sync(folder, err);
    tu_free(folder);
    return code;
}

int tu_out_commit(struct tu_out *out, bool durable, struct tu_err *err)
{
    int code = finish_data(out, durable, err);
    if (!code && !out->keep) {
        int fd = out->fd;
        out->fd = -1;
        if (tui_close(fd) < 0)
            code = tu_fail_errno(err, "%s: cannot write", out->name);
    }
    if (!code && out->temp) {
        if (tui_rename(out->temp, out->path) < 0) {
            code = tu_fail_errno(err, "%s: cannot rename into place", out->name);
        } else {
            tu_job_temporary(out->job, out->temp, TU_TEMP_GONE);
            tu_free(out->temp);
            out->temp = NULL;
            code = durable ? sync_folder_of(out->path, err) : 0;
        }
    }
    discard(out);
    return code;
}

void tu_out_abort(struct tu_out *out)
{
    discard(out);
}
