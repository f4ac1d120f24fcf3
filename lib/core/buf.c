/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c: a byte buffer that doubles, up to a hard maximum. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "mem_hook.h"
#include "tensorutils/core/buf.h"
#include "tensorutils/core/mem.h"

#define CAP_FIRST ((size_t)64)

void tu_buf_init(struct tu_buf *b, size_t max)
{
    *b = (struct tu_buf){.max = max};
}

void tu_buf_release(struct tu_buf *b)
{
    tu_free(b->data);
    *b = (struct tu_buf){.max = b->max};
}

void tu_buf_reset(struct tu_buf *b)
{
    b->n = 0;
    if (b->data)
        b->data[0] = '\0';
}

char *tu_buf_take(struct tu_buf *b)
{
    char *data = b->data;
    *b = (struct tu_buf){.max = b->max};
    return data;
}

void *tu_buf_room(struct tu_buf *b, size_t n, struct tu_err *err)
{
    /* One byte is always kept for the NUL. */
    size_t limit = b->max && b->max < PTRDIFF_MAX - 1 ? b->max : PTRDIFF_MAX - 1;
    if (n > limit || b->n > limit - n) {
        tu_fail(err, TU_ELIMIT, "text longer than the limit of %zu bytes", limit);
        return NULL;
    }
    size_t need = b->n + n + 1;
    if (need > b->cap) {
        size_t cap = b->cap < CAP_FIRST / 2 ? CAP_FIRST : b->cap * 2;
        cap = cap < need ? need : cap > limit + 1 ? limit + 1 : cap;
        char *data = tu_realloc(b->data, cap, 1, err);
        if (!data)
            return NULL;
        b->data = data;
        b->cap = cap;
    } else if (tui_mem_refuse(n, err)) {
        return NULL;
    }
    return b->data + b->n;
}

int tu_buf_add(struct tu_buf *b, const void *p, size_t n, struct tu_err *err)
{
    struct tu_err own;
    err = err ? err : &own;
    char *to = tu_buf_room(b, n, err);
    if (!to)
        return err->code;
    if (n)
        memcpy(to, p, n);
    to[n] = '\0';
    b->n += n;
    return 0;
}

int tu_buf_text(struct tu_buf *b, const char *s, struct tu_err *err)
{
    return tu_buf_add(b, s, strlen(s), err);
}

int tu_buf_printf(struct tu_buf *b, struct tu_err *err, const char *fmt, ...)
{
    struct tu_err own;
    err = err ? err : &own;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int code = 0;
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *to = NULL;
    if (n < 0) {
        code = tu_fail(err, TU_EBUG, "cannot format '%s'", fmt);
    } else if (!(to = tu_buf_room(b, (size_t)n, err))) {
        code = err->code;
    } else {
        vsnprintf(to, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    va_end(ap);
    return code;
}
