/* SPDX-License-Identifier: Apache-2.0 */
/* lowrank.h: matrices and tensors as products of thin factors: truncated SVD, CP
 * decomposition, LeanVec's projections. Double inside; the entry of largest magnitude of
 * each vector is positive. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_LOWRANK_H
#define TENSORUTILS_QUANT_LOWRANK_H

#include "../core.h"

TU_BEGIN

/* w [rows, cols] ≈ u [rows, rank] · v [rank, cols], the roots of the singular values in
 * both. *lost, if not NULL: the squared error. Errors: TU_EUSAGE for a rank over the
 * lesser dimension, TU_ENOMEM. */
TU_API TU_MUST int tu_svd_split(const float *w, uint64_t rows, uint64_t cols,
                                uint64_t rank, float *u, float *v, double *lost,
                                struct tu_err *err);
/* The least rank that keeps `energy` (0 … 1) of the sum of squares. */
TU_API TU_MUST int tu_svd_rank(const float *w, uint64_t rows, uint64_t cols,
                               double energy, uint64_t *rank, struct tu_err *err);

/* x ≈ sum over r of the outer products of columns r of the factors, by alternating least
 * squares. Source: T. Kolda, B. Bader, "Tensor Decompositions and Applications", 2009. */
#define TU_CP_ORDER 4
enum tu_cp_init { TU_CP_ONES, TU_CP_SVD, TU_CP_GIVEN };
struct tu_cp {
    unsigned order; /* 3 or 4 */
    uint64_t dim[TU_CP_ORDER];
    unsigned rank;
    double *factor[TU_CP_ORDER]; /* [dim, rank], the caller's */
    double tolerance;            /* of the squared error, times ||x||²; 0: 1e-8 */
    unsigned sweeps;             /* at most; 0: 200 */
    uint64_t seed;               /* of columns that SVD does not give */
    /* Out. */
    double error;    /* squared */
    unsigned done;   /* sweeps */
    bool degenerate; /* two terms that nearly cancel each other */
};
TU_API TU_MUST int tu_cp_fit(struct tu_cp *cp, const float *x, enum tu_cp_init init,
                             struct tu_err *err);
/* Columns to length 1, lengths to weight [rank], the heaviest first. */
TU_API void tu_cp_normalise(struct tu_cp *cp, double *weight);

/* Projections of vectors for search: Bᵀx is stored, Aᵀq is asked for. Source: M. Tepper
 * et al., "LeanVec", 2023. x [n, d], q [m, d]; a, b [d, r]. */
/* In distribution: the same for both, the top eigenvectors of xᵀx. */
TU_API TU_MUST int tu_leanvec_id(const float *x, uint64_t n, uint64_t d, uint64_t r,
                                 double *b, struct tu_err *err);
/* For queries unlike the data: the least ||Q·A·Bᵀ·Xᵀ - Q·Xᵀ||² by Frank-Wolfe steps.
 * *loss and *steps, if not NULL: where it ended. */
TU_API TU_MUST int tu_leanvec_ood(const float *q, uint64_t m, const float *x, uint64_t n,
                                  uint64_t d, uint64_t r, double *a, double *b,
                                  double *loss, unsigned *steps, struct tu_err *err);
/* That loss of any a and b. */
TU_API TU_MUST int tu_leanvec_loss(const float *q, uint64_t m, const float *x, uint64_t n,
                                   uint64_t d, uint64_t r, const double *a,
                                   const double *b, double *loss, struct tu_err *err);

TU_END

#endif
