/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: errors, warnings and notes: one line, one write, nothing a terminal would
 * obey. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/front.h"

/* Control bytes, C1 controls in UTF-8 included, become '?'. */
static void tame(char *s)
{
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        if (*p < 0x20 || *p == 0x7F)
            *p = '?';
        else if (*p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0)
            p[0] = p[1] = '?';
    }
}

void tu_message(const struct tu_ctx *ctx, const char *kind, const char *text)
{
    char line[1024];
    int head = snprintf(line, sizeof line, "%s", tu_progress_erase());
    snprintf(line + head, sizeof line - (size_t)head - 1, "%s: %s%s", ctx->top->name,
             kind, text);
    tame(line + head);
    size_t n = strlen(line);
    line[n++] = '\n';
    for (size_t done = 0; done < n;) {
        ssize_t w = write(STDERR_FILENO, line + done, n - done);
        if (w <= 0)
            return; /* there is nobody left to tell */
        done += (size_t)w;
    }
}

static void raise_status(struct tu_ctx *ctx, int status)
{
    if (status > ctx->status)
        ctx->status = status;
}

int tu_error(struct tu_ctx *ctx, const struct tu_err *err)
{
    int status = tu_err_status(err->code);
    if (err->code == TU_EIO && err->sys == EPIPE)
        ctx->pipe_closed = true; /* the reader has seen enough: no message */
    else if (err->code == TU_EUSAGE)
        return tu_usage(ctx, "%s", err->msg);
    else
        tu_message(ctx, "", err->msg);
    raise_status(ctx, status);
    return status;
}

int tu_errorf(struct tu_ctx *ctx, int code, const char *fmt, ...)
{
    struct tu_err err = {.code = code};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err.msg, sizeof err.msg, fmt, ap);
    va_end(ap);
    return tu_error(ctx, &err);
}

int tu_usage(struct tu_ctx *ctx, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tu_message(ctx, "", text);
    bool sub = ctx->cmd != ctx->top;
    snprintf(text, sizeof text, "Try '%s%s%s --help' for more information.\n",
             ctx->top->name, sub ? " " : "", sub ? ctx->cmd->name : "");
    ssize_t w = write(STDERR_FILENO, text, strlen(text));
    (void)w;
    raise_status(ctx, TU_STATUS_USAGE);
    return TU_STATUS_USAGE;
}

void tu_warn(struct tu_ctx *ctx, const char *fmt, ...)
{
    char text[512];
    if (ctx->quiet)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tu_message(ctx, "warning: ", text);
}

void tu_note(struct tu_ctx *ctx, unsigned level, const char *fmt, ...)
{
    char text[512];
    if (ctx->verbose < level || (ctx->quiet && !ctx->verbose))
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tu_message(ctx, "", text);
}
