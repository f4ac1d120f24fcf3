/* SPDX-License-Identifier: Apache-2.0 */
/* side.c: the small files that travel with a model: as META "files" and back, made where
 * missing. */

#include <jansson.h>
#include <string.h>

#include "ckpt.h"

int tui_sides_from_meta(struct tu_ckpt *c, const char *json, size_t n, struct tu_err *err)
{
    json_t *root = NULL, *value;
    const char *name;
    struct tu_json_limits limits = {.bytes = (size_t)16 << 20, .object = true};
    int rc = tu_json_parse(&root, json, n, &limits, err);
    if (rc)
        return rc;
    json_object_foreach(root, name, value)
    {
        if (!json_is_string(value) || strchr(name, '/') || *name == '.')
            rc = tu_fail(err, TU_EMETA,
                         "META files: '%.80s' is no plain file name with a text", name);
        else
            rc = tui_add_side(c, name, json_string_value(value),
                              json_string_length(value), err);
        if (rc)
            break;
    }
    json_decref(root);
    return rc;
}

/* Texts that are not UTF-8 (sentencepiece models) cannot be JSON and stay behind. */
int tu_ckpt_files(const struct tu_ckpt *c, struct tu_buf *out, struct tu_err *err)
{
    json_t *root = json_object();
    int rc = root ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
    size_t total = 0;
    for (size_t i = 0; i < c->sides && !rc; i++) {
        const struct tu_side *s = &c->side[i];
        if (memchr(s->text, 0, s->n) || tu_utf8_check(s->text, s->n) != s->n ||
            (total += s->n) > (size_t)8 << 20)
            continue;
        if (json_object_set_new(root, s->name, json_stringn(s->text, s->n)))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
    }
    if (!rc)
        rc = tu_json_dump(out, root, err);
    json_decref(root);
    return rc;
}

const char *tui_dtype_word(const struct tu_ckpt *c)
{
    uint32_t dtype = c->roles ? tui_plan_dtype(c, c->role[0].dtype) : TU_DTYPE_NONE;
    return dtype == TU_BF16  ? "bfloat16"
           : dtype == TU_F16 ? "float16"
           : dtype == TU_F32 ? "float32"
                             : NULL;
}

int tui_ensure_config(struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = 0;
    if (!tui_side(c, "config.json") && tu_family_find(c->model.family) &&
        c->model.layers) {
        rc = tu_model_to_hf(&b, &c->model, tui_dtype_word(c), err);
        if (!rc)
            rc = tui_add_side(c, "config.json", b.data, b.n, err);
    }
    tu_buf_release(&b);
    return rc;
}
