/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h: a growable byte buffer with a hard maximum.
 *
 * It grows as bytes really arrive, never by what a header claims. */
#ifndef TENSORUTILS_CORE_BUF_H
#define TENSORUTILS_CORE_BUF_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

struct tu_buf {
    char *data; /* n bytes and, after any call that adds, a NUL that does not count */
    size_t n;
    size_t cap;
    size_t max; /* 0 means no limit */
};

/* {0} is a valid empty buffer without a limit. */
TU_API void tu_buf_init(struct tu_buf *b, size_t max);
TU_API void tu_buf_release(struct tu_buf *b);
TU_API void tu_buf_reset(struct tu_buf *b);
/* Make room for n more bytes and return where they go (then add to b->n), NULL on error:
 * TU_ELIMIT over the maximum, TU_ENOMEM. */
TU_API TU_MUST void *tu_buf_room(struct tu_buf *b, size_t n, struct tu_err *err);
TU_API TU_MUST int tu_buf_add(struct tu_buf *b, const void *p, size_t n, struct tu_err *err);
TU_API TU_MUST int tu_buf_text(struct tu_buf *b, const char *s, struct tu_err *err);
TU_API TU_MUST int tu_buf_printf(struct tu_buf *b, struct tu_err *err, const char *fmt, ...)
    TU_PRINTF(3, 4);
/* Hand the bytes to the caller (tu_free) and empty the buffer; NULL if nothing was ever added. */
TU_API char *tu_buf_take(struct tu_buf *b);

TU_END

#endif
