/* SPDX-License-Identifier: Apache-2.0 */
/* deploy_read.c: engines' files seen as coded tensors: the scheme of each from the words of
 * quantization_config and from the shapes of what is there. Sources: deploy.c's, and
 * intel/auto-round export/, mobiusml/hqq core/quantize.py. */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "deploy.h"

struct reader {
    struct tu_source *in;
    struct tu_arena *arena;
    const json_t *config;
    struct tu_view_item *item;
    size_t n, cap;
    bool *used; /* [in->n] belongs to a coded tensor, or is made up by one */
};

/* What is known of one coded tensor. */
struct found {
    const char *stem; /* not NUL-ended */
    size_t len, code; /* code: of the source below */
    char scheme[96];
    uint64_t dim[2];
    uint32_t dtype;
};

static size_t find(const struct reader *r, const struct found *f, const char *end)
{
    char name[1024];
    if (snprintf(name, sizeof name, "%.*s%s", (int)f->len, f->stem, end) >= (int)sizeof name)
        return SIZE_MAX;
    return tu_source_find(r->in, name);
}

static const struct tu_tensor *tensor(const struct reader *r, size_t i)
{
    return i == SIZE_MAX ? NULL : &r->in->tensor[i];
}

static int missing(const struct found *f, const char *end, struct tu_err *err)
{
    return tu_fail(err, TU_EINCOMPLETE, "'%.*s%s' is missing", (int)tu_min(f->len, 80), f->stem,
                   end);
}

/* Words of the configuration -------------------------------------------------------------- */

static int64_t integer(const json_t *o, const char *key, int64_t fallback)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : fallback;
}

static bool word_is(const json_t *o, const char *key, const char *word)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s && strcmp(s, word) == 0;
}

static const char *scale_word(const struct tu_tensor *t)
{
    return t->dtype == TU_F32 ? "f32" : t->dtype == TU_BF16 ? "bf16" : "f16";
}

static void add_word(struct found *f, const char *fmt, ...) TU_PRINTF(2, 3);
static void add_word(struct found *f, const char *fmt, ...)
{
    size_t n = strlen(f->scheme);
    va_list ap;
    va_start(ap, fmt);
    if (n + 1 < sizeof f->scheme) {
        f->scheme[n] = strchr(f->scheme, ':') ? ',' : ':';
        vsnprintf(f->scheme + n + 1, sizeof f->scheme - n - 1, fmt, ap);
    }
    va_end(ap);
}

/* Groups of a row by its scales; none of a single number. */
static uint64_t columns(const struct tu_tensor *scale)
{
    return scale->rank ? scale->dim[scale->rank - 1] : 0;
}

/* columns / groups: whole rows, or a number. */
static int add_group(struct found *f, uint64_t groups, struct tu_err *err)
{
    if (!groups || f->dim[1] % groups)
        return tu_fail(err, TU_EFORMAT, "'%.*s': %" PRIu64 " groups in %" PRIu64 " columns",
                       (int)tu_min(f->len, 80), f->stem, groups, f->dim[1]);
    if (groups == 1)
        add_word(f, "group=channel");
    else
        add_word(f, "group=%" PRIu64, f->dim[1] / groups);
    return 0;
}

/* compressed-tensors ---------------------------------------------------------------------- */

/* Words about weights of the group that holds a module: the only one, or by name. */
static const json_t *weights_of(const struct reader *r, const struct found *f)
{
    const json_t *groups = json_object_get(r->config, "config_groups"), *g, *t;
    const char *key;
    size_t i;
    const json_t *last = NULL;
    json_object_foreach((json_t *)(uintptr_t)groups, key, g)
    {
        last = json_object_get(g, "weights");
        json_array_foreach(json_object_get(g, "targets"), i, t)
        {
            const char *s = json_string_value(t);
            if (s && strlen(s) == f->len && !memcmp(s, f->stem, f->len))
                return last;
        }
    }
    return last;
}

static int read_packed_int(struct reader *r, struct found *f, struct tu_err *err)
{
    const size_t at = find(r, f, ".weight_shape");
    const struct tu_tensor *scale = tensor(r, find(r, f, ".weight_scale"));
    const json_t *w = weights_of(r, f);
    int64_t shape[2], bits = integer(w, "num_bits", 4);
    if (at == SIZE_MAX)
        return missing(f, ".weight_shape", err);
    if (!scale)
        return missing(f, ".weight_scale", err);
    if (r->in->tensor[at].dtype != TU_I64 || r->in->tensor[at].bytes != sizeof shape)
        return tu_fail(err, TU_EFORMAT, "'%.*s.weight_shape' holds no two numbers", (int)f->len,
                       f->stem);
    int rc = tu_source_read(r->in, at, 0, shape, sizeof shape, err);
    if (rc)
        return rc;
    f->dim[0] = (uint64_t)shape[0];
    f->dim[1] = (uint64_t)shape[1];
    snprintf(f->scheme, sizeof f->scheme, "int%" PRId64 "%s", bits,
             bits == 8 ? ":packed" : "");
    if (word_is(w, "strategy", "tensor"))
        add_word(f, "group=tensor");
    else if ((rc = add_group(f, columns(scale), err)))
        return rc;
    if (find(r, f, ".weight_zero_point") != SIZE_MAX)
        add_word(f, "asym");
    if (find(r, f, ".weight_g_idx") != SIZE_MAX)
        add_word(f, "order");
    if (scale->dtype != TU_F32)
        add_word(f, "scale=%s", scale_word(scale));
    r->used[at] = true;
    return 0;
}

/* X.weight_packed: integers, or E2M1 with one of two kinds of scale. */
static int read_ct_packed(struct reader *r, struct found *f, struct tu_err *err)
{
    const struct tu_tensor *t = tensor(r, f->code);
    if (t->dtype != TU_U8)
        return read_packed_int(r, f, err);
    if (t->rank != 2)
        return tu_fail(err, TU_EFORMAT, "'%.80s' has %u dimensions, expected 2", t->name,
                       t->rank);
    f->dim[0] = t->dim[0];
    f->dim[1] = 2 * t->dim[1];
    snprintf(f->scheme, sizeof f->scheme, "%s",
             find(r, f, ".weight_global_scale") != SIZE_MAX ? "nvfp4_packed" : "mxfp4_packed");
    return 0;
}

/* X.weight with X.weight_scale. */
static int read_scaled(struct reader *r, struct found *f, struct tu_err *err)
{
    const struct tu_tensor *t = tensor(r, f->code);
    const struct tu_tensor *scale = tensor(r, find(r, f, ".weight_scale"));
    const bool e5m2 = t->dtype == TU_F8_E5M2, one = scale->bytes <= 4;
    f->dim[0] = t->dim[0];
    f->dim[1] = t->dim[1];
    if (scale->dtype == TU_U8 && t->dtype != TU_U8) {
        snprintf(f->scheme, sizeof f->scheme, "mxfp8%s", e5m2 ? ":elem=e5m2" : "");
    } else if (t->dtype == TU_I8) {
        snprintf(f->scheme, sizeof f->scheme, "int8");
        if (one)
            add_word(f, "group=tensor");
        else if (add_group(f, columns(scale), err))
            return TU_EFORMAT;
        if (find(r, f, ".weight_zero_point") != SIZE_MAX)
            add_word(f, "asym");
        if (scale->dtype != TU_F32)
            add_word(f, "scale=%s", scale_word(scale));
    } else if (t->dtype == TU_U8) {
        snprintf(f->scheme, sizeof f->scheme, "nvfp4_packed:global=modelopt");
        f->dim[1] *= 2;
    } else {
        snprintf(f->scheme, sizeof f->scheme, "fp8_%s%s", one ? "tensor" : "channel",
                 e5m2 ? ":elem=e5m2" : "");
    }
    return 0;
}

static int read_fp8_block(struct reader *r, struct found *f, struct tu_err *err)
{
    const struct tu_tensor *t = tensor(r, f->code);
    const json_t *b = json_object_get(r->config, "weight_block_size");
    (void)err;
    f->dim[0] = t->dim[0];
    f->dim[1] = t->dim[1];
    snprintf(f->scheme, sizeof f->scheme, "fp8_block:block=%dx%d%s",
             (int)(b ? json_integer_value(json_array_get(b, 0)) : 128),
             (int)(b ? json_integer_value(json_array_get(b, 1)) : 128),
             t->dtype == TU_F8_E5M2 ? ",elem=e5m2" : "");
    return 0;
}

/* GPTQ, AWQ, AutoRound ---------------------------------------------------------------------- */

static int read_qweight(struct reader *r, struct found *f, struct tu_err *err)
{
    const struct tu_tensor *t = tensor(r, f->code);
    const struct tu_tensor *scales = tensor(r, find(r, f, ".scales"));
    const char *packing = json_string_value(json_object_get(r->config, "packing_format"));
    const bool awq = word_is(r->config, "quant_method", "awq") ||
                     (packing && strstr(packing, "awq"));
    const int64_t bits = integer(r->config, "bits", integer(r->config, "w_bit", 4));
    if (!scales || scales->rank != 2 || t->rank != 2 || bits < 1 || bits > 8)
        return missing(f, ".scales", err);
    f->dim[0] = awq ? t->dim[1] * 8 : t->dim[1];
    f->dim[1] = awq ? t->dim[0] : t->dim[0] * 32 / (uint64_t)bits;
    snprintf(f->scheme, sizeof f->scheme, "%s%d", awq ? "awq" : "gptq", (int)bits);
    int rc = add_group(f, scales->dim[0], err);
    if (!rc && scales->dtype != TU_F16)
        add_word(f, "scale=%s", scale_word(scales));
    if (!awq && json_is_false(json_object_get(r->config, "sym")))
        add_word(f, "asym");
    if (!awq && word_is(r->config, "checkpoint_format", "gptq_v2"))
        add_word(f, "v2");
    return rc;
}

/* bitsandbytes ----------------------------------------------------------------------------- */

/* The state's JSON; *end names which of the two books. */
static int read_state(struct reader *r, const struct found *f, json_t **out, const char **book,
                      struct tu_err *err)
{
    static const char *const books[] = {"nf4", "fp4"};
    for (unsigned i = 0; i < 2; i++) {
        char end[64];
        snprintf(end, sizeof end, ".weight.quant_state.bitsandbytes__%s", books[i]);
        size_t at = find(r, f, end);
        if (at == SIZE_MAX)
            continue;
        uint64_t n = tu_min(r->in->tensor[at].bytes, 65536);
        char *text = tu_alloc((size_t)n, 1, err);
        int rc = text ? tu_source_read(r->in, at, 0, text, (size_t)n, err) : TU_ENOMEM;
        if (!rc)
            rc = tu_json_parse(out, text, (size_t)n, NULL, err);
        tu_free(text);
        r->used[at] = true;
        *book = books[i];
        return rc;
    }
    return missing(f, ".weight.quant_state", err);
}

static int read_bnb(struct reader *r, struct found *f, float *offset, struct tu_err *err)
{
    json_t *state = NULL;
    const char *book = "";
    int rc = read_state(r, f, &state, &book, err);
    const json_t *shape = json_object_get(state, "shape");
    const char *dtype = json_string_value(json_object_get(state, "dtype"));
    if (!rc && json_array_size(shape) != 2)
        rc = tu_fail(err, TU_EUNSUP, "'%.*s': its state has no shape of two dimensions",
                     (int)f->len, f->stem);
    if (!rc) {
        f->dim[0] = (uint64_t)json_integer_value(json_array_get(shape, 0));
        f->dim[1] = (uint64_t)json_integer_value(json_array_get(shape, 1));
        f->dtype = !dtype                        ? TU_F32
                   : !strcmp(dtype, "bfloat16") ? TU_BF16
                   : !strcmp(dtype, "float16")  ? TU_F16
                                                 : TU_F32;
        snprintf(f->scheme, sizeof f->scheme, "%s:block=%" PRId64, book,
                 integer(state, "blocksize", 64));
        if (find(r, f, ".weight.nested_absmax") != SIZE_MAX)
            add_word(f, "nested");
        *offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    }
    json_decref(state);
    return rc;
}

/* HQQ ----------------------------------------------------------------------------------- */

static int number_of(struct reader *r, const struct found *f, const char *end, size_t n,
                     int64_t *out, struct tu_err *err)
{
    unsigned char raw[16] = {0};
    size_t at = find(r, f, end);
    const struct tu_tensor *t = tensor(r, at);
    unsigned wide = t ? tu_dtype_find(t->dtype)->block_bytes : 0;
    if (!t || t->bytes != n * wide || t->bytes > sizeof raw)
        return missing(f, end, err);
    r->used[at] = true;
    int rc = tu_source_read(r->in, at, 0, raw, (size_t)t->bytes, err);
    return rc ? rc : tu_cast(TU_I64, out, t->dtype, raw, n, err);
}

static int read_hqq(struct reader *r, struct found *f, struct tu_err *err)
{
    static const char *const rest[] = {".packing", ".unpack_view_dtype", ".view_as_float",
                                       ".quant_scale", ".quant_zero", ".compute_dtype",
                                       ".offload_meta", ".encoded_state_dict",
                                       ".stores_quant_config", ".channel_wise", ".optimize",
                                       ".round_zero"};
    int64_t bits, group, axis, shape[2];
    const struct tu_tensor *scale = tensor(r, find(r, f, ".scale"));
    int rc = scale ? number_of(r, f, ".nbits", 1, &bits, err) : missing(f, ".scale", err);
    if (!rc)
        rc = number_of(r, f, ".group_size", 1, &group, err);
    if (!rc)
        rc = number_of(r, f, ".axis", 1, &axis, err);
    if (!rc)
        rc = number_of(r, f, ".shape", 2, shape, err);
    if (rc)
        return rc;
    f->dim[0] = (uint64_t)shape[0];
    f->dim[1] = (uint64_t)shape[1];
    snprintf(f->scheme, sizeof f->scheme,
             "hqq%" PRId64 ":group=%" PRId64 ",axis=%" PRId64 ",scale=%s", bits, group, axis,
             scale_word(scale));
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        size_t at = find(r, f, rest[i]);
        if (at != SIZE_MAX)
            r->used[at] = true;
    }
    return 0;
}

static const struct tui_deploy_part hqq_part[TUI_DEPLOY_PARTS] = {
    {"", ".W_q", 0}, {"scale", ".scale", 0}, {"zero", ".zero", 0}};

/* Putting together ------------------------------------------------------------------------ */

static int add_item(struct reader *r, const struct tu_view_item *v, struct tu_err *err)
{
    int rc = TU_GROW(&r->item, &r->cap, r->n, err);
    if (!rc)
        r->item[r->n++] = *v;
    return rc;
}

/* Sides that a file may leave out: the plain order of columns, bitsandbytes' offset. */
static int make_up(struct reader *r, const struct tu_coding *c, const struct tu_part *p,
                   struct tu_view_item *v, float offset, struct tu_err *err)
{
    unsigned char *data = tu_arena_alloc(r->arena, (size_t)p->bytes + 1, 1, err);
    if (!data)
        return TU_ENOMEM;
    if (strcmp(p->suffix, "gidx") == 0)
        for (uint64_t j = 0; j < c->cols; j++)
            tu_put32(data + 4 * j, (uint32_t)(j / tu_max(c->block[1], 1)));
    else
        memcpy(data, &offset, sizeof offset);
    v->data = data;
    return 0;
}

static int add_sides(struct reader *r, const struct found *f, const struct tu_coding *c,
                     const struct tui_deploy_part *part, const char *name, float offset,
                     struct tu_err *err)
{
    int rc = 0;
    for (unsigned k = 0; !rc && k < c->sides; k++) {
        const struct tu_part *p = &c->side[k];
        struct tu_view_item v = {.tensor = {.dtype = p->dtype, .rank = p->rank, .dim = p->dim,
                                            .bytes = p->bytes}};
        const struct tui_deploy_part *q = part;
        while (q->suffix && strcmp(q->suffix, p->suffix))
            q++;
        const char *end = q->suffix ? q->name : "";
        v.from = q->suffix ? find(r, f, end) : SIZE_MAX;
        v.tensor.name = tu_arena_printf(r->arena, err, "%s.%s", name, p->suffix);
        if (!v.tensor.name)
            return TU_ENOMEM;
        const struct tu_tensor *t = tensor(r, v.from);
        if (t && t->bytes != p->bytes)
            return tu_fail(err, TU_EFORMAT, "'%.80s': %llu bytes, expected %llu", t->name,
                           (unsigned long long)t->bytes, (unsigned long long)p->bytes);
        if (t)
            r->used[v.from] = true;
        else if (strcmp(p->suffix, "gidx") && strcmp(p->suffix, "offset"))
            return missing(f, end, err);
        else
            rc = make_up(r, c, p, &v, offset, err);
        if (!rc)
            rc = add_item(r, &v, err);
    }
    return rc;
}

static int add_coded(struct reader *r, const struct found *f, const struct tui_deploy_part *part,
                     float offset, struct tu_err *err)
{
    struct tu_coding *c = tu_arena_alloc(r->arena, 1, sizeof *c, err);
    struct tu_spec spec;
    struct tu_buf meta = {0}, quant = {0};
    char *name = c ? tu_arena_printf(r->arena, err, "%.*s.weight", (int)f->len, f->stem) : NULL;
    if (!name)
        return TU_ENOMEM;
    memset(c, 0, sizeof *c);
    int rc = tu_spec_parse(&spec, f->scheme, err);
    if (rc)
        return rc;
    rc = tu_coding_init(c, &spec, f->dim, 2, err);
    const struct tu_tensor *t = tensor(r, f->code);
    if (!rc && t->bytes != c->code.bytes)
        rc = tu_fail(err, TU_EFORMAT, "'%.80s': %llu bytes, expected %llu", t->name,
                     (unsigned long long)t->bytes, (unsigned long long)c->code.bytes);
    if (!rc)
        rc = tu_coding_meta(c, &spec, name, f->dtype, &quant, err);
    if (!rc)
        rc = tu_buf_printf(&meta, err, "{\"quant\":%s}", quant.data);
    struct tu_view_item v = {.from = f->code,
                             .tensor = {.name = name, .dtype = c->code.dtype,
                                        .rank = c->code.rank, .dim = c->code.dim}};
    if (!rc && !(v.tensor.meta = tu_arena_text(r->arena, meta.data, meta.n, err)))
        rc = TU_ENOMEM;
    r->used[f->code] = true;
    if (!rc)
        rc = add_item(r, &v, err);
    if (!rc)
        rc = add_sides(r, f, c, part, name, offset, err);
    tu_spec_release(&spec);
    tu_buf_release(&meta);
    tu_buf_release(&quant);
    if (rc)
        tu_err_prefix(err, "'%.80s'", name);
    return rc;
}

static int finish(struct reader *r, struct found *f, const struct tui_deploy_part *part,
                  float offset, struct tu_err *err)
{
    struct tu_spec spec;
    int rc = part ? 0 : tu_spec_parse(&spec, f->scheme, err);
    if (!rc && !part) {
        const struct tui_deploy *d = tui_deploy_find(&spec);
        part = d ? d->part : hqq_part;
        tu_spec_release(&spec);
    }
    return rc ? rc : add_coded(r, f, part, offset, err);
}

static bool ends(const char *name, const char *end, size_t *stem)
{
    size_t n = strlen(name), k = strlen(end);
    *stem = n > k && strcmp(name + n - k, end) == 0 ? n - k : 0;
    return *stem > 0;
}

/* Is tensor i the codes of something? Then it is added with its sides. */
static int read_one(struct reader *r, size_t i, bool *yes, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in->tensor[i];
    struct found f = {.stem = t->name, .code = i, .dtype = TU_BF16};
    float offset = 0;
    int rc = 0;
    *yes = true;
    if (ends(t->name, ".weight_packed", &f.len))
        rc = read_ct_packed(r, &f, err);
    else if (ends(t->name, ".qweight", &f.len))
        rc = read_qweight(r, &f, err);
    else if (ends(t->name, ".W_q", &f.len))
        rc = read_hqq(r, &f, err);
    else if (!ends(t->name, ".weight", &f.len) || t->rank != 2)
        *yes = false;
    else if (find(r, &f, ".weight.quant_map") != SIZE_MAX)
        rc = read_bnb(r, &f, &offset, err);
    else if (find(r, &f, ".weight_scale_inv") != SIZE_MAX)
        rc = read_fp8_block(r, &f, err);
    else if (find(r, &f, ".weight_scale") != SIZE_MAX)
        rc = read_scaled(r, &f, err);
    else
        *yes = false;
    if (!rc && *yes && find(r, &f, ".weight.quant_map") != SIZE_MAX)
        r->used[find(r, &f, ".weight.quant_map")] = true;
    return rc || !*yes ? rc : finish(r, &f, NULL, offset, err);
}

int tu_deploy_read(struct tu_source **out, struct tu_source *in, const json_t *config, bool *any,
                   struct tu_err *err)
{
    struct reader r = {.in = in, .config = config, .arena = tu_arena_new(err),
                       .used = tu_calloc(in->n + 1, sizeof *r.used, err)};
    int rc = r.arena && r.used ? 0 : TU_ENOMEM;
    *any = false;
    *out = in;
    for (size_t i = 0; !rc && i < in->n; i++) {
        bool yes;
        rc = read_one(&r, i, &yes, err);
        *any |= yes;
    }
    for (size_t i = 0; !rc && *any && i < in->n; i++)
        if (!r.used[i])
            rc = add_item(&r, &(struct tu_view_item){.tensor = in->tensor[i], .from = i}, err);
    if (!rc && *any)
        rc = tu_source_view(out, in, r.item, r.n, in->meta, in->metas, err);
    else if (rc)
        tu_source_close(in);
    tu_free(r.item);
    tu_free(r.used);
    tu_arena_free(r.arena);
    return rc;
}
