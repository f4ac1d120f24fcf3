/* SPDX-License-Identifier: Apache-2.0 */
/* move.cu: arrays to another order of their axes, pages gathered and scattered, 16-bit words
 * split into their bytes. */
#include "kernel.h"

enum { PER_BLOCK = 256, AT_ONCE = 4 };

KERNEL(move_boxes, tu_kernel_move, PER_BLOCK)
{
    uint64_t n = 1, step = (uint64_t)GRID_X * THREADS;
    for (unsigned k = 0; k < a.axes; k++)
        n *= a.dim[k];
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < n; i += step) {
        int64_t from = 0, to = 0;
        uint64_t left = i;
        for (unsigned k = a.axes; k-- > 0; left /= a.dim[k]) {
            int64_t at = (int64_t)(left % a.dim[k]), there = at;
            if (k == 0 && a.page_from)
                at = a.page_from[at];
            if (k == 0 && a.page_to)
                there = a.page_to[there];
            from += at * a.from[k];
            to += there * a.to[k];
        }
        if (a.elem == 1)
            a.dst[to] = a.src[from];
        else if (a.elem == 2)
            ((uint16_t *)(void *)a.dst)[to] = ((const uint16_t *)(const void *)a.src)[from];
        else if (a.elem == 4)
            ((uint32_t *)(void *)a.dst)[to] = ((const uint32_t *)(const void *)a.src)[from];
        else
            ((uint64_t *)(void *)a.dst)[to] = ((const uint64_t *)(const void *)a.src)[from];
    }
}

/* A thread has four words: 8 bytes in, 4 and 4 out. */
KERNEL(split_16, tu_kernel_split, PER_BLOCK)
{
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; AT_ONCE * i < a.n; i += step)
        for (uint64_t k = AT_ONCE * i; k < a.n && k < AT_ONCE * (i + 1); k++) {
            a.dst[k] = a.src[2 * k + 1];
            a.dst[a.n + k] = a.src[2 * k];
        }
}

KERNEL(join_16, tu_kernel_split, PER_BLOCK)
{
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; AT_ONCE * i < a.n; i += step)
        for (uint64_t k = AT_ONCE * i; k < a.n && k < AT_ONCE * (i + 1); k++) {
            a.dst[2 * k + 1] = a.src[k];
            a.dst[2 * k] = a.src[a.n + k];
        }
}

static int launch_move(const void *args, struct tu_queue *q, struct tu_err *err)
{
    const struct tu_kernel_move *a = (const struct tu_kernel_move *)args;
    uint64_t n = 1;
    if (a->axes > TU_KERNEL_AXES ||
        (a->elem != 1 && a->elem != 2 && a->elem != 4 && a->elem != 8))
        return tui_fail(err, TU_EUNSUP, "move.boxes: %u axes, elements of %u bytes",
                        (unsigned)a->axes, (unsigned)a->elem);
    for (unsigned k = 0; k < a->axes; k++)
        n *= a->dim[k];
    return LAUNCH(move_boxes, tui_blocks(n / WARP + 1, PER_BLOCK / WARP), 1, PER_BLOCK, 0,
                  a, q, err);
}

#define ROW(fn)                                                                          \
    static int launch_##fn(const void *args, struct tu_queue *q, struct tu_err *err)     \
    {                                                                                    \
        const struct tu_kernel_split *a = (const struct tu_kernel_split *)args;          \
        return LAUNCH(fn, tui_blocks(a->n / (AT_ONCE * WARP) + 1, PER_BLOCK / WARP), 1,  \
                      PER_BLOCK, 0, a, q, err);                                          \
    }
ROW(split_16)
ROW(join_16)

const struct tui_kernel tui_kernels_move[] = {
    {"move.boxes", launch_move}, {"split.16", launch_split_16}, {"join.16", launch_join_16},
    {NULL, NULL},
};
