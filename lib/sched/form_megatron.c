/* SPDX-License-Identifier: Apache-2.0 */
/* form_megatron.c: the texts of Megatron-LM's users: order lists and schedule tables.
 *
 * te: a line for each rank, +(chunk+1) a forward, -(chunk+1) a backward (Transformer
 * Engine's graph order); the micro-batches of a chunk count up, its stage is chunk·p +
 * rank. table: the micro-batches of the forwards in their order, and below them the
 * chunks; with the number of ranks that is an interleaved schedule. */
#include <stdlib.h>
#include <string.h>
#include "sched/form_says.h"
#include "sched/load.h"

static int write_te(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                    const struct tu_sim *sim, struct tu_err *err)
{
    int rc = tui_form_says(&(struct tui_says){"te", false, false, true}, s, err);
    (void)c;
    (void)sim;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            rc = tu_buf_printf(out, err, "%s%s%u", i ? " " : "",
                               op->kind == TU_OP_F ? "" : "-", op->stage / s->ranks + 1);
        }
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

/* A whole number of up to nine digits, perhaps negative. */
static bool whole(const char *p, size_t n, int32_t *v)
{
    bool minus = n && *p == '-';
    size_t i = minus || (n && *p == '+');
    *v = 0;
    if (i == n || n - i > 9)
        return false;
    for (; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        *v = *v * 10 + (p[i] - '0');
    }
    *v = minus ? -*v : *v;
    return true;
}

/* The loader, and the next micro-batch of each stage, forward and backward. */
struct order_list {
    struct tui_load load; /* first: te_word has a pointer to it */
    uint32_t *next[2];
};

static int te_word(struct tui_load *l, const struct tui_word *w, struct tu_err *err)
{
    struct order_list *list = (struct order_list *)l;
    int32_t v;
    if (!whole(w->text, w->n, &v) || !v ||
        (uint64_t)(uint32_t)abs(v) * w->lines > TU_SCHED_MAX)
        return tu_fail_at(err, TU_EFORMAT, w->at,
                          "te: rank %u, word %zu: a chunk is expected, as 1 or -1", w->line,
                          w->column + 1);
    uint32_t stage = (uint32_t)(abs(v) - 1) * w->lines + w->line;
    uint32_t mb = list->next[v < 0][stage]++;
    if (mb >= TU_SCHED_MAX)
        return tu_fail_at(err, TU_EFORMAT, w->at,
                          "te: rank %u, word %zu: more than %u micro-batches", w->line,
                          w->column + 1, TU_SCHED_MAX);
    tui_load_op(l, w->line,
                &(struct tu_op){
                    .kind = v > 0 ? TU_OP_F : TU_OP_B, .stage = stage, .mb = mb});
    return 0;
}

static int read_te(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                   const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct order_list l;
    (void)c;
    *out = NULL;
    l.next[0] = tu_calloc(2 * (size_t)TU_SCHED_MAX, sizeof **l.next, err);
    if (!l.next[0])
        return TU_ENOMEM;
    l.next[1] = l.next[0] + TU_SCHED_MAX;
    tui_load_words(&l.load, text, n, " \t", hint, te_word, err);
    tu_free(l.next[0]);
    return tui_load_end(&l.load, out);
}

/* Nothing but numbers in the first line, the first of them 1. */
static bool sniff_te(const char *text, size_t n)
{
    size_t i = 0;
    if (n < 2 || text[0] != '1' || (text[1] != ' ' && text[1] != '\n'))
        return false;
    while (i < n && text[i] != '\n' && text[i] && strchr("0123456789- \t\r", text[i]))
        i++;
    return i == n || text[i] == '\n';
}

/* Schedule tables
 * ----------------------------------------------------------------- */

struct table {
    uint32_t *mb, *chunk;
    size_t n;
    uint32_t chunks, group; /* group: micro-batches of the first run of chunk 0 */
};

/* "mb 0 1 …" or "chunk 0 0 …"; returns the text behind the line, NULL after a failure. */
static const char *numbers(const char *p, const char *end, const char *name, uint32_t *v,
                           size_t *n, size_t most, struct tu_err *err)
{
    size_t len = strlen(name);
    if ((size_t)(end - p) < len || memcmp(p, name, len)) {
        (void)tu_fail(err, TU_EFORMAT, "table: the line '%s' is missing", name);
        return NULL;
    }
    p += len;
    *n = 0;
    while (p < end && *p != '\n') {
        const char *word = p;
        int32_t one;
        while (p < end && !strchr(" \t\r\n", *p))
            p++;
        if (p > word) {
            if (*n == most || !whole(word, (size_t)(p - word), &one) || one < 0 ||
                one >= (int32_t)TU_SCHED_MAX) {
                (void)tu_fail(err, TU_EFORMAT, "table: %s, word %zu: not a number", name,
                              *n + 1);
                return NULL;
            }
            v[(*n)++] = (uint32_t)one;
        } else {
            p += *p != '\n';
        }
    }
    return p < end ? p + 1 : p;
}

static int parse_table(struct table *t, const char *text, size_t n, struct tu_err *err)
{
    const char *end = text + n;
    size_t most = n / 2 + 1, chunks = 0;
    t->mb = tu_alloc(2 * most, sizeof *t->mb, err);
    if (!t->mb)
        return TU_ENOMEM;
    t->chunk = t->mb + most;
    const char *p = numbers(text, end, "mb", t->mb, &t->n, most, err);
    p = p ? numbers(p, end, "chunk", t->chunk, &chunks, most, err) : NULL;
    if (!p)
        return TU_EFORMAT;
    if (!t->n || chunks != t->n)
        return tu_fail(err, TU_EFORMAT, "table: %zu micro-batches and %zu chunks", t->n,
                       chunks);
    for (size_t i = 0; i < t->n; i++)
        t->chunks = t->chunk[i] + 1 > t->chunks ? t->chunk[i] + 1 : t->chunks;
    while (t->group < t->n && !t->chunk[t->group])
        t->group++;
    return 0;
}

/* Warm-up, one forward and one backward in turn, the rest: Megatron's rule. */
static void fill_table(struct tui_load *l, const struct table *t, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks && !l->b.code; r++) {
        size_t warm = 2 * (size_t)(ranks - 1 - r) + (size_t)(t->chunks - 1) * t->group;
        warm = warm < t->n ? warm : t->n;
        for (size_t i = 0; i < t->n + warm && !l->b.code; i++) {
            if (i < t->n)
                tui_load_op(l, r,
                            &(struct tu_op){.kind = TU_OP_F,
                                            .stage = t->chunk[i] * ranks + r,
                                            .mb = t->mb[i]});
            if (i >= warm)
                tui_load_op(l, r,
                            &(struct tu_op){
                                .kind = TU_OP_B,
                                .stage = (t->chunks - 1 - t->chunk[i - warm]) * ranks + r,
                                .mb = t->mb[i - warm]});
        }
    }
}

static int read_table(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                      const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct tui_load l;
    struct table t = {0};
    uint32_t ranks = hint ? hint->ranks : 0;
    (void)c;
    *out = NULL;
    if (!ranks)
        return tu_fail(err, TU_EUSAGE, "table: it does not say how many ranks: --ranks");
    int rc = parse_table(&t, text, n, err);
    if (!rc && (uint64_t)t.chunks * ranks > TU_SCHED_MAX)
        rc = tu_fail(err, TU_EFORMAT, "table: %u chunks of %u ranks are too many stages",
                     t.chunks, ranks);
    if (!rc && (uint64_t)t.n * ranks > TU_SCHED_OPS_MAX)
        rc = tu_fail(err, TU_ELIMIT, "table: %zu units on %u ranks: over %llu", t.n, ranks,
                     (unsigned long long)TU_SCHED_OPS_MAX);
    if (!rc) {
        tui_load_begin(&l, ranks, hint, err);
        fill_table(&l, &t, ranks);
        rc = tui_load_end(&l, out);
    }
    tu_free(t.mb);
    return rc;
}

static int table_text(struct tu_buf *out, const struct tu_sched *s, struct tu_err *err)
{
    int rc = 0;
    for (int row = 0; row < 2 && !rc; row++) {
        rc = tu_buf_text(out, row ? "chunk" : "mb", err);
        for (size_t i = 0; i < s->n[0] && !rc; i++) {
            const struct tu_op *op = &s->op[0][i];
            if (op->kind == TU_OP_F)
                rc = tu_buf_printf(out, err, " %u", row ? op->stage / s->ranks : op->mb);
        }
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

/* The backwards, and the forwards of other ranks, are not written: they must be those that
 * follow. */
static int write_table(struct tu_buf *out, const struct tu_sched *s,
                       const struct tu_cost *c, const struct tu_sim *sim,
                       struct tu_err *err)
{
    struct tu_sched *back = NULL;
    const struct tu_sched_hint hint = {.ranks = s->ranks};
    int rc = tui_form_says(&(struct tui_says){"table", false, false, false}, s, err);
    (void)c;
    (void)sim;
    if (!rc)
        rc = table_text(out, s, err);
    if (!rc)
        rc = read_table(&back, NULL, out->data, out->n, &hint, err);
    if (!rc)
        rc = tui_form_same("table", s, back, err);
    tu_sched_free(back);
    return rc;
}

static bool sniff_table(const char *text, size_t n)
{
    return n > 3 && !memcmp(text, "mb ", 3);
}

const struct tu_sched_form tui_form_te = {
    "te",    "order list: +chunk forward, -chunk backward", sniff_te, read_te, write_te,
    false, NULL, true,
};
const struct tu_sched_form tui_form_table = {
    "table",     "schedule table of Megatron-LM: micro-batches, chunks",
    sniff_table, read_table,
    write_table, false, NULL, true,
};
