/* SPDX-License-Identifier: Apache-2.0 */
/* rng.h: random numbers addressed by (seed, stream, index), so that any thread can make any part.
 *
 * Philox4x32-10. Source: J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011
 * (known answers: key 0, counter 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8). Logarithm and
 * cosine are our own, so the normals are the same bytes on every machine. */
#ifndef TENSORUTILS_CORE_RNG_H
#define TENSORUTILS_CORE_RNG_H

#include <stddef.h>
#include <stdint.h>
#include "attr.h"

TU_BEGIN

struct tu_rng {
    uint64_t seed;   /* the key */
    uint64_t stream; /* high half of the counter, e.g. tu_rng_stream("layer.0.weight") */
};

/* One block: four 32-bit words for a counter. */
TU_API void tu_rng_block(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
/* A stream number from a name (FNV-1a, 64 bits). */
TU_API uint64_t tu_rng_stream(const char *name);
/* Element i of the stream: 32 uniform bits; word i%4 of block i/4. */
TU_API uint32_t tu_rng_u32(const struct tu_rng *r, uint64_t i);
/* Fill elements first … first+n-1. Uniform in [0,1): 24 bits. Normal: mean 0, deviation 1,
 * Box-Muller on pairs (2k, 2k+1). */
TU_API void tu_rng_uniform(const struct tu_rng *r, uint64_t first, float *out, size_t n);
TU_API void tu_rng_normal(const struct tu_rng *r, uint64_t first, float *out, size_t n);

TU_END

#endif
