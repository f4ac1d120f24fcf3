/* SPDX-License-Identifier: Apache-2.0 */
/* select.h: the options that choose tensors by name, the same in every command that
 * has them. */
#ifndef COMMON_SELECT_H
#define COMMON_SELECT_H

#include <tensorutils/stream.h>
#include "common/main.h"

struct tu_selection {
    struct tu_list select, regex, exclude, exclude_regex; /* const char * */
};

/* Rows for an option table. */
#define TU_SELECT_OPTIONS(s)                                                            \
    {'s', "select", "GLOB", "only tensors whose whole name matches; repeatable",        \
     TU_OPT_STRING, &(s).select, NULL, TU_OPT_EACH},                                    \
    {'e', "regex", "REGEX", "only tensors whose name begins with a match; repeatable",  \
     TU_OPT_STRING, &(s).regex, NULL, TU_OPT_EACH},                                     \
    {'x', "exclude", "GLOB", "not tensors whose whole name matches; repeatable",        \
     TU_OPT_STRING, &(s).exclude, NULL, TU_OPT_EACH},                                   \
    {'X', "exclude-regex", "REGEX",                                                     \
     "not tensors whose name begins with a match; repeatable", TU_OPT_STRING,           \
     &(s).exclude_regex, NULL, TU_OPT_EACH}

/* Add them to an edit. */
TU_MUST int tu_selection_apply(const struct tu_selection *s, struct tu_edit *e,
                               struct tu_err *err);
/* Warn of each that chose nothing; the edit's first rule of them is number `first`. */
void tu_selection_warn(struct tu_ctx *ctx, const struct tu_selection *s,
                       const struct tu_edit *e, size_t first);

#endif
