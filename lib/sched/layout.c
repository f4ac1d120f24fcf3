/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: Megatron-LM's text for stages of uneven kinds, read and written. */
#include <string.h>
#include "tensorutils/sched/split.h"

#define CELLS_MAX 65536

struct parse {
    const char *text, *p;
    struct tu_layout_cell *cell;
    size_t n, cap;
    struct tu_err *err;
    int code;
};

static void fail(struct parse *s, const char *why)
{
    if (!s->code)
        s->code = tu_fail_at(s->err, TU_EFORMAT, (uint64_t)(s->p - s->text),
                             "layout: byte %zu: %s", (size_t)(s->p - s->text), why);
}

static void next_cell(struct parse *s)
{
    if (s->n >= CELLS_MAX)
        fail(s, "more than 65536 stages");
    if (!s->code)
        s->code = TU_GROW(&s->cell, &s->cap, s->n, s->err);
    if (!s->code)
        s->cell[s->n++] = (struct tu_layout_cell){0};
}

static uint32_t repeat(struct parse *s)
{
    uint32_t v = 0;
    if (*s->p != '*')
        return 1;
    s->p++;
    if (*s->p < '0' || *s->p > '9')
        fail(s, "a number is expected after *");
    for (; *s->p >= '0' && *s->p <= '9'; s->p++) {
        v = v * 10 + (uint32_t)(*s->p - '0');
        if (v > CELLS_MAX)
            fail(s, "a number of repeats over 65536");
        if (s->code)
            return 0;
    }
    return v;
}

static void item(struct parse *s, char c, uint32_t times)
{
    for (uint32_t k = 0; c == '|' && k < times && !s->code; k++)
        next_cell(s);
    if (s->code || c == '|')
        return;
    struct tu_layout_cell *cell = &s->cell[s->n - 1];
    uint32_t *to = c == 'E'   ? &cell->embedding
                   : c == 't' ? &cell->layers
                   : c == 'm' ? &cell->mtp
                              : &cell->loss;
    *to += times;
    if (*to > CELLS_MAX * 16)
        fail(s, "too many layers in one stage");
}

/* A group is read again for each repeat; groups do not nest. */
static void sequence(struct parse *s, bool group)
{
    while (*s->p && !s->code && !(group && *s->p == ')')) {
        char c = *s->p;
        if (c == ',' || c == ' ') {
            s->p++;
        } else if (c == '(' && !group) {
            const char *start = ++s->p, *end;
            sequence(s, true);
            if (*s->p != ')') {
                fail(s, "a group without )");
                return;
            }
            end = ++s->p;
            uint32_t times = repeat(s);
            const char *after = s->p;
            (void)end;
            for (uint32_t k = 1; k < times && !s->code; k++) {
                s->p = start;
                sequence(s, true);
            }
            s->p = after;
        } else if (strchr("EtmL|", c)) {
            s->p++;
            item(s, c, repeat(s));
        } else {
            fail(s, "E t m L | ( ) * and commas are expected");
        }
    }
}

int tu_layout_read(struct tu_layout_cell **cell, size_t *n, const char *text,
                   struct tu_err *err)
{
    struct parse s = {.text = text, .p = text, .err = err};
    next_cell(&s);
    if (!s.code)
        sequence(&s, false);
    if (s.code) {
        tu_free(s.cell);
        s.cell = NULL;
        s.n = 0;
    }
    *cell = s.cell;
    *n = s.n;
    return s.code;
}

static int run(struct tu_buf *out, char c, uint32_t times, struct tu_err *err)
{
    if (!times)
        return 0;
    return times == 1 ? tu_buf_printf(out, err, "%c", c)
                      : tu_buf_printf(out, err, "%c*%u", c, times);
}

int tu_layout_write(struct tu_buf *out, const struct tu_layout_cell *cell, size_t n,
                    struct tu_err *err)
{
    int rc = 0;
    for (size_t k = 0; k < n && !rc; k++) {
        if (k)
            rc = tu_buf_text(out, "|", err);
        rc = rc ? rc : run(out, 'E', cell[k].embedding, err);
        rc = rc ? rc : run(out, 't', cell[k].layers, err);
        rc = rc ? rc : run(out, 'm', cell[k].mtp, err);
        rc = rc ? rc : run(out, 'L', cell[k].loss, err);
    }
    return rc;
}
