/* SPDX-License-Identifier: Apache-2.0 */
/* form_says.h: can a short form of schedules say this one? */
#ifndef TUI_SCHED_FORM_SAYS_H
#define TUI_SCHED_FORM_SAYS_H

#include "sched/build.h"

struct tui_says {
    const char *form;
    bool vee;     /* stages down the ranks and back up; else in a loop */
    bool halves;  /* backwards are I and W; else whole */
    bool counted; /* micro-batches of a stage are not named: they count up */
};

/* TU_EUSAGE naming what the form has no word for: then reading it back would give another
 * schedule. */
TU_MUST int tui_form_says(const struct tui_says *can, const struct tu_sched *s,
                          struct tu_err *err);
/* TU_EUSAGE naming the first operation that is not the same in `back`. */
TU_MUST int tui_form_same(const char *form, const struct tu_sched *s,
                          const struct tu_sched *back, struct tu_err *err);

#endif
