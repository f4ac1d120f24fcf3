/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: the table of schedules. */
#include "sched/families.h"

const struct tu_schedule *const tu_schedules[] = {
#define ROW(row) &row,
    TUI_SCHEDULES(ROW)
#undef ROW
        NULL,
};
