/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c: take streams from a producer at once, write them behind its back. */

#include <unistd.h>

#include "opts.h"

static const char *fast, *slow;
static bool keep;
static uint64_t memory;

static const struct tu_opt options[] = {
    {0, "fast", "DIR", "folder that files are written to first", TU_OPT_STRING, &fast, NULL,
     0},
    {0, "slow", "DIR", "folder that they are copied to then", TU_OPT_STRING, &slow, NULL, 0},
    {0, "keep", NULL, "keep all in the fast folder, not the newest alone", TU_OPT_FLAG,
     &keep, NULL, 0},
    {0, "memory", NULL, "memory of the ring (default 128M)", TU_OPT_SIZE, &memory, NULL, 0},
    {0},
};

/* Printed as they come: the producer may wait for them. */
static const struct tu_column columns[] = {
    {"event", "EVENT", TU_COL_TEXT, 6},
    {"number", "NUMBER", TU_COL_U64, 6},
    {"bytes", "BYTES", TU_COL_U64, 12},
    {"after_s", "AFTER_S", TU_COL_REAL, 10},
    {0},
};

struct watch {
    struct tu_ctx *ctx;
    double begin;
};

static void on_event(void *ctx, enum tu_drain_event what, uint64_t number, uint64_t bytes)
{
    static const char *const name[] = {"taken", "fast", "slow"};
    struct watch *w = ctx;
    tu_row(w->ctx, (struct tu_cell[]){{.s = name[what]},
                                      {.u = number},
                                      {.u = bytes},
                                      {.f = tu_clock() - w->begin}});
}

static void report(struct tu_ctx *ctx, const struct tu_drain *d, double seconds)
{
    tu_note(ctx, 1, "%llu checkpoints, the ring was full for %.3f of %.3f s",
            (unsigned long long)d->count, d->stall_s, seconds);
    struct tu_jw *w = tu_line_begin(ctx);
    if (!w)
        return;
    tu_jw_u64(w, "checkpoints", d->count);
    tu_jw_real(w, "stall_s", d->stall_s);
    tu_jw_real(w, "elapsed_s", seconds);
    tu_line_end(ctx);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct watch watch = {ctx, tu_clock()};
    struct tu_job job = *tu_ctx_job(ctx);
    struct tu_err err;
    (void)argc;
    if (!fast)
        return tu_usage(ctx, "where to? (--fast DIR)");
    if (isatty(STDIN_FILENO))
        return tu_usage(ctx, "standard input is a terminal; streams come by a pipe");
    job.memory = memory;
    struct tu_drain d = {.fd = STDIN_FILENO, .fast = fast, .slow = slow, .name = argv[0],
                         .keep = keep, .force = ctx->force, .event = on_event,
                         .ctx = &watch};
    tu_rows_begin(ctx, columns);
    int rc = tu_drain(&d, &job, &err);
    report(ctx, &d, tu_clock() - watch.begin);
    return rc ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"--fast directory [option ...] name", NULL};

const struct tu_cmd cmd_drain = {
    .name = "drain",
    .example = "trainer | shard-ckpt drain --fast /nvme --slow /lustre 'step-%d.tns'",
    .summary = "take streams at once, write them to a fast folder, then to a slow one",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_WORDS,
    .min = 1,
    .max = 1,
    .run = run,
};
