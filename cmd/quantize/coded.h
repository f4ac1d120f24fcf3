/* SPDX-License-Identifier: Apache-2.0 */
/* coded.h: a tensor that is codes, collected from its records: the codes, then their side
 * tensors. Shared by what reads codes: decode and repack. */
#ifndef QUANTIZE_CODED_H
#define QUANTIZE_CODED_H

#include "quantize/quantize.h"

struct coded {
    struct tu_arena *arena;
    struct tu_tensor tensor; /* as it was before */
    struct tu_spec spec;
    struct tu_coding coding;
    void *side[TU_CODING_SIDES];
    bool have[TU_CODING_SIDES];
    bool pending; /* sides are still to come */
    bool change;  /* to be added to the step before */
    const char *from; /* metadata for what is made of the numbers: where they come from */
    FILE *codes;  /* NULL: read from the input */
};

/* Is the tensor codes? How many sides follow it (0 where that cannot be told)? */
bool coded_is(const struct tu_tensor *t);
unsigned coded_sides(const struct tu_tensor *t);
/* The tensor at hand, by its dtype (ggml's blocks) or its `quant` metadata; *yes false where
 * it is not coded. Codes that have sides are put aside until all have come: c->pending. */
TU_MUST int coded_begin(struct coded *c, struct input *in, bool *yes, struct tu_err *err);
/* While pending: the tensor at hand must be a side of it. */
TU_MUST int coded_side(struct coded *c, struct input *in, struct tu_err *err);
/* The error for a record that comes while a side is waited for. */
int coded_missing(const struct coded *c, struct tu_err *err);
/* The next n bytes of the codes. */
TU_MUST int coded_read(struct coded *c, struct input *in, void *buf, size_t n,
                       struct tu_err *err);
void coded_forget(struct coded *c);

/* How an input goes to the target: `tensor` is called for each tensor's record, everything
 * else is carried along. */
struct coded_pass {
    struct tu_ctx *ctx;
    struct input *in;
    struct coded *coded;
    struct target *target;
    enum seen seen;
    int (*tensor)(void *run, struct tu_err *err);
    void *run;
};
/* All records of one input, opened and closed here. Errors begin with the path. */
TU_MUST int coded_input(const struct coded_pass *p, const char *path, struct tu_err *err);

#endif
