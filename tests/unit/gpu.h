/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: the device that tests of kernels run on: the plug-in in the folder GPU_PLUGINS, on
 * a machine with a GPU, else the one of fibers that the build makes. */
#ifndef TESTS_UNIT_GPU_H
#define TESTS_UNIT_GPU_H

#include <stdlib.h>
#include <tensorutils/device.h>
#include <tensorutils/device/kernels.h>
#include "tap.h"

static const struct tu_device *gpu;

/* False, with a skipped test, where there is no device. */
static inline bool gpu_open(void)
{
    const char *folder = getenv("GPU_PLUGINS"), *build = getenv("BUILD");
    char path[1024];
    struct tu_device_info info;
    struct tu_err err = {0};
    snprintf(path, sizeof path, "%s/emulated", build ? build : "build/last");
    const char *const list[] = {folder ? folder : path, NULL};
#ifdef __SANITIZE_THREAD__
    if (!folder) {
        tap_skip("kernels", "fibers are more than ThreadSanitizer counts");
        return false;
    }
#endif
    int rc = tu_plugin_path(list, &err);
    if (!rc)
        rc = tu_device_open(&gpu, &info, "cuda", NULL, &err);
    if (rc)
        tap_skip("kernels", err.msg);
    return !rc;
}

/* Is it the CPU in disguise? Sizes are then small. */
static inline bool gpu_emulated(void)
{
    return !getenv("GPU_PLUGINS");
}

/* The threads of the emulated blocks run from the last to the first. */
static inline void gpu_backward(bool yes)
{
    setenv("TENSORUTILS_EMULATE", yes ? "backward" : "forward", 1);
}

/* Memory of the device, with a copy of p, or with all bits set. */
static inline void *gpu_put(const void *p, size_t n)
{
    void *d = NULL;
    unsigned char *ones = p ? NULL : malloc(n);
    if (ones)
        memset(ones, 0xff, n);
    if (gpu->alloc(&d, n, NULL) || gpu->copy(d, p ? p : ones, n, NULL, NULL))
        abort();
    free(ones);
    return d;
}

/* Take it back and release it; p may be NULL. */
static inline void gpu_get(void *p, void *d, size_t n)
{
    if (p && gpu->copy(p, d, n, NULL, NULL))
        abort();
    gpu->free(d);
}

#endif
