/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: sizes of caches from configurations, and what they mean for a device. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/kv.h>

static uint64_t number(const json_t *o, const char *key, uint64_t fallback)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 &&
                   json_integer_value(v) <= INT32_MAX
               ? (uint64_t)json_integer_value(v)
               : fallback;
}

/* Layers with a window: listed one by one, or all but every n-th. */
static void windows(struct tu_kv_sizes *s, const json_t *o)
{
    const json_t *types = json_object_get(o, "layer_types"), *use;
    uint64_t pattern = number(o, "sliding_window_pattern", 0);
    s->window = number(o, "sliding_window", 0);
    use = json_object_get(o, "use_sliding_window");
    if (!s->window || json_is_false(use)) {
        s->window = 0;
        return;
    }
    if (json_is_array(types)) {
        for (size_t i = 0; i < json_array_size(types); i++) {
            const char *t = json_string_value(json_array_get(types, i));
            s->local += t && !strcmp(t, "sliding_attention");
        }
        s->local = tu_min(s->local, s->layers);
    } else {
        s->local = pattern ? s->layers - s->layers / pattern : s->layers;
    }
}

/* Kinds of layers by the family's rule: chunks, and gated delta nets, which hold a state in f32
 * and the convolution's last inputs in bf16 instead of a cache. */
static void kinds(struct tu_kv_sizes *s, const struct tu_model *m)
{
    uint64_t count[TU_LAYER_KINDS];
    tu_model_kinds(m, 0, m->layers, count);
    uint64_t local = count[TU_LAYER_LOCAL] + count[TU_LAYER_LOCAL | TU_LAYER_DENSE];
    double k = (double)m->delta_key_heads * (double)m->delta_key_dim;
    double v = (double)m->delta_value_heads * (double)m->delta_value_dim;
    if (m->chunked) {
        s->window = m->window;
        s->local = local;
    }
    if (m->delta_value_heads) {
        s->layers -= tu_min(local, s->layers);
        s->state = (double)local * (4 * v * (double)m->delta_key_dim +
                                    2 * (2 * k + v) * (double)m->delta_conv);
    }
}

int tu_kv_sizes_from_hf(struct tu_kv_sizes *out, const char *json, size_t n,
                        struct tu_err *err)
{
    struct tu_json_limits limits = {.object = true};
    struct tu_model m;
    json_t *root = NULL;
    *out = (struct tu_kv_sizes){0};
    int rc = tu_model_from_hf(&m, json, n, err);
    if (!rc)
        rc = tu_json_parse(&root, json, n, &limits, err);
    if (rc)
        return rc;
    const json_t *text = json_object_get(root, "text_config");
    const json_t *o = json_is_object(text) ? text : root;
    out->layers = m.layers - tu_min(m.layers, number(o, "num_kv_shared_layers", 0));
    out->heads = m.kv_heads;
    out->dim_k = m.head_dim;
    out->dim_v = number(o, "v_head_dim", m.head_dim);
    out->hidden = m.hidden;
    uint64_t rank = number(o, "kv_lora_rank", 0);
    out->latent = rank ? rank + number(o, "qk_rope_head_dim", 0) : 0;
    windows(out, o);
    kinds(out, &m);
    double attention = (double)m.hidden * (double)m.head_dim *
                       (2 * (double)m.heads + 2 * (double)m.kv_heads);
    double mlp = (double)m.hidden * (double)m.ffn * (m.gated ? 3 : 2);
    if (m.experts)
        mlp = (double)m.hidden * (double)m.expert_ffn * 3 * (double)tu_max(m.top_k, 1);
    out->params = (double)m.layers * (attention + mlp) +
                  (double)m.vocab * (double)m.hidden * (m.tied ? 1 : 2);
    json_decref(root);
    return 0;
}

int tu_kv_bytes(const struct tu_kv_sizes *s, uint64_t T, double bits, uint64_t tp,
                uint64_t *out, struct tu_err *err)
{
    uint64_t heads = tu_max(1, s->heads / tu_max(tp, 1));
    double row = s->latent ? (double)s->latent
                           : (double)heads * ((double)s->dim_k + (double)s->dim_v);
    uint64_t local = s->window ? s->local : 0;
    double rows = (double)(s->layers - local) * (double)T +
                  (double)local * (double)tu_min(T, s->window);
    double bytes = rows * row * bits / 8 + s->state / (double)tu_max(tp, 1);
    if (!(bytes < 9e18))
        return tu_fail(err, TU_ESIZE, "a cache of %.3g bytes", bytes);
    *out = (uint64_t)ceil(bytes - 1e-6);
    return 0;
}

double tu_kv_bits(const char *name, uint64_t dim)
{
    const struct tu_dtype *d = tu_dtype_named(name);
    double per_head = dim ? 32.0 / (double)dim : 0;
    if (d)
        return 8.0 * d->block_bytes / d->block_elems;
    if (!strncmp(name, "kivi", 4)) { /* groups of 32 under two f16 */
        long b = strtol(name + 4, NULL, 10);
        return b == 2 || b == 4 || b == 8 ? (double)b + 1 : 0;
    }
    if (!strcmp(name, "int8") || !strcmp(name, "fp8"))
        return 8 + per_head;
    if (!strcmp(name, "kv4"))
        return 4 + (dim ? 32.0 / (double)tu_min(dim, 128) : 0);
    return !strcmp(name, "split16") ? 12 : 0;
}

void tu_kv_context(struct tu_kv_context *out, const struct tu_kv_sizes *s,
                   const struct tu_kv_device *d, uint64_t n, uint64_t kv)
{
    double T = (double)n, flops = T * (2 * d->params + (double)s->layers * T *
                                                           (double)s->hidden);
    *out = (struct tu_kv_context){.kv = kv};
    double room = d->hbm - d->weight_bytes;
    out->users = kv && room > 0 ? (uint64_t)(room / (double)kv) : 0;
    out->prefill = flops / d->flops;
    out->decode = (double)d->answer * (d->weight_bytes + (double)kv) / d->bandwidth;
    out->swap = 2 * (double)kv / d->link;
    out->load_above = (double)kv / (T * 2 * d->params / d->flops);
}
