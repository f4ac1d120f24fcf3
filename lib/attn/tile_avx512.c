/* SPDX-License-Identifier: Apache-2.0 */
/* tile_avx512.c: the f32 tile kernels, sixteen lanes. */
#include "attn/tile.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include "attn/simd_avx512.h"

/* Panels of 32 columns from rows of n; blocks of 16×16 are transposed in registers. */
static void pack_bt(void *vb, const float *src, size_t ld, size_t n, size_t k)
{
    float *b = vb;
    for (size_t c = 0; c < n; c += 16)
        for (size_t t = 0; t < k; t += 16) {
            float *to = b + c / 32 * 32 * k + t * 32 + c % 32;
            if (c + 16 <= n && t + 16 <= k) {
                transpose16(to, 32, src + c * ld + t, ld);
                continue;
            }
            for (size_t i = 0; i < 16 && t + i < k; i++)
                for (size_t j = 0; j < 16; j++)
                    to[i * 32 + j] = c + j < n ? src[(c + j) * ld + t + i] : 0;
        }
    if (n % 32 && n % 32 <= 16) /* the second half of the last panel */
        for (size_t t = 0; t < k; t++)
            for (size_t j = 16; j < 32; j++)
                b[n / 32 * 32 * k + t * 32 + j] = 0;
}
#define PACK_BT pack_bt
#include "attn/tile_body.h"

const struct tui_ops tui_ops_avx512 = TILE_OPS("avx512", 96, 256);
#endif
