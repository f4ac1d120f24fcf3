/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h: a ZeRO checkpoint in the making: shared by the files of the model and of the
 * optimizer. */
#ifndef TU_SHARD_ZERO_H
#define TU_SHARD_ZERO_H

#include "deepspeed.h"

#define ZERO_VERSION "0.19.8" /* of DeepSpeed, whose files these are */

/* A checkpoint being read. */
struct zero_reader {
    struct tu_ckpt *c;
    struct tui_zero z;
    uint32_t weight_dtype; /* of the model, where weights are only in partitions */
    bool bare; /* universal, of a pipeline: no weights but the master copies */
};
/* Item i of a LIST or TUPLE, NULL where there is none. */
const struct tu_pnode *tui_item(const struct tu_pnode *v, size_t i);
/* The file with the model's state of these ranks. */
uint32_t tui_zero_model(const struct zero_reader *r, uint32_t mp, uint32_t dp);
/* The shape of a parameter in group g (SIZE_MAX: no groups) of `key` on one rank. */
const struct tu_pnode *tui_zero_shape_in(const struct zero_reader *r, uint32_t mp,
                                         size_t g, const char *key, const char *name);
const struct tu_pnode *tui_zero_optim_of(const struct zero_reader *r, uint32_t f);
size_t tui_zero_groups(const struct zero_reader *r);
int tui_zero_describe(struct zero_reader *r, struct tu_err *err);

/* A parameter of one group on one model-parallel rank. */
struct zero_param {
    const char *name;
    unsigned rank;
    const uint64_t *dim; /* [tp*rank] of all tensor-parallel ranks */
    uint64_t numel, at;  /* of this rank; its place in the group's vector */
};
struct zero_group {
    struct zero_param *param;
    size_t n;
    uint64_t numel; /* alignment between parameters included */
};
int tui_zero_group(struct zero_reader *r, uint32_t mp, size_t g,
                   const struct tu_pnode *pads, struct zero_group *out,
                   struct tu_err *err);
/* Add a piece of a parameter: a run of it, or all (flat.yes false). */
int tui_zero_add(struct zero_reader *r, uint32_t f, size_t index,
                 const struct zero_param *q, const char *state, uint32_t dtype,
                 uint32_t mp, struct tu_flat flat, struct tu_err *err);
/* A torch.Size of param_shapes. */
int tui_zero_shape_dims(const struct tu_pnode *v, uint64_t *dim, unsigned *rank,
                        struct tu_err *err);
/* `module` of a model's file agrees with its param_shapes (zero_names.c). */
int tui_zero_names(const struct zero_reader *r, uint32_t f, struct tu_err *err);
/* Files of layers and experts (zero_parts.c). */
int tui_zero_parts(struct zero_reader *r, struct tu_err *err);
/* With such files: every parameter of the groups has a weight. */
int tui_zero_complete(struct zero_reader *r, struct tu_err *err);
/* Has a stage before that of mp the parameter too? */
bool tui_zero_earlier(const struct zero_reader *r, uint32_t mp, const char *name);
/* Into how many sets of experts the ranks are divided for group g; 1: they share all. */
uint32_t tui_zero_expert_ranks(const struct zero_reader *r, uint32_t mp, size_t g);
/* The name among all experts of one that `rank` of those sets numbers for itself. */
int tui_zero_expert_name(struct zero_reader *r, const struct zero_group *g,
                         const char *name, uint32_t rank, const char **out,
                         struct tu_err *err);
int tui_zero_step(struct zero_reader *r, uint32_t f, const struct tu_pnode *v,
                  struct tu_err *err);
/* States as DeepSpeed's universal form has them (universal.c). */
int tui_universal_states(struct zero_reader *r, const struct tu_shard_opts *o,
                         const struct tu_job *job, struct tu_err *err);
/* Open what r->z describes; the two layouts share it. */
int tui_zero_read(struct zero_reader *r, const struct tu_spec *spec,
                  const struct tu_shard_opts *o, const struct tu_job *job,
                  struct tu_err *err);

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
int tui_zero_dims(struct zero_writer *w, const struct tui_param *q, uint32_t tp,
                  uint64_t *dim, unsigned *rank, uint64_t *numel, struct tu_err *err);
/* It as a tensor of file f, in the dictionary by its name; its shape in the other. */
int tui_zero_whole(struct zero_writer *w, uint32_t f, const struct tui_param *q,
                   uint32_t tp, struct tu_pnode *dict, struct tu_err *err);
int tui_zero_shape(struct zero_writer *w, struct tu_pnode *dict,
                   const struct tui_param *q, uint32_t tp, struct tu_err *err);
/* How many parameters from number `first` on make a sub-group of stage 3, and the
 * elements of one rank. */
int tui_zero_sub_group(struct zero_writer *w, const struct tui_group *g, size_t first,
                       uint32_t tp, size_t *count, uint64_t *length, struct tu_err *err);
/* A file that holds nothing but the number of steps. */
int tui_zero_scalar(struct zero_writer *w, uint32_t f, const struct tu_pnode **root,
                    struct tu_err *err);
/* The optimizer's settings without its tensors, but for the steps of stage 3 (in f). */
int tui_zero_settings(struct zero_writer *w, uint32_t f, const struct tu_pnode **root,
                      struct tu_err *err);
/* Parameters, sizes and rules of a plan; `suffix` ends the tag. */
int tui_zero_begin(struct zero_writer *w, const struct tu_spec *spec, const char *suffix,
                   struct tu_err *err);
int tui_zero_plan_model(struct zero_writer *w, uint32_t tp, uint32_t d,
                        struct tu_err *err);
/* The file that names the folder of the save. */
int tui_zero_latest(const struct tu_ckpt *c, const char *folder, const char *name,
                    const struct tu_job *job, struct tu_err *err);
int tui_zero_plan_optim(struct zero_writer *w, uint32_t tp, uint32_t d,
                        struct tu_err *err);

/* The writing half of the row. */
int tui_zero_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                  const struct tu_shard_opts *o, struct tu_err *err);
int tui_zero_extra(const struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                   struct tu_err *err);

#endif
