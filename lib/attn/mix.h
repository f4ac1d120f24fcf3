/* SPDX-License-Identifier: Apache-2.0 */
/* mix.h: the rows of tu_mixers, one file each: mix_*.c. */
#ifndef ATTN_MIX_H
#define ATTN_MIX_H

#include "attn/problem.h"

extern const struct tu_mixer tui_mix_softmax, tui_mix_linear, tui_mix_gla, tui_mix_ssd,
    tui_mix_mamba;

#endif
