/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_parse.h: one GGUF file, indexed. */
#ifndef TENSORUTILS_FORMAT_GGUF_PARSE_H
#define TENSORUTILS_FORMAT_GGUF_PARSE_H

#include <tensorutils/format.h>

struct tui_gguf_file {
    struct tu_arena *arena; /* borrowed: texts and dimensions */
    size_t kvs, kv_cap;
    struct tui_gguf_kv {
        const char *key;
        const char *json; /* [type,value] */
        size_t n;
    } *kv; /* sorted by key */
    const char **order; /* [kvs] the keys as they stand in the file */
    size_t n, cap;
    struct tu_tensor *tensor;
    uint64_t *at; /* [n] offsets in the file */
    size_t at_cap;
    uint64_t align;
    uint64_t split_no, split_count, split_tensors; /* 0 where the file does not say */
    unsigned architecture; /* type of its value; TUI_GGUF_TYPES where there is none */
};

/* Index `in`. Release also after a failure. Errors: TU_EMAGIC, TU_EVERSION, TU_ETRUNC,
 * TU_ELIMIT, TU_EFORMAT, TU_EDTYPE, TU_ESIZE, TU_ENAME, TU_EUNSUP; messages name file and
 * offset. */
TU_MUST int tui_gguf_parse(struct tui_gguf_file *f, struct tu_in *in, struct tu_arena *arena,
                           struct tu_err *err);
void tui_gguf_release(struct tui_gguf_file *f);

#endif
