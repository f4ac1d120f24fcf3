/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dist.h: the two halves of the layout torch_dist. */
#ifndef TU_SHARD_TORCH_DIST_H
#define TU_SHARD_TORCH_DIST_H

#include "megatron.h"

#define TUI_DIST_LAYERS "decoder.layers."
#define TUI_DIST_STATE "optimizer.state."

int tui_torch_dist_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                        const struct tu_shard_opts *o, struct tu_err *err);
int tui_torch_dist_extra(const struct tu_ckpt *c, const char *folder,
                         const struct tu_job *job, struct tu_err *err);

#endif
