/* SPDX-License-Identifier: Apache-2.0 */
/* publish.h: the steps of a conversion, for one process or several (part.c). */
#ifndef TU_SHARD_PUBLISH_H
#define TU_SHARD_PUBLISH_H

#include "move.h"

struct tui_target {
    struct tu_ckpt *to;
    const struct tu_job *job;
    const char *folder; /* the partial folder, or "" for a checkpoint of one file */
    const bool *mine;   /* [to->files] those that this process writes; NULL: all */
    struct tu_sink **sink; /* [to->files], NULL for others' */
};

/* What speaks against writing to->root at all. */
int tui_refuse(const struct tu_ckpt *from, struct tu_ckpt *to,
               const struct tu_shard_opts *o, const struct tu_job *job,
               struct tu_err *err);
/* A checksum of what is to be written. */
uint32_t tui_plan_id(const struct tu_ckpt *to);
/* Open, fill and finish the target's files; d [from->atoms]. */
int tui_target_write(struct tui_target *t, const struct tu_ckpt *from,
                     const struct tu_shard_opts *o, struct tu_digest *d,
                     struct tu_err *err);
/* Side files, digests as this text, and what the layout adds. */
int tui_target_rest(struct tui_target *t, const char *digests, size_t n,
                    struct tu_err *err);
/* Give the partial folder its name. On success *lock is closed and -1. */
int tui_publish(const char *partial, const char *root, bool force, int *lock,
                const struct tu_job *job, struct tu_err *err);
/* The lines of those that have a name, sorted. */
int tui_digest_text(struct tu_buf *out, const struct tu_digest *d, size_t n,
                    struct tu_err *err);
void tui_remove_tree(const char *path);
int tui_empty_tree(const char *path, struct tu_err *err);

/* A conversion file by file, each kept when the next is interrupted (o->resume). */
int tui_convert_files(const struct tu_ckpt *from, struct tu_ckpt *to,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tu_digest *d, struct tu_err *err);
/* Bytes on disk of what earlier runs of these parts have written. */
uint64_t tui_part_held(const struct tu_ckpt *from, struct tu_ckpt *to,
                       const struct tu_shard_opts *o);
/* Warn where parts of another conversion wait for the same destination. */
void tui_part_others(const struct tu_ckpt *from, struct tu_ckpt *to,
                     const struct tu_shard_opts *o, const struct tu_job *job);
/* A conversion by one of o->parts processes. */
int tui_convert_part(const struct tu_ckpt *from, struct tu_ckpt *to,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_digest *d, struct tu_err *err);

#endif
