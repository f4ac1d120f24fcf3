/* SPDX-License-Identifier: Apache-2.0 */
/* llama.h: what stands in a state file of llama.cpp. */
#ifndef TU_KV_LLAMA_H
#define TU_KV_LLAMA_H

#include "engines.h"

#define TUI_LLAMA_SEQ 0x67677371u     /* on disk 71 73 67 67 */
#define TUI_LLAMA_SESSION 0x6767736eu /* on disk 6e 73 67 67 */

struct tui_llama_part {
    uint32_t dtype;
    uint64_t row, cols, off; /* bytes and columns of a cell, first byte */
};

struct tui_llama_stream {
    uint32_t cells, turned, layers;
    bool none_is_zero; /* older files: cells of a sequence name none */
    bool values;       /* else MLA: keys alone */
    int32_t *pos;      /* [cells] */
    uint64_t *seq;     /* [cells] bit i: belongs to sequence i */
    struct tui_llama_part *part; /* [2 · layers]: keys, values */
};

struct tui_llama {
    bool session, outputs;
    uint32_t version, tokens;
    uint64_t token_at;
    char arch[64];
    unsigned ext; /* bytes of a cell's extension */
    uint32_t streams;
    struct tui_llama_stream *stream;
    uint32_t windows; /* a second memory: of the layers with a window */
    struct tui_llama_stream *window;
    uint64_t recurrent, recurrent_at; /* bytes of the recurrent layers' memory, 0: none */
    uint64_t end, trailing;           /* of all that; bytes behind it */
};
/* The file's structure; data stays where it is. Errors: TU_EMAGIC, TU_EVERSION, TU_ETRUNC,
 * TU_EFORMAT, TU_ESIZE with the byte. Releases what it took on failure. */
TU_MUST int tui_llama_parse(struct tui_llama *f, struct tu_in *in, struct tu_err *err);
void tui_llama_release(struct tui_llama *f);
/* Which layers have a window: pattern=N of spec is all but each Nth, with dense-first all but
 * each first of N; 0 all. */
struct tui_llama_pattern {
    bool given, first;
    uint64_t every;
};
TU_MUST int tui_llama_pattern(struct tui_llama_pattern *out, const struct tu_spec *spec,
                              struct tu_err *err);
bool tui_llama_local(const struct tui_llama_pattern *p, uint64_t layer);
int tui_llama_save(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                   const struct tu_job *job, struct tu_err *err);
/* ggml's number of a dtype, UINT32_MAX: it has none. */
uint32_t tui_llama_type(uint32_t dtype);

#endif
