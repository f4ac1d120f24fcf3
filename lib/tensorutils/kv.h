/* SPDX-License-Identifier: Apache-2.0 */
/* kv.h: KV caches: what they are, how engines lay them out, the files they leave.
 *
 * A *cache* is the keys and values of one sequence, or a pool of pages that several
 * sequences share, opened for reading: a segment of a tensor stream or an engine's file.
 * Its records are those of the stream:
 *
 *   kv.tokens i32 [T]            token ids
 *   kv.pos    i32 [T]            positions; absent: 0 … T-1
 *   kv.N.k    [T, Hkv, Dk]       keys of layer N, token by token
 *   kv.N.v    [T, Hkv, Dv]       values
 *   kv.N.ckv  [T, R]             the latent of MLA: no heads, no values of their own
 *
 * with a META `kv` before them (struct tu_kv_info). In another layout kv.N.k and kv.N.v
 * have that layout's shape; where keys and values share an array it is kv.N.kv, where
 * layers do too kv.all. Pools carry tables of pages (kv/table.h). Reading holds one
 * record in memory at most. May change before 1.0. */
#ifndef TENSORUTILS_KV_H
#define TENSORUTILS_KV_H

#include "attn.h"
#include "core.h"
#include "format.h"
#include "model.h"
#include "quant.h"

#include "kv/codec.h"
#include "kv/convert.h"
#include "kv/hash.h"
#include "kv/plan.h"
#include "kv/pool.h"
#include "kv/replay.h"
#include "kv/reserve.h"
#include "kv/store.h"
#include "kv/table.h"

TU_BEGIN

#define TU_KV_NONE SIZE_MAX

enum tu_kv_side { TU_KV_K, TU_KV_V, TU_KV_SIDES };

/* Identity ------------------------------------------------------------------------- */

/* META `kv`. "" and 0: not known; tp_size is at least 1. */
struct tu_kv_info {
    char model[128];   /* whose cache: free text */
    char weights[128]; /* fingerprint of the weights */
    char arch[64];
    uint64_t layers, heads, dim_k, dim_v; /* heads: KV heads of the whole model */
    char rope[8];                         /* "post", "pre", "none" */
    double rope_theta;
    uint64_t rot;    /* size of the Hadamard rotation of keys and values, 0 none */
    uint64_t window; /* of sliding-window layers, 0 full attention */
    uint64_t tp_rank, tp_size;
    char layout[24]; /* of tu_kv_layouts, "" is "nhd" */
    uint64_t block;  /* tokens of a page, 0: no pages */
};
TU_API void tu_kv_info_init(struct tu_kv_info *i);
/* Errors: TU_EMETA naming the key. */
TU_API TU_MUST int tu_kv_info_parse(struct tu_kv_info *out, const char *json, size_t n,
                                    struct tu_err *err);
TU_API TU_MUST int tu_kv_info_text(struct tu_buf *out, const struct tu_kv_info *i,
                                   struct tu_err *err);
/* May what belongs to b be used as a's? TU_EINCOMPLETE names the first field that is
 * known on both sides and differs; tp and layout count when `place`. */
TU_API TU_MUST int tu_kv_info_same(const struct tu_kv_info *a,
                                   const struct tu_kv_info *b, bool place,
                                   struct tu_err *err);
/* KV heads on one rank: max(1, heads / tp). Errors: TU_EUSAGE where they do not divide. */
TU_API TU_MUST int tu_kv_local_heads(uint64_t heads, uint64_t tp, uint64_t *out,
                                     struct tu_err *err);

/* Caches --------------------------------------------------------------------------- */

struct tu_kv;

struct tu_kv_ops {
    /* Bytes off … off+n-1 of record i. */
    int (*read)(struct tu_kv *kv, size_t i, uint64_t off, void *buf, size_t n,
                struct tu_err *err);
    /* Compare the record's stored checksum; NULL: there is none. */
    int (*verify)(struct tu_kv *kv, size_t i, struct tu_err *err);
    void (*close)(struct tu_kv *kv);
};

/* The records of one layer: TU_KV_NONE where there is none. MLA has only k. */
struct tu_kv_layer {
    size_t k, v;
};

/* Private state of an opener begins with a struct tu_kv. */
struct tu_kv {
    const struct tu_kv_ops *ops;
    struct tu_arena *arena; /* owns everything below */
    const char *name;       /* for messages */
    struct tu_kv_info info;
    size_t n;
    struct tu_tensor *tensor; /* [n] in the order of the stream */
    size_t metas;
    struct tu_meta *meta; /* [metas] without kv and contents */
    uint64_t tokens;      /* 0 for a pool */
    size_t ids, pos;      /* records kv.tokens and kv.pos */
    struct tu_kv_layer *layer; /* [info.layers] */
};

TU_API void tu_kv_close(struct tu_kv *kv); /* NULL allowed */
TU_API TU_MUST int tu_kv_read(struct tu_kv *kv, size_t i, uint64_t off, void *buf,
                              size_t n, struct tu_err *err);
/* A whole record (tu_free). */
TU_API TU_MUST int tu_kv_load(struct tu_kv *kv, size_t i, void **data,
                              struct tu_err *err);
/* Token ids [tokens] or positions (0 … T-1 where there is no record); tu_free. Errors:
 * TU_EINCOMPLETE where the cache has no ids; TU_EFORMAT for a negative id or position. */
TU_API TU_MUST int tu_kv_ids(struct tu_kv *kv, int32_t **out, struct tu_err *err);
TU_API TU_MUST int tu_kv_positions(struct tu_kv *kv, int32_t **out, struct tu_err *err);
/* The record of a layer's side, TU_KV_NONE if it has none. */
TU_API size_t tu_kv_record(const struct tu_kv *kv, uint64_t layer, enum tu_kv_side side);
/* Heads and columns of it in the layout by tokens: [T, heads, dim]; a latent is one
 * head. */
TU_API void tu_kv_dims(const struct tu_kv *kv, size_t record, uint64_t *heads,
                       uint64_t *dim);
/* Is it the latent of MLA? */
TU_API bool tu_kv_latent(const struct tu_tensor *t);
/* Copy to a segment: META kv, other META, all records, END. */
TU_API TU_MUST int tu_kv_write(struct tu_kv *kv, struct tu_writer *w,
                               const struct tu_job *job, struct tu_err *err);
/* A META kv record. */
TU_API TU_MUST int tu_kv_write_info(struct tu_writer *w, const struct tu_kv_info *i,
                                    struct tu_err *err);
/* The layer and kind of a record's name: "k", "v", "ckv", "kv"; NULL for other names. */
TU_API const char *tu_kv_name(const char *name, uint64_t *layer);

/* The segments of a stream that hold caches. Others are refused. */
struct tu_kv_set {
    size_t n, cap;
    struct tu_kv **kv;
    struct tu_stream_index **index; /* one for each stream */
    size_t streams, streams_cap;
};
/* Add a stream's segments; takes `in` over. A pipe is spooled to job's… `folder`. Checksums
 * of payloads are verified as records are first read. Errors: those of tu_index_open,
 * TU_EMETA, TU_ESIZE where records contradict each other or META kv. */
TU_API TU_MUST int tu_kv_set_add(struct tu_kv_set *s, struct tu_in *in,
                                 const char *folder, struct tu_err *err);
TU_API void tu_kv_set_release(struct tu_kv_set *s);

/* For openers: an empty cache of `size` bytes; a record more; then the layer table.
 * tu_kv_finish fills info's unknown sizes from the records and checks the rest. */
TU_API TU_MUST void *tu_kv_new(size_t size, const struct tu_kv_ops *ops, const char *name,
                               struct tu_err *err);
TU_API TU_MUST int tu_kv_add(struct tu_kv *kv, const char *name, uint32_t dtype,
                             const uint64_t *dim, unsigned rank, const char *meta,
                             struct tu_err *err);
TU_API TU_MUST int tu_kv_finish(struct tu_kv *kv, struct tu_err *err);
/* A cache of records that are in memory: data[i] is record i, borrowed; for tests and for
 * results that are made whole. */
TU_API TU_MUST int tu_kv_of_memory(struct tu_kv **out, const struct tu_kv_info *info,
                                   const struct tu_tensor *tensor, void *const *data,
                                   size_t n, struct tu_err *err);

/* Layouts -------------------------------------------------------------------------- */

/* A row: the axes of an engine's array, outermost first, a letter each:
 *   l layer  s side (keys, values)  p page  t token in the page  h head
 *   d column, or the column's upper part where x, its lower part, stands as well
 * x is 16 bytes of elements. Without p the array is as long as the sequence. */
struct tu_kv_layout {
    const char *name, *help;
    const char *source;
    const char *k, *v;
};
TU_API extern const struct tu_kv_layout tu_kv_layouts[]; /* ends without a name */
/* "" is the layout by tokens. Errors: TU_EUSAGE with the nearest name. */
TU_API TU_MUST int tu_kv_layout_find(const struct tu_kv_layout **out, const char *name,
                                     struct tu_err *err);
/* Does it have pages, one array for both sides, one for all layers? */
TU_API bool tu_kv_layout_has(const struct tu_kv_layout *l, char axis);

/* The sizes that an array is made for. */
struct tu_kv_geometry {
    uint64_t layers, heads, dim, block, blocks;
    unsigned elem; /* bytes of an element */
    bool latent;   /* MLA: no axis of heads */
};

/* Where the elements of an array are: its shape, and strides in elements. */
struct tu_kv_place {
    unsigned rank;
    uint64_t dim[TU_RANK_MAX];
    uint64_t elements, bytes;
    uint64_t layer, side, page, token, head, col, low; /* strides; low: of column % x */
    uint64_t x;                                        /* columns of the lower part, ≥ 1 */
    struct tu_kv_geometry of;
};
/* Errors: TU_EUSAGE where a column count does not divide by x or a size is zero, TU_ESIZE
 * on overflow. */
TU_API TU_MUST int tu_kv_place(struct tu_kv_place *out, const struct tu_kv_layout *l,
                               enum tu_kv_side side, const struct tu_kv_geometry *g,
                               struct tu_err *err);
/* The geometry of an array that is there: dim[rank] must be a shape of the layout. */
TU_API TU_MUST int tu_kv_place_of(struct tu_kv_place *out, const struct tu_kv_layout *l,
                                  enum tu_kv_side side, const uint64_t *dim,
                                  unsigned rank, unsigned elem, bool latent,
                                  struct tu_err *err);
/* Element of (layer, side, page, token, head, column). */
TU_API uint64_t tu_kv_offset(const struct tu_kv_place *p, uint64_t layer, uint64_t side,
                             uint64_t page, uint64_t token, uint64_t head, uint64_t col);

/* Move tokens first … first+n-1 of a sequence between rows [n, heads, dim] and the array
 * at `pool`, of which this is one layer and side. table: its pages in order, NULL: page
 * i is i; the caller has checked them. put: rows to pool, get: back. */
TU_API void tu_kv_put(const struct tu_kv_place *p, void *pool, uint64_t layer,
                      uint64_t side, const int32_t *table, uint64_t first, uint64_t n,
                      const void *rows);
TU_API void tu_kv_get(const struct tu_kv_place *p, const void *pool, uint64_t layer,
                      uint64_t side, const int32_t *table, uint64_t first, uint64_t n,
                      void *rows);

/* Engines' files ------------------------------------------------------------------- */

/* What a file does not say, from options. */
struct tu_kv_hint {
    const struct tu_spec *spec; /* the engine's own keys; NULL: none */
    struct tu_kv_info info;     /* what is known beforehand: goes before the file's */
    const int32_t *ids;         /* [n_ids] the tokens, NULL: not known */
    uint64_t n_ids;
    bool force; /* go on though identities differ; add to folders */
};

/* A row. */
struct tu_kv_engine {
    const char *name, *help;
    const char *const *key; /* arguments it takes, NULL-ended */
    bool chunks;            /* several files, in order, are one cache */
    /* Does a file that begins with head[n], or this folder (n = 0), look like it? */
    bool (*sniff)(const char *path, const unsigned char *head, size_t n);
    /* Errors: TU_EFORMAT and the like with offsets; TU_EUSAGE for a hint that is needed. */
    int (*open)(struct tu_kv **out, const char *const *path, size_t n,
                const struct tu_kv_hint *hint, const struct tu_job *job,
                struct tu_err *err);
    /* kv is by tokens. The file appears at once, or the folder's files one by one, each
     * whole. Errors: TU_EUNSUP for what the format cannot hold. */
    int (*save)(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                const struct tu_job *job, struct tu_err *err);
};
TU_API extern const struct tu_kv_engine *const tu_kv_engines[]; /* NULL-ended */
TU_API TU_MUST int tu_kv_engine_find(const struct tu_kv_engine **out, const char *name,
                                     struct tu_err *err);
/* The row for a file or folder: spec's, or by its looks where that is NULL. */
TU_API TU_MUST int tu_kv_engine_of(const struct tu_kv_engine **out, const char *path,
                                   const struct tu_spec *spec, struct tu_err *err);

TU_END

#endif
