/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c: how the compute of layers and its communication overlap: the forms of a
 * layer graph.
 *
 * Each is a few lines of exact list scheduling on one compute queue and one link. Those
 * that the header calls tensorutils definitions are plain readings of papers whose exact
 * rule is not public. */
#include <math.h>
#include <string.h>
#include "tensorutils/sched/plan.h"

#define LAUNCH 5e-6   /* seconds: what each operation of a further nano-batch costs */
#define T3_CHUNKS 8
#define EIGHTHS 8
#define NANO_MAX 8
#define RESOURCES 3

double tu_form_ladder(const double *module, size_t n, double c)
{
    double at = 0, link = 0, reduced[2] = {0, 0};
    for (size_t k = 0; k < n; k++) {
        /* Module k needs the reduction of module k-2. */
        at = fmax(at, reduced[k % 2]) + module[k % 2];
        link = fmax(link, at) + c;
        reduced[k % 2] = link;
    }
    return fmax(at, link);
}

double tu_form_kraken(double attention, double ffn, double c, size_t layers)
{
    double at = 0, reduced = 0;
    for (size_t l = 0; l < layers; l++) {
        at = fmax(at + attention, reduced) + ffn;
        reduced = fmax(reduced, at) + c;
    }
    return fmax(at, reduced);
}

double tu_form_t3(double g, double r, size_t chunks, double contention)
{
    double made = 0, sent = 0, n = (double)chunks;
    for (size_t k = 0; k < chunks; k++) {
        double slow = fmin(fmax(sent - made, 0), g / n * (1 + contention));
        /* While the link is busy this part of the product takes 1 + contention. */
        made += g / n + slow * contention / (1 + contention);
        sent = fmax(sent, made) + r / n;
    }
    return fmax(made, sent);
}

double tu_form_scmoe(const double t[8], double *hidden, unsigned *position)
{
    const double a1 = t[0], g = t[4], d = t[5], e = t[6], c = t[7];
    double best = INFINITY, compute = -d - c;
    for (int k = 0; k < 8; k++)
        compute += t[k];
    for (unsigned pos = 0; pos < 4; pos++) {
        double at = a1 + g, dispatched = at + d, combined = 0;
        for (unsigned k = 0; k < 4; k++) {
            if (k == pos) {
                at = fmax(at, dispatched) + e;
                combined = at + c;
            }
            at += k < 3 ? t[1 + k] : 0;
        }
        double end = fmax(at, combined);
        if (end < best - 1e-12) {
            best = end;
            *position = pos;
        }
    }
    *hidden = d + c > 0 ? (d + c - (best - compute)) / (d + c) : 1;
    return best;
}

/* Nano-batches under way. */
struct nano {
    const double *time;
    const unsigned *resource;
    size_t ops, k, total;
    const double *speed;
    size_t next[NANO_MAX];  /* operation of each chain */
    double left[NANO_MAX];  /* of the one that runs, at full speed */
    int serves[RESOURCES];  /* chain, -1: idle */
    bool runs[NANO_MAX];
};

/* Every operation that can start now; the lower nano-batch first. */
static unsigned start(struct nano *n, const double *share, double overhead)
{
    unsigned busy = 0;
    for (size_t b = 0; b < n->k; b++) {
        size_t op = n->next[b] % n->ops;
        if (n->runs[b] || n->next[b] == n->total || n->serves[n->resource[op]] >= 0)
            continue;
        n->serves[n->resource[op]] = (int)b;
        n->runs[b] = true;
        n->left[b] = n->time[op] * (share ? share[b] : 1 / (double)n->k) + overhead;
    }
    for (size_t r = 0; r < RESOURCES; r++)
        busy += n->serves[r] >= 0;
    return busy;
}

double tu_form_nano(const double *time, const unsigned *resource, size_t ops, size_t k,
                    const double *share, double overhead, size_t layers,
                    const double *speed)
{
    struct nano n = {time, resource, ops, k, ops * layers, speed, {0}, {0},
                     {-1, -1, -1}, {false}};
    double at = 0;
    if (!k || k > NANO_MAX)
        return NAN;
    for (unsigned busy; (busy = start(&n, share, overhead)) > 0;) {
        double rate[RESOURCES], step = INFINITY;
        for (size_t r = 0; r < RESOURCES; r++) {
            rate[r] = speed && busy > 1 ? speed[r] : 1;
            if (n.serves[r] >= 0)
                step = fmin(step, n.left[n.serves[r]] / rate[r]);
        }
        at += step;
        for (size_t r = 0; r < RESOURCES; r++) {
            int b = n.serves[r];
            if (b < 0)
                continue;
            n.left[b] -= step * rate[r];
            if (n.left[b] > 1e-12 * at) /* what rounding leaves is nothing */
                continue;
            n.serves[r] = -1;
            n.runs[b] = false;
            n.next[b]++;
        }
    }
    return at;
}

double tu_form_nano_best(const double *time, const unsigned *resource, size_t ops,
                         double overhead, size_t layers, const double *speed,
                         size_t *k)
{
    double best = tu_form_nano(time, resource, ops, 1, NULL, overhead, layers, speed);
    *k = 1;
    for (size_t n = 2; n <= 4; n++) {
        /* Every way to write eight as a sum of n; the last part is what is left. */
        unsigned part[4] = {1, 1, 1, 1};
        for (;;) {
            unsigned sum = 0;
            double share[4], t;
            for (size_t i = 0; i + 1 < n; i++)
                sum += part[i];
            part[n - 1] = EIGHTHS - sum;
            for (size_t i = 0; i < n; i++)
                share[i] = (double)part[i] / EIGHTHS;
            t = tu_form_nano(time, resource, ops, n, share, overhead, layers, speed);
            if (t < best - 1e-12) {
                best = t;
                *k = n;
            }
            size_t i = 0;
            for (part[0]++; i + 1 < n; part[++i]++) { /* an odometer of n-1 digits */
                sum = 0;
                for (size_t j = 0; j + 1 < n; j++)
                    sum += part[j];
                if (sum < EIGHTHS)
                    break;
                part[i] = 1;
            }
            if (i + 1 >= n)
                break;
        }
        double equal =
            tu_form_nano(time, resource, ops, n, NULL, overhead, layers, speed);
        if (equal < best - 1e-12) {
            best = equal;
            *k = n;
        }
    }
    return best;
}

/* The table
 * --------------------------------------------------------------------------- */

/* Everything of a layer's second half that a token waits for. */
static double second(const struct tu_layer *l)
{
    return l->gate + l->dispatch + l->mlp + l->shared + l->combine;
}

static double standard(const struct tu_layer *l, size_t layers,
                       const struct tu_interference *x)
{
    (void)x;
    return (double)layers * (l->attention + second(l) + 2 * l->reduce);
}

static double ladder(const struct tu_layer *l, size_t layers,
                     const struct tu_interference *x)
{
    (void)x;
    return tu_form_ladder((const double[]){l->attention, second(l)}, 2 * layers,
                          l->reduce);
}

static double kraken(const struct tu_layer *l, size_t layers,
                     const struct tu_interference *x)
{
    (void)x;
    return tu_form_kraken(l->attention, second(l), l->reduce, layers);
}

/* Half of an all-reduce is the reduce-scatter that the product feeds. */
static double t3(const struct tu_layer *l, size_t layers,
                 const struct tu_interference *x)
{
    double slower = x ? x->contention : 0;
    double half = l->reduce / 2;
    double both = tu_form_t3(l->out, half, T3_CHUNKS, slower) - l->out +
                  tu_form_t3(l->down, half, T3_CHUNKS, slower) - l->down;
    return (double)layers * (l->attention + second(l) + both + 2 * half);
}

/* Every second layer dense, the experts of the others fed from one layer before. */
static double scmoe(const struct tu_layer *l, size_t layers,
                    const struct tu_interference *x)
{
    (void)x;
    double hidden;
    unsigned position;
    const double t[8] = {l->attention, l->mlp,      l->attention, l->shared,
                         l->gate,      l->dispatch, l->mlp,       l->combine};
    double pair = tu_form_scmoe(t, &hidden, &position);
    return (double)layers / 2 * pair + (double)layers * 2 * l->reduce;
}

/* Four layers and two give the rest: the pattern repeats. */
static double nano_layers(const struct tu_layer *l, size_t layers, const double *speed)
{
    enum { COMPUTE, MEMORY, NETWORK };
    const double time[6] = {l->attention, l->reduce, l->gate + l->dispatch,
                            l->mlp + l->shared, l->combine, l->reduce};
    static const unsigned resource[6] = {COMPUTE, NETWORK, NETWORK,
                                         COMPUTE, NETWORK, NETWORK};
    size_t k;
    double four = tu_form_nano_best(time, resource, 6, LAUNCH, 4, speed, &k);
    double two = tu_form_nano_best(time, resource, 6, LAUNCH, 2, speed, &k);
    return four + ((double)layers - 4) * (four - two) / 2;
}

/* With interference the network gets the share that serves best. */
static double nano(const struct tu_layer *l, size_t layers,
                   const struct tu_interference *x)
{
    double best = standard(l, layers, NULL);
    if (!x || !x->network.n)
        return fmin(best, nano_layers(l, layers, NULL));
    for (size_t i = 0; i < x->network.n; i++) {
        double share = x->network.share[i];
        const double speed[RESOURCES] = {tu_curve_at(&x->compute, 1 - share), 1,
                                         x->network.speed[i]};
        if (speed[0] > 0)
            best = fmin(best, nano_layers(l, layers, speed));
    }
    return best;
}

static const struct tu_overlap form_standard = {
    "standard", "compute and communication in turn", "", false, standard};
static const struct tu_overlap form_nano = {
    "nano", "nano-batches, one to four (tensorutils definition)", "NanoFlow, 2024", false,
    nano};
static const struct tu_overlap form_ladder = {
    "ladder", "a module's all-reduce behind the next module", "Ladder Residual, 2025",
    false, ladder};
static const struct tu_overlap form_kraken = {
    "kraken", "one all-reduce a layer, behind attention (tensorutils definition)",
    "Kraken, 2024", false, kraken};
static const struct tu_overlap form_t3 = {
    "t3", "a product's output reduced chunk by chunk", "T3, 2024", false, t3};
static const struct tu_overlap form_scmoe = {
    "scmoe", "experts fed by a shortcut, every second layer dense", "ScMoE, 2024", true,
    scmoe};

const struct tu_overlap *const tu_overlaps[] = {
    &form_standard, &form_nano, &form_ladder, &form_kraken, &form_t3, &form_scmoe, NULL,
};

const struct tu_overlap *tu_overlap_find(const char *name)
{
    for (size_t i = 0; tu_overlaps[i]; i++)
        if (!strcmp(tu_overlaps[i]->name, name))
            return tu_overlaps[i];
    return NULL;
}
