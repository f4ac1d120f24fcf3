/* SPDX-License-Identifier: Apache-2.0 */
/* names.h: a table from texts to numbers that grows as it is filled.
 *
 * Hashed by XXH3 under a secret of the process, so that names in a hostile file cannot be made to
 * collide. Nothing may depend on its inner order. */
#ifndef TENSORUTILS_CORE_NAMES_H
#define TENSORUTILS_CORE_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

#define TU_NAMES_NONE UINT32_MAX

struct tu_names;
TU_API TU_MUST struct tu_names *tu_names_new(struct tu_err *err);
TU_API void tu_names_free(struct tu_names *t);
/* The number of a text, TU_NAMES_NONE if it is not there. */
TU_API uint32_t tu_names_get(const struct tu_names *t, const char *text);
/* Add a text (borrowed, and not there yet) with its number. */
TU_API TU_MUST int tu_names_put(struct tu_names *t, const char *text, uint32_t number,
                                struct tu_err *err);

TU_END

#endif
