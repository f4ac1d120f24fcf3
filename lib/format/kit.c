/* SPDX-License-Identifier: Apache-2.0 */
/* kit.c: what the formats share: sources made and freed, META merged, names sorted.
 *
 * Not for anything that knows one format. */
#include <stdlib.h>
#include "kit.h"

void *tui_source_new(size_t size, const struct tu_format *format,
                     const struct tu_source_ops *ops, const char *path, struct tu_err *err)
{
    struct tu_source *s = tu_calloc(1, size, err);
    if (!s)
        return NULL;
    s->format = format;
    s->ops = ops;
    s->arena = tu_arena_new(err);
    s->path = s->arena ? tu_strdup(path, err) : NULL;
    if (!s->path) {
        tui_source_free(s);
        return NULL;
    }
    return s;
}

void tui_source_free(struct tu_source *s)
{
    if (!s)
        return;
    tu_arena_free(s->arena);
    tu_free(s->path);
    tu_free(s);
}

int tui_source_meta(struct tu_source *s, const char *topic, const char *json, size_t n,
                    struct tu_err *err)
{
    /* The array is moved when its length is a power of two: it lives in the arena. */
    if (!(s->metas & (s->metas - 1))) {
        size_t cap = s->metas ? 2 * s->metas : 1;
        struct tu_meta *more = tu_arena_alloc(s->arena, cap, sizeof *more, err);
        if (!more)
            return TU_ENOMEM;
        if (s->metas)
            memcpy(more, s->meta, s->metas * sizeof *more);
        s->meta = more;
    }
    struct tu_meta m = { .n = n };
    m.topic = tu_arena_text(s->arena, topic, strlen(topic), err);
    m.json = m.topic ? tu_arena_text(s->arena, json, n, err) : NULL;
    if (!m.json)
        return TU_ENOMEM;
    ((struct tu_meta *)s->meta)[s->metas++] = m;
    return 0;
}

int tui_meta_merge(json_t **out, const struct tu_meta *meta, size_t n, const char *topic,
                   struct tu_err *err)
{
    static const struct tu_json_limits limits = {
        .bytes = TUI_META_MAX, .depth = TU_JSON_DEPTH_META, .object = true };
    json_t *all = json_object();
    if (!all)
        return tu_fail(err, TU_ENOMEM, "META '%s': out of memory", topic);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(meta[i].topic, topic))
            continue;
        json_t *one = NULL;
        int code = tu_json_parse(&one, meta[i].json, meta[i].n, &limits, err);
        if (code)
            tu_err_prefix(err, "META '%s'", topic);
        else if (json_object_update(all, one))
            code = tu_fail(err, TU_ENOMEM, "META '%s': out of memory", topic);
        json_decref(one);
        if (code) {
            json_decref(all);
            return code;
        }
    }
    *out = all;
    return 0;
}

/* names ---------------------------------------------------------------------------------------- */

static int by_name(const void *pa, const void *pb)
{
    const struct tui_name *a = pa, *b = pb;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->i > b->i) - (a->i < b->i);
}

int tui_names_make(struct tui_names *x, const struct tu_tensor *t, size_t n, struct tu_err *err)
{
    *x = (struct tui_names){ .n = n };
    x->item = tu_alloc(n, sizeof *x->item, err);
    if (!x->item)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++)
        x->item[i] = (struct tui_name){ t[i].name, i };
    qsort(x->item, n, sizeof *x->item, by_name);
    return 0;
}

void tui_names_release(struct tui_names *x)
{
    tu_free(x->item);
    *x = (struct tui_names){ 0 };
}

size_t tui_names_find(const struct tui_names *x, const char *name)
{
    size_t lo = 0, hi = x->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(x->item[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < x->n && !strcmp(x->item[lo].name, name) ? x->item[lo].i : SIZE_MAX;
}

const char *tui_names_twin(const struct tui_names *x)
{
    for (size_t i = 1; i < x->n; i++) {
        if (!strcmp(x->item[i - 1].name, x->item[i].name))
            return x->item[i].name;
    }
    return NULL;
}

size_t tui_number_bytes(uint32_t dtype)
{
    size_t elem = tu_dtype_find(dtype)->block_bytes;
    return dtype == TU_C64 || dtype == TU_C128 ? elem / 2 : elem;
}

void tui_swap(void *p, size_t n, uint32_t dtype)
{
    unsigned char *b = p;
    size_t unit = tui_number_bytes(dtype);
    for (size_t i = 0; i + unit <= n; i += unit) {
        for (size_t k = 0; k < unit / 2; k++) {
            unsigned char t = b[i + k];
            b[i + k] = b[i + unit - 1 - k];
            b[i + unit - 1 - k] = t;
        }
    }
}

int tui_fail_char(struct tu_err *err, const char *text, size_t n, size_t pos, size_t base,
                  const char *expected)
{
    unsigned long long at = base + pos;
    if (pos >= n)
        return tu_fail_at(err, TU_EFORMAT, at, "header ends at byte %llu, expected %s", at,
                          expected);
    unsigned char c = (unsigned char)text[pos];
    if (c < 0x20 || c >= 0x7f)
        return tu_fail_at(err, TU_EFORMAT, at, "header byte %llu is 0x%02x, expected %s", at, c,
                          expected);
    return tu_fail_at(err, TU_EFORMAT, at, "header byte %llu is '%c', expected %s", at, c,
                      expected);
}
