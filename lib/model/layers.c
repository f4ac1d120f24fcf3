/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: which layers of a model are of which kind, where kinds alternate.
 *
 * One rule for all: every n-th layer, counted from 1, has experts or whole attention. Files that
 * list their layers one by one are held to it.
 *
 * Source: transformers' configuration_*.py. */
#include <jansson.h>
#include <string.h>
#include "fields.h"

static const struct tui_field layer_fields[] = {
    TUI_FIELD("interleave_moe_layer_step|decoder_sparse_step", TUI_U64, moe_every),
    TUI_FIELD("full_attention_interval|sliding_window_pattern|no_rope_layer_interval", TUI_U64,
              full_every),
    TUI_FIELD("attention_chunk_size|sliding_window", TUI_U64, window),
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

/* The rule that a list of layers follows. */
static int every(uint64_t *out, const json_t *list, bool (*is)(const json_t *, size_t),
                 const char *key, const struct tu_model *m, struct tu_err *err)
{
    uint64_t n = 0;
    for (uint64_t k = 0; k < m->layers; k++) {
        bool yes = is(list, (size_t)k);
        n = yes && !n ? k + 1 : n;
        if (yes != (n && (k + 1) % n == 0))
            return tu_fail(err, TU_EUNSUP,
                           "'%s': layer %llu is not of the kind that every n-th layer before "
                           "makes it",
                           key, (unsigned long long)k);
    }
    *out = n ? n : m->layers + 1;
    return 0;
}

static bool is_full(const json_t *list, size_t k)
{
    const char *t = json_string_value(json_array_get(list, k));
    return t && !strcmp(t, "full_attention");
}

static bool is_listed(const json_t *list, size_t k)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == (json_int_t)k)
            return true;
    return false;
}

/* Lists are of at most 4096 layers: is_listed looks through one for each. */
static int listed(struct tu_model *m, const json_t *config, struct tu_err *err)
{
    const json_t *types = json_object_get(config, "layer_types");
    const json_t *moe = json_object_get(config, "moe_layers");
    int rc = 0;
    if (m->layers > 4096)
        return 0;
    if (json_array_size(types))
        rc = every(&m->full_every, types, is_full, "layer_types", m, err);
    if (!rc && json_array_size(moe))
        rc = every(&m->moe_every, moe, is_listed, "moe_layers", m, err);
    const json_t *single = json_object_get(config, "mlp_only_layers");
    if (!rc && m->delta_value_heads && json_array_size(single))
        rc = tu_fail(err, TU_EUNSUP, "'mlp_only_layers': single layers without experts");
    return rc;
}

int tui_layers_read(struct tu_model *m, const struct tu_model *shape, const json_t *config,
                    struct tu_err *err)
{
    if (!shape)
        return 0;
    int rc = tui_fields_read(layer_fields, config, m, err);
    if (!shape->full_every) /* windows, if any, of all its layers */
        m->full_every = m->window = 0;
    else if (!rc)
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
    kinds_below(m, to, count);
    kinds_below(m, from, before);
    for (size_t k = 0; k < TU_LAYER_KINDS; k++)
        count[k] -= before[k];
}
