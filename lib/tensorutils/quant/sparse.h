/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.h: which weights to drop, and matrices of what is left.
 *
 * A score per weight (magnitude, Wanda, SparseGPT's) decides; of equal scores the one at
 * the lower index stays. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_SPARSE_H
#define TENSORUTILS_QUANT_SPARSE_H

#include "../core.h"

TU_BEGIN

/* Keep the n of every m consecutive elements with the largest score, zero the others.
 * down: consecutive along columns (the direction of the backward pass). score [rows,
 * cols], NULL: |x|. Source: NVIDIA's 2:4; both directions: C. Fang et al., "Efficient N:M
 * Sparse DNN Training", 2023. Errors: TU_EUSAGE where the dimension is no multiple of m.
 */
TU_API TU_MUST int tu_prune_nm(float *x, const float *score, uint64_t rows, uint64_t cols,
                               unsigned n, unsigned m, bool down, struct tu_err *err);
/* Wanda's score, |w| · ||input of the column||, from the sums of squares of the inputs.
 * Source: M. Sun et al., "A Simple and Effective Pruning Approach for LLMs", 2023. */
TU_API void tu_score_wanda(const float *w, const double *input_sq, uint64_t rows,
                           uint64_t cols, float *score);
/* SparseGPT's score, (w / U_jj)², from the diagonal of the Cholesky factor of the inverse
 * Hessian: see tu_sparsegpt in calib.h for the pruning that also repairs. */
TU_API void tu_score_obs(const float *w, const double *diagonal, uint64_t rows,
                         uint64_t cols, float *score);

/* Where CUTLASS has the word at [row, col] of a [rows, …] matrix of sparse24's metadata,
 * in words of `bytes` (2 or 4); rows is a multiple of 32. Files keep the plain order.
 * Source: torch/sparse/_semi_structured_conversions.py. */
TU_API uint64_t tu_sparse24_place(uint64_t rows, unsigned bytes, uint64_t row,
                                  uint64_t col);

/* Compressed rows of square blocks. */
struct tu_bsr {
    uint64_t rows, cols, size; /* size: rows and columns of a block */
    uint64_t blocks, nnz;      /* blocks kept, non-zero elements in them */
    uint32_t *row;             /* [ceil(rows/size) + 1] first block of each block row */
    uint32_t *col;             /* [blocks] block column */
    float *value;              /* [blocks, size, size], padded with zeros */
    uint32_t *perm;            /* [rows] the row of x that stands here; NULL: in order */
};
/* From a dense matrix. cluster: permute rows so that those with blocks in the same
 * columns meet, where that lowers the count. Source: P. Okanovic et al., "High
 * Performance Unstructured SpMM Computation Using Tensor Cores" (SMaT), 2024; the linkage
 * is ours. *out is to be released. Errors: TU_EUSAGE, TU_ENOMEM. */
TU_API TU_MUST int tu_bsr_pack(struct tu_bsr *out, const float *x, uint64_t rows,
                               uint64_t cols, uint64_t size, bool cluster,
                               struct tu_err *err);
TU_API void tu_bsr_unpack(const struct tu_bsr *m, float *x);
TU_API void tu_bsr_release(struct tu_bsr *m);
/* Part of the kept blocks' elements that are not zero. */
TU_API double tu_bsr_fill(const struct tu_bsr *m);
/* y = m · v, with y in the order of x's rows. */
TU_API void tu_bsr_multiply(const struct tu_bsr *m, const float *v, float *y);

TU_END

#endif
