/* SPDX-License-Identifier: Apache-2.0 */
/* faults.c: lines of a verifier's report. */
#include "sched/faults.h"
#include "sched/index.h"

#define FAULTS_SHOWN 20 /* lines; the rest are only counted */

static bool shown(struct tui_faults *f)
{
    f->n++;
    return f->report && !f->code && f->n <= FAULTS_SHOWN;
}

void tui_op_fault(struct tui_faults *f, const struct tu_sched *s, uint32_t rank, size_t pos,
                  const char *why)
{
    if (!shown(f))
        return;
    f->code = tui_where(f->report, s, rank, pos, f->err);
    if (!f->code)
        f->code = tu_buf_printf(f->report, f->err, "%s\n", why);
}

void tui_unit_fault(struct tui_faults *f, const struct tu_sched *s, uint32_t stage,
                    size_t unit, const char *why)
{
    if (shown(f))
        f->code = tu_buf_printf(f->report, f->err,
                                "rank %u: stage %u, micro-batch %zu: %s\n", s->place[stage],
                                stage, unit / s->slices, why);
}

void tui_stage_fault(struct tui_faults *f, const struct tu_sched *s, uint32_t stage,
                     const char *why)
{
    if (shown(f))
        f->code = tu_buf_printf(f->report, f->err, "rank %u: stage %u: %s\n",
                                s->place[stage], stage, why);
}

int tui_faults_end(struct tui_faults *f)
{
    if (!f->code && f->report && f->n > FAULTS_SHOWN)
        f->code = tu_buf_printf(f->report, f->err, "… and %zu more\n", f->n - FAULTS_SHOWN);
    return f->code;
}
