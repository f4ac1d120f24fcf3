/* SPDX-License-Identifier: Apache-2.0 */
/* meta.c: META and metadata as they stand after quantizing. */
#include "quantize/meta.h"
#include <jansson.h>
#include <string.h>

static int dump(struct tu_buf *out, json_t *o, struct tu_err *err)
{
    int rc =
        o ? tu_json_dump(out, o, err) : tu_fail(err, TU_ENOMEM, "no memory for metadata");
    json_decref(o);
    return rc;
}

int quant_meta(const struct tu_coding *c, const struct tu_spec *spec,
               const struct tu_tensor *t, struct tu_buf *out, struct tu_err *err)
{
    struct tu_buf quant = {0};
    json_t *own = NULL, *o = NULL;
    int rc = tu_coding_meta(c, spec, t->name, t->dtype, &quant, err);
    if (!rc)
        rc = tu_json_parse(&own, quant.data, quant.n, NULL, err);
    if (!rc && t->meta && *t->meta)
        rc = tu_json_parse(&o, t->meta, strlen(t->meta), NULL, err);
    else if (!rc)
        o = json_object();
    if (!rc && (!o || json_object_set(o, "quant", own)))
        rc = tu_fail(err, TU_ENOMEM, "no memory for metadata");
    if (!rc)
        rc = tu_json_dump(out, o, err);
    json_decref(own);
    json_decref(o);
    tu_buf_release(&quant);
    return rc;
}

int quant_change(const char *meta, struct tu_buf *out, struct tu_err *err)
{
    json_t *o = NULL;
    int rc = meta && *meta ? tu_json_parse(&o, meta, strlen(meta), NULL, err) : 0;
    if (rc)
        return rc;
    o = o ? o : json_object();
    if (json_object_set_new(o, "change", json_true())) {
        json_decref(o);
        return tu_fail(err, TU_ENOMEM, "no memory for metadata");
    }
    return dump(out, o, err);
}

int quant_from(const struct tu_spec *spec, const char *meta, struct tu_buf *out,
               struct tu_err *err)
{
    struct tu_buf scheme = {0};
    json_t *o = NULL, *own = json_object(), *list = json_array();
    int rc = tu_spec_print(spec, &scheme, err);
    if (!rc && meta && *meta)
        rc = tu_json_parse(&o, meta, strlen(meta), NULL, err);
    const json_t *old = json_object_get(o, "quant.from");
    bool bad = json_is_array(old) && json_array_extend(list, (json_t *)(uintptr_t)old);
    if (!rc && (bad || json_array_append_new(list, json_string(scheme.data)) ||
                json_object_set(own, "quant.from", list)))
        rc = tu_fail(err, TU_ENOMEM, "no memory for metadata");
    if (!rc)
        rc = tu_json_dump(out, own, err);
    json_decref(list);
    json_decref(own);
    json_decref(o);
    tu_buf_release(&scheme);
    return rc;
}

bool quant_is_change(const char *meta)
{
    return meta && strstr(meta, "\"change\":true");
}

static json_t *entry(const char *name, const char *suffix, uint32_t dtype,
                     const uint64_t *dim, unsigned rank)
{
    char code[8];
    json_t *shape = json_array();
    for (unsigned i = 0; i < rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)dim[i]));
    return json_pack("[s++,s,o]", name, suffix ? "." : "", suffix ? suffix : "",
                     tu_dtype_text(dtype, code), shape);
}

/* One tensor of the list becomes its codes and sides. */
static int one_entry(struct choosing *c, const json_t *e, json_t *to, struct tu_err *err)
{
    const char *name = json_string_value(json_array_get(e, 0));
    const char *dtype = json_string_value(json_array_get(e, 1));
    const json_t *shape = json_array_get(e, 2);
    const struct tu_dtype *d = dtype ? tu_dtype_named(dtype) : NULL;
    uint64_t dim[TU_RANK_MAX];
    struct tu_tensor t = {
        .name = name, .dim = dim, .rank = (uint32_t)json_array_size(shape)};
    struct task task;
    if (!name || !d || t.rank > TU_RANK_MAX)
        return tu_fail(err, TU_EMETA, "META contents: malformed entry");
    for (unsigned i = 0; i < t.rank; i++)
        dim[i] = (uint64_t)json_integer_value(json_array_get(shape, i));
    t.dtype = d->code;
    int rc = task_begin(&task, c, &t, err);
    if (rc)
        return rc;
    const struct tu_coding *g = &task.coding;
    if (!task.codec)
        json_array_append_new(
            to, entry(name, NULL, task.cast ? task.cast : t.dtype, dim, t.rank));
    else
        json_array_append_new(
            to, entry(name, NULL, g->code.dtype, g->code.dim, g->code.rank));
    for (unsigned k = 0; task.codec && k < g->sides; k++)
        json_array_append_new(to, entry(name, g->side[k].suffix, g->side[k].dtype,
                                        g->side[k].dim, g->side[k].rank));
    task_end(&task);
    return 0;
}

int quant_contents(struct choosing *c, const char *json, size_t n, struct tu_buf *out,
                   struct tu_err *err)
{
    json_t *o, *to = json_array();
    int rc = tu_json_parse(&o, json, n, NULL, err);
    if (rc) {
        json_decref(to);
        return rc;
    }
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(o, "tensors"), i,
                       e) if ((rc = one_entry(c, e, to, err))) break;
    json_object_set_new(o, "tensors", to);
    if (!rc)
        return dump(out, o, err);
    json_decref(o);
    return rc;
}

int quant_gguf(const struct choosing *c, const char *json, size_t n, struct tu_buf *out,
               struct tu_err *err)
{
    enum {
        U32 = 4,
        BLOCK_FORMATS = 2
    }; /* GGUF's number of the type; general.quantization_version */
    json_t *o;
    int rc = tu_json_parse(&o, json, n, NULL, err);
    if (rc)
        return rc;
    int type = tu_recipe_file_type(c->recipe);
    if (type >= 0)
        json_object_set_new(o, "general.file_type", json_pack("[i,i]", U32, type));
    json_object_set_new(o, "general.quantization_version",
                        json_pack("[i,i]", U32, BLOCK_FORMATS));
    return dump(out, o, err);
}

int quant_plain_files(const char *json, size_t n, struct tu_buf *out, struct tu_err *err)
{
    static const char *const gone[] = {"quantize_config.json", "quant_config.json"};
    json_t *files, *config = NULL;
    struct tu_buf text = {0};
    int rc = tu_json_parse(&files, json, n, NULL, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        json_object_del(files, gone[i]);
    const json_t *s = json_object_get(files, "config.json");
    if (s)
        rc = tu_json_parse(&config, json_string_value(s), json_string_length(s), NULL, err);
    if (!rc && config &&
        (json_object_del(config, "quantization_config") == 0 ||
         json_object_del(config, "compression_config") == 0) &&
        !(rc = tu_json_dump(&text, config, err)) &&
        json_object_set_new(files, "config.json", json_stringn(text.data, text.n)))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    tu_buf_release(&text);
    json_decref(config);
    if (!rc)
        return dump(out, files, err);
    json_decref(files);
    return rc;
}
