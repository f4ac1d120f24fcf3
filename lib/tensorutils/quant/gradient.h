/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.h: compression of gradients and activations on their way between workers, with
 * the state that stays behind: error feedback, changes of activations (AC-SGD), DeMo's
 * momentum, PowerSGD's factors; ZeRO++'s order of blocks; reduction with a bound on the
 * error of every element. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_GRADIENT_H
#define TENSORUTILS_QUANT_GRADIENT_H

#include "../core.h"

TU_BEGIN

struct tu_coding;

/* Error feedback: what a codec loses of this step is added to the next. p = g + e; send
 * C(p); e = p - what was sent. Source: F. Seide et al., "1-Bit Stochastic Gradient
 * Descent", 2014. error [elements] starts as zeros and is updated; sent [elements], if
 * not NULL, is what receivers decode. Any codec's coding will do. */
TU_API TU_MUST int tu_feedback_step(struct tu_coding *c, const float *g, float *error,
                                    void *code, void *const *side, float *sent,
                                    struct tu_pool *pool, struct tu_err *err);

/* AC-SGD: the change of a sample's activations since its last visit is sent. m [elements]
 * is kept by sender and receiver alike and is updated; the first visit sends it whole.
 * Source: J. Wang et al., "Fine-tuning Language Models over Slow Networks using
 * Activation Compression with Guarantees", 2022. */
TU_API TU_MUST int tu_change_send(struct tu_coding *c, const float *a, float *m,
                                  void *code, void *const *side, struct tu_pool *pool,
                                  struct tu_err *err);
TU_API TU_MUST int tu_change_receive(const struct tu_coding *c, const void *code,
                                     const void *const *side, float *m,
                                     struct tu_pool *pool, struct tu_err *err);

/* DeMo: the largest coefficients of the momentum's cosine transform are sent and taken
 * out of it. Chunks are h × w, each the largest divisor of its dimension up to 64.
 * Source: B. Peng et al., "DeMo: Decoupled Momentum Optimization", 2024; bloc97/DeMo
 * demo.py. */
struct tu_demo {
    uint64_t rows, cols, h, w, chunks;
    unsigned top; /* coefficients per chunk, at most h·w */
};
TU_API TU_MUST int tu_demo_init(struct tu_demo *d, uint64_t rows, uint64_t cols,
                                unsigned top, struct tu_err *err);
/* delta = decay·delta + rate·g; index [chunks, top] within the chunk, value [chunks,
 * top]. */
TU_API TU_MUST int tu_demo_send(const struct tu_demo *d, float decay, float rate,
                                const float *g, float *delta, uint32_t *index,
                                float *value, struct tu_err *err);
/* The mean, index by index, over the workers that sent it, transformed back. index and
 * value [workers, chunks, top]. Errors: TU_EFORMAT for an index outside a chunk. */
TU_API TU_MUST int tu_demo_receive(const struct tu_demo *d, const uint32_t *index,
                                   const float *value, unsigned workers, float *update,
                                   struct tu_err *err);
/* Orthonormal cosine transform (DCT-II) of n values, and its inverse. */
TU_API void tu_dct(const double *in, double *out, uint64_t n, bool inverse);

/* PowerSGD, one worker's halves of a step: P = M·Q is reduced by the caller, made
 * orthonormal, Q = Mᵀ·P is reduced, M ≈ P·Qᵀ. q [cols, rank] is kept between steps.
 * Source: T. Vogels et al., "PowerSGD", 2019. */
TU_API void tu_powersgd_p(const float *m, const float *q, uint64_t rows, uint64_t cols,
                          unsigned rank, float *p);
TU_API void tu_powersgd_q(const float *m, float *p, uint64_t rows, uint64_t cols,
                          unsigned rank, float *q);
TU_API void tu_powersgd_decode(const float *p, const float *q, uint64_t rows,
                               uint64_t cols, unsigned rank, float *m);
/* The first q: normals of (seed, stream). */
TU_API void tu_powersgd_start(uint64_t seed, uint64_t stream, uint64_t cols,
                              unsigned rank, float *q);

/* Partition p of a gradient in ZeRO++'s order, for a two-hop all-to-all over nodes of
 * `devices`. Source: G. Wang et al., "ZeRO++", 2023. */
TU_API uint64_t tu_zero_place(uint64_t p, uint64_t nodes, uint64_t devices);

/* A run of values so that none is off by more than the bound: levels of odd points less
 * the mean of their neighbours, in whole steps. What would break the bound is stored as
 * it is. Source: M. Ainsworth et al., "Multilevel Techniques for Compression and
 * Reduction of Scientific Data", 2018, without its projection. bound > 0; relative: times
 * the range of the values. Appends to out. Errors: TU_EUSAGE, TU_ENOMEM. */
TU_API TU_MUST int tu_bounded_encode(const float *x, uint64_t n, double bound,
                                     bool relative, struct tu_buf *out,
                                     struct tu_err *err);
/* The n values that were encoded; *used bytes of p were read. Errors: TU_ETRUNC,
 * TU_EFORMAT. */
TU_API TU_MUST int tu_bounded_decode(const void *p, size_t size, float *x, uint64_t n,
                                     size_t *used, struct tu_err *err);

TU_END

#endif
