/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h: keys and values made smaller, one record at a time, and what it costs at the
 * attention output.
 *
 * A coded record keeps its name; sides follow as NAME.suffix; `quant` of its metadata has
 * the scheme with its arguments, dtype and shape, so that decoding needs nothing else. */
#ifndef TENSORUTILS_KV_CODEC_H
#define TENSORUTILS_KV_CODEC_H

#include "../core.h"

TU_BEGIN

#define TU_KV_CODED_PARTS 5

/* A record by tokens: [tokens, heads, dim]. */
struct tu_kv_array {
    uint32_t dtype;
    uint64_t tokens, heads, dim;
    bool value; /* values, not keys */
    uint64_t layer;
};

/* Part 0 is the codes. */
struct tu_kv_part {
    const char *suffix; /* NULL for the codes */
    uint32_t dtype;
    unsigned rank;
    uint64_t dim[3];
    void *data; /* tu_free */
    uint64_t bytes;
};
struct tu_kv_coded {
    unsigned n;
    struct tu_kv_part part[TU_KV_CODED_PARTS];
};
TU_API void tu_kv_coded_release(struct tu_kv_coded *c);

/* A row. */
struct tu_kv_codec {
    const char *name, *help, *source;
    const char *const *key; /* arguments */
    bool lossless;
    const char *base; /* of lib/quant, for rows that stand on it */
    /* Errors: TU_EUSAGE where the record does not fit, or is not finite and the codec is
     * lossy. */
    int (*encode)(const struct tu_kv_codec *row, const struct tu_spec *spec,
                  const struct tu_kv_array *a, const void *x, struct tu_kv_coded *out,
                  struct tu_err *err);
    /* part[n] as they were written; out has room for the array. Errors: TU_EFORMAT. */
    int (*decode)(const struct tu_kv_codec *row, const struct tu_spec *spec,
                  const struct tu_kv_array *a, const struct tu_kv_part *part, unsigned n,
                  void *out, struct tu_err *err);
};
TU_API extern const struct tu_kv_codec tu_kv_codecs[]; /* ends without a name */
TU_API TU_MUST int tu_kv_codec_find(const struct tu_kv_codec **out, const char *name,
                                    struct tu_err *err);
/* Find, check the keys, encode. */
TU_API TU_MUST int tu_kv_encode(const struct tu_spec *spec, const struct tu_kv_array *a,
                                const void *x, struct tu_kv_coded *out,
                                struct tu_err *err);
TU_API TU_MUST int tu_kv_decode(const struct tu_spec *spec, const struct tu_kv_array *a,
                                const struct tu_kv_part *part, unsigned n, void *out,
                                struct tu_err *err);

/* Token keeping: which tokens stay (keep [kept], ascending), by name:
 * streaming[:sinks=N], knorm, keydiff, h2o, snapkv[:window=,pool=]. k [T, heads, dim] of
 * one layer, float; attn [queries, T] or NULL. kept = floor(T·(1-ratio)) or `tokens`.
 * Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_kv_keep(const struct tu_spec *method, uint64_t T, uint64_t kept,
                              const float *k, uint64_t heads, uint64_t dim,
                              const float *attn, uint64_t queries, uint64_t *keep,
                              struct tu_err *err);
/* Rows of --list=keep; NULL past the end. */
TU_API const char *tu_kv_keep_list(size_t i, const char **help);

/* Error at the attention output of one KV head: exact keys and values against those that
 * came back, T rows of dk and dv columns, for nq queries of dk columns. */
struct tu_kv_loss {
    double k_rel, v_rel, k_max, v_max; /* relative L2, largest error */
    double out_rel;                    /* relative L2 of the attention output */
    double kl;                         /* mean over queries, of exact against ours */
    double top1;                       /* fraction with the same largest weight */
};
TU_API TU_MUST int tu_kv_loss(struct tu_kv_loss *out, uint64_t T, uint64_t dk, uint64_t dv,
                              const float *k, const float *v, const float *k2,
                              const float *v2, const float *q, uint64_t nq, double scale,
                              struct tu_err *err);

TU_END

#endif
