/* SPDX-License-Identifier: Apache-2.0 */
/* quant.h: codecs: number formats, block formats, sparsity and compression of tensors.
 *
 * A codec turns floats into codes and side tensors, and back. A *coding* is a codec with
 * its arguments applied to one tensor: it knows the shapes of what comes out before any
 * work is done.
 *
 * A tensor is seen as [rows, cols], cols being its last dimension, and is cut into
 * *atoms*: the shortest runs of elements that are coded without knowing the others (a
 * block, a row, 128 rows, the tensor). The driver streams runs of atoms through a pool in
 * bounded memory, so a codec is a function from a run of atoms to bytes. Results never
 * depend on threads or on chunk sizes.
 *
 * Every codec has a plain reference and may have fast rows for some CPUs; the bytes are
 * equal. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_H
#define TENSORUTILS_QUANT_H

#include "core.h"

TU_BEGIN

#define TU_CODING_SIDES 6
#define TU_CODING_PARAMS 12

/* The codes of a tensor, or a side tensor of it. */
struct tu_part {
    const char *suffix;  /* NULL: the codes; "scale": the record NAME.scale */
    uint32_t dtype;      /* TU_U8 [bytes] where the registry has none */
    unsigned rank;
    uint64_t dim[TU_RANK_MAX];
    uint64_t atom_bytes; /* atom i begins at byte i × this; 0: the part does not follow atoms */
    uint64_t bytes;      /* of the whole, by tu_coding_init */
};

struct tu_device;
struct tu_kernel_code; /* device/kernels.h */

struct tu_coding {
    const struct tu_codec *codec;
    /* The tensor. */
    unsigned rank;
    uint64_t dim[TU_RANK_MAX];
    uint64_t rows, cols, elements;
    /* How to code it. */
    const float *importance; /* [cols] weight of each column, or NULL; borrowed */
    bool compat;             /* reproduce the peer's known defects */
    const float *warm;       /* PowerSGD: Q of the step before, or NULL; borrowed */
    uint64_t seed, stream;   /* of stochastic rounding: element i takes number i */
    uint32_t cpu;            /* TU_CPU_… bits that kernels may use */
    /* By the codec's plan. */
    int64_t param[TU_CODING_PARAMS]; /* the values of its keys */
    uint64_t atom;
    uint64_t block[2];       /* rows and columns that share a scale, for metadata; 0: none */
    struct tu_part code;
    unsigned sides;
    unsigned scratch;        /* parts behind the sides, alive while encoding: no records */
    struct tu_part side[TU_CODING_SIDES];
    bool two_pass;           /* `tally` must be filled before the first encode */
    struct tu_tally tally; /* of the whole tensor */
    double sum_abs;
};

enum tu_codec_flags {
    TU_CODEC_LOSSLESS = 1,  /* decodes to the same numbers */
    TU_CODEC_WEIGHTED = 2,  /* uses an importance matrix */
    TU_CODEC_NEEDS_WEIGHTS = 4,
    TU_CODEC_STATEFUL = 8,  /* error feedback: state travels with the tensor */
};

/* A row of the table: a codec is this and one file of its family. */
struct tu_codec {
    const char *name, *help;
    const char *source;      /* paper or peer's file */
    const char *const *key;  /* arguments it takes, NULL-ended; NULL: none */
    unsigned flags;
    const void *format;      /* the family's own description of this row */
    /* Fill param, atom, code, sides and two_pass. Errors: TU_EUSAGE where the tensor or a
     * value does not fit, saying which dimension and size. */
    int (*plan)(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err);
    /* Elements first … first+n-1 (whole atoms; the last may be short) of x into code and
     * side[k], which point at the first of these atoms. NULL: cannot encode. */
    int (*encode)(const struct tu_coding *c, uint64_t first, size_t n, const float *x, void *code,
                  void *const *side, struct tu_err *err);
    int (*decode)(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err);
    /* Before the first atom, after the first pass: sides that follow no atoms and are
     * known by now. NULL: there are none. */
    int (*start)(const struct tu_coding *c, void *const *side, struct tu_err *err);
    /* All atoms are coded: sides that follow no atoms (of the tensor, of the other sides)
     * are written here, from whole sides. NULL: there are none. */
    int (*finish)(const struct tu_coding *c, void *const *side, struct tu_err *err);
    /* What a device's kernel "encode.NAME" or "decode.NAME" must know of this coding, its
     * sides started; false where the kernels do not do it. side NULL: asks only. NULL:
     * there are no kernels. */
    bool (*kernel)(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k);
    /* Refuse what a device's kernel coded as encode would have refused. NULL: nothing. */
    int (*check)(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                 const void *code, struct tu_err *err);
};

/* Rows in the order of --list; NULL past the end. */
TU_API const struct tu_codec *tu_codec_row(size_t i);
TU_API const struct tu_codec *tu_codec_find(const char *name);

/* Plan the coding of a tensor. spec: NAME[:KEY=VALUE,…], used during the call only. Set
 * importance, warm, compat, seed and stream (zeroed before the call) in *c first. Errors:
 * TU_EUSAGE unknown codec or key, or a tensor that does not fit. */
TU_API TU_MUST int tu_coding_init(struct tu_coding *c, const struct tu_spec *spec,
                                  const uint64_t *dim, unsigned rank, struct tu_err *err);
/* Bits per element of codes and sides together; 0 for an empty tensor. */
TU_API double tu_coding_bpw(const struct tu_coding *c);
/* The `quant` object of the codes' metadata: the spec, the side records of `name`, and
 * the dtype and shape that were. Canonical JSON, appended. */
TU_API TU_MUST int tu_coding_meta(const struct tu_coding *c, const struct tu_spec *spec,
                                  const char *name, uint32_t dtype, struct tu_buf *out,
                                  struct tu_err *err);

/* The reverse, for the record of codes: by its metadata, or its dtype where that is one of
 * ggml's blocks. *yes false where the tensor is not coded; else *spec is to be released, and
 * dtype, dim [TU_RANK_MAX] and rank are what the tensor was. Errors: TU_EMETA, TU_EDTYPE. */
TU_API TU_MUST int tu_coded_by(const struct tu_tensor *t, struct tu_spec *spec, uint32_t *dtype,
                               uint64_t *dim, unsigned *rank, bool *yes, struct tu_err *err);

/* Streaming -------------------------------------------------------------------------- */

enum tu_nonfinite { TU_NONFINITE_ERROR, TU_NONFINITE_ZERO, TU_NONFINITE_KEEP };

/* Bytes in and out, in order; called by one thread at a time, not always the same. */
struct tu_flow {
    void *ctx;
    int (*read)(void *ctx, void *buf, size_t n, struct tu_err *err);
    int (*write)(void *ctx, const void *p, size_t n, struct tu_err *err);
    /* Back to the first byte of the input; NULL where that cannot be (two_pass then
     * fails). */
    int (*rewind)(void *ctx, struct tu_err *err);
};

/* Error of a coding against its input of what is coded against what it was. Sums are
 * double, over a fixed tree, so the digits are the same for any number of threads. */
struct tu_measure {
    uint64_t n;
    double sum_x2, sum_y2, sum_xy, sum_e, sum_e2;
    double max_abs;      /* largest |y - x| … */
    uint64_t max_at;     /* … and the first element that has it */
    uint64_t clipped;    /* |x| over the largest |y| of its atom */
    uint64_t zeros;      /* y = 0 */
    uint64_t nan, inf;   /* of x; such elements are left out of the sums */
};
/* Elements first … first+n-1, cut into runs of `atom` for what counts as clipped. One
 * call is one leaf of the tree: the caller's cuts decide the digits, merging in order. */
TU_API void tu_measure_add(struct tu_measure *m, const float *x, const float *y, uint64_t first,
                           size_t n, uint64_t atom);
TU_API void tu_measure_merge(struct tu_measure *m, const struct tu_measure *next);
TU_API double tu_measure_rmse(const struct tu_measure *m);
TU_API double tu_measure_relative(const struct tu_measure *m);
TU_API double tu_measure_sqnr(const struct tu_measure *m); /* dB; inf without error */
TU_API double tu_measure_cosine(const struct tu_measure *m); /* NaN for a zero tensor */

struct tu_coding_run {
    const struct tu_flow *flow;
    uint32_t dtype;              /* of the plain elements: input of encode, output of decode */
    enum tu_nonfinite nonfinite; /* encode: what to do with NaN and Inf */
    uint64_t replaced;           /* out: elements set to zero */
    struct tu_measure *measure;  /* encode: if not NULL, decode each run again and add its error */
    const struct tu_device *device; /* where it has the kernel; NULL: the CPU */
};
/* Has the device a kernel for this coding? */
TU_API bool tu_coding_on(const struct tu_coding *c, const struct tu_device *d, bool encode);

/* Code a tensor from flow to flow; side[k] has room for c->side[k].bytes. Memory: a few
 * windows of c->atom or 1 Mi elements. Errors: those of flow and codec; TU_EUSAGE naming
 * row and column of a non-finite element. */
TU_API TU_MUST int tu_coding_encode(struct tu_coding *c, struct tu_coding_run *run,
                                    void *const *side, const struct tu_job *job,
                                    struct tu_err *err);
TU_API TU_MUST int tu_coding_decode(const struct tu_coding *c, struct tu_coding_run *run,
                                    const void *const *side, const struct tu_job *job,
                                    struct tu_err *err);
/* Bytes of buffers that either holds at once, for plans. */
TU_API uint64_t tu_coding_memory(const struct tu_coding *c, uint32_t dtype);
/* The same for a tensor in memory. code has room for c->code.bytes. */
TU_API TU_MUST int tu_coding_encode_mem(struct tu_coding *c, const float *x, void *code,
                                        void *const *side, struct tu_pool *pool,
                                        struct tu_err *err);
TU_API TU_MUST int tu_coding_decode_mem(const struct tu_coding *c, const void *code,
                                        const void *const *side, float *x, struct tu_pool *pool,
                                        struct tu_err *err);

/* Importance matrices: mean squares of the inputs of each weight's columns ----------- */

struct tu_imatrix;

/* A llama.cpp file, the older format or GGUF; told apart by contents. Entries without a
 * count give weights of 1. Errors: TU_EFORMAT with the entry, TU_EUNSUP for a weight that
 * is not finite. */
TU_API TU_MUST int tu_imatrix_open(struct tu_imatrix **out, const char *path,
                                   const struct tu_job *job, struct tu_err *err);
/* An empty one, and an entry of it: means of squares w [n] over `count` tokens. A Hugging
 * Face name becomes GGUF's. Errors: TU_EUNSUP for a weight that is not finite. */
TU_API TU_MUST int tu_imatrix_new(struct tu_imatrix **out, struct tu_err *err);
TU_API TU_MUST int tu_imatrix_add(struct tu_imatrix *m, const char *name, const float *w,
                                  uint64_t n, uint64_t count, struct tu_err *err);
/* As llama.cpp reads it. older: the format before GGUF. */
TU_API TU_MUST int tu_imatrix_write(const struct tu_imatrix *m, const char *path, bool older,
                                    const struct tu_job *job, struct tu_err *err);
TU_API void tu_imatrix_free(struct tu_imatrix *m);
TU_API size_t tu_imatrix_count(const struct tu_imatrix *m);
/* The weights [n] of a tensor by its name or the one it has in GGUF files, NULL if it has
 * none. Borrowed. */
TU_API const float *tu_imatrix_find(const struct tu_imatrix *m, const char *name, uint64_t *n);
/* Where all weights of a run of `group` columns are 0, set them to 1 (else those blocks
 * would be zeros); returns the number of runs. w [n]. */
TU_API uint64_t tu_importance_repair(float *w, uint64_t n, uint64_t group);

/* Recipes: which codec each tensor of a model gets ----------------------------------- */

/* A mixture of llama.cpp by name ("q4_k_m"): rules by role and layer number. NULL past
 * the end. */
TU_API const char *tu_mixture_list(size_t i, const char **help);
/* Roles by name pattern, for printing: NULL past the end. */
TU_API const char *tu_role_list(size_t i, const char **pattern);

struct tu_recipe;

/* What is known of the whole model before the first tensor. */
struct tu_recipe_model {
    uint64_t layers;       /* 0: the highest number in names, plus 1 */
    uint64_t experts;
    uint64_t heads, kv_heads;
    bool tied;             /* no output head of its own */
    bool importance;       /* an importance matrix is given */
};

struct tu_choice {
    char type[128];   /* a codec with its arguments, a dtype to cast to, or "keep" */
    char wanted[128]; /* with `fallback`: what was asked for */
    char why[128];    /* "rule 'attn=q8_0'", "q4_k_m: attn_v", "1 dimension" */
    const char *role; /* by name, one of tu_role_list's; NULL: none */
    bool fallback;    /* the tensor's shape did not fit `wanted` */
    bool fixed;       /* a rule says so */
};

/* type: what -t names: a codec with arguments, a mixture, or a dtype. Errors:
 * TU_EUSAGE. */
TU_API TU_MUST int tu_recipe_new(struct tu_recipe **out, const char *type, struct tu_err *err);
TU_API void tu_recipe_free(struct tu_recipe *r);
/* PATTERN=TYPE, before what -t says; the first that matches wins. */
TU_API TU_MUST int tu_recipe_rule(struct tu_recipe *r, const char *text, struct tu_err *err);
/* A file of such lines; '#' begins a comment. */
TU_API TU_MUST int tu_recipe_file(struct tu_recipe *r, const char *path, struct tu_err *err);
TU_API void tu_recipe_model(struct tu_recipe *r, const struct tu_recipe_model *m);
/* For engines that load safetensors: embeddings and heads stay as they are unless a rule names
 * them. */
TU_API void tu_recipe_engine(struct tu_recipe *r);
TU_API TU_MUST int tu_recipe_choose(struct tu_recipe *r, const struct tu_tensor *t,
                                    struct tu_choice *out, struct tu_err *err);
/* GGUF's general.file_type for what -t names; -1 where it has no number. */
TU_API int tu_recipe_file_type(const struct tu_recipe *r);
/* After the last tensor: TU_EUSAGE naming a rule that has matched nothing. */
TU_API TU_MUST int tu_recipe_check(const struct tu_recipe *r, struct tu_err *err);

/* The frontier of size against error ------------------------------------------------- */

/* One tensor under one type. */
struct tu_way {
    uint64_t bytes;
    double error; /* anything that adds up over tensors; NaN: this type does not fit */
};
/* From the smallest choice on, each step moves one tensor to a better way; the steps are
 * in the order of what a byte gains, so every prefix is the best of its size on the
 * convex hull. */
struct tu_step {
    size_t tensor, way; /* step 0, the smallest choice, has tensor SIZE_MAX */
    uint64_t bytes;     /* of all tensors after this step */
    double error;
};
/* way [tensors][ways]; first [tensors] gets the smallest way of each. *step (tu_free) has
 * *steps entries. Errors: TU_EUSAGE where no way fits a tensor. */
TU_API TU_MUST int tu_frontier(const struct tu_way *way, size_t tensors, size_t ways, size_t *first,
                               struct tu_step **step, size_t *steps, struct tu_err *err);

TU_END

#endif
