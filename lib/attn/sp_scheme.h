/* SPDX-License-Identifier: Apache-2.0 */
/* sp_scheme.h: the schemes of linear attention beside those of softmax. */
#ifndef ATTN_SP_SCHEME_H
#define ATTN_SP_SCHEME_H

#include <tensorutils/attn.h>

extern const struct tu_sp tui_sp_lasp, tui_sp_lasp2;
int tui_sp_linear(const struct tu_mixer_args *m, struct tu_sp_args *sp,
                  struct tu_err *err);

#endif
