/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c: rows of short labelled cells for a terminal, with or without 24-bit colour.
 *
 * Every column is as wide as the widest cell; blanks at a line's end are left out, so the
 * plain form can be compared as text. */
#include <string.h>
#include "tensorutils/draw.h"

/* Columns that a text takes, one for each code point. */
static size_t columns(const char *s)
{
    size_t n = 0;
    for (; s && *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static int pad(struct tu_buf *out, size_t n, struct tu_err *err)
{
    char *p = tu_buf_room(out, n, err);
    if (!p)
        return err ? err->code : TU_ENOMEM;
    memset(p, ' ', n);
    out->n += n;
    return 0;
}

static int cell(struct tu_buf *out, const struct tu_grid_cell *c, size_t width,
                bool colour, struct tu_err *err)
{
    const char *text = c->text ? c->text : "";
    bool painted = colour && c->colour >= 0;
    int rc = 0;
    if (painted) {
        unsigned char bg[3], ink[3];
        tu_colour_rgb(tu_colour((unsigned)c->colour), bg);
        tu_colour_rgb(tu_ink_on(tu_colour((unsigned)c->colour)), ink);
        rc = tu_buf_printf(out, err, "\x1b[48;2;%u;%u;%um\x1b[38;2;%u;%u;%um", bg[0],
                           bg[1], bg[2], ink[0], ink[1], ink[2]);
    }
    if (!rc)
        rc = tu_buf_text(out, text, err);
    if (!rc)
        rc = pad(out, width - columns(text), err);
    if (!rc && painted)
        rc = tu_buf_text(out, "\x1b[0m", err);
    return rc;
}

/* Columns `from` up to `to` of all rows. */
static int block(struct tu_buf *out, const struct tu_grid *g, size_t from, size_t to,
                 size_t width, size_t label, struct tu_err *err)
{
    int rc = 0;
    for (size_t r = 0; r < g->rows && !rc; r++) {
        size_t last = to;
        const struct tu_grid_cell *c = g->cell + r * g->cols;
        while (last > from && !columns(c[last - 1].text) &&
               !(g->colour && c[last - 1].colour >= 0))
            last--;
        if (label) {
            rc = tu_buf_text(out, g->label[r], err);
            if (!rc && last > from)
                rc = pad(out, label - columns(g->label[r]) + 2, err);
        }
        for (size_t k = from; k < last && !rc; k++) {
            rc = cell(out, &c[k], width, g->colour, err);
            if (!rc && k + 1 < last)
                rc = pad(out, 1, err);
        }
        while (!rc && out->n && out->data[out->n - 1] == ' ')
            out->n--;
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

int tu_grid_text(struct tu_buf *out, const struct tu_grid *g, struct tu_err *err)
{
    size_t width = 1, label = 0, fits = g->cols;
    for (size_t i = 0; i < g->rows * g->cols; i++)
        width = columns(g->cell[i].text) > width ? columns(g->cell[i].text) : width;
    for (size_t r = 0; g->label && r < g->rows; r++)
        label = columns(g->label[r]) > label ? columns(g->label[r]) : label;
    size_t before = label ? label + 2 : 0;
    if (g->width)
        fits = g->width > before + width ? (g->width - before + 1) / (width + 1) : 1;
    int rc = g->cols ? 0 : block(out, g, 0, 0, width, label, err);
    for (size_t at = 0; at < g->cols && !rc; at += fits) {
        rc = at ? tu_buf_text(out, "\n", err) : 0;
        if (!rc)
            rc = block(out, g, at, at + fits < g->cols ? at + fits : g->cols, width, label,
                       err);
    }
    return rc;
}
