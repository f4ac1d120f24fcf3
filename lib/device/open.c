/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: "cpu", "cuda", "cuda:1", "auto" to a device; CUDA is a plug-in that may not be there. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensorutils/device.h>

static int open_cuda(const struct tu_device **out, struct tu_device_info *info, unsigned ordinal,
                     struct tu_err *err)
{
    const struct tu_plugin *p = NULL;
    unsigned count = 0;
    int rc = tu_plugin_load(&p, "cuda", err);
    if (rc)
        return rc;
    const struct tu_device *d = p->table;
    rc = d->count(&count, err);
    if (!rc && ordinal >= count)
        rc = tu_fail(err, TU_ENODEV, "cuda:%u: no such device (%u found)", ordinal, count);
    if (!rc)
        rc = d->open(ordinal, info, err);
    if (!rc)
        *out = d;
    return rc;
}

int tu_device_open(const struct tu_device **out, struct tu_device_info *info, const char *text,
                   char why[128], struct tu_err *err)
{
    unsigned long ordinal = 0;
    struct tu_err mine = {0};
    if (!strcmp(text, "cpu")) {
        *out = &tu_device_cpu;
        return tu_device_cpu.open(0, info, err);
    }
    if (!strcmp(text, "auto")) {
        if (!open_cuda(out, info, 0, &mine))
            return 0;
        if (why)
            snprintf(why, 128, "using the CPU: %.100s", mine.msg);
        *out = &tu_device_cpu;
        return tu_device_cpu.open(0, info, err);
    }
    if (!strncmp(text, "cuda:", 5)) {
        char *end;
        ordinal = strtoul(text + 5, &end, 10);
        if (text[5] < '0' || text[5] > '9' || *end || ordinal > 1023)
            return tu_fail(err, TU_EUSAGE, "'%.40s': expected cuda:N", text);
    } else if (strcmp(text, "cuda")) {
        return tu_fail(err, TU_EUSAGE, "'%.40s': expected cpu, cuda, cuda:N or auto", text);
    }
    return open_cuda(out, info, (unsigned)ordinal, err);
}
