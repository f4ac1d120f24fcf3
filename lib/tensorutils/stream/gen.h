/* SPDX-License-Identifier: Apache-2.0 */
/* gen.h: made-up tensors, any part of which can be made alone: what tns-gen prints.
 *
 * An element depends on seed, name, distribution and index only, so values are the
 * same for any number of threads and on every machine. */
#ifndef TENSORUTILS_STREAM_GEN_H
#define TENSORUTILS_STREAM_GEN_H

#include "../core.h"

TU_BEGIN

enum tu_gen_dist {
    TU_GEN_NORMAL,   /* mean, std */
    TU_GEN_UNIFORM,  /* lo ≤ v < hi */
    TU_GEN_ARANGE,   /* lo + i × step */
    TU_GEN_CONSTANT, /* value */
    TU_GEN_OUTLIER,  /* normal, `channels` of the last dimension times `scale`: what
                      * activations of large models look like */
};

struct tu_gen {
    enum tu_gen_dist dist;
    double mean, std, lo, hi, step, value, scale;
    uint64_t channels;
    uint64_t seed;
};

/* Rows: name and help, in the order of the enumeration; NULL past the end. */
TU_API const char *tu_gen_name(size_t i, const char **help);
/* Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_gen_find(enum tu_gen_dist *out, const char *name,
                               struct tu_err *err);
/* Normal 0, 1; uniform 0 … 1; arange 0, 1, 2 …; constant 0; 4 channels × 20. */
TU_API void tu_gen_defaults(struct tu_gen *g);
/* Elements first … first+n-1 of tensor t as its dtype stores them; first at a whole
 * block. Errors: TU_EDTYPE for block formats, TU_ENOMEM. */
TU_API TU_MUST int tu_gen_fill(const struct tu_gen *g, const struct tu_tensor *t,
                               uint64_t first, size_t n, void *out, struct tu_err *err);

TU_END

#endif
