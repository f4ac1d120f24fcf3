/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h: checkpoints in parallel layouts: opened, compared, planned, moved, published.
 *
 * Atoms. An *atom* is one whole, unpadded tensor under its canonical name. A layout says, for every
 * tensor of every file (a *piece*), which elements of which atoms it holds, as *spans*. That is all
 * it says: any layout converts to any other by meeting their spans on the atoms, and there is no
 * converter for a pair. The unit of work is a window of whole rows of one atom: filled from every
 * source piece, digested in C order, cast, and written to every target piece; memory does not depend
 * on the size of the model. Source: X. Lian et al., "Universal Checkpointing", USENIX ATC 2025 (atomic
 * checkpoints); here without the intermediate files.
 *
 * May change before 1.0. */
#ifndef TENSORUTILS_SHARD_H
#define TENSORUTILS_SHARD_H

#include "core.h"
#include "format.h"
#include "model.h"

TU_BEGIN

/* An affine piece of a matrix view. The atom is rows × cols (tu_tensor_matrix). Element (i, j) of the
 * span, 0 ≤ i < rows, 0 ≤ j < cols, is atom element (arow + i, acol + j) and piece element
 * poff + i*prow + j*pcol. All in elements. pcol is 1 except for transposes. */
struct tu_span {
    uint64_t arow, acol, rows, cols;
    uint64_t poff, prow, pcol;
};

struct tu_spans {
    struct tu_span *span;
    size_t n, cap;
};

struct tu_coord {
    uint32_t tp, pp, vp, ep, dp;
};

/* One tensor of one file. */
struct tu_piece {
    uint32_t file;
    uint32_t index;           /* in the file's source or sink */
    struct tu_tensor tensor;
    struct tu_coord at;
    struct tu_named named;    /* its roles; n = 1 and role = name where no map applies */
};

/* A file of a checkpoint, open (source) or to be written (path, format and what). */
struct tu_ckpt_file {
    const char *path;         /* relative to the root */
    const struct tu_format *format;
    struct tu_source *source;
    struct tu_save save;
    struct tu_coord at;
};

/* A small file that goes along: config.json, tokenizer… */
struct tu_side {
    const char *name;
    const char *path;         /* where to read it; NULL: text */
    const char *text;
    size_t n;
};

struct tu_atom {
    struct tu_tensor tensor;
    uint32_t *piece;          /* [n] pieces with elements of it */
    size_t n;
};

/* A checkpoint in some layout: what is there (opened), or what will be (planned). */
struct tu_ckpt {
    const struct tu_layout *layout;
    char *root;
    char *spec;               /* NAME:KEY=VALUE,… that reproduces it */
    struct tu_arena *arena;   /* owns all lists below */
    struct tu_model model;
    uint32_t tp, pp, vpp, ep; /* sizes of the mesh, at least 1 */
    const uint32_t *stage_layers; /* [pp*vpp] layers of stage p, chunk v at p + v*pp; NULL: even */
    int version;              /* Megatron's checkpoint_version: order of fused QKV */
    int64_t iteration;        /* -1: none */
    struct tu_map *map;       /* names of the pieces; NULL: names are canonical */
    struct tu_map *canonical; /* family's HF map; NULL: roles and names are one */
    struct tu_ckpt_file *file;
    size_t files;
    struct tu_piece *piece;
    size_t pieces;
    struct tu_side *side;
    size_t sides;
    struct tu_atom *atom;     /* sorted by canonical order (embedding, layers, norm, head) */
    size_t atoms;
    uint64_t dropped;         /* tensors that are not weights */
    char **missing;           /* what ls reports: "rank tp=1 pp=0: no file" */
    size_t missings;
};

struct tu_shard_opts {
    const char *map_file;     /* --map */
    const char *family;       /* --family: when no configuration tells */
    uint64_t vocab;           /* --vocab: true size, 0: from the configuration */
    const char *vocab_pad;    /* "zeros" (default) or "last" */
    const char *tied;         /* "drop" (default) or "copy" */
    uint32_t dtype;           /* cast; TU_DTYPE_NONE keeps */
    uint64_t max_shard;
    struct tu_pattern **include, **exclude; /* NULL-ended, on canonical names */
    bool no_crc, verify_replicas, sha256, resume, force;
    struct tu_open open;
};

struct tu_layout_key {
    const char *name, *help;
};

/* A row: a layout is this and one file. */
struct tu_layout {
    const char *name, *help;
    const struct tu_layout_key *key; /* legal keys of its spec, ends without a name */
    /* 0: not this; 1-100: how surely the path is. */
    int (*detect)(const char *path);
    /* List files and pieces, read model and side files. The caller builds the atoms. */
    int (*open)(struct tu_ckpt *c, const struct tu_spec *spec, const struct tu_shard_opts *o,
                const struct tu_job *job, struct tu_err *err);
    /* From the atoms (in c->atom, with shapes) and the model: files and pieces to write. */
    int (*plan)(struct tu_ckpt *c, const struct tu_spec *spec, const struct tu_ckpt *from,
                const struct tu_shard_opts *o, struct tu_err *err);
    /* After the files are in place: trackers and the like, inside folder `root`. NULL: nothing. */
    int (*publish)(const struct tu_ckpt *c, const char *root, struct tu_err *err);
};

TU_API extern const struct tu_layout *const tu_layouts[];
TU_API const struct tu_layout *tu_layout_find(const char *name);

/* Open a checkpoint; spec NULL detects. Reads headers and pickles only. Errors name what is missing
 * or does not fit: TU_EINCOMPLETE (ranks, layers, holes), TU_EFORMAT, TU_EUNSUP. */
TU_API TU_MUST int tu_ckpt_open(struct tu_ckpt **out, const char *path, const char *spec,
                                const struct tu_shard_opts *o, const struct tu_job *job,
                                struct tu_err *err);
TU_API void tu_ckpt_close(struct tu_ckpt *c);
/* The plan of the same model in another layout under `root`. */
TU_API TU_MUST int tu_ckpt_plan(struct tu_ckpt **out, const struct tu_ckpt *from, const char *root,
                                const char *spec, const struct tu_shard_opts *o, struct tu_err *err);
/* Spans of piece p on atom a, appended. Computed when needed, so that memory is one tensor's. */
TU_API TU_MUST int tu_ckpt_spans(const struct tu_ckpt *c, uint32_t piece, const struct tu_atom *a,
                                 struct tu_spans *out, struct tu_err *err);
/* Every atom covered exactly once by each set of replicas; every piece used. */
TU_API TU_MUST int tu_ckpt_check(const struct tu_ckpt *c, struct tu_err *err);

/* Moving ----------------------------------------------------------------------------------------- */

struct tu_digest {
    const char *name;
    uint32_t dtype, rank;
    const uint64_t *dim;
    uint32_t crc;
    bool has_sha;
    unsigned char sha[TU_SHA256_SIZE];
};

struct tu_plan_cost {
    uint64_t read_bytes, write_bytes, memory_bytes, free_bytes, files, tensors;
};
TU_API TU_MUST int tu_plan_cost(const struct tu_ckpt *from, const struct tu_ckpt *to,
                                const struct tu_job *job, struct tu_plan_cost *out,
                                struct tu_err *err);

/* Digests of all atoms, [c->atoms] in their order (caller's array). */
TU_API TU_MUST int tu_ckpt_digest(const struct tu_ckpt *c, const struct tu_shard_opts *o,
                                  const struct tu_job *job, struct tu_digest *out,
                                  struct tu_err *err);
/* Write `to` below a partial folder, then publish it as to->root. digest [from->atoms] may be NULL.
 * Errors: TU_EXISTS, TU_EIO (space), those of the source. */
TU_API TU_MUST int tu_ckpt_convert(const struct tu_ckpt *from, struct tu_ckpt *to,
                                   const struct tu_shard_opts *o, const struct tu_job *job,
                                   struct tu_digest *digest, struct tu_err *err);
/* Rows r0 … r1-1 of atom a in C order into buf. Any thread. */
TU_API TU_MUST int tu_ckpt_rows(const struct tu_ckpt *c, const struct tu_atom *a, uint64_t r0,
                                uint64_t r1, void *buf, struct tu_err *err);

/* Digest files: `CRC32 SHA256|- DTYPE SHAPE NAME` per line, sorted by name. */
TU_API TU_MUST int tu_digest_write(struct tu_buf *out, struct tu_digest *d, size_t n,
                                   struct tu_err *err);

TU_END

#endif
