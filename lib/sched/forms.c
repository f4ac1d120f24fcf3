/* SPDX-License-Identifier: Apache-2.0 */
/* forms.c: how layers, optimizer updates and diffusion steps overlap compute with data
 * movement.
 *
 * Each is a few lines of exact list scheduling on one compute queue and one link. Those
 * that the header calls tensorutils definitions are plain readings of papers whose exact
 * rule is not public. */
#include <math.h>
#include "tensorutils/sched/plan.h"

void tu_form_ladder(const double *module, size_t n, double c, double *standard,
                    double *ladder)
{
    double at = 0, link = 0, reduced[2] = {0, 0};
    *standard = 0;
    for (size_t k = 0; k < n; k++) {
        *standard += module[k] + c;
        /* Module k needs the reduction of module k-2. */
        at = fmax(at, reduced[k % 2]) + module[k];
        link = fmax(link, at) + c;
        reduced[k % 2] = link;
    }
    *ladder = fmax(at, link);
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

double tu_form_t3(double g, double r, size_t chunks)
{
    double made = 0, sent = 0;
    for (size_t k = 0; k < chunks; k++) {
        made += g / (double)chunks;
        sent = fmax(sent, made) + r / (double)chunks;
    }
    return fmax(made, sent);
}

void tu_form_scmoe(const double t[8], double *sequential, double *overlapped,
                   double *hidden, unsigned *position)
{
    const double a1 = t[0], g = t[4], d = t[5], e = t[6], c = t[7];
    *sequential = 0;
    *overlapped = INFINITY;
    for (int k = 0; k < 8; k++)
        *sequential += t[k];
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
        if (end < *overlapped - 1e-12) {
            *overlapped = end;
            *position = pos;
        }
    }
    double compute = *sequential - d - c;
    *hidden = d + c > 0 ? (d + c - (*overlapped - compute)) / (d + c) : 1;
}

double tu_form_nano(const double *time, const unsigned *resource, size_t ops, size_t k,
                    double overhead, size_t layers)
{
    double chain[8] = {0}, free_at[3] = {0};
    size_t next[8] = {0}, total = ops * layers;
    if (!k || k > 8)
        return NAN;
    for (size_t left = total * k; left; left--) {
        size_t best = k;
        double start = INFINITY;
        for (size_t b = 0; b < k; b++) {
            if (next[b] == total)
                continue;
            double at = fmax(chain[b], free_at[resource[next[b] % ops]]);
            if (at < start - 1e-12) {
                start = at;
                best = b;
            }
        }
        size_t op = next[best]++ % ops;
        double end = start + time[op] / (double)k + (k > 0 ? overhead : 0);
        chain[best] = end;
        free_at[resource[op]] = end;
    }
    double last = 0;
    for (size_t b = 0; b < k; b++)
        last = fmax(last, chain[b]);
    return last;
}

unsigned tu_form_update_stride(double cpu, double convert, double gpu, double link)
{
    double one = 1 / cpu + 1 / convert;
    if (one <= 2 / link)
        return 0;
    for (unsigned k = 1; k < 1000000; k++)
        if (k * one >= fmax(fmax((12 + 2.0 * k) / link, 12 / link), 1 / gpu))
            return k;
    return 0;
}

double tu_form_pipeline(const double *stage, size_t stages, size_t layers)
{
    double sum = 0, most = 0;
    for (size_t k = 0; k < stages; k++) {
        sum += stage[k];
        most = fmax(most, stage[k]);
    }
    return layers ? sum + (double)(layers - 1) * most : 0;
}

int tu_form_asyncdiff(const double *c, size_t n, double broadcast, size_t warm,
                      size_t stride, size_t steps, double *time, struct tu_err *err)
{
    double sum = 0, most = 0;
    if (warm < 1 || warm > steps || stride < 1 || stride > 2 || !n)
        return tu_fail(err, TU_EUSAGE,
                       "asyncdiff: warm-up in 1 … steps and stride 1 or 2 are needed");
    for (size_t k = 0; k < n; k++) {
        sum += c[k];
        most = fmax(most, c[k]);
    }
    size_t rest = (steps - warm + stride - 1) / stride;
    *time = (double)warm * sum + (double)rest * (most + broadcast);
    return 0;
}
