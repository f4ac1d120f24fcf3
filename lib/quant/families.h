/* SPDX-License-Identifier: Apache-2.0 */
/* families.h: the families of codecs, in the order of --list. A new family is a file that
 * defines its array of rows, and a name here. */
#ifndef TENSORUTILS_QUANT_FAMILIES_H
#define TENSORUTILS_QUANT_FAMILIES_H

#include "tensorutils/quant.h"

#define TUI_CODEC_FAMILIES(X)                                                            \
    X(ggml)                                                                              \
    X(fp8) X(mx) X(nvfp4) X(bfp) X(int) X(bnb) X(scaled) X(hqq) X(sparse) X(bsr)         \
        X(gqsa) X(ternary) X(bipolar) X(fmpq) X(zero) X(topk) X(demo) X(powersgd)        \
        X(lowrank) X(cp)

#define TUI_CODEC_FAMILY(name) extern const struct tu_codec tui_codecs_##name[];
TUI_CODEC_FAMILIES(TUI_CODEC_FAMILY)
#undef TUI_CODEC_FAMILY

#endif
