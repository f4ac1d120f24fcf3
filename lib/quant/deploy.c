/* SPDX-License-Identifier: Apache-2.0 */
/* deploy.c: the table of engines' files, and coded tensors seen as such.
 *
 * Sources: vllm-project/compressed-tensors compressors/, AutoGPTQ/AutoGPTQ, casper-hansen/
 * AutoAWQ awq/modules/linear/gemm.py, transformers quantizers/ and integrations/bitsandbytes,
 * NVIDIA/Model-Optimizer, deepseek-ai/DeepSeek-V3. */
#include "deploy.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define CT "compressed-tensors"

const struct tui_deploy tui_deploys[] = {
    {CT, "pack-quantized", " int4 int3 int2 ", NULL,
     {{"", ".weight_packed", 0}, {"scale", ".weight_scale", 0},
      {"zero", ".weight_zero_point", 0}, {"gidx", ".weight_g_idx", 0}},
     true},
    {CT, "pack-quantized", " int8 ", "packed",
     {{"", ".weight_packed", 0}, {"scale", ".weight_scale", 0},
      {"zero", ".weight_zero_point", 0}, {"gidx", ".weight_g_idx", 0}},
     true},
    {CT, "int-quantized", " int8 ", "!packed",
     {{"", ".weight", 0}, {"scale", ".weight_scale", 0}, {"zero", ".weight_zero_point", 0},
      {"gidx", ".weight_g_idx", 0}},
     false},
    {CT, "float-quantized", " fp8_channel fp8_tensor ", NULL,
     {{"", ".weight", 0}, {"scale", ".weight_scale", 0}}, false},
    {CT, "nvfp4-pack-quantized", " nvfp4_packed ", "!global",
     {{"", ".weight_packed", TU_U8}, {"scale", ".weight_scale", 0},
      {"gscale", ".weight_global_scale", 0}},
     false},
    {CT, "mxfp4-pack-quantized", " mxfp4_packed ", NULL,
     {{"", ".weight_packed", TU_U8}, {"scale", ".weight_scale", TU_U8}}, false},
    {CT, "mxfp8-quantized", " mxfp8 ", NULL,
     {{"", ".weight", 0}, {"scale", ".weight_scale", TU_U8}}, false},
    {CT, "sparse-24-bitmask", " nm ", NULL,
     {{"", ".weight.compressed", 0}, {"mask", ".weight.bitmask", 0}}, true},
    {"modelopt", "NVFP4", " nvfp4_packed ", "global",
     {{"", ".weight", TU_U8}, {"scale", ".weight_scale", 0}, {"gscale", ".weight_scale_2", 0}},
     false},
    {"gptq", NULL, " gptq8 gptq4 gptq3 gptq2 ", NULL,
     {{"", ".qweight", 0}, {"scale", ".scales", 0}, {"zero", ".qzeros", 0},
      {"gidx", ".g_idx", 0}},
     false},
    {"awq", NULL, " awq4 ", NULL,
     {{"", ".qweight", 0}, {"scale", ".scales", 0}, {"zero", ".qzeros", 0}}, false},
    {"bitsandbytes", NULL, " nf4 fp4 ", "!nested",
     {{"", ".weight", 0}, {"scale", ".weight.absmax", 0}}, false},
    {"bitsandbytes", NULL, " nf4 fp4 ", "nested",
     {{"", ".weight", 0}, {"scale", ".weight.absmax", 0},
      {"nested", ".weight.nested_absmax", 0}, {"map", ".weight.nested_quant_map", 0}},
     false},
    {"fp8", NULL, " fp8_block ", NULL,
     {{"", ".weight", 0}, {"scale", ".weight_scale_inv", 0}}, false},
    {.method = NULL},
};

const struct tui_deploy *tui_deploy_find(const struct tu_spec *spec)
{
    char word[40];
    snprintf(word, sizeof word, " %.32s ", spec->name);
    for (const struct tui_deploy *d = tui_deploys; d->method; d++) {
        const char *key = d->key;
        bool not = key && *key == '!';
        if (strstr(d->codecs, word) && (!key || !tu_spec_get(spec, key + not) == not))
            return d;
    }
    return NULL;
}

size_t tui_deploy_stem(const char *name)
{
    static const char end[] = ".weight";
    size_t n = strlen(name), k = sizeof end - 1;
    return n > k && strcmp(name + n - k, end) == 0 ? n - k : 0;
}

/* Writing ------------------------------------------------------------------------------ */

struct maker {
    struct tu_source *in;
    struct tu_arena *arena;
    struct tu_view_item *item;
    size_t n, cap;
    const struct tui_deploy *deploy; /* of all coded tensors */
    json_t *groups;  /* scheme: list of modules */
    json_t *ignore;  /* modules that are not coded */
    bool order;      /* group indices are not those of neighbours */
};

static int add(struct maker *m, struct tu_view_item v, const char *stem, size_t len,
               const char *end, struct tu_err *err)
{
    int rc = TU_GROW(&m->item, &m->cap, m->n, err);
    if (rc)
        return rc;
    v.tensor.name = tu_arena_printf(m->arena, err, "%.*s%s", (int)len, stem, end);
    v.tensor.meta = NULL;
    if (!v.tensor.name)
        return TU_ENOMEM;
    m->item[m->n++] = v;
    return 0;
}

/* A tensor whose bytes are made here. */
static int add_made(struct maker *m, const char *stem, size_t len, const char *end,
                    uint32_t dtype, uint64_t n, const void *data, struct tu_err *err)
{
    uint64_t *dim = tu_arena_alloc(m->arena, 1, sizeof *dim, err);
    size_t bytes = (size_t)n * tu_dtype_find(dtype)->block_bytes;
    void *copy = tu_arena_alloc(m->arena, bytes + 1, 1, err);
    if (!dim || !copy)
        return TU_ENOMEM;
    *dim = n;
    memcpy(copy, data, bytes);
    struct tu_view_item v = {.tensor = {.dtype = dtype, .rank = 1, .dim = dim}, .data = copy};
    return add(m, v, stem, len, end, err);
}

/* E2M1 in pairs is a byte tensor of half the columns there. */
static int as_bytes(struct maker *m, struct tu_view_item *v, uint32_t dtype,
                    struct tu_err *err)
{
    const struct tu_tensor *t = &v->tensor;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    uint64_t *dim = tu_arena_alloc(m->arena, t->rank + 1, sizeof *dim, err);
    if (!dim)
        return TU_ENOMEM;
    memcpy(dim, t->dim, t->rank * sizeof *dim);
    if (t->rank)
        dim[t->rank - 1] = dim[t->rank - 1] / d->block_elems * d->block_bytes;
    v->tensor.dim = dim;
    v->tensor.dtype = dtype;
    return 0;
}

static int add_part(struct maker *m, size_t i, const char *stem, size_t len,
                    const struct tui_deploy_part *p, struct tu_err *err)
{
    struct tu_view_item v = {.tensor = m->in->tensor[i], .from = i};
    int rc = p->dtype ? as_bytes(m, &v, p->dtype, err) : 0;
    return rc ? rc : add(m, v, stem, len, p->name, err);
}

/* bitsandbytes' own: the book of 16 values and the state as JSON. */
static int add_state(struct maker *m, const struct tu_coding *c, const struct tu_spec *spec,
                     uint32_t dtype, const char *stem, size_t len, size_t offset_at,
                     struct tu_err *err)
{
    const bool nested = tu_spec_get(spec, "nested");
    char end[64];
    float book[16], offset = 0;
    struct tu_buf json = {0};
    struct tu_jw w;
    tui_book16_of(spec->name, book);
    int rc = add_made(m, stem, len, ".weight.quant_map", TU_F32, 16, book, err);
    if (!rc && nested)
        rc = tu_source_read(m->in, offset_at, 0, &offset, sizeof offset, err);
    tu_jw_begin(&w, &json);
    tu_jw_open(&w, NULL, '{');
    tu_jw_u64(&w, "blocksize", c->atom);
    tu_jw_str(&w, "dtype", dtype == TU_BF16  ? "bfloat16"
                           : dtype == TU_F16 ? "float16"
                                             : "float32");
    if (nested) {
        tu_jw_u64(&w, "nested_blocksize", 256);
        tu_jw_str(&w, "nested_dtype", "float32");
        tu_jw_real(&w, "nested_offset", (double)offset);
    }
    tu_jw_str(&w, "quant_type", spec->name);
    tu_jw_dims(&w, "shape", c->dim, c->rank);
    tu_jw_close(&w, '}');
    if (!rc)
        rc = tu_jw_end(&w, err);
    snprintf(end, sizeof end, ".weight.quant_state.bitsandbytes__%s", spec->name);
    if (!rc)
        rc = add_made(m, stem, len, end, TU_U8, json.n, json.data, err);
    tu_buf_release(&json);
    return rc;
}

/* The side record that follows at i + 1 …; SIZE_MAX if it does not. */
static size_t find_side(const struct tu_source *s, size_t i, const char *suffix)
{
    size_t n = strlen(s->tensor[i].name);
    for (size_t k = i + 1; k < s->n && k <= i + TU_CODING_SIDES; k++)
        if (!strncmp(s->tensor[k].name, s->tensor[i].name, n) && s->tensor[k].name[n] == '.' &&
            !strcmp(s->tensor[k].name + n + 1, suffix))
            return k;
    return SIZE_MAX;
}

static int note(json_t *groups, const struct tu_spec *spec, const char *stem, size_t len,
                struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = tu_spec_print(spec, &text, err);
    json_t *list = rc ? NULL : json_object_get(groups, text.data);
    if (!rc && !list && !json_object_set_new(groups, text.data, json_array()))
        list = json_object_get(groups, text.data);
    if (!rc && (!list || json_array_append_new(list, json_stringn(stem, len))))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    tu_buf_release(&text);
    return rc;
}

/* Do the columns of a group lie apart? */
static int look_at_order(struct maker *m, size_t at, struct tu_err *err)
{
    const uint64_t bytes = at == SIZE_MAX ? 0 : m->in->tensor[at].bytes;
    unsigned char *p = tu_alloc((size_t)bytes, 1, err);
    int rc = p ? tu_source_read(m->in, at == SIZE_MAX ? 0 : at, 0, p, (size_t)bytes, err)
               : TU_ENOMEM;
    for (uint64_t i = 4; !rc && i + 4 <= bytes; i += 4)
        m->order |= tu_le32(p + i) < tu_le32(p + i - 4);
    tu_free(p);
    return rc;
}

/* Names of the codecs that an engine loads, each once. */
static int unknown(const char *name, const char *codec, struct tu_err *err)
{
    char list[160] = " ", word[24]; /* a blank on either side of each, as in the table */
    for (const struct tui_deploy *d = tui_deploys; d->method; d++)
        for (const char *p = d->codecs + 1; *p; p += strcspn(p, " ") + 1) {
            snprintf(word, sizeof word, " %.*s ", (int)strcspn(p, " "), p);
            if (!strstr(list, word))
                snprintf(list + strlen(list), sizeof list - strlen(list), "%s", word + 1);
        }
    return tu_fail(err, TU_EUSAGE,
                   "'%.40s': codec '%.16s': no engine loads it from safetensors, but%.*s", name,
                   codec, (int)strlen(list) - 1, list);
}

static int write_coded(struct maker *m, size_t i, const struct tu_spec *spec,
                       const struct tu_coding *c, uint32_t dtype, struct tu_err *err)
{
    const char *name = m->in->tensor[i].name;
    size_t len = tui_deploy_stem(name);
    const struct tui_deploy *d = tui_deploy_find(spec);
    if (!d)
        return unknown(name, spec->name, err);
    if (!len)
        return tu_fail(err, TU_EUSAGE,
                       "'%.80s': codes have names that end in .weight where an engine loads them",
                       name);
    if (m->deploy && strcmp(m->deploy->method, d->method))
        return tu_fail(err, TU_EUSAGE,
                       "'%.80s' is for quant_method %s, others are for %s: an engine takes one",
                       name, d->method, m->deploy->method);
    m->deploy = d;
    int rc = note(m->groups, spec, name, len, err);
    for (const struct tui_deploy_part *p = d->part; !rc && p->suffix; p++) {
        size_t at = *p->suffix ? find_side(m->in, i, p->suffix) : i;
        if (at != SIZE_MAX)
            rc = add_part(m, at, name, len, p, err);
    }
    if (!rc && d->shape) {
        int64_t shape[2] = {(int64_t)c->rows, (int64_t)c->cols};
        rc = add_made(m, name, len, strcmp(d->part[0].name, ".weight_packed") ? ".weight.shape"
                                                                             : ".weight_shape",
                      TU_I64, 2, shape, err);
    }
    if (!rc && !strcmp(d->method, "gptq"))
        rc = look_at_order(m, find_side(m->in, i, "gidx"), err);
    if (!rc && !strcmp(d->method, "bitsandbytes"))
        rc = add_state(m, c, spec, dtype, name, len, find_side(m->in, i, "offset"), err);
    return rc;
}

/* One tensor and the sides behind it; *taken records are used up. */
static int write_one(struct maker *m, size_t i, size_t *taken, struct tu_err *err)
{
    const struct tu_tensor *t = &m->in->tensor[i];
    uint64_t dim[TU_RANK_MAX];
    uint32_t dtype;
    unsigned rank;
    struct tu_spec spec = {0};
    struct tu_coding c = {.compat = false};
    bool coded;
    *taken = 1;
    int rc = tu_coded_by(t, &spec, &dtype, dim, &rank, &coded, err);
    if (rc || !coded) {
        size_t len = rc || t->rank < 2 ? 0 : tui_deploy_stem(t->name);
        if (!rc && len && json_array_append_new(m->ignore, json_stringn(t->name, len)))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
        return rc ? rc
                  : add(m, (struct tu_view_item){.tensor = *t, .from = i}, t->name,
                        strlen(t->name), "", err);
    }
    rc = tu_coding_init(&c, &spec, dim, rank, err);
    if (!rc)
        rc = write_coded(m, i, &spec, &c, dtype, err);
    *taken += c.sides;
    tu_spec_release(&spec);
    return rc;
}

/* The text of a configuration with a key more, or another value of it; what its author wrote stays
 * as it is where the key is new. */
static int add_quant(struct tu_buf *out, const char *text, size_t n, json_t *config,
                     const char *quant, json_t *q, struct tu_err *err)
{
    bool known = json_object_get(config, "quantization_config");
    if (json_object_set(config, "quantization_config", q))
        return tu_fail(err, TU_ENOMEM, "out of memory");
    while (n && text[n - 1] != '}')
        n--;
    if (known || !n)
        return tu_json_dump(out, config, err);
    for (n--; n && strchr(" \t\r\n", text[n - 1]);)
        n--;
    return tu_buf_printf(out, err, "%.*s%s\n  \"quantization_config\": %s\n}\n", (int)n, text,
                         n && text[n - 1] == '{' ? "" : ",", quant);
}

/* META "files" with config.json that says so too, for an engine to find it. */
static int merge_config(struct maker *m, const char *quant, struct tu_meta *out,
                        struct tu_err *err)
{
    json_t *files = NULL, *config = NULL, *q = json_loads(quant, 0, NULL), *add = json_object();
    int rc = q && add ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < m->in->metas; i++) {
        if (strcmp(m->in->meta[i].topic, "files"))
            continue;
        json_decref(files);
        rc = tu_json_parse(&files, m->in->meta[i].json, m->in->meta[i].n, NULL, err);
    }
    const json_t *file = json_object_get(files, "config.json");
    const char *text = json_string_value(file);
    const struct tu_json_limits limits = {.object = true};
    struct tu_buf b = {0};
    if (!rc && file)
        rc = tu_json_parse(&config, text, json_string_length(file), &limits, err);
    if (!rc && config)
        rc = add_quant(&b, text, json_string_length(file), config, quant, q, err);
    bool all = !config || rc || !json_object_set_new(add, "config.json", json_stringn(b.data, b.n));
    tu_buf_reset(&b);
    const char *own = !strcmp(m->deploy->method, "gptq")  ? "quantize_config.json"
                      : !strcmp(m->deploy->method, "awq") ? "quant_config.json"
                                                          : NULL;
    if (!rc && own)
        all &= !json_object_set_new(add, own, json_string(quant));
    if (!rc)
        rc = all ? tu_json_dump(&b, add, err) : tu_fail(err, TU_ENOMEM, "out of memory");
    *out = (struct tu_meta){"files", rc ? NULL : tu_arena_text(m->arena, b.data, b.n, err), b.n};
    tu_buf_release(&b);
    json_decref(files);
    json_decref(config);
    json_decref(q);
    json_decref(add);
    return rc ? rc : out->json ? 0 : TU_ENOMEM;
}

static int write_view(struct maker *m, struct tu_source **out, struct tu_err *err)
{
    struct tu_buf config = {0};
    size_t n = m->in->metas;
    struct tu_meta *meta = tu_arena_alloc(m->arena, n + 1, sizeof *meta, err);
    int rc = meta ? tui_deploy_config(&config, m->deploy, m->groups, m->ignore, m->order, err)
                  : TU_ENOMEM;
    if (!rc && n)
        memcpy(meta, m->in->meta, n * sizeof *meta);
    if (!rc)
        rc = merge_config(m, config.data, &meta[n], err);
    tu_buf_release(&config);
    if (!rc)
        return tu_source_view(out, m->in, m->item, m->n, meta, n + 1, err);
    tu_source_close(m->in);
    return rc;
}

int tu_deploy_write(struct tu_source **out, struct tu_source *in, struct tu_err *err)
{
    struct maker m = {.in = in, .arena = tu_arena_new(err), .groups = json_object(),
                      .ignore = json_array()};
    int rc = m.arena ? 0 : TU_ENOMEM;
    for (size_t i = 0, taken; !rc && i < in->n; i += taken)
        rc = write_one(&m, i, &taken, err);
    if (rc)
        tu_source_close(in);
    else if (m.deploy)
        rc = write_view(&m, out, err);
    else
        *out = in;
    json_decref(m.groups);
    json_decref(m.ignore);
    tu_free(m.item);
    tu_arena_free(m.arena);
    return rc;
}
