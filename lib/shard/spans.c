/* SPDX-License-Identifier: Apache-2.0 */
/* spans.c: which elements of an atom a piece holds: its cut (by the mesh, by boxes, by a
 * flat run) met with its entry's fuse, and that with the atom's.
 *
 * Everything is said in spans, so each step is the same intersection of rectangles. */

#include <string.h>

#include "ckpt.h"

static const uint64_t *keep(struct tu_ckpt *c, const uint64_t *v, unsigned rank,
                            struct tu_err *err)
{
    uint64_t *d = tu_arena_alloc(c->arena, rank + 1, sizeof *d, err);
    if (d)
        memcpy(d, v, rank * sizeof *d);
    return d;
}

const struct tu_slab *tui_slab(struct tu_ckpt *c, const uint64_t *at, const uint64_t *dim,
                               const uint64_t *local, unsigned rank, struct tu_err *err)
{
    struct tu_slab *b = tu_arena_alloc(c->arena, 1, sizeof *b, err);
    if (!b)
        return NULL;
    b->at = keep(c, at, rank, err);
    b->dim = keep(c, dim, rank, err);
    b->local = local ? keep(c, local, rank, err) : NULL;
    return b->at && b->dim && (!local || b->local) ? b : NULL;
}

/* What a growing tensor's early pieces leave open, its last one says. */
static int close_region(const struct tu_ckpt *c, const char *name, struct tu_region *where,
                        struct tu_err *err)
{
    struct tu_region last;
    unsigned i = 0;
    while (i < where->rank && where->global[i] != TU_REGION_OPEN)
        i++;
    if (i == where->rank)
        return 0;
    for (size_t f = c->files; f-- > 0;)
        for (size_t k = c->file[f].source->n; k-- > 0;) {
            const struct tu_tensor *t = &c->file[f].source->tensor[k];
            if (strcmp(t->name, name))
                continue;
            int rc = tu_region_of(&last, t, err);
            if (rc)
                return rc;
            if (last.kind != where->kind || last.rank != where->rank ||
                last.global[i] == TU_REGION_OPEN)
                continue;
            for (; i < where->rank; i++)
                if (where->global[i] == TU_REGION_OPEN)
                    where->global[i] = last.global[i];
            return 0;
        }
    return tu_fail(err, TU_ESHARD, "shard metadata: no piece says dimension %u of the whole", i);
}

int tui_region_to_piece(struct tu_ckpt *c, const struct tu_tensor *t, struct tu_piece *p,
                        struct tu_err *err)
{
    struct tu_region where;
    int rc = tu_region_of(&where, t, err);
    if (rc || where.kind == TU_REGION_WHOLE)
        return rc;
    if (where.partial)
        rc = tu_fail(err, TU_EUNSUP, "a partial sum: reduce it first");
    if (!rc)
        rc = close_region(c, t->name, &where, err);
    for (unsigned i = 0; i < t->rank && !rc && where.kind == TU_REGION_BOX; i++)
        if (where.global[i] == TU_REGION_OPEN || where.off[i] > where.global[i] ||
            t->dim[i] > where.global[i] - where.off[i])
            rc = tu_fail(err, TU_ESHARD, "shard metadata: dimension %u reaches past the whole", i);
    if (rc) {
        tu_err_prefix(err, "'%.100s'", t->name);
        return rc;
    }
    if (!(p->whole = keep(c, where.global, where.rank, err)))
        return TU_ENOMEM;
    if (where.kind == TU_REGION_FLAT) {
        p->flat = (struct tu_flat){true, where.off[0], where.len[0], 0};
        p->tensor.dim = p->whole;
        p->tensor.rank = where.rank;
        return 0;
    }
    p->box = tui_slab(c, where.off, t->dim, NULL, t->rank, err);
    p->boxes = 1;
    return p->box ? 0 : TU_ENOMEM;
}

/* A box as spans of the entry's matrix, whose rows are its first m dimensions: one for
 * each index of the dimensions that are neither the last of the rows nor whole. */
static int spans_box(const struct tu_piece *p, const struct tu_slab *b, unsigned m,
                     struct tu_spans *out, struct tu_err *err)
{
    const struct tu_tensor *t = &p->tensor;
    unsigned rank = t->rank, last = rank, row = m ? m - 1 : 0;
    uint64_t run = 1, outer = 1, middle = 1, gstep = 1, lstep = 1;
    if (!rank)
        return tui_span_add(out, (struct tu_span){0, 0, 1, 1, 0, 1, 1}, err);
    for (unsigned i = 0; i < rank; i++)
        if (!b->dim[i])
            return 0;
    while (last > m && b->dim[last - 1] == p->whole[last - 1] &&
           b->dim[last - 1] == t->dim[last - 1])
        run *= b->dim[--last];
    if (last > m)
        run *= b->dim[--last];
    for (unsigned i = 0; i < row; i++)
        outer *= b->dim[i];
    for (unsigned i = m; i < last; i++)
        middle *= b->dim[i];
    for (unsigned i = m; i < rank; i++) {
        gstep *= p->whole[i];
        lstep *= t->dim[i];
    }
    for (uint64_t k = 0; k < outer * middle; k++) {
        uint64_t left = k, index[TU_RANK_MAX] = {0}, at = 0, local = 0;
        for (unsigned i = last; i-- > m; left /= b->dim[i])
            index[i] = left % b->dim[i];
        for (unsigned i = row; i-- > 0; left /= b->dim[i])
            index[i] = left % b->dim[i];
        for (unsigned i = 0; i < rank; i++) {
            at = at * p->whole[i] + b->at[i] + index[i];
            local = local * t->dim[i] + (b->local ? b->local[i] : 0) + index[i];
        }
        struct tu_span s = {at / gstep, at % gstep, b->dim[row], run, local, lstep, 1};
        int rc = tu_dtype_is_plain(t->dtype) ? 0 : tui_span_in_blocks(&s, t, err);
        if (!rc)
            rc = tui_span_add(out, s, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* The common part of a span s and another's span a, both in the same coordinates, in the
 * coordinates of a's elements, which are a matrix of `cols` columns. */
static int meet(const struct tu_span *s, const struct tu_span *a, uint64_t cols,
                struct tu_spans *out, struct tu_err *err)
{
    uint64_t r0 = tu_max(s->arow, a->arow),
             r1 = tu_min(s->arow + s->rows, a->arow + a->rows);
    uint64_t c0 = tu_max(s->acol, a->acol),
             c1 = tu_min(s->acol + s->cols, a->acol + a->cols);
    if (r0 >= r1 || c0 >= c1)
        return 0;
    uint64_t at = a->poff + (r0 - a->arow) * a->prow + (c0 - a->acol) * a->pcol;
    struct tu_span v = {.arow = at / cols, .acol = at % cols};
    v.poff = s->poff + (r0 - s->arow) * s->prow + (c0 - s->acol) * s->pcol;
    if (a->pcol == 1 && (a->prow == cols || r1 - r0 == 1)) {
        v.rows = r1 - r0;
        v.cols = c1 - c0;
        v.prow = s->prow;
        v.pcol = s->pcol;
    } else if (a->prow == 1 && a->pcol == cols) { /* a is turned */
        v.rows = c1 - c0;
        v.cols = r1 - r0;
        v.prow = s->pcol;
        v.pcol = s->prow;
    } else {
        return tu_fail(err, TU_EBUG, "an atom's own rows are strided");
    }
    return tui_span_add(out, v, err);
}

static int meet_all(const struct tu_spans *s, const struct tu_spans *a, uint64_t cols,
                    struct tu_spans *out, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++)
        for (size_t j = 0; j < a->n && !rc; j++)
            rc = meet(&s->span[i], &a->span[j], cols, out, err);
    return rc;
}

static uint32_t position(const struct tu_fuse *f, uint32_t role)
{
    uint32_t k = 0;
    while (k < f->roles && f->role[k] != role)
        k++;
    return k;
}

/* How many of the first dimensions of an entry are the rows of its matrix. */
static unsigned row_dims(const struct tu_ckpt *c, const struct tu_piece *p)
{
    const struct tu_role *r = &c->role[p->fuse.role[0]];
    if (r->dim)
        return p->tensor.rank ? 1 : 0;
    return p->tensor.rank - (r->rank == 2 && p->tensor.rank > 1);
}

/* Rows of an entry's matrix before its own transpose; of a stack, of one block. */
static uint64_t matrix_rows(const uint64_t *dim, unsigned rank, unsigned m,
                            unsigned transform)
{
    uint64_t rows = 1;
    if (transform & TU_MAP_TRANSPOSE && rank > m)
        return dim[rank - 1];
    for (unsigned i = 0; i < m; i++)
        rows *= dim[i];
    return rows;
}

/* A span of a role as one of its entry, whose matrix has ecols columns: what was place
 * in the entry becomes coordinate, and the place is that in the role. */
static int turn_round(const struct tu_span *f, uint64_t ecols, uint64_t rcols,
                      struct tu_spans *out, struct tu_err *err)
{
    uint64_t at = f->arow * rcols + f->acol;
    struct tu_span v = {f->poff / ecols, f->poff % ecols, f->rows, f->cols, at, rcols, 1};
    if (f->pcol == 1 && f->prow == ecols)
        return tui_span_add(out, v, err);
    if (f->prow == 1 && f->pcol == ecols) {
        v = (struct tu_span){v.arow, v.acol, f->cols, f->rows, at, 1, rcols};
        return tui_span_add(out, v, err);
    }
    int rc = f->pcol == 1
                 ? 0
                 : tu_fail(err, TU_EUNSUP, "a turned entry with strided rows and boxes");
    for (uint64_t i = 0; i < f->rows && !rc; i++) {
        uint64_t p = f->poff + i * f->prow;
        v = (struct tu_span){p / ecols, p % ecols, 1, f->cols, at + i * rcols, rcols, 1};
        rc = tui_span_add(out, v, err);
    }
    return rc;
}

/* Role number k of an entry of which the piece holds boxes, in the role's coordinates. */
static int spans_boxes(const struct tu_ckpt *c, const struct tu_piece *p, uint32_t k,
                       struct tu_spans *out, struct tu_err *err)
{
    const struct tu_role *r = &c->role[p->fuse.role[k]];
    struct tu_spans entry = {0}, turned = {0}, box = {0};
    unsigned m = row_dims(c, p);
    uint64_t ecols = 1;
    for (unsigned i = m; i < p->tensor.rank; i++)
        ecols *= p->whole[i];
    if (!tu_dtype_is_plain(p->tensor.dtype))
        ecols = r->cols;
    struct tui_slice whole = {
        1, 0, c->version, matrix_rows(p->whole, p->tensor.rank, m, p->fuse.transform)};
    int rc = tui_fuse_spans(c, &p->fuse, k, whole, &entry, err);
    for (size_t i = 0; i < entry.n && !rc; i++)
        rc = turn_round(&entry.span[i], tu_max(ecols, 1), tu_max(r->cols, 1), &turned,
                        err);
    for (uint32_t i = 0; i < p->boxes && !rc; i++)
        rc = spans_box(p, &p->box[i], m, &box, err);
    if (!rc)
        rc = meet_all(&box, &turned, tu_max(r->cols, 1), out, err);
    tui_spans_release(&entry);
    tui_spans_release(&turned);
    tui_spans_release(&box);
    return rc;
}

static int spans_mesh(const struct tu_ckpt *c, const struct tu_piece *p, uint32_t k,
                      struct tu_spans *out, struct tu_err *err)
{
    struct tui_slice slice = {
        c->tp, p->at.tp, c->version,
        matrix_rows(p->tensor.dim, p->tensor.rank, row_dims(c, p), p->fuse.transform)};
    return tui_fuse_spans(c, &p->fuse, k, slice, out, err);
}

/* Lines of a span, each a run of the piece's elements: lines first … last, of each the
 * elements from … to-1. */
static int add_lines(struct tu_spans *out, const struct tu_span *s, uint64_t first,
                     uint64_t last, uint64_t from, uint64_t to, struct tu_err *err)
{
    struct tu_span v = *s;
    if (first > last || from >= to)
        return 0;
    if (s->pcol == 1) {
        v.arow += first;
        v.rows = last - first + 1;
        v.acol += from;
        v.cols = to - from;
        v.poff += first * s->prow + from;
    } else {
        v.acol += first;
        v.cols = last - first + 1;
        v.arow += from;
        v.rows = to - from;
        v.poff += first * s->pcol + from;
    }
    return tui_span_add(out, v, err);
}

/* Of a span, what lies in elements lo … hi-1 of the piece: at most a first line from its
 * middle, whole lines, a last line to its middle. */
static int clip_flat(struct tu_spans *out, const struct tu_span *s, uint64_t lo,
                     uint64_t hi, struct tu_err *err)
{
    bool turned = s->pcol != 1;
    uint64_t lines = turned ? s->cols : s->rows, len = turned ? s->rows : s->cols;
    uint64_t step = turned ? s->pcol : s->prow;
    if (turned && s->prow != 1)
        return tu_fail(err, TU_EUNSUP, "a flat run of rows that are strided both ways");
    if (s->poff >= hi || s->poff + (lines - 1) * step + len <= lo)
        return 0;
    uint64_t first = s->poff + len > lo ? 0 : (lo - s->poff - len) / step + 1;
    uint64_t last = tu_min((hi - 1 - s->poff) / step, lines - 1);
    uint64_t begin = s->poff + first * step, end = s->poff + last * step;
    uint64_t from = lo > begin ? lo - begin : 0, to = tu_min(len, hi - end);
    if (first > last)
        return 0;
    if (first == last)
        return add_lines(out, s, first, last, from, to, err);
    int rc = from ? add_lines(out, s, first, first, from, len, err) : 0;
    uint64_t a = first + (from != 0), b = to < len ? last - 1 : last;
    if (!rc && a <= b)
        rc = add_lines(out, s, a, b, 0, len, err);
    return rc || to == len ? rc : add_lines(out, s, last, last, 0, to, err);
}

static int keep_run(struct tu_spans *s, const struct tu_flat *f, struct tu_err *err)
{
    struct tu_spans in = *s;
    int rc = 0;
    *s = (struct tu_spans){0};
    for (size_t i = 0; i < in.n && !rc; i++)
        rc = clip_flat(s, &in.span[i], f->lo, f->lo + f->n, err);
    for (size_t i = 0; i < s->n; i++)
        s->span[i].poff = s->span[i].poff - f->lo + f->at;
    tui_spans_release(&in);
    return rc;
}

static int append(struct tu_spans *out, const struct tu_spans *s, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = tui_span_add(out, s->span[i], err);
    return rc;
}

/* Role number k of the piece on its atom. */
static int spans_role(const struct tu_ckpt *c, const struct tu_piece *p, uint32_t k,
                      const struct tu_atom *atom, struct tu_spans *out,
                      struct tu_err *err)
{
    const struct tu_tensor *t = &atom->tensor;
    unsigned m = t->rank ? 1 : 0;
    struct tui_slice whole = {1, 0, 2,
                              matrix_rows(t->dim, t->rank, m, atom->fuse.transform)};
    struct tu_spans ps = {0}, as = {0};
    uint64_t rows, cols;
    int rc = p->box ? spans_boxes(c, p, k, &ps, err) : spans_mesh(c, p, k, &ps, err);
    tui_matrix(t, &rows, &cols);
    if (!rc && p->flat.yes && !tu_dtype_is_plain(p->tensor.dtype))
        rc = tu_fail(err, TU_EUNSUP, "'%.100s': a flat run of packed elements",
                     p->tensor.name);
    if (!rc && p->flat.yes)
        rc = keep_run(&ps, &p->flat, err);
    if (!rc && atom->fuse.roles == 1 && !atom->fuse.transform) {
        rc = append(out, &ps, err);
    } else if (!rc) {
        rc = tui_fuse_spans(c, &atom->fuse, position(&atom->fuse, p->fuse.role[k]), whole,
                            &as, err);
        if (!rc)
            rc = meet_all(&ps, &as, cols, out, err);
    }
    tui_spans_release(&ps);
    tui_spans_release(&as);
    return rc;
}

int tu_ckpt_spans(const struct tu_ckpt *c, uint32_t piece, uint32_t a,
                  struct tu_spans *out, struct tu_err *err)
{
    const struct tu_piece *p = &c->piece[piece];
    int rc = 0;
    for (uint32_t k = 0; k < p->fuse.roles && !rc; k++)
        if (c->role[p->fuse.role[k]].atom == a)
            rc = spans_role(c, p, k, &c->atom[a], out, err);
    return rc;
}
