/* SPDX-License-Identifier: Apache-2.0 */
/* calib.h: quantization that looks at the inputs of a layer: GPTQ and SparseGPT, the
 * scale searches of AWQ and SmoothQuant, rotations.
 *
 * A layer is y = W·x, W [rows, cols] = [out, in]; its inputs arrive as a stream of rows
 * [tokens, in] and are kept as sums only. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_CALIB_H
#define TENSORUTILS_QUANT_CALIB_H

#include "../core.h"
#include "ints.h"

TU_BEGIN

/* What is kept of the inputs. */
struct tu_calib {
    uint64_t cols, tokens;
    double *hessian; /* [cols, cols] sum of x·xᵀ; NULL when not asked for */
    double *sum_abs; /* [cols] */
    float *max_abs;  /* [cols] */
};
TU_API TU_MUST int tu_calib_init(struct tu_calib *c, uint64_t cols, bool hessian,
                                 struct tu_err *err);
TU_API void tu_calib_release(struct tu_calib *c);
/* Add `tokens` rows. Sums are in the order of the rows, so the digits do not depend on
 * the pool. Errors: TU_EUSAGE for an input that is not finite. */
TU_API TU_MUST int tu_calib_add(struct tu_calib *c, const float *x, uint64_t tokens,
                                struct tu_pool *pool, struct tu_err *err);

/* GPTQ: round column after column, each error spread over the columns to come. Source:
 * E. Frantar et al., "GPTQ", 2022; IST-DASLab/gptq gptq.py. Scales are those of `coding`,
 * an integer codec's (group, asymmetry, clip, rule), refitted at each group's start. */
struct tu_gptq {
    double damping;    /* times the mean of the diagonal; 0: 0.01 */
    unsigned block;    /* columns updated lazily; 0: 128 */
    bool order;        /* columns with the largest diagonal first; then g_idx is kept */
    bool fixed_groups; /* with order: groups of neighbouring columns, fitted beforehand */
    double used;       /* out: the damping that worked */
    double error;      /* out: sum of squared errors under the Hessian, halved */
};
/* w is replaced by the values that were chosen; *out is to be released. Errors: TU_EUSAGE
 * for another codec, TU_EUNSUP where no damping makes the Hessian definite. */
TU_API TU_MUST int tu_gptq_run(struct tu_gptq *g, const struct tu_calib *calib,
                               const struct tu_coding *coding, float *w,
                               struct tu_ints *out, struct tu_pool *pool,
                               struct tu_err *err);
/* SparseGPT: the same walk with the weights that score least set to zero: n of every m
 * consecutive columns. Source: E. Frantar, D. Alistarh, "SparseGPT", 2023. */
TU_API TU_MUST int tu_sparsegpt_run(struct tu_gptq *g, const struct tu_calib *calib,
                                    unsigned n, unsigned m, float *w, uint64_t rows,
                                    struct tu_pool *pool, struct tu_err *err);

/* Scales of columns: W·diag(s) is quantized, 1/s goes to the operation before. */
/* s_j = max|X_j|^a / max|W_j|^(1-a), at least 1e-5. Source: G. Xiao et al.,
 * "SmoothQuant", 2022. */
TU_API void tu_smooth_scales(const struct tu_calib *calib, const float *w, uint64_t rows,
                             double a, float *scale);
/* s_j = mean|X_j|^a of the a = 0, 0.05 … 0.95 with the least error of outputs on x
 * [tokens, cols] under the integer codec. Source: J. Lin et al., "AWQ", 2023. *a: the one
 * that was chosen. */
TU_API TU_MUST int tu_awq_scales(const struct tu_calib *calib,
                                 const struct tu_coding *coding, const float *w,
                                 const float *x, uint64_t tokens, float *scale, double *a,
                                 struct tu_pool *pool, struct tu_err *err);

/* Rows of n floats times an orthogonal n × n matrix, in place: Hadamard's (normalised;
 * n = 2^k, or 2^k · 12 or 20), after signs drawn from (seed) where random.
 * `back` undoes it. Errors: TU_EUSAGE for another n. */
TU_API TU_MUST int tu_rotate(float *x, uint64_t rows, uint64_t n, bool random,
                             uint64_t seed, bool back, struct tu_err *err);

TU_END

#endif
