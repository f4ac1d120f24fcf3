/* SPDX-License-Identifier: Apache-2.0 */
/* dcp.h: the two halves of the layout dcp. */
#ifndef TU_SHARD_DCP_H
#define TU_SHARD_DCP_H

#include "deepspeed.h"

int tui_dcp_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                 const struct tu_shard_opts *o, struct tu_err *err);
/* `.metadata` of the plan's .distcp files, below their folder; planner: say too where each
 * name was in nested dictionaries. */
int tui_dcp_metadata(const struct tu_ckpt *c, const char *folder, bool planner,
                     const struct tu_job *job, struct tu_err *err);
int tui_dcp_extra(const struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                  struct tu_err *err);

#endif
