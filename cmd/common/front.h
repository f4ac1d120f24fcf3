/* SPDX-License-Identifier: Apache-2.0 */
/* front.h: between the files of cmd/common; commands include main.h. */
#ifndef COMMON_FRONT_H
#define COMMON_FRONT_H

#include "common/main.h"

/* help.c: these print through tu_print. */
void tu_help(struct tu_ctx *ctx, tu_opt_tables tables);
void tu_version(struct tu_ctx *ctx);
/* table "" and "tables": which there are. Returns an exit status. */
int tu_list(struct tu_ctx *ctx, const char *table);
void tu_dump_options(struct tu_ctx *ctx);
/* Usage lines, for a terminal that waits on both sides. */
void tu_usage_lines(struct tu_buf *out, const struct tu_cmd *top,
                    const struct tu_cmd *cmd);

/* complete.c */
extern const char *const tu_shells[];
void tu_complete(struct tu_ctx *ctx, int shell);

/* common.c: the common block. The tables of a command, NULL-ended, common last. */
#define TU_TABLES_MAX 4
struct tu_common {
    bool help, version, dump;
    const char *list;
    int completion, format, progress, color;
    bool json;
};
extern struct tu_common tu_common;
void tu_tables_of(const struct tu_cmd *top, const struct tu_cmd *cmd,
                  const struct tu_opt *tables[TU_TABLES_MAX]);
/* True for options of the common block. */
bool tu_is_common(const struct tu_opt *o);
/* Does this run put binary data on its output? */
bool tu_streams(const struct tu_ctx *ctx);
/* Resolve --format, --color and the rest into ctx. */
void tu_common_apply(struct tu_ctx *ctx);
/* Where the common options' values live. */
extern struct tu_ctx tu_ctx_only;

/* message.c: a line to standard error with control bytes replaced, in one write. */
void tu_message(const struct tu_ctx *ctx, const char *kind, const char *text);

/* signal.c */
void tu_signals_begin(void);
void tu_temporary(void *ctx, const char *path, enum tu_temporary state);
/* Standard output's reader has gone: end as SIGPIPE would have, or return 4. */
int tu_pipe_status(void);

/* progress.c */
void tu_progress_begin(const struct tu_ctx *ctx, bool always);
void tu_progress(void *ctx, uint64_t done, uint64_t total);
/* The work is done: of what was too short to report the end is shown, where a bar is always
 * wanted. */
void tu_progress_end(void);
/* Take the bar away: bytes that erase it, "" if there is none. */
const char *tu_progress_erase(void);

#endif
