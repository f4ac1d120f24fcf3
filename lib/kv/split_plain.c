/* SPDX-License-Identifier: Apache-2.0 */
/* split_plain.c: the reference of the two loops. Source: SplitZip, arXiv 2605.01708. */
#include <string.h>
#include "split.h"

size_t tui_split_plain(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                       uint8_t *rest, struct tu_kv_escape *escape)
{
    uint8_t at[256];
    size_t escapes = 0;
    memset(at, 16, sizeof at);
    for (unsigned i = 16; i-- > 0;)
        at[book[i]] = (uint8_t)i;
    for (size_t i = 0; i < n; i++) {
        uint8_t exponent = (uint8_t)(x[i] >> 7), c = at[exponent];
        rest[i] = (uint8_t)(x[i] >> 8 & 128) | (x[i] & 127);
        if (c == 16) {
            escape[escapes++] = (struct tu_kv_escape){(uint16_t)i, exponent};
            c = 0;
        }
        if (i % 2)
            code[i / 2] |= (uint8_t)(c << 4);
        else
            code[i / 2] = c;
    }
    return escapes;
}

void tui_join_plain(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                    const uint8_t *rest)
{
    for (size_t i = 0; i < n; i++) {
        unsigned e = book[code[i / 2] >> i % 2 * 4 & 15];
        x[i] = (uint16_t)((rest[i] & 128u) << 8 | e << 7 | (rest[i] & 127u));
    }
}

#if defined __x86_64__ && !defined TU_NO_X86
#define ROW(name)                                                                        \
    {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)tui_##name##_avx2},
#else
#define ROW(name)
#endif

const struct tu_kernel tu_kv_split_kernels[] = {
    ROW(split){"plain", 0, (tu_kernel_fn)tui_split_plain},
    {NULL, 0, NULL},
};
const struct tu_kernel tu_kv_join_kernels[] = {
    ROW(join){"plain", 0, (tu_kernel_fn)tui_join_plain},
    {NULL, 0, NULL},
};
