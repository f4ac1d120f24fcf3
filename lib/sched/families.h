/* SPDX-License-Identifier: Apache-2.0 */
/* families.h: the rows of the table of schedules; each is made in the file of its family.
 */
#ifndef TUI_SCHED_FAMILIES_H
#define TUI_SCHED_FAMILIES_H

#include "sched/build.h"

/* X(row) in the order of --list. */
#define TUI_SCHEDULES(X)                                                                 \
    X(tui_gpipe)                                                                         \
    X(tui_1f1b)                                                                          \
    X(tui_eager_1f1b)                                                                    \
    X(tui_interleaved)                                                                   \
    X(tui_breadth_first)                                                                 \
    X(tui_2bp)                                                                           \
    X(tui_zb_h1)                                                                         \
    X(tui_zb_h2)                                                                         \
    X(tui_zb_1p)                                                                         \
    X(tui_zb_2p)                                                                         \
    X(tui_interleaved_zb)                                                                \
    X(tui_zb_v)                                                                          \
    X(tui_zb_v_auto)                                                                     \
    X(tui_v_min)                                                                         \
    X(tui_v_half)                                                                        \
    X(tui_v_zb)                                                                          \
    X(tui_v_search)                                                                      \
    X(tui_zeropp)                                                                        \
    X(tui_hanayo)                                                                        \
    X(tui_chimera)                                                                       \
    X(tui_bitpipe)                                                                       \
    X(tui_dualpipe)                                                                      \
    X(tui_dualpipev)                                                                     \
    X(tui_pipedream)                                                                     \
    X(tui_seq_1f1b)                                                                      \
    X(tui_gnnpipe)                                                                       \
    X(tui_inference)                                                                     \
    X(tui_asyncdiff)                                                                     \
    X(tui_update_split)                                                                  \
    X(tui_update_ssd)

#define TUI_DECLARE(row) extern const struct tu_schedule row;
TUI_SCHEDULES(TUI_DECLARE)
#undef TUI_DECLARE

#endif
