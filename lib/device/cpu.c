/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c: the CPU as a device: memory is memory, a queue runs at once, an event is a
 * clock reading. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tensorutils/device.h>

/* Work is done when it is asked for: there is nothing to wait for. */
struct tu_queue {
    char unused;
};

struct tu_event {
    double at;
};

static int cpu_count(unsigned *out, struct tu_err *err)
{
    (void)err;
    *out = 1;
    return 0;
}

static int cpu_open(unsigned ordinal, struct tu_device_info *info, struct tu_err *err)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (ordinal)
        return tu_fail(err, TU_ENODEV, "cpu:%u: there is one CPU device", ordinal);
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", tu_cpu_model());
    info->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    info->units = tu_cpu_count();
    return 0;
}

static int cpu_alloc(void **p, uint64_t bytes, struct tu_err *err)
{
    if (bytes > SIZE_MAX)
        return tu_fail(err, TU_ENOMEM, "out of memory");
    *p = tu_alloc((size_t)bytes, 1, err);
    return *p ? 0 : TU_ENOMEM;
}

static int cpu_copy(void *dst, const void *src, uint64_t bytes, struct tu_queue *q,
                    struct tu_err *err)
{
    (void)q;
    (void)err;
    memmove(dst, src, (size_t)bytes);
    return 0;
}

static int queue_new(struct tu_queue **out, struct tu_err *err)
{
    *out = tu_calloc(1, sizeof **out, err);
    return *out ? 0 : TU_ENOMEM;
}

static void queue_free(struct tu_queue *q)
{
    tu_free(q);
}

static int queue_wait(struct tu_queue *q, struct tu_err *err)
{
    (void)q;
    (void)err;
    return 0;
}

static int event_new(struct tu_event **out, struct tu_err *err)
{
    *out = tu_calloc(1, sizeof **out, err);
    return *out ? 0 : TU_ENOMEM;
}

static void event_free(struct tu_event *e)
{
    tu_free(e);
}

static int event_record(struct tu_event *e, struct tu_queue *q, struct tu_err *err)
{
    (void)q;
    (void)err;
    e->at = tu_clock();
    return 0;
}

static int event_seconds(double *out, struct tu_event *a, struct tu_event *b, struct tu_err *err)
{
    (void)err;
    *out = b->at - a->at;
    return 0;
}

const struct tu_device tu_device_cpu = {
    .name = "cpu",
    .help = "this machine's CPUs",
    .count = cpu_count,
    .open = cpu_open,
    .alloc = cpu_alloc,
    .alloc_shared = cpu_alloc,
    .free = tu_free,
    .copy = cpu_copy,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .queue_wait = queue_wait,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_seconds = event_seconds,
};
