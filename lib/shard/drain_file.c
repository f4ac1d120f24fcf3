/* SPDX-License-Identifier: Apache-2.0 */
/* drain_file.c: where the segments of a passing stream end; files that appear whole at one
 * level. */

/* renameat2 (RENAME_NOREPLACE) needs _GNU_SOURCE. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tensorutils/stream.h>

#include "drain.h"

/* Offsets in a record's head (tensor-stream(5)). */
enum { AT_TYPE = 0x0a, AT_HEADER = 0x10, AT_PAYLOAD = 0x28, TYPE_END = 2 };

/* The head is whole: how long is the record? */
static int begin_record(struct tui_frames *f, struct tu_err *err)
{
    static const unsigned char magic[8] = "\x89TNS\r\n\x1a\n";
    uint64_t header = tu_le32(f->head + AT_HEADER),
             payload = tu_le64(f->head + AT_PAYLOAD);
    if (memcmp(f->head, magic, sizeof magic))
        return tu_fail_at(err, TU_EMAGIC, f->pos, "standard input: no tensor stream here");
    if (header < sizeof f->head || header % 64 || payload > TU_SIZE_MAX - 128)
        return tu_fail_at(err, TU_EHEADER, f->pos, "standard input: a record of %llu and "
                          "%llu bytes", (unsigned long long)header,
                          (unsigned long long)payload);
    f->rest = header - sizeof f->head;
    if (payload)
        f->rest += (payload + 8 + 63) / 64 * 64;
    f->inside = true;
    return 0;
}

int tui_frames_add(struct tui_frames *f, const char *p, size_t n, size_t *used, bool *end,
                   struct tu_err *err)
{
    *used = 0;
    *end = false;
    while (*used < n) {
        bool head = f->have < sizeof f->head;
        size_t k = head ? sizeof f->head - f->have : (size_t)tu_min(f->rest, SIZE_MAX);
        k = tu_min(k, n - *used);
        if (head)
            memcpy(f->head + f->have, p + *used, k);
        *used += k;
        f->have += head ? k : 0;
        f->rest -= head ? 0 : k;
        if (head && f->have == sizeof f->head) {
            int rc = begin_record(f, err);
            if (rc)
                return rc;
        }
        f->pos += k;
        if (f->have < sizeof f->head || f->rest)
            continue;
        f->have = 0;
        if (tu_le16(f->head + AT_TYPE) == TYPE_END) {
            f->inside = false;
            *end = true;
            return 0;
        }
    }
    return 0;
}

bool tui_frames_whole(const struct tui_frames *f)
{
    return !f->inside && !f->have;
}

int tui_level_open(struct tui_level_file *f, const struct tu_job *job, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = tu_buf_printf(&b, err, "%s.partial", f->path);
    if (rc)
        return rc;
    f->partial = tu_buf_take(&b);
    f->fd = open(f->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd < 0) {
        rc = tu_fail_errno(err, "%s", f->partial);
    } else if (flock(f->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        rc = tu_fail(err, TU_EEXISTS, "%.200s: another run writes here", f->partial);
    } else if (ftruncate(f->fd, 0)) { /* what a killed run left */
        rc = tu_fail_errno(err, "%s", f->partial);
    } else {
        tu_job_temporary(job, f->partial, TU_TEMP_BORN);
        return 0;
    }
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1; /* not ours to remove */
    return rc;
}

int tui_level_write(struct tui_level_file *f, const char *p, size_t n, struct tu_err *err)
{
    while (n) {
        ssize_t k = pwrite(f->fd, p, n, (off_t)f->bytes);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return tu_fail_errno(err, "%s", f->partial);
        p += k;
        n -= (size_t)k;
        f->bytes += (uint64_t)k;
    }
    return 0;
}

int tui_level_copy(struct tui_level_file *f, const char *from, const struct tu_job *job,
                   struct tu_err *err)
{
    struct tu_in *in = NULL;
    char *buf = tu_alloc(TU_IO_CHUNK, 1, err);
    size_t got = 1;
    int rc = buf ? tu_in_open(&in, from, err) : TU_ENOMEM;
    while (!rc && got) {
        if (tu_job_cancelled(job))
            rc = tu_fail(err, TU_ECANCEL, "stopped on request");
        if (!rc)
            rc = tu_in_read(in, buf, TU_IO_CHUNK, &got, err);
        if (!rc)
            rc = tui_level_write(f, buf, got, err);
    }
    tu_in_close(in);
    tu_free(buf);
    return rc;
}

int tui_level_check(struct tui_level_file *f, struct tu_err *err)
{
    struct tu_in *in = NULL;
    struct tu_reader *r = NULL;
    const struct tu_record *rec;
    int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
    int rc = fd < 0 ? tu_fail_errno(err, "%s", f->partial)
                    : tu_in_take_fd(&in, fd, f->path, err);
    if (!rc) /* its descriptor stands at the beginning: what was written was placed */
        rc = tu_reader_new(&r, in, 0, NULL, err);
    do
        rc = rc ? rc : tu_reader_next(r, &rec, err);
    while (!rc && rec);
    tu_reader_free(r);
    return rc;
}

int tui_level_publish(struct tui_level_file *f, const char *folder, const struct tu_job *job,
                      struct tu_err *err)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    struct tu_buf latest = {0};
    int rc = fsync(f->fd) ? tu_fail_errno(err, "%s", f->partial) : 0;
    if (!rc && renameat2(AT_FDCWD, f->partial, AT_FDCWD, f->path,
                         f->force ? 0 : RENAME_NOREPLACE))
        rc = errno == EEXIST ? tu_fail(err, TU_EEXISTS, "%.200s: exists", f->path)
                             : tu_fail_errno(err, "%s", f->path);
    if (rc)
        return rc;
    tu_job_temporary(job, f->partial, TU_TEMP_GONE);
    close(f->fd);
    f->fd = -1;
    if (!(rc = tu_dir_sync(folder, err)))
        rc = tu_buf_printf(&latest, err, "%s/latest", folder);
    if (!rc)
        rc = tu_file_write(latest.data, name, strlen(name), true, job, err);
    tu_buf_release(&latest);
    return rc;
}

void tui_level_close(struct tui_level_file *f, const struct tu_job *job)
{
    if (f->fd >= 0) {
        unlink(f->partial);
        tu_job_temporary(job, f->partial, TU_TEMP_GONE);
        close(f->fd);
    }
    tu_free(f->partial);
    f->partial = NULL;
    f->fd = -1;
}
