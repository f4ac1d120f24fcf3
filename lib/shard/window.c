/* SPDX-License-Identifier: Apache-2.0 */
/* window.c: the two ends of a move.
 *
 * Spans of one piece, cut to the window, are grouped by where they lie in the piece, so
 * that a file is read and written in long runs; a run goes straight between the file and
 * the window where its elements lie the same way, else through the stage. */

#include <stdlib.h>
#include <string.h>

#include "copy2d.h"
#include "move.h"
#include "trust.h"

#define GAP ((uint64_t)256 << 10) /* bytes worth reading to join two runs */

int tui_parts_of(struct tui_parts *out, const struct tu_ckpt *c, uint32_t a,
                 bool replicas, struct tu_err *err)
{
    const struct tu_atom *atom = &c->atom[a];
    memset(out, 0, sizeof *out);
    out->part = tu_calloc(atom->n + 1, sizeof *out->part, err);
    int rc = out->part ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < atom->n && !rc; i++) {
        if (c->piece[atom->piece[i]].replica && !replicas)
            continue;
        struct tui_part *p = &out->part[out->n++];
        p->piece = atom->piece[i];
        rc = tu_ckpt_spans(c, p->piece, a, &p->spans, err);
    }
    if (rc)
        tui_parts_release(out);
    return rc;
}

void tui_parts_release(struct tui_parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        tui_spans_release(&p->part[i].spans);
    tu_free(p->part);
    memset(p, 0, sizeof *p);
}

/* Piece elements from the first to the last of a span. */
static uint64_t extent(const struct tu_span *s)
{
    return (s->rows - 1) * s->prow + (s->cols - 1) * s->pcol + 1;
}

static int by_place(const void *x, const void *y)
{
    const struct tu_span *a = x, *b = y;
    return a->poff < b->poff ? -1 : a->poff > b->poff;
}

/* The part's spans cut to the window, in the order of the piece. */
static int clip(struct tu_spans *out, const struct tui_part *p,
                const struct tui_window *w, struct tu_err *err)
{
    int rc = 0;
    out->n = 0;
    for (size_t i = 0; i < p->spans.n && !rc; i++) {
        struct tu_span s = p->spans.span[i];
        uint64_t lo = tu_max(s.arow, w->r0), hi = tu_min(s.arow + s.rows, w->r1);
        if (lo >= hi)
            continue;
        s.poff += (lo - s.arow) * s.prow;
        s.arow = lo;
        s.rows = hi - lo;
        rc = tui_span_add(out, s, err);
    }
    qsort(out->span, out->n, sizeof *out->span, by_place);
    return rc;
}

static char *in_window(const struct tui_window *w, const struct tu_span *s)
{
    return w->data + ((s->arow - w->r0) * w->cols + s->acol) * w->elem;
}

/* The same elements in the same order on both sides. */
static bool straight(const struct tui_window *w, const struct tu_span *s)
{
    return s->pcol == 1 && (s->rows == 1 || (s->prow == s->cols && s->cols == w->cols));
}

/* Spans first … of a run: as many as lie closer than `gap` elements and fit into `room`.
 */
struct run {
    size_t n;
    uint64_t begin, end; /* piece elements */
    uint64_t used;       /* of them, those that spans hold */
};

static struct run take_run(const struct tu_span *s, size_t n, uint64_t gap, uint64_t room)
{
    struct run r = {1, s->poff, s->poff + extent(s), s->rows * s->cols};
    while (r.n < n) {
        const struct tu_span *next = &s[r.n];
        uint64_t end = tu_max(r.end, next->poff + extent(next));
        if (next->poff > r.end + gap || end - r.begin > room)
            break;
        r.end = end;
        r.used += next->rows * next->cols;
        r.n++;
    }
    return r;
}

static int read_piece(const struct tu_ckpt *c, uint32_t piece, uint64_t first, void *buf,
                      uint64_t n, size_t elem, struct tu_err *err)
{
    const struct tu_piece *p = &c->piece[piece];
    if (p->data) {
        memcpy(buf, (const char *)p->data + first * elem, (size_t)n * elem);
        return 0;
    }
    return tui_read_sound(c, p->file, p->index, first * elem, buf, (size_t)n * elem, err);
}

/* One span that is too long for the stage: by halves, then by its runs. */
static int fill_long(const struct tu_ckpt *c, uint32_t piece, struct tui_window *w,
                     struct tu_span s, struct tui_stage *st, struct tu_err *err)
{
    if (straight(w, &s))
        return read_piece(c, piece, s.poff, in_window(w, &s), s.rows * s.cols, w->elem,
                          err);
    if (extent(&s) * w->elem <= st->bytes) {
        int rc = read_piece(c, piece, s.poff, st->data, extent(&s), w->elem, err);
        if (!rc)
            tui_copy2d(in_window(w, &s), w->cols, 1, st->data, s.prow, s.pcol, s.rows,
                       s.cols, w->elem);
        return rc;
    }
    struct tu_span a = s, b = s;
    if (s.rows > 1 && s.pcol <= s.prow) {
        a.rows = s.rows / 2;
        b.rows -= a.rows;
        b.arow += a.rows;
        b.poff += a.rows * s.prow;
    } else {
        a.cols = s.cols / 2;
        b.cols -= a.cols;
        b.acol += a.cols;
        b.poff += a.cols * s.pcol;
    }
    int rc = fill_long(c, piece, w, a, st, err);
    return rc ? rc : fill_long(c, piece, w, b, st, err);
}

int tui_window_fill(const struct tu_ckpt *c, const struct tui_part *p,
                    struct tui_window *w, struct tui_stage *st, struct tu_err *err)
{
    int rc = clip(&st->clip, p, w, err);
    for (size_t i = 0; i < st->clip.n && !rc;) {
        const struct tu_span *s = &st->clip.span[i];
        struct run r = take_run(s, st->clip.n - i, GAP / w->elem, st->bytes / w->elem);
        if (r.n == 1) {
            rc = fill_long(c, p->piece, w, *s, st, err);
        } else {
            rc =
                read_piece(c, p->piece, r.begin, st->data, r.end - r.begin, w->elem, err);
            for (size_t k = 0; k < r.n && !rc; k++)
                tui_copy2d(in_window(w, &s[k]), w->cols, 1,
                           st->data + (s[k].poff - r.begin) * w->elem, s[k].prow,
                           s[k].pcol, s[k].rows, s[k].cols, w->elem);
        }
        i += r.n;
    }
    return rc;
}

/* Runs of a span that leaves gaps in the piece: each row, or each column where it is
 * turned. */
static int empty_gaps(uint32_t index, const struct tui_window *w, const struct tu_span *s,
                      struct tu_sink *sink, struct tui_stage *st, struct tu_err *err)
{
    bool turned = s->pcol != 1;
    uint64_t lines = turned ? s->cols : s->rows, len = turned ? s->rows : s->cols;
    uint64_t step = turned ? s->pcol : s->prow;
    int rc = 0;
    for (uint64_t i = 0; i < lines && !rc; i++) {
        const char *from = in_window(w, s) + (turned ? i : i * w->cols) * w->elem;
        uint64_t at = 0;
        while (at < len && !rc) {
            uint64_t n = turned ? tu_min(len - at, st->bytes / w->elem) : len - at;
            const char *data = from + at * w->elem;
            if (turned) {
                tui_copy2d(st->data, 1, 1, from + at * w->cols * w->elem, w->cols, 1, n,
                           1, w->elem);
                data = st->data;
            }
            rc = tu_sink_write(sink, index, (s->poff + i * step + at) * w->elem, data,
                               (size_t)n * w->elem, err);
            at += n;
        }
    }
    return rc;
}

int tui_window_empty(const struct tu_ckpt *c, const struct tui_part *p,
                     const struct tui_window *w, struct tu_sink *sink,
                     struct tui_stage *st, struct tu_err *err)
{
    uint32_t index = c->piece[p->piece].index;
    int rc = clip(&st->clip, p, w, err);
    for (size_t i = 0; i < st->clip.n && !rc;) {
        const struct tu_span *s = &st->clip.span[i];
        struct run r = take_run(s, st->clip.n - i, 0, st->bytes / w->elem);
        if (r.n == 1 && straight(w, s)) {
            rc = tu_sink_write(sink, index, s->poff * w->elem, in_window(w, s),
                               (size_t)(s->rows * s->cols) * w->elem, err);
        } else if (r.used == r.end - r.begin &&
                   (r.end - r.begin) * w->elem <= st->bytes) {
            for (size_t k = 0; k < r.n; k++)
                tui_copy2d(st->data + (s[k].poff - r.begin) * w->elem, s[k].prow,
                           s[k].pcol, in_window(w, &s[k]), w->cols, 1, s[k].rows,
                           s[k].cols, w->elem);
            rc = tu_sink_write(sink, index, r.begin * w->elem, st->data,
                               (size_t)(r.end - r.begin) * w->elem, err);
        } else {
            for (size_t k = 0; k < r.n && !rc; k++)
                rc = empty_gaps(index, w, &s[k], sink, st, err);
        }
        i += r.n;
    }
    return rc;
}
