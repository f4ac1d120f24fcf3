/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: the methods of pipe-sched place: what each reads and how it answers. */
#ifndef PIPE_SCHED_PLACE_H
#define PIPE_SCHED_PLACE_H

#include <tensorutils/sched/split.h>
#include "pipe-sched/pipe.h"

struct place_options {
    uint64_t dp, pp, effort, dp_bytes, pp_bytes, layers, batch, state_bytes, sample_bytes,
        devices, clients, batches;
    uint64_t gather, transfer, rebalance, move, life, repair; /* ns */
    const char *groups;
    int method;
};
extern struct place_options place_opt;

/* A row: reads the lines of the input and prints the placement. */
struct place_method {
    const char *name, *help;
    int (*run)(struct tu_ctx *ctx, const char *path, struct tu_err *err);
    const char *const *option; /* those it reads, NULL-ended */
    const char *draws;         /* of these the one on which drawing lots depends; NULL: it
                                  draws none */
    bool without;              /* it draws where that one is not given */
};
extern const struct place_method place_tasklets, place_nics, place_uneven, place_experts,
    place_swarm;

/* Cells of a line, separated by commas or blanks. */
#define PLACE_CELLS 6
struct place_line {
    const char *path;
    size_t number, n;
    const char *cell[PLACE_CELLS];
};
/* Call `take` for each line that is neither empty nor a comment; its failures get file
 * and line in front. Lines have lo … hi cells, named by `shape` in the message. */
TU_MUST int place_lines(const char *path, size_t lo, size_t hi, const char *shape,
                        int (*take)(const struct place_line *l, void *to,
                                    struct tu_err *err),
                        void *to, struct tu_err *err);
/* A cell as a number in lo … hi; TU_EFORMAT. */
TU_MUST int place_number(const char *cell, double lo, double hi, double *out,
                         struct tu_err *err);

#endif
