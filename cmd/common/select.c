/* SPDX-License-Identifier: Apache-2.0 */
/* select.c: the selection options become rules of an edit. */
#include "common/select.h"

typedef int (*add_fn)(struct tu_edit *e, const char *pattern, enum tu_pattern_kind kind,
                      struct tu_err *err);

#define SETS 4

struct set {
    const char *name;
    const struct tu_list *list;
    add_fn add;
    enum tu_pattern_kind kind;
};

static void sets_of(const struct tu_selection *s, struct set set[SETS])
{
    set[0] = (struct set){"select", &s->select, tu_edit_keep, TU_PATTERN_GLOB};
    set[1] = (struct set){"regex", &s->regex, tu_edit_keep, TU_PATTERN_REGEX};
    set[2] = (struct set){"exclude", &s->exclude, tu_edit_drop, TU_PATTERN_GLOB};
    set[3] = (struct set){"exclude-regex", &s->exclude_regex, tu_edit_drop, TU_PATTERN_REGEX};
}

int tu_selection_apply(const struct tu_selection *s, struct tu_edit *e,
                       struct tu_err *err)
{
    struct set set[SETS];
    sets_of(s, set);
    for (size_t k = 0; k < SETS; k++)
        for (size_t i = 0; i < set[k].list->n; i++) {
            const char *pattern = TU_LIST(set[k].list, const char *)[i];
            int rc = set[k].add(e, pattern, set[k].kind, err);
            if (rc) {
                tu_err_prefix(err, "--%s", set[k].name);
                return rc;
            }
        }
    return 0;
}

void tu_selection_warn(struct tu_ctx *ctx, const struct tu_selection *s,
                       const struct tu_edit *e, size_t first)
{
    struct set set[SETS];
    sets_of(s, set);
    for (size_t k = 0; k < SETS; k++)
        for (size_t i = 0; i < set[k].list->n; i++, first++)
            if (set[k].add == tu_edit_keep && tu_edit_idle(e, first))
                tu_warn(ctx, "--%s '%.80s' matches no tensor", set[k].name,
                        TU_LIST(set[k].list, const char *)[i]);
}
