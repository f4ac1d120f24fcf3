/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c: configuration tables read from and written to JSON. */

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"

/* The value of the first alternative that is there and not null. */
static json_t *find(const json_t *object, const char *keys, char key[64])
{
    for (const char *p = keys; *p;) {
        size_t n = strcspn(p, "|");
        snprintf(key, 64, "%.*s", (int)n, p);
        json_t *v = json_object_get(object, key);
        if (v && !json_is_null(v))
            return v;
        p += n + (p[n] == '|');
    }
    return NULL;
}

static int set(const struct tui_field *f, const char *key, const json_t *v,
               struct tu_model *m, struct tu_err *err)
{
    char *at = (char *)m + f->offset;
    switch (f->type) {
    case TUI_U64:
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) > 1 << 30)
            return tu_fail(err, TU_EFORMAT, "'%s': expected an integer from 0 to 2^30",
                           key);
        *(uint64_t *)(void *)at = (uint64_t)json_integer_value(v);
        return 0;
    case TUI_BOOL:
        if (!json_is_boolean(v))
            return tu_fail(err, TU_EFORMAT, "'%s': expected true or false", key);
        *(bool *)at = json_is_true(v);
        return 0;
    case TUI_REAL:
        if (!json_is_number(v))
            return tu_fail(err, TU_EFORMAT, "'%s': expected a number", key);
        *(double *)(void *)at = json_number_value(v);
        return 0;
    default:
        if (!json_is_string(v) || json_string_length(v) >= sizeof m->family)
            return tu_fail(err, TU_EFORMAT, "'%s': expected a text of at most %zu bytes",
                           key, sizeof m->family - 1);
        snprintf(at, sizeof m->family, "%s", json_string_value(v));
        return 0;
    }
}

int tui_fields_read(const struct tui_field *f, const struct json_t *object,
                    struct tu_model *m, struct tu_err *err)
{
    int rc = 0;
    for (; f->keys && !rc; f++) {
        char key[64];
        json_t *v = find(object, f->keys, key);
        if (v)
            rc = set(f, key, v, m, err);
    }
    return rc;
}

void tui_fields_write(struct tu_jw *w, const struct tui_field *f,
                      const struct tu_model *m, bool all)
{
    for (; f->keys; f++) {
        const char *at = (const char *)m + f->offset;
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(f->keys, "|"), f->keys);
        if (f->type == TUI_U64 && *(const uint64_t *)(const void *)at)
            tu_jw_u64(w, key, *(const uint64_t *)(const void *)at);
        else if (f->type == TUI_BOOL && (all || *(const bool *)at))
            tu_jw_bool(w, key, *(const bool *)at);
        else if (f->type == TUI_REAL && *(const double *)(const void *)at != 0.0)
            tu_jw_real(w, key, *(const double *)(const void *)at);
        else if (f->type == TUI_FAMILY && *at)
            tu_jw_str(w, key, at);
    }
}
