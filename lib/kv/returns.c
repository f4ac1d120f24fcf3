/* SPDX-License-Identifier: Apache-2.0 */
/* returns.c: whether and when blocks are asked for again, learned as a trace goes by.
 *
 * Whether: a logistic regression over one value of each of a few features, by stochastic
 * descent with a step for each weight (AdaGrad: Duchi, Hazan, Singer, JMLR 12, 2011); all
 * weights begin at zero. When: a hazard rate over age. That of each pace of return is
 * scaled to the forecast's level, and what parts of this very level have done takes its
 * place as it comes in: who was foretold to return and has not for long will not. A part
 * is worth the best ratio, over all times to wait, of the chance that it returns to the
 * time that it is expected to be kept:
 *
 *   worth(age) = max over w of P(returns within w | alive at age) / E[time kept]
 *
 * Related: Beckmann, Chen, Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit
 * Density", NSDI 2018. This does not know what a cache is. */
#include "returns.h"
#include <math.h>
#include <string.h>

enum { WINDOW = 8192 }; /* requests whose ends are evidence */
enum { SOME = 16 };     /* sessions' worth of time that a prior guess weighs */

/* Levels of the forecast: where each ends, and the chance that stands for it. */
static const double ends[TUI_LEVELS - 1] = {.03, .06, .09, .13, .18, .24,
                                            .31, .4,  .5,  .62, .75};
static const double chance[TUI_LEVELS] = {.02,  .045, .075, .11, .155, .21,
                                          .275, .355, .45,  .56, .68,  .84};

void tui_returns_init(struct tui_returns *r)
{
    double at = 0;
    memset(r, 0, sizeof *r);
    for (int b = 0; b < TUI_AGES; b++) {
        r->edge[b] = (uint32_t)at;
        at = at < 250 ? at + 48 : at * 1.53;
    }
    r->edge[TUI_AGES] = UINT32_MAX;
}

unsigned char tui_returns_bucket(const struct tui_returns *r, uint32_t age)
{
    unsigned char b = 0;
    while (age >= r->edge[b + 1])
        b++;
    return b;
}

static double forecast(const struct tui_returns *r, const struct tui_part *p, bool fresh)
{
    double sum = -1; /* of what nothing is known, one in four returns */
    for (int k = 0; k < TUI_LOOKS; k++)
        sum += r->weight[fresh][p->look[k]];
    return 1 / (1 + exp(-sum));
}

unsigned char tui_returns_class(const struct tui_returns *r, const struct tui_part *p,
                                bool fresh, unsigned pace)
{
    double c = forecast(r, p, fresh);
    unsigned level = 0;
    while (level < TUI_LEVELS - 1 && c >= ends[level])
        level++;
    return (unsigned char)(level * TUI_PACES + pace);
}

static void train(struct tui_returns *r, const struct tui_part *p, bool fresh)
{
    double weight = pow(p->size, 0.3); /* larger ones count for more */
    double came = p->returned && p->returned <= r->horizon ? 1 : 0;
    double slope = weight * (forecast(r, p, fresh) - came);
    for (int k = 0; k < TUI_LOOKS; k++) {
        double *power = &r->power[fresh][p->look[k]];
        *power += slope * slope;
        r->weight[fresh][p->look[k]] -= 0.16 * slope / sqrt(0.75 + *power);
    }
}

void tui_returns_train(struct tui_returns *r, const struct tui_part *part, uint32_t now)
{
    for (; r->horizon && r->trained + r->horizon <= now; r->trained++)
        for (uint32_t fresh = 0; fresh < 2; fresh++)
            if (part[2 * r->trained + fresh].size)
                train(r, &part[2 * r->trained + fresh], fresh);
}

/* Time under watch in each bucket of age, and returns there. */
struct seen {
    double time[TUI_AGES], returns[TUI_AGES];
};
struct evidence {
    struct seen class[TUI_CLASSES], pace[TUI_PACES], all;
};

static double width_of(const struct tui_returns *r, int b)
{
    return b + 1 < TUI_AGES ? (double)(r->edge[b + 1] - r->edge[b]) : (double)r->edge[b];
}

static void add(struct seen *to, const struct seen *from)
{
    for (int b = 0; b < TUI_AGES; b++) {
        to->time[b] += from->time[b];
        to->returns[b] += from->returns[b];
    }
}

/* Larger parts count for more, but not in proportion: they are few. */
static void gather(const struct tui_returns *r, const struct tui_part *part, uint32_t now,
                   struct evidence *e)
{
    double ended[TUI_CLASSES][TUI_AGES] = {{0}};
    unsigned waits = TUI_AGES - 1; /* bucket of those that have not returned: falls with i */
    memset(e, 0, sizeof *e);
    for (uint32_t i = now > WINDOW ? 2 * (now - WINDOW) : 0; i < 2 * now; i++) {
        const struct tui_part *p = &part[i];
        uint32_t age = p->returned ? p->returned : now - i / 2;
        double weight = sqrt(p->size) / 5;
        while (now - i / 2 < r->edge[waits])
            waits--;
        unsigned b = p->returned ? p->when : waits;
        ended[p->class][b] += weight;
        e->class[p->class].time[b] += weight * (double)(age - r->edge[b]);
        e->class[p->class].returns[b] += p->returned ? weight : 0;
    }
    for (int c = 0; c < TUI_CLASSES; c++) {
        double beyond = 0;
        for (int b = TUI_AGES - 1; b >= 0; b--) {
            e->class[c].time[b] += beyond * width_of(r, b);
            beyond += ended[c][b];
        }
        add(&e->pace[c % TUI_PACES], &e->class[c]);
        add(&e->all, &e->class[c]);
    }
}

static void weigh(const struct tui_returns *r, const double hazard[TUI_AGES],
                  double worth[TUI_AGES])
{
    double stay[TUI_AGES];
    for (int b = 0; b < TUI_AGES; b++)
        stay[b] = exp(-hazard[b] * width_of(r, b));
    for (int a = 0; a < TUI_AGES; a++) {
        double alive = 1, back = 0, kept = 0;
        worth[a] = 0;
        for (int b = a; b < TUI_AGES; b++) {
            double gone = alive * (1 - stay[b]);
            back += gone;
            kept += gone / hazard[b];
            alive *= stay[b];
            worth[a] = fmax(worth[a], back / kept);
        }
    }
}

/* Returns over time, shrunk towards a rate that is known better by some sessions' worth
 * of time. */
static double rate_of(const struct tui_returns *r, const struct seen *s, int b, double guess)
{
    double some = SOME * width_of(r, b);
    return (s->returns[b] + some * guess) / (s->time[b] + some);
}

/* All towards a falling rate, which makes LRU of no evidence; a pace towards all; a class
 * towards its pace, scaled so that the chance within the horizon is its level's. */
static void learn(struct tui_returns *r, const struct evidence *e)
{
    for (int p = 0; p < TUI_PACES; p++) {
        double rate[TUI_AGES], hazard[TUI_AGES], sum = 0;
        for (int b = 0; b < TUI_AGES; b++) {
            double left = (double)r->horizon - (double)r->edge[b];
            rate[b] = rate_of(r, &e->all, b, 0.5 / (90 + (double)r->edge[b]));
            rate[b] = rate_of(r, &e->pace[p], b, rate[b]);
            sum += left > 0 ? rate[b] * fmin(width_of(r, b), left) : 0;
        }
        for (int l = 0; l < TUI_LEVELS; l++) {
            int c = l * TUI_PACES + p;
            for (int b = 0; b < TUI_AGES; b++)
                hazard[b] = rate_of(r, &e->class[c], b, rate[b] * -log1p(-chance[l]) / sum);
            weigh(r, hazard, r->worth[c]);
        }
    }
}

void tui_returns_learn(struct tui_returns *r, const struct tui_part *part, uint32_t now,
                       double turnover)
{
    struct evidence e;
    /* Some times what a cache of this size holds; less while young. */
    r->horizon = (uint32_t)fmax(64, fmin(4 * turnover, fmin(4000, 256 + now / 3)));
    gather(r, part, now, &e);
    learn(r, &e);
}
