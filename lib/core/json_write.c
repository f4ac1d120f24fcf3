/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.c: canonical JSON, and the writer of reports.
 *
 * Canonical text is what Python's json.dumps(sort_keys=True, separators=(",", ":"),
 * ensure_ascii=False) prints, byte for byte: equal metadata gives equal bytes, whoever
 * wrote them. Jansson's own dump (\u001F, 0.10000000000000001) is not used. */
#include <tensorutils/core.h>

#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Reals ---------------------------------------------------------------------------- */

/* d1.d2d3… × 10^exp. */
struct decimal {
    char digit[18];
    int n;
    int exp;
};

/* v > 0 correctly rounded to n digits. */
static void round_to(struct decimal *d, double v, int n)
{
    char text[32]; /* d.ddde-308 */
    snprintf(text, sizeof text, "%.*e", n - 1, v);
    d->n = n;
    d->digit[0] = text[0];
    if (n > 1)
        memcpy(d->digit + 1, text + 2, (size_t)n - 1);
    d->exp = atoi(strchr(text, 'e') + 1);
}

static double value(const struct decimal *d)
{
    char text[32];
    snprintf(text, sizeof text, "%.*se%d", d->n, d->digit, d->exp - d->n + 1);
    return strtod(text, NULL);
}

/* The next decimal of as many digits. */
static void step_up(struct decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digit[i] == '9')
        d->digit[i--] = '0';
    if (i >= 0) {
        d->digit[i]++;
    } else {
        d->digit[0] = '1';
        d->exp++;
    }
}

/* The fewest digits that read back as v > 0. A normal double whose shortest form has less
 * than 15 digits is found at 15, with zeros behind. Where v is a power of two, the
 * doubles below are twice as dense as those above: the decimal just above v may read back
 * where the nearest one does not. */
static void shortest(struct decimal *d, double v)
{
    for (int n = v < DBL_MIN ? 1 : 15; n < 17; n++) {
        round_to(d, v, n);
        if (value(d) == v)
            return;
        int exp;
        if (frexp(v, &exp) == 0.5) {
            step_up(d);
            if (value(d) == v)
                return;
        }
    }
    round_to(d, v, 17);
}

void tu_json_real(double v, char out[32])
{
    char *p = out;
    if (signbit(v))
        *p++ = '-';
    v = fabs(v);
    if (v == 0) {
        strcpy(p, "0.0");
        return;
    }
    struct decimal d;
    shortest(&d, v);
    while (d.n > 1 && d.digit[d.n - 1] == '0')
        d.n--;
    if (d.exp < -4 || d.exp >= 16) {
        *p++ = d.digit[0];
        if (d.n > 1)
            p += sprintf(p, ".%.*s", d.n - 1, d.digit + 1);
        sprintf(p, "e%c%02d", d.exp < 0 ? '-' : '+', abs(d.exp));
    } else if (d.exp < 0) {
        sprintf(p, "0.%.*s%.*s", -d.exp - 1, "000", d.n, d.digit);
    } else if (d.n > d.exp + 1) {
        int whole = d.exp + 1;
        sprintf(p, "%.*s.%.*s", whole, d.digit, d.n - whole, d.digit + whole);
    } else {
        sprintf(p, "%.*s%.*s.0", d.n, d.digit, d.exp + 1 - d.n, "000000000000000");
    }
}

/* Strings -------------------------------------------------------------------------- */

static const char *escape(unsigned char c, char out[8])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    }
    if (c >= 0x20)
        return NULL;
    snprintf(out, 8, "\\u%04x", c);
    return out;
}

int tu_json_string(struct tu_buf *out, const char *s, size_t n, struct tu_err *err)
{
    int rc = tu_buf_text(out, "\"", err);
    size_t good = tu_utf8_check(s, n);
    for (size_t i = 0, plain = 0; !rc && i <= n; i++) {
        char room[8];
        bool bad = i == good && i < n;
        const char *other = i == n ? "\""
                            : bad  ? "\xef\xbf\xbd"
                                   : escape((unsigned char)s[i], room);
        if (!other)
            continue;
        rc = tu_buf_add(out, s + plain, i - plain, err);
        if (!rc)
            rc = tu_buf_text(out, other, err);
        plain = i + 1;
        if (bad)
            good = plain + tu_utf8_check(s + plain, n - plain);
    }
    return rc;
}

/* Values --------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int dump_object(struct tu_buf *out, const json_t *v, struct tu_err *err)
{
    size_t n = json_object_size(v);
    const char **key = tu_alloc(n, sizeof *key, err);
    if (!key)
        return TU_ENOMEM;
    json_t *o = (json_t *)(uintptr_t)v; /* iterators take no const, but change nothing */
    size_t i = 0;
    for (void *it = json_object_iter(o); it && i < n; it = json_object_iter_next(o, it))
        key[i++] = json_object_iter_key(it);
    qsort(key, n, sizeof *key, by_bytes);

    int rc = tu_buf_text(out, "{", err);
    for (i = 0; !rc && i < n; i++) {
        if (i)
            rc = tu_buf_text(out, ",", err);
        if (!rc)
            rc = tu_json_string(out, key[i], strlen(key[i]), err);
        if (!rc)
            rc = tu_buf_text(out, ":", err);
        if (!rc)
            rc = tu_json_dump(out, json_object_get(v, key[i]), err);
    }
    tu_free(key);
    return rc ? rc : tu_buf_text(out, "}", err);
}

static int dump_array(struct tu_buf *out, const json_t *v, struct tu_err *err)
{
    int rc = tu_buf_text(out, "[", err);
    for (size_t i = 0; !rc && i < json_array_size(v); i++) {
        if (i)
            rc = tu_buf_text(out, ",", err);
        if (!rc)
            rc = tu_json_dump(out, json_array_get(v, i), err);
    }
    return rc ? rc : tu_buf_text(out, "]", err);
}

static int dump_real(struct tu_buf *out, double v, struct tu_err *err)
{
    char text[32];
    if (!isfinite(v))
        return tu_fail(err, TU_EMETA, "%g has no JSON form", v);
    tu_json_real(v, text);
    return tu_buf_text(out, text, err);
}

int tu_json_dump(struct tu_buf *out, const struct json_t *v, struct tu_err *err)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return dump_object(out, v, err);
    case JSON_ARRAY: return dump_array(out, v, err);
    case JSON_STRING:
        return tu_json_string(out, json_string_value(v), json_string_length(v), err);
    case JSON_INTEGER:
        return tu_buf_printf(out, err, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL: return dump_real(out, json_real_value(v), err);
    case JSON_TRUE: return tu_buf_text(out, "true", err);
    case JSON_FALSE: return tu_buf_text(out, "false", err);
    case JSON_NULL: break;
    }
    return tu_buf_text(out, "null", err);
}

/* Texts from outside ---------------------------------------------------------------- */

bool tu_json_holds(const char *s, size_t n)
{
    return tu_utf8_check(s, n) == n && !(n && memchr(s, 0, n));
}

static int bad_text(const char *s, size_t n, struct tu_err *err)
{
    char shown[88];
    size_t at = tu_utf8_check(s, n);
    const char *why = at < n ? "is no UTF-8" : "has a NUL";
    if (at == n)
        at = (size_t)((const char *)memchr(s, 0, n) - s);
    return tu_fail(err, TU_EMETA, "'%s' %s: byte %zu", tu_text_short(s, n, shown), why, at);
}

int tu_json_text(json_t **out, const char *s, size_t n, struct tu_err *err)
{
    *out = NULL;
    if (!tu_json_holds(s, n))
        return bad_text(s, n, err);
    *out = json_stringn(s, n);
    return *out ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
}

int tu_json_set(json_t *object, const char *key, size_t n, json_t *v, struct tu_err *err)
{
    if (!tu_json_holds(key, n)) {
        json_decref(v);
        return bad_text(key, n, err);
    }
    return json_object_set_new(object, key, v)
               ? tu_fail(err, TU_ENOMEM, "out of memory")
               : 0;
}

int tu_json_append(json_t *list, json_t *v, struct tu_err *err)
{
    return json_array_append_new(list, v) ? tu_fail(err, TU_ENOMEM, "out of memory") : 0;
}

/* Reports -------------------------------------------------------------------------- */

void tu_jw_begin(struct tu_jw *w, struct tu_buf *out)
{
    *w = (struct tu_jw){.out = out};
}

static void put(struct tu_jw *w, const char *text)
{
    if (!w->code)
        w->code = tu_buf_text(w->out, text, &w->err);
}

static void put_string(struct tu_jw *w, const char *s)
{
    if (!w->code)
        w->code = tu_json_string(w->out, s, strlen(s), &w->err);
}

/* What stands before a value: the comma, and the key inside an object. */
static void lead(struct tu_jw *w, const char *key)
{
    if (w->comma)
        put(w, ",");
    w->comma = true;
    if (key) {
        put_string(w, key);
        put(w, ":");
    }
}

void tu_jw_open(struct tu_jw *w, const char *key, char bracket)
{
    lead(w, key);
    put(w, (char[]){bracket, '\0'});
    w->comma = false;
    w->depth++;
}

void tu_jw_close(struct tu_jw *w, char bracket)
{
    put(w, (char[]){bracket, '\0'});
    w->comma = true;
    w->depth--;
}

void tu_jw_raw(struct tu_jw *w, const char *key, const char *json)
{
    lead(w, key);
    put(w, json);
}

void tu_jw_str(struct tu_jw *w, const char *key, const char *value_or_null)
{
    if (!value_or_null) {
        tu_jw_null(w, key);
        return;
    }
    lead(w, key);
    put_string(w, value_or_null);
}

void tu_jw_u64(struct tu_jw *w, const char *key, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    tu_jw_raw(w, key, text);
}

void tu_jw_i64(struct tu_jw *w, const char *key, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, v);
    tu_jw_raw(w, key, text);
}

void tu_jw_real(struct tu_jw *w, const char *key, double v)
{
    char text[32];
    if (isnan(v)) {
        tu_jw_str(w, key, "nan");
    } else if (isinf(v)) {
        tu_jw_str(w, key, v < 0 ? "-inf" : "inf");
    } else {
        tu_json_real(v, text);
        tu_jw_raw(w, key, text);
    }
}

void tu_jw_bool(struct tu_jw *w, const char *key, bool v)
{
    tu_jw_raw(w, key, v ? "true" : "false");
}

void tu_jw_null(struct tu_jw *w, const char *key)
{
    tu_jw_raw(w, key, "null");
}

void tu_jw_dims(struct tu_jw *w, const char *key, const uint64_t *dim, unsigned rank)
{
    tu_jw_open(w, key, '[');
    for (unsigned i = 0; i < rank; i++)
        tu_jw_u64(w, NULL, dim[i]);
    tu_jw_close(w, ']');
}

int tu_jw_end(struct tu_jw *w, struct tu_err *err)
{
    if (!w->code && w->depth)
        w->code = tu_fail(&w->err, TU_EBUG, "a report was ended with %u brackets open",
                          w->depth);
    if (w->code && err)
        *err = w->err;
    return w->code;
}
