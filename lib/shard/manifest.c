/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c: digests as a text that diff(1) can compare. */

#include <stdlib.h>
#include <string.h>

#include <tensorutils/shard.h>

static int by_name(const void *x, const void *y)
{
    const struct tu_digest *a = x, *b = y;
    return strcmp(a->name, b->name);
}

int tu_digest_write(struct tu_buf *out, struct tu_digest *d, size_t n, struct tu_err *err)
{
    int rc = 0;
    qsort(d, n, sizeof *d, by_name);
    for (size_t i = 0; i < n && !rc; i++) {
        char dtype[8], sha[TU_SHA256_HEX] = "-";
        if (d[i].has_sha)
            tu_sha256_hex(d[i].sha, sha);
        rc = tu_buf_printf(out, err, "%08x %s %s ", d[i].crc, sha,
                           tu_dtype_text(d[i].dtype, dtype));
        if (!rc)
            rc = tu_shape_text(out, d[i].dim, d[i].rank, err);
        if (!rc)
            rc = tu_buf_text(out, " ", err);
        if (!rc)
            rc = tu_text_escape(out, d[i].name, strlen(d[i].name), err);
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}
