/* SPDX-License-Identifier: Apache-2.0 */
/* deploy_config.c: quantization_config of config.json, a writer per quant_method. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include "deploy.h"

/* Scheme and modules of the groups, in the order in which they came. */
struct said {
    const struct tui_deploy *deploy;
    json_t *groups, *ignore;
    bool order; /* columns of GPTQ are in an order of their own */
};

/* The group of columns that share a scale: "group=N", "channel" is -1. */
static int64_t group_of(const struct tu_spec *s, int64_t fallback)
{
    const char *text = tu_spec_get(s, "group");
    uint64_t n;
    if (!text)
        return fallback;
    return tu_parse_u64(text, &n, NULL) ? -1 : (int64_t)n;
}

static void put_names(struct tu_jw *w, const char *key, const json_t *list)
{
    size_t i;
    const json_t *v;
    tu_jw_open(w, key, '[');
    json_array_foreach(list, i, v) tu_jw_str(w, NULL, json_string_value(v));
    tu_jw_close(w, ']');
}

/* compressed-tensors -------------------------------------------------------------------- */

static void put_weights(struct tu_jw *w, const struct tu_spec *s)
{
    const bool integer = strncmp(s->name, "int", 3) == 0, nv = !strncmp(s->name, "nv", 2),
               mx = !strncmp(s->name, "mx", 2);
    const char *group = tu_spec_get(s, "group");
    int64_t n = integer ? group_of(s, strcmp(s->name, "int8") ? 128 : -1)
                : nv    ? 16
                : mx    ? 32
                        : -1;
    const bool tensor = (group && !strcmp(group, "tensor")) || !strcmp(s->name, "fp8_tensor");
    tu_jw_open(w, "weights", '{');
    tu_jw_str(w, "actorder", tu_spec_get(s, "order") ? "group" : "static");
    tu_jw_bool(w, "dynamic", false);
    if (n > 0)
        tu_jw_i64(w, "group_size", n);
    tu_jw_u64(w, "num_bits", integer                  ? (uint64_t)(s->name[3] - '0')
                             : strstr(s->name, "fp4") ? 4
                                                      : 8);
    if (mx)
        tu_jw_str(w, "scale_dtype", "torch.uint8");
    tu_jw_str(w, "strategy", tensor  ? "tensor"
                             : nv    ? "tensor_group"
                             : n > 0 ? "group"
                                     : "channel");
    tu_jw_bool(w, "symmetric", !tu_spec_get(s, "asym"));
    tu_jw_str(w, "type", integer ? "int" : "float");
    tu_jw_close(w, '}');
}

static int put_group(struct tu_jw *w, const struct said *q, size_t k, const char *scheme,
                     const json_t *modules, struct tu_err *err)
{
    struct tu_spec s;
    char key[32];
    int rc = tu_spec_parse(&s, scheme, err);
    if (rc)
        return rc;
    const struct tui_deploy *d = tui_deploy_find(&s);
    snprintf(key, sizeof key, "group_%zu", k);
    tu_jw_open(w, key, '{');
    tu_jw_str(w, "format", d->format);
    if (json_object_size(q->groups) == 1) {
        tu_jw_open(w, "targets", '[');
        tu_jw_str(w, NULL, "Linear");
        tu_jw_close(w, ']');
    } else {
        put_names(w, "targets", modules);
    }
    put_weights(w, &s);
    tu_jw_close(w, '}');
    tu_spec_release(&s);
    return 0;
}

/* One format for all, or the word for several. */
static const char *format_of(const struct said *q)
{
    const char *scheme, *format = NULL;
    json_t *v;
    json_object_foreach(q->groups, scheme, v)
    {
        struct tu_spec s;
        if (tu_spec_parse(&s, scheme, NULL))
            continue;
        const char *own = tui_deploy_find(&s)->format;
        format = !format || !strcmp(format, own) ? own : "mixed-precision";
        tu_spec_release(&s);
    }
    return format;
}

static int put_ct(struct tu_jw *w, const struct said *q, struct tu_err *err)
{
    const char *scheme;
    json_t *modules;
    size_t k = 0;
    int rc = 0;
    tu_jw_open(w, "config_groups", '{');
    json_object_foreach(q->groups, scheme, modules) if (!rc) rc =
        put_group(w, q, k++, scheme, modules, err);
    tu_jw_close(w, '}');
    tu_jw_str(w, "format", format_of(q));
    put_names(w, "ignore", q->ignore);
    tu_jw_str(w, "quant_method", q->deploy->method);
    tu_jw_str(w, "quantization_status", "compressed");
    return rc;
}

static int put_sparse(struct tu_jw *w, const struct said *q, struct tu_err *err)
{
    (void)err;
    tu_jw_str(w, "quant_method", q->deploy->method);
    tu_jw_open(w, "sparsity_config", '{');
    tu_jw_str(w, "format", q->deploy->format);
    tu_jw_real(w, "global_sparsity", 0.5);
    put_names(w, "ignore", q->ignore);
    tu_jw_str(w, "sparsity_structure", "2:4");
    tu_jw_open(w, "targets", '[');
    tu_jw_str(w, NULL, "Linear");
    tu_jw_close(w, ']');
    tu_jw_close(w, '}');
    return 0;
}

/* Those that know one scheme for the whole model ----------------------------------------- */

static int only_scheme(struct tu_spec *s, const struct said *q, struct tu_err *err)
{
    if (json_object_size(q->groups) != 1)
        return tu_fail(err, TU_EUSAGE, "quant_method %s knows one scheme for all, not %zu",
                       q->deploy->method, json_object_size(q->groups));
    return tu_spec_parse(s, json_object_iter_key(json_object_iter(q->groups)), err);
}

static int put_gptq(struct tu_jw *w, const struct said *q, const struct tu_spec *s)
{
    tu_jw_u64(w, "bits", (uint64_t)(s->name[4] - '0'));
    tu_jw_str(w, "checkpoint_format", tu_spec_get(s, "v2") ? "gptq_v2" : "gptq");
    tu_jw_bool(w, "desc_act", q->order);
    tu_jw_i64(w, "group_size", group_of(s, 128));
    tu_jw_str(w, "quant_method", q->deploy->method);
    tu_jw_bool(w, "sym", !tu_spec_get(s, "asym"));
    return 0;
}

static int put_awq(struct tu_jw *w, const struct said *q, const struct tu_spec *s)
{
    tu_jw_u64(w, "bits", 4);
    tu_jw_i64(w, "group_size", group_of(s, 128));
    put_names(w, "modules_to_not_convert", q->ignore);
    tu_jw_str(w, "quant_method", q->deploy->method);
    tu_jw_str(w, "version", "gemm");
    tu_jw_bool(w, "zero_point", true);
    return 0;
}

static int put_bnb(struct tu_jw *w, const struct said *q, const struct tu_spec *s)
{
    tu_jw_str(w, "bnb_4bit_compute_dtype", "bfloat16");
    tu_jw_str(w, "bnb_4bit_quant_storage", "uint8");
    tu_jw_str(w, "bnb_4bit_quant_type", s->name);
    tu_jw_bool(w, "bnb_4bit_use_double_quant", tu_spec_get(s, "nested") != NULL);
    put_names(w, "llm_int8_skip_modules", q->ignore);
    tu_jw_bool(w, "load_in_4bit", true);
    tu_jw_bool(w, "load_in_8bit", false);
    tu_jw_str(w, "quant_method", q->deploy->method);
    return 0;
}

static int put_fp8(struct tu_jw *w, const struct said *q, const struct tu_spec *s)
{
    uint64_t block[2] = {128, 128};
    unsigned rank = 2;
    const char *text = tu_spec_get(s, "block"), *elem = tu_spec_get(s, "elem");
    if (text && tu_parse_shape(text, block, &rank, 2, NULL))
        rank = 2;
    tu_jw_str(w, "activation_scheme", "dynamic");
    tu_jw_str(w, "fmt", elem && !strcmp(elem, "e5m2") ? "e5m2" : "e4m3");
    put_names(w, "modules_to_not_convert", q->ignore);
    tu_jw_str(w, "quant_method", q->deploy->method);
    tu_jw_dims(w, "weight_block_size", block, 2);
    return 0;
}

static int put_modelopt(struct tu_jw *w, const struct said *q, const struct tu_spec *s)
{
    (void)s;
    tu_jw_u64(w, "group_size", 16);
    put_names(w, "ignore", q->ignore);
    tu_jw_str(w, "quant_algo", q->deploy->format);
    tu_jw_str(w, "quant_method", q->deploy->method);
    return 0;
}

static const struct {
    const char *method;
    int (*put)(struct tu_jw *w, const struct said *q, const struct tu_spec *s);
} single[] = {{"gptq", put_gptq}, {"awq", put_awq}, {"bitsandbytes", put_bnb},
              {"fp8", put_fp8}, {"modelopt", put_modelopt}};

int tui_deploy_config(struct tu_buf *out, const struct tui_deploy *d, json_t *groups,
                      json_t *ignore, bool order, struct tu_err *err)
{
    struct said q = {d, groups, ignore, order};
    struct tu_spec s = {0};
    struct tu_jw w;
    int rc = 0;
    tu_jw_begin(&w, out);
    tu_jw_open(&w, NULL, '{');
    if (d->format && !strncmp(d->format, "sparse", 6))
        rc = put_sparse(&w, &q, err);
    else if (strcmp(d->method, "compressed-tensors") == 0)
        rc = put_ct(&w, &q, err);
    else if (!(rc = only_scheme(&s, &q, err)))
        for (size_t i = 0; i < sizeof single / sizeof *single; i++)
            if (strcmp(single[i].method, d->method) == 0)
                rc = single[i].put(&w, &q, &s);
    tu_jw_close(&w, '}');
    if (s.name)
        tu_spec_release(&s);
    int end = tu_jw_end(&w, err);
    return rc ? rc : end;
}
