/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device works as any other, and CUDA without its plug-in fails with its own code. */
#include <tensorutils/device.h>

#include "../tap.h"

int main(void)
{
    const struct tu_device *d = NULL;
    struct tu_device_info info;
    struct tu_event *a = NULL, *b = NULL;
    struct tu_queue *q = NULL;
    struct tu_err err;
    char why[128] = "";
    void *p = NULL;
    double seconds = -1;
    eq_int(tu_device_open(&d, &info, "cpu", NULL, &err), 0, "cpu opens");
    ok(info.memory_bytes > 0 && info.units > 0 && *info.name, "it says what it is");
    eq_int(d->alloc(&p, 64, &err), 0, "memory");
    eq_int(d->queue_new(&q, &err), 0, "a queue");
    eq_int(d->copy(p, "tensor", 7, q, &err), 0, "a copy");
    eq_str(p, "tensor", "arrives");
    eq_int(d->event_new(&a, &err) | d->event_new(&b, &err), 0, "events");
    eq_int(d->event_record(a, q, &err) | d->event_record(b, q, &err), 0, "are recorded");
    eq_int(d->event_seconds(&seconds, a, b, &err), 0, "and subtracted");
    ok(seconds >= 0, "time goes forward");
    d->event_free(a);
    d->event_free(b);
    d->queue_free(q);
    d->free(p);
    eq_int(tu_device_open(&d, &info, "cuda", NULL, &err), TU_EMISSING, "no plug-in, no CUDA");
    eq_int(tu_device_open(&d, &info, "cuda:x", NULL, &err), TU_EUSAGE, "a bad ordinal");
    eq_int(tu_device_open(&d, &info, "tpu", NULL, &err), TU_EUSAGE, "an unknown device");
    eq_int(tu_device_open(&d, &info, "auto", why, &err), 0, "auto falls back");
    ok(d == &tu_device_cpu && strstr(why, "using the CPU"), "and says so: %s", why);
    return tap_done();
}
