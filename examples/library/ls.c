/* SPDX-License-Identifier: Apache-2.0 */
/* ls.c: a first program with the library: dtype, shape and name of each tensor of a file of
 * any format, or of a stream on standard input.
 *
 *     cc ls.c $(pkg-config --cflags --libs tensorutils) -o ls && ./ls model.safetensors */
#include <stdio.h>
#include <tensorutils/format.h>

int main(int argc, char **argv)
{
    struct tu_feed *feed = NULL;
    const struct tu_record *rec;
    struct tu_buf shape = {0};
    struct tu_err err;
    char dtype[8];
    int rc = tu_feed_open(&feed, argc > 1 ? argv[1] : "-", NULL, NULL, &err);
    while (!rc && !(rc = tu_feed_next(feed, &rec, &err)) && rec) {
        if (rec->type != TU_REC_TENSOR)
            continue; /* metadata, or the end of a segment */
        tu_buf_reset(&shape);
        rc = tu_shape_text(&shape, rec->word, rec->nwords, &err);
        if (!rc)
            printf("%s\t%s\t%s\n", tu_dtype_text(rec->dtype, dtype), shape.data, rec->name);
    }
    if (rc)
        fprintf(stderr, "ls: %s\n", err.msg); /* names the file and what is wrong there */
    tu_buf_release(&shape);
    tu_feed_close(feed);
    return tu_err_status(rc);
}
