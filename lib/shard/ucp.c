/* SPDX-License-Identifier: Apache-2.0 */
/* ucp.c: DeepSpeed's pattern language: how the ranks of a tensor-parallel model are made
 * whole.
 *
 * universal_checkpoint_info lists patterns (Python's re.match) by kind; a parameter takes
 * the first kind of this order that has a match, at most one in each list. Source:
 * DeepSpeed deepspeed/checkpoint/{constants,ds_to_universal}.py (merge_tp_slices). */

#include <stdlib.h>
#include <string.h>

#include "deepspeed.h"

enum list {
    REPLICATED,
    AVERAGE,
    HALVES,
    SUB,
    ROW,
    VOCAB,
    LISTS,
};
static const char *const list_names[LISTS] = {
    "tp_replicated_parameter_patterns",        "parameter_to_average_patterns",
    "parameter_with_2_sub_params_cat_dim_0",   "parameter_with_sub_params",
    "parameter_with_row_parallelism_patterns", "vocabulary_parameter_patterns",
};

/* What else DeepSpeed's constants know, and how no tensor is cut here by it. */
static const char *const other_names[] = {
    "universal_checkpoint_version",
    "pipeline_replicated_parameter_patterns",
    "expert_parameter_patterns",
    "autotp_unsupported_parameter_patterns",
    "sub_param_shard_widths",
    "original_vocab_size",
    "padded_vocab_size",
    "affine_map",
    NULL,
};

struct rule {
    enum list list;
    struct tu_pattern *pattern;
    const struct tu_pnode *sub; /* of SUB: the entry */
};

struct tui_ucp {
    struct rule *rule;
    size_t n, cap;
    const struct tu_pnode *widths;
    double version;
    uint64_t vocab;
};

static int add(struct tui_ucp *u, enum list list, const struct tu_pnode *text,
               const struct tu_pnode *sub, struct tu_err *err)
{
    struct rule r = {list, NULL, sub};
    if (text->kind != TU_P_TEXT)
        return tu_fail(err, TU_EFORMAT,
                       "universal_checkpoint_info.%s: a pattern is no text",
                       list_names[list]);
    int rc = TU_GROW(&u->rule, &u->cap, u->n, err);
    if (!rc)
        rc = tu_pattern_new(&r.pattern, text->text, TU_PATTERN_REGEX, err);
    if (!rc)
        u->rule[u->n++] = r;
    return rc;
}

static bool is_list(const struct tu_pnode *v)
{
    return v && (v->kind == TU_P_LIST || v->kind == TU_P_TUPLE);
}

static int add_list(struct tui_ucp *u, enum list list, const struct tu_pnode *v,
                    struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; is_list(v) && i < v->n && !rc; i++) {
        const struct tu_pnode *item = v->item[i], *p = item;
        if (list != SUB) {
            rc = add(u, list, item, NULL, err);
            continue;
        }
        p = tu_pnode_get(item, "patterns");
        for (size_t k = 0; is_list(p) && k < p->n && !rc; k++)
            rc = add(u, list, p->item[k], item, err);
    }
    return rc;
}

static bool is_known(const char *key)
{
    bool yes = false;
    for (int k = 0; k < LISTS; k++)
        yes |= !strcmp(key, list_names[k]);
    for (const char *const *k = other_names; *k; k++)
        yes |= !strcmp(key, *k);
    return yes;
}

/* A rule under another name would leave its tensors to the rule of axis 0, whose shapes
 * fit as well. */
static int known_keys(const struct tu_pnode *info, struct tu_err *err)
{
    for (size_t i = 0; info->kind == TU_P_DICT && i + 1 < info->n; i += 2) {
        const struct tu_pnode *key = info->item[i];
        if (key->kind != TU_P_TEXT || !is_known(key->text))
            return tu_fail(err, TU_EFORMAT,
                           "universal_checkpoint_info has the key '%.60s', expected one "
                           "that DeepSpeed knows, such as '%s'",
                           key->kind == TU_P_TEXT ? key->text : "(no text)",
                           list_names[HALVES]);
    }
    return 0;
}

int tui_ucp_new(struct tui_ucp **out, const struct tu_pnode *info, struct tu_err *err)
{
    struct tui_ucp *u = NULL;
    *out = NULL;
    if (!info || info->kind == TU_P_NONE)
        return 0;
    int rc = known_keys(info, err);
    if (rc)
        return rc;
    if (tu_pnode_get(info, "affine_map"))
        return tu_fail(err, TU_EUNSUP,
                       "universal_checkpoint_info has an affine_map, which "
                       "is not understood");
    if (!(u = tu_calloc(1, sizeof *u, err)))
        return TU_ENOMEM;
    const struct tu_pnode *version = tu_pnode_get(info, "universal_checkpoint_version"),
                          *vocab = tu_pnode_get(info, "original_vocab_size");
    u->version = version && version->kind == TU_P_REAL ? version->real : 0;
    u->vocab = vocab && vocab->kind == TU_P_INT ? (uint64_t)vocab->integer : 0;
    u->widths = tu_pnode_get(info, "sub_param_shard_widths");
    for (int k = 0; k < LISTS && !rc; k++)
        rc = add_list(u, (enum list)k, tu_pnode_get(info, list_names[k]), err);
    if (rc) {
        tui_ucp_free(u);
        return rc;
    }
    *out = u;
    return 0;
}

int tui_ucp_info(struct tu_ckpt *c, const struct tu_spec *spec,
                 const struct tu_pnode **info, struct tu_err *err)
{
    const char *path = tu_spec_get(spec, "rules");
    struct tu_json_limits limits = {.bytes = (size_t)16 << 20, .object = true};
    json_t *root = NULL;
    char *text = NULL;
    size_t n;
    if (!path)
        return 0;
    int rc = tu_file_read(path, limits.bytes, &text, &n, err);
    if (!rc && (rc = tu_json_parse(&root, text, n, &limits, err)))
        tu_err_prefix(err, "%s", path);
    if (!rc && !(*info = tui_pnode_of(c->arena, root, err)))
        rc = TU_ENOMEM;
    json_decref(root);
    tu_free(text);
    return rc;
}

void tui_ucp_free(struct tui_ucp *u)
{
    for (size_t i = 0; u && i < u->n; i++)
        tu_pattern_free(u->rule[i].pattern);
    if (u)
        tu_free(u->rule);
    tu_free(u);
}

/* The rule of a list that takes the name; two are an error, but for sub-parameters. */
static int match(const struct tui_ucp *u, enum list list, const char *name,
                 const struct rule **out, struct tu_err *err)
{
    *out = NULL;
    for (size_t i = 0; i < u->n; i++) {
        bool yes = false;
        if (u->rule[i].list != list)
            continue;
        int rc =
            tu_pattern_match(u->rule[i].pattern, name, strlen(name), NULL, &yes, err);
        if (rc)
            return rc;
        if (yes && *out && list != SUB)
            return tu_fail(err, TU_EFORMAT, "%s: both '%.40s' and '%.40s' take '%.60s'",
                           list_names[list], tu_pattern_text((*out)->pattern),
                           tu_pattern_text(u->rule[i].pattern), name);
        if (yes && !*out)
            *out = &u->rule[i];
    }
    return 0;
}

/* Parts of equal size on every rank. */
static int even_parts(struct tu_ckpt *c, const char *name, const uint64_t *dim,
                      unsigned rank, uint32_t parts, struct tui_cut *out,
                      struct tu_err *err)
{
    uint64_t *w = tu_arena_alloc(c->arena, (size_t)parts * c->tp, sizeof *w, err);
    if (!w)
        return TU_ENOMEM;
    for (uint32_t r = 0; r < c->tp; r++) {
        uint64_t n = dim[r * rank + out->axis];
        if (n % parts)
            return tu_fail(err, TU_EINCOMPLETE, "'%.80s': %llu elements are no %u parts",
                           name, (unsigned long long)n, parts);
        for (uint32_t k = 0; k < parts; k++)
            w[k * c->tp + r] = n / parts;
    }
    out->parts = parts;
    out->width = w;
    return 0;
}

static int bad_sub(const char *name, const char *what, struct tu_err *err)
{
    return tu_fail(err, TU_EINCOMPLETE, "'%.80s': parameter_with_sub_params: %s", name,
                   what);
}

/* Width of part k on rank r: as recorded, or an equal share. */
static int64_t width_of(const struct tu_ckpt *c, const struct tui_ucp *u,
                        const struct rule *rule, const struct tu_pnode *sizes, uint32_t k,
                        uint32_t r)
{
    const struct tu_pnode *w = tu_pnode_get(u->widths, tu_pattern_text(rule->pattern));
    if (w) {
        const struct tu_pnode *row = is_list(w) && k < w->n ? w->item[k] : NULL;
        const struct tu_pnode *v = is_list(row) && r < row->n ? row->item[r] : NULL;
        return v && v->kind == TU_P_INT ? v->integer : -1;
    }
    int64_t n = sizes->item[k]->kind == TU_P_INT ? sizes->item[k]->integer : -1;
    return u->version >= 0.4 || n % c->tp ? -1 : n / c->tp;
}

static int sub_parts(struct tu_ckpt *c, const struct tui_ucp *u, const struct rule *rule,
                     const char *name, const uint64_t *dim, unsigned rank,
                     struct tui_cut *out, struct tu_err *err)
{
    const struct tu_pnode *axis = tu_pnode_get(rule->sub, "partition_dim"),
                          *shape = tu_pnode_get(rule->sub, "shape");
    if (!axis || axis->kind != TU_P_INT || axis->integer < 0 || axis->integer >= rank ||
        !is_list(shape) || shape->n <= (size_t)axis->integer)
        return bad_sub(name, "shape or partition_dim are not as they should be", err);
    const struct tu_pnode *sizes = shape->item[axis->integer];
    out->axis = (unsigned)axis->integer;
    if (sizes->kind == TU_P_INT && sizes->integer > 0 && sizes->integer <= TUI_PARTS)
        return even_parts(c, name, dim, rank, (uint32_t)sizes->integer, out, err);
    if (!is_list(sizes) || !sizes->n || sizes->n > TUI_PARTS)
        return bad_sub(name, "no sizes at partition_dim", err);
    out->parts = (uint32_t)sizes->n;
    out->sub = true;
    uint64_t *w = tu_arena_alloc(c->arena, sizes->n * c->tp, sizeof *w, err);
    if (!w)
        return TU_ENOMEM;
    for (uint32_t r = 0; r < c->tp; r++) {
        uint64_t sum = 0;
        for (uint32_t k = 0; k < out->parts; k++) {
            int64_t n = width_of(c, u, rule, sizes, k, r);
            if (n < 0)
                return bad_sub(name, "the widths of its parts on each rank are not known",
                               err);
            if ((uint64_t)n > dim[r * rank + out->axis] - sum)
                return bad_sub(name, "the widths are more than a rank has", err);
            w[k * c->tp + r] = (uint64_t)n;
            sum += (uint64_t)n;
        }
        if (sum != dim[r * rank + out->axis])
            return bad_sub(name, "the widths do not add up to what a rank has", err);
    }
    out->width = w;
    return 0;
}

int tui_ucp_cut(struct tu_ckpt *c, const struct tui_ucp *u, const char *name,
                const uint64_t *dim, unsigned rank, struct tui_cut *out,
                struct tu_err *err)
{
    const struct rule *r[LISTS] = {NULL};
    int rc = 0;
    *out = (struct tui_cut){.kind = TUI_CUT_AXIS};
    if (!u && c->tp > 1)
        return tu_fail(
            err, TU_EUSAGE,
            "how %u tensor-parallel ranks cut '%.60s' is not in the files: they "
            "have no universal_checkpoint_info (rules=FILE gives it)",
            c->tp, name);
    for (int k = 0; k < LISTS && u && !rc; k++)
        rc = match(u, (enum list)k, name, &r[k], err);
    if (rc)
        return rc;
    out->vocab = r[VOCAB] && u->vocab;
    out->rows = out->vocab ? u->vocab : 0;
    if (!rank || r[REPLICATED] || r[AVERAGE]) {
        out->kind = rank && !r[REPLICATED] && c->tp > 1 ? TUI_CUT_AVERAGE : TUI_CUT_WHOLE;
        return 0;
    }
    if (r[HALVES]) {
        out->halves = true;
        return even_parts(c, name, dim, rank, 2, out, err);
    }
    if (r[SUB])
        return sub_parts(c, u, r[SUB], name, dim, rank, out, err);
    out->axis = r[ROW] && rank > 1 ? 1 : 0;
    return even_parts(c, name, dim, rank, 1, out, err);
}

/* Sizes of the parts of a whole tensor along the axis. */
static int whole_parts(const struct tui_ucp *u, const struct rule *sub, bool halves,
                       const char *name, uint64_t n, struct tui_cut *out, uint64_t *size,
                       struct tu_err *err)
{
    const struct tu_pnode *shape = sub ? tu_pnode_get(sub->sub, "shape") : NULL;
    const struct tu_pnode *s =
        is_list(shape) && out->axis < shape->n ? shape->item[out->axis] : NULL;
    uint64_t sum = 0;
    (void)u;
    out->parts = halves ? 2 : 1;
    if (is_list(s)) {
        out->parts = (uint32_t)tu_min(s->n, TUI_PARTS);
        for (uint32_t k = 0; k < out->parts; k++) {
            const int64_t v = s->item[k]->kind == TU_P_INT ? s->item[k]->integer : -1;
            if (v < 0 || (uint64_t)v > n - sum)
                return bad_sub(name, "its sizes are not those of parts of the tensor", err);
            sum += size[k] = (uint64_t)v;
        }
        return sum == n ? 0
                        : bad_sub(name, "its sizes do not add up to the tensor's", err);
    }
    if (s && s->kind == TU_P_INT && s->integer > 0 && s->integer <= TUI_PARTS)
        out->parts = (uint32_t)s->integer;
    for (uint32_t k = 0; k < out->parts; k++)
        size[k] = n / out->parts;
    return n % out->parts ? bad_sub(name, "its parts are not equal", err) : 0;
}

int tui_ucp_kind(struct tu_ckpt *c, const struct tui_ucp *u, const char *name,
                 unsigned rank, struct tui_cut *out, struct tu_err *err)
{
    const struct rule *r[LISTS] = {NULL};
    int rc = 0;
    (void)c;
    *out = (struct tui_cut){.kind = TUI_CUT_AXIS};
    for (int k = 0; k < LISTS && u && !rc; k++)
        rc = match(u, (enum list)k, name, &r[k], err);
    if (rc || !u)
        return rc;
    if (r[REPLICATED] || r[AVERAGE])
        out->kind = TUI_CUT_WHOLE;
    out->halves = r[HALVES] != NULL;
    out->sub = r[SUB] && !r[HALVES];
    out->vocab = r[VOCAB] != NULL;
    out->axis = r[ROW] && !r[HALVES] && rank > 1 ? 1 : 0;
    return 0;
}

struct tu_pnode *tui_ucp_sub(const struct tui_ucp *u, const char *name)
{
    const struct rule *r = NULL;
    if (!u || match(u, SUB, name, &r, NULL) || !r)
        return NULL;
    return (struct tu_pnode *)(uintptr_t)r->sub;
}

int tui_ucp_target(struct tu_ckpt *c, const struct tui_ucp *u, const char *name,
                   const uint64_t *dim, unsigned rank, struct tui_cut *out,
                   struct tu_err *err)
{
    const struct rule *r[LISTS] = {NULL};
    uint64_t size[TUI_PARTS], *w = NULL;
    int rc = 0;
    *out = (struct tui_cut){.kind = TUI_CUT_WHOLE};
    if (!u && c->tp > 1)
        return tu_fail(err, TU_EUSAGE,
                       "tp=%u: how '%.80s' is cut is not known: the source "
                       "has no universal_checkpoint_info (rules=FILE gives it)",
                       c->tp, name);
    for (int k = 0; k < LISTS && u && !rc; k++)
        rc = match(u, (enum list)k, name, &r[k], err);
    if (rc || !u || !rank || r[REPLICATED] || r[AVERAGE])
        return rc;
    out->kind = TUI_CUT_AXIS;
    out->halves = r[HALVES] != NULL;
    out->sub = r[SUB] && !r[HALVES];
    const struct tu_pnode *axis =
        out->sub ? tu_pnode_get(r[SUB]->sub, "partition_dim") : NULL;
    if (axis && axis->kind == TU_P_INT && (axis->integer < 0 || axis->integer >= rank))
        return bad_sub(name, "partition_dim is past its rank", err);
    out->axis = axis && axis->kind == TU_P_INT     ? (unsigned)axis->integer
                : r[ROW] && !r[HALVES] && rank > 1 ? 1
                                                   : 0;
    out->vocab = r[VOCAB] && u->vocab && out->axis == 0;
    out->rows = out->vocab ? dim[0] : 0;
    uint64_t n = dim[out->axis];
    if (out->vocab)
        n = tu_ceil_div(n, (uint64_t)c->tp) * c->tp;
    rc = whole_parts(u, out->sub ? r[SUB] : NULL, out->halves, name, n, out, size, err);
    if (!rc &&
        !(w = tu_arena_alloc(c->arena, (size_t)out->parts * c->tp, sizeof *w, err)))
        rc = TU_ENOMEM;
    for (uint32_t k = 0; k < out->parts && !rc; k++) {
        if (size[k] % c->tp)
            rc = tu_fail(err, TU_EUSAGE,
                         "'%.80s': a part of %llu does not divide by tp=%u", name,
                         (unsigned long long)size[k], c->tp);
        for (uint32_t i = 0; i < c->tp && !rc; i++)
            w[k * c->tp + i] = size[k] / c->tp;
    }
    out->width = w;
    return rc;
}

void tui_cut_dims(const struct tu_ckpt *c, const struct tui_cut *cut, uint32_t r,
                  const uint64_t *dim, unsigned rank, uint64_t *out)
{
    memcpy(out, dim, rank * sizeof *out);
    if (cut->kind != TUI_CUT_AXIS)
        return;
    out[cut->axis] = 0;
    for (uint32_t k = 0; k < cut->parts; k++)
        out[cut->axis] += cut->width[k * c->tp + r];
}

int tui_cut_piece(struct tu_ckpt *c, const struct tui_cut *cut, const uint64_t *dim,
                  struct tu_piece *p, struct tu_err *err)
{
    unsigned rank = p->tensor.rank, axis = cut->axis;
    uint64_t *whole = tu_arena_alloc(c->arena, rank + 1, sizeof *whole, err);
    struct tu_slab *box = tu_calloc(cut->parts + 1, sizeof *box, err), *kept = NULL;
    uint64_t at = 0, local = 0;
    int rc = whole && box ? 0 : TU_ENOMEM;
    if (!rc)
        memcpy(whole, dim, rank * sizeof *whole);
    if (!rc && cut->kind == TUI_CUT_AVERAGE)
        rc = tu_fail(err, TU_EUNSUP,
                     "'%.100s' is the mean of its ranks' values, which are "
                     "not averaged here",
                     p->tensor.name);
    for (uint32_t k = 0; k < cut->parts && !rc; k++) {
        uint64_t first[TU_RANK_MAX] = {0}, in[TU_RANK_MAX] = {0}, size[TU_RANK_MAX];
        memcpy(size, p->tensor.dim, rank * sizeof *size);
        first[axis] = at;
        in[axis] = local;
        for (uint32_t r = 0; r < p->at.tp; r++)
            first[axis] += cut->width[k * c->tp + r];
        for (uint32_t r = 0; r < c->tp; r++)
            at += cut->width[k * c->tp + r];
        size[axis] = cut->width[k * c->tp + p->at.tp];
        local += size[axis];
        if (cut->vocab && axis == 0) /* rows behind the last true one are padding */
            size[0] = first[0] < cut->rows ? tu_min(size[0], cut->rows - first[0]) : 0;
        const struct tu_slab *one =
            size[axis] ? tui_slab(c, first, size, in, rank, err) : NULL;
        if (one)
            box[p->boxes++] = *one;
        else if (size[axis])
            rc = TU_ENOMEM;
    }
    if (!rc && cut->kind == TUI_CUT_AXIS) {
        whole[axis] = cut->vocab && axis == 0 ? tu_min(at, cut->rows) : at;
        kept = tu_arena_alloc(c->arena, p->boxes + 1, sizeof *kept, err);
        rc = kept ? 0 : TU_ENOMEM;
        if (kept)
            memcpy(kept, box, p->boxes * sizeof *kept);
    }
    p->box = kept;
    p->whole = whole;
    tu_free(box);
    return rc;
}
