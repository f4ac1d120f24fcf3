/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: every atom once through memory: read, digested, cast, written.
 *
 * Atoms are the tasks of the pool; an atom goes by windows of whole rows, so a worker
 * needs a window, a stage and, with a cast, a second window, whatever the size of the
 * model. */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "move.h"

#define WINDOW_CACHED                                                                    \
    ((uint64_t)4 << 20) /* bytes: stays in the caches on its way through */
#define WINDOW_LEAST ((uint64_t)64 << 10)

struct worker {
    char *window, *cast;
    struct tui_stage stage;
    struct tu_sha256 *sha;
};

struct mover {
    const struct tu_ckpt *from, *to; /* to NULL: digests or put alone */
    const struct tu_shard_opts *o;
    const struct tu_job *job;
    struct tu_sink **sink;    /* [to->files] */
    struct tu_digest *digest; /* [from->atoms] or NULL */
    tu_put_fn put;
    void *put_ctx;
    uint64_t bytes; /* of a worker's window */
    struct worker *worker;
    unsigned workers;
    _Atomic uint64_t done;
    uint64_t total;
};

static void mover_release(struct mover *m)
{
    for (unsigned i = 0; m->worker && i < m->workers; i++) {
        tu_free(m->worker[i].window);
        tu_free(m->worker[i].cast);
        tu_free(m->worker[i].stage.data);
        tui_spans_release(&m->worker[i].stage.clip);
        tu_sha256_free(m->worker[i].sha);
    }
    tu_free(m->worker);
}

static int worker_init(struct mover *m, struct worker *w, struct tu_err *err)
{
    w->stage.bytes = (size_t)m->bytes;
    if (!(w->window = tu_alloc((size_t)m->bytes, 1, err)) ||
        !(w->stage.data = tu_alloc((size_t)m->bytes, 1, err)))
        return TU_ENOMEM;
    /* A cast may widen: f8 to f64 at most. */
    if (m->to && m->to->dtype != TU_DTYPE_NONE &&
        !(w->cast = tu_alloc((size_t)m->bytes, 8, err)))
        return TU_ENOMEM;
    if (m->o && m->o->sha256 && !(w->sha = tu_sha256_new(err)))
        return TU_ENOMEM;
    return 0;
}

static int mover_init(struct mover *m, struct tu_err *err)
{
    bool cast = m->to && m->to->dtype != TU_DTYPE_NONE;
    m->workers = m->put ? 1 : tu_pool_size(m->job ? m->job->pool : NULL);
    m->bytes = tu_job_memory(m->job) / m->workers / (cast ? 10 : 2);
    m->bytes = tu_max(tu_min(m->bytes, (uint64_t)16 << 20), WINDOW_LEAST);
    m->worker = tu_calloc(m->workers, sizeof *m->worker, err);
    if (!m->worker)
        return TU_ENOMEM;
    for (size_t a = 0; a < m->from->atoms; a++)
        m->total += m->from->atom[a].tensor.bytes;
    int rc = 0;
    for (unsigned i = 0; i < m->workers && !rc; i++)
        rc = worker_init(m, &m->worker[i], err);
    return rc;
}

/* Rows of a window: few enough to stay in the cache, unless some piece is turned and
 * wants long runs both ways. */
static uint64_t window_rows(const struct mover *m, const struct tui_parts *in,
                            const struct tui_parts *out, uint64_t line)
{
    uint64_t bytes = tu_min(m->bytes, WINDOW_CACHED);
    const struct tui_parts *both[2] = {in, out};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < both[k]->n; i++)
            if (both[k]->part[i].spans.n && both[k]->part[i].spans.span[0].pcol != 1)
                bytes = m->bytes;
    return tu_max(bytes / tu_max(line, 1), 1);
}

/* Vocabulary padding of one piece: zeros, or the last true row again. */
static int write_pad(const struct mover *m, const struct tui_part *p,
                     const char *last_row, size_t row_bytes, struct worker *wk,
                     struct tu_err *err)
{
    const struct tu_piece *piece = &m->to->piece[p->piece];
    uint64_t first, n;
    int rc = 0;
    tui_pad_rows(m->to, piece, &first, &n);
    if (!n)
        return 0;
    size_t cut = (size_t)(piece->tensor.bytes / piece->tensor.dim[0]), off = 0;
    if (piece->fuse.transform & TU_MAP_ROW)
        off = piece->at.tp * cut;
    uint64_t batch = tu_max(tu_min(n, wk->stage.bytes / cut), 1);
    if (cut > wk->stage.bytes || off + cut > row_bytes)
        return tu_fail(err, TU_ENOMEM, "a row of '%.100s' does not fit the memory budget",
                       piece->tensor.name);
    for (uint64_t i = 0; i < batch; i++) {
        if (m->o && m->o->pad_last)
            memcpy(wk->stage.data + i * cut, last_row + off, cut);
        else
            memset(wk->stage.data + i * cut, 0, cut);
    }
    for (uint64_t i = 0; i < n && !rc; i += batch)
        rc = tu_sink_write(m->sink[piece->file], piece->index, (first + i) * cut,
                           wk->stage.data, (size_t)tu_min(batch, n - i) * cut, err);
    return rc;
}

/* The window as the target wants it: the same, or cast. */
static int cast_window(const struct mover *m, const struct tui_window *w, uint32_t dtype,
                       struct worker *wk, struct tui_window *out, struct tu_err *err)
{
    uint32_t to = m->to->dtype;
    *out = *w;
    if (to == TU_DTYPE_NONE || !tu_dtype_is_float(dtype) || to == dtype)
        return 0;
    out->data = wk->cast;
    out->elem = tu_dtype_find(to)->block_bytes;
    return tu_cast(to, out->data, dtype, w->data, (size_t)((w->r1 - w->r0) * w->cols),
                   err);
}

static int put_window(struct mover *m, const struct tui_parts *out,
                      const struct tui_window *w, uint32_t dtype, bool last,
                      struct worker *wk, struct tu_err *err)
{
    struct tui_window t;
    size_t n = (size_t)((w->r1 - w->r0) * w->cols) * w->elem;
    if (m->put)
        return m->put(m->put_ctx, w->data, n, err);
    if (!m->to)
        return 0;
    int rc = cast_window(m, w, dtype, wk, &t, err);
    size_t line = (size_t)t.cols * t.elem;
    for (size_t i = 0; i < out->n && !rc; i++) {
        rc = tui_window_empty(m->to, &out->part[i], &t,
                              m->sink[m->to->piece[out->part[i].piece].file], &wk->stage,
                              err);
        if (!rc && last)
            rc = write_pad(m, &out->part[i], t.data + (t.r1 - t.r0 - 1) * line, line, wk,
                           err);
    }
    return rc;
}

static void digest_window(struct mover *m, uint32_t a, const struct tui_window *w,
                          struct worker *wk)
{
    size_t n = (size_t)((w->r1 - w->r0) * w->cols) * w->elem;
    if (!m->digest)
        return;
    m->digest[a].crc = tu_crc32(m->digest[a].crc, w->data, n);
    if (wk->sha)
        tu_sha256_add(wk->sha, w->data, n);
}

static int move_windows(struct mover *m, uint32_t a, const struct tui_parts *in,
                        const struct tui_parts *out, struct worker *wk,
                        struct tu_err *err)
{
    const struct tu_tensor *t = &m->from->atom[a].tensor;
    struct tui_window w = {.data = wk->window,
                           .elem = tu_dtype_find(t->dtype)->block_bytes};
    uint64_t rows;
    int rc = 0;
    tu_tensor_matrix(t, &rows, &w.cols);
    if (w.cols * w.elem > m->bytes)
        return tu_fail(
            err, TU_ENOMEM,
            "a row of '%.80s' has %llu bytes, over the memory budget: raise --memory",
            t->name, (unsigned long long)(w.cols * w.elem));
    uint64_t step = window_rows(m, in, out, w.cols * w.elem);
    for (w.r0 = 0; w.r0 < rows && w.cols && !rc; w.r0 = w.r1) {
        w.r1 = tu_min(w.r0 + step, rows);
        if (tu_job_cancelled(m->job))
            return tu_fail(err, TU_ECANCEL, "stopped on request");
        for (size_t i = 0; i < in->n && !rc; i++)
            rc = tui_window_fill(m->from, &in->part[i], &w, &wk->stage, err);
        if (rc)
            break;
        digest_window(m, a, &w, wk);
        rc = put_window(m, out, &w, t->dtype, w.r1 == rows, wk, err);
        uint64_t n = (w.r1 - w.r0) * w.cols * w.elem;
        tu_job_progress(m->job, atomic_fetch_add(&m->done, n) + n, m->total);
    }
    return rc;
}

static int move_atom(void *ctx, uint64_t a, unsigned worker, struct tu_err *err)
{
    struct mover *m = ctx;
    struct worker *wk = &m->worker[worker];
    struct tui_parts in = {0}, out = {0};
    const struct tu_tensor *t = &m->from->atom[a].tensor;
    if (!tu_dtype_is_plain(t->dtype))
        return tu_fail(err, TU_EUNSUP,
                       "'%.100s' is packed in blocks and cannot be cut by rows here",
                       t->name);
    int rc = tui_parts_of(&in, m->from, (uint32_t)a, false, err);
    if (!rc && m->to)
        rc = tui_parts_of(&out, m->to, (uint32_t)a, true, err);
    if (!rc)
        rc = move_windows(m, (uint32_t)a, &in, &out, wk, err);
    if (!rc && m->digest) {
        struct tu_digest *d = &m->digest[a];
        d->name = t->name;
        d->dtype = t->dtype;
        d->rank = t->rank;
        d->dim = t->dim;
        if (wk->sha)
            tu_sha256_end(wk->sha, d->sha);
        d->has_sha = wk->sha != NULL;
    }
    tui_parts_release(&in);
    tui_parts_release(&out);
    return rc;
}

static int run(struct mover *m, struct tu_err *err)
{
    if (m->digest)
        memset(m->digest, 0, m->from->atoms * sizeof *m->digest);
    int rc = mover_init(m, err);
    if (!rc)
        rc = tu_pool_run(m->job ? m->job->pool : NULL, m->from->atoms, move_atom, m, err);
    mover_release(m);
    return rc;
}

int tu_ckpt_digest(const struct tu_ckpt *c, const struct tu_shard_opts *o,
                   const struct tu_job *job, struct tu_digest *out, struct tu_err *err)
{
    struct mover m = {.from = c, .o = o, .job = job, .digest = out};
    return run(&m, err);
}

int tui_move(const struct tu_ckpt *from, const struct tu_ckpt *to, struct tu_sink **sink,
             const struct tu_shard_opts *o, const struct tu_job *job,
             struct tu_digest *digest, struct tu_err *err)
{
    struct mover m = {
        .from = from, .to = to, .o = o, .job = job, .digest = digest, .sink = sink};
    return run(&m, err);
}

int tu_ckpt_walk(const struct tu_ckpt *c, uint32_t a, const struct tu_job *job,
                 tu_put_fn put, void *ctx, struct tu_err *err)
{
    struct mover m = {.from = c, .job = job, .put = put, .put_ctx = ctx};
    int rc = mover_init(&m, err);
    if (!rc)
        rc = move_atom(&m, a, 0, err);
    mover_release(&m);
    return rc;
}
