/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.h: PCRE2 with limits on matching, and globs.
 *
 * A regular expression matches from the start of the subject, as Python's re.match: the end is
 * free unless the pattern says $. A glob (* ? [..] **) matches the whole subject; * does not stop
 * at dots or slashes, since tensor names are flat. */
#ifndef TENSORUTILS_CORE_PATTERN_H
#define TENSORUTILS_CORE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include "attr.h"
#include "buf.h"
#include "err.h"

TU_BEGIN

enum tu_pattern_kind { TU_PATTERN_REGEX, TU_PATTERN_GLOB, TU_PATTERN_WHOLE /* regex, both ends */ };

#define TU_PATTERN_GROUPS 16

struct tu_pattern;

struct tu_match {
    unsigned n; /* groups, the whole match (0) included */
    struct { size_t begin, end; } group[TU_PATTERN_GROUPS]; /* byte range; SIZE_MAX: not set */
};

/* Errors: TU_EUSAGE naming the pattern and the place in it, TU_ENOMEM. */
TU_API TU_MUST int tu_pattern_new(struct tu_pattern **out, const char *text,
                                  enum tu_pattern_kind kind, struct tu_err *err);
TU_API void tu_pattern_free(struct tu_pattern *p);
TU_API const char *tu_pattern_text(const struct tu_pattern *p);
/* *yes tells; m may be NULL. Errors: TU_ELIMIT when matching passes the step limit. */
TU_API TU_MUST int tu_pattern_match(const struct tu_pattern *p, const char *subject, size_t n,
                                    struct tu_match *m, bool *yes, struct tu_err *err);
/* Append `replacement` with $1 … $9, ${10} and $$ filled from a match. Errors: TU_EUSAGE for a
 * group that the pattern lacks. */
TU_API TU_MUST int tu_pattern_expand(struct tu_buf *out, const char *replacement,
                                     const char *subject, const struct tu_match *m,
                                     struct tu_err *err);

TU_END

#endif
