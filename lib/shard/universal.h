/* SPDX-License-Identifier: Apache-2.0 */
/* universal.h: the two halves of the layout universal. */
#ifndef TU_SHARD_UNIVERSAL_H
#define TU_SHARD_UNIVERSAL_H

#include "zero.h"

int tui_universal_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                       const struct tu_shard_opts *o, struct tu_err *err);
int tui_universal_extra(const struct tu_ckpt *c, const char *folder,
                        const struct tu_job *job, struct tu_err *err);

#endif
