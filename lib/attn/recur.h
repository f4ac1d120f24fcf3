/* SPDX-License-Identifier: Apache-2.0 */
/* recur.h: what the recurrent mixers share: q, k, v of [batch, tokens, heads, dim],
 * states of [batch, heads, d, dv] in f32, heads as float64 rows. */
#ifndef ATTN_RECUR_H
#define ATTN_RECUR_H

#include "attn/mix.h"
#include "attn/scan.h"

struct tui_recur {
    const struct tu_operand *q, *k, *v, *dout, *state; /* the last two may be NULL */
    uint64_t batch, n, heads, d, dv;
};

/* Find and check q k v do state_in. */
int tui_recur_init(struct tui_recur *r, const struct tu_mixer_args *m,
                   struct tu_err *err);
/* Add an output. */
void tui_recur_out(struct tu_mixer_args *m, const char *name, uint32_t dtype,
                   unsigned rank, const uint64_t *dim);
/* An operand must be f-type [a, b, c, d] (rank dims); NULL is refused as missing. */
int tui_recur_shape(const struct tu_operand *o, const char *name, unsigned rank,
                    const uint64_t *dim, struct tu_err *err);
/* Rows of head h of sequence b, [n, dim], to or from float64. */
int tui_recur_load(const struct tu_operand *o, uint64_t b, uint64_t h, double *out,
                   struct tu_err *err);
int tui_recur_store(const struct tu_operand *o, uint64_t b, uint64_t h, const double *v,
                    struct tu_err *err);
/* The same rows where they are. */
struct tui_steps tui_recur_steps(const struct tu_operand *o, uint64_t b, uint64_t h);
/* Does this call ask for float64, step by step? */
bool tui_recur_exact(const struct tu_mixer_args *m, uint32_t storage);
/* n values of item `at` of an operand; a missing one is zeros. */
int tui_recur_state(const struct tu_operand *o, uint64_t at, double *out, uint64_t n,
                    struct tu_err *err);
int tui_recur_put(const struct tu_operand *o, uint64_t at, const double *v, uint64_t n,
                  struct tu_err *err);
/* Run n tasks of a state space whose gradients dA, dB, dC, dD are sums over tasks: zeroed
 * here, and summed in one order, so alone when there is a backward pass. */
int tui_recur_run(const struct tu_mixer_args *m, uint64_t n, tu_task_fn task,
                  struct tu_err *err);

#endif
