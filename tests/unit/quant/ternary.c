/* SPDX-License-Identifier: Apache-2.0 */
/* Ternary codes, planes of bits, blocks of mixed width. */
#include "inputs.h"
#include "kit.h"
#include "tensorutils/quant/bits.h"

static float big[R_COUNT], back[R_COUNT];

static void test_terngrad(void)
{
    static const float g[8] = {.5f, -.25f, 1, -1, 0, .75f, -.125f, .0625f};
    static const struct {
        const char *spec, *hex;
    } row[] = {{"terngrad", "2559"},
               {"terngrad:pack=base3", "86d5"},
               {"terngrad:pack=reference", "5195ca"}};
    static const float want[8] = {0, 0, 1, -1, 0, 1, 0, 0};
    for (unsigned i = 0; i < 3; i++) {
        struct kit k = {.c.seed = 42};
        if (kit_start(&k, row[i].spec, 1, 8, g)) {
            eq_str(kit_hex(k.code, (size_t)k.c.code.bytes), row[i].hex, "%s",
                   row[i].spec);
            ok(kit_decode(&k, back) == 0, "decodes");
            for (unsigned j = 0; j < 8; j++)
                ok(back[j] == want[j], "element %u", j);
            k.code[0] |= 3;
            ok(i == 1 || kit_decode(&k, back) == TU_EFORMAT, "code 3: %s", k.why);
        }
        kit_free(&k);
    }
    struct kit k = {.c.seed = 42};
    if (kit_start(&k, "terngrad:clip=2.5", 1, 8, g))
        ok(fabsf(*(float *)k.side[0] - 1.47496503f) < 1e-6f, "clip at %.8f",
           (double)*(float *)k.side[0]);
    kit_free(&k);
    if (kit_start(&k, "terngrad:scaler=2", 1, 8, g))
        ok(*(float *)k.side[0] == 2, "a scaler that the workers share");
    kit_free(&k);
    eq_int(kit_plan(&k, "terngrad:clip=-1", 1, 8), TU_EUSAGE, "a negative clip: %s",
           k.why);
    eq_int(kit_plan(&k, "terngrad:pack=3", 1, 8), TU_EUSAGE, "an unknown packing: %s",
           k.why);
    /* Unbiased: over many draws the mean is the value. */
    for (unsigned i = 0; i < R_COUNT; i++)
        big[i] = i == 0 ? 1 : 0.3f;
    if (kit_start(&k, "terngrad", R_ROWS, R_COLS, big) && kit_decode(&k, back) == 0) {
        double sum = 0;
        for (unsigned i = 0; i < R_COUNT; i++)
            sum += (double)back[i];
        ok(fabs(sum / R_COUNT - 0.3) < 0.006, "mean of 0.3: %.4f", sum / R_COUNT);
    }
    kit_free(&k);
}

static void test_mean(void)
{
    static const float w[5] = {1, -0.4f, 0.1f, -2, 0.5f}; /* mean 0.8 */
    static const float want[5] = {1, 0, 0, -1, 1};
    struct kit k = {0};
    for (unsigned p = 0; p < 2; p++) {
        if (kit_start(&k, p ? "b158:pack=base3" : "b158", 1, 5, w) &&
            kit_decode(&k, back) == 0)
            for (unsigned i = 0; i < 5; i++)
                ok(fabsf(back[i] - 0.8f * want[i]) < 1e-6f, "element %u is %g", i,
                   (double)back[i]);
        kit_free(&k);
    }
    /* The same trits as ggml's TQ2_0 makes of the snapped values. */
    input_r(1, big);
    struct kit t = {0};
    if (kit_start(&k, "b158", R_ROWS, R_COLS, big) && kit_decode(&k, back) == 0 &&
        kit_start(&t, "tq2_0", R_ROWS, R_COLS, back)) {
        memcpy(big, back, sizeof big);
        kit_decode(&t, back);
        unsigned bad = 0;
        for (unsigned i = 0; i < R_COUNT; i++)
            bad += (big[i] > 0) != (back[i] > 0) || (big[i] < 0) != (back[i] < 0);
        eq_u64(bad, 0, "snapped, then packed by ggml's format");
    }
    kit_free(&k);
    kit_free(&t);
}

static void test_planes(void)
{
    static const uint8_t a[8] = {3, 0, 2, 1, 3, 1, 0, 2}, b[8] = {1, 3, 0, 2, 2, 3, 1, 0};
    uint64_t pa[2], pb[2];
    uint8_t out[8];
    tu_planes_pack(a, 8, 2, pa);
    tu_planes_pack(b, 8, 2, pb);
    ok(pa[0] == 0x39 && pa[1] == 0x95 && pb[0] == 0x63 && pb[1] == 0x3a, "planes");
    eq_int(tu_planes_dot(pa, 1, pb, 1, 8), 0, "low by low");
    eq_int(tu_planes_dot(pa, 1, pb + 1, 1, 8), 4, "low by high");
    eq_int(tu_planes_dot(pa + 1, 1, pb, 1, 8), -4, "high by low");
    eq_int(tu_planes_dot(pa + 1, 1, pb + 1, 1, 8), -4, "high by high");
    eq_int(tu_planes_dot(pa, 2, pb, 2, 8), -16, "all");
    tu_planes_unpack(pa, 8, 2, out);
    eq_mem(out, a, 8, "unpack");

    /* A product of coded rows is the product of their values. */
    struct kit x = {0}, y = {0};
    float product[16], *vx = back, *vy = back + 4 * 200;
    input_r(1, big);
    if (kit_start(&x, "bipolar:bits=4", 4, 200, big) &&
        kit_start(&y, "bipolar:bits=3", 4, 200, big + 4000) && !kit_decode(&x, vx) &&
        !kit_decode(&y, vy)) {
        tu_planes_product((uint64_t *)(void *)x.code, x.side[0], 4, 4,
                          (uint64_t *)(void *)y.code, y.side[0], 4, 3, 200, product);
        for (unsigned i = 0; i < 16; i++) {
            double sum = 0;
            for (unsigned k = 0; k < 200; k++)
                sum += (double)vx[i / 4 * 200 + k] * vy[i % 4 * 200 + k];
            ok(fabs(sum - product[i]) < 1e-4, "product %u: %g", i, sum);
        }
        double worst = 0, top = 0;
        for (unsigned i = 0; i < 200; i++) {
            worst = fmax(worst, fabs((double)vx[i] - big[i]));
            top = fmax(top, fabs((double)big[i]));
        }
        ok(worst <= top / 15 * 1.0001, "four bits are within a step: %g of %g", worst,
           top);
    }
    kit_free(&x);
    kit_free(&y);
    eq_int(kit_plan(&x, "bipolar:bits=9", 1, 8), TU_EUSAGE, "nine bits: %s", x.why);
}

static void test_fmpq(void)
{
    struct kit k = {0};
    input_r(1, big);
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 4; j++)
            big[i * 512 + 37 * j + 11] *= 100; /* outlier channels, far apart */
    if (kit_start(&k, "fmpq", 16, 512, big) && kit_decode(&k, back) == 0) {
        const int32_t *perm = kit_side(&k, "perm");
        unsigned first = 0;
        double error = 0, alone;
        for (unsigned j = 0; j < 4; j++)
            for (unsigned o = 0; o < 4; o++)
                first += perm[j] == (int32_t)(37 * o + 11);
        eq_u64(first, 4, "outliers come first");
        for (unsigned i = 0; i < 16 * 512; i++)
            error += pow((double)back[i] - (double)big[i], 2);
        ok(fabs(tu_coding_bpw(&k.c) - 5.75) < 2.1, "%.3f bits", tu_coding_bpw(&k.c));
        kit_free(&k);
        kit_start(&k, "int4:group=128,rule=narrow", 16, 512, big);
        kit_decode(&k, back);
        alone = 0;
        for (unsigned i = 0; i < 16 * 512; i++)
            alone += pow((double)back[i] - (double)big[i], 2);
        ok(error < alone / 10, "error %.1f, without the order %.1f", error, alone);
    }
    kit_free(&k);
    if (kit_start(&k, "fmpq:group=4,wide=1", 2, 8, big)) {
        tu_put32(k.side[1], 8);
        eq_int(kit_decode(&k, back), TU_EFORMAT, "a column that is not: %s", k.why);
    }
    kit_free(&k);
    eq_int(kit_plan(&k, "fmpq:wide=5", 2, 512), TU_EUSAGE,
           "more blocks than there are: %s", k.why);
}

int main(void)
{
    test_terngrad();
    test_mean();
    test_planes();
    test_fmpq();
    return tap_done();
}
