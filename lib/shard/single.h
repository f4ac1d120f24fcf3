/* SPDX-License-Identifier: Apache-2.0 */
/* single.h: pieces that the layouts without ranks are made of. */
#ifndef TU_SHARD_SINGLE_H
#define TU_SHARD_SINGLE_H

#include "ckpt.h"

extern const struct tu_layout_key tui_no_keys[];
/* What transformers asks of safetensors files, format pt, for those of a plan. Where the copy of
 * a tied embedding is left out, the file with the embedding maps the copy's name to its name too,
 * as safetensors.torch.save_model does. */
int tui_pt_metas(struct tu_ckpt *c, bool tied_copy, struct tu_err *err);

/* Model and canonical map from config.json among the side files, or from the tensors'
 * names. */
int tui_know_model(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err);
/* Open a file of format f at path as file `name`. */
int tui_add_one(struct tu_ckpt *c, const char *path, const char *name,
                const struct tu_format *f, const struct tu_shard_opts *o,
                const struct tu_job *job, struct tu_err *err);
/* Model, small files and optimizer of a stream's META records; other formats have none. */
int tui_stream_metas(struct tu_ckpt *c, const struct tu_source *s, struct tu_err *err);
/* Do the names of all files' tensors suit the family? See tui_fit_family. */
int tui_fit_all(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err);
/* All tensors of all files become pieces; their names suit the family. */
int tui_add_all(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err);
/* How many atoms are weights; the optimizer's states come behind them. */
size_t tui_weights(const struct tu_ckpt *c);
/* Each of the source's first n atoms is a tensor to write, in file[atom] (NULL: file 0);
 * the tied copy of the embedding comes last, in file[n]. */
int tui_plan_atoms(struct tu_ckpt *c, const uint32_t *file, size_t n, bool tied_copy,
                   struct tu_err *err);
/* A checkpoint that is one file of a format. */
int tui_file_open(struct tu_ckpt *c, const char *format, const struct tu_shard_opts *o,
                  const struct tu_job *job, struct tu_err *err);
int tui_file_plan(struct tu_ckpt *c, const char *format, const struct tu_shard_opts *o,
                  struct tu_err *err);

#endif
