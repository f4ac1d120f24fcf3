/* SPDX-License-Identifier: Apache-2.0 */
/* fp8, MX, NVFP4 in pairs and BFP: published bytes, every kernel against the conversions
 * of core, errors of the table. */
#include <stdlib.h>
#include "../tap.h"
#include "inputs.h"
#include "quant/small.h"
#include "tensorutils/quant.h"

static unsigned char code[G_COUNT], other[G_COUNT];
static unsigned char side[2][G_COUNT];
static float x[G_COUNT], y[G_COUNT];

static bool run(const char *text, uint64_t rows, uint64_t cols, struct tu_coding *c)
{
    struct tu_spec spec;
    struct tu_err err = {0};
    void *sides[2] = {side[0], side[1]};
    *c = (struct tu_coding){.compat = false};
    int rc = tu_spec_parse(&spec, text, &err);
    if (!rc) {
        rc = tu_coding_init(c, &spec, (uint64_t[]){rows, cols}, 2, &err);
        tu_spec_release(&spec);
    }
    if (!rc)
        rc = tu_coding_encode_mem(c, x, code, sides, NULL, &err);
    if (!rc)
        rc = tu_coding_decode_mem(c, code, (const void *const *)sides, y, NULL, &err);
    return rc == 0 || ok(false, "%s: %s", text, err.msg);
}

static void hex(const unsigned char *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", p[i]);
}

/* Scales, then codes. */
static const struct {
    const char *spec;
    int input;
    unsigned n;
    const char *scale, *code;
} known[] = {
    {"mxfp8", 1, 32, "78",
     "f862f36fec74d8f668f271e97650f56bf072e47860f46eed74dcf766f270ea76"},
    {"mxfp8:elem=e5m2", 1, 32, "71",
     "f86df674f276e8f770f574f07764f672f475ee786cf673f276eaf86ff574f177"},
    {"mxfp6", 1, 32, "7c", "7ca463b6c6ee548ed11ba25b782673907ed99acb4f39566f"},
    {"mxfp6:elem=e2m3", 1, 32, "7e", "78313f2c25da881ca556502fb0646204edb4d4781f32a45a"},
    {"mxfp4_packed", 1, 32, "7e", "1e4d5be8c2a4063d5c6ad1b4952e4c5a"},
    {"mxfp4_packed:scale=even", 1, 32, "7e", "1e4d5be8c2a4063d5c6ad1b4952e4c5a"},
    {"mxfp4_packed:scale=rceil", 1, 32, "7e", "1e4d5be8c2a4063d5c6ad1b4952e4c5a"},
    {"mxint8", 1, 32, "80",
     "c00ad41ee832fcc610da24ee3802cc16e02af43e08d21ce630fac40ed822ec36"},
    {"mxfp4_packed", 2, 32, "7e", "2f5e6cf9e3c6074f6d7ae2d5963f5e7c"},
    {"mxfp4_packed:scale=rceil", 2, 32, "7f", "1d3c4ad8c2a4052d4b59c1b3941d3c5a"},
    {"mxfp8", 2, 32, "78",
     "fd68f974f27addfc6df776ee7b55fa71f578ea7c65f973f27ae2fc6bf876f07b"},
    {"mxint8", 2, 32, "80",
     "9a10ba30da50faa31ac33ae35a03ad23cd43ed630db62dd64df6a016c036e056"},
    {"nvfp4_packed", 1, 32, "7e7e", "2f5e6cf9e3b5074e6d7ae2c5963f5e7c"},
    {"nvfp4_packed:global=modelopt", 1, 32, "7e7e", "2f5e6cf9e3b5074e6d7ae2c5963f5e7c"},
    {"nvfp4_packed", 3, 32, "7e66", "2f5e6cf9e3b5074e6d7ae2c5963f5e7c"},
    {"bfp", 1, 16, "80", "1c2d3ec0e1f2041d"},
    {"bfp:bits=6", 1, 16, "80", "f002f508fa0cfff204f609fc0e00f306"},
    {"bfp:block=4", 4, 8, "8382", "4000a000"},
    {"bfp:block=4,order=desc", 4, 8, "837e", "d400c412"},
};

static void make(int input, unsigned n)
{
    static const float outliers[8] = {0.5f, 16, 0.25f, -0.5f, 0.75f, -12, 0.125f, 1};
    if (input == 1)
        input_v1(x, n);
    else if (input == 4)
        memcpy(x, outliers, sizeof outliers);
    else
        input_v2(x, n);
    for (unsigned i = 16; input == 3 && i < n; i++)
        x[i] *= 0.125f;
}

static void test_known(void)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct tu_coding c;
        char text[128];
        make(known[i].input, known[i].n);
        if (!run(known[i].spec, 1, known[i].n, &c))
            continue;
        hex(side[0], (size_t)c.side[0].bytes, text);
        eq_str(text, known[i].scale, "scales of %s, input %d", known[i].spec,
               known[i].input);
        hex(code, (size_t)c.code.bytes, text);
        eq_str(text, known[i].code, "codes of %s, input %d", known[i].spec,
               known[i].input);
    }
    struct tu_coding c;
    uint32_t g;
    make(1, 32);
    run("nvfp4_packed", 1, 32, &c);
    memcpy(&g, side[1], 4);
    eq_u64(g, 0x44a80000, "global scale of V1, which dequantizing divides by");
    make(3, 32);
    run("nvfp4_packed", 1, 32, &c);
    memcpy(&g, side[1], 4);
    eq_u64(g, 0x44520000, "global scale of V2, the second half an eighth");
    memset(x, 0, sizeof x);
    ok(run("nvfp4_packed", 1, 32, &c) && y[0] == 0, "zeros have a finite global scale");
}

static const struct {
    const char *spec;
    double rmse;
} errors[] = {
    {"mxfp8", 0.030798},
    {"mxfp8:scale=rceil", 0.026510},
    {"mxfp8:elem=e5m2", 0.054169},
    {"mxfp6", 0.054170},
    {"mxfp6:elem=e2m3", 0.027766},
    {"mxfp4_packed", 0.117242},
    {"mxfp4_packed:scale=ceil", 0.136824},
    {"mxfp4_packed:scale=rceil", 0.116626},
    {"mxfp4_packed:scale=even", 0.110273},
    {"mxint8", 0.006973},
    {"nvfp4_packed", 0.086392},
};

static void test_errors(void)
{
    input_g(x);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct tu_coding c;
        struct tu_measure m = {0};
        if (!run(errors[i].spec, 4, G_COUNT / 4, &c))
            continue;
        tu_measure_add(&m, x, y, 0, G_COUNT, c.atom);
        double rmse = tu_measure_rmse(&m);
        ok(fabs(rmse - errors[i].rmse) < 0.6e-6, "%s: rmse %.6f", errors[i].spec, rmse);
    }
}

/* Casts around every code and every middle, at every level. */
static void test_casts(void)
{
    static const char *const name[] = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"};
    static const uint32_t level[] = {0, TU_CPU_GROUP_AVX2, TU_CPU_GROUP_AVX512};
    enum { GROUP = 45 };
    float scale[G_COUNT / GROUP + 1];
    for (size_t k = 0; k < 5; k++) {
        const struct tui_small *f = tui_small_named(name[k]);
        const struct tu_rng r = {.seed = k};
        for (uint32_t i = 0; i < G_COUNT; i++) {
            uint32_t u = tu_rng_u32(&r, i);
            float v = tu_from_small(f->dtype, (uint8_t)(u & ((1u << f->bits) - 1)));
            float next =
                tu_from_small(f->dtype, (uint8_t)((u + 1) & ((1u << f->bits) - 1)));
            v = isfinite(v) && isfinite(next) ? (u >> 8 & 1 ? v : (v + next) / 2) : 1e4f;
            x[i] = u >> 9 & 1 ? nextafterf(v, u >> 10 & 1 ? 1e9f : -1e9f) : v;
            scale[i / GROUP] = i / GROUP % 3 ? 1 : i / GROUP % 2 ? 0.75f : 0.25f;
        }
        for (size_t l = 0; l < 3; l++) {
            uint32_t bits = level[l] & tu_cpu_detect();
            unsigned bad = 0;
            tui_small_encode(bits, f, x, G_COUNT, GROUP, scale, code);
            for (uint32_t i = 0; i < G_COUNT; i++)
                bad += code[i] != tu_to_small(f->dtype, x[i] / scale[i / GROUP], true);
            eq_u64(bad, 0, "%s: casts are core's, level %zu", name[k], l);
            for (uint32_t i = 0; i < G_COUNT; i++)
                other[i] =
                    (unsigned char)(tu_rng_u32(&r, i) >> 7 & ((1u << f->bits) - 1));
            tui_small_decode(bits, f, other, G_COUNT, GROUP, scale, y);
            for (uint32_t i = bad = 0; i < G_COUNT; i++) {
                float want = tu_from_small(f->dtype, other[i]) * scale[i / GROUP];
                bad += memcmp(&want, &y[i], 4) != 0 && !(isnan(want) && isnan(y[i]));
            }
            eq_u64(bad, 0, "%s: values are core's, level %zu", name[k], l);
        }
    }
}

/* Casts without a scale; what is too large saturates, or becomes NaN (E4M3) and Inf
 * (E5M2). A tie with the largest number is that number. */
static void test_plain(void)
{
    static const float value[] = {0.1f,       3.3f,          17,  19,  440,  0x1p-10f,
                                  0x1.8p-10f, 0.0146484375f, 464, 465, 1e30f};
    static const char *const code_of[] = {"1d45585a7e0001087e7e7e",
                                          "1d45585a7e0001087e7f7f"};
    for (unsigned k = 0; k < 2; k++) {
        struct tu_coding c;
        char text[64];
        memcpy(x, value, sizeof value);
        if (!run(k ? "fp8:nosat" : "fp8", 1, 11, &c))
            continue;
        hex(code, 11, text);
        eq_str(text, code_of[k], k ? "E4M3, not saturating" : "E4M3, saturating");
    }
    struct tu_coding c;
    x[0] = 0.1f;
    x[1] = 3.3f;
    x[2] = 61440;
    ok(run("fp8:elem=e5m2,nosat", 1, 3, &c) && code[0] == 0x2e && code[1] == 0x43 &&
           code[2] == 0x7c,
       "E5M2, not saturating");
    ok(run("fp8:elem=e5m2", 1, 3, &c) && code[2] == 0x7b, "E5M2, saturating");
}

int main(void)
{
    test_known();
    test_errors();
    test_casts();
    test_plain();
    return tap_done();
}
