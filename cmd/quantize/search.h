/* SPDX-License-Identifier: Apache-2.0 */
/* search.h: the types that lose least for a size: as a recipe, or at once before encoding. */
#ifndef QUANTIZE_SEARCH_H
#define QUANTIZE_SEARCH_H

#include "quantize/quantize.h"

extern struct search_opt {
    struct tu_list types;
    double bpw;
    uint64_t size;
} search_opt;

/* Rows for an option table. */
#define SEARCH_OPTIONS                                                                   \
    {0, "types", "LIST", "types to choose from; default: q2_k,q3_k,q4_k,q5_k,q6_k,q8_0",  \
     TU_OPT_STRING, &search_opt.types, NULL, TU_OPT_LIST},                                \
        {0, "target-bpw", "BITS", "bits per weight at most, of all tensors",              \
         TU_OPT_DOUBLE, &search_opt.bpw, NULL, 0},                                        \
        {0, "target-size", "SIZE", "bytes at most", TU_OPT_SIZE, &search_opt.size, NULL, 0}

/* Is a size asked for? */
bool search_wanted(void);
/* Rules that keep to it, behind those that the user gave. path is read from the start. */
TU_MUST int search_apply(struct choosing *c, const char *path, enum seen seen, struct tu_ctx *ctx,
                         struct tu_err *err);

#endif
