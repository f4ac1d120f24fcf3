/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: the state of a recurrent operator from piece to piece of a sequence, and
 * between runs. */
#ifndef FA_RUN_STATE_H
#define FA_RUN_STATE_H

#include "fa-run/fa.h"

struct fa_state {
    const char *in, *out; /* files, or NULL: neither makes segments independent */
    struct tu_operand op; /* "state_in" of the next segment; no data: it has none */
};

/* Refuse an operator without a state; read the first one. Errors: TU_EUSAGE, those of
 * streams. */
int fa_state_begin(struct fa_state *t, const struct tu_mixer *row, struct tu_err *err);
/* Add the state to a segment's operands, which has room; the data stay ours. */
int fa_state_enter(const struct fa_state *t, const struct fa_segment *s,
                   struct tu_operand *op, size_t *n, struct tu_err *err);
/* Keep the state that a run left. */
int fa_state_leave(struct fa_state *t, const struct tu_mixer_args *a, struct tu_err *err);
/* Write it, when there was no error. */
int fa_state_end(struct fa_state *t, struct tu_ctx *ctx, struct tu_err *err);
void fa_state_release(struct fa_state *t);

#endif
