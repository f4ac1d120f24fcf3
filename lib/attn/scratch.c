/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.c: working memory from a table. */
#include <string.h>
#include "attn/scratch.h"

int tui_scratch(struct tu_arena **arena, const struct tui_part *part, size_t parts,
                struct tu_err *err)
{
    *arena = tu_arena_new(err);
    if (!*arena)
        return TU_ENOMEM;
    for (size_t i = 0; i < parts; i++) {
        uint64_t bytes;
        if (tu_mul_over(part[i].n, part[i].size, &bytes) || tu_add_over(bytes, 64, &bytes))
            return tu_fail(err, TU_ENOMEM, "no memory for %llu elements of %zu bytes",
                           (unsigned long long)part[i].n, part[i].size);
        char *raw = tu_arena_alloc(*arena, (size_t)bytes, 1, err);
        if (!raw)
            return TU_ENOMEM;
        raw += -(uintptr_t)raw & 63;
        memcpy(part[i].at, &raw, sizeof raw);
    }
    return 0;
}
