/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32: published values, every kernel row against zlib, the algebra against direct
 * sums. */
#include <stdlib.h>
#include <zlib.h>
#include "../tap.h"
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/crc32.h"
#include "tensorutils/core/pool.h"
#include "tensorutils/core/rng.h"

#define SIZE ((size_t)5 << 20)

static unsigned char *text;

static void test_published(void)
{
    static const float range[6] = {0, 1, 2, 3, 4, 5};
    static const unsigned char zero[32];
    eq_u64(tu_crc32(0, "123456789", 9), 0xcbf43926, "the check value");
    eq_u64(tu_crc32(0, "", 0), 0, "nothing");
    eq_u64(tu_crc32(0, zero, 32), 0x190a55ad, "32 zero bytes");
    eq_u64(tu_crc32(0, range, sizeof range), 0x91e79017, "floats 0 to 5");
    eq_u64(tu_crc32_zeros(0, 32), 0x190a55ad, "32 zero bytes by algebra");
    eq_u64(tu_crc32_zeros(0, UINT64_C(1) << 33), 0x41d912ff, "8 GiB of zero bytes");
    eq_u64(tu_crc32(tu_crc32(0, "1234", 4), "56789", 5), 0xcbf43926, "continued");
}

/* Each length once with a random place and start, and a few lengths at each alignment. */
static unsigned mismatches(tu_crc32_fn fn)
{
    unsigned bad = 0;
    const struct tu_rng r = {.seed = 3};
    for (size_t n = 0; n <= 4096; n++) {
        const unsigned char *p = text + tu_rng_u32(&r, 2 * n) % 4096;
        uint32_t start = tu_rng_u32(&r, 2 * n + 1);
        bad += fn(start, p, n) != crc32(start, p, (uInt)n);
    }
    static const size_t length[] = {1, 15, 16, 63, 64, 65, 255, 256, 257, 319, 511, 512,
                                    4095};
    for (size_t at = 0; at < 64; at++)
        for (size_t i = 0; i < sizeof length / sizeof *length; i++)
            bad += fn(0, text + at, length[i]) != crc32(0, text + at, (uInt)length[i]);
    bad += fn(7, text, SIZE) != crc32(7, text, (uInt)SIZE);
    return bad;
}

static void test_rows(void)
{
    for (const struct tu_kernel *k = tu_crc32_kernels; k->name; k++) {
        char what[64];
        snprintf(what, sizeof what, "row '%s' equals zlib", k->name);
        if (k->needs & ~tu_cpu_detect())
            tap_skip(what, "this CPU lacks it");
        else
            eq_u64(mismatches((tu_crc32_fn)k->fn), 0, "%s", what);
    }
    eq_u64(mismatches((tu_crc32_fn)(tu_kernel_fn)tu_crc32), 0, "tu_crc32 equals zlib");
}

static void test_algebra(void)
{
    const struct tu_rng r = {.seed = 4};
    unsigned combine = 0, zeros = 0, parts = 0;
    static const unsigned char zero[8192];
    for (unsigned i = 0; i < 500; i++) {
        size_t n = tu_rng_u32(&r, 2 * i) % 8192;
        size_t cut = tu_rng_u32(&r, 2 * i + 1) % (n + 1);
        uint32_t whole = (uint32_t)crc32(0, text, (uInt)n);
        uint32_t a = (uint32_t)crc32(0, text, (uInt)cut);
        uint32_t b = (uint32_t)crc32(0, text + cut, (uInt)(n - cut));
        combine += tu_crc32_combine(a, b, n - cut) != whole;
        parts += (tu_crc32_part(b, 0) ^ tu_crc32_part(a, n - cut)) != whole;
        zeros += tu_crc32_zeros(whole, cut) != crc32(whole, zero, (uInt)cut);
    }
    eq_u64(combine, 0, "combining");
    eq_u64(parts, 0, "contributions of two runs");
    eq_u64(zeros, 0, "zero bytes");
    unsigned far = 0;
    for (unsigned shift = 0; shift < 62; shift++) {
        z_off_t n = (z_off_t)((INT64_C(1) << shift) + 5);
        far += tu_crc32_combine(0x12345678, 0x9abcdef0, (uint64_t)n) !=
               crc32_combine(0x12345678, 0x9abcdef0, n);
    }
    eq_u64(far, 0, "combining over up to 2^61 bytes equals zlib");
    eq_u64(tu_crc32_part(0, 123), 0, "an empty run adds nothing");
}

/* Runs of a long text in an arbitrary order, none first. */
static void test_order(void)
{
    static const size_t cut[] = {0, 1, 70, 4096, 70000, 70001, 999999, SIZE};
    static const unsigned order[] = {3, 6, 0, 5, 1, 4, 2};
    uint32_t sum = 0;
    for (unsigned i = 0; i < 7; i++) {
        size_t from = cut[order[i]], to = cut[order[i] + 1];
        sum ^= tu_crc32_part(tu_crc32(0, text + from, to - from), SIZE - to);
    }
    eq_u64(sum, crc32(0, text, SIZE), "contributions in any order");
}

static void test_pool(void)
{
    static const size_t length[] = {0, 1, 100, 1 << 20, (2 << 20) - 1, 2 << 20,
                                    (4 << 20) + 17, SIZE};
    for (unsigned threads = 1; threads <= 5; threads += 2) {
        struct tu_pool *pool = tu_pool_new(threads, NULL);
        unsigned bad = 0;
        for (size_t i = 0; i < sizeof length / sizeof *length; i++)
            bad += tu_crc32_pool(99, text, length[i], pool) !=
                   crc32(99, text, (uInt)length[i]);
        eq_u64(bad, 0, "shared by %u threads", threads);
        tu_pool_free(pool);
    }
    eq_u64(tu_crc32_pool(0, "123456789", 9, NULL), 0xcbf43926, "shared by nobody");
}

int main(void)
{
    text = malloc(SIZE);
    if (!text)
        return 99;
    const struct tu_rng r = {.seed = 2};
    for (size_t i = 0; i < SIZE / 4; i++)
        tu_put32(text + 4 * i, tu_rng_u32(&r, i));
    test_published();
    test_rows();
    test_algebra();
    test_order();
    test_pool();
    free(text);
    return tap_done();
}
