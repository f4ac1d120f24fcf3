/* SPDX-License-Identifier: Apache-2.0 */
/* load.c: operations from their texts, strictly: every character of a cell must belong.
 *
 * Files say only which rank runs what; the numbers of stages and micro-batches and the
 * placement follow from that unless the caller knows better. */
#include <string.h>
#include "sched/load.h"

void tui_load_begin(struct tui_load *l, uint32_t ranks, const struct tu_sched_hint *hint,
                    struct tu_err *err)
{
    static const struct tu_sched_hint none;
    *l = (struct tui_load){.hint = hint ? hint : &none};
    tui_build_begin(&l->b, ranks, 1, 1, 1, err);
}

static void bad(struct tui_load *l, uint32_t rank, size_t column, const char *text,
                size_t n, const char *why)
{
    char shown[88];
    if (!l->b.code)
        l->b.code = tu_fail(l->b.err, TU_EFORMAT, "rank %u, column %zu: '%s': %s", rank,
                            column + 1, tu_text_short(text, n, shown), why);
}

/* A number of at most 65534; NULL when there is none or it is larger. */
static const char *number(const char *p, const char *end, uint32_t *v)
{
    const char *start = p;
    uint64_t x = 0;
    for (; p < end && *p >= '0' && *p <= '9' && x <= TU_SCHED_MAX; p++)
        x = x * 10 + (uint64_t)(*p - '0');
    *v = (uint32_t)x;
    return p == start || x >= 2 * (uint64_t)TU_SCHED_MAX ? NULL : p;
}

/* The name that ends where its letters end: "F" is not the beginning of "FETCH". */
static const char *kind_at(const char *p, const char *end, uint8_t *kind)
{
    size_t n = 0;
    while (p + n < end && ((p[n] >= 'A' && p[n] <= 'Z') || p[n] == '_'))
        n++;
    for (unsigned k = 0; k < TU_OP_KINDS && n; k++) {
        const char *name = tu_op_name(k);
        if (name[0] == p[0] && !strncmp(name, p, n) && !name[n]) {
            *kind = (uint8_t)k;
            return p + n;
        }
    }
    return NULL;
}

/* torch 2.4: "F0_s1". */
static bool oldest_form(const char *p, const char *end, struct tu_op *op)
{
    p = kind_at(p, end, &op->kind);
    if (!p || !(p = number(p, end, &op->mb)) || end - p < 3 || memcmp(p, "_s", 2))
        return false;
    p = number(p + 2, end, &op->stage);
    return p == end;
}

static bool parse(struct tui_load *l, const char *p, const char *end, struct tu_op *op)
{
    *op = (struct tu_op){0};
    if (end - p == 3 && !memcmp(p, "OPT", 3)) {
        op->kind = TU_OP_OPT;
        return true;
    }
    if (p < end && (*p < '0' || *p > '9'))
        return oldest_form(p, end, op);
    p = number(p, end, &op->stage);
    if (!p)
        return false;
    if (end - p > 2 && p[0] == 'B' && p[1] == 'W') {
        l->old_full = true;
        op->kind = TU_OP_B;
        p += 2;
    } else if (!(p = kind_at(p, end, &op->kind))) {
        return false;
    }
    if (op->kind == TU_OP_UNSHARD || op->kind == TU_OP_RESHARD ||
        op->kind == TU_OP_REDUCE)
        return p == end;
    p = number(p, end, &op->mb);
    if (p && p < end && *p == '.') {
        uint32_t slice;
        p = number(p + 1, end, &slice);
        op->slice = p ? (uint16_t)slice : 0;
    }
    return p == end;
}

void tui_load_op(struct tui_load *l, uint32_t rank, const struct tu_op *op)
{
    l->seen[op->kind]++;
    if (op->kind != TU_OP_OPT && op->stage > l->max_stage)
        l->max_stage = op->stage;
    if (op->mb > l->max_mb)
        l->max_mb = op->mb;
    if (op->slice > l->max_slice)
        l->max_slice = op->slice;
    tui_add_op(&l->b, rank, op);
}

static void pair(struct tui_load *l, uint32_t rank, size_t column, const char *p,
                 const char *end)
{
    static const char tail[] = ")OVERLAP_F_B";
    const char *close = memchr(p, ')', (size_t)(end - p));
    const char *semi = close ? memchr(p, ';', (size_t)(close - p)) : NULL;
    struct tu_op f, b;
    if (!semi || (size_t)(end - close) != sizeof tail - 1 ||
        memcmp(close, tail, sizeof tail - 1) || !parse(l, p + 1, semi, &f) ||
        !parse(l, semi + 1, close, &b)) {
        bad(l, rank, column, p, (size_t)(end - p),
            "an overlapped pair is (0F1;2B3)OVERLAP_F_B");
        return;
    }
    f.flags = TU_OP_PAIRED;
    tui_load_op(l, rank, &f);
    tui_load_op(l, rank, &b);
}

/* More digits than any number here has? */
static bool oversized(const char *p, const char *end)
{
    size_t digits = 0;
    for (; p < end && digits < 10; p++)
        digits = *p >= '0' && *p <= '9' ? digits + 1 : 0;
    return digits == 10;
}

void tui_load_cell(struct tui_load *l, uint32_t rank, size_t column, const char *text,
                   size_t n)
{
    const char *p = text, *end = text + n;
    struct tu_op op;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (p < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (p == end || l->b.code)
        return;
    if (*p == '(')
        pair(l, rank, column, p, end);
    else if (!parse(l, p, end, &op))
        bad(l, rank, column, p, (size_t)(end - p),
            oversized(p, end) ? "a number is too large"
                              : "not an operation: STAGE ACTION MICROBATCH, as 0F1");
    else
        tui_load_op(l, rank, &op);
}

/* torch ≤ 2.5 wrote B for the input gradient where a W for it exists. */
static int modernise(struct tui_load *l)
{
    struct tu_sched *s = l->b.s;
    size_t mbs = s->microbatches, cells = (size_t)s->stages * s->pipelines * mbs;
    if (cells > 4 * tu_sched_ops(s) + 65536)
        return 0; /* far from complete: the verifier says so */
    uint8_t *has_w = tu_calloc(cells, 1, l->b.err);
    if (!has_w)
        return TU_ENOMEM;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++)
            if (s->op[r][i].kind == TU_OP_W)
                has_w[s->op[r][i].stage * mbs + s->op[r][i].mb] = 1;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++) {
            struct tu_op *op = &s->op[r][i];
            if (op->kind == TU_OP_B && has_w[op->stage * mbs + op->mb])
                op->kind = TU_OP_I;
        }
    tu_free(has_w);
    return 0;
}

static int sizes(struct tui_load *l)
{
    struct tu_sched *s = l->b.s;
    struct tu_err *err = l->b.err;
    const struct tu_sched_hint *h = l->hint;
    uint32_t pipes = h->pipelines ? h->pipelines : 1;
    uint32_t all = h->stages ? h->stages * pipes : l->max_stage + 1;
    s->microbatches = h->microbatches ? h->microbatches : l->max_mb + 1;
    s->slices = l->max_slice + 1;
    if (pipes > 2 || all % pipes)
        return tu_fail(err, TU_EFORMAT, "schedule: %u stages do not make %u pipelines",
                       all, pipes);
    if (l->max_stage >= all || l->max_mb >= s->microbatches)
        return tu_fail(
            err, TU_EFORMAT,
            "schedule: stage %u or micro-batch %u is past the %u stages and %u "
            "micro-batches stated",
            l->max_stage, l->max_mb, all, s->microbatches);
    s->pipelines = pipes;
    s->stages = all / pipes;
    if ((uint64_t)all * s->microbatches * s->slices > TU_SCHED_OPS_MAX)
        return tu_fail(err, TU_ELIMIT, "schedule: %u stages times %u units is over %llu",
                       all, s->microbatches, (unsigned long long)TU_SCHED_OPS_MAX);
    return 0;
}

int tui_load_end(struct tui_load *l, struct tu_sched **out)
{
    struct tui_build *b = &l->b;
    if (!b->code)
        b->code = sizes(l);
    if (!b->code) {
        struct tu_sched *s = b->s;
        size_t all = (size_t)s->stages * s->pipelines;
        tu_free(s->place);
        s->place = tu_alloc(all, sizeof *s->place, b->err);
        b->code = s->place ? 0 : TU_ENOMEM;
        for (size_t k = 0; !b->code && k < all; k++)
            s->place[k] = UINT32_MAX;
        for (uint32_t r = 0; !b->code && r < s->ranks; r++)
            for (size_t i = 0; i < s->n[r]; i++)
                if (s->op[r][i].kind != TU_OP_OPT &&
                    s->place[s->op[r][i].stage] == UINT32_MAX)
                    s->place[s->op[r][i].stage] = r;
        for (size_t k = 0; !b->code && k < all; k++)
            s->place[k] = s->place[k] == UINT32_MAX ? 0 : s->place[k];
        if (!l->seen[TU_OP_B] && !l->seen[TU_OP_I] && !l->seen[TU_OP_W])
            s->deps = TU_DEPS_FORWARD;
    }
    if (!b->code && (l->hint->old_b || l->old_full)) /* a BW says so by itself */
        b->code = modernise(l);
    return tui_build_end(b, out);
}

static uint32_t lines_of(const char *text, size_t n)
{
    uint32_t lines = 0;
    bool filled = false;
    for (size_t i = 0; i < n && lines <= TU_SCHED_MAX; i++) {
        if (text[i] == '\n')
            filled = false;
        else if (!filled && text[i] != '\r')
            lines++, filled = true;
    }
    return lines;
}

void tui_load_words(struct tui_load *l, const char *text, size_t n, const char *between,
                    const struct tu_sched_hint *hint,
                    int (*take)(struct tui_load *l, const struct tui_word *w,
                                struct tu_err *err),
                    struct tu_err *err)
{
    struct tui_word w = {.lines = lines_of(text, n)};
    bool legal = w.lines && w.lines <= TU_SCHED_MAX, filled = false;
    tui_load_begin(l, legal ? w.lines : 1, hint, err);
    if (!legal && !l->b.code)
        l->b.code = tu_fail(err, TU_EFORMAT, "schedule: %u lines: not in 1 … %u", w.lines,
                            TU_SCHED_MAX);
    for (size_t at = 0; at < n && !l->b.code;) {
        size_t end = at;
        while (end < n && text[end] && !strchr("\r\n", text[end]) &&
               !strchr(between, text[end]))
            end++;
        if (end > at || (at < n && !text[at])) {
            w.text = text + at;
            w.n = end > at ? end - at : 1;
            w.at = at;
            int rc = take(l, &w, err);
            l->b.code = rc ? rc : l->b.code; /* or what adding the operation gave */
            w.column++;
            at += w.n;
            filled = true;
            continue;
        }
        filled = filled || (text[at] != '\n' && text[at] != '\r');
        if (text[at] == '\n' && filled) {
            w.line++;
            w.column = 0;
            filled = false;
        }
        at++;
    }
}

uint32_t *tui_chunk_numbers(const struct tu_sched *s, bool afresh, uint32_t *chunks,
                            struct tu_err *err)
{
    uint32_t all = s->stages * s->pipelines, most = 1;
    uint32_t *count = tu_calloc(s->ranks, sizeof *count, err);
    uint32_t *chunk = count ? tu_alloc(all, sizeof *chunk, err) : NULL;
    for (uint32_t k = 0; chunk && k < all; k++) {
        if (afresh && k == s->stages)
            memset(count, 0, s->ranks * sizeof *count);
        chunk[k] = count[s->place[k]]++;
        most = count[s->place[k]] > most ? count[s->place[k]] : most;
    }
    tu_free(count);
    if (chunks)
        *chunks = most;
    return chunk;
}

int tui_cell_text(struct tu_buf *out, const struct tu_op *op, uint32_t slices,
                  unsigned *used, struct tu_err *err)
{
    char a[40], b[40];
    *used = op->flags & TU_OP_PAIRED ? 2 : 1;
    if (*used == 1)
        return tu_buf_text(out, tu_op_text(op, slices, a), err);
    return tu_buf_printf(out, err, "(%s;%s)OVERLAP_F_B", tu_op_text(op, slices, a),
                         tu_op_text(op + 1, slices, b));
}

/* The table of forms
 * --------------------------------------------------------------------- */

const struct tu_sched_form *const tu_sched_forms[] = {
    &tui_form_json,  &tui_form_csv,  &tui_form_zb,  &tui_form_grid, &tui_form_te,
    &tui_form_table, &tui_form_trace, &tui_form_svg, &tui_form_text, &tui_form_tikz,
    &tui_form_dot,   NULL,
};

const struct tu_sched_form *tu_sched_form_find(const char *name)
{
    for (size_t i = 0; tu_sched_forms[i]; i++)
        if (!strcmp(tu_sched_forms[i]->name, name))
            return tu_sched_forms[i];
    return NULL;
}

/* What one form can say, every other must be able to. */
static int check_sizes(struct tu_sched **s, struct tu_err *err)
{
    const struct {
        const char *what;
        uint32_t n;
    } size[] = {{"ranks", (*s)->ranks},
                {"stages", (*s)->stages},
                {"micro-batches", (*s)->microbatches}};
    for (unsigned i = 0; i < 3; i++)
        if (size[i].n > TU_SCHED_MAX) {
            tu_sched_free(*s);
            *s = NULL;
            return tu_fail(err, TU_ELIMIT, "schedule: %u %s, at most %u", size[i].n,
                           size[i].what, TU_SCHED_MAX);
        }
    return 0;
}

int tu_sched_read(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                  const struct tu_sched_form *form, const struct tu_sched_hint *hint,
                  struct tu_err *err)
{
    *out = NULL;
    for (size_t i = 0; !form && tu_sched_forms[i]; i++)
        if (tu_sched_forms[i]->read && tu_sched_forms[i]->sniff &&
            tu_sched_forms[i]->sniff(text, n))
            form = tu_sched_forms[i];
    if (!form || !form->read)
        return tu_fail(
            err, TU_EFORMAT,
            form ? "schedule: this form cannot be read"
                 : "schedule: neither JSON, CSV nor another form that is known");
    int rc = form->read(out, c, text, n, hint, err);
    return rc ? rc : check_sizes(out, err);
}
