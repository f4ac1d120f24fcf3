/* SPDX-License-Identifier: Apache-2.0 */
/* planes.c: numbers to planes of bytes and back. The plane of exponents holds those of bf16
 * and f32 less what is usual in their column; of other dtypes it is the highest byte. */
#include <string.h>
#include "planes.h"
#include "split.h"

enum { SAMPLE = 64 }; /* tokens that a bias is learned from, and that make it pay */

bool tui_bias_helps(const struct tu_kv_array *a)
{
    return (a->dtype == TU_BF16 || a->dtype == TU_F32) && a->tokens >= SAMPLE;
}

int tui_bias_room(struct tui_bias *b, uint64_t columns, size_t most, struct tu_err *err)
{
    b->columns = columns;
    b->value = tu_calloc((size_t)columns + most, 1, err);
    return b->value ? 0 : TU_ENOMEM;
}

static unsigned exponent_of(uint32_t dtype, const uint8_t *x, uint64_t i)
{
    return (dtype == TU_BF16 ? tu_le16(x + 2 * i) >> 7 : tu_le32(x + 4 * i) >> 23) & 255;
}

/* The mean of what is not zero becomes 128. */
void tui_bias_learn(struct tui_bias *b, const struct tu_kv_array *a, const void *x)
{
    for (uint64_t c = 0; c < b->columns; c++) {
        unsigned sum = 0, n = 0;
        for (uint64_t k = 0; k < SAMPLE; k++) {
            uint64_t token = a->tokens * k / SAMPLE;
            unsigned e = exponent_of(a->dtype, x, token * b->columns + c);
            sum += e;
            n += e != 0;
        }
        b->value[c] = (uint8_t)(n ? (sum + n / 2) / n + 128 : 0);
    }
}

void tui_bias_repeat(struct tui_bias *b, size_t most)
{
    for (size_t i = 0; b->columns && i < most; i++)
        b->value[b->columns + i] = b->value[i];
}

void tui_planes_apart(uint32_t dtype, const struct tui_bias *b, uint64_t col,
                      const uint8_t *x, size_t n, uint8_t *exponent, uint8_t *rest)
{
    const uint8_t *bias = b->value + col;
    if (dtype == TU_BF16) {
        tui_part_fn *fn = (tui_part_fn *)tu_kernel_pick(tui_part_kernels, tu_cpu_bits())->fn;
        fn((const uint16_t *)(const void *)x, n, bias, exponent, rest);
    } else if (dtype == TU_F32) {
        for (size_t i = 0; i < n; i++) {
            uint32_t u = tu_le32(x + 4 * i);
            exponent[i] = (uint8_t)((u >> 23) - bias[i]);
            rest[i] = (uint8_t)((u >> 24 & 128) | (u >> 16 & 127));
            rest[n + i] = (uint8_t)(u >> 8);
            rest[2 * n + i] = (uint8_t)u;
        }
    } else {
        unsigned elem = tu_dtype_find(dtype)->block_bytes;
        for (size_t i = 0; i < n; i++) {
            exponent[i] = x[elem * i + elem - 1];
            for (unsigned k = 0; k + 1 < elem; k++)
                rest[k * n + i] = x[elem * i + k];
        }
    }
}

void tui_planes_unite(uint32_t dtype, const struct tui_bias *b, uint64_t col, uint8_t *x,
                      size_t n, const uint8_t *exponent, const uint8_t *rest)
{
    const uint8_t *bias = b->value + col;
    if (dtype == TU_BF16) {
        tui_unite_fn *fn = (tui_unite_fn *)tu_kernel_pick(tui_unite_kernels, tu_cpu_bits())->fn;
        fn((uint16_t *)(void *)x, n, bias, exponent, rest);
    } else if (dtype == TU_F32) {
        for (size_t i = 0; i < n; i++) {
            uint32_t e = (exponent[i] + bias[i]) & 255u;
            tu_put32(x + 4 * i, (rest[i] & 128u) << 24 | e << 23 | (rest[i] & 127u) << 16 |
                                    (uint32_t)rest[n + i] << 8 | rest[2 * n + i]);
        }
    } else {
        unsigned elem = tu_dtype_find(dtype)->block_bytes;
        for (size_t i = 0; i < n; i++) {
            x[elem * i + elem - 1] = exponent[i];
            for (unsigned k = 0; k + 1 < elem; k++)
                x[elem * i + k] = rest[k * n + i];
        }
    }
}
