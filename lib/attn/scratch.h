/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h: the working memory of one task or thread, as a table of its parts. */
#ifndef ATTN_SCRATCH_H
#define ATTN_SCRATCH_H

#include <tensorutils/core.h>

struct tui_part {
    void *at; /* address of the pointer that gets the part */
    uint64_t n;
    size_t size; /* bytes of one of n elements */
};

/* An arena that holds the parts, each zeroed and at a multiple of 64 bytes, the lines in
 * which tiles are read. *arena is the caller's to free, on failure too. Errors: TU_ENOMEM,
 * sizes that overflow included. */
TU_MUST int tui_scratch(struct tu_arena **arena, const struct tui_part *part, size_t parts,
                        struct tu_err *err);

#define TUI_SCRATCH(arena, part, err) \
    tui_scratch((arena), (part), sizeof(part) / sizeof *(part), (err))

#endif
