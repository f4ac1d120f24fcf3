/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h: every picture of every tool: SVG, charts, terminal grids.
 *
 * One palette (Okabe and Ito 2008, safe for colour-blind readers), one font stack,
 * identical bytes for identical input: numbers have at most two decimals, nothing depends
 * on locale, time or place. Lengths are in CSS pixels. May change before 1.0. */
#ifndef TENSORUTILS_DRAW_H
#define TENSORUTILS_DRAW_H

#include "core.h"

TU_BEGIN

/* Colours by number, "#rrggbb"; past the end they repeat, lighter. */
TU_API const char *tu_colour(unsigned i);
/* Its three bytes. */
TU_API void tu_colour_rgb(const char *colour, unsigned char rgb[3]);
/* A colour this much of the way to white. */
TU_API const char *tu_shade(const char *colour, unsigned percent, char out[8]);
/* The colour of text that can be read on this one. */
TU_API const char *tu_ink_on(const char *colour);
#define TU_COLOUR_TEXT "#222222"
#define TU_COLOUR_GRID "#dddddd"
#define TU_COLOUR_IDLE "#e2e2e2"

/* An SVG document in the making. The first failure sticks and is returned by tu_svg_end.
 */
struct tu_svg {
    struct tu_buf *out;
    int code;
    struct tu_err err;
};

/* Alignment of a text at its point. */
enum tu_anchor { TU_LEFT, TU_MIDDLE, TU_RIGHT };

/* The document; ends with tu_svg_end. Text given as NULL is empty. */
TU_API void tu_svg_begin(struct tu_svg *s, struct tu_buf *out, double width,
                         double height, const char *title);
TU_API TU_MUST int tu_svg_end(struct tu_svg *s, struct tu_err *err);
/* Fill or stroke NULL means none; title NULL means no tooltip. */
TU_API void tu_svg_rect(struct tu_svg *s, double x, double y, double w, double h,
                        const char *fill, const char *stroke, const char *title);
TU_API void tu_svg_line(struct tu_svg *s, double x1, double y1, double x2, double y2,
                        const char *stroke, double width);
TU_API void tu_svg_path(struct tu_svg *s, const double *xy, size_t points,
                        const char *fill, const char *stroke, double width);
TU_API void tu_svg_circle(struct tu_svg *s, double x, double y, double r,
                          const char *fill);
TU_API void tu_svg_text(struct tu_svg *s, double x, double y, double size,
                        enum tu_anchor anchor, const char *colour, const char *text);
/* The same turned about its point, clockwise. */
TU_API void tu_svg_text_turned(struct tu_svg *s, double x, double y, double size,
                               enum tu_anchor anchor, const char *colour,
                               const char *text, double degrees);
TU_API void tu_svg_open(struct tu_svg *s, double dx,
                        double dy); /* a group moved by dx, dy */
TU_API void tu_svg_close(struct tu_svg *s);

/* A chart: series over one x axis, or bars over categories. */
enum tu_chart_kind { TU_CHART_LINES, TU_CHART_POINTS, TU_CHART_BARS };
struct tu_series {
    const char *name;
    size_t n;
    const double *x; /* [n]; NULL with bars: categories in order */
    const double *y; /* [n] */
};
struct tu_chart {
    enum tu_chart_kind kind;
    const char *title, *x_label, *y_label;
    bool log_x, log_y, y_from_zero;
    size_t n;
    const struct tu_series *series;
    const char *const *category;      /* bars: names, as many as the longest series */
    double width, height;             /* 0: 640 × 400 */
};
TU_API TU_MUST int tu_chart_svg(struct tu_buf *out, const struct tu_chart *c,
                                struct tu_err *err);
/* The chart alone, at (x, y) of a larger picture. */
TU_API void tu_chart_draw(struct tu_svg *s, const struct tu_chart *c, double x, double y);
/* "Nice" ticks that cover [lo, hi], at most max (≥ 2); returns how many, 0 for a range
 * that is not finite. */
TU_API size_t tu_ticks(double lo, double hi, size_t max, double *tick);

/* A grid of coloured cells with short labels, for terminals: plain text without colour. */
struct tu_grid_cell {
    const char *text;
    int colour; /* number for tu_colour, -1: none */
};
struct tu_grid {
    const struct tu_grid_cell *cell; /* [rows][cols] */
    size_t rows, cols;
    const char *const *label; /* [rows], NULL: none */
    bool colour;
    size_t width; /* of a line, in characters: the rest follows below; 0: no limit */
};
/* Appended to out, one line for each row. */
TU_API TU_MUST int tu_grid_text(struct tu_buf *out, const struct tu_grid *g,
                                struct tu_err *err);

TU_END

#endif
