/* SPDX-License-Identifier: Apache-2.0 */
/* spans.c: which elements of an atom a piece holds: the piece's fuse met with the atom's.
 */

#include <string.h>

#include "ckpt.h"

/* The dimensions, kept. */
static int keep(struct tu_ckpt *c, const uint64_t **out, const uint64_t *dim, unsigned rank,
                struct tu_err *err)
{
    uint64_t *d = tu_arena_alloc(c->arena, rank + 1, sizeof *d, err);
    if (!d)
        return TU_ENOMEM;
    for (unsigned i = 0; i < rank; i++) {
        if (dim[i] == TU_REGION_OPEN)
            return tu_fail(err, TU_ESHARD, "shard metadata: dimension %u is not known", i);
        d[i] = dim[i];
    }
    *out = d;
    return 0;
}

int tui_box_of(struct tu_ckpt *c, const struct tu_tensor *t, const uint64_t **offset,
               const uint64_t **global, struct tu_err *err)
{
    struct tu_region where;
    *offset = *global = NULL;
    int rc = tu_region_of(&where, t, err);
    if (!rc && where.kind == TU_REGION_WHOLE)
        return 0;
    if (!rc && where.kind == TU_REGION_FLAT)
        rc = tu_fail(err, TU_EUNSUP, "a flat piece: join it first (tns-cat --join)");
    else if (!rc && where.partial)
        rc = tu_fail(err, TU_EUNSUP, "a partial sum: reduce it first");
    if (!rc)
        rc = keep(c, offset, where.off, where.rank, err);
    if (!rc)
        rc = keep(c, global, where.global, where.rank, err);
    if (rc)
        tu_err_prefix(err, "'%.100s'", t->name);
    return rc;
}

/* A box of an N-dimensional tensor as spans of its matrix view: one for each index of the
 * middle dimensions down to where the box is contiguous. */
static int spans_box(const struct tu_piece *p, const struct tu_tensor *r,
                     struct tu_spans *out, struct tu_err *err)
{
    const struct tu_tensor *t = &p->tensor;
    unsigned last = t->rank; /* dims last … rank-1 are whole: one run */
    uint64_t run = 1, line = 1, middle = 1;
    while (last > 1 && t->dim[last - 1] == r->dim[last - 1])
        run *= t->dim[--last];
    if (last > 1)
        run *= t->dim[--last]; /* the cut dimension continues the run */
    for (unsigned i = 1; i < t->rank; i++)
        line *= t->dim[i];
    for (unsigned i = 1; i < last; i++)
        middle *= t->dim[i];
    for (uint64_t m = 0; m < middle; m++) {
        uint64_t left = m, col = 0, stride = 1, index[TU_RANK_MAX] = {0};
        for (unsigned i = last; i-- > 1; left /= t->dim[i])
            index[i] = left % t->dim[i];
        for (unsigned i = t->rank; i-- > 1; stride *= r->dim[i])
            col += (p->offset[i] + index[i]) * stride;
        struct tu_span s = {p->offset[0], col, t->dim[0], run, m * run, line, 1};
        int rc = tui_span_add(out, s, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* The common part of a piece's span s and an atom's span a, both in the role's
 * coordinates, in the atom's coordinates. cols: columns of the atom's matrix. */
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
    if (a->pcol == 1 && a->prow == cols) {
        v.rows = r1 - r0;
        v.cols = c1 - c0;
        v.prow = s->prow;
        v.pcol = s->pcol;
    } else if (a->prow == 1 && a->pcol == cols) { /* the atom is [in, out] */
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

/* The atom's matrix before its own transpose has this many rows. */
static uint64_t atom_prows(const struct tu_atom *atom)
{
    const struct tu_tensor *t = &atom->tensor;
    return t->rank == 2 && atom->fuse.transform & TU_MAP_TRANSPOSE ? t->dim[1]
           : t->rank                                               ? t->dim[0]
                                                                   : 1;
}

static uint64_t piece_prows(const struct tu_piece *p)
{
    const struct tu_tensor *t = &p->tensor;
    if (p->fuse.transform & TU_MAP_STACK)
        return t->dim[0] * t->dim[1];
    return t->rank == 2 && p->fuse.transform & TU_MAP_TRANSPOSE ? t->dim[1]
           : t->rank                                            ? t->dim[0]
                                                                : 1;
}

int tu_ckpt_spans(const struct tu_ckpt *c, uint32_t piece, uint32_t a,
                  struct tu_spans *out, struct tu_err *err)
{
    const struct tu_piece *p = &c->piece[piece];
    const struct tu_atom *atom = &c->atom[a];
    struct tui_slice slice = {c->tp, p->at.tp, c->version, piece_prows(p)};
    struct tui_slice whole = {1, 0, 2, atom_prows(atom)};
    uint64_t rows, cols;
    int rc = 0;
    tu_tensor_matrix(&atom->tensor, &rows, &cols);
    if (p->offset)
        return spans_box(p, &atom->tensor, out, err);
    for (uint32_t k = 0; k < p->fuse.roles && !rc; k++) {
        struct tu_spans ps = {0}, as = {0};
        if (c->role[p->fuse.role[k]].atom != a)
            continue;
        bool same = atom->fuse.roles == 1 && !atom->fuse.transform;
        rc = tui_fuse_spans(c, &p->fuse, k, slice, same ? out : &ps, err);
        if (!rc && !same)
            rc = tui_fuse_spans(c, &atom->fuse, position(&atom->fuse, p->fuse.role[k]),
                                whole, &as, err);
        if (!rc && !same)
            rc = meet_all(&ps, &as, cols, out, err);
        tui_spans_release(&ps);
        tui_spans_release(&as);
    }
    return rc;
}
