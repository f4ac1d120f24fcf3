/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c: numpy's basic slices of a payload that passes by.
 *
 * In C order a box is equal runs: with k the last dimension that is cut, a row is
 * everything from dimension k inwards, and the kept part of each kept row is
 * contiguous. */
#include <inttypes.h>
#include <string.h>
#include <tensorutils/stream/edit.h>

static int parse_bound(const char *s, size_t n, int64_t *out, struct tu_err *err)
{
    char text[24];
    if (n >= sizeof text)
        return tu_fail(err, TU_EUSAGE, "'%.*s': expected an index", (int)n, s);
    memcpy(text, s, n);
    text[n] = '\0';
    return tu_parse_i64(text, out, err);
}

static int parse_part(const char *s, size_t n, struct tu_cut *cut, struct tu_err *err)
{
    const char *colon = memchr(s, ':', n);
    int rc = 0;
    *cut = (struct tu_cut){.index = !colon};
    if (!colon)
        return parse_bound(s, n, &cut->begin, err);
    const size_t left = (size_t)(colon - s), right = n - left - 1;
    if (memchr(colon + 1, ':', right))
        return tu_fail(err, TU_EUSAGE, "'%.*s': slices have no steps", (int)tu_min(n, 60), s);
    cut->has_begin = left > 0;
    cut->has_end = right > 0;
    if (left)
        rc = parse_bound(s, left, &cut->begin, err);
    if (!rc && right)
        rc = parse_bound(colon + 1, right, &cut->end, err);
    return rc;
}

int tu_cut_parse(const char *text, struct tu_cut cut[TU_RANK_MAX], unsigned *n,
                 struct tu_err *err)
{
    *n = 0;
    for (const char *s = text;; s++) {
        const size_t len = strcspn(s, ",");
        if (*n == TU_RANK_MAX)
            return tu_fail(err, TU_EUSAGE, "slice '%.80s': more than %d dimensions", text,
                           TU_RANK_MAX);
        int rc = parse_part(s, len, &cut[*n], err);
        if (rc) {
            tu_err_prefix(err, "slice '%.80s'", text);
            return rc;
        }
        ++*n;
        s += len;
        if (!*s)
            return 0;
    }
}

/* A bound in 0 … size; counted from the end when negative. */
static uint64_t clamp(int64_t at, uint64_t size)
{
    if (at < 0) {
        const uint64_t back = (uint64_t)-(at + 1) + 1;
        return back > size ? 0 : size - back;
    }
    return tu_min((uint64_t)at, size);
}

static int cut_dim(struct tu_slice *s, unsigned i, const struct tu_cut *c,
                   struct tu_err *err)
{
    const uint64_t size = s->dim[i];
    if (!c->index) {
        const uint64_t begin = c->has_begin ? clamp(c->begin, size) : 0;
        const uint64_t end = c->has_end ? clamp(c->end, size) : size;
        s->off[i] = begin;
        s->len[i] = end > begin ? end - begin : 0;
        s->out_dim[s->out_rank++] = s->len[i];
        return 0;
    }
    if (c->begin >= 0
            ? (uint64_t)c->begin >= size
            : clamp(c->begin, size) == 0 && (uint64_t) - (c->begin + 1) + 1 != size)
        return tu_fail(err, TU_EUSAGE,
                       "index %" PRId64 " is outside dimension %u of size %" PRIu64,
                       c->begin, i, size);
    s->off[i] = clamp(c->begin, size);
    s->len[i] = 1;
    return 0;
}

/* Elements to bytes where both fall on whole blocks. */
static int to_bytes(const struct tu_dtype *d, uint64_t *v, struct tu_err *err)
{
    if (*v % d->block_elems)
        return tu_fail(err, TU_EUNSUP, "the slice does not fall on whole blocks of %u %s",
                       d->block_elems, d->name);
    *v = *v / d->block_elems * d->block_bytes;
    return 0;
}

int tu_slice_plan(struct tu_slice *s, const struct tu_cut *cut, unsigned n,
                  const struct tu_tensor *t, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    if (!d)
        return tu_fail(err, TU_EUNSUP, "an unknown dtype cannot be sliced");
    if (n > t->rank)
        return tu_fail(err, TU_EUSAGE, "%u slices of a tensor of rank %u", n, t->rank);
    s->rank = t->rank;
    s->out_rank = 0;
    s->outer = 0;
    for (unsigned i = 0; i < t->rank; i++) {
        static const struct tu_cut whole = {0};
        s->dim[i] = t->dim[i];
        int rc = cut_dim(s, i, i < n ? &cut[i] : &whole, err);
        if (rc)
            return rc;
        if (s->len[i] != s->dim[i])
            s->outer = i; /* the last one that is cut */
    }
    s->row = 1; /* no product below passes the tensor's own, which was checked */
    for (unsigned i = s->outer + 1; i < s->rank; i++)
        s->row *= s->dim[i];
    s->keep_off = s->rank ? s->row * s->off[s->outer] : 0;
    s->keep = s->rank ? s->row * s->len[s->outer] : 1;
    s->row = s->rank ? s->row * s->dim[s->outer] : 1;
    int rc = 0;
    if (s->keep != s->row || s->outer > 0) {
        rc = to_bytes(d, &s->keep_off, err);
        if (!rc)
            rc = to_bytes(d, &s->keep, err);
        if (!rc)
            rc = to_bytes(d, &s->row, err);
    } else {
        s->keep = s->row = t->bytes;
    }
    return rc ? rc
              : tu_tensor_bytes(t->dtype, s->out_dim, s->out_rank, &s->out_bytes, err);
}

/* Is row number `row` (over the outer dimensions) inside the box? */
static bool row_kept(const struct tu_slice *s, uint64_t row)
{
    for (unsigned i = s->outer; i-- > 0;) {
        const uint64_t at = row % s->dim[i];
        row /= s->dim[i];
        if (at < s->off[i] || at - s->off[i] >= s->len[i])
            return false;
    }
    return true;
}

size_t tu_slice_keep(const struct tu_slice *s, uint64_t pos, void *buf, size_t n)
{
    unsigned char *p = buf;
    size_t kept = 0, at = 0;
    while (at < n) {
        const uint64_t here = pos + at, row = here / s->row, in_row = here % s->row;
        const size_t span =
            (size_t)tu_min(s->row - in_row, n - at); /* of this row, in buf */
        const uint64_t from = tu_max(in_row, s->keep_off);
        const uint64_t to = tu_min(in_row + span, s->keep_off + s->keep);
        if (from < to && row_kept(s, row)) {
            memmove(p + kept, p + at + (from - in_row), (size_t)(to - from));
            kept += (size_t)(to - from);
        }
        at += span;
    }
    return kept;
}
