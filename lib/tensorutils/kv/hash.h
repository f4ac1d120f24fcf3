/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h: the names that engines give to full blocks of tokens.
 *
 * A block's name depends on all tokens before it: h(i) = H(h(i-1), tokens, extra). Only
 * full blocks have one. Equal names are taken for equal contents, so whatever else the
 * contents depend on (weights, layout, ranks) must be in the chain's beginning or stand
 * beside it. */
#ifndef TENSORUTILS_KV_HASH_H
#define TENSORUTILS_KV_HASH_H

#include "../core.h"

TU_BEGIN

#define TU_KV_DIGEST 32 /* bytes of the longest */

/* An image or the like: its tokens first … first+n-1. */
struct tu_kv_item {
    const char *id;
    uint64_t first, n;
};

struct tu_kv_hash_how {
    uint64_t block;
    const char *seed;      /* PYTHONHASHSEED; NULL: the engine's default */
    const char *lora;      /* NULL: none */
    const char *salt;      /* NULL: none */
    const char *extra_key; /* sglang's; NULL: none */
    size_t items;
    const struct tu_kv_item *item; /* ascending */
};

/* A row. */
struct tu_kv_scheme {
    const char *name, *help, *source;
    unsigned size; /* bytes of a digest */
    unsigned form; /* how the tuple is written, and by what it is hashed */
};
TU_API extern const struct tu_kv_scheme tu_kv_schemes[]; /* ends without a name */
TU_API TU_MUST int tu_kv_scheme_find(const struct tu_kv_scheme **out, const char *name,
                                     struct tu_err *err);
/* What stands before block 0: *n bytes, 0 where the scheme has nothing. seed_text gets
 * the seed in use, for reports. */
TU_API TU_MUST int tu_kv_hash_root(const struct tu_kv_scheme *s,
                                   const struct tu_kv_hash_how *how,
                                   unsigned char out[TU_KV_DIGEST], unsigned *n,
                                   const char **seed_text, struct tu_err *err);
/* The full blocks of tokens[n]: digest [n / block][s->size]. Errors: TU_EUSAGE for a
 * block of 0 tokens or one whose pickle would pass a frame; TU_EFORMAT for a negative
 * id. */
TU_API TU_MUST int tu_kv_hash_blocks(const struct tu_kv_scheme *s,
                                     const struct tu_kv_hash_how *how,
                                     const int32_t *tokens, uint64_t n,
                                     unsigned char *digest, struct tu_err *err);
/* vLLM's events carry the low 64 bits, sglang's the high ones, signed. */
TU_API int64_t tu_kv_hash_event(const struct tu_kv_scheme *s, const unsigned char *digest);
/* 2 · size + 1 characters. */
TU_API void tu_kv_hash_hex(const unsigned char *digest, unsigned size, char *out);

TU_END

#endif
