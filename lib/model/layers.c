/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: which layers of a model are of which kind, where kinds alternate.
 *
 * By one rule: every n-th layer, counted from 1, has experts or whole attention. A list that no
 * such rule makes is kept as bits, and then the rule takes none.
 *
 * Source: transformers' configuration_*.py. */
#include <jansson.h>
#include <string.h>
#include "fields.h"

static const struct tui_field layer_fields[] = {
    TUI_FIELD("interleave_moe_layer_step|decoder_sparse_step", TUI_U64, moe_every),
    TUI_FIELD("full_attention_interval|sliding_window_pattern|no_rope_layer_interval", TUI_U64,
              full_every),
    TUI_FIELD("attention_chunk_size|sliding_window|window_size", TUI_U64, window),
    TUI_FIELD("linear_num_key_heads", TUI_U64, delta_key_heads),
    TUI_FIELD("linear_num_value_heads", TUI_U64, delta_value_heads),
    TUI_FIELD("linear_key_head_dim", TUI_U64, delta_key_dim),
    TUI_FIELD("linear_value_head_dim", TUI_U64, delta_value_dim),
    TUI_FIELD("linear_conv_kernel_dim", TUI_U64, delta_conv),
    {.keys = NULL},
};
/* Where the MLP of the layers without experts has a word of its own. */
static const struct tui_field mlp_fields[] = {
    TUI_FIELD("intermediate_size_mlp", TUI_U64, ffn),
    {.keys = NULL},
};

/* Layers that something says are of a kind: by the rule that makes them, or as bits. */
static int keep(uint64_t *every, uint64_t at[TU_LAYERS_LISTED / 64], const struct tu_model *m,
                bool (*is)(const json_t *, size_t), const json_t *list, const char *key,
                struct tu_err *err)
{
    uint64_t n = 0;
    bool rule = true;
    for (uint64_t k = 0; k < m->layers; k++) {
        bool yes = is(list, (size_t)k);
        n = yes && !n ? k + 1 : n;
        rule = rule && yes == (n && (k + 1) % n == 0);
    }
    *every = rule && n ? n : m->layers + 1;
    if (rule)
        return 0;
    if (m->layers > TU_LAYERS_LISTED)
        return tu_fail(err, TU_EUNSUP, "'%s': a list of %llu layers that no rule makes", key,
                       (unsigned long long)m->layers);
    for (uint64_t k = 0; k < m->layers; k++)
        if (is(list, (size_t)k))
            at[k / 64] |= 1ull << k % 64;
    return 0;
}

static bool is_full(const json_t *list, size_t k)
{
    const char *t = json_string_value(json_array_get(list, k));
    return t && (!strcmp(t, "full_attention") || !strcmp(t, "global"));
}

static bool is_listed(const json_t *list, size_t k)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == (json_int_t)k)
            return true;
    return false;
}

/* The rule's layers with experts, but for those of a list. */
static int leave_out(struct tu_model *m, const json_t *dense, struct tu_err *err)
{
    uint64_t step = tu_max(m->moe_every, 1);
    if (m->layers > TU_LAYERS_LISTED)
        return tu_fail(err, TU_EUNSUP, "'mlp_only_layers' of more than %d layers",
                       TU_LAYERS_LISTED);
    for (uint64_t k = step - 1; k < m->layers; k += step)
        if (!is_listed(dense, (size_t)k))
            m->moe_at[k / 64] |= 1ull << k % 64;
    m->moe_every = m->layers + 1;
    return 0;
}

/* Whole attention or the family's other kind, for each layer. */
static int attention_types(struct tu_model *m, const json_t *types, struct tu_err *err)
{
    const char *other = m->delta_value_heads ? "linear_attention"
                        : m->chunked         ? "chunked_attention"
                                             : "sliding_attention";
    if (json_array_size(types) != m->layers)
        return tu_fail(err, TU_EFORMAT, "'layer_types' has %zu layers, the model %llu",
                       json_array_size(types), (unsigned long long)m->layers);
    for (size_t k = 0; k < json_array_size(types); k++) {
        const char *t = json_string_value(json_array_get(types, k));
        if (!is_full(types, k) && (!t || (strcmp(t, other) && strcmp(t, "local"))))
            return tu_fail(err, TU_EUNSUP,
                           "'layer_types': layer %zu is '%.40s': full_attention and %s are "
                           "expected",
                           k, t ? t : "", other);
    }
    return keep(&m->full_every, m->full_at, m, is_full, types, "layer_types", err);
}

/* Lists are of at most 4096 layers: is_listed looks through one for each. */
static int listed(struct tu_model *m, const json_t *config, struct tu_err *err)
{
    const json_t *types = json_object_get(config, "layer_types");
    const json_t *moe = json_object_get(config, "moe_layers");
    const json_t *dense = json_object_get(config, "mlp_only_layers");
    int rc = 0;
    if (m->layers > 4096)
        return 0;
    if (!json_is_array(types))
        types = json_object_get(config, "attention_layers");
    if (m->full_every && json_array_size(types))
        rc = attention_types(m, types, err);
    if (!rc && json_array_size(moe))
        rc = keep(&m->moe_every, m->moe_at, m, is_listed, moe, "moe_layers", err);
    else if (!rc && m->experts && json_array_size(dense))
        rc = leave_out(m, dense, err);
    return rc;
}

/* Some layers slide in a family whose layers mostly do not. */
static bool slides(const struct tu_model *m, const json_t *config)
{
    const json_t *types = json_object_get(config, "layer_types"), *t;
    size_t k;
    json_array_foreach(types, k, t)
        if (m->window && json_is_string(t) && !strcmp(json_string_value(t), "sliding_attention"))
            return true;
    return false;
}

int tui_layers_read(struct tu_model *m, const struct tu_model *shape, const json_t *config,
                    struct tu_err *err)
{
    if (!shape)
        return 0;
    int rc = tui_fields_read(layer_fields, config, m, err);
    if (!rc && !shape->full_every) /* windows, if no list speaks of them, are of all layers */
        m->full_every = m->window = slides(m, config) ? m->window : 0;
    if (!rc)
        rc = listed(m, config, err);
    if (!rc && json_is_integer(json_object_get(config, "intermediate_size_mlp"))) {
        m->expert_ffn = m->ffn;
        rc = tui_fields_read(mlp_fields, config, m, err);
    }
    if (!rc && m->delta_value_heads &&
        (!m->delta_key_heads || !m->delta_key_dim || !m->delta_value_dim))
        rc = tu_fail(err, TU_EFORMAT, "a gated delta net needs heads and their sizes");
    return rc;
}

/* Of the first n layers those whose number, from 1, divides by `every`, from `first` on. */
static uint64_t multiples(uint64_t n, uint64_t first, uint64_t every)
{
    return n > first ? n / every - first / every : 0;
}

/* Is a layer's bit set? */
static bool has(const uint64_t bits[TU_LAYERS_LISTED / 64], uint64_t k)
{
    return k < TU_LAYERS_LISTED && bits[k / 64] >> k % 64 & 1;
}

/* Some layers are kept as bits: one by one. */
static bool one_by_one(const struct tu_model *m, uint64_t from, uint64_t to,
                       uint64_t count[TU_LAYER_KINDS])
{
    static const uint64_t none[TU_LAYERS_LISTED / 64];
    if (!memcmp(m->moe_at, none, sizeof none) && !memcmp(m->full_at, none, sizeof none))
        return false;
    memset(count, 0, TU_LAYER_KINDS * sizeof *count);
    for (uint64_t k = from; k < to; k++) {
        bool moe = has(m->moe_at, k) ||
                   (k >= m->dense_layers && (k + 1) % tu_max(m->moe_every, 1) == 0);
        bool full = has(m->full_at, k) || (k + 1) % tu_max(m->full_every, 1) == 0;
        count[(m->experts && !moe ? TU_LAYER_DENSE : 0) | (full ? 0 : TU_LAYER_LOCAL)]++;
    }
    return true;
}

static void kinds_below(const struct tu_model *m, uint64_t n, uint64_t count[TU_LAYER_KINDS])
{
    uint64_t moe = tu_max(m->moe_every, 1), full = tu_max(m->full_every, 1);
    uint64_t a = moe, b = full; /* to their greatest common divisor */
    uint64_t first = m->experts ? m->dense_layers : 0;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    uint64_t both = multiples(n, first, moe / a * full);
    uint64_t routed = m->experts ? multiples(n, first, moe) : n;
    uint64_t whole = multiples(n, 0, full);
    count[0] = m->experts ? both : whole;
    count[TU_LAYER_LOCAL] = routed - count[0];
    count[TU_LAYER_DENSE] = whole - count[0];
    count[TU_LAYER_DENSE | TU_LAYER_LOCAL] = n - routed - count[TU_LAYER_DENSE];
}

void tu_model_kinds(const struct tu_model *m, uint64_t from, uint64_t to,
                    uint64_t count[TU_LAYER_KINDS])
{
    uint64_t before[TU_LAYER_KINDS];
    if (one_by_one(m, from, to, count))
        return;
    kinds_below(m, to, count);
    kinds_below(m, from, before);
    for (size_t k = 0; k < TU_LAYER_KINDS; k++)
        count[k] -= before[k];
}
