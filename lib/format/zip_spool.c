/* SPDX-License-Identifier: Apache-2.0 */
/* zip_spool.c: deflated entries made readable at random: one temporary file for all of
 * them. */
#include <unistd.h>

#include "zip.h"

int tui_zip_spool_add(struct tui_zip_spool *s, struct tu_zip *z, size_t i,
                      const char *folder, uint64_t *off, struct tu_err *err)
{
    int rc = s->open ? 0 : tu_file_nameless(&s->fd, folder, err);
    if (rc < 0)
        return rc;
    s->open = true;
    *off = s->size;
    s->size += tu_zip_entry(z, i)->size;
    return tu_zip_inflate(z, i, s->fd, err); /* goes on where the last one ended */
}

int tui_zip_spool_finish(struct tui_zip_spool *s, struct tu_in **in, const char *name,
                         struct tu_err *err)
{
    *in = NULL;
    if (!s->open)
        return 0;
    s->open = false;
    if (lseek(s->fd, 0, SEEK_SET) < 0) {
        int rc = tu_fail_errno(err, "%s: temporary file", name);
        close(s->fd);
        return rc;
    }
    return tu_in_take_fd(in, s->fd, name, err);
}

void tui_zip_spool_release(struct tui_zip_spool *s)
{
    if (s->open)
        close(s->fd);
    s->open = false;
}
