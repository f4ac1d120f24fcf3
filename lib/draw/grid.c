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

int tu_grid_text(struct tu_buf *out, const struct tu_grid_cell *grid, size_t rows,
                 size_t cols, const char *const *row_label, bool colour,
                 struct tu_err *err)
{
    size_t width = 1, label = 0;
    for (size_t i = 0; i < rows * cols; i++)
        width = columns(grid[i].text) > width ? columns(grid[i].text) : width;
    for (size_t r = 0; row_label && r < rows; r++)
        label = columns(row_label[r]) > label ? columns(row_label[r]) : label;
    int rc = 0;
    for (size_t r = 0; r < rows && !rc; r++) {
        size_t last = cols;
        const struct tu_grid_cell *c = grid + r * cols;
        while (last && !columns(c[last - 1].text) && !(colour && c[last - 1].colour >= 0))
            last--;
        if (label) {
            rc = tu_buf_text(out, row_label[r], err);
            if (!rc && last)
                rc = pad(out, label - columns(row_label[r]) + 2, err);
        }
        for (size_t k = 0; k < last && !rc; k++) {
            rc = cell(out, &c[k], width, colour, err);
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
