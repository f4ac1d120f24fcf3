/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h: the options of a cluster. */
#ifndef PIPE_SCHED_CLUSTER_H
#define PIPE_SCHED_CLUSTER_H

#include <tensorutils/sched/plan.h>
#include "pipe-sched/pipe.h"

extern const struct tu_opt cluster_options[];
/* What they say, the file of --cluster and the presets behind them. */
TU_MUST int pipe_cluster(struct tu_cluster *c, struct tu_err *err);

#endif
