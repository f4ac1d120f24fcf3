/* SPDX-License-Identifier: Apache-2.0 */
/* planes.cu: the product of matrices kept as planes of bits: a thread for an element, exact
 * until the two scales, as tu_planes_product in lib/quant/bipolar.c. */
#include "kernel.h"

enum { PER_BLOCK = 128 };

KERNEL(planes_product, tu_kernel_planes, PER_BLOCK)
{
    uint64_t words = (a.n + 63) / 64, step = (uint64_t)GRID_X * THREADS;
    for (uint64_t at = (uint64_t)BLOCK_X * THREADS + THREAD; at < a.rows_a * a.rows_b;
         at += step) {
        uint64_t row = at / a.rows_b, col = at % a.rows_b;
        const uint64_t *x = a.a + row * a.bits_a * words, *y = a.b + col * a.bits_b * words;
        int64_t sum = 0;
        for (unsigned i = 0; i < a.bits_a; i++)
            for (unsigned j = 0; j < a.bits_b; j++) {
                int64_t differ = 0;
                for (uint64_t k = 0; k < words; k++)
                    differ += count_bits(x[i * words + k] ^ y[j * words + k]);
                sum += ((int64_t)a.n - 2 * differ) * ((int64_t)1 << (i + j));
            }
        a.y[at] = (float)sum * a.scale_a[row] * a.scale_b[col];
    }
}

static int launch_planes(const void *args, struct tu_queue *q, struct tu_err *err)
{
    const struct tu_kernel_planes *a = (const struct tu_kernel_planes *)args;
    return LAUNCH(planes_product,
                  tui_blocks(a->rows_a * a->rows_b / WARP + 1, PER_BLOCK / WARP), 1,
                  PER_BLOCK, 0, a, q, err);
}

const struct tui_kernel tui_kernels_planes[] = {{"planes.product", launch_planes},
                                                {NULL, NULL}};
