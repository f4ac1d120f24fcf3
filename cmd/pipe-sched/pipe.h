/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.h: what the subcommands of pipe-sched share: times, memory, reading and writing.
 */
#ifndef PIPE_SCHED_PIPE_H
#define PIPE_SCHED_PIPE_H

#include <tensorutils/sched.h>
#include "common/main.h"

extern const struct tu_cmd pipe_gen, pipe_sim, pipe_verify, pipe_lower, pipe_compare,
    pipe_draw, pipe_convert, pipe_diff, pipe_optimize, pipe_partition, pipe_place,
    pipe_plan;
extern const struct tu_listing pipe_listings[];

/* Times and memory, the same options everywhere. */
struct pipe_cost {
    const char *cost, *memory, *times, *cap;
    int release, sync;
    bool share, contend, blocking;
};
extern struct pipe_cost pipe_cost;
extern const struct tu_opt pipe_cost_options[];
/* Characters of a line: the terminal's, or 100. */
size_t pipe_line_width(void);
/* For subcommands that look for a schedule. */
#define PIPE_CAP_OPTION                                                                  \
    {0,                                                                                  \
     "memory-cap",                                                                       \
     "N",                                                                                \
     "most activations that a rank holds, in shares of a micro-batch",                   \
     TU_OPT_STRING,                                                                      \
     &pipe_cost.cap,                                                                     \
     NULL,                                                                               \
     0}
/* What a schedule makes of a rank's share of the model. */
struct pipe_shape {
    uint32_t ranks, chunks, slices, pipelines;
};
/* Fill c from the options; with --share a rank's times, also the default ones, are divided
 * among its chunks. */
TU_MUST int pipe_cost_get(struct tu_cost *c, const struct pipe_shape *s, struct tu_err *err);
/* Warn of keys of --cost that are zero, and that none of n schedules, some may be NULL, has an
 * operation for; only of those that no subcommand adds later, unless these are the whole. */
void pipe_cost_idle(struct tu_ctx *ctx, const struct tu_sched *const *s, size_t n,
                    bool whole);
/* The options over a cost that a file brought. */
TU_MUST int pipe_cost_over(struct tu_cost *c, const struct pipe_shape *s, struct tu_err *err);
/* TU_EUSAGE when a time or size is given that a form of this name does not hold. */
TU_MUST int pipe_cost_lost(const struct tu_ctx *ctx, const char *form, struct tu_err *err);
/* TU_EUSAGE when --times has stages, micro-batches or ranks that the schedule does not have. */
TU_MUST int pipe_times_fit(const struct tu_cost *c, const struct tu_sched *s,
                           struct tu_err *err);
/* --memory-cap in memory units, 0 when it is not given. */
TU_MUST int pipe_cap(const struct tu_cost *c, uint32_t chunks, int64_t *cap,
                     struct tu_err *err);

/* The same of a schedule that is to be found, by its sizes. */
TU_MUST int pipe_times_fit_sizes(const struct tu_cost *c, uint32_t ranks, uint32_t stages,
                                 uint32_t microbatches, struct tu_err *err);
/* -p and -m, each at least 1, and -c, at least 1 where it is given (else UINT64_MAX): a usage
 * status names what is missing, 0: all are there. */
int pipe_sizes(struct tu_ctx *ctx, uint64_t p, uint64_t m, uint64_t chunks);

/* The schedule of that name. Errors: TU_EUSAGE. */
TU_MUST int pipe_row(const struct tu_schedule **row, const char *name, struct tu_err *err);

/* What subcommands that read one schedule are told about it. */
struct pipe_input {
    const char *from;
    uint64_t ranks, stages, m, pipelines;
    bool old;
};
extern struct pipe_input pipe_input;
#define PIPE_INPUT_OPTIONS                                                               \
    {0,                                                                                  \
     "from",                                                                             \
     "FORM",                                                                             \
     "form of the input; default: by its looks",                                         \
     TU_OPT_STRING,                                                                      \
     &pipe_input.from,                                                                   \
     NULL,                                                                               \
     0},                                                                                 \
        {'p', "ranks", "N", "ranks, where the form does not say (table)", TU_OPT_U64,    \
         &pipe_input.ranks, NULL, 0},                                                    \
        {0, "stages", "N", "stages of a pipeline, if not those that occur", TU_OPT_U64,  \
         &pipe_input.stages, NULL, 0},                                                   \
        {'m', "microbatches", "N", "micro-batches, if not those that occur", TU_OPT_U64, \
         &pipe_input.m, NULL, 0},                                                        \
        {0, "pipelines", "N", "2: the upper half of the stages is a second pipeline",    \
         TU_OPT_U64, &pipe_input.pipelines, NULL, 0},                                    \
        {0, "old-b", NULL, "B is the input gradient where a W exists (torch before 2.6)", \
         TU_OPT_FLAG, &pipe_input.old, NULL, 0}
/* The schedule of the only operand, or of standard input, read by these options. */
TU_MUST int pipe_load(struct tu_ctx *ctx, int argc, char **argv, struct tu_sched **s,
                      struct tu_cost *c, struct tu_err *err);
/* A schedule from a file, "-": standard input. */
TU_MUST int pipe_read(struct tu_ctx *ctx, const char *path, const char *form,
                      const struct tu_sched_hint *hint, struct tu_sched **s,
                      struct tu_cost *c, struct tu_err *err);
/* The form to write: as given, or by the suffix of -o, or else `fallback`; a picture of an
 * unknown suffix is refused. */
TU_MUST int pipe_form(const char **form, const struct tu_ctx *ctx, const char *given,
                      const char *fallback, struct tu_err *err);
/* Characters of a line of text: --width, or the terminal's, or 100. */
extern uint64_t pipe_width;
#define PIPE_TO_OPTION(where, otherwise)                                                 \
    {0, "to", "FORM", "what is written; default: by the suffix of -o, else " otherwise,  \
     TU_OPT_STRING, where, NULL, 0}
TU_MUST int pipe_slurp(const char *path, struct tu_buf *out, struct tu_err *err);
/* To -o in the named form; the times are simulated where the form shows them. */
TU_MUST int pipe_write(struct tu_ctx *ctx, const struct tu_sched *s,
                       const struct tu_cost *c, const char *form, struct tu_err *err);
TU_MUST int pipe_bytes(struct tu_ctx *ctx, const struct tu_buf *b, struct tu_err *err);
/* Simulate; a schedule that is not valid is status 1 with its faults on standard error.
 * *status is TU_STATUS_YES when sim is filled. */
TU_MUST int pipe_simulate(struct tu_ctx *ctx, const struct tu_sched *s,
                          const struct tu_cost *c, struct tu_sim *sim, int *status,
                          struct tu_err *err);
/* A tick count in the cost's unit, for JSON: a number. */
void pipe_json_time(struct tu_jw *w, const char *key, int64_t ticks,
                    const struct tu_cost *c);
/* The figures of a simulation, as keys of an open object; bound: tu_sim_bound. */
void pipe_json_sim(struct tu_jw *w, const struct tu_sched *s, const struct tu_cost *c,
                   const struct tu_sim *sim, int64_t bound);
void pipe_print_sim(struct tu_ctx *ctx, const struct tu_sched *s, const struct tu_cost *c,
                    const struct tu_sim *sim, int64_t bound);

#endif
