/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c: the inner loops of lib/quant/bits.h, affine.h and small.h against loops that
 * do one thing at a time, at every level of the CPU, at lengths around each width. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "../tap.h"
#include "quant/affine.h"
#include "quant/bits.h"
#include "quant/small.h"
#include "tensorutils/core.h"

static const uint32_t level[] = {0, TU_CPU_GROUP_AVX2, TU_CPU_GROUP_AVX512};
enum { LEVELS = 3, MOST = 200 };

static uint32_t at_level(size_t l)
{
    return level[l] & tu_cpu_detect();
}

/* Bit by bit. */
static void test_bits(void)
{
    const struct tu_rng r = {.seed = 1};
    for (unsigned bits = 1; bits <= 8; bits++)
        for (size_t l = 0; l < LEVELS; l++) {
            unsigned bad = 0;
            for (size_t n = 0; n <= MOST; n++) {
                uint8_t code[MOST], back[MOST + 8], want[MOST + 8] = {0}, got[MOST + 8];
                const size_t bytes = (n * bits + 7) / 8;
                for (size_t i = 0; i < n; i++) {
                    code[i] = (uint8_t)(tu_rng_u32(&r, i) & ((1u << bits) - 1));
                    for (unsigned b = 0; b < bits; b++)
                        want[(i * bits + b) / 8] |=
                            (uint8_t)((code[i] >> b & 1) << (i * bits + b) % 8);
                }
                memset(got, 0xa5, sizeof got);
                memset(back, 0xa5, sizeof back);
                tui_bits_pack(at_level(l), code, n, bits, got);
                tui_bits_unpack(at_level(l), got, n, bits, back);
                bad += memcmp(got, want, bytes) || got[bytes] != 0xa5 ||
                       memcmp(back, code, n) || back[n] != 0xa5;
            }
            eq_u64(bad, 0, "%u bits, level %zu: as bit by bit, nothing beyond", bits, l);
        }
}

static void test_high_first(void)
{
    for (size_t l = 0; l < LEVELS; l++) {
        unsigned bad = 0;
        for (size_t n = 0; n <= MOST; n++) {
            uint8_t code[MOST], back[MOST], got[MOST] = {0};
            for (size_t i = 0; i < n; i++)
                code[i] = (uint8_t)(i * 7 % 16);
            tui_nibbles_pack(at_level(l), code, n, true, got);
            tui_nibbles_unpack(at_level(l), got, n, true, back);
            for (size_t i = 0; i < n; i++)
                bad += (i % 2 ? got[i / 2] & 15 : got[i / 2] >> 4) != code[i];
            bad += memcmp(back, code, n) != 0;
        }
        eq_u64(bad, 0, "nibbles, the first high, level %zu", l);
    }
}

/* A value near a whole number of halves of the unit, an extreme one, or any. */
static float some(const struct tu_rng *r, uint32_t i, float unit)
{
    static const float odd[] = {0,        -0.0f,    FLT_MIN,   0x1p-149f, FLT_MAX,
                                -FLT_MAX, INFINITY, -INFINITY, NAN};
    uint32_t u = tu_rng_u32(r, i), kind = u >> 28;
    float v = (float)((int)(u & 1023) - 512) / 2 * unit;
    if (kind == 0)
        return odd[u % (sizeof odd / sizeof *odd)];
    if (kind < 6)
        return v;
    if (kind < 11)
        return nextafterf(v, kind % 2 ? INFINITY : -INFINITY);
    return (float)(int)(u << 4 >> 4) * unit / 1e6f;
}

/* Quotients by an inverse that is corrected must give the codes of a division. */
static void test_affine(void)
{
    static const struct tui_affine_map like[] = {
        {0, false, 0, -8, 7, 8, 15},         /* compressed-tensors, 4 bits */
        {0, false, 37, -128, 127, 128, 255}, /* asymmetric, 8 bits */
        {0, false, 0, -32, 32, 7, 15},       /* GPTQ */
        {0, true, 0, -127, 127, 128, 255},
    };
    enum { COUNT = 1009 };
    static float x[COUNT];
    static uint8_t want[COUNT], got[COUNT];
    for (size_t l = 1; l < LEVELS; l++)
        for (size_t k = 0; k < sizeof like / sizeof *like; k++) {
            unsigned bad = 0;
            for (uint32_t t = 0; t < 400; t++) {
                const struct tu_rng r = {.seed = t, .stream = k};
                struct tui_affine_map m = like[k];
                uint32_t u = tu_rng_u32(&r, UINT32_MAX);
                m.unit =
                    ldexpf(1 + (float)(u & 0x7fffff) * 0x1p-23f, (int)(u >> 24) - 128);
                if (t % 4) /* as scales are */
                    m.unit =
                        ldexpf(1 + (float)(u & 0x7fffff) * 0x1p-23f, (int)(u >> 27) - 20);
                if (t % 7 == 0)
                    m.unit = nextafterf(m.unit, 0); /* all ones, at powers of two */
                for (uint32_t i = 0; i < COUNT; i++)
                    x[i] = some(&r, i, m.multiply ? 1 / m.unit : m.unit);
                tui_affine_code(0, &m, x, COUNT, COUNT, want);
                tui_affine_code(at_level(l), &m, x, COUNT, COUNT, got);
                bad += memcmp(want, got, COUNT) != 0;
                const struct tui_affine_map each[] = {m, m, m, m, m, m, m, m};
                tui_affine_code(at_level(l), each, x, COUNT, 137, got);
                bad += memcmp(want, got, COUNT) != 0;
            }
            eq_u64(bad, 0, "codes of map %zu, level %zu, are the plain loop's", k, l);
        }
}

static void test_awq(void)
{
    enum { N = 53, STRIDE = 64 };
    static const unsigned order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* output of each nibble */
    uint8_t code[8 * STRIDE], back[8 * STRIDE] = {0};
    uint32_t word[N];
    for (size_t i = 0; i < sizeof code; i++)
        code[i] = (uint8_t)(i * 11 % 16);
    for (size_t l = 0; l < LEVELS; l++) {
        unsigned bad = 0;
        tui_awq_join(at_level(l), code, STRIDE, N, word);
        tui_awq_split(at_level(l), word, N, STRIDE, back);
        for (size_t j = 0; j < N; j++)
            for (unsigned k = 0; k < 8; k++)
                bad += (word[j] >> 4 * k & 15) != code[order[k] * STRIDE + j] ||
                       back[k * STRIDE + j] != code[k * STRIDE + j];
        eq_u64(bad, 0, "AWQ's words, level %zu", l);
    }
}

/* Extremes of groups that fill lanes and of such that do not. */
static void test_extremes(void)
{
    enum { N = 5000 };
    static const size_t group[] = {1, 16, 32, 37, 64, 100, 128, 4096};
    static float x[N], lo[N], hi[N], amax[N];
    const struct tu_rng r = {.seed = 9};
    for (uint32_t i = 0; i < N; i++)
        x[i] = i % 1000 < 300 && i % 3 ? -some(&r, i, 0.3f) : some(&r, i, 0.3f);
    for (size_t l = 0; l < LEVELS; l++)
        for (size_t g = 0; g < sizeof group / sizeof *group; g++) {
            unsigned bad = 0;
            tui_range(at_level(l), x, N, group[g], lo, hi);
            tui_amax(at_level(l), x, N, group[g], amax);
            for (size_t k = 0; k * group[g] < N; k++) {
                float least = 0, most = 0;
                for (size_t i = k * group[g]; i < (k + 1) * group[g] && i < N; i++) {
                    least = x[i] < least ? x[i] : least;
                    most = x[i] > most ? x[i] : most;
                }
                bad += !(lo[k] == least && hi[k] == most &&
                         amax[k] == (-least > most ? -least : most));
            }
            eq_u64(bad, 0, "extremes of groups of %zu, level %zu", group[g], l);
        }
}

/* The nearest of sixteen, a middle to the value below it. */
static void test_book(void)
{
    enum { N = 300, GROUP = 77 };
    struct tui_book16 b;
    static const float one[] = {1, 1, 1, 1};
    float x[N];
    uint8_t got[N];
    const struct tu_rng r = {.seed = 4};
    for (unsigned i = 0; i < 16; i++) {
        b.value[i] = (float)((int)(i * i) - 100) / 155;
        b.code[i] = (uint8_t)(15 - i);
    }
    for (unsigned i = 0; i < 15; i++)
        b.above[i] = nextafterf((b.value[i] + b.value[i + 1]) / 2, 2);
    for (uint32_t i = 0; i < N; i++) {
        unsigned k = tu_rng_u32(&r, i) % 15;
        float middle = (b.value[k] + b.value[k + 1]) / 2;
        x[i] = i % 4 == 0   ? middle
               : i % 4 == 1 ? b.above[k]
               : i % 4 == 2 ? some(&r, i, 0.01f)
                            : b.value[k];
    }
    for (size_t l = 0; l < LEVELS; l++) {
        unsigned bad = 0;
        tui_book16_code(at_level(l), &b, one, x, N, GROUP, got);
        for (size_t i = 0; i < N; i++) {
            unsigned place = 0;
            while (place < 15 && x[i] > (b.value[place] + b.value[place + 1]) / 2)
                place++;
            bad += got[i] != 15 - place;
        }
        eq_u64(bad, 0, "the nearest of a book, level %zu", l);
    }
}

int main(void)
{
    test_book();
    test_bits();
    test_high_first();
    test_affine();
    test_awq();
    test_extremes();
    return tap_done();
}
