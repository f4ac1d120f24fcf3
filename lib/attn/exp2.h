/* SPDX-License-Identifier: Apache-2.0 */
/* exp2.h: coefficients of 2^f, minimax in relative error (Remez exchange).
 *
 * EXP2_6, f in [-1/2, 1/2]: 1.9e-9, so f32's own rounding decides (below 1 ulp).
 * EXP2_4_UP, f in [0, 1]: 2.6e-6, far below the rounding of a result that becomes bf16.
 */
#ifndef ATTN_EXP2_H
#define ATTN_EXP2_H

#define EXP2_6                                                                           \
    1.0f, 0.6931471824645996f, 0.24022646248340607f, 0.05550328642129898f,               \
        0.009618489071726799f, 0.0013399930903688073f, 0.0001534581242594868f
#define EXP2_4_UP                                                                        \
    1.0000026226043701f, 0.6930038332939148f, 0.2414427548646927f,                       \
        0.052011460065841675f, 0.013534167781472206f

/* Below this 2^x is zero in f32; -inf is clamped to it, NaN is not. */
#define EXP2_LOW (-160.0f)
/* From here on it is infinite, and still made of two factors. */
#define EXP2_HIGH 254.0f

#endif
