/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: two destinations (standard output or -o, and --report FILE), three kinds
 * of content (free text, rows, one JSON object). What fails here is told once and
 * becomes the status. */
#include "common/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/front.h"

#define FLUSH_BYTES ((size_t)32 << 10)
#define FLUSH_SECONDS 0.05 /* rows that come slower are seen at once */
#define COLUMNS_MAX 48
#define BETWEEN 2 /* blanks between columns */

struct dest {
    struct tu_buf buf;
    struct tu_out *out;
    double flushed;
    bool broken;
};

static struct tu_report {
    struct dest main, file;
    struct tu_job job; /* of both */
    const struct tu_column *columns;
    struct tu_buf cells;           /* texts with their NULs, row after row */
    size_t rows, ncolumns;
    bool titled;                   /* the titles are printed with the first row */
    unsigned width[COLUMNS_MAX];
    bool filled[COLUMNS_MAX];      /* a row has a text there */
    struct tu_jw jw;
    struct tu_buf line;            /* the JSON object being built */
    bool lines, result;            /* head or object was written */
} report;

static void fail(struct tu_ctx *ctx, struct dest *d, const struct tu_err *err)
{
    if (!d->broken)
        tu_error(ctx, err);
    d->broken = true;
}

static bool on_stdout(const struct tu_ctx *ctx)
{
    return ctx->plain || tu_streams(ctx) || !strcmp(ctx->output, "-");
}

/* Is standard output (or -o) left to the report? */
static bool main_free(const struct tu_ctx *ctx)
{
    return ctx->plain || !tu_streams(ctx) || strcmp(ctx->output, "-");
}

bool tu_text_wanted(struct tu_ctx *ctx)
{
    if (ctx->plain)
        return true;
    const bool taken = ctx->json || (ctx->report && !strcmp(ctx->report, "-"));
    return !taken && main_free(ctx) && (!tu_streams(ctx) || ctx->verbose);
}

bool tu_json_wanted(struct tu_ctx *ctx)
{
    return !ctx->plain && (ctx->json || ctx->report);
}

bool tu_report_wanted(struct tu_ctx *ctx)
{
    return tu_json_wanted(ctx) || tu_text_wanted(ctx);
}

static void flush(struct tu_ctx *ctx, struct dest *d, const char *path)
{
    struct tu_err err;
    d->flushed = tu_clock();
    report.job = *tu_ctx_alone(ctx);
    report.job.progress = NULL; /* rows are not the work */
    if (!d->broken && !d->out && tu_out_open(&d->out, path, &report.job, &err))
        fail(ctx, d, &err);
    if (!d->broken && d->buf.n && tu_out_write(d->out, d->buf.data, d->buf.n, &err))
        fail(ctx, d, &err);
    tu_buf_reset(&d->buf);
}

static void emit(struct tu_ctx *ctx, struct dest *d, const char *path, const char *s,
                 size_t n)
{
    struct tu_err err;
    if (d->broken)
        return;
    if (tu_buf_add(&d->buf, s, n, &err))
        fail(ctx, d, &err);
    if (d->buf.n >= FLUSH_BYTES || tu_clock() - d->flushed >= FLUSH_SECONDS)
        flush(ctx, d, path);
}

static const char *main_path(const struct tu_ctx *ctx)
{
    return on_stdout(ctx) ? "-" : ctx->output;
}

static void emit_text(struct tu_ctx *ctx, const char *s, size_t n)
{
    emit(ctx, &report.main, main_path(ctx), s, n);
}

void tu_print(struct tu_ctx *ctx, const char *fmt, ...)
{
    if (!tu_text_wanted(ctx))
        return;
    va_list ap, again;
    char text[256], *s = text;
    struct tu_err err;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof text) {
        s = tu_alloc((size_t)n + 1, 1, &err);
        if (s)
            vsnprintf(s, (size_t)n + 1, fmt, again);
        else
            fail(ctx, &report.main, &err);
    }
    va_end(again);
    if (s && n > 0)
        emit_text(ctx, s, (size_t)n);
    if (s != text)
        tu_free(s);
}

/* JSON ------------------------------------------------------------------------------- */

static void head(struct tu_ctx *ctx, struct tu_jw *w)
{
    char name[128];
    bool sub = ctx->cmd != ctx->top;
    const char *top = ctx->top->name, *cmd = sub ? ctx->cmd->name : "";
    snprintf(name, sizeof name, "tensorutils.%s%s%s/1", top, sub ? "." : "", cmd);
    tu_jw_str(w, "schema", name);
    tu_jw_str(w, "version", TU_VERSION);
    snprintf(name, sizeof name, "%s%s%s", top, sub ? " " : "", cmd);
    tu_jw_str(w, "command", name);
}

static struct tu_jw *line_open(void)
{
    tu_buf_reset(&report.line);
    tu_jw_begin(&report.jw, &report.line);
    tu_jw_open(&report.jw, NULL, '{');
    return &report.jw;
}

static void line_close(struct tu_ctx *ctx)
{
    struct tu_err err;
    tu_jw_close(&report.jw, '}');
    if (tu_jw_end(&report.jw, &err) || tu_buf_text(&report.line, "\n", &err)) {
        fail(ctx, &report.main, &err);
        return;
    }
    if (ctx->json && main_free(ctx))
        emit_text(ctx, report.line.data, report.line.n);
    if (ctx->report)
        emit(ctx, &report.file, ctx->report, report.line.data, report.line.n);
}

struct tu_jw *tu_line_begin(struct tu_ctx *ctx)
{
    if (!tu_json_wanted(ctx))
        return NULL;
    if (!report.lines) {
        report.lines = true;
        head(ctx, line_open());
        line_close(ctx);
    }
    return line_open();
}

void tu_line_end(struct tu_ctx *ctx)
{
    line_close(ctx);
}

struct tu_jw *tu_result_begin(struct tu_ctx *ctx)
{
    if (!tu_json_wanted(ctx))
        return NULL;
    report.result = true;
    struct tu_jw *w = line_open();
    head(ctx, w);
    return w;
}

void tu_result_end(struct tu_ctx *ctx)
{
    line_close(ctx);
}

static void json_cell(struct tu_jw *w, const struct tu_column *c,
                      const struct tu_cell *cell)
{
    if (!*c->key)
        return;
    if (cell->none) {
        tu_jw_null(w, c->key);
        return;
    }
    switch (c->kind) {
    case TU_COL_TEXT:
    case TU_COL_DIGITS:
    case TU_COL_NAME: tu_jw_str(w, c->key, cell->s); break;
    case TU_COL_U64:
    case TU_COL_BYTES: tu_jw_u64(w, c->key, cell->u); break;
    case TU_COL_I64: tu_jw_i64(w, c->key, cell->i); break;
    case TU_COL_REAL: tu_jw_real(w, c->key, cell->f); break;
    case TU_COL_BOOL: tu_jw_bool(w, c->key, cell->b); break;
    case TU_COL_SHAPE: tu_jw_dims(w, c->key, cell->dim, cell->rank); break;
    case TU_COL_JSON:
    case TU_COL_VALUE:
        if (cell->s)
            tu_jw_raw(w, c->key, cell->s);
        else
            tu_jw_null(w, c->key);
    }
}

/* Text table ------------------------------------------------------------------------- */

/* Zero has no sign for who reads a table. */
static int real(struct tu_buf *b, double v, struct tu_err *err)
{
    return tu_buf_printf(b, err, "%.6g", v == 0 ? 0.0 : v);
}

/* Integers keep their digits, "nan" and "inf" lose their quotes. */
static int value(struct tu_buf *b, const char *json, struct tu_err *err)
{
    if (!json)
        return tu_buf_text(b, "-", err);
    if (*json == '"')
        return tu_buf_printf(b, err, "%.*s", (int)strcspn(json + 1, "\""), json + 1);
    return strpbrk(json, ".eE") ? real(b, strtod(json, NULL), err) : tu_buf_text(b, json, err);
}

static int text_cell(struct tu_buf *b, const struct tu_column *c,
                     const struct tu_cell *cell, struct tu_err *err)
{
    char size[16];
    if (cell->none)
        return tu_buf_text(b, "-", err);
    switch (c->kind) {
    case TU_COL_TEXT:
    case TU_COL_DIGITS:
    case TU_COL_NAME: return tu_text_escape(b, cell->s, strlen(cell->s), err);
    case TU_COL_JSON: return tu_buf_text(b, cell->s ? cell->s : "-", err);
    case TU_COL_U64: return tu_buf_printf(b, err, "%" PRIu64, cell->u);
    case TU_COL_I64: return tu_buf_printf(b, err, "%" PRId64, cell->i);
    case TU_COL_REAL: return real(b, cell->f, err);
    case TU_COL_VALUE: return value(b, cell->s, err);
    case TU_COL_BYTES: return tu_buf_text(b, tu_size_text(cell->u, size), err);
    case TU_COL_BOOL: return tu_buf_text(b, cell->b ? "yes" : "no", err);
    case TU_COL_SHAPE:
        return cell->rank ? tu_shape_text(b, cell->dim, cell->rank, err)
                          : tu_buf_text(b, "scalar", err);
    }
    return 0;
}

/* Characters on a screen, roughly: code points. */
static unsigned screen_width(const char *s)
{
    unsigned n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static bool to_the_right(enum tu_column_kind kind)
{
    return kind == TU_COL_U64 || kind == TU_COL_I64 || kind == TU_COL_REAL ||
           kind == TU_COL_BYTES || kind == TU_COL_DIGITS || kind == TU_COL_VALUE;
}

/* One line from consecutive texts; returns the text after the last. Blanks wait for what they
 * stand before, so that no line ends in one. */
static const char *print_line(struct tu_ctx *ctx, const char *s)
{
    unsigned blanks = 0;
    for (size_t i = 0; i < report.ncolumns; i++) {
        const struct tu_column *c = &report.columns[i];
        if (!c->title)
            continue;
        if (report.filled[i]) {
            unsigned w = screen_width(s), pad = w < report.width[i] ? report.width[i] - w : 0;
            bool right = to_the_right(c->kind);
            if (w)
                tu_print(ctx, "%*s%s", (int)(blanks + (right ? pad : 0)), "", s);
            blanks = (w ? 0 : blanks) + (w && right ? 0 : pad) + BETWEEN;
        }
        s += strlen(s) + 1;
    }
    tu_print(ctx, "\n");
    return s;
}

static void print_rows(struct tu_ctx *ctx)
{
    const char *s = report.cells.data;
    for (size_t i = 0; i < report.ncolumns && report.rows == 1; i++)
        report.filled[i] = true; /* titles alone */
    for (size_t i = 0; i < report.rows; i++)
        s = print_line(ctx, s);
    report.rows = 0;
    tu_buf_reset(&report.cells);
}

static bool as_they_come(void)
{
    for (size_t i = 0; i < report.ncolumns; i++)
        if (report.columns[i].title && !report.columns[i].width)
            return false;
    return true;
}

static void add_text_row(struct tu_ctx *ctx, const struct tu_cell *cells)
{
    struct tu_err err;
    for (size_t i = 0; i < report.ncolumns; i++) {
        const struct tu_column *c = &report.columns[i];
        if (!c->title)
            continue;
        size_t at = report.cells.n;
        int rc = cells ? text_cell(&report.cells, c, &cells[i], &err)
                       : tu_buf_text(&report.cells, c->title, &err);
        if (!rc)
            rc = tu_buf_add(&report.cells, "", 1, &err);
        if (rc) {
            fail(ctx, &report.main, &err);
            return;
        }
        unsigned w = screen_width(report.cells.data + at);
        if (w > report.width[i])
            report.width[i] = w;
        if (w && cells)
            report.filled[i] = true;
    }
    report.rows++;
    if (as_they_come())
        print_rows(ctx);
}

void tu_rows_begin(struct tu_ctx *ctx, const struct tu_column *columns)
{
    tu_rows_end(ctx);
    report.columns = columns;
    report.ncolumns = 0;
    for (size_t i = 0; columns[i].key && i < COLUMNS_MAX; i++) {
        report.width[i] = columns[i].width;
        report.filled[i] = false;
        report.ncolumns++;
    }
    for (size_t i = 0; i < report.ncolumns && as_they_come(); i++)
        report.filled[i] = true;
    report.titled = false;
    if (tu_json_wanted(ctx) && !report.lines) {
        report.lines = true;
        head(ctx, line_open());
        line_close(ctx);
    }
}

static void add_titles(struct tu_ctx *ctx)
{
    if (!report.titled)
        add_text_row(ctx, NULL);
    report.titled = true;
}

void tu_row(struct tu_ctx *ctx, const struct tu_cell *cells)
{
    if (tu_text_wanted(ctx)) {
        add_titles(ctx);
        add_text_row(ctx, cells);
    }
    struct tu_jw *w = tu_line_begin(ctx);
    if (!w)
        return;
    for (size_t i = 0; i < report.ncolumns; i++)
        json_cell(w, &report.columns[i], &cells[i]);
    tu_line_end(ctx);
}

void tu_rows_end(struct tu_ctx *ctx)
{
    if (report.columns && tu_text_wanted(ctx)) {
        if (ctx->status < TU_STATUS_USAGE || ctx->told)
            add_titles(ctx); /* an empty table, but none below an error */
        print_rows(ctx);
    }
    report.columns = NULL;
}

/* The end ---------------------------------------------------------------------------- */

static int close_dest(struct tu_ctx *ctx, struct dest *d, const char *path, bool keep)
{
    struct tu_err err;
    int status = 0;
    if (d->buf.n)
        flush(ctx, d, path);
    if (!d->out)
        return d->broken ? ctx->status : 0;
    if (d->broken || !keep)
        tu_out_abort(d->out);
    else if (tu_out_commit(d->out, false, &err))
        status = tu_error(ctx, &err);
    d->out = NULL;
    tu_buf_release(&d->buf);
    return d->broken ? ctx->status : status;
}

int tu_report_finish(struct tu_ctx *ctx, int status)
{
    tu_rows_end(ctx);
    if (tu_json_wanted(ctx) && !ctx->pipe_closed && !report.result) {
        struct tu_jw *w = line_open();
        if (!report.lines)
            head(ctx, w); /* it failed before its first row */
        tu_jw_bool(w, "end", true);
        tu_jw_i64(w, "status", status);
        line_close(ctx);
    }
    /* JSON says itself how it ended; a text that is not whole gets no file name. */
    const bool keep = on_stdout(ctx) || ctx->json || ctx->told || status < TU_STATUS_USAGE;
    int a = close_dest(ctx, &report.main, main_path(ctx), keep);
    int b = ctx->report ? close_dest(ctx, &report.file, ctx->report, true) : 0;
    tu_buf_release(&report.cells);
    tu_buf_release(&report.line);
    return a > b ? a : b;
}
