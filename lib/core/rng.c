/* SPDX-License-Identifier: Apache-2.0 */
/* rng.c: Philox4x32-10 in batches, and normals from it that are the same bytes
 * everywhere.
 *
 * Only + - * / and the square root of IEEE 754 touch a normal before its last rounding to
 * float, in one order and without contraction, so no machine or libm can change it.
 * Batches are of fixed size and loops have no branches, so a compiler may turn them into
 * vectors. */
#include <math.h>
#include <string.h>
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/rng.h"

#define ROUNDS 10
#define MUL_0 UINT32_C(0xD2511F53)
#define MUL_2 UINT32_C(0xCD9E8D57)
#define WEYL_0 UINT32_C(0x9E3779B9)
#define WEYL_1 UINT32_C(0xBB67AE85)

#define BLOCKS 64 /* of a batch */
#define WORDS (4 * BLOCKS)

static inline void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t p0 = (uint64_t)c[0] * MUL_0, p2 = (uint64_t)c[2] * MUL_2;
        uint32_t x0 = (uint32_t)(p2 >> 32) ^ c[1] ^ k0;
        uint32_t x2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p2;
        c[3] = (uint32_t)p0;
        c[0] = x0;
        c[2] = x2;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
}

void tu_rng_block(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    memcpy(out, counter, 4 * sizeof *out);
    philox(out, key[0], key[1]);
}

/* FNV-1a: G. Fowler, L. Noll, K.-P. Vo, 64-bit parameters. */
uint64_t tu_rng_stream(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

uint32_t tu_rng_u32(const struct tu_rng *r, uint64_t i)
{
    uint64_t block = i / 4;
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)r->stream,
                     (uint32_t)(r->stream >> 32)};
    philox(c, (uint32_t)r->seed, (uint32_t)(r->seed >> 32));
    return c[i % 4];
}

/* The words of BLOCKS blocks from `block` on. */
static void batch(const struct tu_rng *r, uint64_t block, uint32_t out[WORDS])
{
    uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS], c3[BLOCKS];
    uint32_t k0 = (uint32_t)r->seed, k1 = (uint32_t)(r->seed >> 32);
    for (unsigned i = 0; i < BLOCKS; i++) {
        c0[i] = (uint32_t)(block + i);
        c1[i] = (uint32_t)((block + i) >> 32);
        c2[i] = (uint32_t)r->stream;
        c3[i] = (uint32_t)(r->stream >> 32);
    }
    for (int round = 0; round < ROUNDS; round++, k0 += WEYL_0, k1 += WEYL_1) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            uint64_t p0 = (uint64_t)c0[i] * MUL_0, p2 = (uint64_t)c2[i] * MUL_2;
            c0[i] = (uint32_t)(p2 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p2;
            c3[i] = (uint32_t)p0;
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

/* Each fills the floats of one batch. */
typedef void (*shape_fn)(const uint32_t word[WORDS], float out[WORDS]);

static void to_uniform(const uint32_t word[WORDS], float out[WORDS])
{
    for (unsigned i = 0; i < WORDS; i++)
        out[i] = (float)(int32_t)(word[i] >> 8) * 0x1p-24f;
}

static inline uint64_t bits_of(double v)
{
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static inline double double_of(uint64_t b)
{
    double v;
    memcpy(&v, &b, sizeof v);
    return v;
}

/* An unsigned 32-bit integer as a double, exactly, without the conversion that old vector
 * sets lack: it becomes the low half of 2^52's significand. */
static inline double exact(uint32_t v)
{
    return double_of(UINT64_C(0x4330000000000000) | v) - 0x1p52;
}

/* Natural logarithm of a normal v in (2^-64, 1]. v = m 2^e with m in [sqrt(1/2),
 * sqrt(2)), and ln m = 2 artanh(s), s = (m-1)/(m+1), |s| < 0.1716: the series to s^21
 * ends below 2^-56. */
static inline double logarithm(double v)
{
    const uint64_t sqrt_half = UINT64_C(0x3fe6a09e00000000), bias = UINT64_C(1024) << 52;
    uint64_t b = bits_of(v), t = b - sqrt_half + bias;
    double e = double_of(UINT64_C(0x4330000000000000) | t >> 52) - (0x1p52 + 1024);
    double m = double_of(b - (t & UINT64_C(0xfff0000000000000)) + bias);
    double s = (m - 1) / (m + 1), q = s * s;
    double sum = 1.0 / 21;
    sum = sum * q + 1.0 / 19;
    sum = sum * q + 1.0 / 17;
    sum = sum * q + 1.0 / 15;
    sum = sum * q + 1.0 / 13;
    sum = sum * q + 1.0 / 11;
    sum = sum * q + 1.0 / 9;
    sum = sum * q + 1.0 / 7;
    sum = sum * q + 1.0 / 5;
    sum = sum * q + 1.0 / 3;
    return e * 0x1.62e42fefa39efp-1 + 2 * (s + s * q * sum);
}

/* Cosine and sine of 2 pi w / 2^32. The word is a quadrant (rounded to nearest) and the
 * rest, an angle within pi/4 of it, where Taylor series to x^17 and x^16 end below
 * 2^-56. */
static inline void circle(uint32_t w, double *cosine, double *sine)
{
    uint32_t turned = w + (UINT32_C(1) << 29), quadrant = turned >> 30;
    double rest = exact(turned & 0x3fffffff) - 0x1p29;
    double x = rest * (0x1.921fb54442d18p+0 * 0x1p-30), q = x * x;
    double s = 1.0 / 355687428096000;
    s = s * q - 1.0 / 1307674368000;
    s = s * q + 1.0 / 6227020800;
    s = s * q - 1.0 / 39916800;
    s = s * q + 1.0 / 362880;
    s = s * q - 1.0 / 5040;
    s = s * q + 1.0 / 120;
    s = s * q - 1.0 / 6;
    s = x + x * q * s;
    double c = 1.0 / 20922789888000;
    c = c * q - 1.0 / 87178291200;
    c = c * q + 1.0 / 479001600;
    c = c * q - 1.0 / 3628800;
    c = c * q + 1.0 / 40320;
    c = c * q - 1.0 / 720;
    c = c * q + 1.0 / 24;
    c = c * q - 0.5;
    c = 1 + q * c;
    /* Odd quadrants exchange the two. Cosine is negative in 1 and 2, sine in 2 and 3. */
    uint64_t odd = 0 - (uint64_t)(quadrant & 1), differ = (bits_of(s) ^ bits_of(c)) & odd;
    uint64_t flip_c = (uint64_t)((quadrant + 1) & 2) << 62;
    uint64_t flip_s = (uint64_t)(quadrant & 2) << 62;
    *cosine = double_of(bits_of(c) ^ differ ^ flip_c);
    *sine = double_of(bits_of(s) ^ differ ^ flip_s);
}

/* Box-Muller: radius from the even word, which is moved off zero, angle from the odd
 * one. */
static void to_normal(const uint32_t word[WORDS], float out[WORDS])
{
    double radius[WORDS / 2], cosine[WORDS / 2], sine[WORDS / 2];
    for (unsigned i = 0; i < WORDS / 2; i++) {
        radius[i] = -2 * logarithm((exact(word[2 * i]) + 0.5) * 0x1p-32);
        circle(word[2 * i + 1], &cosine[i], &sine[i]);
    }
    for (unsigned i = 0; i < WORDS / 2; i++)
        radius[i] = sqrt(radius[i]);
    for (unsigned i = 0; i < WORDS / 2; i++) {
        out[2 * i] = (float)(radius[i] * cosine[i]);
        out[2 * i + 1] = (float)(radius[i] * sine[i]);
    }
}

static void fill(const struct tu_rng *r, uint64_t first, float *out, size_t n,
                 shape_fn shape)
{
    uint32_t word[WORDS];
    while (n) {
        float part[WORDS];
        size_t skip = (size_t)(first % 4), some = (size_t)tu_min(n, WORDS - skip);
        float *to = some == WORDS ? out : part;
        batch(r, first / 4, word);
        shape(word, to);
        if (to == part)
            memcpy(out, part + skip, some * sizeof *out);
        out += some;
        first += some;
        n -= some;
    }
}

void tu_rng_uniform(const struct tu_rng *r, uint64_t first, float *out, size_t n)
{
    fill(r, first, out, n, to_uniform);
}

void tu_rng_normal(const struct tu_rng *r, uint64_t first, float *out, size_t n)
{
    fill(r, first, out, n, to_normal);
}
