/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c: groups of a norm and the matrices behind it, and their common scales.
 *
 * Columns of the matrices are multiplied by s before they are quantized, the norm's weights
 * (and bias) by 1/s, so that the model computes the same. A group's matrices are in memory
 * while its scales are looked for. */
#include "quantize/fold.h"
#include <string.h>

enum { MEMBERS = 4 };

/* Roles within a layer: before is divided, the others are multiplied. */
static const struct {
    const char *before, *member[MEMBERS];
} groups[] = {
    {"attn_norm", {"attn.q", "attn.k", "attn.v", NULL}},
    {"mlp_norm", {"mlp.gate", "mlp.up", NULL, NULL}},
};
enum { GROUPS = sizeof groups / sizeof *groups };

struct entry {
    int64_t layer;
    unsigned group;
    float *scale, *inverse; /* [cols] */
    uint64_t cols;
};

struct fold {
    const struct calib *c;
    struct choosing *choose;
    struct tu_source *source;
    struct tu_map *map;
    struct entry *entry;
    size_t n, cap;
};

int fold_new(struct fold **out, const struct calib *c, struct choosing *choose,
             const struct tu_source *source, struct tu_err *err)
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
    if (!family)
        return tu_fail(err, TU_EUSAGE, "method '%s': the names are of no known family",
                       c->spec.name);
    struct fold *f = tu_calloc(1, sizeof *f, err);
    if (!f)
        return TU_ENOMEM;
    f->c = c;
    f->choose = choose;
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

/* The weights of one member, appended to the rows of all. */
static int load(struct fold *f, int64_t layer, const char *role, uint64_t cols, float **w,
                uint64_t *rows, size_t *at, struct tu_err *err)
{
    char text[64];
    struct tu_buf name = {0};
    struct tu_named named;
    bool yes = false;
    snprintf(text, sizeof text, "layers.%lld.%s.weight", (long long)layer, role);
    int rc = tu_map_entry(f->map, text, 0, 0, &name, &named, &yes, err);
    *at = yes && !rc ? tu_source_find(f->source, name.data) : SIZE_MAX;
    tu_buf_release(&name);
    if (rc || *at == SIZE_MAX)
        return rc;
    const struct tu_tensor *t = &f->source->tensor[*at];
    if (t->rank != 2 || t->dim[1] != cols)
        return tu_fail(err, TU_EUSAGE, "'%.80s' does not read what comes before it", t->name);
    uint64_t n = t->dim[0] * cols;
    float *more = tu_realloc(*w, (size_t)(*rows * cols + n), sizeof **w, err);
    unsigned char *raw = tu_alloc((size_t)t->bytes, 1, err);
    if (more)
        *w = more;
    rc = more && raw ? tu_source_read(f->source, *at, 0, raw, (size_t)t->bytes, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_to_float(t->dtype, raw, *w + *rows * cols, (size_t)n, err);
    *rows += rc ? 0 : t->dim[0];
    tu_free(raw);
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
    if (f->c->method == METHOD_SMOOTH) {
        tu_smooth_scales(&sums, w, rows, a, e->scale);
    } else {
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

/* A group without inputs, or that is not whole, keeps scales of NULL. */
static int fill(struct fold *f, struct entry *e, struct tu_err *err)
{
    float *w = NULL;
    uint64_t rows = 0;
    size_t first = SIZE_MAX, input = SIZE_MAX;
    int rc = 0;
    for (unsigned k = 0; !rc && k < MEMBERS && groups[e->group].member[k]; k++) {
        size_t at;
        rc = load(f, e->layer, groups[e->group].member[k], e->cols, &w, &rows, &at, err);
        if (!rc && at != SIZE_MAX && first == SIZE_MAX)
            first = at;
        if (!rc && at != SIZE_MAX && input == SIZE_MAX)
            input = calib_find(f->c, f->source->tensor[at].name);
    }
    if (!rc && input != SIZE_MAX) {
        e->scale = tu_alloc((size_t)e->cols, sizeof *e->scale, err);
        e->inverse = tu_alloc((size_t)e->cols, sizeof *e->inverse, err);
        rc = e->scale && e->inverse ? search(f, e, w, rows, first, input, err) : TU_ENOMEM;
        for (uint64_t j = 0; !rc && j < e->cols; j++)
            e->inverse[j] = 1 / e->scale[j];
    }
    tu_free(w);
    return rc;
}

static int find(struct fold *f, int64_t layer, unsigned group, uint64_t cols,
                struct entry **out, struct tu_err *err)
{
    for (size_t i = 0; i < f->n; i++) {
        *out = &f->entry[i];
        if ((*out)->layer == layer && (*out)->group == group)
            return 0;
    }
    int rc = TU_GROW(&f->entry, &f->cap, f->n, err);
    if (rc)
        return rc;
    f->entry[f->n] = (struct entry){.layer = layer, .group = group, .cols = cols};
    *out = &f->entry[f->n++];
    return fill(f, *out, err);
}

int fold_scales(struct fold *f, const struct tu_tensor *t, const float **scale,
                struct tu_err *err)
{
    struct tu_named named;
    struct entry *e;
    bool yes = false;
    size_t len;
    *scale = NULL;
    int rc = tu_map_match(f->map, t->name, 0, 0, &named, &yes, err);
    if (rc || !yes || named.n != 1 || !t->rank)
        return rc;
    const char *part = inner(named.role[0], &len);
    for (unsigned g = 0; g < GROUPS; g++) {
        bool before = is(part, len, groups[g].before), member = false;
        for (unsigned k = 0; k < MEMBERS; k++)
            member |= t->rank == 2 && is(part, len, groups[g].member[k]);
        if (!before && !member)
            continue;
        rc = find(f, named.layer, g, t->dim[t->rank - 1], &e, err);
        if (!rc && e->scale)
            *scale = before ? e->inverse : e->scale;
        return rc;
    }
    return 0;
}
