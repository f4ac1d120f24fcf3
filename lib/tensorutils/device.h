/* SPDX-License-Identifier: Apache-2.0 */
/* device.h: memory, queues and events of an accelerator behind one table.
 *
 * The interface only: the CPU row is here, the CUDA row is a plug-in ("cuda"). Kernels
 * belong to their rooms. May change before 1.0. */
#ifndef TENSORUTILS_DEVICE_H
#define TENSORUTILS_DEVICE_H

#include "core.h"

TU_BEGIN

struct tu_queue; /* an ordered sequence of work: a CUDA stream */
struct tu_event;

struct tu_device_info {
    char name[64];
    uint64_t memory_bytes;
    double memory_gbs; /* theoretical, 0 unknown */
    unsigned units;    /* multiprocessors or CPUs */
    unsigned arch;     /* 80, 90, 100; 0 for the CPU */
};

/* A row; what a plug-in of kind "device" gives. Functions return 0 or a TU_E code. A
 * NULL queue is the device's own: work in it is done when the call returns, or, of
 * launch, when the next copy in it returns. */
struct tu_device {
    const char *name, *help;
    int (*count)(unsigned *out, struct tu_err *err);
    int (*open)(unsigned ordinal, struct tu_device_info *info, struct tu_err *err);
    int (*alloc)(void **p, uint64_t bytes, struct tu_err *err);
    /* Memory that the host reaches too; freed like the other. */
    int (*alloc_shared)(void **p, uint64_t bytes, struct tu_err *err);
    void (*free)(void *p);
    int (*copy)(void *dst, const void *src, uint64_t bytes, struct tu_queue *q,
                struct tu_err *err); /* any direction */
    int (*queue_new)(struct tu_queue **out, struct tu_err *err);
    void (*queue_free)(struct tu_queue *q);
    int (*queue_wait)(struct tu_queue *q, struct tu_err *err);
    int (*event_new)(struct tu_event **out, struct tu_err *err);
    void (*event_free)(struct tu_event *e);
    int (*event_record)(struct tu_event *e, struct tu_queue *q, struct tu_err *err);
    int (*event_seconds)(double *out, struct tu_event *a, struct tu_event *b,
                         struct tu_err *err);
    /* A kernel by name (device/kernels.h) and its family's argument struct, which is
     * copied. NULL on the CPU. Errors: TU_EUNSUP for what the kernel does not do. */
    bool (*has)(const char *kernel);
    int (*launch)(const char *kernel, const void *args, struct tu_queue *q,
                  struct tu_err *err);
};

TU_API extern const struct tu_device tu_device_cpu;
/* "cpu", "cuda", "cuda:1", "auto". Errors: TU_EUSAGE unknown; TU_ENODEV no such device;
 * TU_EMISSING without the plug-in. With "auto" the CPU is the fallback and *why tells
 * (may be NULL). */
TU_API TU_MUST int tu_device_open(const struct tu_device **out,
                                  struct tu_device_info *info, const char *text,
                                  char why[128], struct tu_err *err);

TU_END

#endif
