/* SPDX-License-Identifier: Apache-2.0 */
/* book.cu: blocks under their largest magnitude, coded by a sorted book of 16 (NF4) or 256
 * values (the dynamic tree): a value's code is the number of midpoints below it. A warp has
 * a block. The bytes are those of lib/quant/bnb.c. */
#include "kernel.h"

enum { PER_BLOCK = 256, BOOK = 256, ZERO_NF4 = 7 };

DEVICE float limit(float v)
{
    v = v > -1 ? v : -1;
    return v < 1 ? v : 1;
}

/* The largest magnitude of a warp's block; divide tells how values are made small: a short
 * block is divided, a whole one multiplied by the inverse, as the peer does. */
DEVICE float block_unit(const float *x, uint64_t n, uint64_t whole, float *unit, float *scale)
{
    float amax = 0;
    for (uint64_t i = THREAD % WARP; i < n; i += WARP)
        amax = max_f32(amax, abs_f32(x[i]));
    amax = warp_max(amax);
    float least = amax > 1e-38f ? amax : 1e-38f;
    *scale = n == whole ? amax : least;
    *unit = n == whole ? 1.0f / least : least;
    return amax;
}

DEVICE float reduced(float v, float unit, bool whole)
{
    return limit(whole ? v * unit : v / unit);
}

#define PLACE(book, n, v, out)                                                           \
    do {                                                                                 \
        unsigned lo_ = 0, hi_ = (n)-1;                                                   \
        while (lo_ < hi_) {                                                              \
            unsigned mid_ = (lo_ + hi_) / 2;                                             \
            if ((AT(book, mid_) + AT(book, mid_ + 1)) / 2 < (v))                         \
                lo_ = mid_ + 1;                                                          \
            else                                                                         \
                hi_ = mid_;                                                              \
        }                                                                                \
        (out) = lo_;                                                                     \
    } while (0)

KERNEL(encode_nf4, tu_kernel_code, PER_BLOCK)
{
    SHARED(float, book, 16);
    if (THREAD < 16)
        AT(book, THREAD) = a.book[THREAD];
    BARRIER();
    uint64_t blocks = (a.n + a.block - 1) / a.block;
    for (uint64_t b = first_of_warp(); b < blocks; b += warps_of_grid()) {
        uint64_t at = b * a.block, n = a.n - at < a.block ? a.n - at : a.block;
        float unit, scale;
        block_unit(a.x + at, n, a.block, &unit, &scale);
        if (THREAD % WARP == 0)
            a.scale[b] = scale;
        for (uint64_t i = THREAD % WARP; i < (n + 1) / 2; i += WARP) {
            unsigned first, second = ZERO_NF4;
            PLACE(book, 16, reduced(a.x[at + 2 * i], unit, n == a.block), first);
            if (2 * i + 1 < n)
                PLACE(book, 16, reduced(a.x[at + 2 * i + 1], unit, n == a.block), second);
            a.code[at / 2 + i] = (unsigned char)(first << 4 | second);
        }
    }
}

KERNEL(decode_nf4, tu_kernel_code, PER_BLOCK)
{
    SHARED(float, book, 16);
    if (THREAD < 16)
        AT(book, THREAD) = a.book[THREAD];
    BARRIER();
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step) {
        unsigned q = a.code[i / 2] >> (i % 2 ? 0 : 4) & 15;
        a.x[i] = AT(book, q) * a.scale[i / a.block];
    }
}

KERNEL(encode_dyn8, tu_kernel_code, PER_BLOCK)
{
    SHARED(float, book, BOOK);
    AT(book, THREAD) = a.book[THREAD];
    BARRIER();
    uint64_t blocks = (a.n + a.block - 1) / a.block;
    for (uint64_t b = first_of_warp(); b < blocks; b += warps_of_grid()) {
        uint64_t at = b * a.block, n = a.n - at < a.block ? a.n - at : a.block;
        float unit, scale;
        block_unit(a.x + at, n, a.block, &unit, &scale);
        if (THREAD % WARP == 0)
            a.scale[b] = scale;
        for (uint64_t i = THREAD % WARP; i < n; i += WARP) {
            unsigned q;
            PLACE(book, BOOK, reduced(a.x[at + i], unit, n == a.block), q);
            a.code[at + i] = (unsigned char)q;
        }
    }
}

KERNEL(decode_dyn8, tu_kernel_code, PER_BLOCK)
{
    SHARED(float, book, BOOK);
    AT(book, THREAD) = a.book[THREAD];
    BARRIER();
    uint64_t step = (uint64_t)GRID_X * THREADS;
    for (uint64_t i = (uint64_t)BLOCK_X * THREADS + THREAD; i < a.n; i += step)
        a.x[i] = AT(book, a.code[i]) * a.scale[i / a.block];
}

#define ROW(fn, per_warp)                                                                \
    static int launch_##fn(const void *args, struct tu_queue *q, struct tu_err *err)     \
    {                                                                                    \
        const struct tu_kernel_code *a = (const struct tu_kernel_code *)args;            \
        return LAUNCH(fn, tui_blocks(a->n / (per_warp) + 1, PER_BLOCK / WARP), 1,        \
                      PER_BLOCK, 0, a, q, err);                                          \
    }
ROW(encode_nf4, a->block)
ROW(decode_nf4, WARP)
ROW(encode_dyn8, a->block)
ROW(decode_dyn8, WARP)

const struct tui_kernel tui_kernels_book[] = {
    {"encode.nf4", launch_encode_nf4},   {"decode.nf4", launch_decode_nf4},
    {"encode.dyn8", launch_encode_dyn8}, {"decode.dyn8", launch_decode_dyn8},
    {NULL, NULL},
};
