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

/* Texts and names that are not UTF-8 (sentencepiece models) cannot be JSON and stay
 * behind. */
int tu_ckpt_contents(const struct tu_ckpt *c, struct tu_buf *out, struct tu_err *err)
{
    const struct tu_save *save = c->from ? &c->file[0].save : NULL;
    struct tu_jw j;
    char dtype[8];
    tu_jw_begin(&j, out);
    tu_jw_open(&j, NULL, '{');
    tu_jw_open(&j, "tensors", '[');
    for (size_t i = 0; i < (save ? save->n : c->atoms); i++) {
        const struct tu_tensor *t = save ? &save->tensor[i] : &c->atom[i].tensor;
        tu_jw_open(&j, NULL, '[');
        tu_jw_str(&j, NULL, t->name);
        tu_jw_str(&j, NULL, tu_dtype_text(t->dtype, dtype));
        tu_jw_dims(&j, NULL, t->dim, t->rank);
        tu_jw_close(&j, ']');
    }
    tu_jw_close(&j, ']');
    tu_jw_close(&j, '}');
    return tu_jw_end(&j, err);
}

int tu_ckpt_files(const struct tu_ckpt *c, struct tu_buf *out, struct tu_err *err)
{
    json_t *root = json_object();
    int rc = root ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
    size_t total = 0;
    for (size_t i = 0; i < c->sides && !rc; i++) {
        const struct tu_side *s = &c->side[i];
        if (tu_json_holds(s->name, strlen(s->name)) && tu_json_holds(s->text, s->n) &&
            (total += s->n) <= (size_t)8 << 20)
            rc = tu_json_set(root, s->name, strlen(s->name), json_stringn(s->text, s->n),
                             err);
    }
    if (!rc)
        rc = tu_json_dump(out, root, err);
    json_decref(root);
    return rc;
}

static const char *word_of(uint32_t dtype)
{
    return dtype == TU_BF16  ? "bfloat16"
           : dtype == TU_F16 ? "float16"
           : dtype == TU_F32 ? "float32"
                             : NULL;
}

const char *tui_dtype_word(const struct tu_ckpt *c)
{
    return word_of(c->roles ? tui_plan_dtype(c, c->role[0].dtype) : TU_DTYPE_NONE);
}

/* A configuration's text with another word behind each "torch_dtype" and "dtype", of older
 * and newer versions of transformers; all else stays byte for byte. */
static int replace_dtype(struct tu_buf *out, const char *text, const char *word, bool *yes,
                         struct tu_err *err)
{
    const char *at = text, *key;
    int rc = 0;
    *yes = false;
    while (!rc && (key = strstr(at, "dtype\""))) {
        const char *end = key + 6, *v = end;
        bool ours = (key > text && key[-1] == '"') ||
                    (key - text > 6 && !memcmp(key - 7, "\"torch_", 7));
        v += strspn(v, " \t\r\n");
        ours = ours && *v == ':';
        v += ours;
        v += ours ? strspn(v, " \t\r\n") : 0;
        const char *close = ours && *v == '"' ? strchr(v + 1, '"') : NULL;
        rc = tu_buf_add(out, at, (size_t)((close ? v + 1 : end) - at), err);
        if (!rc && close)
            rc = tu_buf_text(out, word, err);
        *yes |= close != NULL;
        at = close ? close : end;
    }
    return rc ? rc : tu_buf_text(out, at, err);
}

int tui_config_dtype(struct tu_ckpt *c, struct tu_err *err)
{
    const char *word = word_of(c->dtype);
    int rc = 0;
    for (size_t i = 0; i < c->sides && word && !rc; i++) {
        struct tu_side *s = &c->side[i];
        const char *brace = strchr(s->text, '{');
        struct tu_buf b = {0};
        bool yes;
        if (strcmp(s->name, "config.json") || !brace)
            continue;
        rc = replace_dtype(&b, s->text, word, &yes, err);
        if (!rc && !yes) {
            tu_buf_reset(&b);
            rc = tu_buf_printf(&b, err, "%.*s{\n  \"torch_dtype\": \"%s\"%s%s",
                               (int)(brace - s->text), s->text, word,
                               brace[1 + strspn(brace + 1, " \t\r\n")] == '}' ? "" : ",",
                               brace + 1);
        }
        s->n = b.n;
        if (!rc && !(s->text = tu_arena_text(c->arena, b.data, b.n, err)))
            rc = TU_ENOMEM;
        tu_buf_release(&b);
    }
    return rc;
}

int tui_ensure_config(struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = 0;
    const struct tu_family *f = tu_family_find(c->model.family);
    if (!tui_side(c, "config.json") && f && f->hf_class && c->model.layers) {
        rc = tu_model_to_hf(&b, &c->model, tui_dtype_word(c), err);
        if (!rc)
            rc = tui_add_side(c, "config.json", b.data, b.n, err);
    }
    tu_buf_release(&b);
    return rc;
}
