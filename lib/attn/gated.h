/* SPDX-License-Identifier: Apache-2.0 */
/* gated.h: the recurrence behind linear attention, GLA and Mamba-2: a matrix state that
 * decays, step by step in float64. scan.h is the fast form.
 *
 * S_t = diag(exp g_t) S_{t-1} + k_t v_t', o_t = scale · q_t S_t, for one head.
 * g is a number per step or a vector of d per step. Source: Yang et al., "Gated Linear
 * Attention", 2024; Dao and Gu, "Transformers are SSMs", 2024. */
#ifndef ATTN_GATED_H
#define ATTN_GATED_H

#include <stdbool.h>
#include <stdint.h>
#include <tensorutils/core.h>

struct tui_gated {
    uint64_t n, d, dv;
    bool vector;    /* g is [n, d], else [n] */
    double scale;
    double *g, *q, *k, *v, *dout;   /* in: rows [n, …] */
    double *o, *dq, *dk, *dv_, *dg; /* out: sums that begin at zero */
    double *state;  /* [d, dv]: before the first step in, after the last out */
    double *dstate; /* gradient of the last state in, of the first out; backward only */
    double *work;   /* [d · dv] */
    struct tu_arena *arena; /* holds all of them */
};

/* Memory for the sizes that are set, zeroed; to be freed by tu_arena_free(x->arena), on
 * failure too. Errors: TU_ENOMEM. */
TU_MUST int tui_gated_init(struct tui_gated *x, struct tu_err *err);

/* Step by step, as the formula stands. */
void tui_gated_steps(const struct tui_gated *x);
/* Gradients. state must hold the state before the first step. */
void tui_gated_back(const struct tui_gated *x);

#endif
