/* SPDX-License-Identifier: Apache-2.0 */
/* Distributions of the next token: divergence, perplexity, agreement, by hand. */
#include <math.h>
#include "../tap.h"
#include "tensorutils/quant/logits.h"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(1, fabs(b));
}

/* p = 1/2 1/4 1/4, q even: KL = ln(3/2)/2 + ln(3/4)/2. A common term changes nothing. */
static void by_hand(void)
{
    const float two = 0.693147180559945309f;
    const float base[6] = {two, 0, 0, 500 + two, 500, 500}, other[6] = {0, 0, 0, 1, 2, 1};
    const int64_t next[2] = {0, 2};
    struct tu_logits_row row[2];
    ok(!tu_logits_compare(base, other, next, 0, 2, 3, row, NULL, NULL), "two rows");
    ok(fabs(row[0].kl - 0.5 * log(9.0 / 8)) < 1e-7, "KL of a half and two quarters, %g",
           row[0].kl);
    ok(row[0].same_top && !row[1].same_top, "of equal logits the first is the likeliest");
    ok(fabs(row[0].base_nll - log(2)) < 1e-7 && fabs(row[0].nll - log(3)) < 1e-7 &&
               fabs(row[1].base_nll - log(4)) < 1e-6,
       "what the tokens cost");
    struct tu_logits_sum s;
    ok(!tu_logits_sum(row, 2, &s, NULL) && s.known && s.same_top == 0.5 &&
               s.same_top_error == 0.5,
       "half of the rows agree");
    ok(near(s.ppl, exp((row[0].nll + row[1].nll) / 2)) &&
               near(s.log_ratio, log(s.ppl / s.base_ppl)),
       "perplexities and their ratio");
}

static void spread(void)
{
    enum { N = 5 };
    struct tu_logits_row row[N];
    struct tu_logits_sum s;
    for (unsigned i = 0; i < N; i++)
        row[i] = (struct tu_logits_row){.kl = N - i, .nll = NAN, .base_nll = NAN};
    ok(!tu_logits_sum(row, N, &s, NULL) && !s.known, "no tokens");
    ok(s.kl.mean == 3 && near(s.kl.error, sqrt(2.5 / 5)) && s.kl.min == 1 && s.kl.max == 5 &&
               s.kl.quantile[4] == 3 && near(s.kl.quantile[5], 4.6) &&
               near(s.kl.quantile[3], 1.4),
       "mean, its error, quantiles as numpy has them");
    ok(tu_logits_sum(row, 0, &s, NULL) == TU_EUSAGE, "no rows are an error");
}

static void edges(void)
{
    const float masked[3] = {0, 0, -INFINITY}, open[3] = {0, 0, 0}, bad[3] = {0, NAN, 0},
                none[3] = {-INFINITY, -INFINITY, -INFINITY};
    struct tu_logits_row row;
    struct tu_err err;
    const int64_t far = 3;
    ok(!tu_logits_compare(masked, open, NULL, 0, 1, 3, &row, NULL, NULL) &&
               fabs(row.kl - log(1.5)) < 1e-12,
       "a token that cannot come has no part");
    ok(!tu_logits_compare(open, masked, NULL, 0, 1, 3, &row, NULL, NULL) && isinf(row.kl),
       "one that could come and cannot any more: infinite");
    ok(!tu_logits_compare(open, open, NULL, 0, 1, 3, &row, NULL, NULL) && row.kl == 0,
       "nothing has moved: 0");
    ok(tu_logits_compare(open, bad, NULL, 7, 1, 3, &row, NULL, &err) == TU_EUNSUP &&
               strstr(err.msg, "row 7: column 1: NaN"),
       "NaN is named");
    ok(tu_logits_compare(none, open, NULL, 0, 1, 3, &row, NULL, NULL) == TU_EUNSUP,
       "a row of nothing");
    ok(tu_logits_compare(open, open, &far, 0, 1, 3, &row, NULL, NULL) == TU_EUSAGE,
       "a token outside the vocabulary");
}

int main(void)
{
    by_hand();
    spread();
    edges();
    return tap_done();
}
