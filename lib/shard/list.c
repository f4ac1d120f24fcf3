/* SPDX-License-Identifier: Apache-2.0 */
/* list.c: files of any format that a list names, one a line, as one checkpoint.
 *
 * Nothing is copied together first. Tensors that say where they belong (`shard`, `flat` in a
 * stream) are pieces, others are whole. Model and small files are those of META records,
 * else those beside the first file. */

#include <string.h>

#include "single.h"

#define LIST_MAX ((size_t)64 << 20)

static int list_detect(const char *path)
{
    (void)path;
    return 0; /* a text could be anything */
}

/* The whole text, from standard input too. */
static int list_read(const char *path, struct tu_buf *text, struct tu_err *err)
{
    struct tu_in *in = NULL;
    char part[4096];
    size_t got = 1;
    int rc = tu_in_open(&in, path, err);
    tu_buf_init(text, LIST_MAX);
    while (!rc && got) {
        rc = tu_in_read(in, part, sizeof part, &got, err);
        if (!rc)
            rc = tu_buf_add(text, part, got, err);
    }
    tu_in_close(in);
    return rc;
}

/* The folder of the first file, as the arena's. */
static int list_sides(struct tu_ckpt *c, struct tu_err *err)
{
    const char *first = c->file[0].path, *slash = strrchr(first, '/');
    size_t n = slash ? (size_t)(slash - first) + (slash == first) : 1;
    char *folder = tu_arena_text(c->arena, slash ? first : ".", n, err);
    return folder ? tui_sides_from(c, folder, err) : TU_ENOMEM;
}

static int list_open(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = list_read(c->root, &text, err);
    (void)spec;
    for (size_t at = 0; at < text.n && !rc;) {
        const char *line = text.data + at, *end = memchr(line, '\n', text.n - at);
        size_t n = end ? (size_t)(end - line) : text.n - at;
        char *path = n ? tu_arena_text(c->arena, line, n, err) : NULL;
        if (n)
            rc = path ? tui_add_one(c, path, path, NULL, o, job, err) : TU_ENOMEM;
        at += n + 1;
    }
    tu_buf_release(&text);
    if (!rc && !c->files)
        rc = tu_fail(err, TU_EINCOMPLETE, "%.200s: names no file", c->root);
    for (size_t f = 0; f < c->files && !rc; f++)
        rc = tui_stream_metas(c, c->file[f].source, err);
    if (!rc && !c->sides)
        rc = list_sides(c, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    return rc ? rc : tui_add_all(c, o, err);
}

const struct tu_layout tui_layout_files = {
    .name = "files",
    .help = "files of any format that a list names, one a line (only read)",
    .key = tui_no_keys,
    .detect = list_detect,
    .open = list_open,
};
