/* SPDX-License-Identifier: Apache-2.0 */
/* box.c: what boxes of one tensor have in common, and whether they make it whole.
 *
 * Tiling is proven by two facts: no two boxes overlap, and the volumes add up. Sorted
 * boxes of a grid fall apart into disjoint groups dimension by dimension, which makes the
 * first cheap; where they do not, pairs are compared. */
#include <tensorutils/core.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool tu_box_meet(const struct tu_box *a, const struct tu_box *b, uint64_t *off,
                 uint64_t *len)
{
    for (unsigned i = 0; i < a->rank; i++) {
        uint64_t begin = tu_max(a->off[i], b->off[i]);
        uint64_t end = tu_min(a->off[i] + a->len[i], b->off[i] + b->len[i]);
        if (begin >= end)
            return false;
        off[i] = begin;
        len[i] = end - begin;
    }
    return true;
}

/* Elements from the start of box b to the point at. */
static uint64_t place(const struct tu_box *b, const uint64_t *at)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < b->rank; i++)
        n = n * b->len[i] + (at[i] - b->off[i]);
    return n;
}

uint64_t tu_box_copy(void *dst, const struct tu_box *d, const void *src,
                     const struct tu_box *s, size_t elem)
{
    uint64_t off[TU_RANK_MAX], len[TU_RANK_MAX], at[TU_RANK_MAX];
    if (!tu_box_meet(d, s, off, len))
        return 0;
    /* A run goes on over each dimension that both boxes hold whole. */
    unsigned outer = d->rank;
    uint64_t run = 1;
    while (outer) {
        outer--;
        run *= len[outer];
        if (len[outer] != d->len[outer] || len[outer] != s->len[outer])
            break;
    }
    uint64_t runs = 1;
    for (unsigned i = 0; i < d->rank; i++) {
        at[i] = off[i];
        runs *= i < outer ? len[i] : 1;
    }
    for (uint64_t r = 0; r < runs; r++) {
        memcpy((unsigned char *)dst + place(d, at) * elem,
               (const unsigned char *)src + place(s, at) * elem, run * elem);
        for (unsigned i = outer; i-- > 0;) {
            if (++at[i] < off[i] + len[i])
                break;
            at[i] = off[i];
        }
    }
    return runs * run;
}

/* Tiling --------------------------------------------------------------------------- */

struct tiling {
    const struct tu_box *box; /* as given: numbers in messages count from here */
    const struct tu_box **order;
    const uint64_t *dim;
    unsigned rank;
};

static int by_corner(const void *a, const void *b)
{
    const struct tu_box *x = *(const struct tu_box *const *)a;
    const struct tu_box *y = *(const struct tu_box *const *)b;
    for (unsigned i = 0; i < x->rank; i++) {
        if (x->off[i] != y->off[i])
            return x->off[i] < y->off[i] ? -1 : 1;
        if (x->len[i] != y->len[i])
            return x->len[i] < y->len[i] ? -1 : 1;
    }
    return (x > y) - (x < y);
}

static bool same_interval(const struct tu_box *a, const struct tu_box *b, unsigned d)
{
    return a->off[d] == b->off[d] && a->len[d] == b->len[d];
}

/* "[2,0]" of a point; cut when it is long. */
static const char *point_text(const uint64_t *at, unsigned rank, char out[96])
{
    size_t n = 0;
    out[n++] = '[';
    for (unsigned i = 0; i < rank && n < 64; i++)
        n += (size_t)snprintf(out + n, 96 - n, "%s%" PRIu64, i ? "," : "", at[i]);
    snprintf(out + n, 96 - n, "]");
    return out;
}

static int overlap(const struct tiling *t, const struct tu_box *a, const struct tu_box *b,
                   const uint64_t *at, struct tu_err *err)
{
    char text[96];
    size_t i = (size_t)(a - t->box), j = (size_t)(b - t->box);
    return tu_fail(err, TU_EINCOMPLETE, "pieces %zu and %zu both hold element %s",
                   (size_t)tu_min(i, j), (size_t)tu_max(i, j),
                   point_text(at, t->rank, text));
}

/* order[begin, end) are sorted by where they begin in dimension d. */
static int compare_pairs(const struct tiling *t, size_t begin, size_t end, unsigned d,
                         struct tu_err *err)
{
    uint64_t off[TU_RANK_MAX], len[TU_RANK_MAX];
    const struct tu_box **o = t->order;
    for (size_t i = begin; i < end; i++)
        for (size_t j = i + 1; j < end && o[j]->off[d] < o[i]->off[d] + o[i]->len[d]; j++)
            if (tu_box_meet(o[i], o[j], off, len))
                return overlap(t, o[i], o[j], off, err);
    return 0;
}

/* Boxes order[begin, end) have equal intervals in the dimensions before d: does any pair
 * meet? */
static int find_overlap(const struct tiling *t, size_t begin, size_t end, unsigned d,
                        struct tu_err *err)
{
    if (end - begin < 2)
        return 0;
    const struct tu_box **o = t->order;
    if (d == t->rank)
        return overlap(t, o[begin], o[begin + 1], o[begin]->off, err);
    for (size_t i = begin + 1; i < end; i++)
        if (!same_interval(o[i - 1], o[i], d) &&
            o[i]->off[d] < o[i - 1]->off[d] + o[i - 1]->len[d])
            return compare_pairs(t, begin, end, d, err); /* no grid */
    for (size_t i = begin, next; i < end; i = next) {
        for (next = i + 1; next < end && same_interval(o[i], o[next], d);)
            next++;
        int rc = find_overlap(t, i, next, d + 1, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Elements of b in the slice where the dimensions before d are fixed at `at`; 0 outside
 * of it. */
static uint64_t slice_volume(const struct tu_box *b, const uint64_t *at, unsigned d)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < b->rank; i++) {
        if (i >= d)
            n *= b->len[i];
        else if (at[i] < b->off[i] || at[i] - b->off[i] >= b->len[i])
            return 0;
    }
    return n;
}

/* Boxes order[0, n) do not overlap but leave a hole: find its first element. Dimension by
 * dimension, the first slice whose volume they do not fill; slices change only where a
 * box begins or ends. */
static void find_hole(const struct tiling *t, size_t n, uint64_t *at)
{
    for (unsigned d = 0; d < t->rank; d++) {
        uint64_t whole = 1;
        for (unsigned i = d + 1; i < t->rank; i++)
            whole *= t->dim[i];
        for (at[d] = 0;;) {
            uint64_t filled = 0, next = t->dim[d];
            for (size_t i = 0; i < n; i++) {
                const struct tu_box *b = t->order[i];
                uint64_t end = b->off[d] + b->len[d];
                filled += slice_volume(b, at, d + 1);
                if (b->off[d] > at[d])
                    next = tu_min(next, b->off[d]);
                else if (end > at[d])
                    next = tu_min(next, end);
            }
            if (filled < whole || next == t->dim[d])
                break;
            at[d] = next;
        }
    }
}

int tu_box_tile(const struct tu_box *box, size_t n, const uint64_t *dim, unsigned rank,
                struct tu_err *err)
{
    uint64_t whole, filled = 0, at[TU_RANK_MAX];
    char text[96];
    int rc = tu_elements(dim, rank, &whole, err);
    if (rc)
        return rc;
    struct tiling t = {box, tu_alloc(n, sizeof *t.order, err), dim, rank};
    if (!t.order)
        return TU_ENOMEM;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t volume = 1;
        for (unsigned d = 0; d < rank; d++) {
            if (box[i].off[d] > dim[d] || box[i].len[d] > dim[d] - box[i].off[d]) {
                rc = tu_fail(err, TU_EINCOMPLETE,
                             "piece %zu reaches past dimension %u (%" PRIu64 "+%" PRIu64
                             " > %" PRIu64 ")",
                             i, d, box[i].off[d], box[i].len[d], dim[d]);
                goto out;
            }
            volume *= box[i].len[d]; /* at most `whole`, or 0 */
        }
        if (volume)
            t.order[used++] = &box[i];
        filled += volume; /* may wrap, but not when nothing overlaps */
    }
    qsort(t.order, used, sizeof *t.order, by_corner);
    rc = find_overlap(&t, 0, used, 0, err);
    if (!rc && filled != whole) {
        find_hole(&t, used, at);
        rc = tu_fail(err, TU_EINCOMPLETE, "element %s is in none of %zu pieces",
                     point_text(at, rank, text), n);
    }
out:
    tu_free(t.order);
    return rc;
}
