/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: mixers on a device: operands there, its kernels, results back. */
#ifndef ATTN_GPU_H
#define ATTN_GPU_H

#include <tensorutils/device.h>
#include "attn/mix.h"

/* Softmax attention, bound and aimed; forward also when only the backward is asked for
 * and o and lse are not given. Errors: TU_EUNSUP, in words, for what the kernels do not
 * do: the CPU does it then. */
int tui_gpu_softmax(const struct tu_attn *a, const struct tu_mixer_args *m, bool forward,
                    struct tu_err *err);
/* Linear attention and GLA, forward; decay: of each head, or NULL. */
int tui_gpu_scan(const struct tu_mixer_args *m, const char *kernel, const float *decay,
                 struct tu_err *err);
/* Ran a device's attempt? Else the caller goes on on the CPU, and m->note says why. */
bool tui_gpu_done(const struct tu_mixer_args *m, int *code, struct tu_err *err);

#endif
