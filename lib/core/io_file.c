/* SPDX-License-Identifier: Apache-2.0 */
/* io_file.c: small files as a whole, and folders made to last. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include "io_sys.h"
#include "tensorutils/core/buf.h"
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/io.h"
#include "tensorutils/core/mem.h"

static int read_all(struct tu_in *in, size_t max, struct tu_buf *b, struct tu_err *err)
{
    size_t got = 1;
    unsigned char more;
    while (got && b->n < max) {
        /* What a file is said to hold is asked for at once, within the limit; a pipe's
         * bytes double the buffer as they come. */
        uint64_t size = tu_in_size(in);
        uint64_t left = size > b->n ? size - b->n : UINT64_C(64) << 10;
        size_t want = (size_t)tu_min(left, max - b->n);
        void *to = tu_buf_room(b, want, err);
        if (!to)
            return TU_ENOMEM;
        int code = tu_in_read(in, to, want, &got, err);
        if (code)
            return code;
        b->n += got;
    }
    int code = tu_in_peek(in, &more, 1, &got, err);
    if (code)
        return code;
    if (got)
        return tu_fail(err, TU_ELIMIT, "%s: longer than the limit of %zu bytes",
                       tu_in_name(in), max);
    return tu_buf_add(b, "", 0, err);
}

int tu_file_read(const char *path, size_t max, char **data, size_t *n, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_buf b = {0};
    *data = NULL;
    *n = 0;
    int code = tu_in_open(&in, path, err);
    if (code)
        return code;
    if (tu_in_size(in) > max)
        code = tu_fail(err, TU_ELIMIT, "%s: %llu bytes, over the limit of %zu", path,
                       (unsigned long long)tu_in_size(in), max);
    code = code ? code : read_all(in, max, &b, err);
    if (!code) {
        *n = b.n;
        *data = tu_buf_take(&b);
    }
    tu_buf_release(&b);
    tu_in_close(in);
    return code;
}

int tu_file_expect(const char *path, struct tu_err *err, const char *fmt, ...)
{
    char why[160];
    va_list ap;
    if (!access(path, F_OK) || (errno != ENOENT && errno != ENOTDIR))
        return 0;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return tu_fail(err, TU_EINCOMPLETE, "%s: missing: %s", path, why);
}

int tu_file_write(const char *path, const void *data, size_t n, bool durable,
                  const struct tu_job *job, struct tu_err *err)
{
    struct tu_out *out;
    int code = tu_out_open(&out, path, job, err);
    if (code)
        return code;
    code = tu_out_write(out, data, n, err);
    if (code) {
        tu_out_abort(out);
        return code;
    }
    return tu_out_commit(out, durable, err);
}

int tu_dir_sync(const char *path, struct tu_err *err)
{
    int fd = tui_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return tu_fail_errno(err, "%s: cannot open", path);
    /* Some file systems do not sync folders and say so. */
    int code = 0;
    if (tui_fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        code = tu_fail_errno(err, "%s: cannot write to the disk", path);
    tui_close(fd);
    return code;
}
