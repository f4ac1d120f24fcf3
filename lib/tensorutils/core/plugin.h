/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: code that needs a library not everyone has (CUDA, NCCL, MPI, LAPACK), loaded late.
 *
 * A plug-in is PREFIX/lib/tensorutils/libtensorutils-NAME.so beside the command's ../lib. It
 * exports one symbol, `tu_plugin`, and is handed a table of host functions: it never links
 * libtensorutils, so there is one copy of everything. */
#ifndef TENSORUTILS_CORE_PLUGIN_H
#define TENSORUTILS_CORE_PLUGIN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

#define TU_PLUGIN_ABI 1u
#define TU_PLUGIN_SYMBOL "tu_plugin"

/* What the host lends. */
struct tu_host {
    uint32_t abi;
    void *(*alloc)(size_t count, size_t size, struct tu_err *err);
    void (*free)(void *p);
    int (*vfail)(struct tu_err *err, int code, const char *fmt, va_list ap);
    double (*clock)(void);
};

/* What the plug-in gives: a table of the kind that its users know: "device" is a struct
 * tu_device, "transport" a struct tu_transport. */
struct tu_plugin {
    uint32_t abi;         /* TU_PLUGIN_ABI, else it is refused */
    const char *name;     /* as the file */
    const char *kind;     /* "device", "transport", "lapack" */
    const char *version;  /* of what it stands on, for --version */
    int (*init)(const struct tu_host *host, struct tu_err *err);
    const void *table;
};

/* Folders to look in, set once at start: NULL-ended, copied. */
TU_API TU_MUST int tu_plugin_path(const char *const *folder, struct tu_err *err);
/* Load and start NAME, or return the one loaded before. Errors: TU_EMISSING naming the package that
 * brings it; TU_EVERSION for another abi. */
TU_API TU_MUST int tu_plugin_load(const struct tu_plugin **out, const char *name,
                                  struct tu_err *err);
/* Names of the plug-ins in the folders, one per call by index; NULL past the end. Not
 * loaded. */
TU_API const char *tu_plugin_name(size_t i);

TU_END

#endif
