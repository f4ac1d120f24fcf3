/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: runs of a coding on a device that has its kernel, for the driver (run.c). */
#ifndef TENSORUTILS_QUANT_GPU_H
#define TENSORUTILS_QUANT_GPU_H

#include "tensorutils/device.h"
#include "tensorutils/quant.h"

/* One coding on one device; its runs take turns. */
struct tui_gpu;

/* *out is NULL where the device has no kernel for the coding. side: of the whole tensor,
 * started. */
int tui_gpu_new(struct tui_gpu **out, const struct tu_device *d, const struct tu_coding *c,
                bool encode, void *const *side, struct tu_err *err);
void tui_gpu_free(struct tui_gpu *g);
/* Memory for runs of at most n elements. */
int tui_gpu_room(struct tui_gpu *g, uint64_t n, struct tu_err *err);
/* As the codec's encode and decode; side: the first one, of this run. */
int tui_gpu_encode(struct tui_gpu *g, uint64_t first, size_t n, const float *x, void *code,
                   void *side, struct tu_err *err);
int tui_gpu_decode(struct tui_gpu *g, uint64_t first, size_t n, const void *code,
                   const void *side, float *x, struct tu_err *err);

#endif
