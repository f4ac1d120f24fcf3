/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c: lines, points and bars over two axes, with marks and a legend.
 *
 * Series differ by colour and by the shape of their marks, so a grey print can be read
 * too. Values that are not finite, or not positive on a log axis, leave a gap. Not for
 * more than a few dozen series. */
#include <math.h>
#include "draw/draw.h"

#define WIDTH 640.0
#define HEIGHT 400.0
#define SMALL 11.0 /* font sizes */
#define TITLE 14.0
#define MARKED 60 /* points that still get marks on a line */

struct frame {
    const struct tu_chart *c;
    struct tui_axis x, y;
    double left, top, w, h; /* of the plot */
    double width, height;   /* of the whole */
    size_t bars;            /* categories */
};

static bool usable(const struct tu_chart *c, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!c->log_x || x > 0) && (!c->log_y || y > 0);
}

static double x_of(const struct tu_series *s, size_t i)
{
    return s->x ? s->x[i] : (double)i;
}

static void ranges(struct frame *f)
{
    const struct tu_chart *c = f->c;
    double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
    for (size_t k = 0; k < c->n; k++) {
        const struct tu_series *s = &c->series[k];
        if (c->kind == TU_CHART_BARS && s->n > f->bars)
            f->bars = s->n;
        for (size_t i = 0; i < s->n; i++) {
            double x = x_of(s, i), y = s->y[i];
            if (!usable(c, x, y))
                continue;
            lo[0] = fmin(lo[0], x), hi[0] = fmax(hi[0], x);
            lo[1] = fmin(lo[1], y), hi[1] = fmax(hi[1], y);
        }
    }
    if ((c->kind == TU_CHART_BARS || c->y_from_zero) && !c->log_y) {
        lo[1] = fmin(lo[1], 0);
        hi[1] = fmax(hi[1], 0);
    }
    tui_axis_of(&f->y, lo[1], hi[1], c->log_y, (size_t)(f->height / 50) + 2);
    tui_axis_of(&f->x, lo[0], hi[0], c->log_x, (size_t)(f->width / 70) + 2);
}

static double px(const struct frame *f, double x)
{
    return f->left + f->w * tui_axis_at(&f->x, x);
}

static double py(const struct frame *f, double y)
{
    return f->top + f->h * (1 - tui_axis_at(&f->y, y));
}

/* Rows that the legend takes when laid out from x0; drawn if s is not NULL. */
static double legend(struct tu_svg *s, const struct frame *f, double x0, double y0);

static bool turned(const struct frame *f)
{
    for (size_t i = 0; f->c->category && i < f->bars; i++)
        if (tui_text_width(f->c->category[i], SMALL) > f->w / (double)f->bars - 4)
            return true;
    return false;
}

static void layout(struct frame *f)
{
    const struct tu_chart *c = f->c;
    double label = 0;
    char text[32];
    for (size_t i = 0; i < f->y.n; i++)
        label = fmax(label, tui_text_width(tui_axis_label(&f->y, i, text), SMALL));
    f->left = 12 + label + (c->y_label ? 20 : 0) + 6;
    f->top = 12 + (c->title ? TITLE + 8 : 0);
    f->w = f->width - f->left - 22;
    f->top += legend(NULL, f, f->left, f->top);
    double foot = 22 + (c->x_label ? 18 : 0);
    if (c->kind == TU_CHART_BARS && turned(f)) {
        double longest = 0;
        for (size_t i = 0; i < f->bars; i++)
            longest = fmax(longest, tui_text_width(c->category[i], SMALL));
        foot += fmin(longest, 160) * 0.6;
    }
    f->h = f->height - f->top - foot - 6;
}

static void mark(struct tu_svg *s, size_t shape, double x, double y, const char *colour)
{
    double r = 3.4;
    switch (shape % 4) {
    case 0: tu_svg_circle(s, x, y, r, colour); break;
    case 1:
        tu_svg_rect(s, x - r + .4, y - r + .4, 2 * r - .8, 2 * r - .8, colour, NULL,
                    NULL);
        break;
    case 2:
        tu_svg_path(
            s, (double[]){x, y - r - 1, x + r + .6, y + r - .4, x - r - .6, y + r - .4},
            3, colour, NULL, 0);
        break;
    default:
        tu_svg_path(s, (double[]){x, y - r - 1, x + r + 1, y, x, y + r + 1, x - r - 1, y},
                    4, colour, NULL, 0);
    }
}

static double legend(struct tu_svg *s, const struct frame *f, double x0, double y0)
{
    const struct tu_chart *c = f->c;
    double x = x0, y = y0 + 8;
    if (c->n < 2 && !(c->n == 1 && c->series[0].name))
        return 0;
    for (size_t k = 0; k < c->n; k++) {
        const char *name = c->series[k].name ? c->series[k].name : "";
        double w = 26 + tui_text_width(name, SMALL) + 14;
        if (k && x + w > x0 + f->w + 14) {
            x = x0;
            y += 17;
        }
        if (s) {
            const char *colour = tu_colour((unsigned)k);
            if (c->kind == TU_CHART_BARS)
                tu_svg_rect(s, x + 6, y - 9, 12, 10, colour, NULL, NULL);
            else if (c->kind != TU_CHART_POINTS)
                tu_svg_line(s, x, y - 4, x + 20, y - 4, colour, 1.8);
            if (c->kind == TU_CHART_LINES || c->kind == TU_CHART_POINTS)
                mark(s, k, x + 10, y - 4, colour);
            tu_svg_text(s, x + 25, y, SMALL, TU_LEFT, TU_COLOUR_TEXT, name);
        }
        x += w;
    }
    return y - y0 + 10;
}

static void axes(struct tu_svg *s, const struct frame *f)
{
    const struct tu_chart *c = f->c;
    char text[32];
    for (size_t i = 0; i < f->y.n; i++) {
        double y = py(f, f->y.tick[i]);
        tu_svg_line(s, f->left, y, f->left + f->w, y, TU_COLOUR_GRID, 1);
        tu_svg_text(s, f->left - 6, y + SMALL * .35, SMALL, TU_RIGHT, TU_COLOUR_TEXT,
                    tui_axis_label(&f->y, i, text));
    }
    double base = f->top + f->h;
    for (size_t i = 0; c->kind != TU_CHART_BARS && i < f->x.n; i++) {
        double x = px(f, f->x.tick[i]);
        tu_svg_line(s, x, f->top, x, base, TU_COLOUR_GRID, 1);
        tu_svg_text(s, x, base + 16, SMALL, TU_MIDDLE, TU_COLOUR_TEXT,
                    tui_axis_label(&f->x, i, text));
    }
    bool slant = c->kind == TU_CHART_BARS && turned(f);
    for (size_t i = 0; c->kind == TU_CHART_BARS && c->category && i < f->bars; i++) {
        double x = f->left + f->w * ((double)i + .5) / (double)f->bars;
        tu_svg_text_turned(s, x + (slant ? 4 : 0), base + 16, SMALL,
                           slant ? TU_RIGHT : TU_MIDDLE, TU_COLOUR_TEXT, c->category[i],
                           slant ? -35 : 0);
    }
    if (c->x_label)
        tu_svg_text(s, f->left + f->w / 2, f->height - 8, SMALL + 1, TU_MIDDLE,
                    TU_COLOUR_TEXT, c->x_label);
    if (c->y_label)
        tu_svg_text_turned(s, 18, f->top + f->h / 2, SMALL + 1, TU_MIDDLE, TU_COLOUR_TEXT,
                           c->y_label, -90);
    if (c->title)
        tu_svg_text(s, f->left, 12 + TITLE * .8, TITLE, TU_LEFT, TU_COLOUR_TEXT,
                    c->title);
}

/* One run of usable points. */
static size_t stroke(struct tu_svg *s, const struct frame *f, size_t k, size_t from)
{
    const struct tu_series *v = &f->c->series[k];
    size_t to = from, n = 0;
    while (to < v->n && usable(f->c, x_of(v, to), v->y[to]))
        to++;
    double *xy = tu_alloc(2 * (to - from) + 1, sizeof *xy, &s->err);
    if (!xy) {
        s->code = s->code ? s->code : TU_ENOMEM;
        return v->n;
    }
    for (size_t i = from; i < to; i++) {
        xy[2 * n] = px(f, x_of(v, i));
        xy[2 * n + 1] = py(f, v->y[i]);
        n++;
    }
    tu_svg_path(s, xy, n, NULL, tu_colour((unsigned)k), 1.8);
    tu_free(xy);
    return to;
}

static void curves(struct tu_svg *s, const struct frame *f)
{
    for (size_t k = 0; k < f->c->n; k++) {
        const struct tu_series *v = &f->c->series[k];
        for (size_t i = 0; f->c->kind != TU_CHART_POINTS && i < v->n; i++)
            if (usable(f->c, x_of(v, i), v->y[i]))
                i = stroke(s, f, k, i);
        bool marks = f->c->kind == TU_CHART_POINTS ||
                     (f->c->kind == TU_CHART_LINES && v->n <= MARKED);
        for (size_t i = 0; marks && i < v->n; i++)
            if (usable(f->c, x_of(v, i), v->y[i]))
                mark(s, k, px(f, x_of(v, i)), py(f, v->y[i]), tu_colour((unsigned)k));
    }
}

static void bars(struct tu_svg *s, const struct frame *f)
{
    const struct tu_chart *c = f->c;
    double slot = f->w / (double)(f->bars ? f->bars : 1),
           one = slot * .8 / (double)(c->n ? c->n : 1);
    double zero = py(f, c->log_y ? f->y.lo : 0);
    for (size_t k = 0; k < c->n; k++)
        for (size_t i = 0; i < c->series[k].n; i++) {
            double v = c->series[k].y[i];
            if (!usable(c, 1, v))
                continue;
            double y = py(f, v), x = f->left + slot * ((double)i + .1) + one * (double)k;
            tu_svg_rect(s, x, fmin(y, zero), one * .94, fabs(zero - y),
                        tu_colour((unsigned)k), NULL, NULL);
        }
}

void tu_chart_draw(struct tu_svg *s, const struct tu_chart *c, double x, double y)
{
    struct frame f = {.c = c,
                      .width = c->width > 0 ? c->width : WIDTH,
                      .height = c->height > 0 ? c->height : HEIGHT};
    ranges(&f);
    layout(&f);
    tu_svg_open(s, x, y);
    axes(s, &f);
    if (c->kind == TU_CHART_BARS)
        bars(s, &f);
    else
        curves(s, &f);
    double base = f.top + f.h;
    tu_svg_line(s, f.left, base, f.left + f.w, base, TU_COLOUR_TEXT, 1);
    tu_svg_line(s, f.left, f.top, f.left, base, TU_COLOUR_TEXT, 1);
    legend(s, &f, f.left, 12 + (c->title ? TITLE + 8 : 0));
    tu_svg_close(s);
}

int tu_chart_svg(struct tu_buf *out, const struct tu_chart *c, struct tu_err *err)
{
    struct tu_svg s;
    tu_svg_begin(&s, out, c->width > 0 ? c->width : WIDTH,
                 c->height > 0 ? c->height : HEIGHT, c->title);
    tu_chart_draw(&s, c, 0, 0);
    return tu_svg_end(&s, err);
}
