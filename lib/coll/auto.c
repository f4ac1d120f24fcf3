/* SPDX-License-Identifier: Apache-2.0 */
/* auto.c: the choice of an algorithm by the closed forms. */
#include "plan.h"

/* A socket of the loopback; shared memory has the fused algorithm or is quicker in both.
 */
#define ALPHA 2.5e-6
#define BETA (1 / 2.5e9)
#define GAMMA (1 / 10e9)

const char *tu_algorithm_auto(enum tu_collective c, uint32_t ranks, double bytes,
                              bool shared, enum tu_order order)
{
    const char *best = NULL;
    double least = 0;
    bool ordered = order != TU_ORDER_ANY && tu_collective_rows[c].reduces;
    for (size_t i = 0; tu_algorithms[i]; i++) {
        const struct tu_algorithm *a = tu_algorithms[i];
        struct tu_spec spec = {.name = (char *)(uintptr_t)a->name};
        struct tu_plan p;
        if (a->coll != c || (ordered && !(a->flags & TU_ALG_ORDERED)))
            continue;
        if (a->flags & TU_ALG_SHARED) {
            if (shared)
                return a->name;
            continue;
        }
        if (tu_plan_make(&p, c, &spec, ranks, 0, 1, NULL))
            continue;
        double t = a->model ? a->model(&p, bytes, ALPHA, BETA, GAMMA) : 0;
        if (a->model && (!best || t < least)) {
            best = a->name;
            least = t;
        }
    }
    return best;
}
