/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.h: what a command declares about itself.
 *
 * A command is a table; tu_main parses by it, runs it, and prints help, completion
 * scripts and --dump-options from it. A command with subcommands is a table of tables. */
#ifndef COMMON_CMD_H
#define COMMON_CMD_H

#include "common/opt.h"

struct tu_ctx;

enum tu_cmd_flags {
    TU_CMD_STDIN = 1,   /* without operands it reads standard input */
    TU_CMD_STREAM = 2,  /* standard output carries binary data; reports go elsewhere */
    TU_CMD_WORDS = 4,   /* operands are words, not files (completion) */
    TU_CMD_FORMATS = 8, /* with TU_CMD_STREAM: writes what the name of -o says */
    TU_CMD_COUNTS = 16, /* its progress is of no bytes: no rate is shown */
    TU_CMD_DOCUMENT = 32, /* standard output carries a text that is no report */
    TU_CMD_DEVICE = 64,   /* computes where --device says; others only see whether it is there */
};

#define TU_ANY UINT_MAX

/* A table that --list shows: layouts, codecs, schedules. An option whose value is called LAYOUT
 * takes names of the table `layouts` (names.h). */
struct tu_listing {
    const char *name; /* NULL ends the tables */
    const char *help;
    /* Name of row i and its one-line help; NULL past the end. */
    const char *(*row)(size_t i, const char **help);
    /* Key k of row i's NAME:KEY=VALUE, NULL past the last; NULL where no row has keys or the
     * helps say them. */
    const char *(*key)(size_t i, size_t k);
};

struct tu_cmd {
    const char *name;
    const char *summary; /* "list the tensors of files": no capital, no full stop */
    /* What follows the name, a line each, NULL-ended; as the man page's synopsis renders:
     * "[option ...] [file ...]". */
    const char *const *usage;
    const char *example; /* a line to type, shown by --help */
    const struct tu_opt *opts;   /* its own options, or NULL */
    const struct tu_opt *shared; /* options it shares with other subcommands, or NULL */
    const struct tu_listing *listings;
    const struct tu_cmd *const *subs; /* NULL-ended, or NULL for a single command */
    const struct tu_cmd *fallback;    /* the subcommand when none is named, or NULL */
    const char *const *formats;       /* more values of --format, NULL-ended, or NULL */
    unsigned flags;
    /* With TU_CMD_STREAM: an option that asks for a text report in the stream's place, or
     * NULL. */
    const bool *text;
    unsigned min, max;                /* number of operands; TU_ANY: no limit */
    /* Returns an exit status. argv: the operands. */
    int (*run)(struct tu_ctx *ctx, int argc, char **argv);
};

#endif
