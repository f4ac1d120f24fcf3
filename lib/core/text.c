/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: what texts are well formed, and how they are shown to people.
 *
 * Texts are bytes with a length; nothing depends on the locale. Not for reading numbers
 * (parse.c) or NAME:KEY=VALUE (spec.c). */
#include <tensorutils/core.h>

#include <inttypes.h>
#include <stdio.h>

/* Length of the well-formed sequence at s (n bytes left), 0 if it is ill-formed. The
 * second byte's range excludes overlong forms, surrogates and what is above U+10FFFF:
 * Unicode 15, table 3-7. */
static size_t sequence(const unsigned char *s, size_t n)
{
    unsigned char lead = s[0], low = 0x80, high = 0xbf;
    size_t len;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf) {
        len = 2;
    } else if ((lead & 0xf0) == 0xe0) {
        len = 3;
        if (lead == 0xe0)
            low = 0xa0;
        else if (lead == 0xed)
            high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        len = 4;
        if (lead == 0xf0)
            low = 0x90;
        else if (lead == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (n < len || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

size_t tu_utf8_check(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = sequence(u + i, n - i)))
            return i;
    return n;
}

size_t tu_name_check(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    for (size_t i = 0, len; i < n; i += len)
        if (u[i] < 0x20 || u[i] == 0x7f || !(len = sequence(u + i, n - i)))
            return i;
    return n;
}

/* Length of the sequence at u if a screen can show it: no control of either set, well
 * formed. */
static size_t printable(const unsigned char *u, size_t n)
{
    size_t len = sequence(u, n);
    bool control =
        u[0] < 0x20 || u[0] == 0x7f || (len == 2 && u[0] == 0xc2 && u[1] < 0xa0);
    return control ? 0 : len;
}

int tu_text_escape(struct tu_buf *out, const char *s, size_t n, struct tu_err *err)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *u = (const unsigned char *)s;
    for (size_t i = 0, len; i < n; i += len) {
        len = printable(u + i, n - i);
        int rc;
        if (len && u[i] != '\\') {
            rc = tu_buf_add(out, s + i, len, err);
        } else if (len) {
            rc = tu_buf_add(out, "\\\\", 2, err);
        } else {
            len = 1;
            rc = tu_buf_add(out, (char[]){'\\', 'x', hex[u[i] >> 4], hex[u[i] & 15]}, 4,
                            err);
        }
        if (rc)
            return rc;
    }
    return 0;
}

const char *tu_text_short(const char *s, size_t n, char out[88])
{
    enum { MOST = 80, HEAD = 38, TAIL = 39 }; /* HEAD + "…" + TAIL = 80 bytes */
    const unsigned char *u = (const unsigned char *)s;
    size_t head = n, tail = n; /* shown: [0, head) and [tail, n) */
    if (n > MOST) {
        head = HEAD;
        tail = n - TAIL;
        for (unsigned k = 0; k < 3 && (u[head] & 0xc0) == 0x80; k++)
            head--; /* not in the middle of a character */
        for (unsigned k = 0; k < 3 && (u[tail] & 0xc0) == 0x80; k++)
            tail++;
    }
    char *p = out;
    for (size_t i = 0, len; i < n; i += len) {
        if (i >= head && i < tail) {
            memcpy(p, "…", sizeof "…" - 1);
            p += sizeof "…" - 1;
            i = tail;
            head = tail = n;
        }
        len = printable(u + i, (i < head ? head : n) - i);
        if (len) {
            memcpy(p, s + i, len);
            p += len;
        } else {
            len = 1;
            *p++ = '?';
        }
    }
    *p = '\0';
    return out;
}

int tu_shape_text(struct tu_buf *out, const uint64_t *dim, unsigned rank,
                  struct tu_err *err)
{
    if (!rank)
        return tu_buf_text(out, "-", err);
    for (unsigned i = 0; i < rank; i++) {
        int rc = tu_buf_printf(out, err, "%s%" PRIu64, i ? "x" : "", dim[i]);
        if (rc)
            return rc;
    }
    return 0;
}

const char *tu_size_text(uint64_t bytes, char out[16])
{
    static const char unit[][4] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned i = 0;
    double v = (double)bytes;
    for (; v >= 1023.5 && i < 6; i++) /* what would round to 1024 takes the next unit */
        v /= 1024;
    if (!i)
        snprintf(out, 16, "%" PRIu64 " B", bytes);
    else
        snprintf(out, 16, v < 100 ? "%.3g %s" : "%.0f %s", v, unit[i]);
    return out;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* The restricted form (no part is edited twice), three rows of the table at a time.
 * Source: F. Damerau, "A technique for computer detection and correction of spelling
 * errors", 1964. */
unsigned tu_text_distance(const char *a, const char *b, unsigned max)
{
    enum { LONGEST = 63 }; /* what people may mistype: options, names of rows */
    size_t na = strlen(a), nb = strlen(b);
    if (!strcmp(a, b))
        return 0;
    if (na > LONGEST || nb > LONGEST || (na > nb ? na - nb : nb - na) > max)
        return max + 1;
    unsigned row[3][LONGEST + 1], *before = row[0], *above = row[1], *now = row[2];
    for (unsigned j = 0; j <= nb; j++)
        above[j] = j;
    for (unsigned i = 1; i <= na; i++) {
        now[0] = i;
        for (unsigned j = 1; j <= nb; j++) {
            unsigned change = above[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(change, least(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        unsigned *old = before;
        before = above;
        above = now;
        now = old;
    }
    return least(above[nb], max + 1);
}

/* Lower case, '_' as '-', cut to what people may mistype. */
static void fold(const char *s, char out[64])
{
    size_t n = 0;
    for (; s[n] && n < 63; n++)
        out[n] = s[n] == '_'                 ? '-'
                 : s[n] >= 'A' && s[n] <= 'Z' ? (char)(s[n] - 'A' + 'a')
                                              : s[n];
    out[n] = '\0';
}

/* 0: the same but for case, 1 and 2: typing mistakes, 3: one begins with the other. Two
 * mistakes in a word of four letters make another word. */
static unsigned likeness(const char *word, const char *name)
{
    enum { BEGINS = 3, UNLIKE };
    char a[64], b[64];
    fold(word, a);
    fold(name, b);
    size_t na = strlen(a), nb = strlen(b);
    unsigned d = tu_text_distance(a, b, 2);
    if (d < BEGINS && 3 * d <= (na > nb ? na : nb))
        return d;
    return (na >= 2 && na < nb && !memcmp(a, b, na)) || (nb >= 3 && !memcmp(a, b, nb))
               ? BEGINS
               : UNLIKE;
}

struct nearest {
    char name[4][64]; /* a name may live until the next one */
    size_t n;
    unsigned likeness;
};

static void offer(struct nearest *best, const char *name, unsigned d)
{
    if (d < best->likeness)
        best->n = 0;
    for (size_t i = 0; i < best->n; i++)
        if (!strcmp(best->name[i], name))
            return;
    best->likeness = d;
    if (best->n < sizeof best->name / sizeof *best->name)
        snprintf(best->name[best->n++], sizeof *best->name, "%s", name);
}

bool tu_suggest(struct tu_err *err, const char *word, const char *before,
                const char *(*next)(const void *ctx, size_t i), const void *ctx)
{
    struct nearest best = {.likeness = 3};
    const char *name;
    for (size_t i = 0; (name = next(ctx, i)); i++) {
        unsigned d = likeness(word, name);
        if (d <= best.likeness)
            offer(&best, name, d);
    }
    for (size_t i = 0; err && i < best.n; i++) {
        size_t used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, "%s'%s%s'%s",
                 i == 0            ? "; did you mean "
                 : i + 1 == best.n ? " or "
                                   : ", ",
                 before, best.name[i], i + 1 == best.n ? "?" : "");
    }
    return best.n > 0;
}
