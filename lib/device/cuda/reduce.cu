/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.cu: two vectors to one, element by element: the arithmetic of lib/coll's
 * reductions, 16-bit floats in f32 and rounded once, NaN wins, -0 < +0. */
#include "kernel.h"

enum { PER_BLOCK = 256 };
enum op { SUM, PROD, MIN, MAX };

DEVICE float combine(enum op op, float x, float y)
{
    uint32_t p = bits_of(x), q = bits_of(y);
    if (op == SUM)
        return x + y;
    if (op == PROD)
        return x * y;
    if (x != x || y != y)
        return of_bits(0x7fc00000u);
    if (op == MIN)
        return x == y ? of_bits(p | q) : x < y ? x : y;
    return x == y ? of_bits(p & q) : x > y ? x : y;
}

DEVICE uint32_t combine_i32(enum op op, uint32_t x, uint32_t y)
{
    if (op == SUM)
        return x + y;
    if (op == PROD)
        return x * y;
    return ((int32_t)x < (int32_t)y) == (op == MIN) ? x : y;
}

DEVICE void reduce(const struct tu_kernel_reduce *a, enum op op)
{
    uint64_t step = (uint64_t)GRID_X * THREADS;
    const uint32_t *x4 = (const uint32_t *)a->a, *y4 = (const uint32_t *)a->b;
    const uint16_t *x2 = (const uint16_t *)a->a, *y2 = (const uint16_t *)a->b;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a->n; i += step) {
        if (a->dtype == TU_F32)
            ((uint32_t *)a->d)[i] = bits_of(combine(op, of_bits(x4[i]), of_bits(y4[i])));
        else if (a->dtype == TU_I32)
            ((uint32_t *)a->d)[i] = combine_i32(op, x4[i], y4[i]);
        else if (a->dtype == TU_F16)
            ((uint16_t *)a->d)[i] =
                (uint16_t)to_f16(combine(op, from_f16(x2[i]), from_f16(y2[i])));
        else
            ((uint16_t *)a->d)[i] =
                (uint16_t)to_bf16(combine(op, from_bf16(x2[i]), from_bf16(y2[i])));
    }
}

#define ROW(name, op)                                                                    \
    KERNEL(reduce_##name, tu_kernel_reduce, PER_BLOCK)                                   \
    {                                                                                    \
        reduce(&a, op);                                                                  \
    }                                                                                    \
    static int launch_##name(const void *args, struct tu_queue *q, struct tu_err *err)   \
    {                                                                                    \
        const struct tu_kernel_reduce *a = (const struct tu_kernel_reduce *)args;        \
        if (a->dtype != TU_F32 && a->dtype != TU_F16 && a->dtype != TU_BF16 &&           \
            a->dtype != TU_I32)                                                          \
            return tui_fail(err, TU_EUNSUP, "reduce." #name ": dtype 0x%04x",            \
                            (unsigned)a->dtype);                                         \
        return LAUNCH(reduce_##name, tui_blocks(a->n / WARP + 1, PER_BLOCK / WARP), 1,   \
                      PER_BLOCK, 0, a, q, err);                                          \
    }
ROW(sum, SUM)
ROW(prod, PROD)
ROW(min, MIN)
ROW(max, MAX)

const struct tui_kernel tui_kernels_reduce[] = {
    {"reduce.sum", launch_sum}, {"reduce.prod", launch_prod}, {"reduce.min", launch_min},
    {"reduce.max", launch_max}, {NULL, NULL},
};
