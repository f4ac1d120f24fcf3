/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c: marks, SVG text, charts and terminal grids. */
#include <math.h>
#include <stdlib.h>
#include "../tap.h"
#include "draw/draw.h"

static void test_ticks(void)
{
    static const struct {
        double lo, hi;
        size_t max, n;
        double first, last;
    } row[] = {
        {0, 10, 6, 6, 0, 10},    {0, 1, 11, 11, 0, 1},
        {0.3, 9.7, 6, 6, 0, 10}, {-5, 5, 5, 5, -10, 10},
        {0, 105, 8, 7, 0, 120},  {1e-7, 3e-7, 5, 5, 1e-7, 3e-7},
        {5, 5, 6, 6, 2, 8},      {1e9, 2.2e9, 8, 8, 1e9, 2.4e9},
    };
    double t[64];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        size_t n = tu_ticks(row[i].lo, row[i].hi, row[i].max, t);
        ok(n >= 2 && n <= row[i].max, "%g..%g: %zu marks of at most %zu", row[i].lo,
           row[i].hi, n, row[i].max);
        ok(t[0] <= row[i].lo && t[n - 1] >= row[i].hi, "%g..%g is covered by %g..%g",
           row[i].lo, row[i].hi, t[0], t[n - 1]);
        double step = t[1] - t[0];
        double lead = step / pow(10, floor(log10(step) + 1e-9));
        ok(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6,
           "step %g is 1, 2 or 5 times a power of ten", step);
    }
    eq_u64(tu_ticks(0, NAN, 5, t), 0, "no marks for NaN");
    eq_u64(tu_ticks(0, INFINITY, 5, t), 0, "no marks for infinity");
    eq_u64(tu_ticks(-1e308, 1.7e308, 5, t), 0, "no marks for a range that overflows");
    ok(tu_ticks(5, 1, 5, t) >= 2 && t[0] <= 1, "limits may be given in either order");
    struct tui_axis a;
    char text[32];
    tui_axis_of(&a, 3, 40000, true, 6);
    eq_u64(a.n, 6, "1 … 100k in decades");
    eq_str(tui_axis_label(&a, 0, text), "1", "first decade");
    eq_str(tui_axis_label(&a, 4, text), "10k", "ten thousand");
    ok(fabs(tui_axis_at(&a, 1000) - 0.6) < 1e-12, "log position");
    tui_axis_of(&a, 0, 1, true, 6);
    ok(!a.log, "a log axis with zero falls back to linear");
    tui_axis_of(&a, 0.1, 0.4, false, 8);
    eq_str(tui_axis_label(&a, 2, text), "0.2", "no dust after the decimals");
}

static void test_svg(void)
{
    struct tu_buf b = {0};
    struct tu_svg s;
    struct tu_err err;
    tu_svg_begin(&s, &b, 10, 20.5, "a<b & \"c\"");
    tu_svg_rect(&s, 1.005, -0.001, 2.5, 3.999, "#fff", NULL, "tip\n\xff");
    tu_svg_line(&s, 0, 0, 1, 1, "#000", 0.1);
    tu_svg_text(&s, 1, 2, 9, TU_RIGHT, "#000", "x>y");
    ok(!tu_svg_end(&s, &err), "picture ends well");
    static const char want[] = "viewBox=\"0 0 10 20.5\"";
    ok(strstr(b.data, want), "size without trailing zeros");
    ok(strstr(b.data, "<title>a&lt;b &amp; &quot;c&quot;</title>"), "title is escaped");
    ok(strstr(b.data, "y=\"0\" width=\"2.5\" height=\"4\""),
       "two decimals, no minus zero");
    ok(strstr(b.data, "<title>tip?\?</title>"), "controls and broken UTF-8 are replaced");
    ok(strstr(b.data, "stroke-width=\"0.1\""), "one decimal stays one");
    ok(strstr(b.data, "text-anchor=\"end\" fill=\"#000\">x&gt;y</text>"), "text");
    tu_buf_reset(&b);
    tu_svg_begin(&s, &b, 10, 10, NULL);
    tu_svg_circle(&s, NAN, 0, 1, "#000");
    eq_int(tu_svg_end(&s, &err), TU_EUSAGE, "NaN is refused");
    tu_buf_release(&b);
    tu_buf_init(&b, 64);
    tu_svg_begin(&s, &b, 10, 10, "too long for this");
    eq_int(tu_svg_end(&s, &err), TU_ELIMIT, "a full buffer is told at the end");
    tu_buf_release(&b);
}

static void test_chart(void)
{
    static const double x[] = {1, 10, 100, 1000}, y[] = {3, NAN, 50, 0},
                        z[] = {1, 2, 3, 4};
    const struct tu_series one[] = {{"a", 4, x, y}, {"b", 4, x, z}};
    for (int kind = TU_CHART_LINES; kind <= TU_CHART_BARS; kind++)
        for (int log = 0; log < 4; log++) {
            struct tu_chart c = {.kind = (enum tu_chart_kind)kind,
                                 .title = "t",
                                 .x_label = "x",
                                 .y_label = "y",
                                 .log_x = log & 1,
                                 .log_y = log & 2,
                                 .n = 2,
                                 .series = one};
            struct tu_buf b = {0}, d = {0};
            ok(!tu_chart_svg(&b, &c, NULL) && !tu_chart_svg(&d, &c, NULL),
               "kind %d log %d", kind, log);
            ok(b.n == d.n && !memcmp(b.data, d.data, b.n), "the same bytes twice");
            ok(!strstr(b.data, "nan") && !strstr(b.data, "inf"),
               "no numbers that are none");
            tu_buf_release(&b);
            tu_buf_release(&d);
        }
    struct tu_chart none = {.kind = TU_CHART_LINES};
    struct tu_buf b = {0};
    ok(!tu_chart_svg(&b, &none, NULL), "a chart of nothing is empty axes");
    tu_buf_release(&b);
}

static void test_grid(void)
{
    static const struct tu_grid_cell g[] = {{"F0", 0},  {NULL, -1}, {"B10", 1},
                                            {"", -1},   {NULL, -1}, {"W\xc3\xa9", 2},
                                            {NULL, -1}, {NULL, -1}};
    static const char *const label[] = {"rank 0", "r1"};
    struct tu_buf b = {0};
    ok(!tu_grid_text(&b, &(struct tu_grid){g, 2, 4, label, false, 0}, NULL), "plain grid");
    eq_str(b.data, "rank 0  F0      B10\nr1          W\xc3\xa9\n",
           "columns are equally wide");
    tu_buf_reset(&b);
    ok(!tu_grid_text(&b, &(struct tu_grid){g, 2, 4, label, false, 15}, NULL), "narrow grid");
    eq_str(b.data, "rank 0  F0\nr1          W\xc3\xa9\n\nrank 0  B10\nr1\n",
           "two columns fit, the others follow below");
    tu_buf_reset(&b);
    ok(!tu_grid_text(&b, &(struct tu_grid){g, 1, 1, NULL, true, 0}, NULL), "coloured grid");
    eq_str(b.data, "\x1b[48;2;0;114;178m\x1b[38;2;255;255;255mF0\x1b[0m\n",
           "24-bit colour");
    tu_buf_release(&b);
}

static void test_colour(void)
{
    char shade[8];
    eq_str(tu_colour(0), "#0072b2", "the first colour");
    ok(strcmp(tu_colour(8), tu_colour(0)), "past the end they are lighter");
    eq_str(tu_colour(24), tu_colour(0), "and repeat");
    eq_str(tu_shade("#0072b2", 100, shade), "#ffffff", "all the way to white");
    eq_str(tu_shade("#0072b2", 0, shade), "#0072b2", "not at all");
    eq_str(tu_ink_on("#f0e442"), TU_COLOUR_TEXT, "dark text on yellow");
    eq_str(tu_ink_on("#0072b2"), "#ffffff", "white text on blue");
    /* An area of it can be told from white paper: a tenth darker, at least. */
    unsigned char idle[3];
    tu_colour_rgb(TU_COLOUR_IDLE, idle);
    ok(idle[0] <= 230 && idle[1] <= 230 && idle[2] <= 230, "idle is not white");
}

int main(void)
{
    test_ticks();
    test_svg();
    test_chart();
    test_grid();
    test_colour();
    return tap_done();
}
