/* SPDX-License-Identifier: Apache-2.0 */
/* exp2.h: coefficients of 2^f for f in [-1/2, 1/2], minimax in relative error (Remez exchange).
 *
 * Degree 6: 1.9e-9, so f32's own rounding decides (below 1 ulp); degree 4: 2.6e-6, far below the
 * rounding of a result that becomes bf16. */
#ifndef ATTN_EXP2_H
#define ATTN_EXP2_H

#define EXP2_6 1.0f, 0.6931471824645996f, 0.24022646248340607f, 0.05550328642129898f, \
               0.009618489071726799f, 0.0013399930903688073f, 0.0001534581242594868f
#define EXP2_4 0.9999992847442627f, 0.6931217908859253f, 0.240247443318367f, \
               0.05591785907745361f, 0.009570102207362652f

/* Below this 2^x is zero in f32; -inf is clamped to it, NaN is not. */
#define EXP2_LOW (-160.0f)

#endif
