/* SPDX-License-Identifier: Apache-2.0 */
/* attn.h: attention and the other sequence mixers, exact, forward and backward.
 *
 * An operator is a row with a plain float64 reference and kernels chosen by CPU bits or device. The
 * pair (O normalised, natural-log LSE) is what all partial results are made of. May change before
 * 1.0. */
#ifndef TENSORUTILS_ATTN_H
#define TENSORUTILS_ATTN_H

#include "core.h"
#include "coll.h"
#include "device.h"
#include "quant.h"

TU_BEGIN

/* A tensor in memory, in a call: C order unless stride says otherwise. */
struct tu_view {
    void *data;
    uint32_t dtype;
    unsigned rank;
    uint64_t dim[4];
    int64_t stride[4]; /* elements */
};

/* Named operands of an operator: "q" "k" "v" "o" "lse" … as DESIGN lists them. */
struct tu_operand {
    const char *name;
    struct tu_view view;
};

struct tu_mixer_args {
    const struct tu_spec *spec; /* causal, window, softcap, scale … */
    size_t n;
    struct tu_operand *operand;
    const struct tu_job *job;
};

/* A row. */
struct tu_mixer {
    const char *name, *help, *source;
    const char *const *in, *const *out; /* operand names, NULL-ended; a trailing '?' is optional */
    /* Shapes and dtypes of the outputs from the inputs; every inconsistency is an error here. */
    int (*infer)(struct tu_mixer_args *a, struct tu_err *err);
    int (*forward_ref)(const struct tu_mixer_args *a, struct tu_err *err);
    int (*backward_ref)(const struct tu_mixer_args *a, struct tu_err *err);
    const struct tu_kernel *forward, *backward;
    double (*flops)(const struct tu_mixer_args *a);
};
TU_API extern const struct tu_mixer *const tu_mixers[];
TU_API const struct tu_mixer *tu_mixer_find(const char *name);

TU_END

#endif
