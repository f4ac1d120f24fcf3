/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h: checkpoints in parallel layouts: opened, compared, planned, moved, published.
 *
 * Atoms. An *atom* is one whole, unpadded tensor under its canonical name. A layout says,
 * for every tensor of every file (a *piece*), which elements of which atoms it holds, as
 * *spans*. That is all it says: any layout converts to any other by meeting their spans
 * on the atoms, and there is no converter for a pair. The unit of work is a window of
 * whole rows of one atom: filled from every source piece, digested in C order, cast, and
 * written to every target piece; memory does not depend on the size of the model. Source:
 * X. Lian et al., "Universal Checkpointing", USENIX ATC 2025 (atomic checkpoints); here
 * without the intermediate files.
 *
 * May change before 1.0. */
#ifndef TENSORUTILS_SHARD_H
#define TENSORUTILS_SHARD_H

#include "core.h"
#include "format.h"
#include "model.h"

TU_BEGIN

/* An affine piece of a matrix view. The atom is rows × cols (tu_tensor_matrix; of a
 * packed dtype in blocks). Element
 * (i, j) of the span, 0 ≤ i < rows, 0 ≤ j < cols, is atom element (arow + i, acol + j)
 * and piece element poff + i*prow + j*pcol. All in elements. pcol is 1 except for
 * transposes. */
struct tu_span {
    uint64_t arow, acol, rows, cols;
    uint64_t poff, prow, pcol;
};

struct tu_spans {
    struct tu_span *span;
    size_t n, cap;
};

struct tu_coord {
    uint32_t tp, pp, vp, ep;
};

/* A matrix [out, in] or vector of the model by its role (model.h), or the optimizer's
 * state of one; whole, unpadded. */
struct tu_role {
    const char *name;      /* of a state: "optim.STATE." and the base */
    const char *state;     /* "fp32", "exp_avg", …; NULL: a weight */
    const char *base;      /* the name without its state, inside `name` */
    int64_t layer, expert; /* -1: none */
    uint32_t dtype;
    uint32_t rank; /* 1: rows only; others are kept as rank 2 unless no map applies */
    uint64_t rows, cols;
    const uint64_t *dim; /* [rank] where no map applies, else NULL */
    uint32_t atom;
};

/* How a tensor is made of roles; for pieces and, with one rank, for atoms. */
struct tu_fuse {
    unsigned transform; /* TU_MAP_… */
    uint32_t roles;
    const uint32_t *role; /* [roles] numbers in tu_ckpt.role */
    uint32_t per;         /* of a stack: roles of one block; 0: all are one block */
};

/* Elements that are a box both in the whole entry and in a piece of it; [rank] each. */
struct tu_slab {
    const uint64_t *at;    /* first index in the whole */
    const uint64_t *dim;   /* sizes */
    const uint64_t *local; /* first index in the piece; NULL: all 0 */
};

/* A run of the C-order elements of a piece, as partitioned optimizers keep them. */
struct tu_flat {
    bool yes;       /* else the piece is all there, from the first element of its tensor */
    uint64_t lo, n; /* elements lo … lo+n-1 of the piece */
    uint64_t at;    /* are elements at … at+n-1 of the file's tensor */
};

/* One tensor of one file. */
struct tu_piece {
    uint32_t file;
    uint32_t index;          /* in the file's source or sink */
    struct tu_tensor tensor; /* as in the file, or what a flat run is of; its dtype may be
                              * another than the role's: values are cast on the way */
    struct tu_coord at;
    struct tu_fuse fuse;
    const uint64_t *whole;    /* [rank] of the entry that the boxes are cut from */
    const struct tu_slab *box; /* [boxes]; NULL: the mesh cuts */
    uint32_t boxes;
    struct tu_flat flat;
    const void *data; /* its bytes, where the file has them as a value, not a tensor */
    bool replica;     /* another piece holds the same elements */
};

/* Bytes of a file's tensor that no role fills: zeros. */
struct tu_blank {
    uint32_t file, index;
    uint64_t off, n;
};

/* A file of a checkpoint: open (source), or to be written (format and what). */
struct tu_ckpt_file {
    const char *path; /* below the root; "" for a checkpoint of one file */
    const struct tu_format *format;
    struct tu_source *source;
    struct tui_trust *trust; /* what of the source was verified */
    struct tu_save save;
    struct tu_tensor *list; /* of save, growing */
    size_t list_cap;
    struct tu_coord at;
};

/* A small file that goes along: config.json, tokenizer… */
struct tu_side {
    const char *name; /* as Hugging Face names it */
    const char *text;
    size_t n;
};

struct tu_atom {
    struct tu_tensor tensor; /* canonical name and shape */
    struct tu_fuse fuse;
    uint32_t *piece; /* [n] pieces that hold elements of it, replicas included */
    size_t n, cap;
};

struct tu_stage {
    uint32_t first, count; /* layers of one chunk of one pipeline stage */
};

/* A checkpoint in some layout: what is there (opened), or what will be (planned). */
struct tu_ckpt {
    const struct tu_layout *layout;
    char *root;
    struct tu_arena *arena; /* owns the texts and lists below */
    struct tu_model model;
    uint32_t tp, pp, vpp, ep; /* sizes of the mesh, at least 1 */
    struct tu_stage *stage; /* [pp*vpp]; chunk v of stage p at p + v*pp; NULL: no pipeline */
    int version; /* order of fused QKV: Megatron's checkpoint_version, 2 otherwise */
    int64_t iteration;           /* -1: none ("release") */
    struct tu_map *map;          /* names of the pieces; NULL: names are roles */
    struct tu_map *canonical;    /* the family's; NULL: atoms are roles */
    const struct tu_pnode *args; /* Megatron's arguments; lives as long as the files */
    struct tu_role *role;
    size_t roles, role_cap;
    struct tu_ckpt_file *file;
    size_t files, file_cap;
    struct tu_piece *piece;
    size_t pieces, piece_cap;
    struct tu_blank *blank;
    size_t blanks, blank_cap;
    struct tu_side *side;
    size_t sides, side_cap;
    struct tu_atom *atom; /* in canonical order: embedding, layers by number, norm, head */
    size_t atoms, atom_cap;
    const char *scheme, *scaled; /* the weights are quantized, as this tensor shows: no map
                                  * is used; NULL: they are plain */
    uint64_t dropped;       /* tensors that are not weights */
    bool part;              /* of a model: some of its tensors were not chosen, now or when it
                             * was written */
    struct tui_listed *listed;
    const char *stray;      /* a folder among the ranks' that is of none of them; NULL: none */
    const char *optim;      /* META "optim", canonical JSON: "groups" [{…, "params": names}],
                             * "frozen", "buffers" names; NULL: nothing is known */
    size_t optim_n;
    const struct tu_pnode *object_names; /* of the objects in file 0, where a layout has
                                          * any beside tensors: LIST of TEXT */
    uint32_t dtype;         /* of a plan: cast float tensors to it; TU_DTYPE_NONE keeps */
    struct tu_names *names; /* lookup of roles and atoms by name */
    struct tui_renames *renames; /* NULL: names stay */
    struct tu_refused *refused; /* tu_shard_opts */
    uint32_t waiting; /* converted by parts: those that are not done; 0: it is published */
    const struct tu_ckpt *from; /* of a plan: whose roles and atoms these are */
};

/* Checkpoints of the same tensors whose mean is meant, in any layouts: each value is
 * sum(weight × value) / sum(weight), summed in float64 in this order and rounded once to
 * the dtype that is written. What is no floating-point tensor is the last one's. */
struct tu_mean {
    const struct tu_ckpt *const *with; /* [n] beside the source itself */
    size_t n;
    const double *weight; /* [n + 1], the source's first */
    bool sum;             /* not divided */
};

/* The tensors that a refusal counts, all of them, where its message has room for a few.
 * The caller's: `names` is released by tu_buf_release. */
struct tu_refused {
    const char *why;     /* "missing", "unmatched", …; NULL: no refusal that counts */
    struct tu_buf names; /* one after the other, each with its ending NUL */
    size_t n;
};

/* Adapters of low rank (LoRA, DoRA), opened: what each adds to which weight. In any layout
 * that keeps adapter_config.json beside the tensors. */
struct tu_lora;
struct tu_shard_opts;
/* strength: a factor on what it adds, 1 as it was trained. Errors: TU_EFORMAT names the key
 * or tensor that is not understood; TU_EUNSUP for other kinds of adapters and for those
 * that start from changed weights. */
TU_API TU_MUST int tu_lora_open(struct tu_lora **out, const char *path, double strength,
                                const struct tu_shard_opts *o, const struct tu_job *job,
                                struct tu_err *err);
TU_API void tu_lora_close(struct tu_lora *l); /* NULL allowed */

/* Other names for tensors: the first pattern that matches from a name's start gives the
 * matched part another text (tu_pattern_expand). */
struct tu_rename {
    struct tu_pattern *pattern;
    const char *target;
};

struct tu_shard_opts {
    const char *map_file; /* --map */
    const char *family;   /* --family: when no configuration tells */
    const char *config_file; /* --config: stands for the config.json that lies with it */
    uint64_t vocab;       /* --vocab: true size, 0: from the configuration */
    bool pad_last;        /* fill vocabulary padding with the last row, not zeros */
    bool tied_copy;     /* write the tied head too, where the layout would leave it out */
    uint32_t dtype;     /* cast; TU_DTYPE_NONE keeps */
    enum tu_overflow overflow; /* of that cast */
    uint64_t max_shard; /* bytes per file; 0: 5,000,000,000 */
    struct tu_pattern **include, **exclude; /* NULL-ended, on canonical names; NULL: all */
    bool roles;    /* atoms are roles (model.h), [out, in] and apart, under the roles' names */
    bool untied;   /* do not believe a configuration that ties head and embedding */
    bool verify_replicas, sha256, force;
    uint32_t part, parts; /* this process is `part` (from 1) of `parts`; 0: there is one */
    bool resume; /* file by file, and a run after an interruption keeps those that are done */
    bool weights_only; /* leave the optimizer's states out */
    const struct tu_mean *mean;     /* of a conversion; NULL: none */
    struct tu_lora *const *lora;    /* [loras] of a conversion without a mean: added to the
                                     * weights one after the other, in float64, rounded once */
    size_t loras;
    const struct tu_rename *rename; /* [renames]: no family's map is used, names are those
                                     * of the files, changed */
    size_t renames;
    struct tu_refused *refused; /* filled by a refusal to open or to plan; NULL: not wanted */
    struct tu_open open;
};

struct tu_layout_key {
    const char *name, *help;
};

/* A row: a layout is this and one file. */
struct tu_layout {
    const char *name, *help;
    const struct tu_layout_key *key; /* legal keys of its spec, ends without a name */
    const char *const *maps; /* of its names, ends with NULL; NULL: the family's */
    /* 0: not this; 1-100: how surely the path is; TU_EIO, TU_ENOMEM: it could not be looked at. */
    int (*detect)(const char *path);
    /* Add files and pieces, read model and side files. The caller makes the atoms. */
    int (*open)(struct tu_ckpt *c, const struct tu_spec *spec,
                const struct tu_shard_opts *o, const struct tu_job *job,
                struct tu_err *err);
    /* Files and pieces to write for the roles and the model of c (taken over from
     * c->from). */
    int (*plan)(struct tu_ckpt *c, const struct tu_spec *spec,
                const struct tu_shard_opts *o, struct tu_err *err);
    bool configured; /* what is written is of no use without a config.json */
    /* Folder for the side files below the root, "" the root itself; NULL: they are not
     * kept as files. */
    const char *side_folder;
    /* Write what is neither tensor nor side file (trackers, params.json) below `folder`.
     * May be NULL. */
    int (*extra)(const struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                 struct tu_err *err);
};

TU_API extern const struct tu_layout *const tu_layouts[];
TU_API const struct tu_layout *tu_layout_find(const char *name);

/* Open a checkpoint; spec NULL detects. Reads headers and pickles only. Errors name what
 * is missing or does not fit: TU_EINCOMPLETE (ranks, layers, holes), TU_EFORMAT,
 * TU_EUNSUP. */
TU_API TU_MUST int tu_ckpt_open(struct tu_ckpt **out, const char *path, const char *spec,
                                const struct tu_shard_opts *o, const struct tu_job *job,
                                struct tu_err *err);
TU_API void tu_ckpt_close(struct tu_ckpt *c);
/* The plan of the same model in another layout under `root`. `from` must outlive it. */
TU_API TU_MUST int tu_ckpt_plan(struct tu_ckpt **out, const struct tu_ckpt *from,
                                const char *root, const char *spec,
                                const struct tu_shard_opts *o, struct tu_err *err);
/* Spans of a piece on atom number a, appended; computed when needed, so memory is one
 * tensor's. */
TU_API TU_MUST int tu_ckpt_spans(const struct tu_ckpt *c, uint32_t piece, uint32_t a,
                                 struct tu_spans *out, struct tu_err *err);
/* Every atom covered exactly once by the pieces that are not replicas; every layer there. */
TU_API TU_MUST int tu_ckpt_check(const struct tu_ckpt *c, struct tu_err *err);

/* Moving ---------------------------------------------------------------------------- */

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
    uint64_t space_bytes; /* of write_bytes: the holes of sparse sources stay holes */
};
TU_API TU_MUST int tu_plan_cost(const struct tu_ckpt *from, const struct tu_ckpt *to,
                                const struct tu_job *job, struct tu_plan_cost *out,
                                struct tu_err *err);

/* Digests of all atoms, [c->atoms] in their order (caller's array). */
TU_API TU_MUST int tu_ckpt_digest(const struct tu_ckpt *c, const struct tu_shard_opts *o,
                                  const struct tu_job *job, struct tu_digest *out,
                                  struct tu_err *err);
/* The manifest that convert leaves in a folder. */
#define TU_DIGESTS "tensorutils-digests.txt"
/* Compare the digests of all atoms with the manifest in the checkpoint's folder; *compared:
 * how many are equal, 0 where no manifest is. Its lines that o leaves out do not count.
 * Errors: TU_EPCRC, TU_EINCOMPLETE name the first tensor that is another, missing or not
 * listed. */
TU_API TU_MUST int tu_ckpt_verify_digests(const struct tu_ckpt *c,
                                          const struct tu_shard_opts *o,
                                          const struct tu_job *job, uint64_t *compared,
                                          struct tu_err *err);
/* Write `to` below a partial folder, then publish it as to->root. digest [from->atoms]
 * may be NULL. Errors: TU_EXISTS, TU_EIO (space), those of the source. */
TU_API TU_MUST int tu_ckpt_convert(const struct tu_ckpt *from, struct tu_ckpt *to,
                                   const struct tu_shard_opts *o,
                                   const struct tu_job *job, struct tu_digest *digest,
                                   struct tu_err *err);
/* Extracting an adapter: for each matrix of a layer of `base` the factors of rank `rank`
 * whose product is nearest to tuned - base, by a truncated singular value decomposition. */
struct tu_fit {
    const char *name;   /* of the weight */
    double delta, rest; /* Frobenius norms of the difference, and of what is left of it */
};
struct tu_extract {
    const struct tu_ckpt *base, *tuned; /* of the same tensors; base's selection counts */
    uint64_t rank;
    unsigned rounds;          /* of subspace iteration; 0: 4 */
    const char *base_name;    /* for base_model_name_or_path */
    const struct tu_fit *fit; /* [fits] filled, as long-lived as the adapter */
    size_t fits;
    uint64_t others; /* filled: tensors that differ too and are no such matrices */
};
/* The adapter as a checkpoint, f32, that converts to layout peft and any other; its tensors
 * stay in memory. Errors: TU_EINCOMPLETE where the two do not hold the same tensors. */
TU_API TU_MUST int tu_lora_extract(struct tu_ckpt **out, struct tu_extract *x,
                                   const struct tu_job *job, struct tu_err *err);
/* The C-order bytes of atom number a, in order, by windows. */
typedef int (*tu_put_fn)(void *ctx, const void *p, size_t n, struct tu_err *err);
TU_API TU_MUST int tu_ckpt_walk(const struct tu_ckpt *c, uint32_t a,
                                const struct tu_job *job, tu_put_fn put, void *ctx,
                                struct tu_err *err);
/* The records that make a GGUF file for llama.cpp: META contents, gguf, model, then tensors
 * under its names; not END. c was opened with `roles`. *tokens: there is a tokenizer.
 * Errors: TU_EUNSUP for a family that llama.cpp does not know. */
TU_API TU_MUST int tu_ckpt_gguf(const struct tu_ckpt *c, struct tu_writer *out, bool *tokens,
                                const struct tu_job *job, struct tu_err *err);
/* META "contents" of its atoms; of a plan, of its first file. */
TU_API TU_MUST int tu_ckpt_contents(const struct tu_ckpt *c, struct tu_buf *out,
                                    struct tu_err *err);
/* The small files that travel with it as META "files"; those that are not text are left
 * out. */
TU_API TU_MUST int tu_ckpt_files(const struct tu_ckpt *c, struct tu_buf *out,
                                 struct tu_err *err);

/* Are all replicas (or only the copies of a tied embedding) equal to the pieces that are
 * used? TU_EDIFFER names the first that is not. */
TU_API TU_MUST int tu_ckpt_replicas(const struct tu_ckpt *c, bool tied_only,
                                    const struct tu_job *job, struct tu_err *err);

/* Which of two different copies is right cannot be guessed: is there one value of everything
 * that is read? Copies of a tied embedding are always compared, other replicas where
 * o->verify_replicas asks for it. Errors: TU_EINCOMPLETE as tu_ckpt_replicas. */
TU_API TU_MUST int tu_ckpt_agree(const struct tu_ckpt *c, const struct tu_shard_opts *o,
                                 const struct tu_job *job, struct tu_err *err);

/* Digest files: `CRC32 SHA256|- DTYPE SHAPE NAME` per line, sorted by name. */
TU_API TU_MUST int tu_digest_write(struct tu_buf *out, struct tu_digest *d, size_t n,
                                   struct tu_err *err);

/* Draining ---------------------------------------------------------------------------- */

/* Checkpoints that a producer writes as streams into a pipe, one after the other, taken at
 * once into a ring of the job's memory and written behind its back: to a fast folder, then
 * to a slow one. A file has its name, and the folder's `latest` names it, only when it is
 * whole, checked and durable; a kill at any instant leaves no more than NAME.partial. */
enum tu_drain_event {
    TU_DRAIN_TAKEN,  /* the fence: all its bytes are in the ring or further */
    TU_DRAIN_FIRST,  /* published in the fast folder */
    TU_DRAIN_SECOND, /* and in the slow one */
};
struct tu_drain {
    int fd;                 /* of the producer */
    const char *fast, *slow; /* folders that exist; slow NULL: one level */
    const char *name;       /* of a file; %d: the number of the checkpoint, in six digits */
    bool keep;              /* all stay in the fast folder; else the newest alone does, and
                             * the others leave when the slow one has them */
    bool force;             /* replace a file without a number */
    /* One call at a time, from any thread. */
    void (*event)(void *ctx, enum tu_drain_event what, uint64_t number, uint64_t bytes);
    void *ctx;
    /* Filled: the number of the first checkpoint of this run, the first that an earlier run
     * left to be copied, how many were written, and how long the ring was full. */
    uint64_t first, waiting, count;
    double stall_s;
};
/* Until the input ends and all is written. Errors: those of a stream that is not whole or not
 * sound, TU_EEXISTS, TU_EIO; what was published before stays. */
TU_API TU_MUST int tu_drain(struct tu_drain *how, const struct tu_job *job,
                            struct tu_err *err);

TU_END

#endif
