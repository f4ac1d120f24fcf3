/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c: two sources compared tensor by tensor.
 *
 * Windows of a fixed number of elements go to the pool and their results are merged in
 * order, so the figures do not depend on the threads. Bytes are compared first: equal
 * tensors, the common case, are never converted to numbers. */
#include "kit.h"

#define WINDOW ((uint64_t)256 << 10) /* elements; a multiple of every block */

int tu_source_match(const struct tu_source *a, const struct tu_source *b, size_t *to,
                    size_t *from, struct tu_err *err)
{
    struct tui_names x = { 0 }, y = { 0 };
    int code = tui_names_make(&x, a->tensor, a->n, err);
    if (!code)
        code = tui_names_make(&y, b->tensor, b->n, err);
    for (size_t i = 0; i < a->n; i++)
        to[i] = SIZE_MAX;
    for (size_t j = 0; j < b->n; j++)
        from[j] = SIZE_MAX;
    for (size_t i = 0, j = 0; !code && i < x.n && j < y.n;) {
        int order = strcmp(x.item[i].name, y.item[j].name);
        if (!order) {
            to[x.item[i].i] = y.item[j].i;
            from[y.item[j].i] = x.item[i].i;
        }
        i += order <= 0;
        j += order >= 0;
    }
    tui_names_release(&x);
    tui_names_release(&y);
    return code;
}

struct side {
    struct tu_source *s;
    size_t i;
    uint32_t crc; /* of the bytes, gathered from windows (atomic) */
};

struct work {
    struct side a, b;
    uint64_t elements;
    bool values;  /* second pass */
    int differ;   /* bytes, first pass (atomic) */
    const struct tu_tolerance *tol;
    struct tu_compare *window; /* [windows] */
    const struct tu_job *job;
};

/* Read elements first … first+n-1 of one side; *bytes is their size. */
static int load(struct side *x, uint64_t first, uint64_t n, char **buf, size_t *bytes,
                struct tu_err *err)
{
    const struct tu_tensor *t = &x->s->tensor[x->i];
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    uint64_t off = first / d->block_elems * d->block_bytes;
    *bytes = (size_t)(tu_ceil_div(n, d->block_elems) * d->block_bytes);
    *buf = tu_alloc(*bytes, 1, err);
    int code = *buf ? tu_source_read(x->s, x->i, off, *buf, *bytes, err) : TU_ENOMEM;
    if (!code) {
        uint32_t part = tu_crc32_part(tu_crc32(0, *buf, *bytes), t->bytes - off - *bytes);
        __atomic_fetch_xor(&x->crc, part, __ATOMIC_RELAXED);
    }
    return code;
}

/* Block formats have no values here: count the blocks that differ. */
static void compare_blocks(struct tu_compare *c, const struct tu_dtype *d, const char *a,
                           const char *b, size_t bytes, uint64_t first)
{
    for (size_t at = 0; at < bytes; at += d->block_bytes) {
        bool same = !memcmp(a + at, b + at, d->block_bytes);
        if (!same && !c->differ)
            c->worst = first + at / d->block_bytes * d->block_elems;
        c->n++;
        c->differ += !same;
    }
    c->outside = c->differ;
}

static int compare_window(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct work *w = ctx;
    (void)worker;
    uint64_t first = task * WINDOW, n = tu_min(WINDOW, w->elements - first);
    uint32_t da = w->a.s->tensor[w->a.i].dtype, db = w->b.s->tensor[w->b.i].dtype;
    char *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    if (tu_job_cancelled(w->job))
        return tu_fail(err, TU_ECANCEL, "%s: stopped on request", w->a.s->path);
    int code = load(&w->a, first, n, &a, &na, err);
    if (!code)
        code = load(&w->b, first, n, &b, &nb, err);
    if (!code && !w->values && (na != nb || memcmp(a, b, na)))
        __atomic_store_n(&w->differ, 1, __ATOMIC_RELAXED);
    if (!code && w->values && da >= TU_DTYPE_GGML)
        compare_blocks(&w->window[task], tu_dtype_find(da), a, b, na, first);
    else if (!code && w->values)
        code = tu_compare_add(&w->window[task], w->tol, da, a, db, b, (size_t)n, first, err);
    tu_free(a);
    tu_free(b);
    return code;
}

/* What the file keeps of checksums in another way than a CRC of the tensor's bytes. */
static int check_stored(const struct side *x, struct tu_pool *pool, struct tu_err *err)
{
    return tui_has_crc(x->s, x->i) ? 0 : tu_source_verify(x->s, x->i, pool, err);
}

static int run(struct work *w, struct tu_difference *out, struct tu_pool *pool,
               struct tu_err *err)
{
    uint64_t windows = tu_ceil_div(w->elements, WINDOW);
    uint32_t da = w->a.s->tensor[w->a.i].dtype, db = w->b.s->tensor[w->b.i].dtype;
    int code = check_stored(&w->a, pool, err);
    if (!code)
        code = check_stored(&w->b, pool, err);
    if (!code)
        code = tu_pool_run(pool, windows, compare_window, w, err);
    if (!code)
        code = tui_check_crc(w->a.s, w->a.i, w->a.crc, err);
    if (!code)
        code = tui_check_crc(w->b.s, w->b.i, w->b.crc, err);
    out->bytes_equal = !w->differ && da == db;
    out->values.n = w->elements * tu_compare_parts(da);
    bool blocks = da >= TU_DTYPE_GGML || db >= TU_DTYPE_GGML;
    out->valued = !blocks;
    if (code || out->bytes_equal || (blocks && da != db))
        return code;
    w->window = tu_calloc((size_t)windows, sizeof *w->window, err);
    if (!w->window)
        return TU_ENOMEM;
    w->values = true;
    code = tu_pool_run(pool, windows, compare_window, w, err);
    out->values = (struct tu_compare){ 0 };
    for (uint64_t k = 0; !code && k < windows; k++)
        tu_compare_merge(&out->values, &w->window[k]);
    tu_free(w->window);
    return code;
}

int tu_source_compare(struct tu_difference *out, struct tu_source *a, size_t i,
                      struct tu_source *b, size_t j, const struct tu_tolerance *tol,
                      const struct tu_job *job, struct tu_err *err)
{
    static const struct tu_tolerance none = { 0 };
    struct work w = { .a = { a, i, 0 }, .b = { b, j, 0 }, .tol = tol ? tol : &none, .job = job };
    uint64_t other;
    *out = (struct tu_difference){ 0 };
    int code = tu_elements(a->tensor[i].dim, a->tensor[i].rank, &w.elements, err);
    if (!code)
        code = tu_elements(b->tensor[j].dim, b->tensor[j].rank, &other, err);
    if (!code && other != w.elements)
        code = tu_fail(err, TU_EBUG, "%s: tensors of different sizes compared", a->path);
    return code ? code : run(&w, out, job ? job->pool : NULL, err);
}
