/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: what the files of the plug-in share: the kernels by name, the device's row, the
 * host's functions. */
#ifndef TENSORUTILS_DEVICE_CUDA_TABLE_H
#define TENSORUTILS_DEVICE_CUDA_TABLE_H

#include <stdint.h>
#include "tensorutils/device.h"
#include "tensorutils/device/kernels.h"

TU_BEGIN

/* A name that tu_device.launch knows; families are NULL-ended. */
struct tui_kernel {
    const char *name;
    int (*launch)(const void *args, struct tu_queue *q, struct tu_err *err);
};
#define TUI_KERNEL_FAMILIES(X) X(ggml) X(small) X(book) X(pack) X(planes) X(move) X(reduce) \
    X(attn) X(attn_mma) X(scan)
#define TUI_KERNEL_FAMILY(name) extern const struct tui_kernel tui_kernels_##name[];
TUI_KERNEL_FAMILIES(TUI_KERNEL_FAMILY)

/* plugin.c */
int tui_launch(const char *kernel, const void *args, struct tu_queue *q,
               struct tu_err *err);
bool tui_has_kernel(const char *kernel);
int tui_fail(struct tu_err *err, int code, const char *fmt, ...) TU_PRINTF(3, 4);
extern const struct tu_host *tui_host;

/* The row, filled by start: CUDA's (device.cu), or the one for tests (emulate.c). */
extern struct tu_device tui_device_here;
int tui_device_start(struct tu_err *err);

TU_END

#endif
