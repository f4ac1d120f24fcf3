/* SPDX-License-Identifier: Apache-2.0 */
/* cast.c: every vector row against the plain one, bit for bit; every dtype; refusals. */
#include <tensorutils/core.h>
#include <float.h>
#include <math.h>
#include "../../../lib/core/cast.h"
#include "../tap.h"

enum { MANY = 65536 * 8 };

static unsigned char *source, *plain, *fast; /* MANY values and a byte, to misalign */

/* Every upper half of a float with low halves that round each way; or every f16. */
static void fill(size_t width)
{
    static const unsigned low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0xf001};
    for (size_t i = 0; i < MANY; i++) {
        if (width == 4)
            tu_put32(source + 1 + 4 * i, (uint32_t)(i / 8) << 16 | low[i % 8]);
        else
            tu_put16(source + 1 + 2 * i, (uint16_t)(i * 40503)); /* odd: all come */
    }
}

static tui_cast_fn function(const struct tu_kernel *k)
{
    return (tui_cast_fn)k->fn;
}

static void rows(const char *name, const struct tu_kernel *table, size_t from, size_t to)
{
    const struct tu_kernel *last = table;
    while (last[1].name)
        last++;
    fill(from);
    function(last)(plain + 1, source + 1, MANY);
    for (const struct tu_kernel *k = table; k < last; k++) {
        char what[64];
        snprintf(what, sizeof what, "%s: %s", name, k->name);
        if ((tu_cpu_detect() & k->needs) != k->needs) {
            tap_skip(what, "not on this CPU");
            continue;
        }
        memset(fast, 0xa5, MANY * to + 1);
        function(k)(fast + 1, source + 1, MANY);
        ok(!memcmp(plain + 1, fast + 1, MANY * to), "%s: all values", what);
        bool ends = true;
        for (size_t n = 0; n < 70; n++) {
            memset(fast, 0xa5, 512);
            function(k)(fast + 1, source + 1 + from * 8 * 0x3f00, n);
            ends &= !memcmp(fast + 1, plain + 1 + to * 8 * 0x3f00, n * to) &&
                    fast[0] == 0xa5 && fast[1 + n * to] == 0xa5;
        }
        ok(ends, "%s: 0 to 69 values", what);
    }
}

static const struct {
    uint32_t dtype;
    size_t n;
    const char *bytes;
    double is[8];
} arrays[] = {
    {TU_I8, 3, "\x01\xff\x80", {1, -1, -128}},
    {TU_U8, 3, "\x01\xff\x80", {1, 255, 128}},
    {TU_I16, 2, "\xff\xff\x00\x80", {-1, -32768}},
    {TU_U16, 2, "\xff\xff\x00\x80", {65535, 32768}},
    {TU_I32, 2, "\x01\x00\x00\x01\xff\xff\xff\xff", {16777217, -1}},
    {TU_U32, 1, "\xff\xff\xff\xff", {4294967295.0}},
    {TU_I64, 1, "\x00\x00\x00\x00\x00\x00\x00\x80", {-0x1p63}},
    {TU_U64, 1, "\xff\xff\xff\xff\xff\xff\xff\xff", {0x1p64}},
    {TU_BOOL, 2, "\x00\x01", {0, 1}},
    {TU_I4, 3, "\xe1\x07", {1, -2, 7}},
    {TU_U4, 3, "\xe1\x07", {1, 14, 7}},
    {TU_I2, 5, "\xe4\x01", {0, 1, -2, -1, 1}},
    {TU_U2, 5, "\xe4\x01", {0, 1, 2, 3, 1}},
    {TU_U1, 8, "\x35", {1, 0, 1, 0, 1, 1, 0, 0}},
    {TU_F16, 2, "\x00\x3c\x01\x00", {1, 0x1p-24}},
    {TU_BF16, 2, "\x80\x3f\x00\xc0", {1, -2}},
    {TU_F32, 1, "\x00\x00\x60\x40", {3.5}},
    {TU_F64, 1, "\x00\x00\x00\x00\x00\x00\x0c\x40", {3.5}},
    {TU_C64, 1, "\x00\x00\x80\x3f\x00\x00\x00\xc0", {1, -2}},
    {TU_F8_E4M3FN, 4, "\x38\xc0\x7e\x30", {1, -2, 448, 0.5}},
    {TU_F8_E8M0, 2, "\x00\x80", {0x1p-127, 2}},
    {TU_F6_E2M3, 5, "\x81\x30\x10\x3f", {0.125, 0.25, 0.375, 0.5, -7.5}},
    {TU_F4_E2M1, 3, "\xf1\x07", {0.5, -6, 6}},
};

static void to_numbers(void)
{
    double d[8];
    float f[8];
    struct tu_err err;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        bool pair = arrays[i].dtype == TU_C64;
        size_t values = arrays[i].n * (pair ? 2 : 1);
        bool same =
            !tu_to_double(arrays[i].dtype, arrays[i].bytes, d, arrays[i].n, &err) &&
            tu_to_float(arrays[i].dtype, arrays[i].bytes, f, arrays[i].n, &err) ==
                (pair ? TU_EDTYPE : 0);
        for (size_t k = 0; k < values; k++)
            same &= d[k] == arrays[i].is[k] && (pair || f[k] == (float)arrays[i].is[k]);
        char name[8];
        ok(same, "%s to double and float", tu_dtype_text(arrays[i].dtype, name));
    }
    eq_int(tu_to_float(TU_Q4_0, "", f, 1, &err), TU_EDTYPE, "block formats are refused");
    eq_int(tu_to_double(TU_Q4_0, "", d, 1, &err), TU_EDTYPE, "for double too");
    eq_int(tu_to_double(0x1234, "", d, 1, &err), TU_EDTYPE, "and unknown codes");

    /* More than one chunk of a type whose elements straddle bytes. */
    static uint8_t packed[3 * 2000 / 4];
    static float value[2000];
    for (size_t i = 0; i < sizeof packed; i++)
        packed[i] = (uint8_t)(i * 151);
    bool same = !tu_to_float(TU_F6_E3M2, packed, value, 2000, &err);
    for (size_t i = 0; i < 2000; i++) {
        uint32_t group = tu_le16(packed + i / 4 * 3) | (uint32_t)packed[i / 4 * 3 + 2]
                                                           << 16;
        same &= value[i] == tu_from_small(TU_F6_E3M2, (uint8_t)(group >> i % 4 * 6 & 63));
    }
    ok(same, "2000 values of 6 bits");
}

/* Every pair of plain dtypes: 0 and 1 go everywhere. */
static void all_pairs(void)
{
    struct tu_err err;
    bool right = true;
    for (size_t i = 0; tu_dtype_row(i); i++) {
        for (size_t j = 0; tu_dtype_row(j); j++) {
            uint32_t from = tu_dtype_row(i)->code, to = tu_dtype_row(j)->code;
            static const unsigned char bits[2] = {0, 1};
            unsigned char a[2000 * 16 + 1], b[2000 * 16 + 1];
            double got[4] = {9, 9, 9, 9};
            size_t n = 2;
            if (!tu_cast_ok(to, from)) {
                right &= tu_cast(to, b, from, a, 1, &err) == TU_EDTYPE;
                continue;
            }
            bool fits = from != TU_F8_E8M0 && to != TU_F8_E8M0; /* they have no 0 */
            if (!fits)
                continue;
            right &= !tu_cast(from, a + 1, TU_BOOL, bits, n, &err) &&
                     !tu_cast(to, b + 1, from, a + 1, n, &err) &&
                     !tu_to_double(to, b + 1, got, n, &err);
            bool pairs = to == TU_C64 || to == TU_C128;
            right &= pairs ? !got[0] && !got[1] && got[2] == 1 && !got[3]
                           : !got[0] && got[1] == 1;
        }
    }
    ok(right, "0 and 1 between all plain dtypes; the others are refused");
    ok(!tu_cast_ok(TU_F32, TU_C64) && tu_cast_ok(TU_C64, TU_F32) &&
           tu_cast_ok(TU_C64, TU_C128) && !tu_cast_ok(TU_I4, TU_F32) &&
           !tu_cast_ok(TU_F32, TU_Q8_0),
       "what is defined");
}

static const struct {
    uint32_t to, from;
    double v;
    bool fits;
} whole[] = {
    {TU_I8, TU_I32, 127, true}, {TU_I8, TU_I32, 128, false}, {TU_I8, TU_I32, -128, true},
    {TU_I8, TU_I32, -129, false}, {TU_U8, TU_I32, -1, false}, {TU_U8, TU_I32, 255, true},
    {TU_U8, TU_I32, 256, false}, {TU_BOOL, TU_I32, 1, true}, {TU_BOOL, TU_I32, 2, false},
    {TU_I64, TU_F64, -0x1p63, true}, {TU_I64, TU_F64, 0x1p63, false},
    {TU_U64, TU_F64, 0x1p63, true},
    {TU_U64, TU_F64, 0x1p64, false}, {TU_I32, TU_F32, 1.5, false},
    {TU_I32, TU_F32, -7, true},
    {TU_I32, TU_F32, NAN, false}, {TU_U8, TU_F32, INFINITY, false},
    {TU_U8, TU_F32, -0.0, true},
    {TU_U8, TU_F32, -1, false}, {TU_I16, TU_F16, 2048, true},
    {TU_I8, TU_F16, 2048, false},
    {TU_I64, TU_U64, 0x1p63, false}, {TU_U64, TU_I64, -0x1p63, false},
    {TU_I64, TU_I32, -5, true},
};

static void whole_numbers(void)
{
    struct tu_err err;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        unsigned char a[8], b[8] = {0};
        double back = 0;
        if (tu_cast(whole[i].from, a, TU_F64, &whole[i].v, 1, &err)) {
            ok(false, "row %zu: %s", i, err.msg);
            continue;
        }
        int rc = tu_cast(whole[i].to, b, whole[i].from, a, 1, &err);
        if (!rc)
            rc = tu_to_double(whole[i].to, b, &back, 1, &err);
        ok(whole[i].fits ? !rc && back == whole[i].v : rc == TU_EUSAGE, "row %zu: %g%s",
           i, whole[i].v, whole[i].fits ? "" : " is refused");
    }
    int32_t list[1000] = {0};
    int8_t out[1000];
    list[777] = -300;
    eq_int(tu_cast(TU_I8, out, TU_I32, list, 1000, &err), TU_EUSAGE,
           "one of 1000 does not fit");
    eq_str(err.msg, "element 777: -300 does not fit i8", "it is named");
    float real[1000] = {0};
    real[600] = 0.5f;
    eq_int(tu_cast(TU_I8, out, TU_F32, real, 1000, &err), TU_EUSAGE,
           "one of 1000 is not whole");
    eq_str(err.msg, "element 600: 0.5 is no whole number that fits i8", "it is named");
}

/* What torch 2.15 (saturate) and ml_dtypes 0.5 (special) make of these. */
static void overflow(void)
{
    static const float v[] = {448, 464, 465, -1e6F, INFINITY, NAN};
    static const unsigned char torch[] = {0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7f},
                               ml_dtypes[] = {0x7e, 0x7e, 0x7f, 0xff, 0x7f, 0x7f};
    unsigned char code[6];
    struct tu_err err;
    ok(!tu_cast_by(TU_OVERFLOW_SATURATE, TU_F8_E4M3FN, code, TU_F32, v, 6, &err) &&
           !memcmp(code, torch, 6),
       "e4m3fn saturates as torch");
    ok(!tu_cast_by(TU_OVERFLOW_SPECIAL, TU_F8_E4M3FN, code, TU_F32, v, 6, &err) &&
           !memcmp(code, ml_dtypes, 6),
       "e4m3fn has NaN as ml_dtypes");
    eq_int(tu_cast_by(TU_OVERFLOW_AUTO, TU_F8_E4M3FN, code, TU_F32, v, 2, &err), 0,
           "what fits");
    eq_int(tu_cast_by(TU_OVERFLOW_AUTO, TU_F8_E4M3FN, code, TU_F32, v, 6, &err),
           TU_EUSAGE, "what does not");
    eq_str(err.msg, "element 2: 465 is beyond f8_e4m3fn, 448 at most", "is named");
    static const uint16_t big = 0x7f7f; /* bf16 */
    uint16_t half;
    ok(!tu_cast_by(TU_OVERFLOW_AUTO, TU_F16, &half, TU_BF16, &big, 1, &err) &&
           half == 0x7c00,
       "f16 has Inf");
    ok(!tu_cast_by(TU_OVERFLOW_SATURATE, TU_F16, &half, TU_BF16, &big, 1, &err) &&
           half == 0x7bff,
       "or 65504");
    eq_int(tu_cast_by(TU_OVERFLOW_ERROR, TU_F16, &half, TU_BF16, &big, 1, &err), TU_EUSAGE,
           "or none");
    static const double huge = -1e300;
    float single;
    ok(!tu_cast_by(TU_OVERFLOW_SATURATE, TU_F32, &single, TU_F64, &huge, 1, &err) &&
           single == -FLT_MAX,
       "f32 of f64");
}

int main(void)
{
    struct tu_err err;
    source = tu_alloc(MANY + 1, 4, NULL);
    plain = tu_alloc(MANY + 1, 4, NULL);
    fast = tu_alloc(MANY + 1, 4, NULL);
    if (!source || !plain || !fast)
        return 1;
    rows("f32 to bf16", tui_cast_f32_bf16, 4, 2);
    rows("bf16 to f32", tui_cast_bf16_f32, 2, 4);
    rows("f32 to f16", tui_cast_f32_f16, 4, 2);
    rows("f16 to f32", tui_cast_f16_f32, 2, 4);
    to_numbers();
    all_pairs();
    whole_numbers();
    overflow();

    fill(2);
    ok(!tu_cast(TU_BF16, plain, TU_F16, source + 1, MANY, &err), "f16 to bf16");
    bool same = true;
    for (size_t i = 0; i < MANY; i++)
        same &= tu_le16(plain + 2 * i) ==
                tu_to_bf16(tu_from_f16(tu_le16(source + 1 + 2 * i)));
    ok(same, "goes through f32, which is exact");
    ok(!tu_cast(TU_F8_E4M3FN, plain, TU_F32, (const float[]){1, 1000}, 2, &err) &&
           plain[0] == 0x38 && plain[1] == 0x7f,
       "to fp8 without saturation");
    eq_int(tu_cast(TU_F32, NULL, TU_F32, NULL, 0, &err), 0, "nothing");
    eq_int(tu_cast(TU_F32, NULL, TU_F64, NULL, 0, &err), 0, "nothing of another type");
    tu_free(source);
    tu_free(plain);
    tu_free(fast);
    return tap_done();
}
