/* SPDX-License-Identifier: Apache-2.0 */
/* faults.h: what is wrong with a schedule, a line for each fault: counted, and the first
 * few written. */
#ifndef TUI_SCHED_FAULTS_H
#define TUI_SCHED_FAULTS_H

#include "tensorutils/sched.h"

struct tui_faults {
    struct tu_buf *report; /* NULL: only counted */
    size_t n;
    int code; /* why no more could be written */
    struct tu_err *err;
};

/* "rank R, position P (TEXT): why" */
void tui_op_fault(struct tui_faults *f, const struct tu_sched *s, uint32_t rank, size_t pos,
                  const char *why);
/* "rank R: stage S, micro-batch M: why" */
void tui_unit_fault(struct tui_faults *f, const struct tu_sched *s, uint32_t stage,
                    size_t unit, const char *why);
/* "rank R: stage S: why" */
void tui_stage_fault(struct tui_faults *f, const struct tu_sched *s, uint32_t stage,
                     const char *why);
/* How many were not written; returns f->code. */
int tui_faults_end(struct tui_faults *f);

#endif
