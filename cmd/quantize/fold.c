/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c: groups of matrices and what comes before them, and their common scales.
 *
 * Columns of the matrices are multiplied by s before they are quantized; a norm's weights (and
 * bias), or the rows (and bias) of a linear layer before, by 1/s: the model computes the same.
 * Between gate and up of a gated MLP and its down it is up that is divided; between v and o
 * each head's values, and where several heads of queries share them the scales of their
 * columns in o are one. A group's matrices are in memory while its scales are looked for. */
#include "quantize/fold.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MEMBERS = 4 };

/* Roles within a layer: before is divided, the others are multiplied. */
static const struct {
    const char *before;
    bool linear; /* before is divided by rows */
    const char *member[MEMBERS];
} groups[] = {
    {"attn_norm", false, {"attn.q", "attn.k", "attn.v", NULL}},
    {"mlp_norm", false, {"mlp.gate", "mlp.up", NULL, NULL}},
    {"attn.v", true, {"attn.o", NULL, NULL, NULL}},
    {"mlp.up", true, {"mlp.down", NULL, NULL, NULL}},
};
enum { GROUPS = sizeof groups / sizeof *groups };

struct entry {
    int64_t layer;
    unsigned group;
    float *scale;       /* [cols]; NULL: the group is left alone */
    float *inverse;     /* [before] */
    uint64_t cols, before; /* columns of the members, rows (or length) of what is before */
};

struct fold {
    const struct calib *c;
    struct choosing *choose;
    struct tu_source *source;
    struct tu_map *map;
    uint64_t heads;
    struct entry *entry;
    size_t n, cap;
};

int fold_new(struct fold **out, const struct calib *c, struct choosing *choose,
             const struct tu_source *source, uint64_t heads, struct tu_err *err)
{
    const struct tu_family *family = NULL;
    if (!source)
        return tu_fail(err, TU_EUSAGE, "method '%s' reads a group's weights at once: give a file",
                       c->spec.name);
    const char **name = tu_alloc(source->n + 1, sizeof *name, err);
    if (!name)
        return TU_ENOMEM;
    for (size_t i = 0; i < source->n; i++)
        name[i] = source->tensor[i].name;
    family = tu_family_guess(name, source->n);
    tu_free(name);
    if (!family || family->base.post_norms || family->base.kv_rank)
        return tu_fail(err, TU_EUSAGE,
                       "method '%s': the names are of no family whose norms are folded",
                       c->spec.name);
    struct fold *f = tu_calloc(1, sizeof *f, err);
    if (!f)
        return TU_ENOMEM;
    f->c = c;
    f->choose = choose;
    f->heads = heads;
    f->source = (struct tu_source *)(uintptr_t)source;
    int rc = tu_map_builtin(&f->map, family->hf_map, err);
    if (rc)
        fold_free(f);
    else
        *out = f;
    return rc;
}

void fold_free(struct fold *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        tu_free(f->entry[i].scale);
        tu_free(f->entry[i].inverse);
    }
    tu_free(f->entry);
    tu_map_free(f->map);
    tu_free(f);
}

/* "attn.q" of "layers.7.attn.q.weight". */
static const char *inner(const char *role, size_t *len)
{
    const char *dot = strncmp(role, "layers.", 7) ? NULL : strchr(role + 7, '.');
    const char *last = dot ? strrchr(dot + 1, '.') : NULL;
    *len = last ? (size_t)(last - dot - 1) : 0;
    return last ? dot + 1 : "";
}

static bool is(const char *part, size_t len, const char *role)
{
    return role && strlen(role) == len && !memcmp(part, role, len);
}

/* The tensor of a role of the layer; SIZE_MAX: there is none. */
static int at_role(struct fold *f, int64_t layer, const char *role, size_t *at,
                   struct tu_err *err)
{
    char text[64];
    struct tu_buf name = {0};
    struct tu_named named;
    bool yes = false;
    snprintf(text, sizeof text, "layers.%" PRId64 ".%s.weight", layer, role);
    int rc = tu_map_entry(f->map, text, 0, 0, &name, &named, &yes, err);
    *at = yes && !rc && named.n == 1 && !(named.transform & TU_MAP_TRANSPOSE)
              ? tu_source_find(f->source, name.data)
              : SIZE_MAX;
    tu_buf_release(&name);
    return rc;
}

/* The weights of one member, appended to the rows of all. */
static int load(struct fold *f, size_t at, uint64_t cols, float **w, uint64_t *rows,
                struct tu_err *err)
{
    const struct tu_tensor *t = &f->source->tensor[at];
    if (t->rank != 2 || t->dim[1] != cols)
        return tu_fail(err, TU_EUSAGE, "'%.80s' does not read what comes before it", t->name);
    uint64_t n = t->dim[0] * cols;
    float *more = tu_realloc(*w, (size_t)(*rows * cols + n), sizeof **w, err);
    unsigned char *raw = tu_alloc((size_t)t->bytes, 1, err);
    if (more)
        *w = more;
    int rc = more && raw ? tu_source_read(f->source, at, 0, raw, (size_t)t->bytes, err)
                         : TU_ENOMEM;
    if (!rc)
        rc = tu_to_float(t->dtype, raw, *w + *rows * cols, (size_t)n, err);
    *rows += rc ? 0 : t->dim[0];
    tu_free(raw);
    return rc;
}

/* What column j of the members reads: the row of what is before them. */
static uint64_t row_before(const struct fold *f, const struct entry *e, uint64_t j)
{
    if (e->before == e->cols)
        return j;
    const uint64_t wide = e->cols / f->heads, share = e->cols / e->before;
    return j / wide / share * wide + j % wide;
}

/* Can the members' columns be told apart by rows before? */
static bool fits(const struct fold *f, const struct entry *e)
{
    return e->before == e->cols ||
           (groups[e->group].linear && e->before && e->cols % e->before == 0 && f->heads &&
            e->cols % f->heads == 0 && e->before % (e->cols / f->heads) == 0);
}

/* Columns that read the same row have one scale: the largest of theirs. */
static void tie(const struct fold *f, struct entry *e)
{
    memset(e->inverse, 0, (size_t)e->before * sizeof *e->inverse);
    for (uint64_t j = 0; j < e->cols; j++) {
        float *most = &e->inverse[row_before(f, e, j)];
        *most = fmaxf(*most, e->scale[j]);
    }
    for (uint64_t j = 0; j < e->cols; j++)
        e->scale[j] = e->inverse[row_before(f, e, j)];
    for (uint64_t i = 0; i < e->before; i++)
        e->inverse[i] = 1 / e->inverse[i];
}

/* The same of inputs, so that a search sees what it will get. */
static int tie_inputs(const struct fold *f, const struct entry *e, struct tu_calib *sums,
                      struct tu_err *err)
{
    double *mean = tu_calloc((size_t)e->before, sizeof *mean, err);
    float *most = tu_calloc((size_t)e->before, sizeof *most, err);
    const double share = (double)e->cols / (double)e->before;
    int rc = mean && most ? 0 : TU_ENOMEM;
    for (uint64_t j = 0; !rc && j < e->cols; j++) {
        const uint64_t i = row_before(f, e, j);
        mean[i] += sums->sum_abs[j] / share;
        most[i] = fmaxf(most[i], sums->max_abs[j]);
    }
    for (uint64_t j = 0; !rc && j < e->cols; j++) {
        sums->sum_abs[j] = mean[row_before(f, e, j)];
        sums->max_abs[j] = most[row_before(f, e, j)];
    }
    tu_free(mean);
    tu_free(most);
    return rc;
}

/* Scales of all rows together under the first member's codec. */
static int search(struct fold *f, struct entry *e, const float *w, uint64_t rows, size_t first,
                  size_t input, struct tu_err *err)
{
    enum { TOKENS = 512 };
    struct tu_calib sums;
    const char *alpha = tu_spec_get(&f->c->spec, "alpha");
    double a = 0.5;
    int rc = alpha ? tu_parse_double(alpha, &a, err) : 0;
    if (!rc)
        rc = calib_sums(f->c, input, e->cols, false, &sums, err);
    if (rc)
        return rc;
    rc = tie_inputs(f, e, &sums, err);
    if (!rc && f->c->method == METHOD_SMOOTH) {
        tu_smooth_scales(&sums, w, rows, a, e->scale);
    } else if (!rc) {
        struct task t;
        uint64_t dim[2] = {rows, e->cols}, tokens = 0;
        float *x = NULL;
        rc = task_begin(&t, f->choose, &f->source->tensor[first], err);
        if (!rc && !t.codec)
            rc = tu_fail(err, TU_EUSAGE, "'%.80s': AWQ scales for a codec",
                         f->source->tensor[first].name);
        struct tu_coding c = t.coding;
        if (!rc)
            rc = tu_coding_init(&c, &t.spec, dim, 2, err);
        if (!rc)
            rc = calib_rows(f->c, input, e->cols, TOKENS, &x, &tokens, err);
        if (!rc)
            rc = tu_awq_scales(&sums, &c, w, x, tokens, e->scale, &a, tu_ctx_pool(f->c->ctx),
                               err);
        tu_free(x);
        task_end(&t);
    }
    tu_calib_release(&sums);
    return rc;
}

/* The sizes of a group: of its first member, and of what is before. *first SIZE_MAX: it has
 * none. */
static int measure(struct fold *f, struct entry *e, size_t *first, struct tu_err *err)
{
    size_t before;
    int rc = at_role(f, e->layer, groups[e->group].member[0], first, err);
    if (!rc)
        rc = at_role(f, e->layer, groups[e->group].before, &before, err);
    if (rc || *first == SIZE_MAX || before == SIZE_MAX ||
        f->source->tensor[*first].rank != 2 || !f->source->tensor[before].rank) {
        *first = SIZE_MAX;
        return rc;
    }
    e->cols = f->source->tensor[*first].dim[1];
    e->before = f->source->tensor[before].dim[0];
    if (!fits(f, e))
        *first = SIZE_MAX;
    return 0;
}

/* A group without inputs, or that is not whole, keeps scales of NULL. */
static int fill(struct fold *f, struct entry *e, struct tu_err *err)
{
    float *w = NULL;
    uint64_t rows = 0;
    size_t first, input = SIZE_MAX;
    int rc = measure(f, e, &first, err);
    for (unsigned k = 0; !rc && first != SIZE_MAX && k < MEMBERS && groups[e->group].member[k];
         k++) {
        size_t at;
        rc = at_role(f, e->layer, groups[e->group].member[k], &at, err);
        if (!rc && at != SIZE_MAX)
            rc = load(f, at, e->cols, &w, &rows, err);
        if (!rc && at != SIZE_MAX && input == SIZE_MAX)
            input = calib_find(f->c, f->source->tensor[at].name);
    }
    if (!rc && input != SIZE_MAX) {
        e->scale = tu_alloc((size_t)e->cols, sizeof *e->scale, err);
        e->inverse = tu_alloc((size_t)e->before, sizeof *e->inverse, err);
        rc = e->scale && e->inverse ? search(f, e, w, rows, first, input, err) : TU_ENOMEM;
        if (!rc)
            tie(f, e);
    }
    tu_free(w);
    return rc;
}

static int find(struct fold *f, int64_t layer, unsigned group, struct entry **out,
                struct tu_err *err)
{
    for (size_t i = 0; i < f->n; i++) {
        *out = &f->entry[i];
        if ((*out)->layer == layer && (*out)->group == group)
            return 0;
    }
    int rc = TU_GROW(&f->entry, &f->cap, f->n, err);
    if (rc)
        return rc;
    f->entry[f->n] = (struct entry){.layer = layer, .group = group};
    *out = &f->entry[f->n++];
    return fill(f, *out, err);
}

int fold_find(struct fold *f, const struct tu_tensor *t, struct fold_scales *out,
              struct tu_err *err)
{
    struct tu_named named;
    bool yes = false;
    size_t len;
    *out = (struct fold_scales){NULL, NULL};
    int rc = tu_map_match(f->map, t->name, 0, 0, &named, &yes, err);
    if (rc || !yes || named.n != 1 || !t->rank)
        return rc;
    const char *part = inner(named.role[0], &len);
    for (unsigned g = 0; !rc && g < GROUPS; g++) {
        struct entry *e;
        bool before = is(part, len, groups[g].before), member = false;
        for (unsigned k = 0; k < MEMBERS; k++)
            member |= t->rank == 2 && is(part, len, groups[g].member[k]);
        if (!before && !member)
            continue;
        rc = find(f, named.layer, g, &e, err);
        if (rc || !e->scale)
            continue;
        if (member)
            out->col = e->scale;
        else if (t->rank == 2)
            out->row = e->inverse;
        else
            out->col = e->inverse;
    }
    return rc;
}
