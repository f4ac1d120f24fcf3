/* SPDX-License-Identifier: Apache-2.0 */
/* opt_type.h: what opt.c asks about the type of an option. */
#ifndef COMMON_OPT_TYPE_H
#define COMMON_OPT_TYPE_H

#include "common/opt.h"

struct tu_opt_row {
    const char *name; /* in --dump-options */
    const char *arg;  /* in help, where the option gives no word of its own */
    size_t size;      /* of one value */
    /* NULL: the type takes no value. A previous value at out is released. */
    int (*read)(const struct tu_opt *o, const char *text, void *out, struct tu_err *err);
};

const struct tu_opt_row *tu_opt_row(const struct tu_opt *o);

#endif
