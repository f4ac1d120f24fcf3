/* SPDX-License-Identifier: Apache-2.0 */
/* move.h: windows of an atom: filled from pieces, emptied into pieces. */
#ifndef TU_SHARD_MOVE_H
#define TU_SHARD_MOVE_H

#include "ckpt.h"

/* Rows r0 … r1-1 of an atom in memory. */
struct tui_window {
    char *data;
    uint64_t r0, r1, cols;
    size_t elem;
};

/* The spans of one piece on the atom at hand. */
struct tui_part {
    uint32_t piece;
    struct tu_spans spans;
};

struct tui_parts {
    struct tui_part *part;
    size_t n;
};

/* Scratch of one worker. */
struct tui_stage {
    char *data;
    size_t bytes;
    struct tu_spans clip;
};

/* Parts of atom a: all pieces, or only those that are not replicas. */
int tui_parts_of(struct tui_parts *out, const struct tu_ckpt *c, uint32_t a,
                 bool replicas, struct tu_err *err);
void tui_parts_release(struct tui_parts *p);
/* Fill the window from one part. */
int tui_window_fill(const struct tu_ckpt *c, const struct tui_part *p,
                    struct tui_window *w, struct tui_stage *s, struct tu_err *err);
/* Write the window's share of one part to its sink. */
int tui_window_empty(const struct tu_ckpt *c, const struct tui_part *p,
                     const struct tui_window *w, struct tu_sink *sink,
                     struct tui_stage *s, struct tu_err *err);

/* Where each atom of c is in the checkpoints of a mean: (*twin)[i][a], made by tu_calloc.
 * Errors: TU_EINCOMPLETE names the first that they do not share. */
int tui_mean_twins(const struct tu_ckpt *c, const struct tu_mean *mean, uint32_t ***twin,
                   struct tu_err *err);

/* tu_ckpt_walk of a mean, in float64; twin by tui_mean_twins. Without a mean (NULL, NULL) the
 * atom as it is. */
int tui_walk_mean(const struct tu_ckpt *c, uint32_t a, const struct tu_mean *mean,
                  uint32_t **twin, const struct tu_job *job, tu_put_fn put, void *ctx,
                  struct tu_err *err);

/* All atoms of `from` into the sinks [to->files] of `to`; where a sink is NULL another
 * process writes; digest [from->atoms] or NULL.
 */
int tui_move(const struct tu_ckpt *from, const struct tu_ckpt *to, struct tu_sink **sink,
             const struct tu_shard_opts *o, const struct tu_job *job,
             struct tu_digest *digest, struct tu_err *err);

#endif
