/* SPDX-License-Identifier: Apache-2.0 */
/* input.c: ask the formats whether they know a file. */
#include "common/input.h"

#include <string.h>
#include <sys/stat.h>

#define HEAD 4096

bool tu_input_foreign(const char *path)
{
    unsigned char head[HEAD];
    size_t n = 0;
    struct stat st;
    struct tu_in *in;
    if (!strcmp(path, "-") || stat(path, &st) ||
        (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return false;
    const bool folder = S_ISDIR(st.st_mode);
    if (!folder) {
        if (tu_in_open(&in, path, NULL))
            return false;
        const int rc = tu_in_peek(in, head, sizeof head, &n, NULL);
        tu_in_close(in);
        if (rc || (n >= strlen(TU_STREAM_MAGIC) &&
                   !memcmp(head, TU_STREAM_MAGIC, strlen(TU_STREAM_MAGIC))))
            return false;
    }
    for (const struct tu_format *const *f = tu_formats; *f; f++)
        if (((*f)->flags & TU_FORMAT_READ) &&
            (!folder || ((*f)->flags & TU_FORMAT_DIR)) && (*f)->sniff(path, head, n))
            return true;
    return false;
}

int tu_walk_pull(void *ctx, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    struct tu_walk *w = ctx;
    *got = (size_t)tu_min(n, w->source->tensor[w->i].bytes - w->pos);
    int rc = *got ? tu_source_read(w->source, w->i, w->pos, buf, *got, err) : 0;
    w->pos += *got;
    return rc;
}
