/* SPDX-License-Identifier: Apache-2.0 */
/* st_head.h: the JSON header of a safetensors file, parsed and checked. */
#ifndef TENSORUTILS_FORMAT_ST_HEAD_H
#define TENSORUTILS_FORMAT_ST_HEAD_H

#include <tensorutils/format.h>

#define TUI_ST_HEAD_MAX ((size_t)100000000) /* bytes of JSON, as the reference library has it */

struct tui_st_entry {
    const char *name;
    uint32_t dtype;
    unsigned rank;
    const uint64_t *dim;
    uint64_t begin, end; /* of the data, counted from the end of the header */
    size_t at;           /* where in the header the name stands */
};

struct tui_st_head {
    size_t n;
    struct tui_st_entry *entry; /* [n] in order of the data; tu_free */
    const char *metadata;       /* canonical object of __metadata__, NULL if there is none */
    size_t metadata_len;
    uint64_t data; /* bytes of data that the entries cover */
};

/* Parse text[n] and apply every rule of the reference library to it; texts go to the
 * arena. Nothing is left to release on failure. Errors: TU_EFORMAT, TU_EDTYPE, TU_ENAME,
 * TU_ESIZE, TU_ELIMIT, TU_ENOMEM; offsets count from the file's start. */
TU_MUST int tui_st_parse(struct tui_st_head *out, const char *text, size_t n,
                         struct tu_arena *arena, struct tu_err *err);

#endif
