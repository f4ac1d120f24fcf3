/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier against every choice there is: each prefix is the best of its size. */
#include <math.h>
#include "../tap.h"
#include "tensorutils/quant.h"

enum { TENSORS = 4, WAYS = 4 };

static double best_within(const struct tu_way *w, uint64_t bytes)
{
    double best = INFINITY;
    for (unsigned c = 0; c < 256; c++) {
        uint64_t size = 0;
        double error = 0;
        for (unsigned i = 0; i < TENSORS; i++) {
            size += w[i * WAYS + (c >> 2 * i & 3)].bytes;
            error += w[i * WAYS + (c >> 2 * i & 3)].error;
        }
        if (size <= bytes && error < best)
            best = error;
    }
    return best;
}

int main(void)
{
    const struct tu_rng r = {.seed = 1};
    unsigned worse = 0, wrong = 0;
    for (unsigned t = 0; t < 200; t++) {
        struct tu_way w[TENSORS * WAYS];
        size_t at[TENSORS], steps;
        struct tu_step *step;
        struct tu_err err;
        for (unsigned i = 0; i < TENSORS * WAYS; i++)
            w[i] = (struct tu_way){1 + tu_rng_u32(&r, t * 64 + 2 * i) % 100,
                                   (double)(tu_rng_u32(&r, t * 64 + 2 * i + 1) % 1000)};
        if (tu_frontier(w, TENSORS, WAYS, at, &step, &steps, &err)) {
            ok(false, "frontier: %s", err.msg);
            break;
        }
        for (size_t s = 0; s < steps; s++) {
            uint64_t bytes = 0;
            if (s)
                at[step[s].tensor] = step[s].way;
            for (unsigned i = 0; i < TENSORS; i++)
                bytes += w[i * WAYS + at[i]].bytes;
            wrong += bytes != step[s].bytes;
            worse += step[s].error > best_within(w, step[s].bytes) + 1e-9;
        }
        tu_free(step);
    }
    eq_u64(wrong, 0, "sizes are those of the choices");
    eq_u64(worse, 0, "no choice of the same size is better");
    struct tu_way none = {1, NAN};
    size_t first, steps;
    struct tu_step *step;
    eq_int(tu_frontier(&none, 1, 1, &first, &step, &steps, NULL), TU_EUSAGE,
           "no type fits");
    return tap_done();
}
