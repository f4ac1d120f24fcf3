/* SPDX-License-Identifier: Apache-2.0 */
/* logits.h: quantize measure --logits: distributions of the next token against another
 * model's. */
#ifndef QUANTIZE_LOGITS_H
#define QUANTIZE_LOGITS_H

#include "quantize/quantize.h"

extern struct logits_opt {
    const char *base, *tokens; /* base NULL: not asked for */
} logits_opt;

/* Rows for an option table. */
#define LOGITS_OPTIONS                                                                   \
    {0, "logits", "BASE", "the files are logits: KL divergence and more from those in BASE", \
     TU_OPT_FILE_IN, &logits_opt.base, NULL, 0},                                          \
    {0, "tokens", "FILE", "with --logits: the token after each row, for perplexity",      \
     TU_OPT_FILE_IN, &logits_opt.tokens, NULL, 0}

int logits_run(struct tu_ctx *ctx, int argc, char **argv);

#endif
