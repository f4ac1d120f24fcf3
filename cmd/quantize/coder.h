/* SPDX-License-Identifier: Apache-2.0 */
/* coder.h: one tensor from the input to the target: streamed through its codec, or whole in
 * memory where a method looks at inputs. */
#ifndef QUANTIZE_CODER_H
#define QUANTIZE_CODER_H

#include "quantize/calib.h"
#include "quantize/coded.h"
#include "quantize/fold.h"
#include "quantize/state.h"
#include "quantize/target.h"

struct coder {
    struct tu_ctx *ctx;
    struct input *in;      /* the tensor at hand */
    struct target *target;
    struct fold *fold;     /* or NULL */
    struct state *state;   /* or NULL */
    struct tu_measure *measure; /* or NULL */
    const struct tu_device *device; /* for streams; NULL: the CPU */
};

/* *replaced: elements that were not finite. */
TU_MUST int coder_run(struct coder *c, struct task *t, uint64_t *replaced, struct tu_err *err);
/* Codes that were collected, as numbers in the input's spool: the tensor at hand is then
 * coded->tensor. */
TU_MUST int coder_unpack(struct input *in, struct coded *coded, const struct tu_job *job,
                         struct tu_err *err);

/* For methods of their own files: memory for the sides; the tensor at hand as floats
 * (tu_free); codes and sides to the target, under x's name and metadata. */
TU_MUST int coder_sides(const struct tu_coding *c, void **side, struct tu_err *err);
void coder_free_sides(const struct tu_coding *c, void **side);
TU_MUST int coder_load(struct input *in, float **out, uint64_t *n, struct tu_err *err);
TU_MUST int coder_emit(struct coder *c, struct task *t, const struct tu_tensor *x,
                       const void *code, void *const *side, struct tu_err *err);

#endif
