/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.h: Megatron's training arguments, as far as they decide a layout. */
#ifndef TU_SHARD_MEGATRON_H
#define TU_SHARD_MEGATRON_H

#include "ckpt.h"

#define TUI_TRACKER "latest_checkpointed_iteration.txt"

struct tui_megatron {
    uint32_t tp, pp, vpp, ep;
    uint64_t padded_vocab, vocab; /* 0: not said */
};

/* Layers of the stages of c, by Megatron's rule from these of the first and the last (0: as many
 * as the others). False where they do not come out even. */
bool tui_args_stages(const struct tu_ckpt *c, uint64_t first, uint64_t last,
                     struct tu_stage *stage);
/* Do those of the first and the last, as tui_args_make writes them, make the stages of a plan?
 * Errors: TU_EUSAGE. */
int tui_args_say_stages(const struct tu_ckpt *c, struct tu_err *err);
/* From the `args` Namespace of a rank file; args NULL leaves everything as it is. */
int tui_args_read(const struct tu_pnode *args, struct tui_megatron *out,
                  struct tu_model *m, struct tu_err *err);
/* The Namespace of a plan: what `old` (may be NULL) says, with the sizes of the plan. */
int tui_args_make(struct tu_ckpt *c, const struct tu_pnode *old, uint32_t pad,
                  struct tu_pnode **out, struct tu_err *err);

/* The folder of the iteration that the key or the tracker names; the root itself where
 * there is no tracker. */
int tui_megatron_folder(struct tu_ckpt *c, const char *iteration, char **out,
                        struct tu_err *err);
/* c->iteration from the key, where it is given, and the folder that it makes. */
int tui_megatron_iteration(struct tu_ckpt *c, const struct tu_spec *spec,
                           struct tu_err *err);
void tui_megatron_iteration_folder(const struct tu_ckpt *c, char out[32]);
/* Name of the folder of one rank. */
void tui_megatron_rank(const struct tu_ckpt *c, struct tu_coord at, char out[64]);
/* The writing half of the row. */
int tui_megatron_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                      const struct tu_shard_opts *o, struct tu_err *err);
int tui_megatron_extra(const struct tu_ckpt *c, const char *folder,
                       const struct tu_job *job, struct tu_err *err);

#endif
