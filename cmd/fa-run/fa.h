/* SPDX-License-Identifier: Apache-2.0 */
/* fa.h: between the files of fa-run: its options, and the tensors of a segment in memory.
 */
#ifndef FA_RUN_FA_H
#define FA_RUN_FA_H

#include <tensorutils/attn.h>
#include <tensorutils/stream.h>
#include "common/main.h"

/* Options of the operator, the same in every subcommand. */
struct fa_opts {
    const char *op, *layout, *dtype, *algo;
    int pass, causal;
    double scale, softcap, dropout, decay;
    struct tu_list window, block, mask_block;
    int64_t sliding, layer; /* layer -1: q, k and v go by these names */
    const char *sp, *transport, *rope;
    uint64_t ranks;
    uint64_t sink_tokens, chunk, splits, v_from_k, steps;
    bool alibi, deterministic, decay_slopes, bidirectional, cast, strict;
};
extern struct fa_opts fa_opts;
extern const struct tu_opt fa_shared[];
extern const struct tu_listing fa_listings[];

/* The row that --op names and the options for it, checked. Errors: TU_EUSAGE. */
int fa_resolve(struct tu_ctx *ctx, const struct tu_mixer **row, struct tu_attn_opts *o,
               struct tu_err *err);

enum { FA_OPERANDS = 48 };

/* The tensors of one segment that the operator reads. */
struct fa_segment {
    struct tu_operand op[FA_OPERANDS];
    size_t n;
    struct tu_arena *arena; /* names */
    bool partial, sinks;    /* META fa */
    uint32_t out_dtype;
    bool q_placed, k_placed; /* by shard.offset */
    uint64_t q_first, k_first;
};

/* The next segment; *got is false at the end. Duplicates, another base of lse and
 * malformed records are errors. */
int fa_segment_read(struct fa_segment *s, struct tu_reader *r, const struct tu_mixer *row,
                    bool *got, struct tu_err *err);
void fa_segment_release(struct fa_segment *s);
/* Every segment of the inputs (none: standard input) through fn; what fn leaves in it is
 * released. */
typedef int fa_segment_fn(void *arg, struct fa_segment *s, struct tu_err *err);
int fa_each_segment(struct tu_ctx *ctx, int paths, char **path,
                    const struct tu_mixer *row, fa_segment_fn *fn, void *arg,
                    struct tu_err *err);
/* Bring q, k and v to f32 where their dtypes differ. */
int fa_segment_cast(struct fa_segment *s, struct tu_err *err);
/* --rope on q and k; without shard.offset the last query is where the last key is. */
int fa_rope(struct fa_segment *s, const struct tu_attn_opts *o, struct tu_err *err);
/* Count NaN and Inf among the float operands. */
uint64_t fa_segment_odd(const struct fa_segment *s);

/* Shapes of the results, and memory for them; wide: in f64. */
int fa_outputs(const struct tu_mixer *row, struct tu_mixer_args *a, bool wide,
               struct tu_err *err);
/* The row itself, or over ranks with --sp; then the memory of the results must be shared,
 * and no thread may have been started before. */
int fa_compute(struct tu_ctx *ctx, const struct tu_mixer *row, struct tu_mixer_args *a,
               struct tu_err *err);
bool fa_parallel(void);
void fa_outputs_free(struct tu_mixer_args *a);
int fa_write(struct tu_writer *w, const struct tu_operand *op, size_t n,
             struct tu_err *err);
/* The first segment of a file, what the row reads of it. */
int fa_load(const char *path, const struct tu_mixer *row, struct fa_segment *s,
            struct tu_err *err);
/* A file of one segment. */
int fa_save(struct tu_ctx *ctx, const char *path, const struct tu_operand *op, size_t n,
            struct tu_err *err);

extern const struct tu_cmd fa_run, fa_check, fa_bench, fa_info;

#endif
