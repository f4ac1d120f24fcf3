/* SPDX-License-Identifier: Apache-2.0 */
/* tile.c: the table of tile kernels, best first. */
#include "attn/tile.h"

static const struct row {
    const struct tui_ops *ops;
    uint32_t compute; /* TU_BF16 rows are not for f32 */
    uint32_t needs;
} rows[] = {
#if defined __x86_64__ && !defined TU_NO_X86
    {&tui_ops_amx, TU_BF16,
     TU_CPU_GROUP_AVX512 | TU_CPU_AVX512BF16 | (uint32_t)TU_CPU_AMXTILE | TU_CPU_AMXBF16},
    {&tui_ops_avx512, TU_F32, TU_CPU_GROUP_AVX512},
    {&tui_ops_avx2, TU_F32, TU_CPU_GROUP_AVX2},
#endif
    {&tui_ops_plain, TU_F32, 0},
};

const struct tui_ops *tui_ops_row(size_t i, uint32_t *needs)
{
    if (i >= sizeof rows / sizeof rows[0])
        return NULL;
    *needs = rows[i].needs;
    return rows[i].ops;
}

const struct tui_ops *tui_ops_pick(uint32_t compute, uint32_t bits)
{
    size_t i = 0;
    while ((bits & rows[i].needs) != rows[i].needs ||
           (rows[i].compute == TU_BF16 && compute != TU_BF16))
        i++;
    return rows[i].ops;
}
