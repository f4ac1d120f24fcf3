/* SPDX-License-Identifier: Apache-2.0 */
/* ggml's formats: bytes of short patterns, checksums of long ones made by the peer's
 * default x86-64 build, errors of the table that the peer's figures belong to, every
 * kernel against the reference. */
#include <stdlib.h>
#include "../tap.h"
#include "inputs.h"
#include "tensorutils/quant.h"

static float big[R_COUNT], back[R_COUNT], weight[R_COLS];
static unsigned char code[R_COUNT * 2], other[R_COUNT * 2];

/* The levels of kernels that are tried: the reference, then what this CPU has. */
static const struct {
    const char *name;
    uint32_t bits;
} level[] = {
    {"plain", 0},
    {"avx2", TU_CPU_GROUP_AVX2},
    {"avx512", TU_CPU_GROUP_AVX512},
    {"all", TU_CPU_ALL},
};
enum { LEVELS = sizeof level / sizeof *level };

static bool start(struct tu_coding *c, const char *name, const float *importance,
                  uint64_t rows, uint64_t cols)
{
    struct tu_spec spec = {.name = (char *)(uintptr_t)name};
    struct tu_err err;
    *c = (struct tu_coding){.importance = importance, .compat = true};
    int rc = tu_coding_init(c, &spec, (uint64_t[]){rows, cols}, 2, &err);
    return ok(rc == 0, "plan %s: %s", name, rc ? err.msg : "fits");
}

static void encode(const struct tu_coding *c, const float *x, unsigned char *out)
{
    struct tu_coding own = *c;
    struct tu_err err;
    if (tu_coding_encode_mem(&own, x, out, NULL, NULL, &err))
        ok(false, "encode: %s", err.msg);
}

/* Short patterns. A checksum, or hexadecimal text where the bytes themselves are
 * known. */
static const struct {
    const char *codec, *input;
    unsigned n;
    uint32_t crc;
    const char *hex;
} shorts[] = {
    {"q4_0", "V1", 32, 0, "003440d973fc952ec851ea731da63fc862fb"},
    {"q4_0", "V2", 32, 0x756aeb92, NULL},
    {"q4_1", "V1", 32, 0, "333400c040d962fb952eb751da730c953ec851ea"},
    {"q4_1", "V2", 32, 0x18b3d15e, NULL},
    {"q5_0", "V1", 32, 0, "00302ab55aa980b3d5f82a5d7fa2c4f7194c6e91b3e6"},
    {"q5_0", "V2", 32, 0x6bfb925a, NULL},
    {"q5_1", "V1", 32, 0, "113000c02ab55aa980a2d5f72a4c7f91c4e6193b6e80b3d5"},
    {"q5_1", "V2", 32, 0xd2b2b2f6, NULL},
    {"q8_0", "V1", 32, 0,
     "08248114a93cd063f88d20b547dc6f04992cc053e87b10a538cc5ff4891cb143d86b"},
    {"q8_0", "V2", 32, 0x61ac0cd9, NULL},
    {"iq4_nl", "V1", 32, 0, "162430ea62fc942ec741ea720da52fd851fb"},
    {"iq4_nl", "V2", 32, 0xb8deea4e, NULL},
    {"mxfp4", "V1", 32, 0, "7ece519d641bd530be529ce42ac540ad53"},
    {"mxfp4", "V2", 32, 0, "7edf62ae752ce659df639ef63ce750cf74"},
    {"nvfp4", "V1", 64, 0,
     "2b2a2a2a3fd25eb57c06e94f6d96fa37e25ec57de05fd46da6fb27e1b57c17e04fd46ea6"},
    {"nvfp4", "V2", 64, 0x64814a6a, NULL},
    {"q1_0", "V1", 128, 0, "003c2ab55aa9d54aa5562ab55aa9d54aa556"},
    {"q1_0", "V2", 128, 0x8c0b7cf4, NULL},
    {"q2_0", "V1", 64, 0, "004044196146985146981166941166841965"},
    {"q2_0", "V2", 64, 0x2f90b859, NULL},
    {"tq1_0", "K1", 256, 0,
     "05818ce52b84a2af818ce52b84a2af818ce52b84a2af818ce52b84a2af818ce56ecb4a60de219965cb4"
     "a60de219965"
     "cb828f0d7f0040"},
    {"tq1_0", "K2", 256, 0xeb9b255d, NULL},
    {"tq1_0", "K3", 256, 0x9854cee0, NULL},
    {"tq2_0", "K1", 256, 0x754434c2, NULL},
    {"tq2_0", "K2", 256, 0x7e4ab005, NULL},
    {"tq2_0", "K3", 256, 0x96aa37dd, NULL},
    {"q2_k", "K1", 256, 0x6f8d8f54, NULL},
    {"q2_k", "K2", 256, 0x5d2a3ed4, NULL},
    {"q2_k", "K3", 256, 0x5cb46a12, NULL},
    {"q3_k", "K1", 256, 0x52bddf73, NULL},
    {"q3_k", "K2", 256, 0xe90b1c49, NULL},
    {"q3_k", "K3", 256, 0x66f093de, NULL},
    {"q4_k", "K1", 256, 0x4edb9465, NULL},
    {"q4_k", "K2", 256, 0x6cbe9fc9, NULL},
    {"q4_k", "K3", 256, 0x6142c1af, NULL},
    {"q5_k", "K1", 256, 0x63b29a1c, NULL},
    {"q5_k", "K2", 256, 0xeb0d918e, NULL},
    {"q5_k", "K3", 256, 0x3fa38161, NULL},
    {"q6_k", "K1", 256, 0xa4af8e84, NULL},
    {"q6_k", "K2", 256, 0x72b82147, NULL},
    {"q6_k", "K3", 256, 0xa7ceac64, NULL},
    {"iq4_xs", "K1", 256, 0x545c857f, NULL},
    {"iq4_xs", "K2", 256, 0xa5eb6b8e, NULL},
    {"iq4_xs", "K3", 256, 0xc4f216de, NULL},
};

static void make_short(const char *input, float *x, unsigned n)
{
    if (input[0] == 'V')
        (input[1] == '1' ? input_v1 : input_v2)(x, n);
    else
        input_k(input[1] - '0', x, n);
}

static void to_hex(const unsigned char *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", p[i]);
}

static void test_shorts(void)
{
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        struct tu_coding c;
        char hex[1024];
        if (!start(&c, shorts[i].codec, NULL, 1, shorts[i].n))
            continue;
        make_short(shorts[i].input, big, shorts[i].n);
        encode(&c, big, code);
        to_hex(code, (size_t)c.code.bytes, hex);
        if (shorts[i].hex)
            eq_str(hex, shorts[i].hex, "%s of %s", shorts[i].codec, shorts[i].input);
        else
            eq_u64(tu_crc32(0, code, (size_t)c.code.bytes), shorts[i].crc, "%s of %s",
                   shorts[i].codec, shorts[i].input);
    }
}

/* Long inputs: R1 R2 R3 without and with importance, and G. Importance 0: same as
 * without. */
static const struct {
    const char *codec;
    uint32_t r[3], weighted[3], g;
} longs[] = {
    {"q4_0",
     {0x63c86592, 0x81671da0, 0x2ebe9dc1},
     {0x66a5c95b, 0x801e45e8, 0xb7930741},
     0x93aaf64f},
    {"q4_1",
     {0xb1ba69ec, 0x9a345e72, 0x7a646816},
     {0xe4aa9da9, 0xb3e2bb97, 0xce661392},
     0xc594cc54},
    {"q5_0",
     {0xe80ebac8, 0x7213a2a4, 0x7dbdee51},
     {0x143468e6, 0xf2f76b69, 0x0892b8be},
     0x01075020},
    {"q5_1",
     {0x1ee36382, 0x8062239b, 0x5902c17b},
     {0x81d93da1, 0x1bd587f8, 0x699f7f02},
     0xd598d8da},
    {"q8_0", {0x5856c977, 0x340bcdce, 0x8095a49e}, {0}, 0x998ce440},
    {"q2_k",
     {0xdbd3a581, 0x5ce01645, 0x20a8417e},
     {0xb83aa2c4, 0xbe9ae10c, 0x86e7579a},
     0x89253b53},
    {"q3_k",
     {0x88beaf52, 0xb6a58211, 0xceef50ec},
     {0x7158be23, 0xebefb543, 0x29626fd5},
     0xbd7547e9},
    {"q4_k",
     {0x2fdebbe0, 0xb6665605, 0x2cb8fb1d},
     {0x91a3d928, 0x0138fd20, 0x0c843dd6},
     0x4919ae88},
    {"q5_k",
     {0x1f2eec96, 0x7bd6bd90, 0xfaa47e93},
     {0xa07c43b0, 0x67332a0d, 0xa93dc514},
     0xb2c190b3},
    {"q6_k",
     {0x94488d6b, 0x258ed098, 0xadd727c3},
     {0x3be4a6d4, 0xa00200bb, 0x4999c2e6},
     0x481f39c9},
    {"iq4_nl",
     {0xebe352bb, 0x11972f9c, 0x20e8cdf9},
     {0x779422d8, 0x89add6a7, 0xedcf0afb},
     0xf2154b7a},
    {"iq4_xs",
     {0x2cd355af, 0xcdfd0d7d, 0xbc863dcf},
     {0x7f107667, 0xdc55d369, 0x3a5015b9},
     0x707cce13},
    {"tq1_0", {0xb7b6e043, 0xc7cd3b07, 0xbde1d3ae}, {0}, 0x74620604},
    {"tq2_0", {0x38024567, 0x0fad92e8, 0xcdff83c0}, {0}, 0x2c2956fd},
    {"mxfp4", {0x77852a12, 0x6564e36b, 0x37dababb}, {0}, 0xbc1db1e9},
    {"nvfp4", {0x886bed54, 0x46f07873, 0x4ceaa142}, {0}, 0xf5430447},
    {"q1_0", {0xa1c17e7f, 0x4de1f2a4, 0x93932fdc}, {0}, 0x9a154b1d},
    {"q2_0", {0xfcb1b9a1, 0x53e50d9e, 0xe4c99895}, {0}, 0xd2544aa0},
};
enum { LONGS = sizeof longs / sizeof *longs };

static void test_input_sums(void)
{
    static const uint32_t sum[3] = {0x3aa005ee, 0x59f0b9bb, 0x6e3bd889};
    for (int r = 1; r <= 3; r++) {
        input_r(r, big);
        eq_u64(tu_crc32(0, big, sizeof big), sum[r - 1], "input R%d", r);
    }
    eq_u64(tu_crc32(0, weight, sizeof weight), 0x0dbf7da1, "importance");
    input_g(big);
    eq_u64(tu_crc32(0, big, G_COUNT * sizeof *big), 0x6b7f1fd6, "input G");
}

/* All levels of one codec on the input at hand, without or with importance. */
static void check_levels(unsigned i, const char *input, bool weighted, uint64_t rows,
                         uint64_t cols, uint32_t want)
{
    struct tu_coding c;
    if (!start(&c, longs[i].codec, weighted ? weight : NULL, rows, cols))
        return;
    for (unsigned l = 0; l < LEVELS; l++) {
        c.cpu = level[l].bits & tu_cpu_detect();
        memset(code, 0xaa, sizeof code);
        encode(&c, big, code);
        eq_u64(tu_crc32(0, code, (size_t)c.code.bytes), want, "%s of %s%s, %s",
               longs[i].codec, input, weighted ? " with importance" : "", level[l].name);
    }
}

static void test_longs(void)
{
    for (int r = 1; r <= 3; r++) {
        char name[] = {'R', (char)('0' + r), '\0'};
        input_r(r, big);
        for (unsigned i = 0; i < LONGS; i++) {
            check_levels(i, name, false, R_ROWS, R_COLS, longs[i].r[r - 1]);
            uint32_t w = longs[i].weighted[r - 1];
            check_levels(i, name, true, R_ROWS, R_COLS, w ? w : longs[i].r[r - 1]);
        }
    }
    input_g(big);
    for (unsigned i = 0; i < LONGS; i++)
        check_levels(i, "G", false, 1, G_COUNT, longs[i].g);
}

/* Errors of decoding G again: root mean square, dB, the largest; and on T the peer's own
 * measure (T is made with the C library's cosine, so its last digit may differ). */
static const struct {
    const char *codec;
    double rmse, sqnr, max, t;
} errors[] = {
    {"q1_0", 0.602332, 4.403, 3.1933, 0.009696},
    {"tq1_0", 0.828363, 1.635, 1.9825, 0.008681},
    {"tq2_0", 0.828363, 1.635, 1.9825, 0.008681},
    {"q2_0", 0.617990, 4.180, 1.9781, 0.008672},
    {"q2_k", 0.296675, 10.554, 1.0178, 0.004672},
    {"q3_k", 0.138563, 17.167, 0.5220, 0.002510},
    {"mxfp4", 0.117242, 18.618, 0.7413, 0.001881},
    {"nvfp4", 0.088376, 21.073, 0.5302, 0.002337},
    {"q4_0", 0.074557, 22.550, 0.3550, 0.001121},
    {"iq4_nl", 0.068121, 23.334, 0.2732, 0.001243},
    {"iq4_xs", 0.069089, 23.211, 0.2732, 0.001256},
    {"q4_1", 0.067818, 23.373, 0.2195, 0.001144},
    {"q4_k", 0.057437, 24.816, 0.2842, 0.000982},
    {"q5_0", 0.037711, 28.470, 0.1717, 0.000591},
    {"q5_1", 0.033747, 29.435, 0.1055, 0.000556},
    {"q5_k", 0.030835, 30.219, 0.1221, 0.000531},
    {"q6_k", 0.016195, 35.812, 0.0608, 0.000261},
    {"q8_0", 0.004858, 46.271, 0.0158, 0.000074},
};

static void measure(const char *name, const float *x, uint64_t n, struct tu_measure *m)
{
    struct tu_coding c;
    *m = (struct tu_measure){0};
    if (!start(&c, name, NULL, 1, n))
        return;
    encode(&c, x, code);
    struct tu_err err;
    ok(tu_coding_decode_mem(&c, code, NULL, back, NULL, &err) == 0, "decode %s", name);
    tu_measure_add(m, x, back, 0, (size_t)n, c.atom);
}

static bool near(double a, double b, double unit)
{
    return fabs(a - b) <= 0.51 * unit;
}

static void test_errors(void)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct tu_measure m;
        input_g(big);
        measure(errors[i].codec, big, G_COUNT, &m);
        double rmse = tu_measure_rmse(&m), sqnr = tu_measure_sqnr(&m);
        ok(near(rmse, errors[i].rmse, 1e-6), "%s: rmse %.6f", errors[i].codec, rmse);
        ok(near(sqnr, errors[i].sqnr, 1e-3), "%s: %.3f dB", errors[i].codec, sqnr);
        ok(near(m.max_abs, errors[i].max, 1e-4), "%s: at most %.4f", errors[i].codec,
           m.max_abs);
        input_t(big, 4096);
        measure(errors[i].codec, big, 4096, &m);
        double t = sqrt(m.sum_e2) / 4096;
        ok(near(t, errors[i].t, 2e-6), "%s: T %.6f", errors[i].codec, t);
    }
}

/* Blocks of one value, as hexadecimal text with runs written "88*16". */
static const struct {
    const char *codec;
    float v;
    const char *bytes;
} flats[] = {
    {"q4_0", 0, "0080 88*16"},
    {"q5_0", 0, "0080 ff*4 00*16"},
    {"q1_0", 0, "0000 ff*16"},
    {"q2_0", 0, "0000 55*16"},
    {"tq1_0", 0, "80*48 7f*4 0000"},
    {"tq2_0", 0, "55*64 0000"},
    {"iq4_nl", 0, "0000 88*16"},
    {"iq4_xs", 0, "0080 aaaa 00*4 88*128"},
    {"q4_1", 0, "00*20"},
    {"q5_1", 0, "00*24"},
    {"q8_0", 0, "00*34"},
    {"mxfp4", 0, "00*17"},
    {"nvfp4", 0, "00*36"},
    {"q2_k", 0, "00*84"},
    {"q3_k", 0, "00*110"},
    {"q4_k", 0, "00*144"},
    {"q5_k", 0, "00*176"},
    {"q6_k", 0, "00*210"},
    {"q4_1", -0.0f, "0000 0080 00*16"},
    {"q5_1", -0.0f, "0000 0080 00*20"},
    {"q4_0", -0.0f, "0080 88*16"},
    {"q4_0", 1, "00b0 00*16"},
    {"q4_1", 1, "0000 003c 00*16"},
    {"q5_0", 1, "00ac 00*20"},
    {"q8_0", 1, "0820 7f*32"},
    {"iq4_nl", 1, "8820 ff*16"},
    {"mxfp4", 1, "7d 66*16"},
    {"nvfp4", 1, "23*4 77*32"},
};

static size_t expand(const char *s, unsigned char *out)
{
    size_t n = 0;
    while (*s) {
        if (*s == ' ') {
            s++;
            continue;
        }
        unsigned byte, times = 1;
        int used = 0;
        sscanf(s, "%2x%n", &byte, &used);
        s += used;
        if (sscanf(s, "*%u%n", &times, &used) == 1)
            s += used;
        memset(out + n, (int)byte, times);
        n += times;
    }
    return n;
}

static void test_flats(void)
{
    for (size_t i = 0; i < sizeof flats / sizeof *flats; i++) {
        struct tu_coding c;
        unsigned n = tu_dtype_named(flats[i].codec)->block_elems;
        for (unsigned j = 0; j < n; j++)
            big[j] = flats[i].v;
        if (!start(&c, flats[i].codec, NULL, 1, n))
            continue;
        size_t want = expand(flats[i].bytes, other);
        for (unsigned l = 0; l < LEVELS; l++) {
            c.cpu = level[l].bits & tu_cpu_detect();
            encode(&c, big, code);
            ok(want == c.code.bytes && !memcmp(code, other, want), "%s of %g, %s",
               flats[i].codec, (double)flats[i].v, level[l].name);
        }
    }
    static const struct {
        const char *codec;
        uint32_t crc;
    } ones[] = {{"q2_k", 0x6cc23e75},
                {"q3_k", 0x862a0194},
                {"q4_k", 0x74081fdd},
                {"q5_k", 0x5e800401},
                {"q6_k", 0xbd8d751b}};
    for (unsigned j = 0; j < 256; j++)
        big[j] = 1;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        struct tu_coding c;
        if (!start(&c, ones[i].codec, NULL, 1, 256))
            continue;
        encode(&c, big, code);
        eq_u64(tu_crc32(0, code, (size_t)c.code.bytes), ones[i].crc, "%s of ones",
               ones[i].codec);
    }
}

/* V1·5e-39: 1/d overflows. Where the peer's exponent wraps, ours is 0 unless asked
 * for. */
static void test_tiny(void)
{
    static const struct {
        const char *codec, *bytes;
        bool compat;
    } tiny[] = {{"q4_0", "00*18", true},           {"q5_0", "00*22", true},
                {"q8_0", "00*34", true},           {"q4_1", "0000 0080 00*16", true},
                {"q5_1", "0000 0080 00*20", true}, {"iq4_nl", "0000 88*16", true},
                {"mxfp4", "fe 00*16", true},       {"mxfp4", "00*17", false}};
    input_v1(big, 32);
    for (unsigned i = 0; i < 32; i++)
        big[i] = (float)((double)big[i] * 5e-39);
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++) {
        struct tu_coding c;
        if (!start(&c, tiny[i].codec, NULL, 1, 32))
            continue;
        c.compat = tiny[i].compat;
        size_t want = expand(tiny[i].bytes, other);
        for (unsigned l = 0; l < LEVELS; l++) {
            c.cpu = level[l].bits & tu_cpu_detect();
            encode(&c, big, code);
            ok(want == c.code.bytes && !memcmp(code, other, want),
               "%s of V1 times 5e-39%s, %s", tiny[i].codec,
               tiny[i].compat ? ", as the peer" : "", level[l].name);
        }
    }
}

/* Any bytes decode, and every level gives the same floats. */
static void test_decoders(void)
{
    const struct tu_codec *k;
    const struct tu_rng r = {.seed = 9};
    for (size_t i = 0; i < sizeof code / 4; i++)
        ((uint32_t *)(void *)code)[i] = tu_rng_u32(&r, i);
    for (size_t row = 0; (k = tu_codec_row(row)); row++) {
        const struct tu_dtype *t = tu_dtype_named(k->name);
        struct tu_coding c;
        if (!t || !(t->code & TU_DTYPE_GGML) || !start(&c, k->name, NULL, 16, 1024))
            continue;
        c.cpu = 0;
        unsigned bad = 0;
        if (tu_coding_decode_mem(&c, code, NULL, back, NULL, NULL))
            ok(false, "decode %s", k->name);
        for (unsigned l = 1; l < LEVELS; l++) {
            c.cpu = level[l].bits & tu_cpu_detect();
            if (tu_coding_decode_mem(&c, code, NULL, big, NULL, NULL))
                ok(false, "decode %s", k->name);
            for (unsigned i = 0; i < 16384; i++)
                bad += memcmp(&big[i], &back[i], sizeof *big) &&
                       (big[i] == big[i] || back[i] == back[i]);
        }
        eq_u64(bad, 0, "%s: any bytes, every level", k->name);
    }
}

int main(void)
{
    input_importance(weight);
    test_input_sums();
    test_shorts();
    test_longs();
    test_errors();
    test_flats();
    test_tiny();
    test_decoders();
    return tap_done();
}
