/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h: the kernels of element-wise reductions, by instruction set.
 *
 * Only whole types of the machine are here: f32, f64 and integers. Smaller floats go
 * through f32 in blocks (reduce.c). */
#ifndef TENSORUTILS_COLL_REDUCE_H
#define TENSORUTILS_COLL_REDUCE_H

#include <tensorutils/coll.h>

enum tui_type {
    TUI_F32,
    TUI_F64,
    TUI_I8,
    TUI_U8,
    TUI_I16,
    TUI_U16,
    TUI_I32,
    TUI_U32,
    TUI_I64,
    TUI_U64,
    TUI_TYPES
};
#define TUI_KERNELS 4 /* SUM, PROD, MIN, MAX */

/* -1 for other types. */
int tui_type_of(uint32_t dtype);
/* f32 in the middle: floats of 16 bits and less. */
bool tui_is_small_float(uint32_t dtype);
/* What a kernel row's fn is. */
typedef tu_reduce_fn (*tui_reduce_get)(enum tui_type type, enum tu_op op);
tu_reduce_fn tui_reduce_avx512(enum tui_type type, enum tu_op op);
tu_reduce_fn tui_reduce_avx2(enum tui_type type, enum tu_op op);
tu_reduce_fn tui_reduce_plain(enum tui_type type, enum tu_op op);
/* Copy past the caches: for what nobody reads soon. */
void tui_copy_past(void *dst, const void *src, size_t n);

#endif
