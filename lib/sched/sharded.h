/* SPDX-License-Identifier: Apache-2.0 */
/* sharded.h: the verifier's rules of UNSHARD, RESHARD, REDUCE_GRAD and R. */
#ifndef TUI_SCHED_SHARDED_H
#define TUI_SCHED_SHARDED_H

#include "sched/faults.h"
#include "sched/index.h"

/* Of an index without faults so far. */
TU_MUST int tui_sharded_check(const struct tui_index *x, struct tui_faults *f);

#endif
