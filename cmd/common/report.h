/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: what a command tells its user, as text or as JSON, from one description.
 *
 * Text goes to standard output (or -o of a command that writes no stream). JSON goes
 * there with --json, and to --report FILE, which takes the text's place if it is
 * standard output. A command that writes a stream is silent: only the file is left, and
 * with -v the text where -o leaves standard output free.
 * JSON is one object on one line for a result; for rows it is JSON Lines: a head with
 * schema, version and command, the rows, and {"end":true,"status":N}, also after a
 * failure. */
#ifndef COMMON_REPORT_H
#define COMMON_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <tensorutils/core.h>

struct tu_ctx;

/* Text of the command's answer. Nothing unless text is wanted. */
void tu_print(struct tu_ctx *ctx, const char *fmt, ...) TU_PRINTF(2, 3);
bool tu_text_wanted(struct tu_ctx *ctx);
bool tu_json_wanted(struct tu_ctx *ctx);
bool tu_report_wanted(struct tu_ctx *ctx); /* either */

enum tu_column_kind {
    TU_COL_TEXT,  /* .s, escaped in text */
    TU_COL_DIGITS,/* .s, a number's text: a string in JSON, to the right in text */
    TU_COL_NAME,  /* the same, last on its line */
    TU_COL_U64,   /* .u */
    TU_COL_I64,   /* .i */
    TU_COL_REAL,  /* .f, six significant digits in text */
    TU_COL_BYTES, /* .u, "1.5 GiB" in text */
    TU_COL_BOOL,  /* .b */
    TU_COL_SHAPE, /* .dim .rank */
    TU_COL_JSON,  /* .s is JSON already; NULL: null */
    TU_COL_VALUE, /* the same, of an element: six significant digits in text */
};

struct tu_column {
    const char *key;   /* in JSON; "": only in the text; NULL ends the columns */
    const char *title; /* in the text table, capitals and digits with the unit, "P50_US", no
                        * blanks: awk reads it; NULL: only in JSON */
    enum tu_column_kind kind;
    unsigned width;    /* when every column has one, rows are printed as they come; else
                        * columns without a text in any row are left out of the table */
};

struct tu_cell {
    bool none; /* null in JSON, - in text */
    union {
        const char *s;
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct {
            const uint64_t *dim;
            unsigned rank;
        };
    };
};

/* Rows. columns stays the caller's and must live until tu_main ends. Rows may be given
 * from one thread only. */
void tu_rows_begin(struct tu_ctx *ctx, const struct tu_column *columns);
void tu_row(struct tu_ctx *ctx, const struct tu_cell *cells);
/* The table is printed and a new one may begin; tu_main does it for the last. */
void tu_rows_end(struct tu_ctx *ctx);
/* A JSON line among the rows with keys of its own: NULL when no JSON is wanted. */
struct tu_jw *tu_line_begin(struct tu_ctx *ctx);
void tu_line_end(struct tu_ctx *ctx);

/* One result: its JSON object, open, with schema, version and command in it; NULL when
 * no JSON is wanted. */
struct tu_jw *tu_result_begin(struct tu_ctx *ctx);
void tu_result_end(struct tu_ctx *ctx);

/* By tu_main: write what is pending. `status` so far; returns a failed write's status
 * or 0. */
int tu_report_finish(struct tu_ctx *ctx, int status);

#endif
