/* SPDX-License-Identifier: Apache-2.0 */
/* press.h: general compressors of bytes, a row each. */
#ifndef TU_KV_PRESS_H
#define TU_KV_PRESS_H

#include <tensorutils/core.h>

/* Library calls of those that are loaded when they are asked for. */
struct tui_press_calls {
    size_t (*zstd)(void *to, size_t room, const void *from, size_t n, int level);
    size_t (*unzstd)(void *to, size_t room, const void *from, size_t n);
    unsigned (*zstd_error)(size_t result);
    int (*lz4)(const char *from, char *to, int n, int room);
    int (*unlz4)(const char *from, char *to, int n, int room);
};

struct tui_press {
    const struct tui_press_row *row; /* NULL: none */
    int level, strategy;
    void *library;
    struct tui_press_calls call;
};

/* By name, with level= and strategy= of spec. Errors: TU_EUSAGE; TU_EMISSING naming the
 * library and the package that brings it. */
TU_MUST int tui_press_open(struct tui_press *p, const char *name, const struct tu_spec *spec,
                           struct tu_err *err);
void tui_press_close(struct tui_press *p); /* one that was not opened too, if it is zero */
/* x[n] to out[room]; 0 where it is not smaller than n. */
size_t tui_press(const struct tui_press *p, const void *x, size_t n, void *out, size_t room);
/* Exactly n bytes from in[size]; false for what `tui_press` does not make. */
bool tui_unpress(const struct tui_press *p, const void *in, size_t size, void *x, size_t n);

#endif
