/* SPDX-License-Identifier: Apache-2.0 */
/* view.c: a source seen as other tensors, without a copy: names, cuts and orders that a
 * reader elsewhere has worked out.
 *
 * Not for pieces that make a whole: join.c. */
#include "kit.h"

struct view_source {
    struct tu_source base;
    struct tu_source *below;
    const struct tu_view_item *item; /* [n] */
};

/* Rows of a group of `pair`: the even ones first. */
static uint64_t row_below(const struct tu_view_item *v, uint64_t row)
{
    uint64_t half = v->pair / 2, in = row % v->pair;
    return row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

static int read_rows(struct view_source *s, const struct tu_view_item *v, uint64_t off,
                     unsigned char *out, size_t n, struct tu_err *err)
{
    int code = 0;
    while (n && !code) {
        uint64_t row = off / v->row, skip = off % v->row;
        size_t k = (size_t)tu_min(n, v->row - skip);
        code = tu_source_read(s->below, v->from, v->off + row_below(v, row) * v->row + skip, out,
                              k, err);
        out += k;
        off += k;
        n -= k;
    }
    return code;
}

static int read_view(struct tu_source *base, size_t i, uint64_t off, void *buf, size_t n,
                     struct tu_err *err)
{
    struct view_source *s = (struct view_source *)base;
    const struct tu_view_item *v = &s->item[i];
    if (v->data) {
        memcpy(buf, (const char *)v->data + off, n);
        return 0;
    }
    return v->pair ? read_rows(s, v, off, buf, n, err)
                   : tu_source_read(s->below, v->from, v->off + off, buf, n, err);
}

static int verify_view(struct tu_source *base, size_t i, struct tu_pool *pool,
                       struct tu_err *err)
{
    struct view_source *s = (struct view_source *)base;
    return s->item[i].data ? 0 : tu_source_verify(s->below, s->item[i].from, pool, err);
}

static void close_view(struct tu_source *base)
{
    tu_source_close(((struct view_source *)base)->below);
    tui_source_free(base);
}

static bool summed_view(const struct tu_source *base, size_t i)
{
    const struct view_source *s = (const struct view_source *)base;
    return !s->item[i].data && tu_source_summed(s->below, s->item[i].from);
}

static const struct tu_source_ops source_ops = { read_view, verify_view, summed_view,
                                                 close_view };

static int add_item(struct view_source *s, struct tu_view_item *v, struct tu_tensor *t,
                    struct tu_err *err)
{
    const struct tu_tensor *x = &v->tensor;
    int code = tu_tensor_make(t, s->base.arena, x->name, x->dtype, x->dim, x->rank, x->meta, err);
    if (code)
        return code;
    v->tensor = *t;
    if (v->data) {
        char *copy = tu_arena_alloc(s->base.arena, (size_t)t->bytes + 1, 1, err);
        if (!copy)
            return TU_ENOMEM;
        memcpy(copy, v->data, (size_t)t->bytes);
        v->data = copy;
    } else if (v->from >= s->below->n || v->off > s->below->tensor[v->from].bytes ||
               t->bytes > s->below->tensor[v->from].bytes - v->off ||
               (v->pair && t->bytes % (v->pair * v->row))) {
        return tu_fail(err, TU_EBUG, "'%.80s' does not lie within what it is made of", t->name);
    }
    return 0;
}

int tu_source_view(struct tu_source **out, struct tu_source *below,
                   const struct tu_view_item *item, size_t n, const struct tu_meta *meta,
                   size_t metas, struct tu_err *err)
{
    struct view_source *s = tui_source_new(sizeof *s, below->format, &source_ops, below->path, err);
    if (!s) {
        tu_source_close(below);
        return TU_ENOMEM;
    }
    s->below = below;
    struct tu_view_item *own = tu_arena_alloc(s->base.arena, n + 1, sizeof *own, err);
    struct tu_tensor *t = tu_arena_alloc(s->base.arena, n + 1, sizeof *t, err);
    int code = own && t ? 0 : TU_ENOMEM;
    if (!code && n)
        memcpy(own, item, n * sizeof *own);
    for (size_t i = 0; !code && i < n; i++) {
        code = add_item(s, &own[i], &t[i], err);
        s->base.referenced += code ? 0 : t[i].bytes;
    }
    for (size_t i = 0; !code && i < metas; i++)
        code = tui_source_meta(&s->base, meta[i].topic, meta[i].json, meta[i].n, err);
    s->base.n = n;
    s->base.tensor = t;
    s->item = own;
    s->base.stored = below->stored;
    s->base.no_crc = below->no_crc;
    if (code)
        tu_source_close(&s->base);
    else
        *out = &s->base;
    return code;
}
