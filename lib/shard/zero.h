/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h: a ZeRO checkpoint in the making: shared by the files of the model and of the
 * optimizer. */
#ifndef TU_SHARD_ZERO_H
#define TU_SHARD_ZERO_H

#include "deepspeed.h"

#define ZERO_VERSION "0.19.8" /* of DeepSpeed, whose files these are */

struct zero_writer {
    struct tu_ckpt *c;
    struct tui_params params;
    struct tui_ucp *ucp;
    struct tu_pnode *info; /* universal_checkpoint_info, or NULL */
    uint32_t dp;
    unsigned stage;
    uint64_t sub_group; /* elements of a rank that close a sub-group of stage 3 */
    char tag[64];
    const char *prefix; /* of the optim_states files */
};

/* The tensor of a parameter on one tensor-parallel rank, as a piece without a place. */
int tui_zero_local(struct zero_writer *w, const struct tui_param *q, uint32_t atom,
                   uint32_t tp, uint32_t dtype, struct tu_piece *out, struct tu_err *err);
/* Its shape and elements. */
int tui_zero_dims(struct zero_writer *w, const struct tui_param *q, uint32_t tp, uint64_t *dim,
                  unsigned *rank, uint64_t *numel, struct tu_err *err);
/* It as a tensor of file f, in the dictionary by its name; its shape in the other. */
int tui_zero_whole(struct zero_writer *w, uint32_t f, const struct tui_param *q, uint32_t tp,
                   struct tu_pnode *dict, struct tu_err *err);
int tui_zero_shape(struct zero_writer *w, struct tu_pnode *dict, const struct tui_param *q,
                   uint32_t tp, struct tu_err *err);
/* How many parameters from number `first` on make a sub-group of stage 3, and the
 * elements of one rank. */
int tui_zero_sub_group(struct zero_writer *w, const struct tui_group *g, size_t first,
                       uint32_t tp, size_t *count, uint64_t *length, struct tu_err *err);
int tui_zero_plan_optim(struct zero_writer *w, uint32_t tp, uint32_t d, struct tu_err *err);

/* The writing half of the row. */
int tui_zero_plan(struct tu_ckpt *c, const struct tu_spec *spec, const struct tu_shard_opts *o,
                  struct tu_err *err);
int tui_zero_extra(const struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                   struct tu_err *err);

#endif
