/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h: caches cut into chunks of tokens, an array each: what LMCache, HiCache and
 * Mooncake keep. */
#ifndef TU_KV_CHUNKS_H
#define TU_KV_CHUNKS_H

#include "engines.h"

/* How a chunk's array is laid out; geometry.block is the tokens of a whole chunk. */
struct tui_chunks {
    const struct tu_kv_layout *layout;
    struct tu_kv_geometry g;
    uint32_t dtype;
    uint64_t row; /* bytes of a token in all layers and sides */
    struct tui_chunk {
        size_t file;
        uint64_t off, tokens;
        int64_t layer; /* of a chunk of one layer, -1: all */
    } *chunk;
    size_t n, cap;
};
/* The keys of an engine that keeps chunks. */
extern const char *const tui_chunks_keys[];
/* From the keys layout= layers= heads= dim= dtype= chunk= latent, those given; what is 0
 * afterwards is not known. */
TU_MUST int tui_chunks_spec(struct tui_chunks *c, const struct tu_spec *spec,
                            const char *layout, uint64_t chunk, struct tu_err *err);
/* All sizes are there: check, and compute the row. */
TU_MUST int tui_chunks_ready(struct tui_chunks *c, struct tu_err *err);
/* The next chunk: `bytes` at `off` of a file of p. Errors: TU_EFORMAT where they are no
 * whole tokens. */
TU_MUST int tui_chunks_add(struct tui_chunks *c, struct tui_pieces *p, size_t file,
                           uint64_t off, uint64_t bytes, int64_t layer,
                           struct tu_err *err);
/* Make the records of p. */
TU_MUST int tui_chunks_open(struct tui_chunks *c, struct tui_pieces *p,
                            const struct tu_kv_hint *hint, struct tu_err *err);
void tui_chunks_release(struct tui_chunks *c);

/* Saving: what kv has, in chunks of c->g.block tokens. */
TU_MUST int tui_chunks_of(struct tui_chunks *c, struct tu_kv *kv, uint64_t *chunks,
                          struct tu_err *err);
/* Bytes of chunk i (tu_free); a short last one is as long as it is. */
TU_MUST int tui_chunks_data(const struct tui_chunks *c, struct tu_kv *kv, uint64_t i,
                            void **data, size_t *n, struct tu_err *err);
/* Say what is left out because it fills no chunk. */
void tui_chunks_rest(const struct tui_chunks *c, const struct tu_kv *kv, const char *engine,
                     const char *chunk, const struct tu_job *job);
/* Names of the full chunks: [tokens / block][size]; tu_free. */
TU_MUST int tui_chunks_names(struct tu_kv *kv, const int32_t *ids, uint64_t n,
                             const char *scheme, const struct tu_spec *spec,
                             uint64_t block, unsigned char **out, unsigned *size,
                             struct tu_err *err);

#endif
