/* SPDX-License-Identifier: Apache-2.0 */
/* state.c: records from one step to the next. */
#include "quantize/state.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

const char *state_path;

int state_open(struct state *s, struct tu_ctx *ctx, struct tu_err *err)
{
    struct tu_out *out = NULL;
    *s = (struct state){.path = state_path, .ctx = ctx};
    int rc = 0;
    if (access(s->path, F_OK) == 0) {
        rc = tu_source_open(&s->old, s->path, NULL, NULL, tu_ctx_job(ctx), err);
        if (!rc && !(s->renewed = tu_calloc(s->old->n, sizeof *s->renewed, err)))
            rc = TU_ENOMEM;
    } else if (errno != ENOENT) {
        rc = tu_fail_errno(err, "%s", s->path);
    }
    if (!rc)
        rc = tu_out_open(&out, s->path, tu_ctx_job(ctx), err);
    return rc ? rc : tu_writer_new(&s->writer, out, err);
}

static int name_of(struct tu_buf *text, const char *name, const char *suffix, struct tu_err *err)
{
    return tu_buf_printf(text, err, "%s%s%s", name, suffix ? "." : "", suffix ? suffix : "");
}

static size_t find(struct state *s, const char *name)
{
    return s->old ? tu_source_find(s->old, name) : SIZE_MAX;
}

int state_get(struct state *s, const char *name, const char *suffix, uint64_t n, float **out,
              struct tu_err *err)
{
    struct tu_buf text = {0};
    *out = NULL;
    int rc = name_of(&text, name, suffix, err);
    const size_t i = rc ? SIZE_MAX : find(s, text.data);
    if (!rc && i != SIZE_MAX) {
        const struct tu_tensor *t = &s->old->tensor[i];
        if (t->dtype != TU_F32 || t->bytes != n * sizeof **out)
            rc = tu_fail(err, TU_EUSAGE, "%s: '%.80s' is of another tensor or codec", s->path,
                         t->name);
        else if (!(*out = tu_alloc((size_t)n, sizeof **out, err)))
            rc = TU_ENOMEM;
        else
            rc = tu_source_read(s->old, i, 0, *out, (size_t)t->bytes, err);
    }
    tu_buf_release(&text);
    return rc;
}

int state_put(struct state *s, const char *name, const char *suffix, const uint64_t *dim,
              unsigned rank, const float *v, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = name_of(&text, name, suffix, err);
    struct tu_tensor t = {.name = text.data, .dtype = TU_F32, .rank = rank, .dim = dim};
    if (!rc)
        rc = tu_tensor_bytes(t.dtype, dim, rank, &t.bytes, err);
    if (!rc)
        rc = tu_writer_tensor(s->writer, &t, v, err);
    const size_t i = rc ? SIZE_MAX : find(s, text.data);
    if (i != SIZE_MAX)
        s->renewed[i] = true;
    tu_buf_release(&text);
    return rc;
}

/* What the step has not met. */
static int keep(struct state *s, size_t i, struct tu_err *err)
{
    static unsigned char buf[65536];
    const struct tu_tensor *t = &s->old->tensor[i];
    struct tu_record rec;
    tu_record_of(&rec, t);
    int rc = tu_writer_record(s->writer, &rec, err);
    for (uint64_t at = 0; !rc && at < t->bytes; at += sizeof buf) {
        const size_t n = (size_t)tu_min(sizeof buf, t->bytes - at);
        rc = tu_source_read(s->old, i, at, buf, n, err);
        if (!rc)
            rc = tu_writer_write(s->writer, buf, n, err);
    }
    return rc;
}

static void release(struct state *s)
{
    tu_source_close(s->old);
    tu_free(s->renewed);
    *s = (struct state){.path = NULL};
}

int state_close(struct state *s, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && s->old && i < s->old->n; i++)
        if (!s->renewed[i])
            rc = keep(s, i, err);
    if (!rc)
        rc = tu_writer_end(s->writer, false, err);
    if (!rc) {
        rc = tu_writer_close(s->writer, false, err);
        s->writer = NULL;
    }
    return rc;
}

void state_abort(struct state *s)
{
    tu_writer_abort(s->writer);
    release(s);
}
