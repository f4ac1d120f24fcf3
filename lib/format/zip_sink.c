/* SPDX-License-Identifier: Apache-2.0 */
/* zip_sink.c: a zip archive as a tensor sink: what torch and npz files have in common.
 *
 * Bytes go straight to their place; checksums are gathered as contributions, which XOR in
 * any order from any thread. A pipe gets the same file from front to back, if the bytes
 * come in its order. */
#include <stdatomic.h>

#include "kit.h"
#include "zip.h"

struct part {
    const char *head;
    size_t head_n;
    _Atomic uint32_t crc; /* of the bytes so far */
};

struct tui_zip_sink {
    struct tu_sink sink;
    struct tu_arena *arena;
    struct tu_out *out;
    size_t parts;
    struct tu_zip_plan *plan;
    struct part *part;
    size_t *part_of; /* [n] of tensors */
    bool sequential;
    size_t at;      /* sequential: the part that is being written */
    uint64_t local; /* sequential: its local header */
};

static void add_crc(struct part *p, const void *bytes, size_t n, uint64_t after)
{
    uint32_t run = tu_crc32_part(tu_crc32(0, bytes, n), after);
    atomic_fetch_xor_explicit(&p->crc, run, memory_order_relaxed);
}

/* A pipe: the frame of the part at hand, and its fixed bytes. */
static int begin_part(struct tui_zip_sink *s, struct tu_err *err)
{
    struct tu_buf head = {0};
    s->local = tu_out_pos(s->out);
    int rc = tui_zip_head(&head, &s->plan[s->at], s->local, err);
    if (rc == 0)
        rc = tu_buf_add(&head, s->part[s->at].head, s->part[s->at].head_n, err);
    if (rc == 0)
        rc = tu_out_write(s->out, head.data, head.n, err);
    tu_buf_release(&head);
    return rc;
}

static int end_part(struct tui_zip_sink *s, struct tu_err *err)
{
    struct tu_buf tail = {0};
    s->plan[s->at].crc = s->part[s->at].crc;
    int rc = tui_zip_tail(&tail, &s->plan[s->at], s->local, err);
    if (rc == 0)
        rc = tu_out_write(s->out, tail.data, tail.n, err);
    tu_buf_release(&tail);
    s->at++;
    return rc;
}

/* A pipe: finish every part that is full, up to one that waits for bytes. */
static int advance(struct tui_zip_sink *s, struct tu_err *err)
{
    int rc = 0;
    while (rc == 0 && s->at < s->parts) {
        const struct tu_zip_plan *e = &s->plan[s->at];
        if (tu_out_pos(s->out) < e->offset)
            rc = begin_part(s, err);
        if (rc == 0 && tu_out_pos(s->out) < e->offset + e->size)
            break;
        if (rc == 0)
            rc = end_part(s, err);
    }
    return rc;
}

static int zip_sink_write(struct tu_sink *sink, size_t i, uint64_t off, const void *p,
                          size_t n, struct tu_err *err)
{
    struct tui_zip_sink *s = (struct tui_zip_sink *)sink;
    size_t k = s->part_of[i];
    const struct tu_zip_plan *e = &s->plan[k];
    uint64_t at = e->offset + s->part[k].head_n + off;
    add_crc(&s->part[k], p, n, e->offset + e->size - at - n);
    if (!s->sequential)
        return tu_out_pwrite(s->out, at, p, n, err);
    if (tu_out_pos(s->out) != at)
        return tu_fail(err, TU_EUSAGE,
                       "%s: zip entry '%s': a pipe needs its bytes in order",
                       tu_out_name(s->out), e->name);
    int rc = tu_out_write(s->out, p, n, err);
    return rc < 0 ? rc : advance(s, err);
}

static int zip_sink_finish(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct tui_zip_sink *s = (struct tui_zip_sink *)sink;
    int rc = 0;
    for (size_t k = 0; rc == 0 && !s->sequential && k < s->parts; k++) {
        s->plan[k].crc = s->part[k].crc;
        if (s->part[k].head_n)
            rc = tu_out_pwrite(s->out, s->plan[k].offset, s->part[k].head,
                               s->part[k].head_n, err);
    }
    if (rc == 0)
        rc = tu_zip_finish(s->out, s->plan, s->parts, TUI_ZIP_ALIGN, err);
    if (rc < 0)
        return rc;
    struct tu_out *out = s->out;
    s->out = NULL;
    return tu_out_commit(out, durable, err);
}

static void zip_sink_close(struct tu_sink *sink)
{
    struct tui_zip_sink *s = (struct tui_zip_sink *)sink;
    tu_out_abort(s->out);
    tu_arena_free(s->arena);
    tu_free(s);
}

static const struct tu_sink_ops zip_sink_ops = {zip_sink_write, zip_sink_finish,
                                                zip_sink_close};

/* Copies of what the caller gave, and the layout. */
static int fill(struct tui_zip_sink *s, const struct tui_zip_part *part,
                const struct tu_tensor *t, size_t n, struct tu_err *err)
{
    uint64_t size;
    size_t *order = tu_arena_alloc(s->arena, n + 1, sizeof *order, err), tensors = 0;
    s->plan = order ? tu_arena_alloc(s->arena, s->parts, sizeof *s->plan, err) : NULL;
    s->part = s->plan ? tu_arena_alloc(s->arena, s->parts, sizeof *s->part, err) : NULL;
    s->part_of = s->part ? tu_arena_alloc(s->arena, n + 1, sizeof *s->part_of, err)
                         : NULL;
    if (!s->part_of)
        return TU_ENOMEM;
    for (size_t k = 0; k < s->parts; k++) {
        bool data = part[k].tensor != SIZE_MAX;
        uint64_t bytes = data ? t[part[k].tensor].bytes : 0;
        s->plan[k].name = tu_arena_text(s->arena, part[k].name, strlen(part[k].name),
                                        err);
        s->part[k].head = tu_arena_text(s->arena, part[k].head, part[k].head_n, err);
        if (!s->plan[k].name || !s->part[k].head)
            return TU_ENOMEM;
        if (tu_add_over(part[k].head_n, bytes, &s->plan[k].size))
            return tu_fail(err, TU_ESIZE, "zip entry '%s': too large", part[k].name);
        s->part[k].head_n = part[k].head_n;
        add_crc(&s->part[k], part[k].head, part[k].head_n, bytes);
        if (data) {
            s->part_of[part[k].tensor] = k;
            order[tensors++] = part[k].tensor;
        }
    }
    s->sink.order = order;
    return tu_zip_layout(s->plan, s->parts, TUI_ZIP_ALIGN, &size, err);
}

int tui_zip_sink_new(struct tu_sink **out, const struct tu_format *format,
                     const char *path, const struct tui_zip_part *part, size_t parts,
                     const struct tu_tensor *t, size_t n, const struct tu_job *job,
                     struct tu_err *err)
{
    struct tui_zip_sink *s = tu_calloc(1, sizeof *s, err);
    *out = NULL;
    if (!s)
        return TU_ENOMEM;
    s->sink.format = format;
    s->sink.ops = &zip_sink_ops;
    s->sink.n = n;
    s->parts = parts;
    s->arena = tu_arena_new(err);
    s->sink.path = s->arena ? tu_arena_text(s->arena, path, strlen(path), err) : NULL;
    int rc = s->sink.path ? fill(s, part, t, n, err) : TU_ENOMEM;
    if (rc == 0)
        rc = tu_out_open(&s->out, path, job, err);
    if (rc == 0) {
        s->sequential = !tu_out_seekable(s->out);
        if (s->sequential)
            rc = advance(s, err);
    }
    if (rc < 0) {
        zip_sink_close(&s->sink);
        return rc;
    }
    *out = &s->sink;
    return 0;
}
