/* SPDX-License-Identifier: Apache-2.0 */
/* copy2d.c: runs by memcpy where both sides are contiguous, tiles of 32 × 32 where one is
 * turned. */

#include <string.h>

#include "copy2d.h"

#define TILE 32

/* One tile, with the element size known to the compiler. */
#define TURN(bytes)                                                                      \
    for (uint64_t i = 0; i < rows; i++)                                                  \
        for (uint64_t j = 0; j < cols; j++)                                              \
    memcpy(d + (i * drow + j * dcol) * (bytes), s + (i * srow + j * scol) * (bytes),     \
           (bytes))

static void turn(char *d, uint64_t drow, uint64_t dcol, const char *s, uint64_t srow,
                 uint64_t scol, uint64_t rows, uint64_t cols, size_t elem)
{
    switch (elem) {
    case 1: TURN(1); break;
    case 2: TURN(2); break;
    case 4: TURN(4); break;
    case 8: TURN(8); break;
    default: TURN(elem); break;
    }
}

void tui_copy2d(void *dst, uint64_t drow, uint64_t dcol, const void *src, uint64_t srow,
                uint64_t scol, uint64_t rows, uint64_t cols, size_t elem)
{
    char *d = dst;
    const char *s = src;
    if (dcol == 1 && scol == 1) {
        if (drow == cols && srow == cols) {
            memcpy(d, s, rows * cols * elem);
            return;
        }
        if (cols > 1 || elem > 8) {
            for (uint64_t i = 0; i < rows; i++)
                memcpy(d + i * drow * elem, s + i * srow * elem, cols * elem);
            return;
        }
    }
    for (uint64_t i = 0; i < rows; i += TILE)
        for (uint64_t j = 0; j < cols; j += TILE)
            turn(d + (i * drow + j * dcol) * elem, drow, dcol,
                 s + (i * srow + j * scol) * elem, srow, scol,
                 rows - i < TILE ? rows - i : TILE, cols - j < TILE ? cols - j : TILE,
                 elem);
}
