/* SPDX-License-Identifier: Apache-2.0 */
/* flat.c: the sink of a file that is a head and then tensors at fixed places.
 *
 * A seekable file is made its full size at once and written anywhere; a pipe is written
 * front to back, the gaps as zeros. That all bytes came is counted by the front. */
#include "kit.h"

static void close_flat(struct tu_sink *sink)
{
    struct tui_flat *f = (struct tui_flat *)sink;
    tu_out_abort(f->out);
    tu_free(f->at);
    tu_free(f->order);
    tu_free(f->sink.path);
    tu_free(f);
}

static int finish_flat(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct tui_flat *f = (struct tui_flat *)sink;
    uint64_t pos = tu_out_pos(f->out);
    int code = 0;
    if (f->sequential && pos < f->size)
        code = tu_out_zeros(f->out, f->size - pos, err);
    if (code)
        return code;
    struct tu_out *out = f->out;
    f->out = NULL;
    return tu_out_commit(out, durable, err);
}

int tui_flat_put(struct tui_flat *f, uint64_t off, const void *p, size_t n, struct tu_err *err)
{
    if (!f->sequential)
        return tu_out_pwrite(f->out, off, p, n, err);
    uint64_t pos = tu_out_pos(f->out);
    if (off < pos)
        return tu_fail_at(err, TU_EUSAGE, off,
                          "%s: bytes for offset %llu come after those for %llu, "
                          "but this output cannot seek",
                          tu_out_name(f->out), (unsigned long long)off,
                          (unsigned long long)pos);
    int code = off > pos ? tu_out_zeros(f->out, off - pos, err) : 0;
    return code ? code : tu_out_write(f->out, p, n, err);
}

static int write_flat(struct tu_sink *sink, size_t i, uint64_t off, const void *p, size_t n,
                      struct tu_err *err)
{
    struct tui_flat *f = (struct tui_flat *)sink;
    return tui_flat_put(f, f->at[i] + off, p, n, err);
}

const struct tu_sink_ops tui_flat_ops = { write_flat, finish_flat, close_flat };

int tui_flat_new(struct tui_flat **out, const struct tu_format *format, const char *path,
                 size_t n, const struct tu_buf *head, uint64_t *at, size_t *order,
                 uint64_t size, const struct tu_job *job, struct tu_err *err)
{
    int code = TU_ENOMEM;
    struct tui_flat *f = tu_calloc(1, sizeof *f, err);
    if (!f) {
        tu_free(at);
        tu_free(order);
        return code;
    }
    f->at = at;
    f->order = order;
    f->size = size;
    f->sink = (struct tu_sink){ .format = format, .ops = &tui_flat_ops, .n = n,
                                .order = order };
    f->sink.path = tu_strdup(path, err);
    if (!f->sink.path)
        goto fail;
    code = tu_out_open(&f->out, path, job, err);
    if (code)
        goto fail;
    f->sequential = !tu_out_seekable(f->out);
    if (!f->sequential)
        code = tu_out_truncate(f->out, size, err);
    if (!code)
        code = tu_out_write(f->out, head->data, head->n, err);
    if (code)
        goto fail;
    *out = f;
    return 0;
fail:
    close_flat(&f->sink);
    return code;
}
