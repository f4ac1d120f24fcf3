/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: Jansson behind our limits.
 *
 * The text is scanned once before Jansson sees it: what Jansson does not judge (depth,
 * plain integers) is judged there, without allocating. Jansson then does the rest:
 * syntax, UTF-8, duplicate keys, integers that fit 64 bits, nothing after the value.
 *
 * Jansson allocates through hooks, so that failure injection reaches it. Jansson 2.14
 * does not notice when the buffer of the token it is reading cannot grow: a string would
 * lose bytes and then be read past its end, a number would trip an assertion. So a failed
 * allocation does not return to it: the parse is left by longjmp and the blocks it has
 * asked for, which are kept in a list, are freed. The parse at work is a thread-local
 * pointer, since the hooks are given no context; outside of a parse they are plain malloc
 * and free. */
#include <tensorutils/core.h>
#include "mem_hook.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>

enum {
    BYTES_DEFAULT = 16 << 20,
    DEPTH_DEFAULT = 64,
    DEPTH_MOST = 2000, /* Jansson's own limit is 2048 */
};

struct parse {
    jmp_buf no_memory;
    void **block; /* what Jansson holds, in the order it asked; NULL where it gave back */
    size_t n, cap;
};

static _Thread_local struct parse *at_work;

static void *hook_alloc(size_t n)
{
    struct parse *p = at_work;
    if (!p)
        return tui_malloc(n);
    if (TU_GROW(&p->block, &p->cap, p->n, NULL) || !(p->block[p->n] = tui_malloc(n)))
        longjmp(p->no_memory, 1);
    return p->block[p->n++];
}

/* Most of what a parse gives back is recent: keys, buffers that grew. */
static void hook_free(void *m)
{
    struct parse *p = at_work;
    for (size_t i = p && m ? p->n : 0; i-- > 0;) {
        if (p->block[i] != m)
            continue;
        p->block[i] = NULL;
        while (p->n && !p->block[p->n - 1])
            p->n--;
        break;
    }
    tui_mfree(m);
}

static void hook(void)
{
    json_set_alloc_funcs(hook_alloc, hook_free);
}

/* *v is NULL where the text is wrong; false when memory ended. p is zero, and the
 * caller's: what a function with setjmp holds itself is not defined after longjmp. */
static bool load(struct parse *p, json_t **v, const char *text, size_t n,
                 json_error_t *why)
{
    static pthread_once_t hooked = PTHREAD_ONCE_INIT;
    pthread_once(&hooked, hook);
    if (setjmp(p->no_memory)) {
        at_work = NULL;
        for (size_t i = 0; i < p->n; i++)
            tui_mfree(p->block[i]);
        tu_free(p->block);
        return false;
    }
    at_work = p;
    *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, why);
    at_work = NULL;
    tu_free(p->block);
    return true;
}

/* Where the scan stands. */
struct scan {
    const char *text;
    size_t n;
    size_t i;
    const struct tu_json_limits *limits;
};

static int refuse(const struct scan *s, const char *what, struct tu_err *err)
{
    size_t line = 1, start = 0;
    for (size_t i = 0; i < s->i; i++) {
        if (s->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return tu_fail_at(err, TU_EMETA, s->i, "JSON line %zu column %zu (byte %zu): %s",
                      line, s->i - start + 1, s->i, what);
}

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' ||
           c == 'E';
}

/* The number at s->i; s->i moves behind it. Its grammar is Jansson's business. */
static int scan_number(struct scan *s, struct tu_err *err)
{
    size_t begin = s->i, end = begin;
    bool real = false;
    for (; end < s->n && in_number(s->text[end]); end++)
        real |= s->text[end] == '.' || s->text[end] == 'e' || s->text[end] == 'E';
    if (s->limits->plain_integers) {
        if (real)
            return refuse(s, "a real number where only integers may stand", err);
        if (end - begin == 2 && s->text[begin] == '-' && s->text[begin + 1] == '0')
            return refuse(s, "-0 where only integers may stand", err);
    }
    s->i = end;
    return 0;
}

/* The string whose opening quote is at s->i; s->i moves behind it (or to the end of the
 * text). Jansson refuses NUL with words about its own flags. */
static int scan_string(struct scan *s, struct tu_err *err)
{
    for (s->i++; s->i < s->n && s->text[s->i] != '"'; s->i++) {
        if (s->text[s->i] != '\\')
            continue;
        if (s->n - s->i >= 6 && !memcmp(s->text + s->i, "\\u0000", 6))
            return refuse(s, "\\u0000, a NUL in a text", err);
        s->i++;
    }
    s->i = s->i < s->n ? s->i + 1 : s->n;
    return 0;
}

static int scan(struct scan *s, struct tu_err *err)
{
    unsigned most = s->limits->depth ? s->limits->depth : DEPTH_DEFAULT;
    unsigned depth = 0;
    if (most > DEPTH_MOST)
        most = DEPTH_MOST;
    if (s->n >= 3 && !memcmp(s->text, "\xef\xbb\xbf", 3))
        return refuse(s, "begins with a byte order mark", err);
    while (s->i < s->n) {
        char c = s->text[s->i];
        if (c == '"') {
            int rc = scan_string(s, err);
            if (rc)
                return rc;
            continue;
        }
        if (c == '-' || (c >= '0' && c <= '9')) {
            int rc = scan_number(s, err);
            if (rc)
                return rc;
            continue;
        }
        if ((c == '{' || c == '[') && depth++ == most) {
            char what[64];
            snprintf(what, sizeof what, "nested deeper than %u", most);
            return refuse(s, what, err);
        }
        if ((c == '}' || c == ']') && depth)
            depth--;
        s->i++;
    }
    return 0;
}

static int jansson_failed(const json_error_t *e, size_t n, struct tu_err *err)
{
    char shown[88];
    size_t at = e->position < 0 ? 0 : (size_t)e->position;
    return tu_fail_at(err, TU_EMETA, at > n ? n : at,
                      "JSON line %d column %d (byte %zu): %s", e->line < 1 ? 1 : e->line,
                      e->column < 1 ? 1 : e->column, at > n ? n : at,
                      tu_text_short(e->text, strlen(e->text), shown));
}

int tu_json_parse(struct json_t **out, const char *text, size_t n,
                  const struct tu_json_limits *limits, struct tu_err *err)
{
    static const struct tu_json_limits none = {0};
    if (!limits)
        limits = &none;
    size_t most = limits->bytes ? limits->bytes : BYTES_DEFAULT;
    if (n > most)
        return tu_fail(err, TU_ELIMIT, "JSON of %zu bytes, at most %zu are read", n,
                       most);
    struct scan s = {.text = text, .n = n, .limits = limits};
    int rc = scan(&s, err);
    if (rc)
        return rc;

    json_t *v = NULL;
    json_error_t why = {0};
    struct parse work = {.n = 0};
    if (!load(&work, &v, text, n, &why))
        return tu_fail(err, TU_ENOMEM, "out of memory reading %zu bytes of JSON", n);
    if (!v)
        return jansson_failed(&why, n, err);
    if (limits->object && !json_is_object(v)) {
        json_decref(v);
        s.i = 0;
        return refuse(&s, "the value is no object", err);
    }
    *out = v;
    return 0;
}

int tu_json_copy(json_t **out, const json_t *v, struct tu_err *err)
{
    *out = json_deep_copy(v);
    if (*out && json_equal(v, *out))
        return 0;
    json_decref(*out);
    *out = NULL;
    return tu_fail(err, TU_ENOMEM, "out of memory");
}

bool tu_json_count(const struct json_t *v, uint64_t *out)
{
    if (json_is_integer(v)) {
        *out = (uint64_t)json_integer_value(v);
        return json_integer_value(v) >= 0;
    }
    return json_is_string(v) && !tu_parse_u64(json_string_value(v), out, NULL) &&
           *out <= TU_SIZE_MAX;
}
