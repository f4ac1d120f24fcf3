/* SPDX-License-Identifier: Apache-2.0 */
/* calib.h: methods (--method), and the inputs of layers that some look at (--calib). */
#ifndef QUANTIZE_CALIB_H
#define QUANTIZE_CALIB_H

#include "quantize/quantize.h"
#include "tensorutils/quant/calib.h"

enum method {
    METHOD_NEAREST, METHOD_GPTQ, METHOD_AWQ, METHOD_SMOOTH,
    METHOD_FEEDBACK, METHOD_CHANGE, /* these look at the step before instead */
};

struct calib {
    struct tu_ctx *ctx;
    struct tu_source *source; /* NULL: there are no inputs */
    enum method method;
    struct tu_spec spec;
};

/* path NULL: no inputs. method: a row of calib_method_row with arguments, or NULL. */
TU_MUST int calib_open(struct calib *c, const char *path, const char *method,
                       struct tu_ctx *ctx, struct tu_err *err);
void calib_close(struct calib *c);
const char *calib_method_row(size_t i, const char **help);

/* Does the method fold scales into what comes before? Does it keep state? NULL: no. */
bool calib_folds(const struct calib *c);
bool calib_remembers(const struct calib *c);

/* The record X.input of weight X.weight, SIZE_MAX if there is none. */
size_t calib_find(const struct calib *c, const char *weight);
/* Its sums, over all tokens; *out is to be released. */
TU_MUST int calib_sums(const struct calib *c, size_t i, uint64_t cols, bool hessian,
                       struct tu_calib *out, struct tu_err *err);
/* Mean squares of its columns [cols] (tu_free): an importance. */
TU_MUST int calib_importance(const struct calib *c, size_t i, uint64_t cols, float **out,
                             struct tu_err *err);
/* Its first tokens, at most `most` (tu_free). */
TU_MUST int calib_rows(const struct calib *c, size_t i, uint64_t cols, uint64_t most, float **x,
                       uint64_t *tokens, struct tu_err *err);

/* GPTQ of a whole matrix w: codes and sides of the coding. */
TU_MUST int calib_gptq(const struct calib *c, size_t i, struct tu_coding *coding, float *w,
                       void *code, void *const *side, struct tu_err *err);

#endif
