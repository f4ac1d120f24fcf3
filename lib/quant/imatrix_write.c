/* SPDX-License-Identifier: Apache-2.0 */
/* imatrix_write.c: importance matrices as llama.cpp reads them: sums of squares and counts
 * of tokens. Source: ggml-org/llama.cpp tools/imatrix/imatrix.cpp. */
#include <string.h>
#include "imatrix.h"
#include "tensorutils/format.h"

#define CHUNK 512 /* tokens of a chunk, which llama.cpp counts in */

static int put32(struct tu_buf *b, uint64_t v, struct tu_err *err)
{
    unsigned char p[4];
    tu_put32(p, (uint32_t)v);
    return tu_buf_add(b, p, sizeof p, err);
}

/* Sums as the present reader has them: means times the count. */
static float *sums_of(const struct tui_importance *e, uint64_t count, struct tu_err *err)
{
    float *w = tu_alloc((size_t)e->n, sizeof *w, err);
    for (uint64_t i = 0; w && i < e->n; i++)
        w[i] = e->weight[i] * (float)count;
    return w;
}

static uint64_t chunks_of(const struct tui_importance *e)
{
    return tu_max(1, tu_ceil_div(e->count, CHUNK));
}

static int write_older(const struct tu_imatrix *m, const char *path, const struct tu_job *job,
                       struct tu_err *err)
{
    struct tu_buf b = {0};
    struct tu_out *out = NULL;
    int rc = put32(&b, m->n, err);
    if (!rc)
        rc = tu_out_open(&out, path, job, err);
    for (size_t i = 0; !rc && i < m->n; i++) {
        const struct tui_importance *e = &m->entry[i];
        const size_t len = strlen(e->name);
        float *w = sums_of(e, chunks_of(e), err);
        rc = w ? put32(&b, len, err) : TU_ENOMEM;
        if (!rc)
            rc = tu_buf_add(&b, e->name, len, err);
        if (!rc)
            rc = put32(&b, chunks_of(e), err);
        if (!rc)
            rc = put32(&b, e->n, err);
        if (!rc)
            rc = tu_out_write(out, b.data, b.n, err);
        if (!rc)
            rc = tu_out_write(out, w, (size_t)e->n * sizeof *w, err);
        tu_buf_reset(&b);
        tu_free(w);
    }
    tu_buf_release(&b);
    if (!rc)
        return tu_out_commit(out, false, err);
    tu_out_abort(out);
    return rc;
}

/* Two tensors to an entry: sums and counts. */
static int describe(const struct tu_imatrix *m, struct tu_arena *a, struct tu_tensor *t,
                    struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < m->n; i++) {
        const uint64_t sums[2] = {1, m->entry[i].n}, counts[2] = {1, 1};
        char *name = tu_arena_printf(a, err, "%s.in_sum2", m->entry[i].name);
        char *count = tu_arena_printf(a, err, "%s.counts", m->entry[i].name);
        rc = name && count ? tu_tensor_make(&t[2 * i], a, name, TU_F32, sums, 2, NULL, err)
                           : TU_ENOMEM;
        if (!rc)
            rc = tu_tensor_make(&t[2 * i + 1], a, count, TU_F32, counts, 2, NULL, err);
    }
    return rc;
}

static int put_entries(const struct tu_imatrix *m, struct tu_sink *s, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < m->n; i++) {
        const struct tui_importance *e = &m->entry[i];
        float count = (float)e->count, *w = sums_of(e, e->count, err);
        rc = w ? tu_sink_write(s, 2 * i, 0, w, (size_t)e->n * sizeof *w, err) : TU_ENOMEM;
        if (!rc)
            rc = tu_sink_write(s, 2 * i + 1, 0, &count, sizeof count, err);
        tu_free(w);
    }
    return rc;
}

static int write_gguf(const struct tu_imatrix *m, const char *path, const struct tu_job *job,
                      struct tu_err *err)
{
    static const char meta_text[] =
        "{\"general.type\":[8,\"imatrix\"],\"imatrix.chunk_count\":[4,1],"
        "\"imatrix.chunk_size\":[4,512],\"imatrix.datasets\":[9,[8,[\"\"]]]}";
    const struct tu_meta meta = {"gguf", meta_text, sizeof meta_text - 1};
    struct tu_arena *a = tu_arena_new(err);
    struct tu_tensor *t = a ? tu_arena_alloc(a, 2 * m->n + 1, sizeof *t, err) : NULL;
    struct tu_sink *sink = NULL;
    int rc = t ? describe(m, a, t, err) : TU_ENOMEM;
    const struct tu_save what = {.n = 2 * m->n, .tensor = t, .metas = 1, .meta = &meta};
    if (!rc)
        rc = tu_sink_open(&sink, path, tu_format_find("gguf"), &what, job, err);
    if (!rc)
        rc = put_entries(m, sink, err);
    if (!rc) {
        rc = tu_sink_finish(sink, false, err);
        sink = NULL;
    }
    tu_sink_abort(sink);
    tu_arena_free(a);
    return rc;
}

int tu_imatrix_write(const struct tu_imatrix *m, const char *path, bool older,
                     const struct tu_job *job, struct tu_err *err)
{
    return older ? write_older(m, path, job, err) : write_gguf(m, path, job, err);
}
