/* SPDX-License-Identifier: Apache-2.0 */
/* copy2d.h: a rectangle of elements from one affine layout to another. */
#ifndef TU_SHARD_COPY2D_H
#define TU_SHARD_COPY2D_H

#include <stddef.h>
#include <stdint.h>

/* Strides in elements of `elem` bytes; rows × cols elements. */
void tui_copy2d(void *dst, uint64_t drow, uint64_t dcol, const void *src, uint64_t srow,
                uint64_t scol, uint64_t rows, uint64_t cols, size_t elem);

#endif
