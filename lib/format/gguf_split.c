/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_split.c: a set of GGUF files, as llama.cpp's gguf-split names and marks them.
 *
 * PREFIX-00001-of-00003.gguf and so on: each has split.no, split.count and
 * split.tensors.count, only the first the model's other keys. Tensors keep their order; a
 * file ends before the tensor that would make its data longer than asked. The first file
 * is what readers open, so it appears last. */
#include <stdio.h>
#include "gguf.h"
#include "kit.h"
#include "rows.h"

#define SPLIT_MAX 65535u /* split.no is 16 bits wide */

struct split_sink {
    struct tu_sink base;
    struct tu_sink **part;
    size_t parts;
    uint32_t *of; /* [n] the part of a tensor */
    size_t *in;   /* [n] its number there */
};

static void close_split(struct tu_sink *sink)
{
    struct split_sink *s = (struct split_sink *)sink;
    for (size_t k = 0; s->part && k < s->parts; k++)
        tu_sink_abort(s->part[k]);
    tu_free(s->part);
    tu_free(s->of);
    tu_free(s->in);
    tu_free(s->base.path);
    tu_free(s);
}

static int write_split(struct tu_sink *sink, size_t i, uint64_t off, const void *p, size_t n,
                       struct tu_err *err)
{
    struct split_sink *s = (struct split_sink *)sink;
    return tu_sink_write(s->part[s->of[i]], s->in[i], off, p, n, err);
}

static int finish_split(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct split_sink *s = (struct split_sink *)sink;
    int code = 0;
    for (size_t k = s->parts; !code && k-- > 0;) {
        struct tu_sink *part = s->part[k];
        s->part[k] = NULL;
        code = tu_sink_finish(part, durable, err);
    }
    return code;
}

static const struct tu_sink_ops split_ops = { write_split, finish_split, close_split };

/* Which tensor goes where. */
static int group(struct split_sink *s, const struct tu_save *what, struct tu_err *err)
{
    uint64_t bytes = 0;
    s->of = tu_alloc(what->n + 1, sizeof *s->of, err);
    s->in = s->of ? tu_alloc(what->n + 1, sizeof *s->in, err) : NULL;
    if (!s->in)
        return TU_ENOMEM;
    s->parts = 1;
    for (size_t i = 0, first = 0; i < what->n; i++) {
        if (i > first && bytes + what->tensor[i].bytes > what->max_shard) {
            first = i;
            bytes = 0;
            s->parts++;
        }
        bytes += what->tensor[i].bytes;
        s->of[i] = (uint32_t)s->parts - 1;
        s->in[i] = i - first;
    }
    if (s->parts > SPLIT_MAX)
        return tu_fail(err, TU_ELIMIT, "%s: %zu files of at most %llu bytes, at most %u can be "
                       "numbered", s->base.path, s->parts, (unsigned long long)what->max_shard,
                       SPLIT_MAX);
    s->part = tu_calloc(s->parts, sizeof(struct tu_sink *), err);
    return s->part ? 0 : TU_ENOMEM;
}

/* One file, under its number: n tensors from the first of `what`. */
static int open_part(struct split_sink *s, size_t k, const struct tu_save *what, size_t total,
                     const struct tu_job *job, struct tu_err *err)
{
    struct tu_buf path = { 0 }, json = { 0 };
    struct tu_meta *meta = tu_alloc(what->metas + 1, sizeof *meta, err);
    const char *whole = s->base.path;
    size_t n = strlen(whole), tail = strlen(".gguf");
    n -= n > tail && !strcmp(whole + n - tail, ".gguf") ? tail : 0;
    int code = meta ? tu_buf_printf(&path, err, "%.*s-%05zu-of-%05zu.gguf", (int)n, whole, k + 1,
                                    s->parts)
                    : TU_ENOMEM;
    if (!code)
        code = tu_buf_printf(&json, err, "{\"split.count\":[%d,%zu],\"split.no\":[%d,%zu],"
                             "\"split.tensors.count\":[%d,%zu]}", TUI_GGUF_U16, s->parts,
                             TUI_GGUF_U16, k, TUI_GGUF_I32, total);
    if (!code) {
        struct tu_save part = *what;
        part.max_shard = 0;
        part.metas = k ? 0 : what->metas;
        memcpy(meta, what->meta, part.metas * sizeof *meta);
        meta[part.metas++] = (struct tu_meta){ "gguf", json.data, json.n };
        part.meta = meta;
        code = tu_sink_open(&s->part[k], path.data, &tui_format_gguf, &part, job, err);
    }
    tu_free(meta);
    tu_buf_release(&path);
    tu_buf_release(&json);
    return code;
}

int tui_gguf_save_split(struct tu_sink **out, const char *path, const struct tu_save *what,
                        const struct tu_job *job, struct tu_err *err)
{
    if (!strcmp(path, "-"))
        return tu_fail(err, TU_EUSAGE, "split GGUF files need a name, not standard output");
    struct split_sink *s = tu_calloc(1, sizeof *s, err);
    if (!s)
        return TU_ENOMEM;
    s->base = (struct tu_sink){ .format = &tui_format_gguf, .ops = &split_ops, .n = what->n };
    s->base.path = tu_strdup(path, err);
    int code = s->base.path ? group(s, what, err) : TU_ENOMEM;
    for (size_t k = 0, i = 0; !code && k < s->parts; k++) {
        struct tu_save part = *what;
        part.tensor = what->tensor + i;
        for (part.n = 0; i < what->n && s->of[i] == k; i++)
            part.n++;
        code = open_part(s, k, &part, what->n, job, err);
    }
    if (code)
        close_split(&s->base);
    else
        *out = &s->base;
    return code;
}
