/* SPDX-License-Identifier: Apache-2.0 */
/* Block-wise code books, scaled floats of eight bits, and HQQ's files: bytes of short
 * patterns, checksums made by bitsandbytes 0.50.2 (its default
 * kernels: that of CPUs gives another code for one value of 700 under the tree), by
 * compressed-tensors 0.20.1 and by hqq 0.2.8. */
#include "inputs.h"
#include "kit.h"

static float big[R_COUNT], back[R_COUNT];

static void test_shorts(void)
{
    static const struct {
        const char *spec, *hex;
        int input;
        unsigned n;
        uint32_t scale;
    } row[] = {
        {"nf4", "091c3e60a2d4f71b2e5f91c3e60a1d4e71b2d5f81c3e6091c3e70a2d4f81b2e5", 1, 64,
         0x40000000},
        {"nf4", "091c3e60a2d4f71b2e5f91c3e60a1d4e71b2d5f81c3e6091c3e70a2d4f81b2e5", 2, 64,
         0x404ccccd},
        {"fp4", "b6a5c29b7a5f31a4d2e36a5c2eb7a5c30b4d2f36a4d2eb6a5c29b7d2f31a4d2e", 1, 64,
         0x40000000},
        {"dyn8:block=32",
         "00c216d92cef4d06c91cdf33f6a60dd023e639fcc013d62aed4204c71add30f3", 1, 32,
         0x40000000},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct kit k = {0};
        (row[i].input == 1 ? input_v1 : input_v2)(big, row[i].n);
        if (kit_start(&k, row[i].spec, 1, row[i].n, big)) {
            eq_str(kit_hex(k.code, (size_t)k.c.code.bytes), row[i].hex, "%s of V%d",
                   row[i].spec, row[i].input);
            eq_u64(tu_le32(k.side[0]), row[i].scale, "%s: scale", row[i].spec);
        }
        kit_free(&k);
    }
}

/* The peer's sums and its dynamic book differ in their last bits from CPU to CPU: where
 * they take part, 0 stands for what is not compared. */
static const struct {
    const char *spec;
    int input;
    uint32_t code, scale, value;
} golden[] = {
    {"nf4:block=64", 1, 0xda4e6669, 0x043d6b23, 0xfaf65344},
    {"fp4:block=64", 2, 0xfd696c9a, 0x9a6b5f14, 0x5dc76bc9},
    {"nf4:block=64", 3, 0x9de4fdeb, 0xae8caf36, 0xd60d1c0c},
    {"nf4:block=128", 3, 0x010c710b, 0x0857daff, 0x04aee3f1},
    {"nf4:block=4096", 3, 0x4432f35a, 0xbf80e88d, 0xdf860cd9},
    {"nf4:nested", 3, 0x9de4fdeb, 0, 0},
    {"fp4:block=64", 3, 0xe6775103, 0xae8caf36, 0x2557d5b1},
    {"fp4:block=128", 3, 0xadaed0a6, 0x0857daff, 0x4653fba0},
    {"fp4:block=4096", 3, 0x7330c998, 0xbf80e88d, 0x01db3723},
    {"fp4:nested", 3, 0xe6775103, 0, 0},
    {"dyn8:block=256", 1, 0x1f08c0fd, 0x54b5d847, 0},
    {"dyn8:block=4096", 1, 0x0aae1481, 0xab97dd44, 0},
    {"dyn8:block=256", 2, 0x1f08c0fd, 0x5c4e1037, 0},
    {"dyn8:block=256", 3, 0x85ac0b09, 0xbff7c5da, 0},
    {"dyn8:block=4096", 3, 0xb19fe1bd, 0xbf80e88d, 0},
};

static void test_golden(void)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct kit k = {0};
        input_r(golden[i].input, big);
        if (kit_start(&k, golden[i].spec, R_ROWS, R_COLS, big)) {
            eq_u64(kit_crc(&k, NULL), golden[i].code, "%s of R%d: codes", golden[i].spec,
                   golden[i].input);
            if (golden[i].scale)
                eq_u64(kit_crc(&k, "scale"), golden[i].scale, "%s: scales",
                       golden[i].spec);
            ok(kit_decode(&k, back) == 0, "decodes %s", k.why);
            if (golden[i].value)
                eq_u64(tu_crc32(0, back, sizeof back), golden[i].value, "%s: values",
                       golden[i].spec);
        }
        kit_free(&k);
    }
}

/* Nested scales: within half a step of their own block's book. */
static void test_nested(void)
{
    struct kit plain = {0}, nested = {0};
    input_r(3, big);
    if (kit_start(&plain, "nf4", R_ROWS, R_COLS, big) &&
        kit_start(&nested, "nf4:nested", R_ROWS, R_COLS, big)) {
        const float *want = kit_side(&plain, "scale"), *s = kit_side(&nested, "nested"),
                    *map = kit_side(&nested, "map"),
                    *offset = kit_side(&nested, "offset");
        const unsigned char *code = kit_side(&nested, "scale");
        unsigned bad = 0;
        double mean = 0;
        for (unsigned i = 0; i < R_COUNT / 64; i++) {
            bad += !(fabsf(map[code[i]] * s[i / 256] + *offset - want[i]) <=
                     0.0071f * s[i / 256]);
            mean += want[i] / (R_COUNT / 64);
        }
        eq_u64(bad, 0, "nested scales are near the plain ones");
        ok(fabs(mean - *offset) < 1e-6, "their mean is %g", (double)*offset);
    }
    kit_free(&plain);
    kit_free(&nested);
}

static void test_book(void)
{
    struct kit k = {0};
    input_v1(big, 32);
    if (kit_start(&k, "dyn8", 1, 32, big))
        eq_u64(kit_crc(&k, "map"), 0xb66387ba, "the book, every value rounded once");
    const float *map = kit_side(&k, "map");
    static const struct {
        unsigned i;
        float v;
    } at[] = {{0, -0.99296874f}, {63, -0.10703126f}, {126, -5.5e-7f},    {127, 0},
              {128, 5.5e-7f},    {192, 0.12109375f}, {254, 0.99296874f}, {255, 1}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        ok(fabsf(map[at[i].i] - at[i].v) <= 2e-7f * fabsf(at[i].v), "book[%u] is %g",
           at[i].i, (double)map[at[i].i]);
    kit_free(&k);
}

/* An odd count ends with the code of zero; a short block is divided, not multiplied. */
static void test_odd(void)
{
    struct kit k = {0};
    input_r(3, big);
    if (kit_plan_dims(&k, "nf4", (uint64_t[]){1001}, 1) == 0 &&
        kit_encode(&k, big) == 0) {
        eq_u64(k.c.code.bytes, 501, "1001 codes");
        eq_u64(kit_crc(&k, NULL), 0x62261bcf, "nf4 of 1001 values: codes");
        eq_u64(kit_crc(&k, "scale"), 0xba9fe10e, "scales");
        eq_u64(k.code[500], 0x37, "the last byte");
        ok(kit_decode(&k, back) == 0 && fabsf(back[1000] - big[1000]) < 0.2f, "decodes");
    }
    kit_free(&k);
}

static void test_errors(void)
{
    static const struct {
        const char *spec;
        double rmse;
    } row[] = {{"nf4:block=32", 0.084417},  {"nf4:block=64", 0.096630},
               {"nf4:block=128", 0.096556}, {"fp4:block=32", 0.108349},
               {"fp4:block=64", 0.127249},  {"fp4:block=128", 0.136799},
               {"fp8_tensor", 0.026444},    {"fp8_tensor:elem=e5m2", 0.052655}};
    input_g(big);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct kit k = {0};
        struct tu_measure m = {0};
        if (kit_start(&k, row[i].spec, 1, G_COUNT, big) && kit_decode(&k, back) == 0) {
            tu_measure_add(&m, big, back, 0, G_COUNT, 1);
            ok(fabs(tu_measure_rmse(&m) - row[i].rmse) < 0.51e-6, "%s: rmse %.6f",
               row[i].spec, tu_measure_rmse(&m));
        }
        kit_free(&k);
    }
    struct kit k = {0};
    if (kit_plan(&k, "nf4:nested", R_ROWS, R_COLS) == 0)
        ok(fabs(tu_coding_bpw(&k.c) - (4 + 8.0 / 64 + 32.0 / 16384)) < 0.13,
           "%.3f bits with nested "
           "scales",
           tu_coding_bpw(&k.c));
    kit_free(&k);
}

static const struct {
    const char *spec;
    int input;
    uint64_t rows, cols;
    uint32_t code, scale, value;
} scaled[] = {
    {"fp8_channel", 1, 64, 1024, 0x1fb06823, 0xb7025ef2, 0xcd4de12b},
    {"fp8_tensor", 1, 64, 1024, 0x4fa43004, 0x11c65902, 0xf5593c74},
    {"fp8_block", 1, 256, 256, 0x0a16f464, 0x6a9ef049, 0xe9ee6f3f},
    {"fp8_channel", 3, 64, 1024, 0x2093f9e6, 0x4d52bfc9, 0xfcd6fdd8},
    {"fp8_tensor", 3, 64, 1024, 0x1e4a8bb6, 0xc5b4124e, 0xb6de12e8},
    {"fp8_block", 3, 256, 256, 0x6301b84a, 0xa7821e28, 0x71ad681d},
};

static void test_scaled(void)
{
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
        struct kit k = {0};
        input_r(scaled[i].input, big);
        if (kit_start(&k, scaled[i].spec, scaled[i].rows, scaled[i].cols, big)) {
            eq_u64(kit_crc(&k, NULL), scaled[i].code, "%s of R%d: codes", scaled[i].spec,
                   scaled[i].input);
            eq_u64(kit_crc(&k, "scale"), scaled[i].scale, "%s: scales", scaled[i].spec);
            ok(kit_decode(&k, back) == 0, "decodes");
            eq_u64(tu_crc32(0, back, sizeof back), scaled[i].value, "%s: values",
                   scaled[i].spec);
        }
        kit_free(&k);
    }
    /* Blocks that do not divide the matrix, and bytes whose values are known. */
    struct kit k = {0};
    if (kit_plan(&k, "fp8_block", 576, 7168) == 0)
        ok(k.c.side[0].dim[0] == 5 && k.c.side[0].dim[1] == 56,
           "[576, 7168] has 5 by 56 scales");
    kit_free(&k);
    static const unsigned char byte[5] = {0x38, 0x7e, 0x81, 0xb5, 0x4c};
    static const uint16_t want[5] = {0x399d, 0x3e0a, 0xb51d, 0xb980, 0x3aec};
    uint32_t scale = 0x399d4952; /* 0.0003 */
    if (kit_plan(&k, "fp8_block", 1, 5) == 0) {
        memcpy(k.code, byte, 5);
        memcpy(k.side[0], &scale, 4);
        kit_decode(&k, back);
        for (unsigned i = 0; i < 5; i++)
            eq_u64(tu_to_bf16(back[i]), want[i], "byte %02x to bf16", byte[i]);
    }
    kit_free(&k);
    for (unsigned i = 0; i < 300; i++)
        big[i] = 0;
    big[299] = 3;
    if (kit_start(&k, "fp8_block:block=2x128", 3, 100, big) && kit_decode(&k, back) == 0)
        ok(back[0] == 0 && back[299] == 3, "blocks of zeros, and a short one");
    kit_free(&k);
}

static const struct {
    const char *spec;
    uint32_t value;
} hqq[] = {
    {"hqq8:group=32,axis=0", 0xe92c0a2e}, {"hqq8:group=32,axis=1", 0x44e68d0d},
    {"hqq4:group=32,axis=0", 0xe66356b6}, {"hqq4:group=32,axis=1", 0x588133e9},
    {"hqq3:group=32,axis=0", 0xdb07b7e8}, {"hqq3:group=32,axis=1", 0xf4f5f465},
    {"hqq2:group=32,axis=0", 0xce38c585}, {"hqq2:group=32,axis=1", 0x4fbb2b00},
    {"hqq1:group=32,axis=0", 0x9b241717}, {"hqq1:group=32,axis=1", 0x4ed626fe},
};

/* Codes and scales by formula, decoded as the peer decodes them. */
static void test_hqq(void)
{
    for (size_t i = 0; i < sizeof hqq / sizeof *hqq; i++) {
        struct kit k = {0};
        if (!ok(kit_plan(&k, hqq[i].spec, 64, 64) == 0, "%s: plans %s", hqq[i].spec,
                k.why))
            continue;
        bool words = k.c.code.dtype == TU_I32;
        for (uint64_t j = 0; j < k.c.code.bytes / (words ? 4 : 1); j++) {
            if (words)
                tu_put32(k.code + 4 * j,
                         (uint32_t)(j * 2654435761u % (UINT32_C(1) << 30)));
            else
                k.code[j] = (unsigned char)(j * 167 + 13);
        }
        for (unsigned g = 0; g < 128; g++) {
            tu_put16((unsigned char *)k.side[0] + 2 * g,
                     tu_to_f16((float)(g % 7 + 1) / 64));
            tu_put16((unsigned char *)k.side[1] + 2 * g,
                     tu_to_f16((float)(g * 5 % 16) + 0.25f * (float)(g % 4)));
        }
        ok(kit_decode(&k, back) == 0, "decodes");
        eq_u64(tu_crc32(0, back, 64 * 64 * sizeof *back), hqq[i].value, "%s: values",
               hqq[i].spec);
        kit_free(&k);
    }
}

static void refused(const char *spec, uint64_t rows, uint64_t cols, const char *why)
{
    struct kit k = {0};
    int rc = kit_plan(&k, spec, rows, cols);
    ok(rc == TU_EUSAGE && strstr(k.why, why), "%s is refused: %s", spec, k.why);
    kit_free(&k);
}

static void test_flats(void)
{
    static const char *const spec[] = {"nf4",       "fp4",         "nf4:nested", "dyn8",
                                       "fp8_block", "fp8_channel", "fp8_tensor"};
    static const float value[] = {0, -0.0f, 1, -3, 1e-30f};
    for (size_t i = 0; i < sizeof spec / sizeof *spec; i++)
        for (size_t v = 0; v < sizeof value / sizeof *value; v++) {
            struct kit k = {0};
            unsigned bad = 0;
            for (unsigned j = 0; j < 512; j++)
                big[j] = value[v];
            if (!kit_start(&k, spec[i], 4, 128, big) || kit_decode(&k, back))
                continue;
            for (unsigned j = 0; j < 512; j++)
                bad += !(fabsf(back[j] - value[v]) <= 0.01f * fabsf(value[v]) + 1e-29f);
            eq_u64(bad, 0, "%s of %g", spec[i], (double)value[v]);
            kit_free(&k);
        }
    refused("nf4:block=48", 1, 64, "a power of two");
    refused("nf4:block=8192", 1, 64, "a power of two");
    refused("fp8_block:block=128", 8, 8, "rows and columns");
    refused("fp8_block:elem=e3m4", 8, 8, "e4m3 or e5m2");
    refused("hqq4:group=48", 8, 64, "whole groups");
    refused("hqq4:axis=2", 8, 64, "axis");
    struct kit k = {0};
    kit_plan(&k, "hqq4", 8, 64);
    eq_int(kit_encode(&k, big), TU_EUSAGE, "HQQ is not encoded: %s", k.why);
    kit_free(&k);
}

/* Every midpoint of the tree, and the floats beside it: the code is that of a search through
 * the book, to the last bit. */
static void test_dyn8_midpoints(void)
{
    enum { BLOCK = 2048 };
    static float v[BLOCK];
    struct kit k = {0};
    unsigned bad = 0, n = 0;
    memset(v, 0, sizeof v);
    v[0] = 1; /* the block's largest: nothing is rescaled */
    if (!kit_start(&k, "dyn8:block=2048", 1, BLOCK, v))
        return;
    const float *book = k.side[1];
    for (unsigned i = 0; i < 255; i++) {
        const float middle = (book[i] + book[i + 1]) / 2;
        v[++n] = middle;
        v[++n] = nextafterf(middle, 2);
        v[++n] = nextafterf(middle, -2);
        v[++n] = book[i];
    }
    float map[256];
    memcpy(map, book, sizeof map);
    v[++n] = 1e-30f;
    v[++n] = -1e-30f;
    v[++n] = -1;
    v[++n] = -0.0f;
    kit_free(&k);
    if (!kit_start(&k, "dyn8:block=2048", 1, BLOCK, v))
        return;
    for (unsigned j = 0; j < BLOCK; j++) {
        unsigned want = 0;
        while (want < 255 && (map[want] + map[want + 1]) / 2 < v[j])
            want++;
        bad += k.code[j] != want;
    }
    eq_u64(bad, 0, "codes off a search");
    kit_free(&k);
}

int main(void)
{
    kit_levels(test_shorts);
    kit_levels(test_golden);
    test_nested();
    test_book();
    kit_levels(test_odd);
    test_errors();
    kit_levels(test_scaled);
    test_hqq();
    kit_levels(test_flats);
    test_dyn8_midpoints();
    return tap_done();
}
