/* SPDX-License-Identifier: Apache-2.0 */
/* uneven.c: shares for devices of unequal speed, memory and network.
 *
 * Sources: Yang et al., "Holmes", 2023 (pipelines across networks, data parallelism
 * within one); Guo et al., "Cephalo", 2024 (compute and state divided apart). */
#include <math.h>
#include "tensorutils/sched/split.h"

int tu_apportion(const double *weight, size_t n, uint64_t total, uint64_t *out,
                 struct tu_err *err)
{
    double sum = 0;
    uint64_t given = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(weight[i] >= 0) || !isfinite(weight[i]))
            return tu_fail(err, TU_EUSAGE, "weight %zu: must not be negative", i);
        sum += weight[i];
    }
    if (!(sum > 0))
        return tu_fail(err, TU_EUSAGE, "weights: all are zero");
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint64_t)floor(weight[i] / sum * (double)total);
        given += out[i];
    }
    for (; given < total; given++) {
        size_t best = 0;
        double most = -1;
        for (size_t i = 0; i < n; i++) {
            double left = weight[i] / sum * (double)total - (double)out[i];
            if (left > most + 1e-12) {
                most = left;
                best = i;
            }
        }
        out[best]++;
    }
    return 0;
}

/* Largest batch share first to the device that ends first; state to free memory. */
int tu_uneven_split(const struct tu_uneven *q, uint64_t *batch, int64_t *state,
                    double *step_s, struct tu_err *err)
{
    int64_t left = q->state_bytes, room = 0;
    double worst = q->gather_s;
    for (size_t i = 0; i < q->devices; i++)
        batch[i] = 0;
    /* Memory that all activations may take together leaves room for the state. */
    for (uint64_t b = 0; b < q->batch; b++) {
        size_t best = q->devices;
        double least_end = INFINITY;
        for (size_t i = 0; i < q->devices; i++) {
            double end = (double)(batch[i] + 1) / q->speed[i];
            bool fits = (int64_t)(batch[i] + 1) * q->sample_bytes <= q->memory[i];
            if (fits && end < least_end) {
                least_end = end;
                best = i;
            }
        }
        if (best == q->devices)
            return tu_fail(err, TU_EUSAGE,
                           "uneven: sample %llu of the batch fits nowhere",
                           (unsigned long long)b);
        batch[best]++;
        worst = fmax(worst, least_end);
    }
    for (size_t i = 0; i < q->devices; i++)
        room += q->memory[i] - (int64_t)batch[i] * q->sample_bytes;
    if (room < left)
        return tu_fail(err, TU_EUSAGE, "uneven: %lld bytes of state, %lld bytes free",
                       (long long)left, (long long)room);
    for (size_t i = 0; i < q->devices; i++) {
        int64_t mine = q->memory[i] - (int64_t)batch[i] * q->sample_bytes;
        state[i] = (int64_t)((double)q->state_bytes * ((double)mine / (double)room));
        state[i] = state[i] > mine ? mine : state[i];
        left -= state[i];
    }
    for (size_t i = 0; i < q->devices && left > 0; i++) {
        int64_t more = q->memory[i] - (int64_t)batch[i] * q->sample_bytes - state[i];
        more = more < left ? more : left;
        state[i] += more;
        left -= more;
    }
    *step_s = worst;
    return 0;
}

/* The next device of a network, the fastest of those without a stage. */
static size_t fastest(const struct tu_nics *q, uint32_t nic, const uint32_t *stage)
{
    size_t best = q->devices;
    for (size_t d = 0; d < q->devices; d++)
        if (q->nic[d] == nic && stage[d] == UINT32_MAX &&
            (best == q->devices || q->speed[d] > q->speed[best]))
            best = d;
    return best;
}

int tu_place_nics(const struct tu_nics *q, uint32_t *stage, uint64_t *layers,
                  size_t *stages, double *step, struct tu_err *err)
{
    uint32_t nics = 0;
    *stages = 0;
    if (!q->dp || q->devices % q->dp)
        return tu_fail(err, TU_EUSAGE, "nics: %zu devices are not whole groups of %zu",
                       q->devices, q->dp);
    double *slowest = tu_calloc(q->devices / q->dp, sizeof *slowest, err);
    if (!slowest)
        return TU_ENOMEM;
    for (size_t d = 0; d < q->devices; d++) {
        stage[d] = UINT32_MAX;
        nics = q->nic[d] + 1 > nics ? q->nic[d] + 1 : nics;
    }
    int rc = 0;
    for (uint32_t n = 0; n < nics && !rc; n++) {
        size_t taken = 0;
        for (size_t d; (d = fastest(q, n, stage)) < q->devices; taken++) {
            stage[d] = (uint32_t)(*stages + taken / q->dp);
            if (stage[d] < q->devices / q->dp)
                slowest[stage[d]] = q->speed[d];
        }
        if (taken % q->dp)
            rc = tu_fail(err, TU_EUSAGE,
                         "nics: network %u has %zu devices: not whole groups of %zu", n,
                         taken, q->dp);
        *stages += taken / q->dp;
    }
    if (!rc && q->layers < *stages)
        rc = tu_fail(err, TU_EUSAGE, "nics: %llu layers for %zu stages",
                     (unsigned long long)q->layers, *stages);
    if (!rc)
        rc = tu_apportion(slowest, *stages, q->layers, layers, err);
    for (size_t k = 0; k < *stages && !rc; k++) {
        size_t most = 0;
        for (size_t i = 1; i < *stages; i++)
            most = layers[i] > layers[most] ? i : most;
        if (!layers[k]) /* no stage is empty */
            layers[k]++, layers[most]--;
    }
    *step = 0;
    for (size_t k = 0; k < *stages && !rc; k++)
        *step = fmax(*step, (double)layers[k] / slowest[k]);
    tu_free(slowest);
    return rc;
}
