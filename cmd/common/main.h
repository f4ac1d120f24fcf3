/* SPDX-License-Identifier: Apache-2.0 */
/* main.h: what a running command asks of the front end: start-up, messages, outputs,
 * reports.
 *
 * cmd/common is the only code that prints or exits. A command is a struct tu_cmd
 * (cmd.h) and a `main` that calls tu_main. Statuses: 0 yes, 1 no, 2 usage, 3 bad data,
 * 4 environment. */
#ifndef COMMON_MAIN_H
#define COMMON_MAIN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <tensorutils/core.h>
#include "common/cmd.h"
#include "common/report.h"

enum { TU_STATUS_YES, TU_STATUS_NO, TU_STATUS_USAGE, TU_STATUS_DATA, TU_STATUS_SYSTEM };

/* The values of the common options, resolved. */
struct tu_ctx {
    const struct tu_cmd *top; /* the command */
    const struct tu_cmd *cmd; /* the subcommand, or the same */
    const char *output;       /* "-" is standard output */
    bool force;
    unsigned quiet;
    unsigned verbose;
    const char *format;       /* "text", "json", or one of cmd->formats */
    bool json;                /* format is json */
    bool plain;               /* --help and its like: text to standard output */
    const char *report;       /* --report FILE or NULL */
    bool color;
    uint64_t threads;
    uint64_t seed;
    const char *device;       /* for tu_device_open */
    struct tu_job job;        /* by tu_ctx_job */
    int status;               /* the highest so far */
    bool told;                /* the report is whole and says what failed: -o keeps it */
    bool pipe_closed;         /* a reader of our output went away */
};

/* Parse, run, close: the whole of a command's main. */
int tu_main(const struct tu_cmd *cmd, int argc, char **argv);

/* Messages, each one line and one write. tu_error returns the exit status of err->code
 * and remembers it; the process ends with the highest. */
int tu_error(struct tu_ctx *ctx, const struct tu_err *err);
int tu_errorf(struct tu_ctx *ctx, int code, const char *fmt, ...) TU_PRINTF(3, 4);
/* A usage error, with the pointer to --help. Returns 2. */
int tu_usage(struct tu_ctx *ctx, const char *fmt, ...) TU_PRINTF(2, 3);
void tu_warn(struct tu_ctx *ctx, const char *fmt, ...) TU_PRINTF(2, 3);
/* Shown with -v (level 1), -vv (level 2). */
void tu_note(struct tu_ctx *ctx, unsigned level, const char *fmt, ...) TU_PRINTF(3, 4);

/* What long library calls are given; the first call makes the pool of -j threads.
 * Processes that fork do so before. */
const struct tu_job *tu_ctx_job(struct tu_ctx *ctx);
struct tu_pool *tu_ctx_pool(struct tu_ctx *ctx);
/* The job without a pool, for outputs that are opened before a fork. */
const struct tu_job *tu_ctx_alone(struct tu_ctx *ctx);
/* What --device names; NULL for the CPU. With "auto" the CPU stands in, and a warning says
 * why. Errors: TU_EMISSING, TU_ENODEV. */
struct tu_device;
TU_MUST int tu_ctx_device(struct tu_ctx *ctx, const struct tu_device **out,
                          struct tu_err *err);
/* Open -o (or standard output) for data. */
TU_MUST int tu_ctx_output(struct tu_ctx *ctx, struct tu_out **out, struct tu_err *err);

#endif
