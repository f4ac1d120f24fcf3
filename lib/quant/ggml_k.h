/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_k.h: the steps of the k-quants and IQ4 that the reference and the vector encoders
 * share: all but the search in each sub-block and the picking of codes. */
#ifndef TENSORUTILS_QUANT_GGML_K_H
#define TENSORUTILS_QUANT_GGML_K_H

#include "ggml.h"

/* Q2_K, Q4_K and Q5_K: value = d·ls·code - dmin·lm. */
struct tui_affine {
    unsigned sub; /* elements of a sub-block */
    int nmax, scale_max;
    struct tui_fit_min fit, weighted;
};
extern const struct tui_affine tui_affine_q2_k, tui_affine_q4_k, tui_affine_q5_k;

struct tui_super {
    float d, dmin;        /* before rounding to f16 */
    float unit, unit_min; /* after */
    unsigned char ls[16], lm[16], code[TUI_SUPER];
};

/* What is added to x² under the root of a weight by importance. */
float tui_affine_mean(const struct tui_affine *a, const float *x);
/* Quantize the sub-blocks' scales and minima; weight: sums of weights, or NULL. */
void tui_affine_scales(const struct tui_affine *a, const float *scale, const float *min,
                       const float *weight, struct tui_super *s);
void tui_put_q2_k(unsigned char *out, const struct tui_super *s);
void tui_put_q4_k(unsigned char *out, const struct tui_super *s);
void tui_put_q5_k(unsigned char *out, const struct tui_super *s);

/* Q3_K: six-bit scales (32 is 0) and their unit before rounding. */
float tui_q3_k_scales(const float *scale, const float *weight, unsigned char *l);
void tui_put_q3_k(unsigned char *out, float d, const unsigned char *l, const unsigned char *code);

/* Q6_K: eight-bit scales; returns their unit before rounding, 0 where the block is all
 * zeros. */
float tui_q6_k_scales(const float *scale, signed char *l);
void tui_put_q6_k(unsigned char *out, float d, const signed char *l, const unsigned char *code);

/* IQ4_XS: the header of a super-block; inverse[j] picks the codes of sub-block j. */
void tui_put_iq4_xs(unsigned char *out, const float *scale, float *inverse);

#endif
