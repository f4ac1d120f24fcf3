/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c: experts onto devices so that tokens stay where they are.
 *
 * Layer by layer: experts start in order; then two of a layer are swapped while more
 * tokens come from an expert of the same device in the layer before. Source: Yao et al.,
 * "ExFlow", 2024. */
#include "tensorutils/sched/split.h"

int tu_place_experts(const uint64_t *routed, size_t layers, size_t experts,
                     size_t devices, uint32_t *device, double *kept, struct tu_err *err)
{
    if (!devices || !experts || experts % devices)
        return tu_fail(err, TU_EUSAGE, "experts: %zu do not divide among %zu devices",
                       experts, devices);
    for (size_t e = 0; e < experts; e++)
        device[e] = (uint32_t)(e / (experts / devices));
    uint64_t stay = 0, total = 0;
    for (size_t l = 1; l < layers; l++) {
        const uint64_t *go = routed + (l - 1) * experts * experts;
        const uint32_t *from = device + (l - 1) * experts;
        uint32_t *to = device + l * experts;
        uint64_t *gain = tu_calloc(experts * devices, sizeof *gain, err);
        if (!gain)
            return TU_ENOMEM;
        for (size_t a = 0; a < experts; a++)
            for (size_t b = 0; b < experts; b++) {
                gain[b * devices + from[a]] += go[a * experts + b];
                total += go[a * experts + b];
            }
        for (size_t e = 0; e < experts; e++)
            to[e] = (uint32_t)(e / (experts / devices));
        for (bool better = true; better;) {
            better = false;
            for (size_t a = 0; a < experts; a++)
                for (size_t b = 0; b < a; b++) {
                    uint64_t now = gain[a * devices + to[a]] + gain[b * devices + to[b]];
                    uint64_t then = gain[a * devices + to[b]] + gain[b * devices + to[a]];
                    if (then <= now)
                        continue;
                    uint32_t v = to[a];
                    to[a] = to[b];
                    to[b] = v;
                    better = true;
                }
        }
        for (size_t e = 0; e < experts; e++)
            stay += gain[e * devices + to[e]];
        tu_free(gain);
    }
    *kept = total ? (double)stay / (double)total : 1;
    return 0;
}
