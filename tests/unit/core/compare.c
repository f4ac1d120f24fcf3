/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of comparing arrays: figures worked by hand, NaN and infinities, steps of every kind. */
#include <math.h>
#include <tensorutils/core.h>
#include "../tap.h"

static struct tu_compare c;

static int add(const struct tu_tolerance *tol, uint32_t dtype, const void *a, const void *b,
               size_t n)
{
    static const struct tu_tolerance none;
    c = (struct tu_compare){ 0 };
    return tu_compare_add(&c, tol ? tol : &none, dtype, a, dtype, b, n, 0, NULL);
}

static void test_figures(void)
{
    const float a[] = { 1, 2, 3, 4 }, b[] = { 1, 2.5f, 3, 3 };
    ok(!add(NULL, TU_F32, a, b, 4), "f32");
    eq_u64(c.n, 4, "four values");
    eq_u64(c.differ, 2, "two differ");
    eq_u64(c.outside, 2, "both outside without a tolerance");
    eq_u64(c.worst, 3, "the worst");
    ok(c.worst_a == 4 && c.worst_b == 3, "its values");
    ok(c.max_abs == 1 && c.max_rel == 1.0 / 3, "its distance");
    eq_u64(c.max_ulp, 4194304, "3 to 4 is half a binade of 2^23 steps");
    ok(c.aa == 30 && c.bb == 25.25 && c.ab == 27 && c.dd == 1.25, "sums");
    ok(fabs(tu_compare_cosine(&c) - 27 / sqrt(30 * 25.25)) < 1e-15, "cosine");
    ok(fabs(tu_compare_sqnr(&c) - 10 * log10(25.25 / 1.25)) < 1e-12, "noise");
    ok(!add(&(struct tu_tolerance){ .atol = 0.5 }, TU_F32, a, b, 4) && c.outside == 1, "atol");
    ok(!add(&(struct tu_tolerance){ .rtol = 0.2 }, TU_F32, a, b, 4) && c.outside == 1, "rtol");
    ok(!add(&(struct tu_tolerance){ .rtol = 0.2, .atol = 0.4 }, TU_F32, a, b, 4) && !c.outside,
       "they add up");
    ok(!add(&(struct tu_tolerance){ .ulp = 4194304 }, TU_F32, a, b, 4) && !c.outside, "ulp");
    ok(!add(NULL, TU_F32, a, a, 4) && !c.differ && isinf(tu_compare_sqnr(&c)), "equal arrays");
    ok(tu_compare_cosine(&(struct tu_compare){ 0 }) == 1, "nothing points where nothing does");
}

static void test_special(void)
{
    const float a[] = { NAN, INFINITY, -INFINITY, 0, NAN, 1, INFINITY },
                b[] = { -NAN, INFINITY, INFINITY, -0.0f, 1, NAN, 5 };
    struct tu_tolerance wide = { .rtol = 1e30, .atol = 1e30, .ulp = UINT64_MAX - 1 };
    ok(!add(&wide, TU_F32, a, b, 7), "NaN and infinities");
    eq_u64(c.differ, 4, "NaN is NaN, zeros are equal, the others differ");
    eq_u64(c.outside, 4, "whatever the tolerance");
    ok(isinf(c.max_abs) && c.worst == 2, "the first of the worst");
    ok(c.aa == 0 && c.dd == 0, "only finite pairs are summed");
}

static void test_steps(void)
{
    const uint16_t half[] = { 0x3c00, 0x8001, 0x0000 }, half2[] = { 0x3c02, 0x0001, 0x8000 };
    ok(!add(NULL, TU_F16, half, half2, 3) && c.max_ulp == 2, "f16, across zero too");
    ok(!add(NULL, TU_BF16, half, half2, 3) && c.max_ulp == 2, "bf16");
    ok(!add(NULL, TU_F8_E4M3FN, "\x38", "\x3b", 1) && c.max_ulp == 3, "fp8");
    ok(!add(NULL, TU_F8_E8M0, "\x7f", "\x81", 1) && c.max_ulp == 2 && c.max_abs == 3, "e8m0");
    const double d[] = { 1, nextafter(1, 2) };
    ok(!add(NULL, TU_F64, d, d + 1, 1) && c.max_ulp == 1 && c.max_abs == 0x1p-52, "f64");
    const int64_t i[] = { INT64_MAX, INT64_MIN }, k[] = { INT64_MAX - 1, INT64_MIN };
    ok(!add(NULL, TU_I64, i, k, 2) && c.differ == 1 && c.max_ulp == 1 && c.max_abs == 1,
       "i64 beyond doubles");
    ok(!add(NULL, TU_I64, i, i + 1, 1) && c.max_ulp == UINT64_MAX - 1,
       "the widest distance is cut by one");
    ok(!add(NULL, TU_I8, "\x80", "\x7f", 1) && c.max_ulp == 255, "i8");
    ok(!add(NULL, TU_BOOL, "\0\1", "\1\1", 2) && c.differ == 1 && c.max_ulp == 1, "bool");
    ok(!add(NULL, TU_I4, "\x21\x43", "\x21\x53", 4) && c.differ == 1 && c.worst == 3 &&
           c.worst_a == 4 && c.worst_b == 5, "packed elements");
    const float z[] = { 1, 2, 3, 4 }, y[] = { 1, 2, 3, 5 };
    ok(!add(NULL, TU_C64, z, y, 2) && c.n == 4 && c.worst == 3, "the parts of complex numbers");
}

static void test_mixed(void)
{
    const float f[] = { 1, 2 };
    const uint16_t h[] = { 0x3f80, 0x4000 };
    static const struct tu_tolerance none;
    struct tu_err err;
    c = (struct tu_compare){ 0 };
    ok(!tu_compare_add(&c, &none, TU_F32, f, TU_BF16, h, 2, 0, &err) && !c.differ && c.n == 2,
       "f32 against bf16");
    eq_int(tu_compare_add(&c, &none, TU_F32, f, TU_C64, f, 1, 0, &err), TU_EDTYPE, "complex");
    eq_int(tu_compare_add(&c, &none, TU_Q8_0, f, TU_F32, f, 32, 0, &err), TU_EDTYPE, "blocks");
}

/* Pieces merged in order say what one call says. */
static void test_merge(void)
{
    enum { N = 5000 };
    static float a[N], b[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i / 7;
        b[i] = i % 97 ? a[i] : a[i] + (float)(i % 13);
    }
    struct tu_compare whole = { 0 }, parts = { 0 };
    static const struct tu_tolerance tol = { .atol = 3 };
    ok(!tu_compare_add(&whole, &tol, TU_F32, a, TU_F32, b, N, 0, NULL), "one call");
    for (size_t i = 0; i < N; i += 1024) {
        struct tu_compare one = { 0 };
        size_t n = N - i < 1024 ? N - i : 1024;
        if (tu_compare_add(&one, &tol, TU_F32, a + i, TU_F32, b + i, n, i, NULL))
            break;
        tu_compare_merge(&parts, &one);
    }
    ok(!memcmp(&whole, &parts, sizeof whole), "pieces give the same figures, bit for bit");
    ok(whole.worst % 97 == 0 && whole.outside < whole.differ, "and sensible ones");
}

int main(void)
{
    test_figures();
    test_special();
    test_steps();
    test_mixed();
    test_merge();
    return tap_done();
}
