/* SPDX-License-Identifier: Apache-2.0 */
/* map.h: a name map after parsing; map_parse.c makes it, map.c uses it. */
#ifndef TU_MODEL_MAP_H
#define TU_MODEL_MAP_H

#include <tensorutils/model.h>

enum {
    TUI_IF_GATED = 1 << 0,
    TUI_IF_PLAIN = 1 << 1,
    TUI_IF_TIED = 1 << 2,
    TUI_IF_UNTIED = 1 << 3,
    TUI_IF_MOE = 1 << 4,
    TUI_IF_DENSE = 1 << 5,
    TUI_IF_LATENT = 1 << 6,
    TUI_IF_FULL = 1 << 7,
    TUI_IF_MTP = 1 << 8,
};

struct tui_role {
    char *target; /* with $1 … $9 */
    struct tu_pattern
        *inverse; /* matches the role; NULL where the line is never written */
    unsigned captures;
    unsigned char order[9]; /* capture i of inverse is $order[i] */
};

struct tui_line {
    struct tu_pattern *pattern;
    char *prefix;   /* literal beginning of every name that matches */
    size_t literal; /* its length */
    unsigned transform, cond;
    unsigned roles;
    struct tui_role role[TU_MAP_ROLES];
    char *templ; /* name with \1 DIGIT for captures; NULL: cannot be written */
    unsigned layer_group, expert_group, mtp_group; /* of $n behind "layers." and so on */
};

struct tu_map {
    char *name;
    struct tui_line *line;
    size_t n, cap;
    unsigned facts; /* TUI_IF_… that hold; 0: not bound, every line counts */
    int64_t layers, dense, mtp; /* of the model; the first `dense` layers have no experts */
};

/* Bits of a TRANSFORM column. */
int tui_map_words(const char *text, size_t n, unsigned *transform, unsigned *cond,
                  struct tu_err *err);

#endif
