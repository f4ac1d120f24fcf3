/* SPDX-License-Identifier: Apache-2.0 */
/* err.c: error codes as one table, and messages that are always one clean line.
 *
 * Invariants: a message is at most 255 bytes, holds no control byte (they become '?') and
 * is never cut inside a UTF-8 character. Arguments of a message may point into the error
 * being filled. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "tensorutils/core/err.h"

static const struct {
    const char *name;
    int status;
} table[] = {
#define ROW(name, status, help) {"TU_E" #name, status},
    TU_ERR_TABLE(ROW)
#undef ROW
};

#define TABLE_ROWS (sizeof table / sizeof *table)

/* Take the text over into err->msg. */
static void set_message(struct tu_err *err, const char *text)
{
    size_t n = strlen(text);
    if (n >= sizeof err->msg) {
        n = sizeof err->msg - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
            n--;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        err->msg[i] = c < 0x20 || c == 0x7F ? '?' : text[i];
    }
    err->msg[n] = '\0';
}

TU_PRINTF(5, 0)
static int fill(struct tu_err *err, int code, int sys, uint64_t offset, const char *fmt,
                va_list ap)
{
    if (!err)
        return code;
    /* Longer than a message, so that set_message sees where it cuts. */
    char text[sizeof err->msg * 2];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n < 0)
        text[n = 0] = '\0';
    if (sys && (size_t)n + 2 < sizeof text) {
        memcpy(text + n, ": ", 3);
        if (strerror_r(sys, text + n + 2, sizeof text - (size_t)n - 2) != 0)
            snprintf(text + n + 2, sizeof text - (size_t)n - 2, "error %d", sys);
    }
    err->code = code;
    err->sys = sys;
    err->offset = offset;
    set_message(err, text);
    return code;
}

int tu_fail(struct tu_err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, 0, TU_ERR_NO_OFFSET, fmt, ap);
    va_end(ap);
    return code;
}

int tu_fail_at(struct tu_err *err, int code, uint64_t offset, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, 0, offset, fmt, ap);
    va_end(ap);
    return code;
}

int tu_fail_errno(struct tu_err *err, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;
    va_start(ap, fmt);
    fill(err, TU_EIO, sys, TU_ERR_NO_OFFSET, fmt, ap);
    va_end(ap);
    errno = sys;
    return TU_EIO;
}

/* Is the subject already one of those that the message begins with? "a: 'x': text" has "a" and
 * "'x'". Layers that each know a file's name need not know of each other. */
static bool names(const char *msg, const char *subject)
{
    size_t n = strlen(subject);
    for (const char *p = msg; p; p = (p = strstr(p, ": ")) ? p + 2 : NULL)
        if (!strncmp(p, subject, n) && !strncmp(p + n, ": ", 2))
            return true;
    return false;
}

void tu_err_prefix(struct tu_err *err, const char *fmt, ...)
{
    if (!err)
        return;
    char text[sizeof err->msg * 2];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (!strcmp(text, "-"))
        used = (size_t)snprintf(text, sizeof text, "standard input"); /* as an operand */
    if (names(err->msg, text))
        return;
    snprintf(text + used, sizeof text - used, ": %s", err->msg);
    set_message(err, text);
}

const char *tu_err_name(int code)
{
    if (code == TU_OK)
        return "TU_OK";
    size_t i = (size_t)(-1 - (int64_t)code);
    return i < TABLE_ROWS ? table[i].name : "TU_E?";
}

int tu_err_status(int code)
{
    if (code == TU_OK)
        return 0;
    size_t i = (size_t)(-1 - (int64_t)code);
    return i < TABLE_ROWS ? table[i].status : 4;
}
