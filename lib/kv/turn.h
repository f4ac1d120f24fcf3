/* SPDX-License-Identifier: Apache-2.0 */
/* turn.h: rows × cols elements of 16 bits turned, a row for each instruction set. */
#ifndef TU_KV_TURN_H
#define TU_KV_TURN_H

#include <tensorutils/core.h>

/* Rows of `from` lie from_row bytes apart, those of `to` to_row. */
typedef void tui_turn_fn(const unsigned char *from, size_t from_row, unsigned char *to,
                         size_t to_row, uint64_t rows, uint64_t cols);
extern tui_turn_fn tui_turn_plain, tui_turn_avx2;
extern const struct tu_kernel tui_turn_kernels[];

#endif
