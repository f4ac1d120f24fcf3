/* SPDX-License-Identifier: Apache-2.0 */
/* plan_more.h: what pipe-sched plan says below its table. */
#ifndef PIPE_SCHED_PLAN_MORE_H
#define PIPE_SCHED_PLAN_MORE_H

#include <tensorutils/sched/plan.h>
#include "pipe-sched/pipe.h"

/* The best step when one thing of the cluster is a tenth better; now: as it is. */
TU_MUST int plan_sensitivity(struct tu_ctx *ctx, const struct tu_train_query *q, double now,
                             struct tu_err *err);
/* What the stages of a layout hold. */
TU_MUST int plan_stages(struct tu_ctx *ctx, const struct tu_train_query *q,
                        const struct tu_layout_choice *at, struct tu_err *err);

/* Sizes of the model, and the `top` fastest layouts, of those that take the same time the
 * one with least memory; with `all` every layout, and why the rejected are none. */
TU_MUST int plan_table(struct tu_ctx *ctx, const struct tu_train_query *q,
                       const struct tu_train_plan *p, uint64_t top, bool all,
                       struct tu_err *err);
/* Does b, which is not faster than a, take as long? */
bool plan_same_time(const struct tu_train_row *a, const struct tu_train_row *b);

#endif
