/* SPDX-License-Identifier: Apache-2.0 */
/* pickled.h: pickles for tests, written as Python would print them, so that a table can hold
 * what no honest program saves.
 *
 *   None True 5 -1 1.5 nan 'text\x00' b'bytes' (1, 2) [1, 2] {'k': 1} set[1] frozenset[1]
 *   module:name            a global
 *   module:name(1, 2)      REDUCE; module:name*(1) is NEWOBJ
 *   VALUE!STATE            BUILD;  VALUE+{'k': 1} SETITEMS;  VALUE+[1] APPENDS
 *   @(1, 2)                BINPERSID
 *   ^                      the value before it again (DUP)
 *
 * A text that is none of these ends the test program. */
#ifndef TESTS_UNIT_FORMAT_PICKLED_H
#define TESTS_UNIT_FORMAT_PICKLED_H

#include <math.h>
#include "fix.h"

static inline void pickled_put(struct tu_buf *b, const void *p, size_t n)
{
    if (tu_buf_add(b, p, n, NULL))
        abort();
}

static inline void pickled_op(struct tu_buf *b, int op)
{
    pickled_put(b, &(char){ (char)op }, 1);
}

static inline const char *pickled_value(struct tu_buf *b, const char *s);

static inline const char *pickled_skip(const char *s)
{
    return s + strspn(s, " ,:\n");
}

/* Values up to `close`. */
static inline const char *pickled_until(struct tu_buf *b, const char *s, char close)
{
    for (s = pickled_skip(s); *s != close; s = pickled_skip(s))
        s = pickled_value(b, s);
    return s + 1;
}

/* 'text' behind an opcode that counts it in four bytes. */
static inline const char *pickled_text(struct tu_buf *b, const char *s, char op)
{
    char text[4096];
    unsigned char n[4];
    size_t k = 0;
    unsigned v;
    for (s++; *s != '\''; s++) {
        if (!*s || k == sizeof text)
            abort();
        if (*s == '\\' && sscanf(s, "\\x%2x", &v) == 1) {
            text[k++] = (char)v;
            s += 3;
        } else {
            text[k++] = *s;
        }
    }
    tu_put32(n, (uint32_t)k);
    pickled_op(b, op);
    pickled_put(b, n, 4);
    pickled_put(b, text, k);
    return s + 1;
}

static inline const char *pickled_number(struct tu_buf *b, const char *s)
{
    unsigned char p[8];
    char *end;
    size_t n = strspn(s, "-+0123456789.e");
    if (n && !memchr(s, '.', n)) {
        tu_put64(p, (uint64_t)strtoll(s, &end, 10));
        pickled_put(b, "\x8a\x08", 2);
        pickled_put(b, p, 8);
        return end;
    }
    double v = strtod(s, &end);
    uint64_t bits;
    memcpy(&bits, &v, 8);
    pickled_op(b, 'G');
    for (int i = 8; i-- > 0;)
        pickled_op(b, (int)(bits >> (8 * i) & 0xff));
    return end;
}

/* A container: its values, then the opcode that takes them. */
static inline const char *pickled_box(struct tu_buf *b, const char *s, char open, int close)
{
    if (open)
        pickled_op(b, open);
    pickled_op(b, '(');
    s = pickled_until(b, s, close == 'u' ? '}' : close == 't' ? ')' : ']');
    pickled_op(b, close);
    return s;
}

/* module:name, and what is called with it. */
static inline const char *pickled_global(struct tu_buf *b, const char *s)
{
    size_t module = strcspn(s, ":"), name = strcspn(s + module + 1, ":(*!+,)]} ");
    pickled_op(b, 'c');
    pickled_put(b, s, module);
    pickled_op(b, '\n');
    pickled_put(b, s + module + 1, name);
    pickled_op(b, '\n');
    s += module + 1 + name;
    bool newobj = *s == '*';
    s += newobj;
    if (*s == '(') {
        s = pickled_box(b, s + 1, 0, 't');
        pickled_op(b, newobj ? 0x81 : 'R');
    }
    return s;
}

static inline const char *pickled_value(struct tu_buf *b, const char *s)
{
    static const struct { const char *word; char op; } words[] = {
        { "None", 'N' }, { "True", (char)0x88 }, { "False", (char)0x89 }, { "^", '2' },
    };
    const char *begin = s;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(s, words[i].word, strlen(words[i].word))) {
            pickled_op(b, words[i].op);
            return s + strlen(words[i].word);
        }
    if (*s == '\'')
        s = pickled_text(b, s, 'X');
    else if (!strncmp(s, "b'", 2))
        s = pickled_text(b, s + 1, 'B');
    else if (*s == '(')
        s = pickled_box(b, s + 1, 0, 't');
    else if (*s == '[')
        s = pickled_box(b, s + 1, ']', 'e');
    else if (*s == '{')
        s = pickled_box(b, s + 1, '}', 'u');
    else if (!strncmp(s, "set[", 4))
        s = pickled_box(b, s + 4, (char)0x8f, 0x90);
    else if (!strncmp(s, "frozenset[", 10))
        s = pickled_box(b, s + 10, 0, 0x91);
    else if (*s == '@') {
        s = pickled_value(b, s + 1);
        pickled_op(b, 'Q');
    } else if (strchr("-0123456789", *s) || !strncmp(s, "nan", 3) || !strncmp(s, "inf", 3)) {
        s = pickled_number(b, s);
    } else {
        s = pickled_global(b, s);
    }
    if (s == begin) {
        printf("Bail out! no value: %s\n", s);
        exit(1);
    }
    for (; *s == '!' || *s == '+';)
        if (*s == '!') {
            s = pickled_value(b, s + 1);
            pickled_op(b, 'b');
        } else {
            s = pickled_box(b, s + 2, 0, s[1] == '{' ? 'u' : 'e');
        }
    return s;
}

/* The pickle of a value, in place of what b held. */
static inline void pickled(struct tu_buf *b, const char *value)
{
    tu_buf_reset(b);
    pickled_put(b, "\x80\x04", 2);
    pickled_value(b, pickled_skip(value));
    pickled_op(b, '.');
}

/* A file of a zip whose records are given: name, bytes. */
struct pickled_record {
    const char *name;
    const void *data;
    size_t n;
};

static inline const char *pickled_zip(const char *name, const struct pickled_record *r, size_t n)
{
    struct tu_zip_plan e[8] = { 0 };
    struct tu_out *out;
    uint64_t size;
    const char *path = fix_path(name);
    for (size_t i = 0; i < n; i++)
        e[i] = (struct tu_zip_plan){ .name = r[i].name, .size = r[i].n,
                                     .crc = tu_crc32(0, r[i].data, r[i].n) };
    if (tu_zip_layout(e, n, 64, &size, NULL) || tu_out_open(&out, path, NULL, NULL))
        abort();
    for (size_t i = 0; i < n; i++)
        if (tu_out_pwrite(out, e[i].offset, r[i].data, r[i].n, NULL))
            abort();
    if (tu_zip_finish(out, e, n, 64, NULL) || tu_out_commit(out, false, NULL))
        abort();
    return path;
}

#endif
