/* SPDX-License-Identifier: Apache-2.0 */
/* logits.h: how far a model's distributions of the next token have moved: Kullback-Leibler
 * divergence, perplexity, agreement on the likeliest token. The figures are those of
 * llama.cpp's --kl-divergence, from logits as they are (its file rounds them to 16 bits).
 * May change before 1.0. */
#ifndef TENSORUTILS_QUANT_LOGITS_H
#define TENSORUTILS_QUANT_LOGITS_H

#include "../core.h"

TU_BEGIN

/* One position. */
struct tu_logits_row {
    double kl;         /* sum of p·(log p - log q), p the base's softmax; nats */
    bool same_top;     /* the likeliest token is the same; of equal ones the first counts */
    double base_nll, nll; /* -log of the probability of the token that came; NaN: not known */
};
/* Row i of base and other [rows, vocab], both softmaxes in double with the largest logit
 * taken out. next [rows]: the tokens that came, or NULL. A logit of -Inf is a token that
 * cannot come. first: the number of row 0, for messages. Errors: TU_EUNSUP naming a row with
 * NaN, Inf or nothing that can come, TU_EUSAGE for a token outside the vocabulary. */
TU_API TU_MUST int tu_logits_compare(const float *base, const float *other, const int64_t *next,
                                     uint64_t first, uint64_t rows, uint64_t vocab,
                                     struct tu_logits_row *out, struct tu_pool *pool,
                                     struct tu_err *err);

/* Values over rows; error: standard error of the mean, 0 for fewer than two. */
enum { TU_SPREAD_QUANTILES = 9 };
struct tu_spread {
    double mean, error, min, max;
    double quantile[TU_SPREAD_QUANTILES]; /* of tu_spread_at, linear between ranks */
};
TU_API extern const double tu_spread_at[TU_SPREAD_QUANTILES]; /* .001 … .5 … .999 */

struct tu_logits_sum {
    uint64_t rows;
    struct tu_spread kl;
    double same_top, same_top_error; /* fractions */
    /* Where tokens are known. */
    bool known;
    double base_ppl, ppl;
    double log_ratio, log_ratio_error; /* ln(ppl / base_ppl) */
    double correlation;                /* of the two -log probabilities */
    struct tu_spread change;           /* of the probability of the token that came */
    double change_rms;
};
/* Errors: TU_ENOMEM, TU_EUSAGE without rows. */
TU_API TU_MUST int tu_logits_sum(const struct tu_logits_row *row, uint64_t rows,
                                 struct tu_logits_sum *out, struct tu_err *err);

TU_END

#endif
