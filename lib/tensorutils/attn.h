/* SPDX-License-Identifier: Apache-2.0 */
/* attn.h: attention and the other sequence mixers, exact, forward and backward.
 *
 * An operator is a row of tu_mixers: named operands in, named operands out, a plain
 * float64 reference and kernels chosen by CPU bits. Softmax attention has a face of its
 * own beside its row (struct tu_attn), because sequence parallelism and tests drive it in
 * pieces. The pair (O normalised, natural-log LSE) is what all partial results are made
 * of. May change before 1.0. */
#ifndef TENSORUTILS_ATTN_H
#define TENSORUTILS_ATTN_H

#include "core.h"

TU_BEGIN

/* Operands ------------------------------------------------------------------------ */

/* A tensor in memory, C order. Names are those of the stream's records: "q" "k" "v" … */
struct tu_operand {
    const char *name;
    uint32_t dtype;
    unsigned rank;
    uint64_t dim[4];
    void *data;
};

/* The operand of that name, NULL when absent. */
TU_API const struct tu_operand *tu_operand_find(const struct tu_operand *op, size_t n,
                                                const char *name);

/* Options ------------------------------------------------------------------------- */

enum tu_attn_layout {
    TU_ATTN_BSHD, /* [B, S, H, D]; rank 3 is [T, H, D], packed */
    TU_ATTN_BHSD, /* [B, H, S, D] */
    TU_ATTN_THD,  /* [T, H, D] with cu_seqlens_q, cu_seqlens_k */
};

enum tu_attn_causal {
    TU_CAUSAL_NONE,
    TU_CAUSAL_BR, /* j <= i + Sk - Sq: the last query sees the last key */
    TU_CAUSAL_TL, /* j <= i */
};

/* What every operator may be told. tu_attn_opts_init gives the defaults. */
struct tu_attn_opts {
    int layout, causal;
    double scale;         /* of q·k; NaN: 1/sqrt(D) in softmax, 1 elsewhere */
    int64_t left, right;  /* window, both ends inclusive; -1: infinite */
    uint64_t sink_tokens; /* first keys, visible despite a left bound */
    uint64_t chunk;       /* keys of the query's own chunk only; 0: no chunks */
    bool alibi;           /* default slopes where no alibi_slopes are given */
    double softcap;       /* c of c·tanh(x/c); 0: none */
    double dropout;       /* probability; 0: none */
    uint64_t seed;
    uint64_t mask_q, mask_k; /* elements of a block of block_mask; 0: from the sizes */
    uint64_t v_from_k; /* v is the first so many columns of k (MLA's latent); 0: no */
    uint64_t splits;   /* of the keys; 0: chosen from the shape, never from threads */
    uint64_t tile_q, tile_k; /* 0: the kernel's choice */
    bool deterministic;      /* the same bits for any number of splits */
    bool placed; /* query i is at position q_first + i, key j at k_first + j */
    int64_t q_first, k_first;
    bool partial;       /* o in f32, and no sinks: a part of the keys */
    uint32_t compute;   /* TU_F32, TU_BF16; 0: by the storage */
    uint32_t store;     /* dtype of o and the gradients; 0: that of q */
    double decay;       /* s of linear attention: lambda = exp(-s) per step */
    bool decay_slopes;  /* s of head h is its default ALiBi slope */
    bool bidirectional; /* linear attention without causality: q (K^T V) */
    uint64_t block;     /* steps of a chunk of the chunked forms; 0: the row's choice */
};
TU_API void tu_attn_opts_init(struct tu_attn_opts *o);

/* Default ALiBi slope of head h of n. Source: Press et al., "Train Short, Test Long",
 * 2022. */
TU_API double tu_alibi_slope(uint64_t h, uint64_t n);

/* Mixers -------------------------------------------------------------------------- */

#define TU_MIXER_OUT_MAX 12
#define TU_MIXER_NOTE 128

struct tu_device;

enum tu_pass { TU_PASS_FWD = 1, TU_PASS_BWD = 2, TU_PASS_BOTH = 3 };

struct tu_mixer_args {
    const struct tu_attn_opts *opt;
    const struct tu_operand *in;
    size_t n_in;
    struct tu_operand
        out[TU_MIXER_OUT_MAX]; /* filled by infer; then the caller sets data */
    size_t n_out;
    int pass;
    const char *algo; /* one of the row's, NULL: the first */
    const struct tu_job *job;
    /* Where to compute, NULL: the CPU. What the device's kernels do not do the CPU does,
     * and note (of TU_MIXER_NOTE bytes, or NULL) says why, "on the CPU: …"; also why a
     * slower kernel ran, "plain kernel: …". */
    const struct tu_device *device;
    char *note;
};

/* A row. in: names that it reads, NULL-ended, '?' behind optional ones. algo: its forms,
 * the fast one first, "ref" (float64, reads like the formula) last. */
struct tu_mixer {
    const char *name, *help, *source;
    const char *const *in;
    const char *const *algo;
    bool device; /* may run on one */
    /* Names, dtypes and shapes of the outputs; every inconsistency of the inputs is an
     * error here, before anything is computed. Errors: TU_ESIZE, TU_EDTYPE,
     * TU_EINCOMPLETE, TU_EUSAGE. */
    int (*infer)(struct tu_mixer_args *a, struct tu_err *err);
    int (*run)(const struct tu_mixer_args *a, struct tu_err *err);
    /* Floating-point operations of the pass, exact count of visible pairs. */
    double (*flops)(const struct tu_mixer_args *a);
};
TU_API extern const struct tu_mixer *const tu_mixers[];
TU_API const struct tu_mixer *tu_mixer_find(const char *name);

/* Softmax attention --------------------------------------------------------------- */

/* Rows of q, k, v, o …: [batch, token, head, dim] by strides in elements, dim contiguous.
 * Paged keys have the page for a batch. data NULL: absent. */
struct tu_rows {
    unsigned char *data;
    uint32_t dtype;
    uint32_t elem; /* bytes */
    uint64_t dim;
    int64_t batch, token, head;
};

/* A sequence of the batch. */
struct tu_attn_seq {
    uint64_t q_batch, q_token, sq; /* where its queries are, and how many */
    uint64_t k_batch, k_token, sk; /* its keys; paged: k_token is 0 */
    const int32_t *page;           /* block table row, or NULL */
    uint64_t lse_at;               /* element of its first row in lse */
    int64_t off;                   /* position of query i is i + off */
    uint64_t prefix;               /* first keys that every query sees */
};

/* One problem, checked. Owned: everything behind `arena`. The outputs' data are the
 * caller's. */
struct tu_attn {
    struct tu_attn_opts opt;
    uint64_t batch, hq, hkv, d, dv, sq_max, sk_max, page;
    double scale;
    struct tu_rows q, k, v, o, dout, dq, dk, dv_;
    struct tu_attn_seq *seq; /* [batch] */
    /* Global index of row i of a sequence, ascending; NULL: i itself. */
    const int64_t *q_at, *k_at;
    void *lse; /* f32 or f64, see lse_dtype: [batch, hq, sq] or [hq, T] */
    uint32_t lse_dtype;
    uint64_t lse_head;                            /* elements between two heads in lse */
    const float *dlse;                            /* as lse, or NULL */
    const float *slopes;                          /* [batch or 1, hq], or NULL */
    uint64_t slopes_batch;                        /* hq or 0 */
    const float *sinks;                           /* [hq], or NULL */
    const float *bias;                            /* additive, broadcast: stride 0 */
    const unsigned char *mask;                    /* 1: visible */
    const unsigned char *blocks;                  /* 1: visible */
    int64_t bias_at[4], mask_at[4], blocks_at[4]; /* strides of b, h, i, j in elements */
    uint64_t bias_dim[4];
    const int64_t *docs; /* [batch, docs_n]: a query sees the keys of its own document */
    uint64_t docs_n;
    uint64_t h_first, h_all; /* these heads among all, for dropout's counters */
    const float *q_scale, *k_scale, *v_scale; /* [batch, hkv]: of fp8 storage; NULL: 1 */
    float *dsink, *dbias, *dslope;            /* gradients, f32; NULL: not wanted */
    bool chain;                               /* lse and o hold the forward's results */
    struct tu_arena *arena;
};

/* Bind and check operands by name: q k v o lse do dlse mask bias block_mask alibi_slopes
 * sinks cu_seqlens_q cu_seqlens_k seqlens_k leftpad block_table kv_indptr kv_indices
 * kv_last_page_len doc_ids prefix q.scale k.scale v.scale. They are borrowed. Errors as
 * tu_mixer.infer. */
TU_API TU_MUST int tu_attn_init(struct tu_attn *a, const struct tu_attn_opts *opt,
                                const struct tu_operand *in, size_t n,
                                struct tu_err *err);
TU_API void tu_attn_release(struct tu_attn *a);
/* Visible (i, j) pairs, summed over sequences and query heads. */
TU_API double tu_attn_pairs(const struct tu_attn *a);
/* 2·pairs·(D+Dv) forward, 2.5 times that backward. */
TU_API double tu_attn_flops(const struct tu_attn *a, int pass);

/* Forward into o and lse (lse may be NULL), backward into dq, dk, dv_ and what else is
 * not NULL; backward reads q k v o lse do. Threads: job's pool; the bits do not depend on
 * their number. Numerics: logits, sums and o in f32; P in bf16 where bf16 matrix units
 * are used, its sum not rounded. Errors: TU_ENOMEM, TU_ECANCEL. */
TU_API TU_MUST int tu_attn_forward(const struct tu_attn *a, const struct tu_job *job,
                                   struct tu_err *err);
TU_API TU_MUST int tu_attn_backward(const struct tu_attn *a, const struct tu_job *job,
                                    struct tu_err *err);
/* The same in float64, row by row, as the formulas stand. */
TU_API TU_MUST int tu_attn_forward_ref(const struct tu_attn *a, const struct tu_job *job,
                                       struct tu_err *err);
TU_API TU_MUST int tu_attn_backward_ref(const struct tu_attn *a, const struct tu_job *job,
                                        struct tu_err *err);
/* Which kernels tu_attn_forward would use: "amx", "avx512", "avx2", "plain". */
TU_API const char *tu_attn_kernel(const struct tu_attn *a);

/* Turn the first `dim` columns of q or k in place by their positions: token t of sequence
 * b is at at[b · tokens + t], or first + t. Pairs are (c, c + dim/2), interleaved (2c, 2c
 * + 1). Errors: TU_EUSAGE, TU_ENOMEM. */
TU_API TU_MUST int tu_rope(const struct tu_operand *o, int layout, double theta,
                           uint64_t dim, bool interleaved, const int64_t *at,
                           int64_t first, struct tu_err *err);

/* Sequence parallelism ------------------------------------------------------------ */

/* How the tokens and the work of one problem lie over ranks: a row each. */
struct tu_sp {
    const char *name, *help, *source;
};
TU_API extern const struct tu_sp *const tu_sps[]; /* NULL-ended */

struct tu_sp_args {
    const struct tu_spec *scheme; /* "ring", "usp:u=2,r=3" … */
    uint32_t ranks;
    const char *transport; /* of lib/coll: "shm", "threads", "tcp" */
    /* Out: what rank r sent, forward and backward together; [ranks], or NULL. */
    uint64_t *sent;
    double formula; /* out: bytes rank 0 sends in the forward pass, by the formula */
};
/* Run a softmax or linear problem over ranks. a: inferred, its outputs in memory that the
 * ranks share. Dense self-attention: as many keys as queries (tree: any). With
 * opt->deterministic the bits are those of one process: keys are gathered before they are
 * used. Errors: TU_EUSAGE where sizes do not divide, TU_EPEER, and those of the operator.
 */
TU_API TU_MUST int tu_sp_run(const struct tu_mixer_args *a, struct tu_sp_args *sp,
                             struct tu_err *err);

/* What this machine can do at best, measured now on all threads of the pool in about
 * `seconds` each: the ceilings beside which a benchmark stands. Zero: not possible here.
 */
struct tu_attn_peaks {
    double fma_gflops; /* f32 multiply-adds in registers, by the best vector row */
    double amx_gflops; /* bf16 matrix units, from registers */
    double exp_gops;   /* exponentials per ns, by the best vector row */
    double copy_gbs,
        read_gbs; /* of memory far larger than the caches; copy counts both ways */
};
TU_API TU_MUST int tu_attn_peaks_measure(struct tu_attn_peaks *out, double seconds,
                                         const struct tu_job *job, struct tu_err *err);

/* Merge n partial results of `rows` rows into part[0]: o[p] f32 [rows, dim] normalised,
 * lse[p] f32 [rows]. A balanced tree in the order of p. An empty state is (0, -inf) and
 * merging empty states gives one. Source: spec of Flash-Decoding; Milakov and Gimelshein,
 * 2018. */
TU_API void tu_attn_merge(float *const *o, float *const *lse, size_t n, uint64_t rows,
                          uint64_t dim);
/* Let a sink (a logit without a value) join rows of a state. */
TU_API void tu_attn_sink(float *o, float *lse, uint64_t rows, uint64_t dim, float sink);

TU_END

#endif
