/* SPDX-License-Identifier: Apache-2.0 */
/* Integer codecs: bytes of short patterns, checksums made by compressed-tensors 0.20.1
 * and by auto-round 0.16.1 (its writers of GPTQ's and AWQ's files), repacking, refusals.
 */
#include "inputs.h"
#include "kit.h"
#include "tensorutils/quant/ints.h"

static float big[R_COUNT], back[R_COUNT], other[R_COUNT];

static const float eight[8] = {-3.5f, -1, -0.25f, 0, 0.3f, 1.1f, 2, 3};

static void words(const struct kit *k, const char *want, const char *what)
{
    char text[64] = "";
    for (size_t i = 0; i < k->c.code.bytes / 4; i++)
        sprintf(text + strlen(text), "%s%08x", i ? " " : "", tu_le32(k->code + 4 * i));
    eq_str(text, want, "%s: words", what);
}

static void test_shorts(void)
{
    static const struct {
        const char *spec;
        uint32_t scale;
        int zero; /* 99: none */
        const char *words;
        int code[8];
    } row[] = {
        {"int4:group=8", 0x3eeeeeef, 99, "eca98760", {-8, -2, -1, 0, 1, 2, 4, 6}},
        {"int4:group=8,asym", 0x3eddddde, 0, "fdb98760", {-8, -2, -1, 0, 1, 3, 5, 7}},
        {"int8:packed",
         0x3ce0e0e1,
         99,
         "80775c00 edc9a88b",
         {-128, -36, -9, 0, 11, 40, 73, 109}},
        {"int8:asym", 0x3cd0d0d1, 9, NULL, {-128, -30, -1, 9, 21, 52, 87, 127}},
        {"int4:group=8,rule=narrow", 0x3f000000, 99, NULL, {-7, -2, 0, 0, 1, 2, 4, 6}},
        {"int8:rule=narrow", 0x3ce1c387, 99, NULL, {-127, -36, -9, 0, 11, 40, 73, 109}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct kit k = {0};
        struct tu_ints m;
        if (!kit_start(&k, row[i].spec, 1, 8, eight))
            continue;
        eq_u64(tu_le32(k.side[0]), row[i].scale, "%s: scale", row[i].spec);
        if (row[i].words)
            words(&k, row[i].words, row[i].spec);
        struct tu_err err;
        if (ok(!tu_ints_unpack(&k.c, k.code, (const void *const *)k.side, &m, &err),
               "unpacks")) {
            int half = 1 << (m.bits - 1), bad = 0;
            for (unsigned j = 0; j < 8; j++)
                bad += m.code[j] - half != row[i].code[j];
            eq_int(bad, 0, "%s: codes", row[i].spec);
            if (row[i].zero != 99)
                eq_int(m.zero[0] - half, row[i].zero, "%s: zero", row[i].spec);
            tu_ints_release(&m);
        }
        kit_free(&k);
    }
}

/* Words of given codes: a matrix is packed, not made from floats. */
static struct tu_ints matrix(unsigned bits, uint64_t rows, uint64_t cols, uint64_t group,
                             const int *code, unsigned zero)
{
    struct tu_ints m = {0};
    if (tu_ints_init(&m, bits, rows, cols, group, false, NULL))
        return m;
    for (uint64_t i = 0; i < rows * cols; i++)
        m.code[i] = (uint8_t)code[i];
    for (uint64_t i = 0; i < rows * m.groups; i++) {
        m.scale[i] = 1;
        m.zero[i] = (uint16_t)zero;
    }
    return m;
}

static bool pack(struct kit *k, const char *spec, struct tu_ints *m)
{
    struct tu_err err = {0};
    int rc = kit_plan(k, spec, m->rows, m->cols);
    if (!rc)
        rc = tu_ints_pack(&k->c, m, k->code, k->side, &err);
    return ok(rc == 0, "%s: packs %s%s", spec, k->why, rc ? err.msg : "");
}

static void test_packings(void)
{
    int code[32 * 32];
    struct kit k = {0};
    for (int i = 0; i < 16; i++)
        code[i] = i;
    struct tu_ints m = matrix(4, 1, 16, 16, code, 8);
    if (pack(&k, "int4:group=16", &m))
        words(&k, "76543210 fedcba98", "4 bits");
    kit_free(&k);
    tu_ints_release(&m);

    static const int three[11] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 7, 4};
    m = matrix(3, 1, 11, 11, three, 4);
    if (pack(&k, "int3:group=11,words", &m))
        words(&k, "38fac688 00000004", "3 bits, whole codes in a word");
    kit_free(&k);
    if (pack(&k, "int3:group=11", &m))
        words(&k, "38fac688 00000001", "3 bits, over the words");
    kit_free(&k);
    tu_ints_release(&m);

    /* GPTQ: codes run down the inputs, so one output's words stand in a column. */
    for (int i = 0; i < 8 * 8; i++)
        code[i] = i % 8;
    static const unsigned zero[8] = {8, 8, 8, 8, 7, 9, 1, 15};
    m = matrix(4, 8, 8, 8, code, 8);
    for (int i = 0; i < 8; i++)
        m.zero[i] = (uint16_t)zero[i];
    if (pack(&k, "gptq4:group=8", &m)) {
        eq_u64(tu_le32(k.code), 0x76543210, "GPTQ's word");
        eq_u64(tu_le32(k.side[1]), 0xe0867777, "zeros of the first version");
    }
    kit_free(&k);
    if (pack(&k, "gptq4:group=8,v2", &m))
        eq_u64(tu_le32(k.side[1]), 0xf1978888, "zeros of the second version");
    kit_free(&k);
    /* AWQ: a word holds eight outputs of one input. */
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            m.code[i * 8 + j] = (uint8_t)i;
    if (pack(&k, "awq4:group=8", &m))
        eq_u64(tu_le32(k.code), 0x75316420, "AWQ's word");
    static const uint8_t down[8] = {15, 14, 13, 12, 3, 2, 1, 0};
    for (int i = 0; i < 8; i++)
        m.code[i * 8] = down[i];
    kit_free(&k);
    if (pack(&k, "awq4:group=8", &m))
        eq_u64(tu_le32(k.code), 0x02ce13df, "AWQ's word of other codes");
    kit_free(&k);
    tu_ints_release(&m);

    for (int i = 0; i < 32 * 32; i++)
        code[i] = i % 32 % 8;
    m = matrix(3, 32, 32, 32, code, 4);
    static const uint32_t run[3] = {0x88fac688, 0xc688fac6, 0xfac688fa};
    if (pack(&k, "gptq3:group=32", &m))
        for (int i = 0; i < 3; i++)
            eq_u64(tu_le32(k.code + 4 * 32 * i), run[i], "3 bits, word %d", i);
    kit_free(&k);
    tu_ints_release(&m);
}

/* Checksums of codes, scales, zeros and decoded values. */
static const struct {
    const char *codec, *key;
    int input;
    uint32_t crc[4];
} golden[] = {
    {"int8", "group=tensor", 3, {0x720790df, 0x0ebb3d9f, 0x0, 0x314bff8d}},
    {"int8", "group=channel", 3, {0x310d9a32, 0xb9c66523, 0x0, 0x4afcb94e}},
    {"int8", "group=128", 3, {0xe2f47711, 0x65d6e07f, 0x0, 0xda41a22c}},
    {"int8", "group=32", 3, {0x7ffcf01c, 0x53eaaf3e, 0x0, 0x79816763}},
    {"int8", "group=tensor,asym", 3, {0x7d63c3a1, 0x3e958042, 0xf6b64c2b, 0xf0d0efe7}},
    {"int8", "group=channel,asym", 3, {0xba2152a4, 0xabf4c774, 0x1aff9320, 0x08ab1fbb}},
    {"int8", "group=128,asym", 3, {0x2fc8cc93, 0xc2b614d9, 0x3870f56a, 0x997668e4}},
    {"int8", "group=32,asym", 3, {0x9182e3e1, 0x9dca51ba, 0x53b07361, 0x9360ed38}},
    {"int4", "group=tensor", 3, {0x5b97bbec, 0xca4ed38c, 0x0, 0xb2e2c248}},
    {"int4", "group=channel", 3, {0x7546ca82, 0x0940304f, 0x0, 0x3fb8a837}},
    {"int4", "group=128", 3, {0x0b56f863, 0x8d206cbb, 0x0, 0xeaa7eb32}},
    {"int4", "group=32", 3, {0x07e280fe, 0xd69fd47d, 0x0, 0x88a27abb}},
    {"int4", "group=tensor,asym", 3, {0x9c6babcc, 0xdd124a78, 0xff000000, 0xce5ecce4}},
    {"int4", "group=channel,asym", 3, {0x2044ecf4, 0x975617e0, 0x7ebd99e3, 0x9bdae8a0}},
    {"int4", "group=128,asym", 3, {0xbdd69e1f, 0x50e8bf1f, 0xf4921c3e, 0x2523ffef}},
    {"int4", "group=32,asym", 3, {0xc8d77a9e, 0xbbf888fb, 0xf8cfa79d, 0x35bc5d5b}},
    {"int3", "group=tensor", 3, {0x1ba7af63, 0xd0838784, 0x0, 0xa64ce78a}},
    {"int3", "group=channel", 3, {0xa06e1c3a, 0x70fd2909, 0x0, 0x56700f61}},
    {"int3", "group=128", 3, {0xf6708234, 0xddc0812f, 0x0, 0x523c8374}},
    {"int3", "group=32", 3, {0x7c66983f, 0xdd7a898b, 0x0, 0xb7e4ed4b}},
    {"int3", "group=tensor,asym", 3, {0x5807d3e0, 0x59b307a8, 0xff000000, 0xc47a4c11}},
    {"int3", "group=channel,asym", 3, {0xe4055bf4, 0xcd9292a0, 0x6c1d4921, 0xe149e205}},
    {"int3", "group=128,asym", 3, {0x24d14157, 0x50cab97e, 0xf3797620, 0x125a707a}},
    {"int3", "group=32,asym", 3, {0x441f0280, 0xfc66c05a, 0xa2623560, 0xac066984}},
    {"int2", "group=tensor", 3, {0x1a21ab14, 0xe6f758c9, 0x0, 0x76b4dcb4}},
    {"int2", "group=channel", 3, {0x287d3e2b, 0xd6f6bf68, 0x0, 0x7843bbd4}},
    {"int2", "group=128", 3, {0xdb42dbd9, 0x2805b366, 0x0, 0xe661e4f7}},
    {"int2", "group=32", 3, {0x8ea9ba92, 0xb9054b4c, 0x0, 0xcbdc29e4}},
    {"int2", "group=tensor,asym", 3, {0xd33f4985, 0xade07d8a, 0xff000000, 0xffdbe9eb}},
    {"int2", "group=channel,asym", 3, {0x0df8ffba, 0xaa5af9c6, 0xa2f61da8, 0x94768f3c}},
    {"int2", "group=128,asym", 3, {0x1ae41fe3, 0x84237e7a, 0x043fb320, 0x06c895ed}},
    {"int2", "group=32,asym", 3, {0xea292b76, 0x2a4a1e48, 0x88c61b4d, 0x52edf40a}},
    {"int4", "group=tensor", 1, {0x73c548d2, 0x6c497668, 0x0, 0xc44b6f93}},
    {"int4", "group=channel", 1, {0x57740097, 0x41cfcef2, 0x0, 0xb7082d11}},
    {"int4", "group=128", 1, {0x0d8fb93c, 0xbb3e8bd4, 0x0, 0x103c0399}},
    {"int4", "group=32", 1, {0x77889ba1, 0x8dd816d6, 0x0, 0xc69dd960}},
    {"int4", "group=tensor,asym", 1, {0x6e11f238, 0x8cbbb4ad, 0xff000000, 0xf38ee61c}},
    {"int4", "group=channel,asym", 1, {0x31643fb8, 0x2d5c5f72, 0xd57fa2b9, 0xbf56250f}},
    {"int4", "group=128,asym", 1, {0xc802e26e, 0x2ffb21df, 0x6684c105, 0x7a97fba7}},
    {"int4", "group=32,asym", 1, {0x371a6791, 0x7a205b9c, 0x6a28d65d, 0xccc08426}},
    {"gptq8", "group=128", 2, {0xc7c3352c, 0x12345e97, 0xade577c8}},
    {"gptq8", "group=128,asym", 2, {0x2c49f782, 0x08132f77, 0xed513ed4}},
    {"gptq4", "group=128", 2, {0x276f1ab5, 0x5df9e804, 0x7c2109f9}},
    {"gptq4", "group=128,asym", 2, {0x5c38f429, 0xd9b4324b, 0xeb646774}},
    {"gptq3", "group=128", 2, {0x26add57a, 0x3bc7fbd6, 0x1f7d3e44}},
    {"gptq3", "group=128,asym", 2, {0xb282305c, 0x272d9e5b, 0x740de8af}},
    {"gptq2", "group=128", 2, {0x85849dfb, 0xdbe33570, 0x16fb62ed}},
    {"gptq2", "group=128,asym", 2, {0x43b4fcc3, 0x7a57c608, 0x5611228e}},
    {"awq4", "group=128", 2, {0x82b8be4c, 0x9c567251, 0x7b006065}},
    {"gptq8", "group=128", 3, {0x2efb52d5, 0x2a143e6c, 0xade577c8}},
    {"gptq8", "group=128,asym", 3, {0x772dd01d, 0xf6f9bebf, 0x44ded943}},
    {"gptq4", "group=128", 3, {0x5d9d71fa, 0x08570dc7, 0x7c2109f9}},
    {"gptq4", "group=128,asym", 3, {0x28eccdd7, 0x6920c905, 0x02da37fa}},
    {"gptq3", "group=128", 3, {0x63049956, 0x9880f258, 0x1f7d3e44}},
    {"gptq3", "group=128,asym", 3, {0x6d90e601, 0x7d57db91, 0x3538fb36}},
    {"gptq2", "group=128", 3, {0x7456a967, 0x6ead05ca, 0x16fb62ed}},
    {"gptq2", "group=128,asym", 3, {0xabd45a59, 0x2f0aa7f3, 0xa8c11d24}},
    {"awq4", "group=128", 3, {0x3ce796fe, 0x6920c905, 0xbcb83d93}},
};

static void test_golden(void)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct kit k = {0};
        char spec[64];
        snprintf(spec, sizeof spec, "%s:%s", golden[i].codec, golden[i].key);
        input_r(golden[i].input, big);
        if (kit_start(&k, spec, R_ROWS, R_COLS, big)) {
            eq_u64(kit_crc(&k, NULL), golden[i].crc[0], "%s of R%d: codes", spec,
                   golden[i].input);
            eq_u64(kit_crc(&k, "scale"), golden[i].crc[1], "%s: scales", spec);
            eq_u64(kit_crc(&k, "zero"), golden[i].crc[2], "%s: zeros", spec);
            ok(kit_decode(&k, back) == 0, "decodes %s", k.why);
            if (golden[i].crc[3])
                eq_u64(tu_crc32(0, back, sizeof back), golden[i].crc[3], "%s: values",
                       spec);
        }
        kit_free(&k);
    }
}

/* Errors on G of the table. */
static void test_errors(void)
{
    static const struct {
        const char *codec, *keys;
        double rmse[3]; /* groups of 32, 128, the tensor */
    } row[] = {
        {"int8", "", {0.005060, 0.006130, 0.009076}},
        {"int8", ",rule=narrow", {0.004851, 0.006081, 0.009111}},
        {"int8", ",asym", {0.004151, 0.005429, 0.009076}},
        {"int4", "", {0.078398, 0.106069, 0.154313}},
        {"int4", ",rule=narrow", {0.085228, 0.116586, 0.165317}},
        {"int4", ",asym", {0.070984, 0.088388, 0.154313}},
    };
    static const char *const group[] = {"32", "128", "tensor"};
    input_g(big);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        for (unsigned g = 0; g < 3; g++) {
            struct kit k = {0};
            char spec[64];
            snprintf(spec, sizeof spec, "%s:group=%s%s", row[i].codec, group[g],
                     row[i].keys);
            if (!kit_start(&k, spec, 1, G_COUNT, big) || kit_decode(&k, back))
                continue;
            struct tu_measure m = {0};
            tu_measure_add(&m, big, back, 0, G_COUNT, 1);
            ok(fabs(tu_measure_rmse(&m) - row[i].rmse[g]) < 0.51e-6, "%s: rmse %.6f",
               spec, tu_measure_rmse(&m));
            kit_free(&k);
        }
    }
}

/* From one codec to another and back: the same values, the same bytes. */
static void repack(const char *from, const char *to, const char *why)
{
    struct kit a = {0}, b = {0}, c = {0};
    struct tu_ints m = {0};
    struct tu_err err = {0};
    input_r(3, big);
    if (!kit_start(&a, from, R_ROWS, R_COLS, big) || kit_plan(&b, to, R_ROWS, R_COLS)) {
        ok(false, "%s: %s", to, b.why);
        return;
    }
    int rc = tu_ints_unpack(&a.c, a.code, (const void *const *)a.side, &m, &err);
    if (!rc)
        rc = tu_ints_pack(&b.c, &m, b.code, b.side, &err);
    tu_ints_release(&m);
    if (why) {
        ok(rc == TU_EUSAGE && strstr(err.msg, why), "%s to %s is refused: %s", from, to,
           rc ? err.msg : "it is not");
    } else if (ok(rc == 0, "%s to %s %s", from, to, rc ? err.msg : "")) {
        kit_decode(&a, back);
        kit_decode(&b, other);
        unsigned bad = 0;
        for (unsigned i = 0; i < R_COUNT; i++)
            bad += back[i] != other[i];
        eq_u64(bad, 0, "%s to %s: the values stay", from, to);
        kit_plan(&c, from, R_ROWS, R_COLS);
        if (ok(!tu_ints_unpack(&b.c, b.code, (const void *const *)b.side, &m, &err) &&
                   !tu_ints_pack(&c.c, &m, c.code, c.side, &err),
               "and back")) {
            eq_mem(c.code, a.code, a.c.code.bytes, "codes of %s", from);
            for (unsigned i = 0; i < a.c.sides; i++)
                eq_mem(c.side[i], a.side[i], a.c.side[i].bytes, "%s of %s",
                       a.c.side[i].suffix, from);
        }
        tu_ints_release(&m);
    }
    kit_free(&a);
    kit_free(&b);
    kit_free(&c);
}

static void test_repack(void)
{
    repack("int4:group=128,scale=f16,asym", "awq4", NULL);
    repack("int4:group=128,scale=f16,asym", "gptq4:v2", NULL);
    repack("int4:group=128,scale=f16", "gptq4", NULL);
    repack("gptq4", "gptq4:v2", NULL);
    repack("gptq4:asym,v2", "awq4", NULL);
    repack("awq4", "int4:asym,scale=f16", NULL);
    repack("gptq3", "int3:scale=f16", NULL);
    repack("gptq8", "int8:group=128,scale=f16", NULL);
    repack("int4:group=32,scale=f16", "q4_0", NULL);
    repack("gptq4:group=32", "q4_0", NULL);
    repack("q4_0", "gptq4:group=32", NULL);
    repack("int4:group=128,scale=f16", "q4_0", NULL);
    repack("int2:group=32,scale=f16", "int4:group=32,scale=f16", NULL);
    repack("int4:group=128", "awq4", "is no number of f16");
    repack("int4:group=16,scale=f16", "q4_0", "would share one in groups of 32");
    repack("int8:group=32,scale=f16", "q4_0", "do not fit 4 bits");
    repack("awq4:group=32", "q4_0", "do not fit 4 bits with zero 8");
    repack("awq4:group=16", "gptq4:group=16", "do not fit 4 bits with zero 1");
    repack("q4_k", "q4_0", "not integers with scales");
}

/* Columns in the order of an act-order file, and indices that point nowhere. */
static void test_order(void)
{
    struct kit k = {0}, to = {0};
    struct tu_ints m = {0};
    struct tu_err err = {0};
    input_r(1, big);
    if (!kit_start(&k, "gptq4:group=32", 32, 64, big))
        return;
    unsigned char *gidx = kit_side(&k, "gidx");
    for (unsigned j = 0; j < 64; j++)
        tu_put32(gidx + 4 * j, j * 37 % 64 / 32);
    ok(!tu_ints_unpack(&k.c, k.code, (const void *const *)k.side, &m, &err),
       "any order reads");
    ok(m.gidx && m.gidx[1] == 1 && m.gidx[2] == 0, "and is kept");
    kit_plan(&to, "awq4:group=32", 32, 64);
    ok(tu_ints_pack(&to.c, &m, to.code, to.side, &err) == TU_EUSAGE,
       "AWQ cannot hold it: %s", err.msg);
    kit_free(&to);
    kit_plan(&to, "int4:group=32,scale=f16,order", 32, 64);
    ok(!tu_ints_pack(&to.c, &m, to.code, to.side, &err), "compressed-tensors can");
    kit_decode(&k, back);
    kit_decode(&to, other);
    eq_mem(back, other, 32 * 64 * sizeof *back, "with the same values");
    tu_ints_release(&m);
    tu_put32(gidx + 4 * 5, 2);
    eq_int(kit_decode(&k, back), TU_EFORMAT, "index 2 of 2 groups: %s", k.why);
    tu_put32(gidx + 4 * 5, UINT32_MAX);
    eq_int(kit_decode(&k, back), TU_EFORMAT, "index -1: %s", k.why);
    kit_free(&k);
    kit_free(&to);
}

static void refused(const char *spec, uint64_t rows, uint64_t cols, const char *why)
{
    struct kit k = {0};
    int rc = kit_plan(&k, spec, rows, cols);
    ok(rc == TU_EUSAGE && strstr(k.why, why), "%s of %dx%d is refused: %s", spec,
       (int)rows, (int)cols, k.why);
    kit_free(&k);
}

static void test_refusals(void)
{
    refused("int4", 4, 130, "no multiple of the group 128");
    refused("gptq4", 30, 128, "no multiple of 8");
    refused("gptq3", 32, 100, "no multiple of the group");
    refused("awq4:group=8", 30, 8, "no multiple of 8");
    refused("awq4:group=tensor", 8, 8, "no scale of a whole tensor");
    refused("int4:group=0", 8, 8, "group '0'");
    refused("int4:group=8,rule=best", 8, 8, "unknown value 'best'");
    refused("int4:group=8,rule=narrow,asym", 8, 8, "the narrow rule is symmetric");
    refused("int4:group=8,clip=101", 8, 8, "'mse' or a percentile");
    struct kit k = {0};
    static const float huge[8] = {1e6f, -1e6f, 0, 0, 0, 0, 0, 0};
    kit_plan(&k, "int4:group=8,scale=f16", 1, 8);
    eq_int(kit_encode(&k, huge), TU_EUSAGE, "a scale over f16: %s", k.why);
    kit_free(&k);
}

/* Zero and constant groups, and values that are not numbers. */
static void test_flats(void)
{
    static const char *const spec[] = {"int4:group=32",       "int4:group=32,asym",
                                       "int8:rule=narrow",    "gptq4:group=32",
                                       "gptq4:group=32,asym", "awq4:group=32"};
    static const float value[] = {0, -0.0f, 1, -3, 1e-40f, 65504};
    for (size_t i = 0; i < sizeof spec / sizeof *spec; i++) {
        for (size_t v = 0; v < sizeof value / sizeof *value; v++) {
            struct kit k = {0};
            unsigned bad = 0;
            for (unsigned j = 0; j < 32 * 32; j++)
                big[j] = value[v];
            if (!kit_start(&k, spec[i], 32, 32, big) || kit_decode(&k, back))
                continue;
            for (unsigned j = 0; j < 32 * 32; j++)
                bad += !(fabsf(back[j] - value[v]) <= fabsf(value[v]) * 0.14f + 1e-5f);
            eq_u64(bad, 0, "%s of %g", spec[i], (double)value[v]);
            kit_free(&k);
        }
    }
}

/* A clipped scale is no worse by its own measure; stochastic codes are the nearest or
 * their neighbour, unbiased, and the same for any cut. */
static void test_clip_and_random(void)
{
    struct kit a = {0}, b = {0};
    double e[2];
    input_r(3, big);
    for (unsigned i = 0; i < 2; i++) {
        if (!kit_start(&a, i ? "gptq2:clip=mse" : "gptq2", R_ROWS, R_COLS, big))
            return;
        kit_decode(&a, back);
        e[i] = 0;
        for (unsigned j = 0; j < R_COUNT; j++)
            e[i] += pow(fabs((double)back[j] - (double)big[j]), 2.4);
        kit_free(&a);
    }
    ok(e[1] < 0.75 * e[0], "clipping 2 bits: error %.1f instead of %.1f", e[1], e[0]);

    static const float x[8] = {0.3f, 1.5f, -2.25f, 2.5f, -0.5f, 3.999f, 0.001f, -7.75f};
    a.c.seed = 42;
    if (kit_start(
            &a, "int8:round=stochastic,rule=narrow,group=8", 1, 8,
            (const float[]){0.3f, 1.5f, -2.25f, 2.5f, -0.5f, 3.999f, 0.001f, -127})) {
        static const int want[8] = {0, 1, -3, 2, 0, 4, 0, -127};
        for (unsigned j = 0; j < 8; j++)
            eq_int(((int8_t *)a.code)[j], want[j],
                   "%g is rounded by the counter's numbers", (double)x[j]);
    }
    kit_free(&a);
    kit_free(&b);
}

int main(void)
{
    test_shorts();
    test_packings();
    kit_levels(test_golden);
    kit_levels(test_errors);
    test_repack();
    test_order();
    test_refusals();
    kit_levels(test_flats);
    test_clip_and_random();
    return tap_done();
}
