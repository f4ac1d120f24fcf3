/* SPDX-License-Identifier: Apache-2.0 */
/* gptq.c: GPTQ and SparseGPT: columns are rounded (or dropped) one after the other, and
 * what each loses is made up for by those to come. Source: IST-DASLab/gptq gptq.py,
 * IST-DASLab/sparsegpt sparsegpt.py.
 *
 * Rows do not know of each other: the pool shares them out. Memory: the matrix in double
 * and its Hessian. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "int.h"
#include "prune.h"
#include "scored.h"
#include "tensorutils/quant/calib.h"

struct walk {
    const struct tu_coding *coding; /* NULL: prune */
    struct tu_ints *out;
    unsigned n, m; /* kept of */
    uint64_t rows, cols, block;
    const double *u;     /* [cols, cols] upper, Uᵀ·U = H⁻¹ */
    const uint32_t *col; /* the column that comes k-th */
    bool fixed;          /* groups are of neighbours, fitted beforehand */
    float *w;            /* [rows, cols] */
    double *loss;        /* [rows] */
};

/* A row on its walk: values and errors in the order of the walk. */
struct line {
    double *v, *e;
    float *group, *scratch;
    bool *drop;
    uint8_t *room;             /* codes of a fit, not kept */
    struct tui_affine *affine; /* per group */
};

static int line_init(struct line *l, uint64_t cols, uint64_t groups, struct tu_err *err)
{
    *l = (struct line){0};
    l->v = tu_alloc((size_t)cols * 2, sizeof *l->v, err);
    l->group = tu_alloc((size_t)cols * 2, sizeof *l->group, err);
    l->drop = tu_calloc((size_t)cols, sizeof *l->drop, err);
    l->room = tu_alloc((size_t)cols, 1, err);
    l->affine = tu_calloc((size_t)groups + 1, sizeof *l->affine, err);
    if (!l->v || !l->group || !l->drop || !l->room || !l->affine)
        return TU_ENOMEM;
    l->e = l->v + cols;
    l->scratch = l->group + cols;
    return 0;
}

static void line_release(struct line *l)
{
    tu_free(l->v);
    tu_free(l->group);
    tu_free(l->drop);
    tu_free(l->room);
    tu_free(l->affine);
}

/* Scale and zero of n values that stand in l->group. */
static void fit_group(const struct walk *w, struct line *l, uint64_t row, uint64_t g,
                      uint64_t n)
{
    struct tui_int_group t = {
        .x = l->group, .n = (size_t)n, .scratch = l->scratch, .code = l->room};
    tui_range(w->coding->cpu, t.x, t.n, t.n, &t.lo, &t.hi);
    const struct tui_affine a = tui_int_fit_group(w->coding, &t);
    l->affine[g] = a;
    w->out->scale[row * w->out->groups + g] = a.scale;
    w->out->zero[row * w->out->groups + g] = (uint16_t)a.zero;
}

static double round_column(const struct walk *w, struct line *l, uint64_t row, uint64_t k)
{
    uint64_t size = w->out->group, j = w->col[k], g = w->fixed ? j / size : k / size;
    if (!w->fixed && k % size == 0) {
        uint64_t n = tu_min(size, w->cols - k);
        for (uint64_t i = 0; i < n; i++)
            l->group[i] = (float)l->v[k + i];
        fit_group(w, l, row, g, n);
    }
    struct tui_affine a = l->affine[g];
    float x = (float)l->v[k];
    uint8_t code;
    tui_int_code(0, &tui_int_rules[w->coding->param[TUI_INT_RULE]], w->out->bits, a, &x,
                 NULL, 1, &code);
    w->out->code[row * w->cols + j] = code;
    return (double)(((float)code - a.zero) * a.scale);
}

/* Mark what of the next m columns is dropped: those with the least (v / U_jj)². */
static void choose(const struct walk *w, struct line *l, uint64_t k)
{
    bool keep[TUI_M_MAX];
    for (unsigned i = 0; i < w->m; i++) {
        double s = l->v[k + i] / w->u[(k + i) * w->cols + k + i];
        l->group[i] = (float)(s * s);
    }
    tui_keep_nm(l->group, 1, w->n, w->m, keep);
    for (unsigned i = 0; i < w->m; i++)
        l->drop[k + i] = !keep[i];
}

static void walk_line(const struct walk *w, struct line *l, uint64_t row)
{
    uint64_t n = w->cols;
    float *x = w->w + row * n;
    double loss = 0;
    for (uint64_t k = 0; k < n; k++)
        l->v[k] = x[w->col[k]];
    for (uint64_t first = 0; first < n; first += w->block) {
        uint64_t last = tu_min(first + w->block, n);
        for (uint64_t k = first; k < last; k++) {
            if (!w->coding && k % w->m == 0)
                choose(w, l, k);
            double q = w->coding ? round_column(w, l, row, k) : l->drop[k] ? 0 : l->v[k];
            const double *u = w->u + k * n;
            l->e[k] = (l->v[k] - q) / u[k];
            loss += l->e[k] * l->e[k] / 2;
            x[w->col[k]] = (float)q;
            for (uint64_t i = k + 1; i < last; i++)
                l->v[i] -= l->e[k] * u[i];
        }
        for (uint64_t k = first; k < last; k++)
            for (uint64_t i = last; i < n; i++)
                l->v[i] -= l->e[k] * w->u[k * n + i];
    }
    w->loss[row] = loss;
}

static int walk_row(void *ctx, uint64_t row, unsigned worker, struct tu_err *err)
{
    (void)worker;
    const struct walk *w = ctx;
    struct line l;
    int rc = line_init(&l, w->cols, w->out ? w->out->groups : 0, err);
    for (uint64_t g = 0; !rc && w->fixed && g < w->out->groups; g++) {
        uint64_t size = w->out->group, n = tu_min(size, w->cols - g * size);
        memcpy(l.group, w->w + row * w->cols + g * size, (size_t)n * sizeof *l.group);
        fit_group(w, &l, row, g, n);
    }
    if (!rc)
        walk_line(w, &l, row);
    line_release(&l);
    return rc;
}

/* The order of the walk ----------------------------------------------------------------
 */

static int order_columns(const struct tu_calib *c, bool order, uint32_t *col,
                         struct tu_err *err)
{
    struct tui_scored *p = tu_alloc((size_t)c->cols, sizeof *p, err);
    if (!p)
        return TU_ENOMEM;
    for (uint64_t j = 0; j < c->cols; j++)
        p[j] = (struct tui_scored){c->hessian[j * c->cols + j], j};
    if (order)
        tui_scored_sort(p, (size_t)c->cols);
    for (uint64_t j = 0; j < c->cols; j++)
        col[j] = (uint32_t)p[j].at;
    tu_free(p);
    return 0;
}

/* u: the upper factor of the damped Hessian's inverse, columns in order. A dead column
 * gets a diagonal of 1 (its weights are zeroed by the caller). */
static int factor(struct tu_gptq *g, const struct tu_calib *c, const uint32_t *col,
                  double *u, struct tu_err *err)
{
    uint64_t n = c->cols;
    double mean = 0, scale = c->tokens ? 2 / (double)c->tokens : 0;
    for (uint64_t j = 0; j < n; j++) {
        double d = c->hessian[j * n + j] * scale;
        mean += (d > 0 ? d : 1) / (double)n;
    }
    g->used = g->damping > 0 ? g->damping : 0.01;
    for (unsigned tries = 0; tries < 8; tries++, g->used *= 10) {
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++)
                u[i * n + j] = c->hessian[(uint64_t)col[i] * n + col[j]] * scale;
        for (uint64_t i = 0; i < n; i++) {
            if (!(u[i * n + i] > 0))
                u[i * n + i] = 1;
            u[i * n + i] += g->used * mean;
        }
        if (!tu_cholesky(u, (size_t)n))
            continue;
        int rc = tu_cholesky_inverse(u, (size_t)n, err);
        if (rc)
            return rc;
        if (!tu_cholesky(u, (size_t)n))
            continue;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < i; j++) {
                u[j * n + i] = u[i * n + j];
                u[i * n + j] = 0;
            }
        return 0;
    }
    return tu_fail(err, TU_EUNSUP,
                   "the Hessian of %" PRIu64 " columns stays indefinite under a "
                   "damping of %g",
                   n, g->used);
}

static int run(struct tu_gptq *g, const struct tu_calib *c, struct walk *w,
               struct tu_pool *pool, struct tu_err *err)
{
    uint64_t n = c->cols;
    double *u = NULL;
    uint32_t *col = NULL;
    int rc = TU_ENOMEM;
    if (!c->hessian || n > UINT32_MAX)
        return tu_fail(err, TU_EUSAGE, "no Hessian of %" PRIu64 " columns", n);
    w->loss = NULL;
    if (!(u = tu_alloc((size_t)(n * n), sizeof *u, err)) ||
        !(col = tu_alloc((size_t)n, sizeof *col, err)) ||
        !(w->loss = tu_calloc((size_t)w->rows, sizeof *w->loss, err)))
        goto out;
    if ((rc = order_columns(c, g->order, col, err)) || (rc = factor(g, c, col, u, err)))
        goto out;
    for (uint64_t i = 0; i < w->rows; i++)
        for (uint64_t j = 0; j < n; j++)
            if (!(c->hessian[j * n + j] > 0))
                w->w[i * n + j] = 0;
    w->u = u;
    w->col = col;
    w->block = g->block ? g->block : 128;
    rc = tu_pool_run(pool, w->rows, walk_row, w, err);
    g->error = 0;
    for (uint64_t i = 0; !rc && i < w->rows; i++)
        g->error += w->loss[i];
    for (uint64_t k = 0; !rc && w->out && w->out->gidx && k < n; k++)
        w->out->gidx[col[k]] = (int32_t)(k / w->out->group);
out:
    tu_free(u);
    tu_free(col);
    tu_free(w->loss);
    return rc;
}

/* Scales as the codec stores them, and the values that then are read. */
static int store(const struct tu_coding *c, struct tu_ints *m, float *w,
                 struct tu_err *err)
{
    for (uint64_t i = 0; i < m->rows * m->groups; i++) {
        float v = m->scale[i];
        if (c->param[TUI_INT_SCALE] == TU_F16)
            v = tu_from_f16(tu_to_f16(v));
        else if (c->param[TUI_INT_SCALE] == TU_BF16)
            v = tu_from_bf16(tu_to_bf16(v));
        if (!isfinite(v))
            return tu_fail(err, TU_EUSAGE, "scale %g: over the range of f16",
                           (double)m->scale[i]);
        m->scale[i] = v;
    }
    tu_ints_values(m, w);
    return 0;
}

int tu_gptq_run(struct tu_gptq *g, const struct tu_calib *calib,
                const struct tu_coding *coding, float *w, struct tu_ints *out,
                struct tu_pool *pool, struct tu_err *err)
{
    bool known = false;
    for (const struct tu_codec *row = tui_codecs_int; row->name; row++)
        known |= row == coding->codec;
    if (!known || coding->param[TUI_INT_TENSOR])
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': GPTQ makes integers with scales of groups or "
                       "rows",
                       coding->codec->name);
    if (coding->cols != calib->cols)
        return tu_fail(err, TU_EUSAGE,
                       "inputs of %" PRIu64 " columns for weights of %" PRIu64,
                       calib->cols, coding->cols);
    const struct tui_int_format *f = coding->codec->format;
    bool gidx = g->order && !g->fixed_groups;
    int rc = tu_ints_init(out, f->bits, coding->rows, coding->cols,
                          (uint64_t)coding->param[TUI_INT_GROUP], gidx, err);
    if (rc)
        return rc;
    struct walk walk = {.coding = coding,
                        .out = out,
                        .rows = coding->rows,
                        .cols = coding->cols,
                        .fixed = g->order && g->fixed_groups,
                        .w = w};
    rc = run(g, calib, &walk, pool, err);
    if (!rc)
        rc = store(coding, out, w, err);
    if (rc)
        tu_ints_release(out);
    return rc;
}

int tu_sparsegpt_run(struct tu_gptq *g, const struct tu_calib *calib, unsigned n,
                     unsigned m, float *w, uint64_t rows, struct tu_pool *pool,
                     struct tu_err *err)
{
    if (!m || m > TUI_M_MAX || n > m || calib->cols % m)
        return tu_fail(err, TU_EUSAGE,
                       "%u of %u in %" PRIu64 " columns: m divides them and is at "
                       "most %u",
                       n, m, calib->cols, TUI_M_MAX);
    struct tu_gptq own = *g;
    own.order = false; /* the m must be neighbours */
    own.block = g->block ? g->block / m * m : 0;
    struct walk walk = {.n = n, .m = m, .rows = rows, .cols = calib->cols, .w = w};
    int rc = run(&own, calib, &walk, pool, err);
    g->used = own.used;
    g->error = own.error;
    return rc;
}
