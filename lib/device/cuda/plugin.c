/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c: the plug-in's one symbol, and its kernels by name. */
#include <string.h>
#include "table.h"

const struct tu_host *tui_host;

int tui_fail(struct tu_err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    code = tui_host->vfail(err, code, fmt, ap);
    va_end(ap);
    return code;
}

static const struct tui_kernel *find(const char *name)
{
#define FAMILY(id) tui_kernels_##id,
    static const struct tui_kernel *const family[] = {TUI_KERNEL_FAMILIES(FAMILY) NULL};
    for (unsigned f = 0; family[f]; f++)
        for (const struct tui_kernel *k = family[f]; k->name; k++)
            if (strcmp(k->name, name) == 0)
                return k;
    return NULL;
}

bool tui_has_kernel(const char *kernel)
{
    return find(kernel) != NULL;
}

int tui_launch(const char *kernel, const void *args, struct tu_queue *q, struct tu_err *err)
{
    const struct tui_kernel *k = find(kernel);
    return k ? k->launch(args, q, err)
             : tui_fail(err, TU_EUNSUP, "cuda: there is no kernel '%s'", kernel);
}

static int init(const struct tu_host *host, struct tu_err *err)
{
    tui_host = host;
    return tui_device_start(err);
}

TU_API extern const struct tu_plugin tu_plugin;
const struct tu_plugin tu_plugin = {
    .abi = TU_PLUGIN_ABI,
    .name = "cuda",
    .kind = "device",
    .version = "13",
    .init = init,
    .table = &tui_device_here,
};
