/* SPDX-License-Identifier: Apache-2.0 */
/* versions.h: weight versions of schedules without a flush. */
#ifndef TUI_SCHED_VERSIONS_H
#define TUI_SCHED_VERSIONS_H

#include "tensorutils/sched.h"

/* versions and staleness of each rank, whose arrays are there and hold 1 and 0. */
TU_MUST int tui_weight_versions(struct tu_sim *r, const struct tu_sched *s, struct tu_err *err);

#endif
