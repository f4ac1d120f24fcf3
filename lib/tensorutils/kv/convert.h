/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h: a cache made over: other layout, dtype, ranks, position; a part of it; pages
 * of many caches in one pool.
 *
 * Memory: an array of the result and one of the source at a time; a layout that holds all
 * layers in one array needs that array whole. */
#ifndef TENSORUTILS_KV_CONVERT_H
#define TENSORUTILS_KV_CONVERT_H

#include "../core.h"
#include "../stream.h"
#include "table.h"

TU_BEGIN

struct tu_kv;
struct tu_kv_layout;
struct tu_kv_scheme;
struct tu_kv_hash_how;

/* Half open; end UINT64_MAX: to the end. */
struct tu_kv_range {
    uint64_t begin, end;
};

struct tu_kv_convert {
    const struct tu_kv_layout *layout; /* NULL: by tokens */
    uint64_t block;                    /* tokens of a page, where the layout has pages */
    uint32_t dtype;                    /* 0: as it is */
    struct tu_kv_range layers, tokens, heads;
    uint64_t tp;       /* ranks of the result; 0: as they are */
    int64_t tp_rank;   /* this one alone; -1: all */
    int64_t shift;     /* move positions: keys are turned on */
    double theta;      /* of the rotary embedding; 0: META kv's */
    uint64_t rope_dim; /* columns that are rotated; 0: all (latent: must be given) */
    bool interleaved;  /* pairs (2c, 2c+1) instead of (c, c + dim/2) */
    int64_t rot;       /* Hadamard rotation of the result; -1: as it is */
};
TU_API void tu_kv_convert_init(struct tu_kv_convert *c);
/* The caches rank[n] are the ranks of one sequence, or one pool (n = 1), whose sequences
 * become segments. Writes META kv, other META, records and END for each. Errors: TU_EUSAGE
 * for what does not fit, TU_EINCOMPLETE where ranks are missing or differ. */
TU_API TU_MUST int tu_kv_convert_run(struct tu_kv *const *rank, size_t n,
                                     const struct tu_kv_convert *how, struct tu_writer *w,
                                     const struct tu_job *job, struct tu_err *err);
/* How many of cache[n] from the first are ranks of one sequence: 0, 1 … tp_size-1 in
 * order. */
TU_API size_t tu_kv_ranks(struct tu_kv *const *cache, size_t n);

/* Pools ---------------------------------------------------------------------------- */

enum tu_kv_tables { TU_KV_CSR, TU_KV_PADDED };

struct tu_kv_paging {
    const struct tu_kv_layout *layout;  /* with pages; NULL: nhd-paged */
    uint64_t block, blocks;             /* blocks 0: as many as are needed */
    enum tu_kv_tables tables;
    bool cow;                           /* share what all have in common, copy on write */
    const struct tu_kv_scheme *scheme;  /* share full blocks by name; NULL: do not */
    const struct tu_kv_hash_how *hash;
    bool verify;                        /* compare what is shared, byte by byte */
};
/* What was made. */
struct tu_kv_paged {
    struct tu_kv_table table;
    uint64_t lookups, hits, copies; /* in blocks */
    uint64_t tokens, shared;        /* tokens of all; those in blocks that were hits */
    uint32_t *refs;                 /* [blocks] */
    unsigned char *digest;          /* [blocks][size], with a scheme; zeros: no name */
    unsigned size;
};
/* Put the caches of n sequences into one pool, written as one segment. Errors: TU_EUSAGE
 * where they do not fit, TU_EINCOMPLETE where identities differ. */
TU_API TU_MUST int tu_kv_page(struct tu_kv *const *cache, size_t n,
                              const struct tu_kv_paging *how, struct tu_kv_paged *out,
                              struct tu_writer *w, const struct tu_job *job,
                              struct tu_err *err);
TU_API void tu_kv_paged_release(struct tu_kv_paged *p);
/* The table of a pool's segment. Errors: TU_EINCOMPLETE where it has none; TU_EFORMAT also for
 * a page that stands in two tables at different places or behind different tokens. */
TU_API TU_MUST int tu_kv_pool_table(struct tu_kv *kv, struct tu_kv_table *out,
                                    struct tu_err *err);

/* Numbers -------------------------------------------------------------------------- */

/* n elements of any dtype, ggml's blocks included, to float and back; cols: the last
 * dimension. */
TU_API TU_MUST int tu_kv_to_float(uint32_t dtype, const void *src, float *out, uint64_t n,
                                  uint64_t cols, struct tu_err *err);
TU_API TU_MUST int tu_kv_from_float(uint32_t dtype, void *dst, const float *src,
                                    uint64_t n, uint64_t cols, struct tu_err *err);
/* Sylvester's Hadamard matrix of `size` (a power of two) over 1/sqrt(size), applied in
 * place to each run of `size` columns; its own inverse. */
TU_API void tu_kv_hadamard(float *x, uint64_t n, uint64_t size);

TU_END

#endif
