/* SPDX-License-Identifier: Apache-2.0 */
/* ints.h: a matrix of small integers with scales, free of any packing, and moving it
 * between the packings that are deployed.
 *
 * Value of row r, column c: (code - zero) · scale, zero and scale being those of the
 * column's group. Every integer codec packs from and unpacks to this; repacking is one
 * after the other, lossless or refused. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_INTS_H
#define TENSORUTILS_QUANT_INTS_H

#include "../core.h"

TU_BEGIN

struct tu_coding;
struct tu_spec;

struct tu_ints {
    unsigned bits; /* 1 … 8 */
    uint64_t rows, cols;
    uint64_t group; /* columns that share a scale; the last group may be short */
    uint64_t groups;
    uint8_t *code;  /* [rows, cols], 0 … 2^bits - 1 */
    float *scale;   /* [rows, groups] */
    uint16_t *zero; /* [rows, groups], 0 … 2^bits */
    int32_t *gidx;  /* [cols] the group of a column; NULL: column / group */
};

/* Allocate the arrays, all but the codes zeroed; group 0 means one per row. Errors:
 * TU_ENOMEM, TU_ESIZE. */
TU_API TU_MUST int tu_ints_init(struct tu_ints *m, unsigned bits, uint64_t rows,
                                uint64_t cols, uint64_t group, bool gidx,
                                struct tu_err *err);
TU_API void tu_ints_release(struct tu_ints *m);
/* To floats, [rows, cols]. */
TU_API void tu_ints_values(const struct tu_ints *m, float *x);

/* True when the codec's codes are such a matrix. */
TU_API bool tu_ints_ok(const struct tu_coding *c);
/* From the codes and sides of a whole tensor; *m is to be released. Errors: TU_EUSAGE for
 * another codec, TU_EFORMAT where a group index is out of range. */
TU_API TU_MUST int tu_ints_unpack(const struct tu_coding *c, const void *code,
                                  const void *const *side, struct tu_ints *m,
                                  struct tu_err *err);
/* The text of a spec by which the codec that `to` names can hold m: what `to` says, and
 * where it is silent the group, zeros and order of columns that m needs. Appended. */
TU_API TU_MUST int tu_ints_spec(const struct tu_ints *m, const struct tu_spec *to,
                                struct tu_buf *out, struct tu_err *err);
/* The reverse. Errors: TU_EUSAGE saying what of m the packing cannot hold. */
TU_API TU_MUST int tu_ints_pack(const struct tu_coding *c, const struct tu_ints *m,
                                void *code, void *const *side, struct tu_err *err);

TU_END

#endif
