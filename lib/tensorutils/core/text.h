/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: small texts: UTF-8, escaping for a screen, numbers, sizes, shapes, NAME:KEY=VALUE. */
#ifndef TENSORUTILS_CORE_TEXT_H
#define TENSORUTILS_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "buf.h"
#include "err.h"

TU_BEGIN

/* Byte offset of the first ill-formed UTF-8 sequence (Unicode 15, table 3-7), n if none. */
TU_API size_t tu_utf8_check(const char *s, size_t n);
/* Offset of the first byte that a tensor name may not hold (control bytes, DEL, bad UTF-8). */
TU_API size_t tu_name_check(const char *s, size_t n);
/* Append s with control and ill-formed bytes as \xNN and backslash as \\: one line, printable. */
TU_API TU_MUST int tu_text_escape(struct tu_buf *out, const char *s, size_t n,
                                  struct tu_err *err);
/* Cut to fit an error message: at most 80 bytes, "…" in the middle, controls as '?'. out[88]. */
TU_API const char *tu_text_short(const char *s, size_t n, char out[88]);

/* Whole-string parsers; each fails with TU_EUSAGE naming the text and what is expected. */
TU_API TU_MUST int tu_parse_u64(const char *s, uint64_t *out, struct tu_err *err);
TU_API TU_MUST int tu_parse_i64(const char *s, int64_t *out, struct tu_err *err);
TU_API TU_MUST int tu_parse_double(const char *s, double *out, struct tu_err *err);
/* Digits, then nothing or K M G T P E (powers of 1024), KiB …, KB … (powers of 1000). */
TU_API TU_MUST int tu_parse_size(const char *s, uint64_t *out, struct tu_err *err);
/* A number with ns us ms s min h (none: s); nanoseconds out. */
TU_API TU_MUST int tu_parse_duration(const char *s, uint64_t *ns, struct tu_err *err);
/* "2,3,4" or "2x3x4"; "" and "-" are the empty shape. At most max dimensions, each < 2^63. */
TU_API TU_MUST int tu_parse_shape(const char *s, uint64_t *dim, unsigned *rank, unsigned max,
                                  struct tu_err *err);
/* "2x3x4"; "-" for rank 0. */
TU_API TU_MUST int tu_shape_text(struct tu_buf *out, const uint64_t *dim, unsigned rank,
                                 struct tu_err *err);
/* "1.5 GiB", "312 B": three significant digits. out[16]. */
TU_API const char *tu_size_text(uint64_t bytes, char out[16]);
/* Damerau-Levenshtein distance, cut off above `max`: for "did you mean". */
TU_API unsigned tu_text_distance(const char *a, const char *b, unsigned max);
/* Append "; did you mean 'X' or 'Y'?" to *err if names are like the word: in another case,
 * mistyped, or one begins with the other; of equally near ones the first four. next(ctx, i) gives
 * the names and NULL past the end; `before` ("--") stands before each. False: none is like it. */
TU_API bool tu_suggest(struct tu_err *err, const char *word, const char *before,
                       const char *(*next)(const void *ctx, size_t i), const void *ctx);

/* NAME[:KEY=VALUE,…]: layouts, codecs, algorithms, topologies. A VALUE holds no comma; lists
 * inside it use '+', shapes 'x'. */
struct tu_spec_key {
    char *key;
    char *value; /* "" when written without '=' */
};
struct tu_spec {
    char *name;
    size_t n;
    struct tu_spec_key *key;
};
TU_API TU_MUST int tu_spec_parse(struct tu_spec *out, const char *text, struct tu_err *err);
TU_API void tu_spec_release(struct tu_spec *s);
/* As it was written, appended. */
TU_API TU_MUST int tu_spec_print(const struct tu_spec *s, struct tu_buf *out, struct tu_err *err);
/* The value of key, NULL when absent. Borrowed. */
TU_API const char *tu_spec_get(const struct tu_spec *s, const char *key);
/* As above, parsed; `fallback` when absent. */
TU_API TU_MUST int tu_spec_u64(const struct tu_spec *s, const char *key, uint64_t fallback,
                               uint64_t *out, struct tu_err *err);
/* Every key must be one of `known` (NULL-ended), else TU_EUSAGE with the nearest one and all. */
TU_API TU_MUST int tu_spec_check(const struct tu_spec *s, const char *const *known,
                                 struct tu_err *err);

TU_END

#endif
