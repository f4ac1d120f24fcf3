/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: what --device names, opened once. */
#include <string.h>
#include <tensorutils/device.h>
#include "common/main.h"

int tu_ctx_device(struct tu_ctx *ctx, const struct tu_device **out, struct tu_err *err)
{
    struct tu_device_info info;
    char why[128] = "";
    int rc = tu_device_open(out, &info, ctx->device, why, err);
    if (rc) {
        tu_err_prefix(err, "--device %s", ctx->device);
        return rc;
    }
    if (*why)
        tu_warn(ctx, "%s", why);
    if (*out == &tu_device_cpu)
        *out = NULL;
    else
        tu_note(ctx, 1, "%s: %s", ctx->device, info.name);
    return 0;
}
