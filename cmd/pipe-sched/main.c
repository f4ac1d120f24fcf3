/* SPDX-License-Identifier: Apache-2.0 */
/* pipe-sched: pipeline schedules: generate, simulate, verify, improve, draw; plan a run.
 */
#include "pipe-sched/pipe.h"

static const struct tu_cmd *const subs[] = {
    &pipe_gen,      &pipe_sim,       &pipe_verify, &pipe_lower, &pipe_compare,
    &pipe_optimize, &pipe_partition, &pipe_place,  &pipe_plan,  &pipe_draw,
    &pipe_convert,  &pipe_diff,      NULL,
};

static const struct tu_cmd command = {
    .name = "pipe-sched",
    .example = "pipe-sched gen -s 1f1b -p 4 -m 8 | pipe-sched draw -o 1f1b.svg",
    .summary = "make, simulate, verify, improve and draw pipeline schedules",
    .listings = pipe_listings,
    .subs = subs,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
