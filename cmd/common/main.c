/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: start-up, choice of the subcommand, and the end of a process. */
#include "common/main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/front.h"
#include "common/names.h"

/* A closed standard descriptor would be given to the first file opened. It is filled
 * so that using it still fails. */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF &&
            open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(TU_STATUS_SYSTEM);
}

/* Plug-ins are in ../lib/tensorutils of the program, in build/ as where they are
 * installed. */
static int find_plugins(struct tu_err *err)
{
    const char *given = getenv("TENSORUTILS_PLUGINS");
    char self[PATH_MAX];
    const char *folder[2] = {given, NULL};
    if (!given || !*given) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 32);
        if (n <= 0)
            return 0; /* no /proc: no plug-ins */
        self[n] = '\0';
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(self, '/');
            if (!slash)
                return 0;
            *slash = '\0';
        }
        strcat(self, "/lib/tensorutils");
        folder[0] = self;
    }
    return tu_plugin_path(folder, err);
}

static int start(struct tu_err *err)
{
    const char *isa = getenv("TENSORUTILS_ISA");
    int rc = 0;
    if (isa && *isa) {
        rc = tu_cpu_narrow(isa, err);
        if (rc) {
            tu_err_prefix(err, "TENSORUTILS_ISA");
            return rc;
        }
    }
    return find_plugins(err);
}

static const char *sub_name(const void *ctx, size_t i)
{
    const struct tu_cmd *const *subs = ctx;
    return subs[i] ? subs[i]->name : NULL;
}

/* Is it an option that the command as a whole has not? Then its value was taken for the
 * subcommand. */
static bool foreign(const char *arg, tu_opt_tables tables)
{
    if (arg[0] != '-' || !arg[1])
        return false;
    for (; *tables; tables++)
        for (const struct tu_opt *o = *tables; o->type != TU_OPT_END; o++)
            if (arg[1] == '-' ? !strcmp(arg + 2, o->name) : arg[1] == o->shortname)
                return false;
    return true;
}

static bool option_called(const char *word, tu_opt_tables tables)
{
    for (; *tables; tables++)
        for (const struct tu_opt *o = *tables; o->type != TU_OPT_END; o++)
            if (!strcmp(word, o->name))
                return true;
    return false;
}

/* argv[at] names no subcommand. Where one need not be named it is a file, unless there is none
 * and the word is like a subcommand's name: 0. */
static int no_such_sub(const struct tu_cmd *top, char **argv, int at, tu_opt_tables tables,
                       struct tu_err *err)
{
    char word[88], near[64];
    const char *given = argv[at];
    tu_fail(err, TU_EUSAGE, "unknown subcommand '%s'",
            tu_text_short(given, strlen(given), word));
    const size_t used = strlen(err->msg);
    snprintf(near, sizeof near, "%.60s", given);
    if (top->fallback)
        return !access(given, F_OK) || !tu_suggest(err, near, "", sub_name, top->subs)
                   ? 0
                   : TU_EUSAGE;
    if (at > 1 && foreign(argv[at - 1], tables))
        snprintf(err->msg + used, sizeof err->msg - used,
                 ": the subcommand stands before its options ('%.40s')", argv[at - 1]);
    else if (!tu_suggest(err, near, "", sub_name, top->subs) && option_called(given, tables))
        snprintf(err->msg + used, sizeof err->msg - used, "; did you mean '--%s'?", near);
    return TU_EUSAGE;
}

/* The first operand names the subcommand; it is taken out of argv. */
static int choose(struct tu_ctx *ctx, int *argc, char **argv, struct tu_err *err)
{
    const struct tu_cmd *top = ctx->top;
    const struct tu_opt *tables[TU_TABLES_MAX];
    if (!top->subs)
        return 0;
    tu_tables_of(top, top->fallback ? top->fallback : top, tables);
    int at = tu_opt_operand(tables, *argc, argv);
    for (size_t i = 0; at && top->subs[i]; i++)
        if (!strcmp(argv[at], top->subs[i]->name)) {
            ctx->cmd = top->subs[i];
            memmove(argv + at, argv + at + 1, (size_t)(*argc - at) * sizeof *argv);
            --*argc;
            return 0;
        }
    /* `fa-run --help` is about the command; `fa-run --causal --help` too. */
    int rc = at ? no_such_sub(top, argv, at, tables, err) : 0;
    if (!rc && top->fallback)
        ctx->cmd = top->fallback;
    return rc;
}

/* --help and its like; true when one of them was asked for. */
static bool answer(struct tu_ctx *ctx, tu_opt_tables tables, bool named)
{
    const struct tu_cmd *cmd = ctx->cmd;
    if (!named)
        ctx->cmd = ctx->top; /* a fallback that nobody named */
    if (tu_common.help)
        tu_help(ctx, tables);
    else if (tu_common.version)
        tu_version(ctx);
    else if (tu_common.list)
        tu_list(ctx, tu_common.list);
    else if (tu_common.completion >= 0)
        tu_complete(ctx, tu_common.completion);
    else if (tu_common.dump)
        tu_dump_options(ctx);
    else {
        ctx->cmd = cmd;
        return false;
    }
    return true;
}

static int usage_to_terminal(struct tu_ctx *ctx)
{
    struct tu_buf text = {0};
    tu_usage_lines(&text, ctx->top, ctx->cmd);
    ssize_t w = text.n ? write(STDERR_FILENO, text.data, text.n) : 0;
    (void)w;
    tu_buf_release(&text);
    return tu_usage(ctx, "standard input is a terminal; name a file or use a pipe");
}

/* "expected 2 operands: [option ...] first second; 1 was given". */
static int missing(struct tu_ctx *ctx, unsigned given)
{
    const struct tu_cmd *cmd = ctx->cmd;
    const char *usage = cmd->usage ? cmd->usage[0] : "", *last = strrchr(usage, ' ');
    if (last && !strcmp(last, " destination") && strcmp(ctx->output, "-") &&
        given + 1 == cmd->min)
        return tu_usage(ctx, "the destination is the last operand: -o is the report's file");
    return tu_usage(ctx, "expected %s%u operand%s, got %u: %s%s%s%s%s",
                    cmd->max > cmd->min ? "at least " : "", cmd->min,
                    cmd->min == 1 ? "" : "s", given, ctx->top->name,
                    cmd == ctx->top ? "" : " ", cmd == ctx->top ? "" : cmd->name,
                    *usage ? " " : "", usage);
}

/* Is the name one of another format's files, and not of a tensor stream's? .bin and .ckpt may be
 * anything. */
static bool of_other_format(const char *path)
{
    static const char *const suffix[] = {".gguf", ".safetensors", ".npy", ".npz", ".pt", ".pth"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof suffix / sizeof *suffix; i++)
        if (!strcmp(dot, suffix[i]))
            return true;
    return false;
}

/* `cmd FILE >>FILE` would read what it writes, without an end. */
static const char *reads_own_output(int argc, char **argv)
{
    struct stat out, in;
    if (fstat(STDOUT_FILENO, &out) || !S_ISREG(out.st_mode))
        return NULL;
    for (int i = 0; i < argc; i++)
        if (!stat(argv[i], &in) && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return argv[i];
    return NULL;
}

static bool reads_twice(int argc, char **argv)
{
    int n = 0;
    for (int i = 0; i < argc; i++)
        n += !strcmp(argv[i], "-");
    return n > 1;
}

/* What can be refused before any work. */
static int refuse(struct tu_ctx *ctx, tu_opt_tables tables, int argc, char **argv)
{
    const struct tu_cmd *cmd = ctx->cmd;
    struct tu_err err;
    bool to_stdout = !strcmp(ctx->output, "-");
    if (!cmd->run)
        return tu_usage(ctx, "a subcommand is needed; --list shows them");
    if (tu_names_check(ctx->top, cmd, tables, argc, argv, &err))
        return tu_error(ctx, &err);
    if ((unsigned)argc < cmd->min)
        return missing(ctx, (unsigned)argc);
    if ((unsigned)argc > cmd->max)
        return tu_usage(ctx, "'%s': too many operands", argv[cmd->max]);
    if (reads_twice(argc, argv))
        return tu_usage(ctx, "standard input can be read once");
    const char *own = tu_streams(ctx) && to_stdout ? reads_own_output(argc, argv) : NULL;
    if (own)
        return tu_usage(ctx, "'%s' is read and standard output too: use -o FILE", own);
    if (tu_streams(ctx) && to_stdout &&
        (ctx->json || (ctx->report && !strcmp(ctx->report, "-"))))
        return tu_usage(
            ctx, "standard output carries the data; use --report FILE for the report");
    if (tu_streams(ctx) && !(cmd->flags & (TU_CMD_FORMATS | TU_CMD_DOCUMENT)) &&
        of_other_format(ctx->output))
        return tu_usage(ctx, "'%.80s': a tensor stream is written here, and not what this name "
                        "says; use \"%s%s%s ... | tns-export -o %.80s\"",
                        ctx->output, ctx->top->name, cmd == ctx->top ? "" : " ",
                        cmd == ctx->top ? "" : cmd->name, ctx->output);
    const struct tu_device *device;
    if (!(cmd->flags & TU_CMD_DEVICE) && strcmp(ctx->device, "cpu") &&
        tu_ctx_device(ctx, &device, &err))
        return tu_error(ctx, &err);
    if ((cmd->flags & TU_CMD_STDIN) && argc == 0 && isatty(STDIN_FILENO))
        return usage_to_terminal(ctx);
    if (tu_streams(ctx) && !(cmd->flags & TU_CMD_DOCUMENT) && to_stdout && !ctx->force &&
        isatty(STDOUT_FILENO))
        return tu_usage(ctx,
                        "will not write binary data to a terminal; use -o FILE, or -f");
    return 0;
}

static void job_warn(void *c, const char *msg)
{
    tu_warn(c, "%s", msg);
}

const struct tu_job *tu_ctx_alone(struct tu_ctx *ctx)
{
    ctx->job.ctx = ctx;
    ctx->job.progress = tu_progress;
    ctx->job.temporary = tu_temporary;
    ctx->job.warn = job_warn;
    return &ctx->job;
}

struct tu_pool *tu_ctx_pool(struct tu_ctx *ctx)
{
    if (!ctx->job.pool && ctx->threads != 1)
        ctx->job.pool = tu_pool_new((unsigned)tu_min(ctx->threads, 4096), NULL);
    return ctx->job.pool; /* NULL: the calling thread alone */
}

const struct tu_job *tu_ctx_job(struct tu_ctx *ctx)
{
    tu_ctx_pool(ctx);
    return tu_ctx_alone(ctx);
}

int tu_ctx_output(struct tu_ctx *ctx, struct tu_out **out, struct tu_err *err)
{
    return tu_out_open(out, ctx->output, tu_ctx_alone(ctx), err);
}

/* Everything is written, or the status says that it is not. */
static int finish(struct tu_ctx *ctx)
{
    int status = ctx->status, late = tu_report_finish(ctx, status);
    tu_pool_free(ctx->job.pool);
    const char *erase = tu_progress_erase();
    if (*erase) {
        ssize_t w = write(STDERR_FILENO, erase, strlen(erase));
        (void)w;
    }
    if (close(STDOUT_FILENO) && errno != EBADF) {
        struct tu_err err;
        tu_fail_errno(&err, "standard output");
        late = tu_error(ctx, &err);
    }
    if (ctx->pipe_closed)
        return tu_pipe_status();
    return late > status ? late : status;
}

int tu_main(const struct tu_cmd *cmd, int argc, char **argv)
{
    struct tu_ctx *ctx = &tu_ctx_only;
    struct tu_err err = {0};
    ctx->top = ctx->cmd = cmd;
    fill_descriptors();
    tu_signals_begin();
    int before = argc;
    if (argc < 1 || start(&err) || choose(ctx, &argc, argv, &err)) {
        tu_error(ctx, &err);
        return finish(ctx);
    }
    bool named = argc != before || !cmd->fallback;
    const struct tu_opt *tables[TU_TABLES_MAX];
    tu_tables_of(cmd, ctx->cmd, tables);
    if (tu_opt_parse(tables, &argc, argv, &err)) {
        if (!named)
            ctx->cmd = ctx->top; /* whose --help names the subcommand */
        tu_error(ctx, &err);
        return finish(ctx);
    }
    tu_common_apply(ctx);
    if (!answer(ctx, tables, named) && !refuse(ctx, tables, argc, argv)) {
        int status = ctx->cmd->run(ctx, argc, argv);
        tu_progress_end();
        if (status > ctx->status)
            ctx->status = status;
    }
    return finish(ctx);
}
