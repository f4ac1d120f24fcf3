/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h: roles of tensors and llama.cpp's mixtures, for recipe.c. */
#ifndef TENSORUTILS_QUANT_MIXTURE_H
#define TENSORUTILS_QUANT_MIXTURE_H

#include "tensorutils/quant.h"

/* attn_v stands for everything that makes values: fused q, k, v too. */
enum tui_role {
    TUI_OUTPUT,
    TUI_EMBED,
    TUI_ATTN_V,
    TUI_ATTN_K,
    TUI_ATTN_Q,
    TUI_ATTN_OUT,
    TUI_FFN_UP,
    TUI_FFN_GATE,
    TUI_FFN_DOWN,
    TUI_ANY /* of them, or none */
};

struct tui_role_row {
    enum tui_role role;
    const char *name, *pattern; /* a group that is set is the layer */
};
#define TUI_ROLE_ROWS 11
extern const struct tui_role_row tui_roles[TUI_ROLE_ROWS];

struct tui_mixture;

const struct tui_mixture *tui_mixture_find(const char *name);
const char *tui_mixture_name(const struct tui_mixture *m);
const char *tui_mixture_base(const struct tui_mixture *m);
int tui_mixture_file_type(const struct tui_mixture *m);

/* What is known of one tensor. */
struct tui_place {
    enum tui_role role;
    int64_t layer;
    uint64_t cols;
    bool expert; /* one of many, or all in one tensor */
};
/* The mixture's word on it, NULL for its base. */
const char *tui_mixture_choose(const struct tui_mixture *m, const struct tu_recipe_model *model,
                               const struct tui_place *at);

#endif
