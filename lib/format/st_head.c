/* SPDX-License-Identifier: Apache-2.0 */
/* st_head.c: the JSON header of a safetensors file.
 *
 * Its own scanner, because a header may be 100 MB of 100,000s of entries of one fixed
 * shape, whose numbers must stay exact and whose names are compared after unescaping.
 * Where it is stricter than the reference library it says so. Not for other JSON: see
 * core/json.h. */
#include <stdlib.h>
#include "kit.h"
#include "st_head.h"

#define PREFIX 8 /* bytes before the header, for offsets in messages */
#define SKIP_DEPTH 32

struct scan {
    const char *text;
    size_t n, pos;
    struct tu_arena *arena;
    struct tu_buf tmp; /* a string while it is unescaped */
    struct tu_err *err;
    struct tui_st_entry *entry;
    size_t cap, count;
    struct pair {
        const char *key, *value;
        size_t key_len, value_len, order;
    } *pair; /* of __metadata__ */
    size_t pair_cap, pairs;
    bool metadata, nothing; /* it stands there, as null */
};

/* tokens --------------------------------------------------------------------------------------- */

static int fail_here(struct scan *s, const char *expected)
{
    return tui_fail_char(s->err, s->text, s->n, s->pos, PREFIX, expected);
}

static char peek(struct scan *s)
{
    while (s->pos < s->n && strchr(" \t\r\n", s->text[s->pos]) && s->text[s->pos])
        s->pos++;
    return s->pos < s->n ? s->text[s->pos] : 0;
}

static int expect(struct scan *s, char c, const char *name)
{
    if (peek(s) != c)
        return fail_here(s, name);
    s->pos++;
    return 0;
}

/* After an item: *more says that another one follows, and the cursor stands before it. */
static int after_item(struct scan *s, char close, bool *more)
{
    char c = peek(s);
    if (c != ',' && c != close)
        return fail_here(s, close == '}' ? "',' or '}'" : "',' or ']'");
    s->pos++;
    *more = c == ',';
    return 0;
}

static int hex4(struct scan *s, unsigned *out)
{
    *out = 0;
    for (int k = 0; k < 4; k++, s->pos++) {
        char c = s->pos < s->n ? s->text[s->pos] : 0;
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                            : 16;
        if (d == 16)
            return fail_here(s, "four hexadecimal digits");
        *out = *out << 4 | d;
    }
    return 0;
}

static int add_utf8(struct scan *s, unsigned c)
{
    char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t k = n; k-- > 1; c >>= 6)
        u[k] = (char)(0x80 | (c & 0x3f));
    u[0] = (char)(lead[n] | c);
    return tu_buf_add(&s->tmp, u, n, s->err);
}

/* One escape, the cursor behind its backslash. */
static int unescape(struct scan *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = s->pos < s->n ? s->text[s->pos] : 0;
    const char *f = c ? strchr(from, c) : NULL;
    if (f) {
        s->pos++;
        return tu_buf_add(&s->tmp, to + (f - from), 1, s->err);
    }
    if (c != 'u')
        return fail_here(s, "an escape");
    s->pos++;
    unsigned hi, lo;
    int code = hex4(s, &hi);
    if (code)
        return code;
    if (hi < 0xd800 || hi > 0xdfff)
        return add_utf8(s, hi);
    bool pair = hi < 0xdc00 && s->n - s->pos >= 2 && !memcmp(s->text + s->pos, "\\u", 2);
    if (!pair)
        return fail_here(s, "the second half of a surrogate pair");
    s->pos += 2;
    code = hex4(s, &lo);
    if (code)
        return code;
    if (lo < 0xdc00 || lo > 0xdfff)
        return fail_here(s, "the second half of a surrogate pair");
    return add_utf8(s, 0x10000 + ((hi - 0xd800) << 10 | (lo - 0xdc00)));
}

static int string(struct scan *s, const char **out, size_t *len)
{
    int code = expect(s, '"', "a string");
    if (code)
        return code;
    const char *raw = s->text + s->pos;
    size_t start = s->pos;
    tu_buf_reset(&s->tmp);
    for (bool copied = false;; s->pos++) {
        unsigned char c = s->pos < s->n ? (unsigned char)s->text[s->pos] : 0;
        if (c < 0x20)
            return fail_here(s, "the end of a string");
        if (c == '"') {
            *len = copied ? s->tmp.n : s->pos - start;
            *out = tu_arena_text(s->arena, copied ? s->tmp.data : raw, *len, s->err);
            s->pos++;
            return *out ? 0 : TU_ENOMEM;
        }
        if (c == '\\') {
            if (!copied)
                code = tu_buf_add(&s->tmp, raw, s->pos - start, s->err);
            copied = true;
            s->pos++;
            if (!code)
                code = unescape(s);
            s->pos--;
        } else if (copied) {
            code = tu_buf_add(&s->tmp, &s->text[s->pos], 1, s->err);
        }
        if (code)
            return code;
    }
}

/* A plain non-negative integer: no sign, fraction, exponent or leading zero. */
static int number(struct scan *s, uint64_t *out)
{
    static const char what[] = "a plain non-negative integer";
    char c = peek(s);
    if (c < '0' || c > '9')
        return fail_here(s, what);
    size_t start = s->pos;
    uint64_t v = 0;
    for (; s->pos < s->n && s->text[s->pos] >= '0' && s->text[s->pos] <= '9'; s->pos++) {
        if (tu_mul_over(v, 10, &v) || tu_add_over(v, (uint64_t)(s->text[s->pos] - '0'), &v))
            return tu_fail_at(s->err, TU_ESIZE, PREFIX + start,
                              "header byte %zu: number is over 2^64-1", PREFIX + start);
    }
    bool zero_led = s->text[start] == '0' && s->pos - start > 1;
    if (zero_led || (s->pos < s->n && strchr(".eE+-", s->text[s->pos]) && s->text[s->pos]))
        return fail_here(s, what);
    *out = v;
    return 0;
}

/* Pass over any value: entries may hold keys that are not known, which the reference
 * ignores. */
static int skip_value(struct scan *s)
{
    char stack[SKIP_DEPTH];
    size_t depth = 0;
    const char *text;
    size_t len;
    do {
        char c = peek(s);
        bool more = true;
        int code = 0;
        if (c == '{' || c == '[') {
            if (depth == SKIP_DEPTH)
                return fail_here(s, "less nesting");
            s->pos++;
            char close = c == '{' ? '}' : ']';
            if (peek(s) == close) {
                s->pos++;
            } else {
                stack[depth++] = close;
                code = c == '{' ? string(s, &text, &len) : 0;
                if (!code && c == '{')
                    code = expect(s, ':', "':'");
                if (code)
                    return code;
                continue;
            }
        } else if (c == '"') {
            code = string(s, &text, &len);
        } else {
            size_t start = s->pos;
            while (s->pos < s->n && strchr("+-.0123456789Eabcdeflnrstu", s->text[s->pos]) &&
                   s->text[s->pos])
                s->pos++;
            if (s->pos == start)
                code = fail_here(s, "a value");
        }
        while (!code && depth) {
            code = after_item(s, stack[depth - 1], &more);
            if (!code && more) {
                if (stack[depth - 1] == '}') {
                    code = string(s, &text, &len);
                    if (!code)
                        code = expect(s, ':', "':'");
                }
                break;
            }
            depth--;
        }
        if (code)
            return code;
    } while (depth);
    return 0;
}

/* grammar -------------------------------------------------------------------------------------- */

/* "[1,2,3]": at most max numbers. */
static int numbers(struct scan *s, uint64_t *v, unsigned max, unsigned *n)
{
    int code = expect(s, '[', "'['");
    *n = 0;
    if (!code && peek(s) == ']') {
        s->pos++;
        return 0;
    }
    for (bool more = true; !code && more;) {
        if (*n == max)
            return tu_fail_at(s->err, max == 2 ? TU_EFORMAT : TU_ELIMIT, PREFIX + s->pos,
                              "header byte %zu: more than %u numbers in a list",
                              PREFIX + s->pos, max);
        code = number(s, &v[*n]);
        ++*n;
        if (!code)
            code = after_item(s, ']', &more);
    }
    return code;
}

static int dtype_of(struct scan *s, uint32_t *out)
{
    const char *text;
    size_t len, at = (peek(s), s->pos);
    int code = string(s, &text, &len);
    if (code)
        return code;
    const struct tu_dtype *d;
    for (size_t i = 0; (d = tu_dtype_row(i)); i++) {
        if (d->safetensors && !strcmp(d->safetensors, text)) {
            *out = d->code;
            return 0;
        }
    }
    char shown[88];
    return tu_fail_at(s->err, TU_EDTYPE, PREFIX + at, "header byte %zu: unknown dtype '%s'",
                      PREFIX + at, tu_text_short(text, len, shown));
}

enum { KEY_DTYPE = 1, KEY_SHAPE = 2, KEY_OFFSETS = 4, KEY_ALL = 7 };

static int entry_key(struct scan *s, struct tui_st_entry *e, unsigned *seen)
{
    const char *key;
    size_t len, at = (peek(s), s->pos);
    uint64_t v[TU_RANK_MAX];
    unsigned n, bit;
    int code = string(s, &key, &len);
    if (!code)
        code = expect(s, ':', "':'");
    if (code)
        return code;
    bit = !strcmp(key, "dtype")          ? KEY_DTYPE
          : !strcmp(key, "shape")        ? KEY_SHAPE
          : !strcmp(key, "data_offsets") ? KEY_OFFSETS
                                         : 0;
    if (*seen & bit)
        return tu_fail_at(s->err, TU_EFORMAT, PREFIX + at, "header byte %zu: key '%s' stands twice",
                          PREFIX + at, key);
    *seen |= bit;
    switch (bit) {
    case KEY_DTYPE:
        return dtype_of(s, &e->dtype);
    case KEY_SHAPE: {
        code = numbers(s, v, TU_RANK_MAX, &e->rank);
        if (code)
            return code;
        uint64_t *dim = tu_arena_alloc(s->arena, e->rank, sizeof *dim, s->err);
        if (!dim)
            return TU_ENOMEM;
        memcpy(dim, v, e->rank * sizeof *dim);
        e->dim = dim;
        return 0;
    }
    case KEY_OFFSETS:
        code = numbers(s, v, 2, &n);
        if (!code && n != 2)
            code = tu_fail_at(s->err, TU_EFORMAT, PREFIX + at,
                              "header byte %zu: data_offsets holds %u numbers, expected 2",
                              PREFIX + at, n);
        e->begin = v[0];
        e->end = v[1];
        return code;
    default:
        return skip_value(s);
    }
}

static int entry(struct scan *s, const char *name, size_t len, size_t at)
{
    size_t bad = tu_name_check(name, len);
    if (!len || bad < len || len > 65535)
        return tu_fail_at(s->err, TU_ENAME, PREFIX + at,
                          "header byte %zu: a tensor's name %s", PREFIX + at,
                          !len        ? "is empty"
                          : bad < len ? "holds a control byte"
                                      : "is longer than 65535 bytes");
    int code = tu_grow(&s->entry, &s->cap, s->count, sizeof *s->entry, s->err);
    if (code)
        return code;
    struct tui_st_entry *e = &s->entry[s->count];
    *e = (struct tui_st_entry){ .name = name, .at = at };
    unsigned seen = 0;
    code = expect(s, '{', "'{'");
    bool more = !code && peek(s) != '}';
    if (!code && !more)
        s->pos++;
    while (!code && more) {
        code = entry_key(s, e, &seen);
        if (!code)
            code = after_item(s, '}', &more);
    }
    if (!code && seen != KEY_ALL) {
        char shown[88];
        code = tu_fail_at(s->err, TU_EFORMAT, PREFIX + at, "'%s' has no %s",
                          tu_text_short(name, len, shown),
                          !(seen & KEY_DTYPE)   ? "dtype"
                          : !(seen & KEY_SHAPE) ? "shape"
                                                : "data_offsets");
    }
    s->count += !code;
    return code;
}

static int metadata(struct scan *s, size_t at)
{
    if (s->metadata)
        return tu_fail_at(s->err, TU_EFORMAT, PREFIX + at,
                          "header byte %zu: '__metadata__' stands twice", PREFIX + at);
    s->metadata = true;
    s->nothing = peek(s) == 'n' && s->n - s->pos >= 4 && !memcmp(s->text + s->pos, "null", 4);
    if (s->nothing) {
        s->pos += 4;
        return 0;
    }
    int code = expect(s, '{', "'{'");
    bool more = !code && peek(s) != '}';
    if (!code && !more)
        s->pos++;
    while (!code && more) {
        struct pair p;
        char shown[88];
        code = string(s, &p.key, &p.key_len);
        if (!code)
            code = expect(s, ':', "':'");
        if (!code)
            code = string(s, &p.value, &p.value_len);
        if (!code && !(tu_json_holds(p.key, p.key_len) && tu_json_holds(p.value, p.value_len)))
            code = tu_fail_at(s->err, TU_EUNSUP, PREFIX + at,
                              "__metadata__: '%s': a NUL, which no metadata of a stream can hold",
                              tu_text_short(p.key, p.key_len, shown));
        if (!code)
            code = tu_grow(&s->pair, &s->pair_cap, s->pairs, sizeof *s->pair, s->err);
        p.order = s->pairs;
        if (!code)
            s->pair[s->pairs++] = p;
        if (!code)
            code = after_item(s, '}', &more);
    }
    return code;
}

static int header(struct scan *s)
{
    if (!s->n || s->text[0] != '{')
        return fail_here(s, "'{'");
    size_t bad = tu_utf8_check(s->text, s->n);
    if (bad < s->n) {
        s->pos = bad;
        return fail_here(s, "UTF-8");
    }
    s->pos = 1;
    bool more = peek(s) != '}';
    if (!more)
        s->pos++;
    while (more) {
        const char *name;
        size_t len, at = (peek(s), s->pos);
        int code = string(s, &name, &len);
        if (!code)
            code = expect(s, ':', "':'");
        if (!code)
            code = len == 12 && !memcmp(name, "__metadata__", 12) ? metadata(s, at)
                                                                   : entry(s, name, len, at);
        if (!code)
            code = after_item(s, '}', &more);
        if (code)
            return code;
    }
    (void)peek(s);
    return s->pos < s->n ? fail_here(s, "only white space after the object") : 0;
}

/* rules ---------------------------------------------------------------------------------------- */

static int by_name(const void *pa, const void *pb)
{
    const struct tui_st_entry *a = pa, *b = pb;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

static int by_data(const void *pa, const void *pb)
{
    const struct tui_st_entry *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static int by_key(const void *pa, const void *pb)
{
    const struct pair *a = pa, *b = pb;
    size_t n = a->key_len < b->key_len ? a->key_len : b->key_len;
    int order = memcmp(a->key, b->key, n);
    return order ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static int by_key_and_order(const void *pa, const void *pb)
{
    const struct pair *a = pa, *b = pb;
    int order = by_key(a, b);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

/* Names may not stand twice; of a metadata key the last value counts, as for the reference. */
static int twins(struct scan *s)
{
    char shown[88];
    if (s->count)
        qsort(s->entry, s->count, sizeof *s->entry, by_name);
    for (size_t i = 1; i < s->count; i++) {
        const struct tui_st_entry *e = &s->entry[i];
        if (!strcmp(e->name, e[-1].name))
            return tu_fail_at(s->err, TU_EFORMAT, PREFIX + e->at,
                              "header byte %zu: '%s' stands twice, first at byte %zu",
                              PREFIX + e->at, tu_text_short(e->name, strlen(e->name), shown),
                              PREFIX + e[-1].at);
    }
    if (s->pairs)
        qsort(s->pair, s->pairs, sizeof *s->pair, by_key_and_order);
    size_t n = 0;
    for (size_t i = 0; i < s->pairs; i++) {
        n -= n && !by_key(&s->pair[n - 1], &s->pair[i]);
        s->pair[n++] = s->pair[i];
    }
    s->pairs = n;
    return 0;
}

/* Bits of the data by dtype and shape; the products are taken as the reference takes
 * them, so a shape that overflows before its zero is refused. */
static int bytes_of(struct scan *s, const struct tui_st_entry *e, const char *shown,
                    uint64_t *out)
{
    const struct tu_dtype *d = tu_dtype_find(e->dtype);
    uint64_t n = 1;
    bool over = false;
    for (unsigned k = 0; k < e->rank; k++)
        over = over || tu_mul_over(n, e->dim[k], &n);
    over = over || tu_mul_over(n, 8u * d->block_bytes / d->block_elems, &n);
    if (over)
        return tu_fail_at(s->err, TU_ESIZE, PREFIX + e->at,
                          "'%s': its shape is over 2^64 bits of %s", shown, d->safetensors);
    if (n % 8)
        return tu_fail_at(s->err, TU_ESIZE, PREFIX + e->at,
                          "'%s': misaligned slice: %llu bits of %s are no whole bytes", shown,
                          (unsigned long long)n, d->safetensors);
    *out = n / 8;
    return 0;
}

/* Entries lie one after the other without hole or overlap, each as long as its shape
 * says. */
static int tile(struct scan *s, uint64_t *data)
{
    if (s->count)
        qsort(s->entry, s->count, sizeof *s->entry, by_data);
    uint64_t pos = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct tui_st_entry *e = &s->entry[i];
        char shown[88];
        tu_text_short(e->name, strlen(e->name), shown);
        unsigned long long begin = e->begin, end = e->end;
        if (end < begin)
            return tu_fail_at(s->err, TU_ESIZE, PREFIX + e->at,
                              "'%s': data_offsets [%llu,%llu] end before they begin", shown,
                              begin, end);
        if (begin != pos)
            return tu_fail_at(s->err, TU_ESIZE, PREFIX + e->at,
                              "'%s': data begins at %llu, expected %llu: %s", shown, begin,
                              (unsigned long long)pos, begin > pos ? "a hole" : "an overlap");
        uint64_t want = 0;
        int code = bytes_of(s, e, shown, &want);
        if (code)
            return code;
        if (want != end - begin)
            return tu_fail_at(s->err, TU_ESIZE, PREFIX + e->at,
                              "'%s': data_offsets hold %llu bytes, dtype and shape need %llu",
                              shown, end - begin, (unsigned long long)want);
        pos = end;
    }
    *data = pos;
    return 0;
}

static int metadata_text(struct scan *s, struct tui_st_head *out)
{
    if (!s->metadata || s->nothing)
        return 0;
    tu_buf_reset(&s->tmp);
    int code = tu_buf_text(&s->tmp, "{", s->err);
    for (size_t i = 0; !code && i < s->pairs; i++) {
        const struct pair *p = &s->pair[i];
        if (i)
            code = tu_buf_text(&s->tmp, ",", s->err);
        if (!code)
            code = tu_json_string(&s->tmp, p->key, p->key_len, s->err);
        if (!code)
            code = tu_buf_text(&s->tmp, ":", s->err);
        if (!code)
            code = tu_json_string(&s->tmp, p->value, p->value_len, s->err);
    }
    if (!code)
        code = tu_buf_text(&s->tmp, "}", s->err);
    if (code)
        return code;
    out->metadata_len = s->tmp.n;
    out->metadata = tu_arena_text(s->arena, s->tmp.data, s->tmp.n, s->err);
    return out->metadata ? 0 : TU_ENOMEM;
}

int tui_st_parse(struct tui_st_head *out, const char *text, size_t n, struct tu_arena *arena,
                 struct tu_err *err)
{
    struct scan s = { .text = text, .n = n, .arena = arena, .err = err };
    *out = (struct tui_st_head){ 0 };
    int code = header(&s);
    if (!code)
        code = twins(&s);
    if (!code)
        code = tile(&s, &out->data);
    if (!code)
        code = metadata_text(&s, out);
    if (code) {
        tu_free(s.entry);
    } else {
        out->entry = s.entry;
        out->n = s.count;
    }
    tu_free(s.pair);
    tu_buf_release(&s.tmp);
    return code;
}
