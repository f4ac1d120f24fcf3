/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: a tensor of a training step, coded with what the step before has left: error
 * feedback, and changes of activations. */
#ifndef QUANTIZE_STEP_H
#define QUANTIZE_STEP_H

#include "quantize/coder.h"

/* The tensor at hand, by choosing.calib's method. */
TU_MUST int step_send(struct coder *c, struct task *t, struct tu_err *err);

/* The receiver of changes. */
struct step {
    struct tu_ctx *ctx;
    struct input *in;
    struct target *target;
    struct state *state; /* without a writer: there is none */
    struct coded *coded;
};
/* Codes that are a change: the payload of a record that has begun, as dtype. */
TU_MUST int step_receive(const struct step *s, uint32_t dtype, struct tu_err *err);
/* A tensor that is no codes: passes, and numbers are what changes will be added to. */
TU_MUST int step_first(const struct step *s, struct tu_err *err);

#endif
