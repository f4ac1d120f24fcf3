/* SPDX-License-Identifier: Apache-2.0 */
/* npy_head.c: the header of a .npy array: a Python dict literal, by a tiny grammar.
 *
 * Nothing is evaluated: three keys, a text, a bool and a tuple of integers, in any order.
 * Written as numpy/lib/format.py writes it, or as the array's `src` metadata says it was. */
#include "kit.h"
#include "npy.h"

#define MAGIC "\x93NUMPY"
#define PREFIX 8           /* magic, major, minor; then 2 or 4 bytes of length */
#define HEAD_MAX 10000u    /* numpy's own limit for files that are not trusted */
#define ALIGN 64u
#define GROWTH_DIGITS 21u  /* room that numpy leaves for the first dimension to grow */

/* reading -------------------------------------------------------------------------------------- */

struct scan {
    const char *text;
    size_t n, pos, base; /* base: offset of text in the file */
    struct tu_err *err;
};

static int fail_here(struct scan *s, const char *expected)
{
    return tui_fail_char(s->err, s->text, s->n, s->pos, s->base, expected);
}

static char peek(struct scan *s)
{
    while (s->pos < s->n && (s->text[s->pos] == ' ' || s->text[s->pos] == '\n'))
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

/* A text in single or double quotes without escapes; cut to fit out[24]. */
static int text(struct scan *s, char out[24])
{
    char quote = peek(s);
    if (quote != '\'' && quote != '"')
        return fail_here(s, "a quoted text");
    size_t n = 0;
    for (s->pos++; s->pos < s->n && s->text[s->pos] != quote; s->pos++) {
        if (s->text[s->pos] == '\\')
            return fail_here(s, "a text without escapes");
        if (n < 23)
            out[n++] = s->text[s->pos];
    }
    out[n] = 0;
    return expect(s, quote, "the end of a text");
}

static int boolean(struct scan *s, bool *out)
{
    peek(s);
    size_t left = s->n - s->pos;
    *out = left >= 4 && !memcmp(s->text + s->pos, "True", 4);
    if (!*out && !(left >= 5 && !memcmp(s->text + s->pos, "False", 5)))
        return fail_here(s, "True or False");
    s->pos += *out ? 4 : 5;
    return 0;
}

/* One dimension: digits, and the L that Python 2 put behind a long. */
static int dimension(struct scan *s, uint64_t *out)
{
    char c = peek(s);
    uint64_t v = 0;
    if (c < '0' || c > '9')
        return fail_here(s, "a dimension");
    for (; s->pos < s->n && s->text[s->pos] >= '0' && s->text[s->pos] <= '9'; s->pos++) {
        if (tu_mul_over(v, 10, &v) || tu_add_over(v, (uint64_t)(s->text[s->pos] - '0'), &v))
            return fail_here(s, "a dimension below 2^64");
    }
    if (s->pos < s->n && s->text[s->pos] == 'L')
        s->pos++;
    *out = v;
    return 0;
}

/* "()", "(3,)", "(2, 3)"; "(3)" is a number and no tuple. */
static int shape(struct scan *s, struct tui_npy *h)
{
    int code = expect(s, '(', "'('");
    bool comma = true;
    h->rank = 0;
    while (!code && peek(s) != ')') {
        if (!comma)
            return fail_here(s, "',' or ')'");
        if (h->rank == TU_RANK_MAX)
            return fail_here(s, "at most 64 dimensions");
        code = dimension(s, &h->dim[h->rank++]);
        comma = !code && peek(s) == ',';
        s->pos += comma;
    }
    if (!code && h->rank == 1 && !comma)
        return fail_here(s, "','");
    return code ? code : expect(s, ')', "')'");
}

enum { KEY_DESCR = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

static int value(struct scan *s, struct tui_npy *h, unsigned *seen)
{
    char key[24], descr[24] = "";
    size_t at = (peek(s), s->pos);
    int code = text(s, key);
    if (!code)
        code = expect(s, ':', "':'");
    if (code)
        return code;
    unsigned bit = !strcmp(key, "descr")           ? KEY_DESCR
                   : !strcmp(key, "fortran_order") ? KEY_ORDER
                   : !strcmp(key, "shape")         ? KEY_SHAPE
                                                   : 0;
    if (!bit || *seen & bit) {
        s->pos = at;
        return fail_here(s, bit ? "each key once" : "the keys descr, fortran_order and shape");
    }
    *seen |= bit;
    if (bit == KEY_ORDER)
        return boolean(s, &h->fortran);
    if (bit == KEY_SHAPE)
        return shape(s, h);
    if (peek(s) == '[')
        return tu_fail_at(s->err, TU_EUNSUP, s->base + s->pos,
                          "a structured array: only arrays of plain numbers are read");
    code = text(s, descr);
    if (!code && strlen(descr) >= sizeof h->descr)
        code = tu_fail_at(s->err, TU_EDTYPE, s->base + at, "dtype '%s' is not known", descr);
    memcpy(h->descr, descr, code ? 0 : strlen(descr) + 1);
    return code;
}

static int literal(struct scan *s, struct tui_npy *h)
{
    unsigned seen = 0;
    int code = expect(s, '{', "'{'");
    while (!code && peek(s) != '}') {
        code = value(s, h, &seen);
        if (!code && peek(s) == ',')
            s->pos++;
        else if (!code && peek(s) != '}')
            code = fail_here(s, "',' or '}'");
    }
    if (!code)
        code = expect(s, '}', "'}'");
    if (!code && (peek(s) || s->pos < s->n))
        code = fail_here(s, "only spaces after the dict");
    if (!code && seen != KEY_ALL)
        code = tu_fail_at(s->err, TU_EFORMAT, s->base, "header has no key '%s'",
                          !(seen & KEY_DESCR)   ? "descr"
                          : !(seen & KEY_ORDER) ? "fortran_order"
                                                : "shape");
    return code;
}

static int void_of(struct tui_npy *h, uint32_t void_dtype, struct tu_err *err)
{
    unsigned width = h->descr[2] == '1' ? 1 : 2;
    if (void_dtype == TU_DTYPE_NONE)
        return tu_fail(err, TU_EDTYPE,
                       "dtype '%s' is raw bytes: say what they mean with --void=%s", h->descr,
                       width == 2 ? "bf16" : "f8_e4m3fn");
    const struct tu_dtype *d = tu_dtype_find(void_dtype);
    if (!d || d->block_elems != 1 || d->block_bytes != width)
        return tu_fail(err, TU_EDTYPE, "dtype '%s' is %u bytes wide, %s is not", h->descr, width,
                       d ? d->name : "the one given");
    h->dtype = void_dtype;
    return 0;
}

/* descr to dtype and byte order. */
static int dtype_of(struct tui_npy *h, uint32_t void_dtype, struct tu_err *err)
{
    char order = h->descr[0];
    const char *kind = h->descr + 1;
    if (*h->descr && strchr("<>|=", order)) {
        const struct tu_dtype *d;
        h->big = order == '>';
        if (!strcmp(kind, "V1") || !strcmp(kind, "V2"))
            return void_of(h, void_dtype, err);
        for (size_t i = 0; (d = tu_dtype_row(i)); i++) {
            if (d->npy && !strcmp(d->npy, kind)) {
                h->dtype = d->code;
                h->big = h->big && d->block_bytes > 1;
                return 0;
            }
        }
        if (*kind == 'O')
            return tu_fail(err, TU_EUNSUP, "an array of pickled objects ('%s'): nothing in it is "
                           "run or read", h->descr);
        if (strchr("USaMmV", *kind) && *kind)
            return tu_fail(err, TU_EUNSUP, "dtype '%s': only arrays of plain numbers are read",
                           h->descr);
    }
    return tu_fail(err, TU_EDTYPE, "dtype '%s' is not known", h->descr);
}

int tui_npy_parse_header(struct tui_npy *out, const void *head, size_t n, uint32_t void_dtype,
                         struct tu_err *err)
{
    const char *p = head;
    struct tui_npy *h = out;
    *h = (struct tui_npy){ 0 };
    if (n < 6 || memcmp(p, MAGIC, 6))
        return tu_fail_at(err, n && n < 6 && !memcmp(p, MAGIC, n) ? TU_ETRUNC : TU_EMAGIC, 0,
                          "not a .npy array: its first 6 bytes are not \\x93NUMPY");
    if (n < PREFIX + 2)
        return tu_fail_at(err, TU_ETRUNC, n, "incomplete: %zu bytes found, at least 10 expected",
                          n);
    h->major = (unsigned char)p[6];
    h->minor = (unsigned char)p[7];
    if (h->major < 1 || h->major > 3 || h->minor)
        return tu_fail_at(err, TU_EVERSION, 6, "version %u.%u: 1.0, 2.0 and 3.0 are read",
                          h->major, h->minor);
    size_t prefix = PREFIX + (h->major == 1 ? 2 : 4);
    if (n < prefix)
        return tu_fail_at(err, TU_ETRUNC, n, "incomplete: %zu bytes found, at least %zu expected",
                          n, prefix);
    unsigned len = h->major == 1 ? tu_le16(p + PREFIX) : tu_le32(p + PREFIX);
    if (len > HEAD_MAX)
        return tu_fail_at(err, TU_ELIMIT, PREFIX, "header of %u bytes, at most %u are read", len,
                          HEAD_MAX);
    if (len > n - prefix)
        return tu_fail_at(err, TU_ETRUNC, n, "incomplete: header ends at byte %zu, %zu found",
                          prefix + len, n);
    struct scan s = { .text = p + prefix, .n = len, .base = prefix, .err = err };
    if (tu_utf8_check(s.text, len) < len) {
        s.pos = tu_utf8_check(s.text, len);
        return fail_here(&s, h->major == 3 ? "UTF-8" : "ASCII");
    }
    int code = literal(&s, h);
    if (!code)
        code = dtype_of(h, void_dtype, err);
    if (!code)
        code = tu_tensor_bytes(h->dtype, h->dim, h->rank, &h->bytes, err);
    /* One order is both where at most one dimension is not 1; so numpy marks it, and so
     * it stays. */
    h->head = prefix + len;
    return code;
}

/* the usual header ----------------------------------------------------------------------------- */

static unsigned digits(uint64_t v)
{
    unsigned n = 1;
    for (; v >= 10; v /= 10)
        n++;
    return n;
}

/* The literal, then spaces and a newline to a multiple of 64 with what stands before it. */
static int usual_header(struct tu_buf *out, const struct tui_npy *h, struct tu_err *err)
{
    struct tu_buf b = { 0 };
    int code = tu_buf_printf(&b, err, "{'descr': '%s', 'fortran_order': %s, 'shape': (", h->descr,
                             h->fortran ? "True" : "False");
    for (unsigned k = 0; !code && k < h->rank; k++)
        code = tu_buf_printf(&b, err, k ? ", %llu" : "%llu", (unsigned long long)h->dim[k]);
    if (!code)
        code = tu_buf_text(&b, h->rank == 1 ? ",), }" : "), }", err);
    /* The dimension that grows when arrays are appended to a file. */
    unsigned room = h->rank ? GROWTH_DIGITS - digits(h->dim[h->fortran ? h->rank - 1 : 0]) : 0;
    for (; !code && room; room--)
        code = tu_buf_text(&b, " ", err);
    /* At least one space, as numpy has it: a header that fits exactly gets 64 more. */
    do {
        code = code ? code : tu_buf_text(&b, " ", err);
    } while (!code && (PREFIX + 2 + b.n + 1) % ALIGN);
    if (!code)
        code = tu_buf_text(&b, "\n", err);
    unsigned char head[PREFIX + 2] = MAGIC "\1";
    tu_put16(head + PREFIX, (uint16_t)b.n);
    if (!code)
        code = tu_buf_add(out, head, sizeof head, err);
    if (!code)
        code = tu_buf_add(out, b.data, b.n, err);
    tu_buf_release(&b);
    return code;
}

/* what a tensor remembers ---------------------------------------------------------------------- */

/* descr that numpy would write for this dtype on a little-endian machine. */
static void usual_descr(const struct tu_dtype *d, char out[8])
{
    bool one = d->block_bytes == 1 && d->npy;
    snprintf(out, 8, "%c%s", one ? '|' : '<', d->npy ? d->npy : "");
}

/* Whether the array has the header that usual_header would write for it. */
static int is_usual(bool *yes, const struct tui_npy *h, const char *head, struct tu_err *err)
{
    struct tu_buf b = { 0 };
    int code = usual_header(&b, h, err);
    *yes = !code && b.n == h->head && !memcmp(b.data, head, b.n);
    tu_buf_release(&b);
    return code;
}

int tui_npy_tensor(struct tu_tensor *out, struct tu_arena *arena, const struct tui_npy_array *a,
                   const char *name, bool keep_header, struct tu_err *err)
{
    const struct tui_npy *h = &a->h;
    char descr[8], head[TUI_NPY_HEAD];
    usual_descr(tu_dtype_find(h->dtype), descr);
    struct tu_buf meta = { 0 };
    size_t prefix = PREFIX + (h->major == 1 ? 2 : 4);
    bool usual = false;
    int code = tu_in_pread(a->in, a->data - h->head, head, h->head, err);
    if (!code)
        code = is_usual(&usual, h, head, err);
    keep_header = keep_header || !usual;
    if (!code && (keep_header || h->fortran || strcmp(descr, h->descr))) {
        code = tu_buf_printf(&meta, err, "{\"src\":{\"descr\":\"%s\",\"format\":\"npy\","
                             "\"fortran_order\":%s", h->descr, h->fortran ? "true" : "false");
        if (!code && keep_header)
            code = tu_buf_text(&meta, ",\"header\":", err);
        if (!code && keep_header)
            code = tu_json_string(&meta, head + prefix, h->head - prefix, err);
        if (!code && keep_header)
            code = tu_buf_printf(&meta, err, ",\"version\":%u", h->major);
        if (!code)
            code = tu_buf_text(&meta, "}}", err);
    }
    if (!code)
        code = tu_tensor_make(out, arena, name, h->dtype, h->dim, h->rank, meta.data, err);
    tu_buf_release(&meta);
    return code;
}

/* writing -------------------------------------------------------------------------------------- */

/* The header whose text was kept, if it says what h says. */
static int kept_header(struct tu_buf *out, const struct tui_npy *h, const json_t *text,
                       unsigned major, struct tu_err *err)
{
    unsigned char head[PREFIX + 4] = MAGIC;
    size_t n = json_string_length(text), prefix = PREFIX + (major == 1 ? 2 : 4);
    head[6] = (unsigned char)major;
    tu_put32(head + PREFIX, (uint32_t)n);
    size_t start = out->n;
    int code = n > HEAD_MAX ? tu_fail(err, TU_EMETA, "the kept header is over %u bytes", HEAD_MAX)
                            : tu_buf_add(out, head, prefix, err);
    if (!code)
        code = tu_buf_add(out, json_string_value(text), n, err);
    struct tui_npy have;
    if (!code && (code = tui_npy_parse_header(&have, out->data + start, out->n - start, h->dtype,
                                              err))) {
        tu_err_prefix(err, "the kept header");
        return code;
    }
    if (!code && (strcmp(have.descr, h->descr) || have.fortran != h->fortran ||
                  have.rank != h->rank ||
                  memcmp(have.dim, h->dim, h->rank * sizeof *h->dim)))
        return tu_fail(err, TU_EMETA, "the kept header does not describe this tensor");
    return code;
}

/* Take byte order, array order and void descr from `src`, where they fit the dtype. */
static void follow_src(struct tui_npy *h, const struct tu_dtype *d, const json_t *src)
{
    const char *format = json_string_value(json_object_get(src, "format"));
    const char *descr = json_string_value(json_object_get(src, "descr"));
    if (!format || !descr || strcmp(format, "npy") || strlen(descr) < 3 || strlen(descr) > 7)
        return;
    bool number = d->npy && !strcmp(d->npy, descr + 1);
    bool raw = descr[1] == 'V' && !descr[3] && descr[2] == '0' + d->block_bytes;
    if (strchr("<>|=", descr[0]) && (number || (raw && !d->npy))) {
        h->fortran = json_is_true(json_object_get(src, "fortran_order"));
        h->big = descr[0] == '>' && d->block_bytes > 1;
        strcpy(h->descr, descr);
    }
}

/* The header that `src` keeps, where one is kept that describes the tensor; else the
 * usual one, or a failure where the kept one must be had. */
static int put_header(struct tu_buf *out, const struct tui_npy *h, const json_t *src, bool must,
                      struct tu_err *err)
{
    const json_t *kept = json_object_get(src, "header");
    json_int_t major = json_integer_value(json_object_get(src, "version"));
    bool have = json_is_string(kept) && major >= 1 && major <= 3;
    if (must && !have)
        return tu_fail(err, TU_EMETA, "no header was kept");
    if (have) {
        struct tu_err own;
        size_t start = out->n;
        int code = kept_header(out, h, kept, (unsigned)major, must ? err : &own);
        if (!code || must)
            return code;
        out->n = start;
    }
    return usual_header(out, h, err);
}

int tui_npy_write_header(struct tu_buf *out, struct tui_npy *h, const struct tu_tensor *t,
                         bool raw, bool keep_header, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    char shown[88], dtype[8];
    tu_text_short(t->name, strlen(t->name), shown);
    if (!d || d->block_elems != 1)
        return tu_fail(err, TU_EDTYPE, "'%s': numpy has no %s", shown,
                       tu_dtype_text(t->dtype, dtype));
    *h = (struct tui_npy){ .major = 1, .dtype = t->dtype, .rank = t->rank, .bytes = t->bytes };
    if (t->rank) /* a scalar may have no dim at all */
        memcpy(h->dim, t->dim, t->rank * sizeof *t->dim);
    if (d->npy)
        usual_descr(d, h->descr);
    else if (raw)
        strcpy(h->descr, d->block_bytes == 1 ? "|u1" : "<u2");
    json_t *meta = NULL;
    const struct tu_json_limits limits = { .depth = TU_JSON_DEPTH_META, .object = true };
    int code = t->meta ? tu_json_parse(&meta, t->meta, strlen(t->meta), &limits, err) : 0;
    const json_t *src = json_object_get(meta, "src");
    if (!code)
        follow_src(h, d, src);
    if (!code && !*h->descr)
        code = tu_fail(err, TU_EDTYPE, "'%s': numpy has no %s: --npy-raw writes it as %s", shown,
                       d->name, d->block_bytes == 1 ? "u1" : "u2");
    if (!code)
        code = put_header(out, h, src, keep_header, err);
    if (code == TU_EMETA)
        tu_err_prefix(err, "'%s'", shown);
    json_decref(meta);
    h->head = out->n;
    return code;
}
