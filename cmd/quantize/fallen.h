/* SPDX-License-Identifier: Apache-2.0 */
/* fallen.h: tensors that got another type than was wanted, told once for each kind and
 * not for each tensor. */
#ifndef QUANTIZE_FALLEN_H
#define QUANTIZE_FALLEN_H

#include "quantize/quantize.h"

struct fallen {
    struct fallen_kind *kind;
    size_t n, cap;
};

/* The choice for `name`, if it is a fallback; -v tells it at once. */
TU_MUST int fallen_add(struct fallen *f, struct tu_ctx *ctx, const struct tu_choice *c,
                       const char *name, struct tu_err *err);
/* A warning for each kind. The list is empty again. */
void fallen_tell(struct fallen *f, struct tu_ctx *ctx, const char *path);

#endif
