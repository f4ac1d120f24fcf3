/* SPDX-License-Identifier: Apache-2.0 */
/* Philox's known answers; fills against single elements; normals against libm and their
 * law. */
#include <math.h>
#include <stdlib.h>
#include "../tap.h"
#include "tensorutils/core/rng.h"

#define TWO_PI 6.283185307179586476925286766559

/* From the known-answer file of the authors' Random123 library. */
static void test_known(void)
{
    static const struct {
        const char *what;
        uint32_t key[2], counter[4], out[4];
    } row[] = {
        {"zeros", {0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {"ones", {0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {"pi", {0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        uint32_t out[4];
        tu_rng_block(row[i].key, row[i].counter, out);
        eq_mem(out, row[i].out, sizeof out, "known answer: %s", row[i].what);
    }
    const struct tu_rng pi = {.seed = UINT64_C(0x299f31d0a4093822),
                              .stream = UINT64_C(0x0370734413198a2e)};
    /* The largest index, so the largest block number of a stream. */
    uint32_t key[2] = {0xa4093822, 0x299f31d0}, out[4];
    uint32_t counter[4] = {0xffffffff, 0x3fffffff, 0x13198a2e, 0x03707344};
    tu_rng_block(key, counter, out);
    eq_u64(tu_rng_u32(&pi, UINT64_MAX), out[3], "the last index is word 3 of its block");
    eq_u64(tu_rng_stream(""), UINT64_C(0xcbf29ce484222325), "FNV-1a of nothing");
    eq_u64(tu_rng_stream("foobar"), UINT64_C(0x85944171f73967e8), "FNV-1a of foobar");
}

static void test_uniform(void)
{
    static const double want[8] = {.612959862, .468586504, .073231697, .340861499,
                                   .987718642, .327063322, .513906121, .454315543};
    const struct tu_rng r = {.seed = 42};
    float out[8];
    tu_rng_uniform(&r, 0, out, 8);
    for (int i = 0; i < 8; i++)
        ok(fabs(out[i] - want[i]) < 1e-9, "uniform %d of seed 42 is %.9f", i, out[i]);
    unsigned bad = 0;
    float one;
    for (uint64_t i = 0; i < 1000; i++) {
        tu_rng_uniform(&r, i, &one, 1);
        bad += one != (float)(tu_rng_u32(&r, i) >> 8) / 16777216;
    }
    eq_u64(bad, 0, "24 bits of the word");
}

/* Any part of a stream equals that part of the whole. */
static void test_parts(void (*fill)(const struct tu_rng *, uint64_t, float *, size_t),
                       const char *what)
{
    enum { N = 3000 };
    static float whole[N], part[N];
    const struct tu_rng r = {.seed = 5, .stream = tu_rng_stream("layer.0.weight")};
    const uint64_t base = (UINT64_C(1) << 34) - 1001; /* the counter carries inside */
    fill(&r, base, whole, N);
    unsigned bad = 0;
    for (size_t from = 0; from < 300; from += 7)
        for (size_t n = 0; n + from < 1600; n = n * 2 + 1) {
            fill(&r, base + from, part, n);
            bad += memcmp(part, whole + from, n * sizeof *part) != 0;
        }
    eq_u64(bad, 0, "%s: parts equal the whole", what);
}

static void test_normal(void)
{
    enum { N = 1 << 20 };
    float *out = malloc(N * sizeof *out);
    const struct tu_rng r = {.seed = 1};
    tu_rng_normal(&r, 0, out, N);
    double worst = 0, sum = 0, square = 0, fourth = 0;
    unsigned within = 0;
    for (uint64_t i = 0; i < N; i += 2) {
        double u = (tu_rng_u32(&r, i) + 0.5) / 4294967296, radius = sqrt(-2 * log(u));
        double angle = tu_rng_u32(&r, i + 1) / 4294967296.0 * TWO_PI;
        double want[2] = {radius * cos(angle), radius * sin(angle)};
        for (unsigned k = 0; k < 2; k++) {
            double v = out[i + k];
            /* Where libm's own angle is near a zero, its rounding shows in absolute
             * terms. */
            double off = fabs(v - want[k]) - 1e-15;
            worst = fmax(worst, off / fabs(want[k]));
            sum += v;
            square += v * v;
            fourth += v * v * v * v;
            within += fabs(v) < 1;
        }
    }
    ok(worst < 0x1p-24 * 1.001, "within half a unit of libm (%.3g)", worst);
    /* Five deviations of each estimate. */
    ok(fabs(sum / N) < 5 / 1024.0, "mean %.5f", sum / N);
    ok(fabs(square / N - 1) < 5 * sqrt(2) / 1024, "variance %.5f", square / N);
    ok(fabs(fourth / N - 3) < 5 * sqrt(96) / 1024, "fourth moment %.5f", fourth / N);
    ok(fabs(within / (double)N - 0.682689) < 5 * 0.4655 / 1024,
       "%.5f within one deviation",
       within / (double)N);
    free(out);
}

int main(void)
{
    test_known();
    test_uniform();
    test_parts(tu_rng_uniform, "uniform");
    test_parts(tu_rng_normal, "normal");
    test_normal();
    return tap_done();
}
