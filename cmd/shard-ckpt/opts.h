/* SPDX-License-Identifier: Apache-2.0 */
/* opts.h: the options that the subcommands of shard-ckpt share, and opening by them. */
#ifndef SHARD_CKPT_OPTS_H
#define SHARD_CKPT_OPTS_H

#include <tensorutils/shard.h>

#include "common/main.h"

/* Options about what is read. */
extern const struct tu_opt source_options[];

/* Rows that subcommands which write add to their own tables. */
struct target_options {
    const char *to;
    uint32_t dtype;
    int overflow, tied, pad; /* enum tu_overflow; indices in choices */
    uint64_t max_shard;
    bool sha256, verify_replicas;
};
extern const char *const tied_choices[], *const pad_choices[];
#define TARGET_OPTIONS(o)                                                                   \
    {'t', "to", "LAYOUT", "layout to write: NAME[:KEY=VALUE,...] (see --list=layouts)",     \
     TU_OPT_STRING, &(o).to, NULL, 0},                                                      \
    {0, "dtype", NULL, "cast floating-point tensors", TU_OPT_DTYPE, &(o).dtype, NULL, 0},   \
    {0, "overflow", NULL, "values beyond that dtype (auto: Inf, an error without)",         \
     TU_OPT_CHOICE, &(o).overflow, tu_overflow_names, 0},                                   \
    {0, "tied", NULL, "the tied output head, where the layout has a choice", TU_OPT_CHOICE, \
     &(o).tied, tied_choices, 0},                                                           \
    {0, "vocab-pad", NULL, "rows that fill up the vocabulary", TU_OPT_CHOICE, &(o).pad,     \
     pad_choices, 0},                                                                       \
    {0, "max-shard-size", NULL, "bytes per file of layout hf (default 5GB)", TU_OPT_SIZE,   \
     &(o).max_shard, NULL, 0},                                                              \
    {0, "verify-replicas", NULL, "compare tensors that several ranks hold whole",           \
     TU_OPT_FLAG, &(o).verify_replicas, NULL, 0}
/* And of those that keep digests. */
#define WRITE_OPTIONS(o)                                                                    \
    TARGET_OPTIONS(o),                                                                      \
    {0, "sha256", NULL, "SHA-256 in the digests beside the CRC-32", TU_OPT_FLAG,            \
     &(o).sha256, NULL, 0}

/* What the library is told; target may be NULL. */
const struct tu_shard_opts *shard_opts(const struct target_options *target, bool force);
/* The job with --memory. */
const struct tu_job *shard_job(struct tu_ctx *ctx);
/* Open a checkpoint by the source options; path "-" is a stream. */
int shard_open(struct tu_ctx *ctx, struct tu_ckpt **out, const char *path, const char *from,
               const struct tu_shard_opts *o, struct tu_err *err);
/* The tensors that the last refusal counts, all of them, for a command that lists them: a
 * call with why and name for each. They are forgotten then. True: there were some. */
bool shard_each_refused(struct tu_ctx *ctx,
                        void (*put)(struct tu_ctx *ctx, const char *why, const char *name));
/* tu_error, and with -v what shard_each_refused has, a line each. */
int shard_error(struct tu_ctx *ctx, const struct tu_err *err);
/* Verify the checksums that the files store. What was seen is added to *sums and *bytes. */
int shard_checksums(struct tu_ctx *ctx, const struct tu_ckpt *c, uint64_t *sums, uint64_t *bytes,
                    struct tu_err *err);
/* Open, plan, write, report: an exit status. */
int shard_convert(struct tu_ctx *ctx, const char *source, const char *from_spec,
                  const char *root, const struct target_options *t,
                  const struct tu_shard_opts *o);
/* --from. */
const char *shard_from(void);

extern const struct tu_cmd cmd_ls, cmd_verify, cmd_digest, cmd_diff, cmd_plan, cmd_convert, cmd_cat,
    cmd_save, cmd_inspect, cmd_prune, cmd_order, cmd_average, cmd_rename, cmd_layout,
    cmd_lora_merge, cmd_lora_extract, cmd_drain;

#endif
