/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: what codecs of gradients and activations remember from one step to the next, in a
 * file of records: X.error of feedback, X.q of PowerSGD, X of changes.
 *
 * The file is replaced when the step is done, not before; what a step does not meet stays. */
#ifndef QUANTIZE_STATE_H
#define QUANTIZE_STATE_H

#include "quantize/quantize.h"

struct state {
    const char *path;
    struct tu_ctx *ctx;
    struct tu_source *old; /* NULL: the first step */
    bool *renewed;         /* [old->n] */
    struct tu_writer *writer;
};

/* A row for an option table. */
#define STATE_OPTION                                                                     \
    {0, "state", "FILE", "what --method feedback or change remembers of the step before", \
     TU_OPT_STRING, &state_path, NULL, 0}
extern const char *state_path; /* NULL: not given */

TU_MUST int state_open(struct state *s, struct tu_ctx *ctx, struct tu_err *err);
/* Record NAME.SUFFIX (suffix NULL: NAME) as n floats (tu_free); NULL where there is none. */
TU_MUST int state_get(struct state *s, const char *name, const char *suffix, uint64_t n,
                      float **out, struct tu_err *err);
TU_MUST int state_put(struct state *s, const char *name, const char *suffix, const uint64_t *dim,
                      unsigned rank, const float *v, struct tu_err *err);
TU_MUST int state_close(struct state *s, struct tu_err *err);
void state_abort(struct state *s); /* what is not closed */

#endif
