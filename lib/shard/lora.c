/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c: adapters of low rank: what PEFT's names and configuration mean, and the sum.
 *
 * A weight becomes W + scale·B·A, and with DoRA each row of that is made as long as the
 * adapter says. Source: E. Hu et al., "LoRA", ICLR 2022; S. Liu et al., "DoRA", ICML 2024;
 * huggingface/peft src/peft/tuners/lora/{config,layer,dora}.py. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "lora.h"

enum part { A, B, EMBEDDING_A, EMBEDDING_B, LENGTH, WHOLE, PARTS };

static const char *const mark[WHOLE] = {
    ".lora_A", ".lora_B", ".lora_embedding_A", ".lora_embedding_B",
    ".lora_magnitude_vector"};

/* What the adapter has for one weight: atoms, UINT32_MAX where there is none. */
struct target {
    const char *name;
    uint32_t atom[PARTS];
};

/* A key of alpha_pattern: modules whose name ends so. */
struct alpha {
    struct tu_pattern *module;
    double value;
};

struct tu_lora {
    struct tu_ckpt *c;
    double strength, alpha;
    bool root_scale, lengths, turned; /* rslora, dora, fan_in_fan_out */
    struct alpha *pattern;
    size_t patterns;
    struct target *target;
    size_t targets, cap;
    struct tu_names *number; /* of targets by their names */
};

void tu_lora_close(struct tu_lora *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->patterns; i++)
        tu_pattern_free(l->pattern[i].module);
    tu_free(l->pattern);
    tu_free(l->target);
    tu_names_free(l->number);
    tu_ckpt_close(l->c);
    tu_free(l);
}

const struct tu_ckpt *tui_lora_ckpt(const struct tu_lora *l)
{
    return l->c;
}

/* The configuration ------------------------------------------------------------------- */

/* Keys that, where they are set, change what the factors mean. */
static const char *const not_understood[] = {
    "lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens",
    "layer_replication", "kasa_config", "arrow_config", "monteclora_config",
    NULL};

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v) && !json_is_false(v);
}

static int refuse_variants(const json_t *config, struct tu_err *err)
{
    const json_t *type = json_object_get(config, "peft_type"),
                 *init = json_object_get(config, "init_lora_weights");
    if (!json_is_string(type) || strcmp(json_string_value(type), "LORA"))
        return tu_fail(err, TU_EUNSUP, "peft_type is '%.40s', expected LORA",
                       json_is_string(type) ? json_string_value(type) : "");
    for (const char *const *k = not_understood; *k; k++)
        if (is_set(json_object_get(config, *k)))
            return tu_fail(err, TU_EUNSUP, "%s is set: such adapters are not read", *k);
    if (json_is_string(init) && strcmp(json_string_value(init), "gaussian") &&
        strcmp(json_string_value(init), "eva") &&
        strcmp(json_string_value(init), "orthogonal"))
        return tu_fail(err, TU_EUNSUP,
                       "init_lora_weights is '%.40s': its training began from changed "
                       "weights; save it with path_initial_model_for_weight_conversion",
                       json_string_value(init));
    return 0;
}

static int take_patterns(struct tu_lora *l, const json_t *list, struct tu_err *err)
{
    struct tu_buf b = {0};
    const char *key;
    json_t *value;
    int rc = 0;
    if (!(l->pattern = tu_calloc(json_object_size(list) + 1, sizeof *l->pattern, err)))
        return TU_ENOMEM;
    json_object_foreach((json_t *)(uintptr_t)list, key, value) {
        tu_buf_reset(&b);
        rc = json_is_number(value) ? tu_buf_printf(&b, err, "(.*\\.)?(%s)", key)
                                   : tu_fail(err, TU_EFORMAT, "alpha_pattern: '%.80s' is "
                                             "no number", key);
        if (!rc)
            rc = tu_pattern_new(&l->pattern[l->patterns].module, b.data,
                                TU_PATTERN_WHOLE, err);
        if (rc)
            break;
        l->pattern[l->patterns++].value = json_number_value(value);
    }
    tu_buf_release(&b);
    return rc;
}

static int take_config(struct tu_lora *l, const json_t *config, struct tu_err *err)
{
    const json_t *alpha = json_object_get(config, "lora_alpha");
    int rc = refuse_variants(config, err);
    if (!rc && !json_is_number(alpha))
        rc = tu_fail(err, TU_EFORMAT, "lora_alpha is no number");
    if (rc)
        return rc;
    l->alpha = json_number_value(alpha);
    l->root_scale = is_set(json_object_get(config, "use_rslora"));
    l->lengths = is_set(json_object_get(config, "use_dora"));
    l->turned = is_set(json_object_get(config, "fan_in_fan_out"));
    return take_patterns(l, json_object_get(config, "alpha_pattern"), err);
}

static int read_config(struct tu_lora *l, struct tu_err *err)
{
    const struct tu_json_limits limits = {.object = true};
    const struct tu_side *side = tui_side(l->c, "adapter_config.json");
    json_t *config = NULL;
    if (!side)
        return tu_fail(err, TU_EINCOMPLETE, "no adapter_config.json");
    int rc = tu_json_parse(&config, side->text, side->n, &limits, err);
    if (!rc)
        rc = take_config(l, config, err);
    if (rc)
        tu_err_prefix(err, "adapter_config.json");
    json_decref(config);
    return rc;
}

/* alpha / rank of a module, or what stands for it. */
static int scale_of(const struct tu_lora *l, const char *weight, size_t rank,
                    double *out, struct tu_err *err)
{
    double alpha = l->alpha;
    bool yes = false;
    int rc = 0;
    size_t n = strlen(weight) - strlen(".weight");
    for (size_t i = 0; i < l->patterns && !yes && !rc; i++) {
        rc = tu_pattern_match(l->pattern[i].module, weight, n, NULL, &yes, err);
        alpha = yes ? l->pattern[i].value : alpha;
    }
    *out = l->strength * alpha / (l->root_scale ? sqrt((double)rank) : (double)rank);
    return rc;
}

/* The tensors --------------------------------------------------------------------------- */

static int target_named(struct tu_lora *l, const char *name, struct target **out,
                        struct tu_err *err)
{
    uint32_t number = tu_names_get(l->number, name);
    if (number == TU_NAMES_NONE) {
        int rc = TU_GROW(&l->target, &l->cap, l->targets, err);
        if (!rc)
            rc = tu_names_put(l->number, name, (uint32_t)l->targets, err);
        if (rc)
            return rc;
        number = (uint32_t)l->targets++;
        l->target[number].name = name;
        for (int k = 0; k < PARTS; k++)
            l->target[number].atom[k] = UINT32_MAX;
    }
    *out = &l->target[number];
    return 0;
}

/* Which part of which weight a tensor is. */
static int take_tensor(struct tu_lora *l, uint32_t atom, struct tu_err *err)
{
    static const char base_layer[] = ".base_layer";
    const char *name = l->c->atom[atom].tensor.name, *at = NULL, *saved;
    struct target *t;
    int part = 0;
    size_t skip = strlen(TUI_PEFT_PREFIX);
    if (strncmp(name, TUI_PEFT_PREFIX, skip))
        return tu_fail(err, TU_EFORMAT, "'%.150s' does not begin with " TUI_PEFT_PREFIX,
                       name);
    name += skip;
    while (part < WHOLE && !(at = strstr(name, mark[part])))
        part++;
    if (at && tui_has_suffix(at, ".bias"))
        return tu_fail(err, TU_EUNSUP, "'%.150s': a bias on a factor is not understood",
                       name);
    if (at)
        name = tu_arena_printf(l->c->arena, err, "%.*s.weight", (int)(at - name), name);
    else if ((saved = strstr(name, base_layer)))
        name = tu_arena_printf(l->c->arena, err, "%.*s%s", (int)(saved - name), name,
                               saved + strlen(base_layer));
    int rc = name ? target_named(l, name, &t, err) : TU_ENOMEM;
    if (!rc && t->atom[part] != UINT32_MAX)
        rc = tu_fail(err, TU_EUNSUP, "'%.150s' is there for more than one adapter", name);
    if (!rc)
        t->atom[part] = atom;
    return rc;
}

static const struct tu_tensor *part_of(const struct tu_lora *l, const struct target *t,
                                       enum part part)
{
    return t->atom[part] == UINT32_MAX ? NULL : &l->c->atom[t->atom[part]].tensor;
}

static bool has_factors(const struct target *t)
{
    return t->atom[A] != UINT32_MAX || t->atom[EMBEDDING_A] != UINT32_MAX;
}

/* Both factors or none, of one rank, and lengths exactly where the configuration says. */
static int check_target(const struct tu_lora *l, const struct target *t,
                        struct tu_err *err)
{
    const struct tu_tensor *a = part_of(l, t, A), *b = part_of(l, t, B);
    bool length = part_of(l, t, LENGTH) != NULL;
    if (part_of(l, t, EMBEDDING_A) || part_of(l, t, EMBEDDING_B)) {
        if (a || b)
            return tu_fail(err, TU_EFORMAT, "'%.150s' has factors of two kinds", t->name);
        a = part_of(l, t, EMBEDDING_A);
        b = part_of(l, t, EMBEDDING_B);
        if (l->lengths)
            return tu_fail(err, TU_EUNSUP, "'%.150s': DoRA of an embedding", t->name);
    }
    if (!a != !b)
        return tu_fail(err, TU_EINCOMPLETE, "'%.150s' has only one of its two factors",
                       t->name);
    if (length != (a && l->lengths))
        return tu_fail(err, TU_EINCOMPLETE, "'%.150s': use_dora is %s and there is %s "
                       "lora_magnitude_vector", t->name, l->lengths ? "true" : "false",
                       length ? "a" : "no");
    if (a && (a->rank != 2 || b->rank != 2 || !a->dim[0] || a->dim[0] != b->dim[1]))
        return tu_fail(err, TU_EUNSUP, "'%.150s': its factors are no two matrices of one "
                       "rank", t->name);
    return l->lengths && l->turned
               ? tu_fail(err, TU_EUNSUP, "DoRA of turned weights (fan_in_fan_out)")
               : 0;
}

int tu_lora_open(struct tu_lora **out, const char *path, double strength,
                 const struct tu_shard_opts *o, const struct tu_job *job,
                 struct tu_err *err)
{
    const struct tu_shard_opts plain = {.open = o ? o->open : (struct tu_open){0}};
    struct tu_lora *l = tu_calloc(1, sizeof *l, err);
    int rc = l && (l->number = tu_names_new(err)) ? 0 : TU_ENOMEM;
    if (!rc)
        rc = tu_ckpt_open(&l->c, path, NULL, &plain, job, err);
    if (!rc) {
        l->strength = strength;
        rc = read_config(l, err);
        for (uint32_t a = 0; a < l->c->atoms && !rc; a++)
            rc = take_tensor(l, a, err);
        for (size_t i = 0; i < l->targets && !rc; i++)
            rc = check_target(l, &l->target[i], err);
        if (rc)
            tu_err_prefix(err, "%.200s", path);
    }
    if (rc)
        tu_lora_close(l);
    else
        *out = l;
    return rc;
}

/* Adding -------------------------------------------------------------------------------- */

/* Sizes that the factors of t ask of its weight. */
static void weight_dims(const struct tu_lora *l, const struct target *t, uint64_t dim[2])
{
    bool embedding = part_of(l, t, EMBEDDING_A) != NULL, turn = embedding || l->turned;
    const struct tu_tensor *a = part_of(l, t, embedding ? EMBEDDING_A : A),
                           *b = part_of(l, t, embedding ? EMBEDDING_B : B);
    dim[turn] = b->dim[0];
    dim[!turn] = a->dim[1];
}

static int check_sizes(const struct tu_lora *l, const struct target *t,
                       const struct tu_tensor *w, struct tu_err *err)
{
    const struct tu_tensor *whole = part_of(l, t, WHOLE), *length = part_of(l, t, LENGTH);
    uint64_t dim[2] = {0, 0};
    if (whole && (whole->rank != w->rank ||
                  memcmp(whole->dim, w->dim, w->rank * sizeof *w->dim)))
        return tu_fail(err, TU_EINCOMPLETE, "%.100s: '%.100s' has another shape than the "
                       "weight that it takes the place of", l->c->root, t->name);
    if (!has_factors(t))
        return 0;
    weight_dims(l, t, dim);
    if (w->rank != 2 || w->dim[0] != dim[0] || w->dim[1] != dim[1])
        return tu_fail(err, TU_EINCOMPLETE, "%.100s: '%.100s' is to be %" PRIu64 "x%"
                       PRIu64 " and is not", l->c->root, t->name, dim[0], dim[1]);
    if (length && (length->rank != 1 || length->dim[0] != dim[0]))
        return tu_fail(err, TU_EINCOMPLETE, "%.100s: lengths of '%.100s' do not fit its "
                       "%" PRIu64 " rows", l->c->root, t->name, dim[0]);
    if (!tu_dtype_is_float(w->dtype) || tu_dtype_find(w->dtype)->block_bytes < 2)
        return tu_fail(err, TU_EUNSUP, "'%.100s' is quantized: 'quantize decode' first",
                       t->name);
    return 0;
}

int tui_lora_fits(const struct tu_lora *l, const struct tu_ckpt *c,
                  const struct tu_shard_opts *o, struct tu_err *err)
{
    struct tu_names *atom = tu_names_new(err);
    struct tui_list missing = {.all = c->refused};
    int rc = atom ? tui_need_plain(c, "an adapter adds numbers to weights", err)
                  : TU_ENOMEM;
    for (uint32_t a = 0; a < c->atoms && !rc; a++)
        rc = tu_names_put(atom, c->atom[a].tensor.name, a, err);
    for (size_t i = 0; i < l->targets && !rc; i++) {
        const struct target *t = &l->target[i];
        uint32_t a = tu_names_get(atom, t->name);
        bool wanted = true;
        rc = tui_selected(o, t->name, &wanted, err);
        if (!rc && wanted)
            rc = a == TU_NAMES_NONE
                     ? tui_list_add(&missing, "missing", t->name, err)
                     : check_sizes(l, t, &c->atom[a].tensor, err);
    }
    if (!rc && missing.n)
        rc = tu_fail(err, TU_EINCOMPLETE,
                     "%.100s lacks %zu weights that adapter %.100s changes: %s", c->root,
                     missing.n, l->c->root, missing.text);
    tu_names_free(atom);
    return rc;
}

struct floats {
    uint32_t dtype;
    float *at;
};

static int put_floats(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    struct floats *f = ctx;
    size_t k = n / tu_dtype_find(f->dtype)->block_bytes;
    int rc = tu_to_float(f->dtype, p, f->at, k, err);
    f->at += k;
    return rc;
}

/* The numbers of one tensor of the adapter, turned round if asked for. */
static int load(const struct tu_lora *l, uint32_t atom, bool turn, float **out,
                struct tu_err *err)
{
    const struct tu_tensor *t = &l->c->atom[atom].tensor;
    uint64_t rows, cols;
    tu_tensor_matrix(t, &rows, &cols);
    float *v = tu_alloc((size_t)(rows * cols), sizeof *v, err), *turned = NULL;
    struct floats f = {t->dtype, v};
    int rc = v ? tu_ckpt_walk(l->c, atom, NULL, put_floats, &f, err) : TU_ENOMEM;
    if (!rc && turn && !(turned = tu_alloc((size_t)(rows * cols), sizeof *v, err)))
        rc = TU_ENOMEM;
    for (uint64_t i = 0; i < rows && !rc && turn; i++)
        for (uint64_t j = 0; j < cols; j++)
            turned[j * rows + i] = v[i * cols + j];
    *out = rc ? NULL : turn ? turned : v;
    if (*out != v)
        tu_free(v);
    return rc;
}

int tui_lora_delta(const struct tu_lora *l, const struct tu_tensor *w,
                   struct tui_delta *out, uint32_t *whole, bool *yes, struct tu_err *err)
{
    uint32_t number = tu_names_get(l->number, w->name);
    *out = (struct tui_delta){0};
    *yes = number != TU_NAMES_NONE;
    if (!*yes)
        return 0;
    const struct target *t = &l->target[number];
    *whole = t->atom[WHOLE];
    if (!has_factors(t))
        return 0;
    bool embedding = part_of(l, t, EMBEDDING_A) != NULL, turn = embedding || l->turned;
    uint32_t a = t->atom[embedding ? EMBEDDING_A : A],
             b = t->atom[embedding ? EMBEDDING_B : B];
    out->rank = (size_t)l->c->atom[a].tensor.dim[0];
    out->cols = w->dim[1];
    int rc = scale_of(l, t->name, out->rank, &out->scale, err);
    if (!rc)
        rc = load(l, turn ? a : b, turn, &out->left, err);
    if (!rc)
        rc = load(l, turn ? b : a, turn, &out->right, err);
    if (!rc && t->atom[LENGTH] != UINT32_MAX)
        rc = load(l, t->atom[LENGTH], false, &out->length, err);
    if (rc)
        tui_delta_release(out);
    return rc;
}

void tui_delta_release(struct tui_delta *d)
{
    tu_free(d->left);
    tu_free(d->right);
    tu_free(d->length);
    *d = (struct tui_delta){0};
}

void tui_delta_apply(const struct tui_delta *d, double *w, uint64_t r0, uint64_t r1)
{
    const size_t cols = (size_t)d->cols;
    for (uint64_t i = r0; i < r1; i++, w += cols) {
        double sum = 0;
        for (size_t k = 0; k < d->rank; k++) {
            const double left = d->scale * (double)d->left[i * d->rank + k];
            const float *right = d->right + k * cols;
            for (size_t j = 0; j < cols; j++)
                w[j] += left * (double)right[j];
        }
        if (!d->length)
            continue;
        for (size_t j = 0; j < cols; j++)
            sum += w[j] * w[j];
        for (size_t j = 0; j < cols; j++)
            w[j] *= (double)d->length[i] / sqrt(sum);
    }
}
