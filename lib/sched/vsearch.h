/* SPDX-License-Identifier: Apache-2.0 */
/* vsearch.h: search among V schedules under a memory cap. */
#ifndef TUI_SCHED_VSEARCH_H
#define TUI_SCHED_VSEARCH_H

#include "sched/build.h"

/* q->cost and q->cap (memory units) are given; cap limits each rank's peak with
 * W-release. move: improve the best block's schedule operation by operation. TU_EUSAGE
 * when nothing fits under the cap. */
TU_MUST int tui_search_v(struct tu_sched **out, const struct tu_sched_params *q,
                         bool move, struct tu_err *err);

#endif
