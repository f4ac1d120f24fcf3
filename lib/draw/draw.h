/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h: what the files of this room share and nobody else sees: axes. */
#ifndef TUI_DRAW_H
#define TUI_DRAW_H

#include "tensorutils/draw.h"

#define TUI_TICKS 24

/* One axis: its range, its marks and where a value falls. */
struct tui_axis {
    double lo, hi; /* lo < hi; both > 0 when log */
    bool log;
    size_t n;
    double tick[TUI_TICKS];
};

/* An axis over [lo, hi] (any finite values), at most `max` marks, limits on marks. */
void tui_axis_of(struct tui_axis *a, double lo, double hi, bool log, size_t max);
/* 0 at lo, 1 at hi. */
double tui_axis_at(const struct tui_axis *a, double v);
/* The text of mark i: "0.25", "1200", "10k", "1e-5". */
const char *tui_axis_label(const struct tui_axis *a, size_t i, char out[32]);
/* Width in pixels that a text of this size takes, near enough to lay things out. */
double tui_text_width(const char *text, double size);

#endif
