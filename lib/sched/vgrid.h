/* SPDX-License-Identifier: Apache-2.0 */
/* vgrid.h: V schedules on a grid of unit slots: repeat a building block, tighten its
 * ends.
 *
 * Rows of a rank: F of the first chunk, F of the second, I of the second, I of the first,
 * then W. */
#ifndef TUI_SCHED_VGRID_H
#define TUI_SCHED_VGRID_H

#include "sched/build.h"

enum { TUI_V_F, TUI_V_F2, TUI_V_I2, TUI_V_I, TUI_V_ROWS };

/* Slot of each operation of micro-batch 0 on each rank; micro-batch i is 6i later. Emits
 * the whole schedule into b (placed as a V). */
TU_MUST int tui_v_expand(struct tui_build *b, const int32_t (*block)[TUI_V_ROWS],
                         struct tu_err *err);

#endif
