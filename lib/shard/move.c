/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: every atom once through memory: read, digested, cast, written.
 *
 * An atom goes by windows of whole rows, so a worker needs a window, a stage and, with a
 * cast, a second window, whatever the size of the model. A task of the pool is one atom;
 * where SHA-256 is asked for it is several of the same shape, window beside window, since
 * digests side by side cost little more than one. */

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lora.h"

/* Bytes of a worker's windows that stay in the cache of its core on their way through. */
#define WINDOW_CACHED ((uint64_t)1 << 20)
#define WINDOW_LEAST ((uint64_t)64 << 10)
#define LANES TU_SHA256_STREAMS
/* Tasks for each worker that lanes leave, so that none waits long for the last one. */
#define TASKS_LEAST 4

/* An atom as one checkpoint has it. */
struct term {
    const struct tu_ckpt *c;
    struct tui_parts in;
    uint32_t dtype; /* of the pieces */
};

/* An atom on its way through a worker. */
struct lane {
    uint32_t atom;
    uint32_t dtype;    /* of the window: the atom's own, or f64 for a mean or an adapter */
    struct term *term; /* [terms]: the source, or all that a mean is of */
    size_t terms;
    struct tui_delta *delta; /* [deltas] to add one after the other */
    size_t deltas;
    struct tui_parts out;
    struct tui_window window;
    struct tu_sha256 *sha;
};

struct worker {
    struct lane lane[LANES];
    char *cast[2]; /* windows as read and as written; NULL: nothing is cast */
    struct tui_stage stage;
};

struct task {
    uint32_t atom[LANES];
    unsigned n;
};

struct mover {
    const struct tu_ckpt *from, *to; /* to NULL: digests or put alone */
    const struct tu_shard_opts *o;
    const struct tu_mean *mean; /* NULL: none */
    uint32_t **twin;            /* [mean->n][from->atoms]: its number there */
    struct tu_lora *const *lora; /* [loras] */
    size_t loras;
    const struct tu_job *job;
    struct tu_sink **sink;    /* [to->files] */
    struct tu_digest *digest; /* [from->atoms] or NULL */
    tu_put_fn put;
    void *put_ctx;
    uint64_t bytes; /* of a window */
    struct task *task;
    size_t tasks;
    struct worker *worker;
    unsigned workers, lanes;
    bool casts; /* some piece has another dtype than its atom */
    _Atomic uint64_t done;
    uint64_t total;
};

static size_t elem_of(uint32_t dtype)
{
    return tu_dtype_find(dtype)->block_bytes;
}

static bool has_casts(const struct tu_ckpt *c)
{
    bool yes = false;
    for (size_t i = 0; i < c->pieces && !yes; i++)
        for (uint32_t k = 0; k < c->piece[i].fuse.roles && !yes; k++)
            yes = c->piece[i].tensor.dtype != c->role[c->piece[i].fuse.role[k]].dtype;
    return yes;
}

static void mover_release(struct mover *m)
{
    for (unsigned i = 0; m->worker && i < m->workers; i++) {
        struct worker *w = &m->worker[i];
        for (unsigned k = 0; k < LANES; k++) {
            tu_free(w->lane[k].window.data);
            tu_sha256_free(w->lane[k].sha);
            tu_free(w->lane[k].term);
            tu_free(w->lane[k].delta);
        }
        tu_free(w->cast[0]);
        tu_free(w->cast[1]);
        tu_free(w->stage.data);
        tui_spans_release(&w->stage.clip);
    }
    for (size_t i = 0; m->twin && i < m->mean->n; i++)
        tu_free(m->twin[i]);
    tu_free(m->twin);
    tu_free(m->worker);
    tu_free(m->task);
}

static int worker_init(struct mover *m, struct worker *w, struct tu_err *err)
{
    w->stage.bytes = (size_t)m->bytes;
    if (!(w->stage.data = tu_alloc((size_t)m->bytes, 1, err)))
        return TU_ENOMEM;
    for (unsigned k = 0; k < m->lanes; k++) {
        w->lane[k].term =
            tu_calloc(1 + (m->mean ? m->mean->n : 0), sizeof(struct term), err);
        w->lane[k].delta = tu_calloc(m->loras + 1, sizeof *w->lane[k].delta, err);
        if (!w->lane[k].term || !w->lane[k].delta ||
            !(w->lane[k].window.data = tu_alloc((size_t)m->bytes, 1, err)))
            return TU_ENOMEM;
        if (m->o && m->o->sha256 && !(w->lane[k].sha = tu_sha256_new(err)))
            return TU_ENOMEM;
    }
    for (int k = 0; k < 2 && m->casts; k++)
        if (!(w->cast[k] = tu_alloc((size_t)m->bytes, 1, err)))
            return TU_ENOMEM;
    return 0;
}

/* As many as a worker's share of the memory gives windows that hold the longest row, and
 * as the number of atoms keeps all workers busy. */
static unsigned lanes_of(const struct mover *m, uint64_t share)
{
    uint64_t longest = WINDOW_LEAST, rows, cols;
    if (!m->o || !m->o->sha256 || m->casts)
        return 1;
    for (size_t a = 0; a < m->from->atoms; a++) {
        const struct tu_tensor *t = &m->from->atom[a].tensor;
        tui_matrix(t, &rows, &cols);
        if (t->bytes)
            longest = tu_max(longest, cols * elem_of(t->dtype));
    }
    uint64_t hold = tu_max(share / longest, 2) - 1;
    uint64_t busy = tu_max(m->from->atoms / m->workers / TASKS_LEAST, 2);
    return (unsigned)tu_min(tu_min(hold, busy), LANES);
}

static int mover_init(struct mover *m, struct tu_err *err)
{
    m->workers = m->put ? 1 : tu_pool_size(m->job ? m->job->pool : NULL);
    m->casts = m->mean || m->loras || has_casts(m->from) || (m->to && has_casts(m->to));
    uint64_t share = tu_job_memory(m->job) / m->workers;
    m->lanes = lanes_of(m, share);
    m->bytes = share / (m->lanes + (m->casts ? 3 : 1));
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
static uint64_t window_rows(const struct mover *m, const struct lane *l, uint64_t line)
{
    uint64_t bytes = tu_min(m->bytes, WINDOW_CACHED / m->lanes);
    const struct tui_parts *both[2] = {&l->term->in, &l->out};
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

static size_t window_bytes(const struct tui_window *w)
{
    return (size_t)((w->r1 - w->r0) * w->cols) * w->elem;
}

/* The window in another dtype, in `into`: itself where that is its own. */
static int cast_window(const struct mover *m, const struct tui_window *w, uint32_t from,
                       uint32_t to, char *into, struct tui_window *out,
                       struct tu_err *err)
{
    const enum tu_overflow rule = m->o ? m->o->overflow : TU_OVERFLOW_AUTO;
    *out = *w;
    if (from == to)
        return 0;
    out->data = into;
    out->elem = elem_of(to);
    return tu_cast_by(rule, to, into, from, w->data,
                      (size_t)((w->r1 - w->r0) * w->cols), err);
}

static int put_window(struct mover *m, const struct lane *l, bool last,
                      struct worker *wk, struct tu_err *err)
{
    struct tui_window t = l->window;
    uint32_t own = l->dtype, have = own;
    int rc = 0;
    if (m->put)
        return m->put(m->put_ctx, t.data, window_bytes(&t), err);
    for (size_t i = 0; i < l->out.n && !rc; i++) {
        const struct tui_part *part = &l->out.part[i];
        const struct tu_piece *p = &m->to->piece[part->piece];
        if (!m->sink[p->file]) /* another process writes it */
            continue;
        if (p->tensor.dtype != have)
            rc = cast_window(m, &l->window, own, p->tensor.dtype, wk->cast[1], &t, err);
        have = p->tensor.dtype;
        size_t line = (size_t)t.cols * t.elem;
        if (!rc)
            rc = tui_window_empty(m->to, part, &t, m->sink[p->file], &wk->stage, err);
        if (!rc && last)
            rc = write_pad(m, part, t.data + (t.r1 - t.r0 - 1) * line, line, wk, err);
    }
    return rc;
}

/* What is digested: weights as they are published, states as they are. */
static uint32_t digest_dtype(const struct mover *m, uint32_t a)
{
    const struct tu_atom *atom = &m->from->atom[a];
    uint32_t dtype = atom->tensor.dtype;
    return !m->to || tui_is_state(m->from, atom) ? dtype : tui_plan_dtype(m->to, dtype);
}

/* One lane whose values change their dtype. */
static int digest_cast(struct mover *m, struct lane *l, uint32_t dtype, char *into,
                       struct tu_err *err)
{
    struct tui_window t;
    int rc = cast_window(m, &l->window, l->dtype, dtype, into, &t, err);
    if (rc)
        return rc;
    m->digest[l->atom].crc = tu_crc32(m->digest[l->atom].crc, t.data, window_bytes(&t));
    if (l->sha)
        tu_sha256_add(l->sha, t.data, window_bytes(&t));
    return 0;
}

static int digest_windows(struct mover *m, struct worker *wk, unsigned n,
                          struct tu_err *err)
{
    struct lane *l = wk->lane;
    size_t bytes = window_bytes(&l->window);
    if (!m->digest)
        return 0;
    if (m->casts)
        return digest_cast(m, l, digest_dtype(m, l->atom), wk->cast[1], err);
    for (unsigned k = 0; k < n; k++)
        m->digest[l[k].atom].crc =
            tu_crc32(m->digest[l[k].atom].crc, l[k].window.data, bytes);
    struct tu_sha256 *sha[LANES];
    const void *data[LANES];
    for (unsigned k = 0; k < n; k++) {
        sha[k] = l[k].sha;
        data[k] = l[k].window.data;
    }
    if (l->sha)
        tu_sha256_add_each(sha, data, n, bytes);
    return 0;
}

/* Rows of an atom from all its pieces in one checkpoint, in the window's dtype. */
static int fill_term(const struct mover *m, struct worker *wk, const struct term *t,
                     uint32_t dtype, struct tui_window *w, struct tu_err *err)
{
    struct tui_window raw = *w, done;
    int rc = 0;
    if (t->dtype != dtype) {
        raw.data = wk->cast[0];
        raw.elem = elem_of(t->dtype);
    }
    for (size_t i = 0; i < t->in.n && !rc; i++)
        rc = tui_window_fill(t->c, &t->in.part[i], &raw, &wk->stage, err);
    if (!rc && t->dtype != dtype)
        rc = cast_window(m, &raw, t->dtype, dtype, w->data, &done, err);
    return rc;
}

static int fill_lane(struct mover *m, struct worker *wk, struct lane *l,
                     struct tu_err *err)
{
    double *sum = (double *)(void *)l->window.data, total = 0;
    if (l->terms == 1) {
        int rc = fill_term(m, wk, l->term, l->dtype, &l->window, err);
        for (size_t i = 0; i < l->deltas && !rc; i++)
            tui_delta_apply(&l->delta[i], sum, l->window.r0, l->window.r1);
        return rc;
    }
    size_t n = (size_t)((l->window.r1 - l->window.r0) * l->window.cols);
    struct tui_window one = l->window;
    int rc = 0;
    one.data = wk->cast[1];
    const double *value = (const double *)(const void *)one.data;
    memset(sum, 0, n * sizeof *sum);
    for (size_t i = 0; i < l->terms && !rc; i++) {
        const double weight = m->mean->weight[i];
        total += weight;
        if (!(rc = fill_term(m, wk, &l->term[i], TU_F64, &one, err)))
            for (size_t k = 0; k < n; k++)
                sum[k] += weight * value[k];
    }
    for (size_t k = 0; k < n && !rc && !m->mean->sum; k++)
        sum[k] /= total;
    return rc;
}

/* The next window of each lane, rows r0 to r1. */
static int move_windows(struct mover *m, struct worker *wk, unsigned n, uint64_t r0,
                        uint64_t r1, bool last, struct tu_err *err)
{
    int rc = 0;
    if (tu_job_cancelled(m->job))
        return tu_fail(err, TU_ECANCEL, "stopped on request");
    for (unsigned k = 0; k < n && !rc; k++) {
        wk->lane[k].window.r0 = r0;
        wk->lane[k].window.r1 = r1;
        rc = fill_lane(m, wk, &wk->lane[k], err);
    }
    if (!rc)
        rc = digest_windows(m, wk, n, err);
    for (unsigned k = 0; k < n && !rc; k++)
        rc = put_window(m, &wk->lane[k], last, wk, err);
    if (rc == TU_EUSAGE) /* a value that does not fit */
        tu_err_prefix(err, "'%.100s' from row %" PRIu64 " on",
                      m->from->atom[wk->lane->atom].tensor.name, r0);
    uint64_t bytes = n * window_bytes(&wk->lane->window);
    tu_job_progress(m->job, atomic_fetch_add(&m->done, bytes) + bytes, m->total);
    return rc;
}

/* Atom number a of a checkpoint, whose pieces share a dtype. */
static int term_open(struct term *t, const struct tu_ckpt *c, uint32_t a,
                     struct tu_err *err)
{
    const struct tu_tensor *tensor = &c->atom[a].tensor;
    *t = (struct term){.c = c, .dtype = tensor->dtype};
    int rc = tui_parts_of(&t->in, c, a, false, err);
    for (size_t i = 0; i < t->in.n && !rc; i++) {
        uint32_t dtype = c->piece[t->in.part[i].piece].tensor.dtype;
        if (i && dtype != t->dtype)
            rc = tu_fail(err, TU_EINCOMPLETE, "'%.100s' lies in pieces of several dtypes",
                         tensor->name);
        t->dtype = dtype;
    }
    return rc;
}

/* All that a mean is of; of what is no number to be averaged, the last one's. */
static int lane_terms(const struct mover *m, struct lane *l, struct tu_err *err)
{
    size_t n = m->mean->n;
    const struct tu_tensor *t = &m->from->atom[l->atom].tensor;
    if (!tu_dtype_is_float(t->dtype)) {
        const struct tu_ckpt *last = n ? m->mean->with[n - 1] : m->from;
        return term_open(l->term, last, n ? m->twin[n - 1][l->atom] : l->atom, err);
    }
    if (elem_of(t->dtype) < 2)
        return tu_fail(err, TU_EUNSUP,
                       "'%.100s': 8-bit values have scales and are not averaged "
                       "without them",
                       t->name);
    l->dtype = TU_F64;
    int rc = term_open(l->term, m->from, l->atom, err);
    for (size_t i = 0; i < n && !rc; i++, l->terms++)
        rc = term_open(&l->term[i + 1], m->mean->with[i], m->twin[i][l->atom], err);
    return rc;
}

/* What adapters add to the atom, or put in its place. */
static int lane_adapters(const struct mover *m, struct lane *l, struct tu_err *err)
{
    const struct tu_tensor *t = &m->from->atom[l->atom].tensor;
    int rc = 0;
    for (size_t i = 0; i < m->loras && !rc; i++) {
        struct tui_delta *d = &l->delta[l->deltas];
        uint32_t whole = UINT32_MAX;
        bool yes;
        rc = tui_lora_delta(m->lora[i], t, d, &whole, &yes, err);
        if (rc || !yes)
            continue;
        l->deltas += d->rank != 0;
        if (whole == UINT32_MAX)
            continue;
        for (; !d->rank && l->deltas; l->deltas--) /* of what is no longer there */
            tui_delta_release(&l->delta[l->deltas - 1]);
        tui_parts_release(&l->term->in);
        rc = term_open(l->term, tui_lora_ckpt(m->lora[i]), whole, err);
    }
    if (l->deltas)
        l->dtype = TU_F64;
    return rc;
}

static int lane_open(const struct mover *m, struct lane *l, uint32_t atom,
                     struct tu_err *err)
{
    const struct tu_tensor *t = &m->from->atom[atom].tensor;
    l->atom = atom;
    l->dtype = t->dtype;
    l->terms = 1;
    l->deltas = 0;
    int rc = m->mean ? lane_terms(m, l, err) : term_open(l->term, m->from, atom, err);
    if (!rc && m->loras)
        rc = lane_adapters(m, l, err);
    l->window.elem = elem_of(l->dtype);
    if (!rc && m->to)
        rc = tui_parts_of(&l->out, m->to, atom, true, err);
    return rc;
}

static void lane_close(struct lane *l)
{
    for (size_t i = 0; i < l->terms; i++)
        tui_parts_release(&l->term[i].in);
    for (size_t i = 0; i < l->deltas; i++)
        tui_delta_release(&l->delta[i]);
    tui_parts_release(&l->out);
}

static void lane_digest(struct mover *m, struct lane *l)
{
    const struct tu_tensor *t = &m->from->atom[l->atom].tensor;
    struct tu_digest *d = &m->digest[l->atom];
    d->name = t->name;
    d->dtype = digest_dtype(m, l->atom);
    d->rank = t->rank;
    d->dim = t->dim;
    d->has_sha = l->sha != NULL;
    if (l->sha)
        tu_sha256_end(l->sha, d->sha);
}

static size_t largest_elem(const struct mover *m, const struct lane *l)
{
    size_t most = tu_max(l->window.elem, elem_of(l->term->dtype));
    for (size_t i = 0; i < l->out.n; i++)
        most = tu_max(most, elem_of(m->to->piece[l->out.part[i].piece].tensor.dtype));
    return m->casts && m->digest ? tu_max(most, elem_of(digest_dtype(m, l->atom))) : most;
}

/* The lanes that are open, from their first row to the last. */
static int move_lanes(struct mover *m, struct worker *wk, unsigned n, struct tu_err *err)
{
    const struct tu_tensor *t = &m->from->atom[wk->lane->atom].tensor;
    uint64_t rows, cols, step = UINT64_MAX;
    int rc = 0;
    tui_matrix(t, &rows, &cols);
    uint64_t line = cols * largest_elem(m, wk->lane);
    if (!t->bytes) /* a row of an empty tensor may be of any length */
        rows = 0;
    else if (line > m->bytes)
        return tu_fail(err, TU_ENOMEM,
                       "%.80s: a row of '%.80s' has %" PRIu64
                       " bytes, over the memory budget: raise --memory",
                       m->from->root, t->name, line);
    for (unsigned k = 0; k < n; k++) {
        wk->lane[k].window.cols = cols;
        step = tu_min(step, window_rows(m, &wk->lane[k], line));
    }
    for (uint64_t r0 = 0, r1; r0 < rows && cols && !rc; r0 = r1) {
        r1 = tu_min(r0 + step, rows);
        rc = move_windows(m, wk, n, r0, r1, r1 == rows, err);
    }
    return rc;
}

static int move_task(void *ctx, uint64_t i, unsigned worker, struct tu_err *err)
{
    struct mover *m = ctx;
    struct worker *wk = &m->worker[worker];
    const struct task *t = &m->task[i];
    int rc = 0;
    for (unsigned k = 0; k < t->n && !rc; k++)
        rc = lane_open(m, &wk->lane[k], t->atom[k], err);
    if (!rc)
        rc = move_lanes(m, wk, t->n, err);
    for (unsigned k = 0; k < t->n; k++) {
        if (!rc && m->digest)
            lane_digest(m, &wk->lane[k]);
        lane_close(&wk->lane[k]);
    }
    return rc;
}

struct shape {
    uint64_t rows, cols;
    uint32_t dtype, atom;
};

static int by_shape(const void *x, const void *y)
{
    const struct shape *a = x, *b = y;
    if (a->rows != b->rows)
        return a->rows < b->rows ? -1 : 1;
    if (a->cols != b->cols)
        return a->cols < b->cols ? -1 : 1;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    return a->atom < b->atom ? -1 : a->atom > b->atom;
}

static int by_atom(const void *x, const void *y)
{
    const struct task *a = x, *b = y;
    return a->atom[0] < b->atom[0] ? -1 : a->atom[0] > b->atom[0];
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->dtype == b->dtype;
}

/* Some file that is written here has a place for it. */
static bool is_wanted(const struct mover *m, size_t a)
{
    const struct tu_atom *atom = &m->to->atom[a];
    bool yes = false;
    for (size_t i = 0; i < atom->n && !yes; i++)
        yes = m->sink[m->to->piece[atom->piece[i]].file] != NULL;
    return yes;
}

/* Atoms of one shape go to one task as long as it has lanes; tasks keep the order of the
 * checkpoint, so that files are read forwards. */
static int plan_tasks(struct mover *m, struct tu_err *err)
{
    size_t n = m->from->atoms, wanted = 0;
    struct shape *s = tu_alloc(n + 1, sizeof *s, err);
    if (!s || !(m->task = tu_calloc(n + 1, sizeof *m->task, err))) {
        tu_free(s);
        return TU_ENOMEM;
    }
    for (size_t a = 0; a < n; a++) {
        const struct tu_tensor *t = &m->from->atom[a].tensor;
        struct shape *next = &s[wanted];
        if (m->to && !is_wanted(m, a))
            continue;
        next->dtype = t->dtype;
        next->atom = (uint32_t)a;
        tui_matrix(t, &next->rows, &next->cols);
        wanted++;
    }
    qsort(s, wanted, sizeof *s, by_shape);
    for (size_t i = 0; i < wanted; i++) {
        struct task *t = m->tasks ? &m->task[m->tasks - 1] : NULL;
        if (!t || t->n == m->lanes || !same_shape(&s[i - 1], &s[i]))
            t = &m->task[m->tasks++];
        t->atom[t->n++] = s[i].atom;
    }
    qsort(m->task, m->tasks, sizeof *m->task, by_atom);
    tu_free(s);
    return 0;
}

/* Bytes of the targets that no role fills. */
static int write_blanks(const struct mover *m, struct tu_err *err)
{
    static const char zero[1 << 16];
    int rc = 0;
    for (size_t i = 0; i < m->to->blanks && !rc; i++) {
        const struct tu_blank *b = &m->to->blank[i];
        for (uint64_t at = 0; at < b->n && m->sink[b->file] && !rc; at += sizeof zero)
            rc = tu_sink_write(m->sink[b->file], b->index, b->off + at, zero,
                               (size_t)tu_min(b->n - at, sizeof zero), err);
    }
    return rc;
}

static int run(struct mover *m, struct tu_err *err)
{
    if (m->digest)
        memset(m->digest, 0, m->from->atoms * sizeof *m->digest);
    int rc = mover_init(m, err);
    if (!rc && m->mean)
        rc = tui_mean_twins(m->from, m->mean, &m->twin, err);
    if (!rc)
        rc = plan_tasks(m, err);
    if (!rc)
        rc = tu_pool_run(m->job ? m->job->pool : NULL, m->tasks, move_task, m, err);
    if (!rc && m->to)
        rc = write_blanks(m, err);
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
    m.mean = o ? o->mean : NULL;
    m.lora = o ? o->lora : NULL;
    m.loras = o ? o->loras : 0;
    return run(&m, err);
}

int tui_walk_mean(const struct tu_ckpt *c, uint32_t a, const struct tu_mean *mean,
                  uint32_t **twin, const struct tu_job *job, tu_put_fn put, void *ctx,
                  struct tu_err *err)
{
    struct mover m = {.from = c, .mean = mean, .job = job, .put = put, .put_ctx = ctx};
    struct task one = {.atom = {a}, .n = 1};
    int rc = mover_init(&m, err);
    m.task = &one;
    m.twin = twin;
    if (!rc)
        rc = move_task(&m, 0, 0, err);
    m.task = NULL;
    m.twin = NULL; /* the caller's */
    mover_release(&m);
    return rc;
}

int tu_ckpt_walk(const struct tu_ckpt *c, uint32_t a, const struct tu_job *job,
                 tu_put_fn put, void *ctx, struct tu_err *err)
{
    return tui_walk_mean(c, a, NULL, NULL, job, put, ctx, err);
}
