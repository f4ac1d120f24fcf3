/* SPDX-License-Identifier: Apache-2.0 */
/* returns.h: what the adaptive policy foretells of a part of a request's blocks: whether
 * it is asked for again, and when. */
#ifndef TU_KV_RETURNS_H
#define TU_KV_RETURNS_H

#include <tensorutils/kv/replay.h>

enum { TUI_LEVELS = 12, TUI_PACES = 4, TUI_CLASSES = TUI_LEVELS * TUI_PACES };
enum { TUI_AGES = 24 };

/* What the forecast looks at, and how many values each has. */
enum {
    TUI_TURN = 10,   /* how often the session has come back */
    TUI_GAP = 8,     /* after how many requests, the last time; and the time before */
    TUI_LENGTH = 20, /* blocks of the request; apart for what goes on and what begins */
    TUI_OUTPUT = 12, /* tokens of the answer */
    TUI_FRESH = 10,  /* blocks that were never seen */
    TUI_ADDED = 28,  /* tokens beyond the request before and its answer */
    TUI_USES = 10,   /* of the second block */
    TUI_CUT = 7,     /* blocks of the request before that this one has not */
    TUI_ANSWER = 6,  /* tokens of the answer, if it goes on: */
    TUI_BOTH = TUI_ADDED * TUI_ANSWER, /* with those added, together */
    TUI_WEIGHTS = TUI_TURN + 2 * TUI_GAP + TUI_LENGTH + TUI_OUTPUT + TUI_FRESH + TUI_ADDED +
                  TUI_USES + TUI_CUT + TUI_BOTH,
    TUI_LOOKS = 10,
};

/* Blocks that one request asked for: those that were seen before, or those that were not. */
struct tui_part {
    uint32_t size, taken;    /* blocks; of these, asked for again */
    uint32_t returned;       /* age in requests when half of them were, 0: not yet */
    uint32_t left;           /* not yet given up, from the root */
    uint32_t owned;          /* resident ones whose last request it is */
    uint32_t stuck;          /* request during which it had nothing to give */
    unsigned char class, bucket;
    unsigned char row; /* whose list it is in: of its class, or of one of less */
    unsigned char when;      /* bucket of `returned` */
    uint16_t look[TUI_LOOKS]; /* numbers of weights */
};

/* Part 2i is what request i had from before, part 2i+1 what was new. */
struct tui_returns {
    double worth[TUI_CLASSES][TUI_AGES];
    double weight[2][TUI_WEIGHTS], power[2][TUI_WEIGHTS]; /* sums of squared gradients */
    uint32_t edge[TUI_AGES + 1];                          /* ages where buckets begin */
    uint32_t trained; /* requests before it have taught */
    uint32_t horizon; /* requests within which a return counts for the forecast */
};

void tui_returns_init(struct tui_returns *r);
/* The bucket of an age. */
unsigned char tui_returns_bucket(const struct tui_returns *r, uint32_t age);
/* The class of a part whose `look` is set; pace 0 … TUI_PACES-1. */
unsigned char tui_returns_class(const struct tui_returns *r, const struct tui_part *p,
                                bool fresh, unsigned pace);
/* Before request `now`: the answers of those `horizon` ago are in. */
void tui_returns_train(struct tui_returns *r, const struct tui_part *part, uint32_t now);
/* Make `worth` anew of what has been seen; turnover: requests that the cache holds. */
void tui_returns_learn(struct tui_returns *r, const struct tui_part *part, uint32_t now,
                       double turnover);

#endif
