/* SPDX-License-Identifier: Apache-2.0 */
/* colour.c: the one palette, and lighter shades of its colours.
 *
 * Source: M. Okabe and K. Ito, "Color Universal Design", 2008; the order puts the pairs
 * that differ most under every kind of colour blindness first. */
#include "tensorutils/draw.h"

#define BASE 8
#define SHADES 3

/* Rows: full, and 45 % and 70 % of the way to white. */
static const char palette[SHADES * BASE][8] = {
    "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7",
    "#f0e442", "#000000", "#73b1d5", "#e8a673", "#73cab2", "#f1ca73",
    "#a2d6f3", "#e3b5cf", "#f7f097", "#737373", "#b2d5e8", "#f2cfb2",
    "#b2e2d5", "#f8e2b2", "#cce9f8", "#f0d7e5", "#fbf7c6", "#b2b2b2",
};

const char *tu_colour(unsigned i)
{
    return palette[i % (SHADES * BASE)];
}

static unsigned hex(char c)
{
    return c >= 'a'   ? (unsigned)(c - 'a') + 10
           : c >= 'A' ? (unsigned)(c - 'A') + 10
                      : (unsigned)(c - '0') & 15;
}

void tu_colour_rgb(const char *colour, unsigned char rgb[3])
{
    for (int i = 0; i < 3; i++)
        rgb[i] = (unsigned char)(hex(colour[1 + 2 * i]) << 4 | hex(colour[2 + 2 * i]));
}

const char *tu_shade(const char *colour, unsigned percent, char out[8])
{
    static const char digit[] = "0123456789abcdef";
    unsigned char rgb[3];
    tu_colour_rgb(colour, rgb);
    out[0] = '#';
    for (int i = 0; i < 3; i++) {
        unsigned v = rgb[i] + (255u - rgb[i]) * (percent > 100 ? 100 : percent) / 100;
        out[1 + 2 * i] = digit[v >> 4];
        out[2 + 2 * i] = digit[v & 15];
    }
    out[7] = 0;
    return out;
}

const char *tu_ink_on(const char *colour)
{
    unsigned char c[3];
    tu_colour_rgb(colour, c);
    /* ITU-R BT.601 luma */
    return 299u * c[0] + 587u * c[1] + 114u * c[2] > 140000u ? TU_COLOUR_TEXT : "#ffffff";
}
