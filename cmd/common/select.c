/* SPDX-License-Identifier: Apache-2.0 */
/* select.c: the selection options become rules of an edit. */
#include "common/select.h"

typedef int (*add_fn)(struct tu_edit *e, const char *pattern, enum tu_pattern_kind kind,
                      struct tu_err *err);

int tu_selection_apply(const struct tu_selection *s, struct tu_edit *e,
                       struct tu_err *err)
{
    const struct {
        const char *name;
        const struct tu_list *list;
        add_fn add;
        enum tu_pattern_kind kind;
    } sets[] = {
        {"select", &s->select, tu_edit_keep, TU_PATTERN_GLOB},
        {"regex", &s->regex, tu_edit_keep, TU_PATTERN_REGEX},
        {"exclude", &s->exclude, tu_edit_drop, TU_PATTERN_GLOB},
        {"exclude-regex", &s->exclude_regex, tu_edit_drop, TU_PATTERN_REGEX},
    };
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
        for (size_t i = 0; i < sets[k].list->n; i++) {
            const char *pattern = TU_LIST(sets[k].list, const char *)[i];
            int rc = sets[k].add(e, pattern, sets[k].kind, err);
            if (rc) {
                tu_err_prefix(err, "--%s", sets[k].name);
                return rc;
            }
        }
    return 0;
}
