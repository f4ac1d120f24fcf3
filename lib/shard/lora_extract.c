/* SPDX-License-Identifier: Apache-2.0 */
/* lora_extract.c: the adapter that comes nearest to the difference of two checkpoints.
 *
 * A difference D is only ever streamed by rows; what is kept of it are as many columns as
 * the rank and a few spare ones. Subspace iteration Z = orth(Dᵀ(D Z)) finds the directions,
 * the eigenvectors of (DZ)ᵀ(DZ) their singular values. Source: N. Halko, P. Martinsson,
 * J. Tropp, "Finding Structure with Randomness", SIAM Review 2011, 4.4 and 5.1. */

#include <ctype.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "lora.h"

#define SPARE 8 /* columns beyond the rank */
#define ROUNDS 4
#define NOTHING 1e-12 /* of the largest singular value */

/* One matrix: its difference [rows, cols], its factors. */
struct matrix {
    uint32_t atom;
    bool turned; /* the weight is [in, out] */
    uint64_t rows, cols;
    float *a, *b;       /* [rank, in], [out, rank], in the arena of the adapter */
    double delta, rest; /* Frobenius norms */
};

struct job {
    struct tu_extract *x;
    struct tu_mean mean; /* tuned - base */
    uint32_t **twin;
    struct tu_job one; /* of a worker */
    struct matrix *m;
    size_t n;
};

/* Walking ------------------------------------------------------------------------------- */

/* What a pass over the rows of D makes of them. */
struct pass {
    size_t cols, l;
    const double *z; /* [cols, l] */
    double *back;    /* [cols, l] += Dᵀ(D z); NULL: not wanted */
    double *y;       /* [rows, l] D z; NULL: not wanted */
    double *row;     /* [l] */
    double squares;  /* sum of them */
};

static int put_rows(void *ctx, const void *p, size_t bytes, struct tu_err *err)
{
    struct pass *s = ctx;
    const double *d = p;
    const size_t l = s->l;
    (void)err;
    for (size_t i = 0; i < bytes / sizeof *d / s->cols; i++, d += s->cols) {
        double *row = s->y ? s->y : s->row;
        memset(row, 0, l * sizeof *row);
        for (size_t j = 0; j < s->cols; j++) {
            s->squares += d[j] * d[j];
            for (size_t k = 0; k < l; k++)
                row[k] += d[j] * s->z[j * l + k];
        }
        for (size_t j = 0; j < s->cols && s->back; j++)
            for (size_t k = 0; k < l; k++)
                s->back[j * l + k] += d[j] * row[k];
        s->y = s->y ? s->y + l : NULL;
    }
    return 0;
}

static int walk(const struct job *j, uint32_t atom, tu_put_fn put, void *ctx,
                struct tu_err *err)
{
    return tui_walk_mean(j->x->base, atom, &j->mean, j->twin, &j->one, put, ctx, err);
}

/* Algebra ------------------------------------------------------------------------------- */

/* Make the columns of z [n, l] orthonormal, in t [l, n]; those that depend on others become
 * 0. Gram and Schmidt, twice. */
static void orthonormalise(double *z, double *t, size_t n, size_t l)
{
    for (size_t k = 0; k < l; k++)
        for (size_t j = 0; j < n; j++)
            t[k * n + j] = z[j * l + k];
    for (size_t k = 0; k < l; k++) {
        double *v = t + k * n, before = 0, after = 0;
        for (size_t j = 0; j < n; j++)
            before += v[j] * v[j];
        for (size_t i = 0; i < 2 * k; i++) {
            const double *u = t + i % k * n;
            double dot = 0;
            for (size_t j = 0; j < n; j++)
                dot += u[j] * v[j];
            for (size_t j = 0; j < n; j++)
                v[j] -= dot * u[j];
        }
        for (size_t j = 0; j < n; j++)
            after += v[j] * v[j];
        double scale = after > before * 1e-20 ? 1 / sqrt(after) : 0;
        for (size_t j = 0; j < n; j++)
            v[j] *= scale;
    }
    for (size_t k = 0; k < l; k++)
        for (size_t j = 0; j < n; j++)
            z[j * l + k] = t[k * n + j];
}

/* Scratch of one matrix. */
struct scratch {
    double *z, *next, *y, *gram, *vectors, *values, *row;
};

static void scratch_release(struct scratch *s)
{
    double *all[] = {s->z, s->next, s->y, s->gram, s->vectors, s->values, s->row};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tu_free(all[i]);
}

static int scratch_init(struct scratch *s, const struct matrix *m, size_t l,
                        const char *name, struct tu_err *err)
{
    size_t n = (size_t)m->cols * l;
    const struct tu_rng rng = {.stream = tu_rng_stream(name)};
    float *start = tu_alloc(n, sizeof *start, err);
    *s = (struct scratch){.z = tu_alloc(n, sizeof *s->z, err),
                          .next = tu_alloc(n, sizeof *s->next, err),
                          .y = tu_alloc((size_t)m->rows * l, sizeof *s->y, err),
                          .gram = tu_calloc(l * l, sizeof *s->gram, err),
                          .vectors = tu_alloc(l * l, sizeof *s->vectors, err),
                          .values = tu_alloc(l, sizeof *s->values, err),
                          .row = tu_alloc(l, sizeof *s->row, err)};
    bool whole = start && s->z && s->next && s->y && s->gram && s->vectors &&
                 s->values && s->row;
    if (whole)
        tu_rng_normal(&rng, 0, start, n);
    for (size_t i = 0; i < n && whole; i++)
        s->z[i] = (double)start[i];
    tu_free(start);
    return whole ? 0 : TU_ENOMEM;
}

/* Column k of the factors: the k-th direction, with the root of its singular value on both
 * sides. left is of rows, right of columns. */
static void split(const struct scratch *s, const struct matrix *m, size_t l, size_t k,
                  double value, float *left, size_t lstep, float *right, size_t rstep)
{
    for (size_t i = 0; i < m->rows; i++) {
        double sum = 0;
        for (size_t q = 0; q < l; q++)
            sum += s->y[i * l + q] * s->vectors[q * l + k];
        left[i * lstep] = (float)(sum / sqrt(value));
    }
    for (size_t j = 0; j < m->cols; j++) {
        double sum = 0;
        for (size_t q = 0; q < l; q++)
            sum += s->z[j * l + q] * s->vectors[q * l + k];
        right[j * rstep] = (float)(sum * sqrt(value));
    }
}

/* The factors from y = D z, z orthonormal. */
static void factors(const struct scratch *s, struct matrix *m, size_t l, size_t rank)
{
    double kept = 0, most = 0;
    for (size_t i = 0; i < m->rows; i++)
        for (size_t p = 0; p < l; p++)
            for (size_t q = 0; q < l; q++)
                s->gram[p * l + q] += s->y[i * l + p] * s->y[i * l + q];
    tu_eigen(s->gram, l, s->values, s->vectors);
    for (size_t k = 0; k < l && k < rank; k++) {
        double value = sqrt(fmax(s->values[k], 0));
        most = fmax(most, value);
        if (value <= most * NOTHING)
            break;
        kept += value * value;
        if (m->turned)
            split(s, m, l, k, value, m->a + k * m->rows, 1, m->b + k, rank);
        else
            split(s, m, l, k, value, m->b + k, rank, m->a + k * m->cols, 1);
    }
    m->rest = sqrt(fmax(m->delta * m->delta - kept, 0));
}

static int fit(void *ctx, uint64_t number, unsigned worker, struct tu_err *err)
{
    struct job *j = ctx;
    struct matrix *m = &j->m[number];
    struct scratch s;
    size_t rank = (size_t)j->x->rank;
    size_t l = (size_t)tu_min(rank + SPARE, tu_min(m->rows, m->cols));
    unsigned rounds = j->x->rounds ? j->x->rounds : ROUNDS;
    int rc = scratch_init(&s, m, l, j->x->base->atom[m->atom].tensor.name, err);
    (void)worker;
    for (unsigned r = 0; r <= rounds && !rc; r++) {
        bool last = r == rounds;
        struct pass p = {.cols = (size_t)m->cols, .l = l, .z = s.z, .row = s.row,
                         .back = last ? NULL : s.next, .y = last ? s.y : NULL};
        if (!last)
            memset(s.next, 0, (size_t)m->cols * l * sizeof *s.next);
        rc = walk(j, m->atom, put_rows, &p, err);
        m->delta = sqrt(p.squares);
        if (rc || m->delta == 0.0)
            break;
        if (!isfinite(m->delta))
            rc = tu_fail(err, TU_EUSAGE, "'%.150s': the difference is not finite",
                         j->x->base->atom[m->atom].tensor.name);
        else if (last)
            factors(&s, m, l, rank);
        else {
            orthonormalise(s.next, s.z, (size_t)m->cols, l);
            memcpy(s.z, s.next, (size_t)m->cols * l * sizeof *s.z);
        }
    }
    scratch_release(&s);
    return rc;
}

/* Which matrices ------------------------------------------------------------------------ */

/* A number between dots, as layers have. */
static bool numbered(const char *name)
{
    for (const char *p = strchr(name, '.'); p; p = strchr(p + 1, '.'))
        if (isdigit((unsigned char)p[1]))
            return true;
    return false;
}

/* PEFT's linear layers: matrices of layers that are no router. */
static bool is_linear(const struct tu_ckpt *c, const struct tu_atom *a)
{
    const struct tu_role *r = &c->role[a->fuse.role[0]];
    const struct tu_tensor *t = &a->tensor;
    return t->rank == 2 && t->bytes && tu_dtype_is_float(t->dtype) &&
           tui_has_suffix(t->name, ".weight") && !strstr(r->name, ".router.") &&
           (c->canonical ? r->layer >= 0 : numbered(t->name));
}

static int find_matrices(struct job *j, struct tu_err *err)
{
    const struct tu_ckpt *c = j->x->base;
    if (!(j->m = tu_calloc(c->atoms + 1, sizeof *j->m, err)))
        return TU_ENOMEM;
    for (uint32_t a = 0; a < c->atoms; a++)
        if (is_linear(c, &c->atom[a])) {
            const struct tu_tensor *t = &c->atom[a].tensor;
            j->m[j->n++] = (struct matrix){
                .atom = a, .rows = t->dim[0], .cols = t->dim[1],
                .turned = c->atom[a].fuse.transform & TU_MAP_TRANSPOSE};
            if (j->m[0].turned != j->m[j->n - 1].turned)
                return tu_fail(err, TU_EUNSUP, "'%.150s' is turned and others are not: "
                               "no adapter says both", t->name);
        }
    return j->n ? 0
                : tu_fail(err, TU_EUSAGE, "%.200s: no matrix of a layer is selected",
                          c->root);
}

static int put_any(void *ctx, const void *p, size_t bytes, struct tu_err *err)
{
    const double *d = p;
    bool *differs = ctx;
    (void)err;
    for (size_t i = 0; i < bytes / sizeof *d && !*differs; i++)
        *differs = d[i] != 0.0;
    return 0;
}

/* How many of the other tensors differ. */
static int count_others(struct job *j, struct tu_err *err)
{
    const struct tu_ckpt *c = j->x->base;
    int rc = 0;
    for (uint32_t a = 0, k = 0; a < c->atoms && !rc; a++) {
        bool differs = false;
        if (k < j->n && j->m[k].atom == a) {
            k++;
            continue;
        }
        if (tu_dtype_is_float(c->atom[a].tensor.dtype))
            rc = walk(j, a, put_any, &differs, err);
        j->x->others += differs;
    }
    return rc;
}

/* The adapter --------------------------------------------------------------------------- */

static int add_factor(struct tu_ckpt *c, const char *weight, const char *factor,
                      uint64_t rows, uint64_t cols, const float *data, struct tu_err *err)
{
    size_t n = strlen(weight) - strlen(".weight");
    const uint64_t dim[2] = {rows, cols};
    struct tu_piece p = {.data = data};
    char *name = tu_arena_printf(c->arena, err, TUI_PEFT_PREFIX "%.*s.lora_%s.weight",
                                 (int)n, weight, factor);
    int rc = name ? tu_tensor_make(&p.tensor, c->arena, name, TU_F32, dim, 2, NULL, err)
                  : TU_ENOMEM;
    if (!rc)
        rc = tui_piece_plain(c, &p, name, NULL, TU_F32, err);
    return rc ? rc : tui_piece_add(c, &p, err);
}

static int add_factors(struct job *j, struct tu_ckpt *c, struct tu_err *err)
{
    uint64_t rank = j->x->rank;
    struct tu_fit *done = tu_arena_alloc(c->arena, j->n, sizeof *done, err);
    int rc = done ? 0 : TU_ENOMEM;
    j->x->fit = done;
    for (size_t i = 0; i < j->n && !rc; i++) {
        const struct matrix *m = &j->m[i];
        const char *name = j->x->base->atom[m->atom].tensor.name;
        if (m->delta == 0.0)
            continue;
        rc = add_factor(c, name, "A", rank, m->turned ? m->rows : m->cols, m->a, err);
        if (!rc)
            rc = add_factor(c, name, "B", m->turned ? m->cols : m->rows, rank, m->b, err);
        if (!rc)
            done[j->x->fits++] = (struct tu_fit){name, m->delta, m->rest};
    }
    if (!rc && !j->x->fits)
        rc = tu_fail(err, TU_EUSAGE, "%.150s and %.150s do not differ in any matrix",
                     j->x->base->root, j->x->tuned->root);
    return rc;
}

/* "layers.0.q_proj.weight": "layers.0.q_proj", or "q_proj" where `last`. */
static json_t *module_of(const char *weight, bool last)
{
    size_t n = strlen(weight) - strlen(".weight"), from = last ? n : 0;
    while (from && weight[from - 1] != '.')
        from--;
    return json_stringn(weight + from, n - from);
}

static bool same_module(const char *a, const char *b)
{
    json_t *x = module_of(a, true), *y = module_of(b, true);
    bool same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

/* The last words of names, where all matrices of such names are in the adapter; else whole
 * names. */
static int list_modules(const struct job *j, json_t *list, struct tu_err *err)
{
    bool last = true;
    int rc = 0;
    for (size_t i = 0; i < j->n && last; i++)
        for (size_t k = 0; k < j->n && last && j->m[i].delta == 0.0; k++)
            last = j->m[k].delta == 0.0 ||
                   !same_module(j->x->base->atom[j->m[i].atom].tensor.name,
                                j->x->base->atom[j->m[k].atom].tensor.name);
    for (size_t i = 0; i < j->n && !rc; i++) {
        json_t *word = module_of(j->x->base->atom[j->m[i].atom].tensor.name, last);
        bool there = j->m[i].delta == 0.0;
        for (size_t k = 0; k < json_array_size(list) && !there; k++)
            there = json_equal(json_array_get(list, k), word);
        if (there)
            json_decref(word);
        else
            rc = tu_json_append(list, word, err);
    }
    return rc;
}

static int add_config(struct job *j, struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_buf b = {0};
    int64_t rank = (int64_t)j->x->rank;
    json_t *list = json_array(),
           *config = json_pack("{s:s s:s s:s s:I s:I s:f s:s s:b s:b s:b s:b s:b s:o}",
                               "peft_type", "LORA", "task_type", "CAUSAL_LM",
                               "base_model_name_or_path",
                               j->x->base_name ? j->x->base_name : "", "r",
                               (json_int_t)rank, "lora_alpha", (json_int_t)rank,
                               "lora_dropout", 0.0, "bias", "none", "fan_in_fan_out",
                               (int)j->m[0].turned, "inference_mode", 1,
                               "init_lora_weights", 1, "use_rslora", 0, "use_dora", 0,
                               "target_modules", list);
    int rc = config ? list_modules(j, list, err) : tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc)
        rc = tu_json_dump(&b, config, err);
    if (!rc)
        rc = tui_add_side(c, "adapter_config.json", b.data, b.n, err);
    json_decref(config);
    tu_buf_release(&b);
    return rc;
}

static int make_room(struct job *j, struct tu_ckpt *c, struct tu_err *err)
{
    size_t rank = (size_t)j->x->rank;
    for (size_t i = 0; i < j->n; i++) {
        struct matrix *m = &j->m[i];
        size_t in = (size_t)(m->turned ? m->rows : m->cols),
               out = (size_t)(m->turned ? m->cols : m->rows);
        m->a = tu_arena_alloc(c->arena, rank * in, sizeof *m->a, err);
        m->b = tu_arena_alloc(c->arena, rank * out, sizeof *m->b, err);
        if (!m->a || !m->b)
            return TU_ENOMEM;
        memset(m->a, 0, rank * in * sizeof *m->a); /* what the rank leaves over */
        memset(m->b, 0, rank * out * sizeof *m->b);
    }
    return 0;
}

static int extract(struct job *j, struct tu_ckpt *c, const struct tu_job *job,
                   struct tu_err *err)
{
    int rc = tui_mean_twins(j->x->base, &j->mean, &j->twin, err);
    if (!rc)
        rc = tui_need_plain(j->x->tuned, "a difference is of numbers", err);
    if (!rc)
        rc = find_matrices(j, err);
    if (!rc)
        rc = make_room(j, c, err);
    if (!rc)
        rc = tu_pool_run(job ? job->pool : NULL, j->n, fit, j, err);
    if (!rc)
        rc = count_others(j, err);
    if (!rc)
        rc = add_factors(j, c, err);
    return rc ? rc : add_config(j, c, err);
}

int tu_lora_extract(struct tu_ckpt **out, struct tu_extract *x, const struct tu_job *job,
                    struct tu_err *err)
{
    static const double weight[2] = {-1, 1};
    const struct tu_shard_opts none = {0};
    struct job j = {.x = x, .mean = {&x->tuned, 1, weight, true}};
    struct tu_ckpt *c = NULL;
    if (job)
        j.one = *job;
    j.one.pool = NULL;
    j.one.progress = NULL;
    j.one.memory = tu_job_memory(job) / tu_pool_size(job ? job->pool : NULL);
    x->fit = NULL;
    x->fits = 0;
    x->others = 0;
    if (!x->rank || x->rank > 65536)
        return tu_fail(err, TU_EUSAGE, "the rank is from 1 to 65536");
    int rc = tui_ckpt_new(&c, x->base->root, err);
    if (!rc) {
        c->layout = &tui_layout_peft;
        rc = extract(&j, c, job, err);
    }
    if (!rc)
        rc = tui_make_atoms(c, &none, err);
    for (size_t i = 0; j.twin && i < j.mean.n; i++)
        tu_free(j.twin[i]);
    tu_free(j.twin);
    tu_free(j.m);
    if (rc)
        tu_ckpt_close(c);
    else
        *out = c;
    return rc;
}
