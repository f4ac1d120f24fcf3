/* SPDX-License-Identifier: Apache-2.0 */
/* quant.h: codecs: number formats, block formats, sparsity and compression of tensors.
 *
 * A codec turns rows of float into codes and side tensors and back. Every codec has a plain reference
 * and may have fast rows in a kernel table; bytes are equal. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_H
#define TENSORUTILS_QUANT_H

#include "core.h"

TU_BEGIN

/* A side tensor of an encoded one: NAME.scale, NAME.zero, … */
struct tu_codec_side {
    const char *suffix; /* "scale" */
    uint32_t dtype;
    unsigned rank;
    uint64_t dim[4];
};

/* What an encoding of [rows, cols] looks like. */
struct tu_codec_shape {
    uint32_t dtype; /* of the codes; TU_U8 [bytes] where the registry has none */
    unsigned rank;
    uint64_t dim[4];
    unsigned sides;
    struct tu_codec_side side[6];
    bool two_pass;  /* needs a statistic of the whole tensor first */
};

struct tu_codec_args {
    const struct tu_spec *spec;
    uint64_t rows, cols;
    const float *importance; /* [cols] or NULL */
    const void *stat;        /* result of the first pass */
    bool compat;             /* reproduce the peer's known defects */
};

enum tu_codec_flags {
    TU_CODEC_ENCODE = 1,
    TU_CODEC_DECODE = 2,
    TU_CODEC_LOSSLESS = 4,
    TU_CODEC_ROWWISE = 8,  /* any block of whole rows can be coded by itself */
    TU_CODEC_STATEFUL = 16 /* error feedback: state travels with the tensor */
};

/* A row: a codec is this and one file of its family. */
struct tu_codec {
    const char *name, *help;
    const char *source; /* paper or peer's file */
    const char *const *key;
    unsigned flags;
    uint32_t block; /* elements of a row that are coded together, 0: a row */
    int (*shape)(const struct tu_codec_args *a, struct tu_codec_shape *out, struct tu_err *err);
    /* Rows r0 … r0+n-1 of x [n, cols] into code and side[k], each pointing at its row r0. */
    int (*encode)(const struct tu_codec_args *a, uint64_t r0, uint64_t n, const float *x, void *code,
                  void *const *side, struct tu_err *err);
    int (*decode)(const struct tu_codec_args *a, uint64_t r0, uint64_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err);
    const struct tu_kernel *encode_rows, *decode_rows; /* fast twins, NULL: none */
};
TU_API extern const struct tu_codec *const tu_codecs[];
TU_API const struct tu_codec *tu_codec_find(const char *name);

TU_END

#endif
