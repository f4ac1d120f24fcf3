/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c: writes SVG 1.1 elements into a buffer.
 *
 * Numbers have at most two decimals and no trailing zeros, made from integers, so that
 * the bytes do not depend on a C library. Text is escaped; ill-formed UTF-8 and controls
 * become '?'. Not for reading or changing pictures. */
#include <math.h>
#include <string.h>
#include "tensorutils/draw.h"

#define FONT "Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif"

static void put(struct tu_svg *s, const char *text, size_t n)
{
    if (!s->code)
        s->code = tu_buf_add(s->out, text, n, &s->err);
}

static void puts_(struct tu_svg *s, const char *text)
{
    put(s, text, strlen(text));
}

/* Hundredths as text; the largest is 20 digits long. */
static void number(struct tu_svg *s, double v)
{
    char text[32], *p = text + sizeof text;
    if (!s->code && !(fabs(v) < 1e15))
        s->code =
            tu_fail(&s->err, TU_EUSAGE, "drawing: a coordinate is not a finite number");
    if (s->code)
        return;
    long long h = llround(v * 100);
    unsigned long long u = h < 0 ? -(unsigned long long)h : (unsigned long long)h;
    unsigned cents = (unsigned)(u % 100);
    if (cents) {
        if (cents % 10)
            *--p = (char)('0' + cents % 10);
        *--p = (char)('0' + cents / 10);
        *--p = '.';
    }
    u /= 100;
    do
        *--p = (char)('0' + u % 10);
    while (u /= 10);
    if (h < 0)
        *--p = '-';
    put(s, p, (size_t)(text + sizeof text - p));
}

static void attribute(struct tu_svg *s, const char *name, double v)
{
    puts_(s, " ");
    puts_(s, name);
    puts_(s, "=\"");
    number(s, v);
    puts_(s, "\"");
}

static void paint(struct tu_svg *s, const char *name, const char *value)
{
    puts_(s, " ");
    puts_(s, name);
    puts_(s, "=\"");
    puts_(s, value ? value : "none");
    puts_(s, "\"");
}

static void escaped(struct tu_svg *s, const char *text)
{
    size_t n = strlen(text), good = tu_utf8_check(text, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        switch (c) {
        case '&': puts_(s, "&amp;"); break;
        case '<': puts_(s, "&lt;"); break;
        case '>': puts_(s, "&gt;"); break;
        case '"': puts_(s, "&quot;"); break;
        default: put(s, c < 32 || c == 127 || (i >= good && c > 127) ? "?" : text + i, 1);
        }
    }
}

void tu_svg_begin(struct tu_svg *s, struct tu_buf *out, double width, double height,
                  const char *title)
{
    *s = (struct tu_svg){.out = out};
    puts_(s, "<svg xmlns=\"http://www.w3.org/2000/svg\"");
    attribute(s, "width", width);
    attribute(s, "height", height);
    puts_(s, " viewBox=\"0 0 ");
    number(s, width);
    puts_(s, " ");
    number(s, height);
    puts_(s, "\" font-family=\"" FONT "\">\n<title>");
    escaped(s, title ? title : "");
    puts_(s, "</title>\n");
    tu_svg_rect(s, 0, 0, width, height, "#ffffff", NULL, NULL);
}

int tu_svg_end(struct tu_svg *s, struct tu_err *err)
{
    puts_(s, "</svg>\n");
    if (s->code && err)
        *err = s->err;
    return s->code;
}

void tu_svg_rect(struct tu_svg *s, double x, double y, double w, double h,
                 const char *fill, const char *stroke, const char *title)
{
    puts_(s, "<rect");
    attribute(s, "x", x);
    attribute(s, "y", y);
    attribute(s, "width", w);
    attribute(s, "height", h);
    paint(s, "fill", fill);
    if (stroke)
        paint(s, "stroke", stroke);
    if (!title) {
        puts_(s, "/>\n");
        return;
    }
    puts_(s, "><title>");
    escaped(s, title);
    puts_(s, "</title></rect>\n");
}

void tu_svg_line(struct tu_svg *s, double x1, double y1, double x2, double y2,
                 const char *stroke, double width)
{
    puts_(s, "<path d=\"M");
    number(s, x1);
    puts_(s, " ");
    number(s, y1);
    puts_(s, "L");
    number(s, x2);
    puts_(s, " ");
    number(s, y2);
    puts_(s, "\"");
    paint(s, "stroke", stroke);
    attribute(s, "stroke-width", width);
    puts_(s, "/>\n");
}

void tu_svg_path(struct tu_svg *s, const double *xy, size_t points, const char *fill,
                 const char *stroke, double width)
{
    if (!points)
        return;
    puts_(s, "<path d=\"");
    for (size_t i = 0; i < points; i++) {
        puts_(s, i ? "L" : "M");
        number(s, xy[2 * i]);
        puts_(s, " ");
        number(s, xy[2 * i + 1]);
    }
    puts_(s, fill ? "Z\"" : "\"");
    paint(s, "fill", fill);
    if (stroke) {
        paint(s, "stroke", stroke);
        attribute(s, "stroke-width", width);
        puts_(s, " stroke-linejoin=\"round\"");
    }
    puts_(s, "/>\n");
}

void tu_svg_circle(struct tu_svg *s, double x, double y, double r, const char *fill)
{
    puts_(s, "<circle");
    attribute(s, "cx", x);
    attribute(s, "cy", y);
    attribute(s, "r", r);
    paint(s, "fill", fill);
    puts_(s, "/>\n");
}

void tu_svg_text_turned(struct tu_svg *s, double x, double y, double size,
                        enum tu_anchor anchor, const char *colour, const char *text,
                        double degrees)
{
    static const char *const at[] = {NULL, "middle", "end"};
    puts_(s, "<text");
    attribute(s, "x", x);
    attribute(s, "y", y);
    attribute(s, "font-size", size);
    if (at[anchor])
        paint(s, "text-anchor", at[anchor]);
    paint(s, "fill", colour);
    if (degrees < 0 || degrees > 0) {
        puts_(s, " transform=\"rotate(");
        number(s, degrees);
        puts_(s, " ");
        number(s, x);
        puts_(s, " ");
        number(s, y);
        puts_(s, ")\"");
    }
    puts_(s, ">");
    escaped(s, text);
    puts_(s, "</text>\n");
}

void tu_svg_text(struct tu_svg *s, double x, double y, double size, enum tu_anchor anchor,
                 const char *colour, const char *text)
{
    tu_svg_text_turned(s, x, y, size, anchor, colour, text, 0);
}

void tu_svg_open(struct tu_svg *s, double dx, double dy)
{
    puts_(s, "<g transform=\"translate(");
    number(s, dx);
    puts_(s, " ");
    number(s, dy);
    puts_(s, ")\">\n");
}

void tu_svg_close(struct tu_svg *s)
{
    puts_(s, "</g>\n");
}
