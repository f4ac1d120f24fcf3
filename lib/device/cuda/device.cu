/* SPDX-License-Identifier: Apache-2.0 */
/* device.cu: CUDA's runtime as a row of devices: memory, streams, events, launches. */
#include <stdio.h>
#include <string.h>
#include "kernel.h"

struct tu_device tui_device_here;

/* What CUDA says, as one of our codes: no driver and no device are TU_ENODEV. */
static int failed(cudaError_t e, const char *what, struct tu_err *err)
{
    int code = e == cudaErrorMemoryAllocation ? TU_ENOMEM
               : e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice ||
                       e == cudaErrorInvalidDevice
                   ? TU_ENODEV
                   : TU_EIO;
    cudaGetLastError();
    return tui_fail(err, code, "cuda: %s: %s", what, cudaGetErrorString(e));
}

#define CALL(what, call)                                                                 \
    do {                                                                                 \
        cudaError_t e_ = (call);                                                         \
        if (e_ != cudaSuccess)                                                           \
            return failed(e_, what, err);                                                \
    } while (0)

int tui_prepare(const void *kernel, size_t shared, struct tu_err *err)
{
    if (shared > 48 * 1024)
        CALL("shared memory",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)shared));
    return 0;
}

int tui_started(const char *name, struct tu_err *err)
{
    CALL(name, cudaGetLastError());
    return 0;
}

static int device_count(unsigned *out, struct tu_err *err)
{
    int n = 0;
    *out = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver) {
        cudaGetLastError();
        return tui_fail(err, TU_ENODEV, "cuda: no driver, or one that is too old");
    }
    if (e != cudaErrorNoDevice)
        CALL("devices", e);
    *out = (unsigned)n;
    return 0;
}

static int device_open(unsigned ordinal, struct tu_device_info *info, struct tu_err *err)
{
    struct cudaDeviceProp p;
    int clock = 0;
    CALL("device", cudaSetDevice((int)ordinal));
    CALL("device", cudaGetDeviceProperties(&p, (int)ordinal));
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%.63s", p.name);
    info->memory_bytes = p.totalGlobalMem;
    info->units = (unsigned)p.multiProcessorCount;
    info->arch = (unsigned)(10 * p.major + p.minor);
    if (cudaDeviceGetAttribute(&clock, cudaDevAttrMemoryClockRate, (int)ordinal) == cudaSuccess)
        info->memory_gbs = 2e3 * clock * p.memoryBusWidth / 8 / 1e9;
    return 0;
}

static int device_alloc(void **p, uint64_t bytes, struct tu_err *err)
{
    CALL("memory", cudaMalloc(p, bytes ? (size_t)bytes : 1));
    return 0;
}

static int device_alloc_shared(void **p, uint64_t bytes, struct tu_err *err)
{
    CALL("memory", cudaMallocManaged(p, bytes ? (size_t)bytes : 1, cudaMemAttachGlobal));
    return 0;
}

static void device_free(void *p)
{
    cudaFree(p);
}

static int device_copy(void *dst, const void *src, uint64_t bytes, struct tu_queue *q,
                       struct tu_err *err)
{
    if (q)
        CALL("copy", cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDefault,
                                     (cudaStream_t)q));
    else
        CALL("copy", cudaMemcpy(dst, src, (size_t)bytes, cudaMemcpyDefault));
    return 0;
}

static int queue_new(struct tu_queue **out, struct tu_err *err)
{
    CALL("stream", cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking));
    return 0;
}

static void queue_free(struct tu_queue *q)
{
    if (q)
        cudaStreamDestroy((cudaStream_t)q);
}

static int queue_wait(struct tu_queue *q, struct tu_err *err)
{
    CALL("stream", cudaStreamSynchronize((cudaStream_t)q));
    return 0;
}

static int event_new(struct tu_event **out, struct tu_err *err)
{
    CALL("event", cudaEventCreate((cudaEvent_t *)out));
    return 0;
}

static void event_free(struct tu_event *e)
{
    if (e)
        cudaEventDestroy((cudaEvent_t)e);
}

static int event_record(struct tu_event *e, struct tu_queue *q, struct tu_err *err)
{
    CALL("event", cudaEventRecord((cudaEvent_t)e, (cudaStream_t)q));
    return 0;
}

static int event_seconds(double *out, struct tu_event *a, struct tu_event *b,
                         struct tu_err *err)
{
    float ms = 0;
    CALL("event", cudaEventSynchronize((cudaEvent_t)b));
    CALL("event", cudaEventElapsedTime(&ms, (cudaEvent_t)a, (cudaEvent_t)b));
    *out = (double)ms / 1e3;
    return 0;
}

int tui_device_start(struct tu_err *err)
{
    (void)err;
    tui_device_here.name = "cuda";
    tui_device_here.help = "NVIDIA's GPUs";
    tui_device_here.count = device_count;
    tui_device_here.open = device_open;
    tui_device_here.alloc = device_alloc;
    tui_device_here.alloc_shared = device_alloc_shared;
    tui_device_here.free = device_free;
    tui_device_here.copy = device_copy;
    tui_device_here.queue_new = queue_new;
    tui_device_here.queue_free = queue_free;
    tui_device_here.queue_wait = queue_wait;
    tui_device_here.event_new = event_new;
    tui_device_here.event_free = event_free;
    tui_device_here.event_record = event_record;
    tui_device_here.event_seconds = event_seconds;
    tui_device_here.has = tui_has_kernel;
    tui_device_here.launch = tui_launch;
    return 0;
}
